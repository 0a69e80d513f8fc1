-- meet.lua - the body of meet(stored, stamp, now), which handles each value that is not plainly a state under this
-- stamp: it is under another plan, has a former state behind it, or is foreign. It needs algorithms.lua and plain.lua.
--
-- A key has up to two states, under the two plans asked for last: its state and, behind it, its former state.
-- src/core/algorithm/former.c defines what becomes of them:
--
--     The plan of the former state asks: the two change places. A third plan: the state with more permits used, or the
--     later one if both have the same, is carried over to it, exactly if its algorithm can; otherwise the permits used,
--     rounded up, are charged to a fresh state. The state becomes the former one.
--     What is charged to the state, or given back, is charged to the former one or given back, too. If it does not
--     fit, the former state is full.
--     The former state is forgotten at `drop`, when its plan has not been asked for as long as a full state lasts.
--
--     with a former state: '+', drop I7 in us, n I2, n bytes of the state, the former state. Each is its stamp alone if
--     nothing is used in it
--
-- Returns the state (false: fresh, nil: foreign), whether it must be written in any case and, if there is a former
-- state, beside(at, added, given, since, bytes, left). That function gets the time, or the state's while a clock that
-- stepped back is held; the permits charged by the call so far; the permits that are given back now, which were perhaps
-- charged `since` then; and at the end the state (nil: fresh) and its microseconds left. It returns the bytes to store
-- and the microseconds until the key is idle.
local function look(state, or_stamp, into) -- returns what the algorithms' functions return
  local tag = sub(state, 1, 1)
  if algorithms[tag] then
    local own = sub(state, 1, stamp_len[tag])
    return algorithms[tag](own, not (or_stamp and own == state) and state, now, 0, false, false, into)
  end
end

local state, former, drop, before, since = plain(stored), nil, 0, 0, now
local pair = sub(stored, 1, 1) == '+'
if pair then
  local n = 0
  if #stored > 10 then drop, n = parse('<I7I2', stored, 2) end
  state, former = plain(sub(stored, 11, 10 + n)), plain(sub(stored, 11 + n))
  before, since = look(former, true)
  if not before or drop > EXACT_MAX then
    return nil
  end
  if drop <= now then former, before, since = nil, 0, now end
end
local moved = sub(state, 1, #stamp) ~= stamp
if moved then
  local permits, held, _, _, _, _, fill = look(state, pair)
  if not permits then
    return nil
  end
  local own, used, met = sub(state, 1, stamp_len[sub(state, 1, 1)]), max(permits, before)
  if former and sub(former, 1, #stamp) == stamp then
    state, former, drop = before > 0 and former or stamp, permits > 0 and state or own, now + fill
  elseif used == 0 then
    return false, true
  else
    _, _, _, _, met = look(before > permits and former or state, pair, stamp)
    if not met then
      used = min(used, (parse('<I6', stamp, #stamp - 5)))
      _, _, _, _, met = algorithms[sub(stamp, 1, 1)](stamp, false, max(held, since), used)
    end
    if permits > 0 then former, drop = state, now + fill end
    state = met
  end
  drop = min(drop, EXACT_MAX)
end
if pair and state == stamp then
  state = false
end
if not former or drop <= now then
  return state, moved
end

local told = 0
local function change(cost, at, since)
  local tag, bytes, _ = sub(former, 1, 1)
  local own = sub(former, 1, stamp_len[tag])
  _, _, _, _, bytes = algorithms[tag](own, former ~= own and former, at, cost, false, true, nil, since)
  former = bytes or own
end
return state, moved, function(at, added, given, since, bytes, left)
  if added > told then change(added - told, at) end
  if given > 0 then change(-given, now, since) end
  told, bytes = added, bytes or stamp
  return pack('<c1I7I2c0c0', '+', drop, #bytes, bytes, former), max(left or 0, drop - now)
end
