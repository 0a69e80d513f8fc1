-- try_all.lua - takes permits from several keys, of limits of any kind, all or nothing.
--
-- KEYS     one or more keys, all different, in a cluster all in one slot.
-- ARGV     a stamp for each key, laid out in the algorithms' files.
--          items  one take for each key, as in each.lua but without counts, with times 1; then the echo.
--          time   the time to decide by, in decimal microseconds; without it the server's.
-- Returns  the same as each.lua. If any key denies, nothing is charged, but changes that the clock or a new plan
--          demands are written. If any value is foreign, nothing is written.
-- Errors   'WEIR ...' if KEYS or ARGV are invalid; then nothing was written.
--
-- A bucket's state with room (level.lua) keeps it, so that takes of its key alone remain cheap. Other states get none
-- here, because it would make a key of most groups dearer.
--@include prologue.lua

local n = #KEYS
local items, time = ARGV[n + 1], ARGV[n + 2]
--@include clock.lua
if not now or #ARGV > n + 2 or n == 0 or not items or #items ~= 15 * n + 4 then
  return redis.error_reply('WEIR bad arguments')
end
--@include algorithms.lua
--@include plain.lua
local function meet(stored, stamp, now)
  --@include meet.lua
end
local deciders, costs = {}, {}
for i = 1, n do
  local stamp = ARGV[i]
  local tag = sub(stamp, 1, 1)
  local verb, cost, times = parse('<BI7I7', items, 15 * i - 14)
  if verb ~= TAKE or times ~= 1 or cost == 0 or not algorithms[tag]
    or not algorithms[tag](stamp, false, now, 0) then
    return redis.error_reply('WEIR bad stamp or item')
  end
  deciders[i], costs[i] = algorithms[tag], cost
end

local got, lone = redis.pcall('MGET', unpack(KEYS)), nil
if got.err then return got end
local found, states, must, after, lives, besides, helds, rooms = {}, {}, {}, {}, {}, {}, {}, {}
local all_ours, all_allowed, charged = true, true, 0
for i = 1, n do
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
end

if all_ours then
  for i = 1, n do
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
  end
end
return pack('<I7I7c0c4', now, charged, table.concat(found), sub(items, -4))
