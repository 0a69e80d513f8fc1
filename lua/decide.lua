-- decide.lua - the steps of each.lua, after the arguments are unpacked and the time is read.
--
-- In: stamp, items, time (nil: the server's), keys (their number), now, grace; lone, the value of the only key if it
-- has been read. Takes of and returns to the plainest kind of state skip most steps: the parts `swift` and `quick` of
-- ALGORITHM.
local LEASE, LEASE_IF_TAKEN, RETURN, MORE = 6, 7, 8, 128 -- enum redis_verb; REDIS_MORE

local ends = items and #items - 4 or 0 -- where the items end and the echo begins
if not now or ARGV[4] or keys == 0 or ends < 19 then
  return redis.error_reply('WEIR bad arguments')
end
--@paste ALGORITHM plan
--@paste ALGORITHM room
local same, settled, verb, cost, times, at = parse('<I2I2BI7I7', items)
local noted = same > 0 and 20 or 5 -- where the returns begin, and
local rest = noted + 16 * settled -- the items of the other keys
settled = same + settled -- the keys from `same` to this one have a return each
local counted, last, byte = settled, 0, string.byte
if same > 0 and (verb >= RETURN or verb == RENEW or verb >= LEASE and times == 0) or (ends + 1 - rest) % 15 > 0
  or rest > ends + 1 then
  return redis.error_reply('WEIR bad items')
end
for k = rest, ends, 15 do
  local verb = byte(items, k)
  last = verb >= MORE and 1 or 0
  verb = verb - last * MORE
  if verb > RETURN or verb >= LEASE and parse('<I7', items, k + 8) == 0 then
    return redis.error_reply('WEIR bad items')
  end
  counted = counted + 1 - last
end
if last ~= 0 or counted ~= keys then
  return redis.error_reply('WEIR bad items: not those of the keys')
end

local names, got, only = KEYS
if keys > 1 then
  got = redis.pcall('MGET', unpack(names))
  if got.err then return got end
end
local charged, more = 0, false
local slow, slows = nil, settled -- of the first `settled` keys, those that `swift` leaves (nil: all), and their number
--@paste ALGORITHM swift
at = rest
for turn = 1, slows + keys - settled do
  local i = turn > slows and turn - slows + settled or slow and slow[turn] or turn
  local key, met, whence_met, whence_back = names[i], nil, nil, nil
  --@include find.lua
  if i > settled then
    verb, cost, times, at = parse('<BI7I7', items, at)
    more = verb >= MORE
    if more then verb = verb - MORE end
  elseif i > same then
    cost, times = parse('<dd', items, noted + 16 * (i - same - 1))
    verb, more = RETURN, false
  end
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
          --@include plain.lua
          --@include meet.lua
        end
        state, moved, beside, whence_met, whence_back = meet(stored, stamp, now)
      end
    end
    --@paste ALGORITHM read
    local changed, before, admitted, goes_on = false, charged
    repeat
      local left_it = whence_back and used == 0 -- what it was made with
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
        if moved and changed ~= true then changed = moved end
      elseif verb == CHARGE then
        local fits = min(times * cost, math.floor((top - used) / unit))
        used, charged, changed = used + fits * unit, charged + fits, true
      elseif verb == LEASE or verb == LEASE_IF_TAKEN then
        local granted = math.floor(math.floor((most - used) / unit) / times)
        if granted > cost then granted = cost end
        if granted > 0 and (verb == LEASE or (admitted or 0) > 0) then
          used = used + granted * unit
          charged = charged + granted
          changed = true
        end
        if moved and changed ~= true then changed = moved end
      elseif verb ~= PEEK then
        local since = (verb == RETURN or verb == RENEW) and times
        if since then times = 1 end
        local permits, held, was_changed = times * cost, used, changed
        --@paste ALGORITHM keep
        local told, undone = since, nil
        if since then
          local added = charged - before
          if whence_back and not left_it then cost, since, undone = whence_back(cost, since) end
          if cost > size then cost = size end -- more were never charged to a state of this plan
          --@paste ALGORITHM back
        end
        local remains = verb == RESET and 0 or max(0, used - times * cost * unit)
        if verb == RENEW and (permits > size or remains + permits * unit > max(most, held)) then
          --@paste ALGORITHM undo
          if undone then undone() end
          used, changed = held, was_changed -- denied, like a take
          if moved and changed ~= true then changed = moved end
        else
          if verb == RESET then
            beside = nil
          elseif beside then
            beside(max(now, anchor * grain), charged - before, permits, told)
          end
          used = remains
          if used == 0 then anchor = fresh end
          if verb == RENEW then
            used, charged = used + permits * unit, charged + permits
          end
          if not since or verb == RENEW then changed = true end
          changed = changed or true
        end
      end
      if left_it and (used > 0 or verb == REFUND or verb == RETURN) then whence_back = whence_back() end
      goes_on = more
      if goes_on then
        verb, cost, times, at = parse('<BI7I7', items, at)
        more = verb >= MORE
        if more then verb = verb - MORE end
      end
    until not goes_on
    if changed then -- denials and peeks leave the key untouched
      local added, bytes, left, offset = charged - before
      --@paste ALGORITHM kept
      if used > 0 then
        --@paste ALGORITHM store
      end
      if beside then bytes, left = beside(max(now, anchor * grain), added, 0, nil, bytes, left) end
      if offset then
        call('SETRANGE', key, offset, bytes)
      elseif bytes then
        call('PSETEX', key, string.format('%d', (left + -left % 1000) / 1000 + grace), bytes)
      elseif stored then
        call('DEL', key)
      end
    end
    met = not ours and FOREIGN or state and (whence_met and whence_met .. state or state) or NONE
    if got then got[i] = met end
  end
  only = met
end
return pack('<I7I7c0c4', now, charged, got and table.concat(got) or only, sub(items, -4))
