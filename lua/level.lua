-- level.lua - greedy token bucket and leaky bucket, the twin of src/core/algorithm/level.h: p units drain every tick.
--
--     stamp: tag 'T' or 'L', p I7, q I7, tick I5 in us, size I6          state: stamp, used units I7, tick I7
--
-- Each take moves the time at which the bucket is idle again. So that few writes need a new time to live, the script
-- cuts time into blocks of `room` ticks, a quarter of a full bucket's time and a second, and lets the key live to the
-- end of the block in which it becomes idle. While that block stays the same, a write goes into the stored bytes, and
-- Redis keeps the time to live. The state says that its key has this room: p, q and the used units are doubled. A
-- plan's p and q have no common divisor, so no plan has such a stamp, and it stands for the same level: versions of
-- weir that know no room carry it over exactly, as a state under another plan.
--
-- The next call computes the time from the stored state, rounded to half a tick. It must not find the next block there
-- unless the key lives to the end of that one. So where a script only adds a step to the position in the block, it
-- takes the last 4 ticks of the block for the next one.
--
-- The parts of an algorithm, in the order in which scripts paste them:
--     plan     in: stamp, now. Out: the plan's fields; most, the units of a full bucket; top, the most units that may
--              be in use (src/core/algorithm/top.h); unit, the units of a permit; grain, the microseconds of one step
--              of the anchor; fresh, the anchor of a fresh state.
--     room     in: time. Out: what `know` and `store` need once a call.
--     swift    decides the first keys of several: takes by their one item, and returns. Those that are none of buckets,
--              or meet another value than a state with room, it leaves: it sets slow and slows. charged includes what
--              the others took. Out: what `quick` needs once a call. `store` writes the same.
--     anew     defines anew(key, idle, bytes): writes the fields of a state with a new time to live. idle is the tick
--              at which the bucket is idle. In: double, the stamp with room; room, tick, now, grace.
--     quick    in: key, state (a value, nil or false), and the key's first item: verb, more, cost, times. If it is a
--              take or a return alone, of a bucket's state with room, decides it and sets met; charged includes what it
--              took. `store` writes the same.
--     know     in: state (a value), used 0. Out: known, true if it is a state under `stamp` without a former one;
--              perhaps used and anchor as stored. If its key has room, spare and spent are the stored anchor and used.
--     check    out: sane, true if the stamp is a valid plan. The stamp of a stored state has been checked before.
--     read     in: state (nil: foreign, false: none), known, moved. Out: ours; used and anchor at now; moved, true if
--              the clock has stepped back by more than the slack, so that the anchor was moved, and 1 if a level must
--              be written as it was met; for windows and intervals spare, which `store` compares to see whether the
--              stored time to live is still right.
--     back     in: cost, since, added (the permits admitted so far), changed (true if the state must be written). Out:
--              cost, without the permits that have come back since then. A level's comes back here: cost 0, used, and
--              changed 1 while nothing but returns has changed the state.
--     keep     in: verb. Out: what `undo` needs.
--     undo     takes the last `back` back. In: was_changed, what `changed` was before it. The caller restores used and
--              changed.
--     kept     in: changed. Out: used and anchor to write. After nothing but returns that is a level's own anchor, and
--              what was in use then, because returns count as of the last change.
--     fill     in: permits, those in use. Out: fill, the microseconds until nothing of a full state is used, or of this
--              one if it is overdrawn.
--     edge     out: edge, rate and rate_us of a state that is made from this one (src/core/algorithm/origin.h).
--     carry    in: into (another stamp), used. Out: alike, true if this state can be under that stamp exactly; stamp
--              and used, which are then of that plan.
--     write    in: used, anchor, added (the permits just admitted); bytes and left, declared. Out: bytes; left, the
--              microseconds until the key is idle.
--     store    the same as `write` for a key alone. Out, if the time to live can stay: offset, where `bytes` go. Never
--              by a caller's time, because then nothing relates it to the time to live.
--@part plan
local tag, p, q, tick, size = parse('<BI7I7I5I6', #stamp == 26 and stamp or string.rep('\0', 26))
local most, unit, grain, fresh = size * q, q, tick, tick == 1 and now or (now - now % tick) / tick
local top = (FILL_MAX - FILL_MAX % tick) / tick * p
if top > EXACT_MAX then top = EXACT_MAX end
--@part room
local double, roomy, room = nil, not time and 2 * most <= EXACT_MAX and 2 * p <= EXACT_MAX
--@part swift
local double, drain, full = nil, 2 * p, 2 * most -- what `quick` counts is in half units
local taken = verb == TAKE and times == 1 and cost <= size and 2 * cost * unit -- by each of the first keys
if got and roomy and settled > 0 and (same == 0 or taken) then
  double, room = pack('<BI7I7I5I6', tag, 2 * p, 2 * q, tick, size), full / drain / 4 + 1000000 / tick
  room = room - room % 1 + 1
  slow, slows = {}, 0
  local near, step, halves = room - 4, same > 0 and taken / drain, 2 * unit
  local returns = { parse('<' .. string.rep('dd', settled - same), items, noted) }
  --@paste level anew
  local function leave(i)
    slows = slows + 1
    slow[slows] = i
  end
  for i = 1, same do
    local state = got[i]
    if state and #state == 40 then
      local own, used, anchor = parse('<c26I7I7', state)
      if own == double and anchor <= fresh and used > 0 and used <= full and used % 2 == 0 then
        local idle, level = anchor + used / drain, used - (fresh - anchor) * drain
        local ends = idle % room + step
        if level < 0 then
          level, ends = 0, ends + fresh - idle
        end
        level = level + taken
        if level <= full then
          charged = charged + cost
          if ends < near then
            call('SETRANGE', names[i], '26', pack('<I7I7', level, fresh))
          else
            anew(names[i], fresh + level / drain, pack('<I7I7', level, fresh))
          end
        end
      else
        leave(i)
      end
    else
      leave(i)
    end
  end
  local k = 1
  for i = same + 1, settled do
    local state = got[i]
    if state and #state == 40 then
      local own, used, anchor = parse('<c26I7I7', state)
      if own == double and used > 0 and used <= full and used % 2 == 0 then
        local back, since = returns[k] * halves, returns[k + 1]
        if back > full then back = full end
        back = back - max(0, anchor - (since - since % tick) / tick) * drain
        if back >= used then
          call('DEL', names[i])
        elseif back > 0 then
          call('SETRANGE', names[i], '26', pack('<I7', used - back))
        end
      else
        leave(i)
      end
    else
      leave(i)
    end
    k = k + 2
  end
end
--@part anew
local function anew(key, idle, bytes)
  local left = (idle - idle % room + room + 1) * tick - now
  call('PSETEX', key, string.format('%d', (left + -left % 1000) / 1000 + grace), double .. bytes)
end
--@part quick
if state and roomy and #state == 40 then
  local units = taken
  if i <= same then
    -- this key has that item, too
  elseif more or cost > size then
    units = nil
  else
    units = (verb == RETURN or verb == TAKE and times == 1) and 2 * cost * unit
  end
  if units then
    local own, used, anchor = parse('<c26I7I7', state)
    double = double or pack('<BI7I7I5I6', tag, 2 * p, 2 * q, tick, size)
    if own ~= double then
      -- another plan's state
    elseif verb == RETURN then
      if used > 0 and used <= full and used % 2 == 0 then
        units = units - max(0, anchor - (times - times % tick) / tick) * drain
        if units >= used then
          call('DEL', key)
        elseif units > 0 then
          call('SETRANGE', key, '26', pack('<I7', used - units))
        end
        met = state
      end
    elseif anchor <= fresh then
      local level = used - (fresh - anchor) * drain
      if level < 0 then level = 0 end
      level = level + units
      if level > full then
        met = state -- denied
      elseif used > 0 and used <= full and used % 2 == 0 then
        if not room then
          room = full / drain / 4 + 1000000 / tick
          room = room - room % 1 + 1
        end
        local bytes, ends = pack('<I7I7', level, fresh), fresh + level / drain
        ends = ends - ends % room
        local ended = anchor + used / drain - ends
        if ended >= 0 and ended < room then
          call('SETRANGE', key, '26', bytes)
        else
          --@paste level anew
          anew(key, ends, bytes)
        end
        met = state
        charged = charged + cost
      end
    end
  end
end
--@part know
if #state == 40 then
  local own
  own, used, anchor = parse('<c26I7I7', state)
  known = own == stamp
  if not known and roomy then
    double = double or pack('<BI7I7I5I6', tag, 2 * p, 2 * q, tick, size)
    if own == double and used % 2 == 0 and used <= EXACT_MAX then
      known, used, spare = true, used / 2, anchor
      spent = used
    end
  end
else
  known = sub(state, 1, #stamp) == stamp
end
--@part check
local sane = (tag == 84 or tag == 76) and p > 0 and p <= EXACT_MAX and tick > 0 and most > 0 and most <= EXACT_MAX
  and most / p * tick <= FILL_MAX
--@part read
local ours, was, whence = state ~= nil, 0, fresh
if not state then
  used, anchor = 0, fresh
else
  ours = #state == 40
  if not ours then anchor = fresh elseif not known then used, anchor = parse('<I7I7', state, 27) end
  was, whence, moved = used, anchor, moved and 1
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
if changed == true then was, whence = used, anchor end
changed = changed or 1
was = max(0, was - max(0, cost * unit - max(0, whence - (since - since % tick) / tick) * p))
cost, used = 0, max(0, was - max(0, anchor - whence) * p)
--@part keep
local kept = was
--@part undo
if was_changed ~= true then was = kept end
--@part kept
if changed == 1 then used, anchor = was, whence end
--@part fill
local fill = math.ceil(min(max(size, permits) * q, top) / p) * tick
--@part edge
local whole = min(whence, anchor)
edge, rate, rate_us = min(whole * tick + tick - 1, EXACT_MAX), p, q * tick
while rate * rate_us > EXACT_MAX do
  rate, rate_us = (rate + rate % 2) / 2, (rate_us - rate_us % 2) / 2
end
--@part carry
local tag2, p2, q2, tick2, size2 = parse('<BI7I7I5I6', #into == 26 and into or string.rep('\0', 26))
local divisor, rest = q, q2
while rest > 0 do divisor, rest = rest, divisor % rest end
alike = (tag2 == 84 or tag2 == 76) and tick2 == tick and q / divisor * q2 <= EXACT_MAX
if alike then
  used = min(size2 * q2, math.floor(used / q) * q2 + math.ceil(used % q * (q2 / divisor) / (q / divisor)))
  stamp, p = into, p2
end
--@part write
bytes = pack('<c26I7I7', stamp, used, anchor)
left = used / p
left = max(0, (left + -left % 1) * tick + (anchor * tick - now))
--@part store
if roomy and not moved and not beside and 2 * used <= EXACT_MAX then
  if not room then
    room = most / p / 4 + 1000000 / tick
    room = room - room % 1 + 1
  end
  local ends, ended = anchor + used / p, spare and spare + spent / p
  ends = ends - ends % room
  if ended and ended - ended % room == ends then
    offset, bytes = '26', pack('<I7I7', 2 * used, anchor)
  else
    bytes = pack('<BI7I7I5I6I7I7', tag, 2 * p, 2 * q, tick, size, 2 * used, anchor)
    left = max(0, (ends + room + 1) * tick - now)
  end
else
  --@paste level write
end
