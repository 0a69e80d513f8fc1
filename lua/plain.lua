-- plain.lua - returns a state of a bucket, or its stamp alone, without room in its time to live (level.lua), and any
-- other value as it is.
local function plain(state)
  local tag = sub(state, 1, 1)
  if (tag == 'T' or tag == 'L') and (#state == 26 or #state == 40) then
    local p, q = parse('<I7I7', state, 2)
    local used = #state == 40 and parse('<I7', state, 27) or 0
    if p % 2 == 0 and q % 2 == 0 and used % 2 == 0 and max(p, q, used) <= EXACT_MAX then -- larger ones are rounded here
      local own = pack('<c1I7I7c11', state, p / 2, q / 2, sub(state, 16))
      return #state == 26 and own or pack('<c26I7c7', own, used / 2, sub(state, 34))
    end
  end
  return state
end
