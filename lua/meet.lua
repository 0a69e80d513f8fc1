-- meet.lua - the body of meet(stored, stamp, now), for what is stored but is not plainly a state under this stamp: it
-- is under another plan, or has a former state behind it, or is not ours.
--
-- The former state is what a key had under a plan before, kept because its use is more than the new plan can hold. It
-- denies nothing. What is charged to the state is charged to it too, as a take under its own plan; where that does not
-- fit, it becomes full, and where nothing is used in it, it is forgotten instead. So a limit that goes back to that
-- plan has forgotten nothing. A refund and a denial leave it as it is. A key is as good as new when both states are.
--
--     with a former state: '+', n I2, n bytes of the state (its stamp alone: nothing is used in it), the former state
--
-- Under another plan, the permits used so far, the state's or the former one's, whichever are more, rounded up, are
-- charged to a fresh state. If they are more than it holds, the state that had more (the former one, if equal) is the
-- former one from then on; otherwise there is none any more. But where the former one has as much or more and is under
-- the very plan that is asked for, it goes on as the state, as it is: nothing begins anew.
--
-- Returns the state (false: a fresh one, nil: not ours); whether it must be written in any case; and if it has a former
-- one, beside(bytes, left, added): it makes of the state after (nil: fresh), its microseconds left and the permits that
-- were charged what is to be stored, and the microseconds until both are as good as new.
local function look(state, or_stamp) -- as the algorithms' functions return
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
