-- carry.lua - the body of carry(state, stamp, now): a state under another plan becomes one under this stamp. The permits
-- used so far, rounded up, are charged to a fresh state. Returns false if none are in use, nil if it is not a state of
-- ours.
local tag = sub(state, 1, 1)
if not algorithms[tag] then
  return nil
end
local permits, held = algorithms[tag](sub(state, 1, stamp_len[tag]), state, now, 0)
if not permits then
  return nil
elseif permits == 0 then
  return false
end
local size = parse('<I4', stamp, #stamp - 3)
local _, _, _, _, bytes = algorithms[sub(stamp, 1, 1)](stamp, false, held, math.min(permits, size))
return bytes
