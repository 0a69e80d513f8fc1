-- bucket_single.lua - one take from one token or leaky bucket, the commonest call, or one settlement, in as few steps
-- as it can be decided. A settlement gives back permits that were not used, or charges those used beyond the estimate.
--
-- KEYS     one key.
-- ARGV     one string:
--          '<c22I7I7I7c4' the stamp of the state with room (level.lua); what follows from the plan and the permits, in
--              half units: those that drain every microsecond, which is the tick, those of a full bucket, those of
--              the permits; the echo, as in each.lua. If a take's cost exceeds the size, its units are one more than a
--              full bucket's.
--          '<I7I7' for a settlement, whose permits are at most the size: when they were charged, in us, if they are
--              given back, or 0 if they are to be charged; the half units of a permit.
--          The caller vouches that all of these agree.
-- Returns  one string. If the key has a state with room under this stamp and the clock has not stepped back:
--              after a take or settlement that leaves something in use and no bucket overdrawn: '<I7I7c4' its half
--              units; its tick, the time; the echo.
--              after a take that is denied: the state; the seconds and microseconds of TIME with a blank between them;
--              the echo. Whether scripts write such a state has not been checked then.
--          Otherwise the answer of each.lua. That is longer, and the byte before its echo is below a digit, because it
--          ends a number below 2^53 or is NONE or FOREIGN.
-- Errors   'WEIR ...' if ARGV is invalid; then nothing was written.
--
-- It runs the same commands as each.lua. Text is joined only from text: every byte that becomes a string costs Redis as
-- much as a step of Lua, so the answer repeats no more of the argument than the echo.
local redis, parse, args, key = redis, struct.unpack, ARGV[1], KEYS[1]
local len = args and #args
if len ~= 47 and len ~= 61 then
  return redis.error_reply('WEIR bad arguments')
end
local call = redis.call
local clock = call('TIME')
local now, state = clock[1] * 1000000 + clock[2], redis.pcall('GET', key)
local double, drain, full, units, echo, since, unit = parse(len == 47 and '<c22I7I7I7c4' or '<c22I7I7I7c4I7I7', args)
if state and #state == 36 then
  local own, used, anchor = parse('<c22I7I7', state)
  if own == double and anchor <= now then
    local level, met = used - (now - anchor) * drain
    if level < 0 then level = 0 end
    if unit and since > 0 then
      local back = units
      if now > since then
        back = units - (now - since) * drain
        back = back - back % unit
      end
      if back > 0 then level = level - back end
    else
      level = level + units
    end
    if level > full and not unit then
      return state .. clock[1] .. ' ' .. clock[2] .. echo
    elseif level > 0 and level <= full then
      local tick, fresh, grace, room = 1, now, 2000
      local bytes = struct.pack('<I7I7', level, now)
      --@paste level admit
      if met then return bytes .. echo end
    end
  end
end
--@include bucket_rest.lua
if unit then
  return since > 0 and decide(8, units / unit, since) or decide(4, units / unit, 1)
end
local _, _, q, _, size = parse('<BI7I7I3I4', double)
return decide(0, units <= full and units / q or size + 1, 1)
