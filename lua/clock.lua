-- clock.lua - the time to decide by, read once: the server's, or `time`, a caller's, in decimal microseconds. A key that
-- was decided by a caller's time stays a week longer, for the server counts its time to live by another clock.
-- Sets: now (nil if `time` is not one), grace (milliseconds that a key outlives its state).
local now, grace = nil, 2000
if not time then
  local clock = call('TIME')
  now = clock[1] * 1000000 + clock[2]
elseif #time <= 16 and not string.find(time, '[^0-9]') and #time > 0 and time + 0 <= EXACT_MAX then
  now, grace = time + 0, 604802000
end
