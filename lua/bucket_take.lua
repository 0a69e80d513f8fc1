-- bucket_take.lua - one take from one token or leaky bucket, the commonest call, in as few steps as it can be decided.
--
-- KEYS     one key.
-- ARGV     one string: '<c22I7I3I7I7' the stamp of the state with room (level.lua), and what follows from it, in half
--          units: those that drain every tick, the tick, the least level that is too high for the request, the units of
--          the cost; then the item and the echo, as in each.lua. If the cost exceeds the size, the level and the units
--          are 0. The caller vouches that these agree.
-- Returns  one string. If the key has a state with room under this stamp and the clock has not stepped back: the seconds
--          and microseconds of TIME with a blank between them if the request is denied, or a plus if it is admitted; the
--          state that it met; the argument, which ends with the echo. Before it denies, the script does not check that
--          the state is one that scripts write. Otherwise the answer of each.lua, which is shorter.
-- Errors   'WEIR ...' if ARGV is invalid; then nothing was written.
--
-- It runs the same commands as each.lua. Text is joined only from text.
local redis, parse, args, key = redis, struct.unpack, ARGV[1], KEYS[1]
local call = redis.call
local clock = call('TIME')
local seconds, micros = clock[1], clock[2]
local now, state = seconds * 1000000 + micros, redis.pcall('GET', key)
if state and #state == 36 and #args == 59 then
  local double, drain, tick, above = parse('<c22I7I3I7', args)
  local own, used, anchor = parse('<c22I7I7', state)
  local fresh = (now - now % tick) / tick
  if own == double and anchor <= fresh then
    local level = used - (fresh - anchor) * drain
    if level >= above then
      return seconds .. ' ' .. micros .. state .. args
    end
    local pack, units, grace, charged, cost, room, met = struct.pack, parse('<I7', args, 40), 2000, 0, 0
    --@paste level admit
    if met then
      return seconds .. '+' .. micros .. state .. args
    end
  end
end
--@include prologue.lua
if not args or #args ~= 59 then
  return redis.error_reply('WEIR bad arguments')
end
local tag, p, q, tick, size = parse('<BI7I7I3I4', args)
local stamp, items, time, keys = pack('<BI7I7I3I4', tag, p / 2, q / 2, tick, size), sub(args, 47), nil, #KEYS
local grace, lone = 2000, state
--@include decide.lua level
