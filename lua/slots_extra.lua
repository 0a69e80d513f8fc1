-- slots_extra.lua - notes what the costs of a key's slots exceed 1 by: a function for slots.lua and slots_of.lua.
local function slots_extra(key, extra)
  if extra > 0 then
    call('ZADD', key, string.format('%.0f', -extra), '')
  else
    call('ZREM', key, '')
  end
end
