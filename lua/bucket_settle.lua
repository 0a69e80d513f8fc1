-- bucket_settle.lua - settles one reservation from one token or leaky bucket, in as few steps as it can be decided: gives
-- back the permits that were not used, or charges those that were used beyond the estimate.
--
-- KEYS     one key.
-- ARGV     one string: '<c22I7I3I7I7I4I7c4' the stamp of the state with room (level.lua), and what follows from it, in
--          half units: those that drain every tick, the tick, those of a full bucket, those of a permit; the permits, at
--          most the size; when they were charged, in us, if they are given back, or 0 if they are to be charged; then the
--          echo, as in each.lua. The caller vouches that these agree.
-- Returns  one string, as bucket_take.lua does: with a plus if the permits were charged, or a blank if they were given
--          back. If that leaves nothing in use or the bucket overdrawn, the answer of each.lua.
-- Errors   'WEIR ...' if ARGV is invalid; then nothing was written.
local redis, parse, args, key = redis, struct.unpack, ARGV[1], KEYS[1]
if not args or #args ~= 61 then
  return redis.error_reply('WEIR bad arguments')
end
local call = redis.call
local clock = call('TIME')
local seconds, micros = clock[1], clock[2]
local now, state = seconds * 1000000 + micros, redis.pcall('GET', key)
local double, drain, tick, full, unit, cost, since, echo = parse('<c22I7I3I7I7I4I7c4', args)
if state and #state == 36 then
  local own, used, anchor = parse('<c22I7I7', state)
  local fresh, sign = tick == 1 and now or (now - now % tick) / tick, '+'
  if own == double and anchor <= fresh then
    local level = used - (fresh - anchor) * drain
    if level < 0 then level = 0 end
    if since == 0 then
      level = level + cost * unit
    else
      sign = ' '
      local ticks, back = fresh - (tick == 1 and since or (since - since % tick) / tick), cost
      if ticks > 0 then
        ticks = ticks * drain / unit
        back = cost - (ticks + -ticks % 1)
      end
      if back > 0 then level = level - back * unit end
    end
    if level > 0 and level <= full then
      local pack, grace, room, met = struct.pack, 2000
      --@paste level admit
      if met then
        return state .. seconds .. sign .. micros .. echo
      end
    end
  end
end
--@include bucket_rest.lua
return since > 0 and decide(8, cost, since) or decide(4, cost, 1)
