-- find.lua - the value stored for `key`, the i-th.
-- Sets: stored (false: none); state (the value; nil: it is not a string); known (it is a state under `stamp`, without a
-- former one); moved. Several keys are read by one MGET, which returns nothing for a missing key and for one that is
-- not a string. A GET then tells the two apart.
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
local moved = false -- true: the state must be written even if the request is denied
