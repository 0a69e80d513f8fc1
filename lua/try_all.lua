-- try_all.lua - takes permits from several keys, of limits of any kind, all or nothing.
--
-- KEYS     one or more keys, all different, in a cluster all in one slot; then, for each of them that is of a limit on
--          requests in flight, the hash of costs beside it.
-- ARGV     a stamp for each key, laid out in the algorithms' files; for requests in flight '<c1c8I7I7' the tag 'C', the
--          slot's id, the limit and the hold in us.
--          items  one take for each key, as in each.lua but without counts, with times 1; then the echo.
--          time   the time to decide by, in decimal microseconds; without it the server's.
-- Returns  the same as each.lua. What a slot is found with is a 2 byte (foreign), or '<BI7I7I7': 0 denied or 1 allowed;
--          the permits that remain; the time until enough slots have ended and until all have. If any key denies,
--          nothing is charged, but changes that the clock or a new plan demands are written. If any value is foreign,
--          nothing is written.
-- Errors   'WEIR ...' if KEYS or ARGV are invalid; then nothing was written.
--
-- A bucket's state with room (level.lua) keeps it, so that takes of its key alone remain cheap. Other states get none
-- here, because it would make a key of most groups dearer.
--@include prologue.lua

local n, beside = #KEYS, 0
for i = 1, n do
  if ARGV[i] and sub(ARGV[i], 1, 1) == 'C' and #ARGV[i] == 23 then beside = beside + 1 end
  if i + beside >= n then
    n = i
    break
  end
end
local items, time = ARGV[n + 1], ARGV[n + 2]
--@include clock.lua
if not now or #ARGV > n + 2 or n + beside ~= #KEYS or n == 0 or not items or #items ~= 15 * n + 4 then
  return redis.error_reply('WEIR bad arguments')
end
--@include algorithms.lua
--@include plain.lua
local function meet(stored, stamp, now)
  --@include meet.lua
end
--@include slots_extra.lua
--@include slots_of.lua
local deciders, costs, rates, slots = {}, {}, {}, {}
for i = 1, n do
  local stamp = ARGV[i]
  local tag = sub(stamp, 1, 1)
  local verb, cost, times = parse('<BI7I7', items, 15 * i - 14)
  local is_slot = tag == 'C' and #stamp == 23
  if verb ~= TAKE or times ~= 1 or cost == 0
    or not is_slot and not (algorithms[tag] and algorithms[tag](stamp, false, now, 0)) then
    return redis.error_reply('WEIR bad stamp or item')
  end
  deciders[i], costs[i] = algorithms[tag], cost
  if is_slot then
    slots[#slots + 1] = i
  else
    rates[#rates + 1] = KEYS[i]
  end
end

local got, lone = {}, nil
if #rates > 0 then
  local read = redis.pcall('MGET', unpack(rates))
  if read.err then return read end
  local k = 0
  for i = 1, n do
    if deciders[i] then
      k = k + 1
      got[i] = read[k]
    end
  end
end
local found, states, must, after, lives, besides, helds, rooms = {}, {}, {}, {}, {}, {}, {}, {}
local all_ours, all_allowed, charged = true, true, 0
local asks = {}
for k, i in ipairs(slots) do
  local _, id, size, hold = parse('<c1c8I7I7', ARGV[i])
  local have, extra, first, last = slots_read(KEYS[i], KEYS[n + k], now, false)
  if not have and not string.find(extra.err, 'WRONGTYPE', 1, true) then return extra end
  all_ours = all_ours and have ~= nil
  asks[k] = { id = id, size = size, hold = hold, have = have }
  found[i] = '\2'
  if have then
    local used = have + extra
    local allowed, retry = used + costs[i] <= size and have < SLOTS_MAX, 0
    if not allowed and costs[i] <= size then
      retry = slots_freed(KEYS[i], KEYS[n + k], now, used + costs[i] - size, extra, first, last) - now
    end
    all_allowed = all_allowed and allowed
    found[i] = pack('<BI7I7I7', allowed and 1 or 0, have < SLOTS_MAX and max(0, size - used) or 0, retry,
      last and last - now or 0)
  end
end
for i = 1, n do if deciders[i] then
  local key, stamp = KEYS[i], ARGV[i]
  --@include find.lua
  if state and sub(state, 1, #stamp) ~= stamp then
    state = plain(stored)
    rooms[i] = sub(state, 1, #stamp) == stamp -- weir_try() uses the key, too
    if not rooms[i] then
      state, moved, besides[i] = meet(stored, stamp, now)
    end
  end
  local permits, allowed
  if state ~= nil then
    permits, helds[i], moved, allowed, after[i], lives[i] = deciders[i](stamp, state, now, costs[i], moved)
  end
  if not permits then all_ours = false end
  all_allowed = all_allowed and allowed
  found[i], states[i], must[i] = permits and (state or NONE) or FOREIGN, state, moved
end end

if all_ours and all_allowed then
  for k, i in ipairs(slots) do
    local ask, cost = asks[k], costs[i]
    local have, extra, _, last = slots_read(KEYS[i], KEYS[n + k], now, true)
    extra = slots_put(KEYS[i], KEYS[n + k], ask.id, now + ask.hold, cost, 0, extra)
    last = max(last or 0, now + ask.hold)
    slots_live(KEYS[i], KEYS[n + k], now, last, extra)
    charged = charged + cost
    found[i] = pack('<BI7I7I7', 1, have + 1 < SLOTS_MAX and ask.size - (have + 1 + extra) or 0, 0, last - now)
  end
end
if all_ours then
  for i = 1, n do if deciders[i] then
    if all_allowed then
      charged = charged + costs[i]
    elseif must[i] then
      local _
      _, _, _, _, after[i], lives[i] = deciders[i](ARGV[i], states[i], now, 0)
    end
    if all_allowed or must[i] then -- denials leave the key untouched
      local bytes, left = after[i], lives[i]
      if bytes and rooms[i] and not time then -- as the part `store` of level.lua
        local tag, p, q, tick, size, used, anchor = parse('<BI7I7I5I6I7I7', bytes)
        local most, room = size * q, size * q / p / 4 + 1000000 / tick
        if 2 * most <= EXACT_MAX and 2 * p <= EXACT_MAX and 2 * used <= EXACT_MAX then
          room = room - room % 1 + 1
          left = anchor + used / p
          left = (left - left % room + room + 1) * tick - now
          bytes = pack('<BI7I7I5I6I7I7', tag, 2 * p, 2 * q, tick, size, 2 * used, anchor)
        end
      end
      if besides[i] then bytes, left = besides[i](helds[i], all_allowed and costs[i] or 0, 0, nil, bytes, left) end
      if bytes then
        call('PSETEX', KEYS[i], string.format('%d', (left + -left % 1000) / 1000 + grace), bytes)
      else
        call('DEL', KEYS[i])
      end
    end
  end end
end
return pack('<I7I7c0c4', now, charged, table.concat(found), sub(items, -4))
