-- each.lua - the body of a script that decides for n keys, each by itself: the requests for a key one after the other,
-- as if each had come alone. ALGORITHM is the file of its arithmetic. The scripts say what KEYS and ARGV are.
--
-- One GET and at most one SET or DEL a key; TIME is read once. Every number stays a whole one below 2^53, which a
-- double holds exactly, and leaves through struct.pack or as the milliseconds of PX: tostring keeps 14 digits only.
--@include prologue.lua

local stamp, items, time = ARGV[1], ARGV[2], ARGV[3]
--@include clock.lua
if not now or not items or #ARGV > 3 then
  return redis.error_reply('WEIR bad arguments')
end
--@paste ALGORITHM plan
if not sane or #items % 9 ~= 0 then
  return redis.error_reply('WEIR bad stamp or items')
end
local keys, last = 0, 1
for k = 1, #items, 9 do
  local verb, more = byte(items, k, k + 1)
  if verb > RESET or more > 1 then
    return redis.error_reply('WEIR bad items')
  end
  keys, last = keys + 1 - more, more
end
if last ~= 0 or keys ~= #KEYS then
  return redis.error_reply('WEIR bad items: not those of the keys')
end

local function carry(state, stamp, now)
  --@include prologue.lua
  --@include algorithms.lua
  --@include carry.lua
end
local found, charged, at = { NONE }, 0, 1 -- room for one from the start: most calls have one key
for i = 1, keys do
  local key = KEYS[i]
  --@include find.lua
  --@paste ALGORITHM read
  if ours then
    found[i] = state or NONE
    local changed, before = false, charged
    repeat
      local verb, more, cost, times
      verb, more, cost, times, at = parse('<BBI5I2', items, at)
      if verb == TAKE then
        local admitted = floor((most - used) / (cost * unit))
        if admitted > 0 then
          if admitted > times then admitted = times end
          used = used + admitted * cost * unit
          charged = charged + admitted * cost
          changed = true
        end
      elseif verb ~= PEEK then
        used = verb == REFUND and max(0, used - times * cost * unit) or 0
        if used == 0 then anchor = fresh end
        changed = true
      end
      if moved and verb ~= PEEK then changed = true end
    until more == 0
    if not changed then
      -- a denial and a peek leave the key as it is
    elseif used > 0 then
      local added = charged - before
      --@paste ALGORITHM write
      call('SET', key, bytes, 'PX', ceil(left / 1000) + grace)
    elseif state or moved then
      call('DEL', key)
    end
  else
    found[i] = FOREIGN
    repeat
      at = at + 9
    until byte(items, at - 8) == 0
  end
end
return pack('<I7I7c0', now, charged, found[2] and concat(found) or found[1])
