-- interval.lua - token bucket with interval refill, the twin of src/core/algorithm/interval_bucket.c: `limit` permits
-- come back every period. level.lua explains the parts.
--
--     stamp: tag 'I', align I1, limit I6, period I7 in us, size I6       state: stamp, used I7, last refill I7 in us
--@part plan
local tag, align, limit, period, size = parse('<BBI6I7I6', #stamp == 21 and stamp or string.rep('\0', 21))
local most, unit, grain, fresh = size, 1, 1, align == 1 and now - now % period or now
local top = (FILL_MAX - FILL_MAX % period) / period * limit
if top > EXACT_MAX then top = EXACT_MAX end
--@part room
--@part swift
--@part quick
--@part know
known = sub(state, 1, #stamp) == stamp
--@part check
local sane = tag == 73 and align <= 1 and limit > 0 and period > 0 and size > 0
  and math.ceil(size / limit) * period <= FILL_MAX -- so that top is at least the size
--@part read
anchor = fresh
local ours = state ~= nil
if state then
  ours = #state == 35
  if ours then used, anchor = parse('<I7I7', state, 22) end
  spare = used / limit -- when the state becomes fresh
  spare = (spare + -spare % 1) * period + align * (-anchor % period) + anchor
  ours = ours and most > 0 and used > 0 and used <= top and anchor <= EXACT_MAX
  if anchor > now then
    if anchor - now > SLACK_US then anchor, moved = now, true end
  elseif now - anchor >= period + align * (-anchor % period) then
    local first = anchor + period + align * (-anchor % period) -- off the grid: its first point after a period
    local later = math.floor((now - first) / period)
    used, anchor = max(0, used - (later + 1) * limit), first + later * period
    if used == 0 then anchor = fresh end
  end
end
--@part back
if since < anchor then cost = 0 end
--@part keep
--@part undo
--@part kept
--@part fill
local fill = math.ceil(max(size, permits) / limit) * period
--@part edge
edge = anchor
--@part carry
alike = sub(stamp, 1, 2) == sub(into, 1, 2) and sub(stamp, 9, 15) == sub(into, 9, 15)
if alike then
  stamp, limit = into, parse('<I6', into, 3)
  used = min(used, (parse('<I6', into, 16)))
end
--@part write
bytes = pack('<c21I7I7', stamp, used, anchor)
left = used / limit
left = (left + -left % 1) * period + align * (-anchor % period) + (anchor - now)
--@part store
local ends = used / limit
ends = (ends + -ends % 1) * period + align * (-anchor % period) + anchor
if known and not time and not moved and ends == spare then
  offset, bytes = '21', pack('<I7I7', used, anchor)
else
  --@paste interval write
end
