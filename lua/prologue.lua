-- prologue.lua - names for what every call of a script needs, each of which costs it a little, and the numbers that the
-- scripts share with src/.
local call, pcall, sub, pack, parse = redis.call, redis.pcall, string.sub, struct.pack, struct.unpack
local floor, ceil, format = math.floor, math.ceil, string.format
local TAKE, PEEK, REFUND, RESET = 0, 1, 2, 3           -- enum weir_verb
local EXACT_MAX, FILL_MAX = 9007199254740991, 4481179200000000 -- 2^53 - 1; WEIR_MAX_FILL_US
local SLACK_US = 2000000                               -- WEIR_CLOCK_SLACK_US
local NONE, FOREIGN = '\0', '\1'                       -- answers: no state; what is stored is not a state of ours
