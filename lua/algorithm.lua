-- algorithm.lua - one algorithm as a function that takes `cost` permits, if they are there, from a state (false:
-- fresh).
--
-- Returns nil if the state is foreign. Otherwise it returns:
--     the permits used before, rounded up
--     the time, or the anchor if the clock has stepped back less than the slack
--     whether the state must be written in any case
--     whether the cost was admitted
--     the state afterwards (nil: fresh), and the microseconds until the key is idle
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
