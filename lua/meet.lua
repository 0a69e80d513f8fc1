-- meet.lua - the body of meet(stored, stamp, now), which handles each value that is not plainly a state under this
-- stamp: it is under another plan, has a former state behind it, or is foreign.
--
-- The former state is what a key had under an earlier plan. It is kept because its use is more than the new plan can
-- hold. It denies nothing. Permits charged to the state are also charged to the former state, as a take under its own
-- plan. If they do not fit, the former state becomes full. If nothing is used in it, it is forgotten. So a limit that
-- returns to that plan has forgotten nothing. Refunds and denials leave it unchanged. A key is idle when both states
-- are.
--
--     with a former state: '+', n I2, n bytes of the state (its stamp alone: nothing is used), the former state
--
-- If the state is under another plan, the permits used so far are charged to a fresh state. They are those of the state
-- or of the former one, whichever has more, rounded up. If they are more than the fresh state holds, the state that had
-- more becomes the former one; if both have the same, the former one stays. If they fit, the former one is dropped. One
-- case differs: if the former state has at least as much and is under the very plan in question, it becomes the state,
-- unchanged.
--
-- Returns the state (false: fresh, nil: foreign), whether it must be written in any case and, if there is a former
-- state, beside(bytes, left, added). That function gets the state afterwards (nil: fresh), its microseconds left and
-- the permits charged. It returns the bytes to store and the microseconds until both states are idle.
local function look(state, or_stamp) -- returns what the algorithms' functions return
  local tag = sub(state, 1, 1)
  if algorithms[tag] then
    local own = sub(state, 1, stamp_len[tag])
    return algorithms[tag](own, not (or_stamp and own == state) and state, now, 0)
  end
end

local state, former, before, since = stored, nil, 0, now
if sub(stored, 1, 1) == '+' then
  local n = #stored > 2 and parse('<I2', stored, 2) or 0
  state, former = sub(stored, 4, 3 + n), sub(stored, 4 + n)
  before, since = look(former)
  if not before then
    return nil
  end
end
local moved = sub(state, 1, #stamp) ~= stamp
if moved then
  local permits, held = look(state, former)
  if not permits then
    return nil
  end
  local used, size = math.max(permits, before), parse('<I4', stamp, #stamp - 3)
  if used == 0 then
    return false, true
  elseif former and before >= permits and sub(former, 1, #stamp) == stamp then
    return former, true
  elseif used <= size then
    former = nil
  elseif permits > before then
    former = state
  end
  local _
  _, _, _, _, state = algorithms[sub(stamp, 1, 1)](stamp, false, math.max(held, since), math.min(used, size))
elseif state == stamp then
  state = false
end
if not former then
  return state, moved
end
return state, moved, function(bytes, left, added)
  local tag = sub(former, 1, 1)
  local own = sub(former, 1, stamp_len[tag])
  local permits, held, _, allowed, after, life = algorithms[tag](own, former, now, added)
  if permits == 0 and (added > 0 or not bytes) then
    return bytes, left
  elseif not allowed then
    _, _, _, _, after, life = algorithms[tag](own, false, held, parse('<I4', own, #own - 3))
    life = life + (held - now)
  end
  if added == 0 then after = former end
  bytes = bytes or stamp
  return pack('<c1I2c0c0', '+', #bytes, bytes, after), math.max(left or 0, life or 0)
end
