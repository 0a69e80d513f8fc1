-- algorithms.lua - every algorithm as a function, and the length of its stamp, by the stamp's first byte.
--@include algorithm.lua level
--@include algorithm.lua interval
--@include algorithm.lua fixed
--@include algorithm.lua sliding
local algorithms = { T = level, L = level, I = interval, F = fixed, S = sliding }
local stamp_len = { T = 26, L = 26, I = 21, F = 15, S = 16 }
