-- decide.lua - the steps of each.lua, after the arguments are unpacked and the time is read.
--
-- In: stamp, items, time (nil: the server's), keys (their number), now, grace; lone, the value of the only key if it has
-- been read. A take of the plainest kind of state skips most steps: the parts `swift` and `quick` of ALGORITHM.
local LEASE, LEASE_IF_TAKEN, SINCE = 6, 7, 8 -- enum redis_verb

local ends = items and #items - 4 or 0 -- where the items end and the echo begins
if not now or ARGV[4] or keys == 0 or ends < 9 * keys or ends % 9 ~= 0 then
  return redis.error_reply('WEIR bad arguments')
end
--@paste ALGORITHM plan
--@paste ALGORITHM room
local verb, more, cost, times, at = parse('<BBI5I2', items)
local alike = keys > 1 and more == 0 and sub(items, 1, ends) == string.rep(sub(items, 1, 9), keys)
if alike and (verb > SINCE or (verb == LEASE or verb == LEASE_IF_TAKEN) and times == 0) then
  return redis.error_reply('WEIR bad items')
elseif keys > 1 and not alike then
  local counted, last, byte = 0, 1, string.byte
  for k = 1, ends, 9 do
    local verb, more = byte(items, k, k + 1)
    if verb >= LEASE and (verb > SINCE or verb < SINCE and parse('<I2', items, k + 7) == 0) or more > 1 then
      return redis.error_reply('WEIR bad items')
    end
    counted, last = counted + 1 - more, more
  end
  if last ~= 0 or counted ~= keys then
    return redis.error_reply('WEIR bad items: not those of the keys')
  end
end

local got, found, only
if keys > 1 then
  got, found = redis.pcall('MGET', unpack(KEYS)), {}
  if got.err then return got end
end
local charged, read = 0, alike or keys == 1 -- read: the item is the one that has been read
if not read then at = 1 end
--@paste ALGORITHM swift
for i = 1, keys do
  local key, met = KEYS[i], nil
  --@include find.lua
  if not read then verb, more, cost, times, at = parse('<BBI5I2', items, at) end
  read = alike
  --@paste ALGORITHM quick
  if not met then
    local used, anchor, known, beside, spare, spent = 0, nil, false
    if state then
      --@paste ALGORITHM know
    end
    if not known then
      --@paste ALGORITHM check
      if not sane then
        return redis.error_reply('WEIR bad stamp')
      elseif state then
        local function meet(stored, stamp, now) -- defined here because it is rarely needed
          --@include prologue.lua
          --@include algorithms.lua
          --@include meet.lua
        end
        state, moved, beside = meet(stored, stamp, now)
      end
    end
    --@paste ALGORITHM read
    local changed, before, admitted, since, goes_on = false, charged
    repeat
      if not ours then
        -- foreign: skip its requests
      elseif verb == TAKE then
        local units = cost * unit
        admitted = used + units > most and 0 or times
        if admitted > 1 then
          admitted = (most - used) / units
          admitted = admitted - admitted % 1
        end
        if admitted > 0 then
          if admitted > times then admitted = times end
          used = used + admitted * units
          charged = charged + admitted * cost
          changed = true
        end
        if moved then changed = true end
      elseif verb == SINCE then
        since = cost + times * 1099511627776
      elseif verb == CHARGE then
        local fits = math.min(times * cost, math.floor((top - used) / unit))
        used, charged, changed = used + fits * unit, charged + fits, true
      elseif verb >= LEASE then
        local granted = math.floor(math.floor((most - used) / unit) / times)
        if granted > cost then granted = cost end
        if granted > 0 and (verb == LEASE or (admitted or 0) > 0) then
          used = used + granted * unit
          charged = charged + granted
          changed = true
        end
        if moved then changed = true end
      elseif verb ~= PEEK then
        if verb == RESET then
          beside = nil
        elseif beside then
          beside(math.max(now, anchor * grain), charged - before, times * cost, since)
        end
        local again, full = times * cost, used
        if since then
          local added = charged - before
          --@paste ALGORITHM back
          since = nil
        end
        used = verb ~= RESET and math.max(0, used - times * cost * unit) or 0
        if used == 0 then anchor = fresh end
        if verb == RENEW and again <= size and used + again * unit <= math.max(most, full) then
          used, charged = used + again * unit, charged + again
        end
        changed = true
      end
      if more > 1 or verb >= LEASE and (verb > SINCE or verb < SINCE and times == 0) then
        return redis.error_reply('WEIR bad items')
      end
      goes_on = more ~= 0 and at <= ends
      if goes_on then verb, more, cost, times, at = parse('<BBI5I2', items, at) end
    until not goes_on
    if more ~= 0 or (keys == 1 and at <= ends) then
      return redis.error_reply('WEIR bad items: not those of the keys')
    end
    if changed then -- denials and peeks leave the key untouched
      local added, bytes, left, offset = charged - before
      if used > 0 then
        --@paste ALGORITHM store
      end
      if beside then bytes, left = beside(math.max(now, anchor * grain), added, 0, nil, bytes, left) end
      if offset then
        call('SETRANGE', key, offset, bytes)
      elseif bytes then
        call('PSETEX', key, string.format('%d', (left + -left % 1000) / 1000 + grace), bytes)
      elseif stored then
        call('DEL', key)
      end
    end
    met = not ours and FOREIGN or state or NONE
  end
  if found then found[i] = met else only = met end
end
return pack('<I7I7c0c4', now, charged, found and table.concat(found) or only, sub(items, -4))
