-- bucket_rest.lua - decide(verb, cost, times): the steps of all calls, for a single item of a bucket. It reads neither
-- the key nor the time again.
--
-- In: double, the stamp of the state with room; echo; now; state, the key's value. It is a function because a call of
-- the script clears room for all of its locals.
local function decide(verb, cost, times)
  --@include prologue.lua
  local tag, p, q, tick, size = parse('<BI7I7I5I6', double)
  local stamp = pack('<BI7I7I5I6', tag, p / 2, q / 2, tick, size)
  local items = pack('<I2I2BI7I7c4', 0, 0, verb, cost, times, echo)
  local time, keys, grace, lone = nil, key and 1 or 0, 2000, state
  --@include decide.lua level
end
