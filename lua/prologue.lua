-- prologue.lua - names for what the scripts call and the numbers that they share with src/.
local call, pcall, byte, sub, rep, concat = redis.call, redis.pcall, string.byte, string.sub, string.rep, table.concat
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max
local pack, parse = struct.pack, struct.unpack
local TAKE, PEEK, REFUND, RESET = 0, 1, 2, 3           -- enum weir_verb
local EXACT_MAX, FILL_MAX = 9007199254740991, 4481179200000000 -- 2^53 - 1; WEIR_MAX_FILL_US
local SLACK_US = 2000000                               -- WEIR_CLOCK_SLACK_US
local NONE, FOREIGN = '\0', '\1'                       -- answers: no state; what is stored is not a state of ours
