-- meet.lua - the body of meet(stored, stamp, now), which handles each value that is not plainly a state under this
-- stamp: it is under another plan, has a former state behind it, or is foreign. It needs algorithms.lua and plain.lua.
--
-- A key has up to two states, under the two plans asked for last: its state and, behind it, its former state.
-- src/core/algorithm/former.c defines what becomes of them:
--
--     The plan of the former state asks: the two change places. A third plan: the state with more permits used, or the
--     later one if both have the same, is carried over to it, exactly if its algorithm can; otherwise the permits used,
--     rounded up, are charged to a fresh state. The state becomes the former one.
--     What is charged to the state, or given back, is charged to the former one or given back, too. If it does not
--     fit, the former state is full.
--     The former state is forgotten at `drop`, when its plan has not been asked for as long as a full state lasts.
--
--     with a former state: '+', drop I7 in us, n I2, n bytes of the state, the former state. Each is its stamp alone if
--     nothing is used in it
--
-- A state that was made from another one has an origin, which says what of earlier permits is in it
-- (src/core/algorithm/origin.h): 'O', eight I7 in the order of struct origin, the state. It goes with the first charge
-- after which it means nothing.
--
-- Returns the state (false: fresh, nil: foreign) and whether it must be written in any case. If there is a former state
-- or an origin, then also beside(at, added, given, since, bytes, left). That function gets the time, or the state's while
-- a clock that stepped back is held; the permits charged by the call so far; the permits that are given back now, which
-- were perhaps charged `since` then; and at the end the state (nil: fresh) and its microseconds left. It returns the
-- bytes to store and the microseconds until the key is idle. If there is an origin, then also its bytes, and
-- back(cost, since), which returns how many of `cost` permits are in the state, since when, and a function that takes
-- that back; without `cost` it drops the origin.
local MADE, FROM, EDGE, RATE, RATE_US, REST, HELD, UNTIL = 1, 2, 3, 4, 5, 6, 7, 8
local function open(value) -- returns a state and its origin
  if sub(value, 1, 1) ~= 'O' or #value < 57 then
    return plain(value)
  end
  local origin = { parse('<I7I7I7I7I7I7I7I7', value, 2) }
  for i = MADE, UNTIL do
    if origin[i] > EXACT_MAX then return '' end
  end
  return plain(sub(value, 58)), origin
end

local function bytes_of(origin)
  return origin and pack('<c1I7I7I7I7I7I7I7I7', 'O', unpack(origin, MADE, UNTIL)) or ''
end

local PARTS, MOST_US = 128, 70368744177664 -- as in src/core/algorithm/origin.c

local function back(origin, stamp, cost, since)
  local earlier, tag = 0, sub(stamp, 1, 1)
  if since >= origin[MADE] then
    return cost, since
  end
  if since < origin[EDGE] then
    local ago, long = origin[EDGE] - since, origin[RATE_US]
    if long == 0 then
      cost = 0
    else
      local rest = ago % long * origin[RATE]
      local part, permit = rest % long, nil
      local drained = (ago - ago % long) / long * origin[RATE] + (rest - part) / long
      if tag == 'T' or tag == 'L' then
        local p, q, tick = parse('<I7I7I5', stamp, 2)
        permit = (q * tick + -(q * tick) % p) / p
      end
      if permit and part * permit <= EXACT_MAX then
        earlier = part * permit
        earlier = (earlier + -earlier % long) / long
      elseif permit and long <= MOST_US and permit <= MOST_US then
        part = part * PARTS
        earlier = (part + -part % long) / long * permit
        earlier = (earlier + -earlier % PARTS) / PARTS
      elseif part > 0 then
        drained = drained + 1
      end
      cost = max(0, cost - drained)
    end
  end
  local rest, held = origin[REST], origin[HELD]
  origin[REST] = rest - min(cost, rest)
  return min(rest, held) - min(origin[REST], held), max(0, max(since, origin[FROM]) - earlier)
end

local function look(state, or_stamp, into) -- returns what the algorithms' functions return
  local tag = sub(state, 1, 1)
  if algorithms[tag] then
    local own = sub(state, 1, stamp_len[tag])
    return algorithms[tag](own, not (or_stamp and own == state) and state, now, 0, false, false, into, nil, true)
  end
end

local state, origin, former, past, drop, before, since = stored, nil, nil, nil, 0, 0, now
local edges = {}
local pair = sub(stored, 1, 1) == '+'
if pair then
  local n = 0
  if #stored > 10 then drop, n = parse('<I7I2', stored, 2) end
  state = sub(stored, 11, 10 + n)
  former, past = open(sub(stored, 11 + n))
  local _
  before, since, _, _, _, _, _, edges[1], edges[2], edges[3] = look(former, true)
  if not before or drop > EXACT_MAX then
    return nil
  end
  if drop <= now then former, past, before, since = nil, nil, 0, now end
end
state, origin = open(state)
local moved = sub(state, 1, #stamp) ~= stamp
if moved then
  local permits, held, _, _, _, _, fill, edge, rate, rate_us = look(state, pair)
  if not permits then
    return nil
  end
  local own, used, met = sub(state, 1, stamp_len[sub(state, 1, 1)]), max(permits, before)
  if former and sub(former, 1, #stamp) == stamp then
    state, former, drop = before > 0 and former or stamp, permits > 0 and state or own, now + fill
    origin, past = before > 0 and past or nil, permits > 0 and origin or nil
  elseif used == 0 then
    return false, true
  else
    local tag, from, first, made = sub(stamp, 1, 1), state, origin, max(held, since)
    local size, level = parse('<I6', stamp, #stamp - 5), tag == 'T' or tag == 'L'
    if before > permits then
      from, first, edge, rate, rate_us = former, past, edges[1], edges[2], edges[3]
    end
    _, _, _, _, met = look(from, pair, stamp)
    local exact, kept = met ~= nil, min(used, size)
    if not met then
      _, _, _, _, met = algorithms[tag](stamp, false, made, kept)
    end
    local from_tag = sub(from, 1, 1)
    local drained = from_tag == 'T' or from_tag == 'L'
    local made_of = nil
    if first or not exact or used > size or level and sub(from, 2, 15) ~= sub(stamp, 2, 15) then
      local _, _, _, _, _, _, last = algorithms[tag](stamp, false, now, 0)
      local keeps_times = exact and not level
      local hidden, counts = 0, keeps_times and 0 or made
      if first and made <= first[UNTIL] then
        if keeps_times then counts = first[FROM] end
        if drained then
          hidden, rate, rate_us = max(0, first[REST] - first[HELD]), 0, 0
        elseif first[MADE] >= edge then
          hidden, edge, rate, rate_us = max(0, first[REST] - first[HELD]), first[EDGE], first[RATE], first[RATE_US]
        end
      end
      if exact and level then
        local _, q = parse('<I7I7', stamp, 2)
        kept = min(kept, math.floor(parse('<I7', met, 27) / q))
      end
      made_of = { made, counts, edge, rate, rate_us, hidden + (used > size and used or kept), kept,
        min(made + last, EXACT_MAX) }
    end
    if permits > 0 then former, past, drop = state, origin, now + fill end
    state, origin = met, made_of
  end
  drop = min(drop, EXACT_MAX)
end
if pair and state == stamp then
  state, origin = false, nil
end
if origin and not moved and look(state, pair) == 0 then origin = nil end -- what it was made with has left it
if not former or drop <= now then
  if not origin then
    return state, moved
  end
  former = nil
end

local told = 0
local function change(cost, at, since)
  local tag, bytes, _ = sub(former, 1, 1)
  local own = sub(former, 1, stamp_len[tag])
  if since and past then
    cost, since = back(past, own, -cost, since)
    cost = -cost
  end
  _, _, _, _, bytes = algorithms[tag](own, former ~= own and former, at, cost, false, true, nil, since)
  if not bytes then past = nil end
  former = bytes or own
end
return state, moved, function(at, added, given, since, bytes, left)
  if former then
    if added > told then change(added - told, at) end
    if given > 0 then change(-given, now, since) end
  end
  told = added
  local own = origin and bytes and not (added > 0 and now > origin[UNTIL]) and bytes_of(origin) or ''
  if not former then
    return bytes and own .. bytes, left
  end
  own = own .. (bytes or stamp)
  local other = bytes_of(past) .. former
  return pack('<c1I7I2c0c0', '+', drop, #own, own, other), max(left or 0, drop - now)
end, origin and bytes_of(origin), origin and function(cost, since)
  if not cost then
    origin = nil
    return nil
  end
  local rest = origin[REST]
  cost, since = back(origin, stamp, cost, since)
  return cost, since, function() origin[REST] = rest end
end
