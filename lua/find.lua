-- find.lua - what is stored for `key`, the i-th. Sets: stored (false: nothing); state (the same; nil: not of our type),
-- known (it is a state under `stamp`, and no former one), moved. Several keys are got at once: that says neither of a
-- key that it is missing nor that it is not of our type, so where nothing came it is asked again by itself.
local stored = got and got[i] or pcall('GET', key)
local state, known = stored, false
if state then
  if state.err then
    if not string.find(state.err, 'WRONGTYPE', 1, true) then return state end
    state = nil
  else
    known = sub(state, 1, #stamp) == stamp
  end
end
local moved = false -- whether it must be written even if the request is denied
