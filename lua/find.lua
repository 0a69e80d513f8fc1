-- find.lua - what is stored for `key`. Sets: state (false: none; nil: not of our type), known (it is under `stamp`).
local state, known = pcall('GET', key), false
if state then
  if state.err then
    if not string.find(state.err, 'WRONGTYPE', 1, true) then return state end
    state = nil
  else
    known = sub(state, 1, #stamp) == stamp
  end
end
local moved = false -- whether it must be written even if the request is denied
