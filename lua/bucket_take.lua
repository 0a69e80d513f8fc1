-- bucket_take.lua - one take from one token or leaky bucket, the commonest call, in as few steps as it can be decided.
--
-- KEYS     one key.
-- ARGV     one string: '<c22I7I3I7I7c4' the stamp of the state with room (level.lua), and what follows from it, in half
--          units: those that drain every tick, the tick, those of a full bucket, those of the cost; then the echo, as in
--          each.lua. If the cost exceeds the size, its units are one more than a full bucket's. The caller vouches that
--          these agree.
-- Returns  one string. If the key has a state with room under this stamp and the clock has not stepped back: the state
--          that it met; the seconds and microseconds of TIME with a blank between them if the request is denied, or a
--          plus if it is admitted; the echo. Before it denies, the script does not check that the state is one that
--          scripts write. Otherwise the answer of each.lua. In that the byte before the echo is below a digit, because
--          it ends a number below 2^53 or is NONE or FOREIGN.
-- Errors   'WEIR ...' if ARGV is invalid; then nothing was written.
--
-- It runs the same commands as each.lua. Text is joined only from text: every byte that becomes a string costs Redis as
-- much as a step of Lua, so the answer repeats no more of the argument than the echo.
local redis, parse, args, key = redis, struct.unpack, ARGV[1], KEYS[1]
if not args or #args ~= 50 then
  return redis.error_reply('WEIR bad arguments')
end
local call = redis.call
local clock = call('TIME')
local seconds, micros = clock[1], clock[2]
local now, state = seconds * 1000000 + micros, redis.pcall('GET', key)
local double, drain, tick, full, units, echo = parse('<c22I7I3I7I7c4', args)
if state and #state == 36 then
  local own, used, anchor = parse('<c22I7I7', state)
  local fresh = tick == 1 and now or (now - now % tick) / tick
  if own == double and anchor <= fresh then
    local level = used - (fresh - anchor) * drain
    if level < 0 then level = 0 end
    level = level + units
    if level > full then
      return state .. seconds .. ' ' .. micros .. echo
    end
    local pack, grace, room, met = struct.pack, 2000
    --@paste level admit
    if met then
      return state .. seconds .. '+' .. micros .. echo
    end
  end
end
--@include bucket_rest.lua
local _, _, q, _, size = parse('<BI7I7I3I4', double)
return decide(0, units <= full and units / q or size + 1, 1)
