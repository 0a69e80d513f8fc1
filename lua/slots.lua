-- slots.lua - decides one request about the slots of one key: a limit on requests in flight. slots_of.lua says how they
-- are stored.
--
-- KEYS     the key; the hash of costs beside it, in a cluster in the same slot.
-- ARGV     ask    '<Bc8I7I7I7I7c4' the verb, of enum weir_verb; the slot's id; its cost; the limit; the hold in us; for
--                 REFUND the cost that stays; the echo.
--          time   the time to decide by, in decimal microseconds; without it the server's.
-- Returns  one string: '<I7BI7I7I7I7c4' the time; 0 denied, 1 allowed, 2 the value is foreign; the permits that remain;
--          the time until enough slots have ended and until all have, in us; the permits of a CHARGE that were not
--          charged; the echo. After a REFUND all but the echo means nothing.
-- Errors   'WEIR ...' if KEYS or ARGV are invalid; then nothing was written.
--@include prologue.lua
local ask, time, key, costs = ARGV[1], ARGV[2], KEYS[1], KEYS[2]
if not costs or not ask or #ask ~= 41 or ARGV[3] or KEYS[3] then
  return redis.error_reply('WEIR bad arguments')
end
local verb, id, cost, size, hold, left, echo = parse('<Bc8I7I7I7I7c4', ask)
if verb > RENEW or cost == 0 then
  return redis.error_reply('WEIR bad ask')
end
--@include slots_extra.lua
if verb == REFUND and left == 0 then -- the commonest verb beside a take needs no time
  local removed = redis.pcall('ZREM', key, id)
  if type(removed) == 'table' then
    return string.find(removed.err, 'WRONGTYPE', 1, true) and pack('<I7BI7I7I7I7c4', 0, 2, 0, 0, 0, 0, echo) or removed
  end
  local extra = removed == 1 and cost > 1 and call('ZSCORE', key, '')
  if extra then
    local held = call('HGET', costs, id)
    if held then
      call('HDEL', costs, id)
      slots_extra(key, -extra - held + 1)
    end
  end
  return pack('<I7BI7I7I7I7c4', 0, 1, 0, 0, 0, 0, echo)
end
--@include clock.lua
if not now then
  return redis.error_reply('WEIR bad arguments')
end
--@include slots_of.lua
if verb == RESET then
  call('DEL', key, costs)
  return pack('<I7BI7I7I7I7c4', now, 1, size, 0, 0, 0, echo)
end
local n, extra, first, last = slots_read(key, costs, now, verb ~= PEEK)
if not n then
  return string.find(extra.err, 'WRONGTYPE', 1, true) and pack('<I7BI7I7I7I7c4', now, 2, 0, 0, 0, 0, echo) or extra
end
local used = n + extra
local held, ends = (verb == RENEW or verb == CHARGE or verb == REFUND) and n > 0 and call('ZSCORE', key, id), now + hold
local allowed, beyond, old = true, 0, held and extra > 0 and (call('HGET', costs, id) or 1) + 0 or 1
if held then
  if verb == REFUND then
    cost, ends = min(old, left), held + 0
  elseif verb == RENEW then
    cost = old
  else
    ends = max(ends, held + 0)
  end
  extra = slots_put(key, costs, id, ends, cost, old, extra)
  used = used + cost - old
elseif verb == CHARGE and (n >= SLOTS_MAX or used > EXACT_MAX - cost) then
  beyond = cost
elseif verb ~= REFUND then
  allowed = verb == CHARGE or used + cost <= size and n < SLOTS_MAX
  if allowed and verb ~= PEEK then
    extra = slots_put(key, costs, id, ends, cost, 0, extra)
    used, n = used + cost, n + 1
  end
end
if allowed and verb ~= PEEK and beyond == 0 and n > 0 then
  if held then
    last = call('ZRANGE', key, '-1', '-1', 'WITHSCORES')[2] + 0
  elseif verb ~= REFUND then
    last = max(last or 0, ends)
  end
  slots_live(key, costs, now, last, extra)
end
local retry = 0
if not allowed and cost <= size then
  retry = slots_freed(key, costs, now, used + cost - size, extra, first, last) - now
end
return pack('<I7BI7I7I7I7c4', now, allowed and 1 or 0, n < SLOTS_MAX and max(0, size - used) or 0, retry,
  last and last - now or 0, beyond, echo)
