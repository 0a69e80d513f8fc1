-- clock.lua - the time of this decision, read once: the server's or, if the caller gave one, `time` in decimal
-- microseconds. With a caller's time the key is kept a week longer, because its expiry follows the server's clock.
-- Sets: now (nil if `time` is invalid), grace (milliseconds that a key outlives its state).
local now, grace = nil, 2000
if not time then
  local clock = call('TIME')
  now = clock[1] * 1000000 + clock[2]
elseif #time <= 16 and not string.find(time, '[^0-9]') and #time > 0 and time + 0 <= EXACT_MAX then
  now, grace = time + 0, 604802000
end
