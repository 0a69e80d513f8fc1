-- each.lua - the body of the scripts that decide requests for keys of one limit. ALGORITHM is the file of its
-- arithmetic. Requests for the same key are decided one after the other, as if each had come alone. meet.lua says what
-- happens to a state under another plan. A reset also forgets the former state.
--
-- KEYS     one or more keys, all different, in a cluster all in one slot.
-- ARGV     stamp  the plan, laid out in ALGORITHM's file.
--          items  for each key in turn one or more '<BBI5I2': verb, more, cost, times. more is 1 if the next item is for
--                 the same key, otherwise 0. 4 bytes end the items, the echo: the answer repeats them, which shows that
--                 it belongs to this call. The verb says what an item stands for:
--                   0 to 4  `times` equal requests, one after the other; the verbs are those of enum weir_verb
--                   5       LEASE: charge up to `cost` permits in advance, at most the permits left / `times`
--                   6       LEASE_IF_TAKEN: the same if the key's last take in this call was admitted, else nothing
--                   7       SINCE: not a request. The next item refunds permits that were charged at cost + times *
--                           2^40 us and never used, without those that have come back since then
--          time   the time to decide by, in decimal microseconds; without it the server's.
-- Returns  one string: '<I7I7' the time and the permits charged; for each key a 0 byte (nothing used), a 1 byte (a
--          foreign value, left alone) or the state that its requests met, under this stamp; the echo.
-- Errors   'WEIR ...' if KEYS or ARGV are invalid; then nothing was written.
--
-- It reads with one GET, or one MGET and a GET for each key that MGET does not find. It writes at most one PSETEX,
-- SETRANGE or DEL per key, and calls TIME once. SETRANGE keeps the time to live and writes only into a state that the
-- script has just read, so no key is ever without one. All numbers are integers below 2^53, which a double represents
-- exactly. They leave through struct.pack, or as '%d' for milliseconds, because tostring keeps 14 digits only. (Commands
-- get text, not numbers, because Redis prints a number slowly.) Items are checked before anything is written; with a
-- single key, while its requests are decided.
--@include prologue.lua
local LEASE, LEASE_IF_TAKEN, SINCE = 5, 6, 7 -- enum redis_verb

local stamp, items, time, keys = ARGV[1], ARGV[2], ARGV[3], #KEYS
--@include clock.lua
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
  local counted, last = 0, 1
  for k = 1, ends, 9 do
    local verb, more = string.byte(items, k, k + 1)
    if verb > SINCE or (verb == LEASE or verb == LEASE_IF_TAKEN) and parse('<I2', items, k + 7) == 0 or more > 1 then
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
for i = 1, keys do
  local key = KEYS[i]
  --@include find.lua
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
  local changed, before, admitted, since = false, charged
  repeat
    if not read then verb, more, cost, times, at = parse('<BBI5I2', items, at) end
    read = alike
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
      if since then
        local added = charged - before
        --@paste ALGORITHM back
        since = nil
      end
      used = verb == REFUND and math.max(0, used - times * cost * unit) or 0
      if used == 0 then anchor = fresh end
      changed = true
    end
    if more > 1 or verb >= LEASE and (verb > SINCE or verb < SINCE and times == 0) then
      return redis.error_reply('WEIR bad items')
    end
  until more == 0 or at > ends
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
  local met = not ours and FOREIGN or state or NONE
  if found then found[i] = met else only = met end
end
return pack('<I7I7c0c4', now, charged, found and table.concat(found) or only, sub(items, -4))
