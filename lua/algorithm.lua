-- algorithm.lua - one algorithm as a function that takes `cost` permits from a state (false: fresh) if that has them,
-- or gives permits back if `cost` is less than 0. If the state has fewer and `all` is set, the function takes those and
-- forgets the oldest permits in use for the rest: the state is then full, and one that was overdrawn stays so. If `into`
-- is set, it writes the state under that stamp instead, and no bytes if that can't be exact.
--
-- Returns nil if the state is foreign. Otherwise it returns:
--     the permits used before, rounded up
--     the time, or the anchor if the clock has stepped back less than the slack
--     whether the state must be written in any case
--     whether the cost was admitted
--     the state afterwards (nil: fresh), and the microseconds until the key is idle
--     how many a full state would take, or this one if it is overdrawn
--     with `asks`: edge, rate and rate_us of a state that is made from this one (src/core/algorithm/origin.h)
local function ALGORITHM(stamp, state, now, cost, moved, all, into, since, asks)
  --@paste ALGORITHM plan
  --@paste ALGORITHM check
  if not sane then
    return nil
  end
  local used, anchor, known, spare = 0, nil, false
  --@paste ALGORITHM read
  if not ours then
    return nil
  end
  local added, changed = 0, nil
  if since then
    cost = min(-cost, size)
    --@paste ALGORITHM back
    cost = -cost
  end
  local permits, held = math.ceil(used / unit), max(now, anchor * grain)
  local allowed = cost <= 0 or used + cost * unit <= most
  if allowed then
    used, added = used + cost * unit, cost
    if cost < 0 then used, added = max(0, used), 0 end
  elseif all then
    used = max(used, most)
    added = min(cost, used)
  end
  --@paste ALGORITHM fill
  local edge, rate, rate_us = 0, 0, 0
  if asks then
    --@paste ALGORITHM edge
  end
  local alike, bytes, left = true
  if into then
    --@paste ALGORITHM carry
  end
  if used > 0 and alike then
    --@paste ALGORITHM kept
    --@paste ALGORITHM write
  end
  return permits, held, moved, allowed, bytes, left, fill, edge, rate, rate_us
end
