-- find.lua - what is stored for `key`, under `stamp`. Sets: state (false: none; nil: not a state of ours) and whether
-- it moved, that is, whether it must be written even if the request is denied, here because it was carried over.
local state, moved = pcall('GET', key), false
if state then
  if state.err then
    if not string.find(state.err, 'WRONGTYPE', 1, true) then return state end
    state = nil
  elseif sub(state, 1, #stamp) ~= stamp then
    state, moved = carry(state, stamp, now), true
  end
end
