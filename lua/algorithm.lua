-- algorithm.lua - one algorithm as a function: take `cost` permits, if they are there, from a state (false: fresh).
-- Returns nil if the state is not one of ours, else: permits used before, rounded up; the time, or the anchor if a clock
-- that stepped back is held; whether the state must be written in any case; whether the cost was admitted; and the
-- state after (nil: fresh) with the microseconds until it will be as good as new.
local function ALGORITHM(stamp, state, now, cost, moved)
  --@paste ALGORITHM plan
  --@paste ALGORITHM check
  if not sane then
    return nil
  end
  --@paste ALGORITHM read
  if not ours then
    return nil
  end
  local permits, held = ceil(used / unit), math.max(now, anchor * grain)
  local allowed, added = used + cost * unit <= most, 0
  if allowed then
    used, added = used + cost * unit, cost
  end
  if used == 0 then
    return permits, held, moved, allowed
  end
  local bytes, left
  --@paste ALGORITHM write
  return permits, held, moved, allowed, bytes, left
end
