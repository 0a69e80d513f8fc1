-- find.lua - the value stored for `key`, the i-th.
-- Sets: stored (false: none); state (the value; nil: it is not a string); moved, true if the state must be written even
-- if the request is denied. Several keys are read by one MGET, which returns nothing for a missing key and for one that
-- is not a string. A GET then tells the two apart.
local stored = lone
if stored == nil then stored = got and got[i] or redis.pcall('GET', key) end
local state, moved = stored, false
if state and #state == 0 and state.err then -- an error is a table, of length 0; to index a string costs more
  if not string.find(state.err, 'WRONGTYPE', 1, true) then return state end
  state = nil
end
