-- level.lua - greedy token bucket and leaky bucket, the twin of src/core/algorithm/level.h: p units drain every tick.
--
--     stamp: tag 'T' or 'L', p I7, q I7, tick I3 in us, size I4          state: stamp, used units I7, tick I7
--
-- The parts of an algorithm, in the order in which scripts paste them:
--     plan     in: stamp, now. Out: the plan's fields; most, the units of a full bucket; top, the most units that may
--              be in use (src/core/algorithm/top.h); unit, the units of a permit; grain, the microseconds of one step
--              of the anchor; fresh, the anchor of a fresh state.
--     check    out: sane, true if the stamp is a valid plan. The stamp of a stored state has been checked before.
--     read     in: state (nil: foreign, false: none), moved. Out: ours; used and anchor at now; moved, true if the
--              clock has stepped back by more than the slack, so that the anchor was moved.
--     back     in: cost, since, added (the permits admitted so far). Out: cost, without the permits that have come back
--              since then.
--     fill     in: permits, those in use. Out: fill, the microseconds until nothing of a full state is used, or of this
--              one if it is overdrawn.
--     carry    in: into (another stamp), used. Out: alike, true if this state can be under that stamp exactly; stamp
--              and used, which are then of that plan.
--     write    in: used, anchor, added (the permits just admitted); bytes and left, declared. Out: bytes; left, the
--              microseconds until the key is idle.
--@part plan
local tag, p, q, tick, size = parse('<BI7I7I3I4', #stamp == 22 and stamp or string.rep('\0', 22))
local most, unit, grain, fresh = size * q, q, tick, tick == 1 and now or floor(now / tick)
local top = math.min(EXACT_MAX, floor(FILL_MAX / tick) * p)
--@part check
local sane = (tag == 84 or tag == 76) and p > 0 and p <= EXACT_MAX and tick > 0 and most > 0 and most <= EXACT_MAX
  and most / p * tick <= FILL_MAX
--@part read
local used, anchor, ours = 0, fresh, state ~= nil
if state then
  ours = #state == 36
  if ours then used, anchor = parse('<I7I7', state, 23) end
  local start = anchor * tick
  ours = ours and most > 0 and used > 0 and used <= top and start <= EXACT_MAX
  if start > now then
    if start - now > SLACK_US then anchor, moved = fresh, true end
  else
    used, anchor = used - (fresh - anchor) * p, fresh
    if used < 0 then used = 0 end
  end
end
--@part back
cost = math.max(0, cost - ceil(math.max(0, anchor - floor(since / tick)) * p / q))
--@part fill
local fill = ceil(math.min(math.max(size, permits) * q, top) / p) * tick
--@part carry
local tag2, p2, q2, tick2, size2 = parse('<BI7I7I3I4', #into == 22 and into or string.rep('\0', 22))
local divisor, rest = q, q2
while rest > 0 do divisor, rest = rest, divisor % rest end
alike = (tag2 == 84 or tag2 == 76) and tick2 == tick and q / divisor * q2 <= EXACT_MAX
if alike then
  used = math.min(size2 * q2, floor(used / q) * q2 + ceil(used % q * (q2 / divisor) / (q / divisor)))
  stamp, p = into, p2
end
--@part write
bytes = pack('<c22I7I7', stamp, used, anchor)
left = ceil(used / p) * tick + (anchor * tick - now)
