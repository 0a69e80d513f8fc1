-- bucket_settle.lua - charges a token or leaky bucket, after an outage, for what an instance admitted in it; and says
-- how long the key lay idle in that time. docs/design/outages.md says what that is for.
--
-- The first charge sees it in the state: since the state's last use, and after its permits had drained, the key lay
-- idle. The charge erases that. So it leaves a note beside the key, '<I7I7' when the key began and ended to lie idle,
-- in us, for the charges of the other instances. A key without a state counts as idle since a full bucket of the time
-- at which the outage began had drained.
--
-- KEYS     the key; its note, in a cluster in the same slot.
-- ARGV     one string: '<c22ddddc4dd' as a return's in bucket_single.lua, with the permits to charge, which may be 0,
--          and instead of the time at which they were charged the microseconds since the outage began.
-- Returns  one string: '<I7I7' for how many microseconds of the time since then the key lay idle, and how many ago that
--          ended; then the answer of each.lua.
-- Errors   'WEIR ...' if ARGV is invalid; then nothing was written.
local redis, parse, pack, args, key = redis, struct.unpack, struct.pack, ARGV[1], KEYS[1]
if not args or #args ~= 74 or #KEYS ~= 2 then
  return redis.error_reply('WEIR bad arguments')
end
local call = redis.call
local clock = call('TIME')
local now, state, note = clock[1] * 1000000 + clock[2], redis.pcall('GET', key), redis.pcall('GET', KEYS[2])
local double, drain, full, _, units, echo, unit, ago = parse('<c22ddddc4dd', args)
if drain == 0 or unit == 0 then
  return redis.error_reply('WEIR bad arguments')
end
local since, from, idle, ended = math.max(0, now - ago), now, 0, 0
if not state then
  from = since + full / drain
elseif #state == 36 then
  local own, used, anchor = parse('<c22I7I7', state)
  if own == double and anchor <= now then from = anchor + used / drain end
end
from = from + -from % 1
if from < now then idle = now - math.max(from, since) end
if note and #note == 14 then
  local first, last = parse('<I7I7', note)
  local noted = last - math.max(first, since)
  if last <= now and noted > idle then idle, ended = noted, now - last end
end
if idle > 0 and ended == 0 then
  local left = math.min(ago, 3600000000) / 1000 + 10000
  call('PSETEX', KEYS[2], string.format('%d', left - left % 1), pack('<I7I7', from, now))
end
--@include bucket_rest.lua
local answer = decide(6, units / unit, 1)
if type(answer) ~= 'string' then
  return answer
end
return pack('<I7I7', idle, ended) .. answer
