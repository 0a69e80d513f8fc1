-- fixed.lua - fixed window, the twin of src/core/algorithm/fixed_window.c: a window that has ended is forgotten.
-- level.lua explains the parts.
--
--     stamp: tag 'F', align I1, period I7 in us, size I6                 state: stamp, used I7, start I7 in us
--@part plan
local tag, align, period, size = parse('<BBI7I6', #stamp == 15 and stamp or string.rep('\0', 15))
local most, top, unit, grain, fresh = size, EXACT_MAX, 1, 1, align == 1 and now - now % period or now
--@part room
--@part swift
--@part quick
--@part know
known = sub(state, 1, #stamp) == stamp
--@part check
local sane = tag == 70 and align <= 1 and period > 0 and period <= FILL_MAX and size > 0
--@part read
anchor = fresh
local ours = state ~= nil
if state then
  ours = #state == 29
  if ours then used, anchor = parse('<I7I7', state, 16) end
  spare = anchor
  ours = ours and most > 0 and used > 0 and used <= top and anchor <= EXACT_MAX
  if anchor > now then
    if anchor - now > SLACK_US then anchor, moved = now, true end
  elseif now - anchor >= period + align * (-anchor % period) then -- off the grid: to the first point after a period
    used, anchor = 0, fresh
  end
end
--@part back
if since < anchor then cost = 0 end
--@part keep
--@part undo
--@part kept
--@part fill
local fill = period
--@part edge
edge = anchor
--@part carry
alike = sub(stamp, 1, 9) == sub(into, 1, 9)
used, stamp = min(used, (parse('<I6', into, #into - 5))), into
--@part write
bytes = pack('<c15I7I7', stamp, used, anchor)
left = period + align * (-anchor % period) + (anchor - now)
--@part store
if known and not time and not moved and anchor == spare then
  offset, bytes = '15', pack('<I7', used)
else
  --@paste fixed write
end
