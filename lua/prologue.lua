-- prologue.lua - short names for what every call of a script needs, and the numbers that scripts share with src/. Each
-- name costs a call a little time, and each call of a function more. So the parts that every decision runs round by
-- arithmetic: x - x % 1 is floor(x), x + -x % 1 is ceil(x), and (n - n % d) / d is floor(n / d) for integers n.
local call, sub, pack, parse = redis.call, string.sub, struct.pack, struct.unpack
local max, min = math.max, math.min
local TAKE, PEEK, REFUND, RESET, CHARGE, RENEW = 0, 1, 2, 3, 4, 5 -- enum weir_verb
local EXACT_MAX, FILL_MAX = 9007199254740991, 4481179200000000 -- 2^53 - 1; WEIR_MAX_FILL_US
local COUNT_MAX = 4294967295                           -- the most that 4 bytes hold
local SLACK_US = 2000000                               -- WEIR_CLOCK_SLACK_US
local NONE, FOREIGN = '\0', '\1'                       -- in answers: no state; a foreign value
