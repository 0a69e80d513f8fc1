-- settle.lua - charges a key, after an outage, the permits that an instance admitted in it, and says how long the key
-- lay idle in that time. docs/design/outages.md explains why.
--
-- The first charge sees it in the state: from the time at which nothing that it holds was in use any more, the key lay
-- idle. The charge erases that. So it leaves a note beside the key, '<I7I7' when the key began and ended to lie idle,
-- in us, for the charges of the other instances. A key without a state counts as idle since nothing of a full one of
-- the time at which the outage began was in use any more.
--
-- KEYS     the key; its note, in a cluster in the same slot.
-- ARGV     stamp  the plan, of any algorithm, laid out in its file.
--          charge '<I7I7c4' the permits to charge, of which it charges those that fit, and which may be 0; the
--                 microseconds since the outage began; the echo.
-- Returns  one string: '<I7I7' for how many microseconds of the time since then the key lay idle, and how many ago that
--          ended; then the answer of each.lua.
-- Errors   'WEIR ...' if KEYS or ARGV are invalid; then nothing was written.
--@include prologue.lua
local stamp, charge, time, key, lone, got, i = ARGV[1], ARGV[2], nil, KEYS[1], nil, nil, 1
--@include clock.lua
if ARGV[3] or not charge or #charge ~= 18 or #KEYS ~= 2 then
  return redis.error_reply('WEIR bad arguments')
end
--@include algorithms.lua
--@include plain.lua
local function meet(stored, stamp, now)
  --@include meet.lua
end
local tag, cost, ago, echo = sub(stamp, 1, 1), parse('<I7I7c4', charge)
local decide, size, _, after, left, fill = algorithms[tag], 0, nil, nil, nil, nil
if decide then _, _, _, _, _, _, fill = decide(stamp, false, now, 0) end
if not fill then
  return redis.error_reply('WEIR bad stamp')
end
size = parse('<I6', stamp, #stamp - 5)
--@include find.lua
local note, since, from, idle, ended = redis.pcall('GET', KEYS[2]), max(0, now - ago), now, 0, 0
local own, beside = state and plain(state), nil
own = own and sub(own, 1, #stamp) == stamp and own
if stored == false then
  from = since + fill
elseif own then
  -- Behind the stamp come the newest block; or what is used I7, in units or permits, and the tick or the anchor.
  local at = #stamp + (tag == 'S' and 1 or 8)
  local anchor = #own >= at + 6 and parse('<I7', own, at) or now + 1
  if tag == 'S' then
    anchor = anchor * (parse('<I7', stamp, 4))
  elseif tag == 'T' or tag == 'L' then
    anchor = anchor * (parse('<I5', stamp, 16))
  end
  if anchor <= now then
    _, _, _, _, after, left = decide(stamp, own, anchor, 0)
    if after then from = anchor + left end
  end
end
if from < now then idle = now - max(from, since) end
if note and #note == 14 then
  local first, last = parse('<I7I7', note)
  local noted = last - max(first, since)
  if last <= now and noted > idle then idle, ended = noted, now - last end
end
if idle > 0 and ended == 0 then
  local lives = min(ago, 3600000000) / 1000 + 10000
  call('PSETEX', KEYS[2], string.format('%d', lives - lives % 1), pack('<I7I7', from, now))
end

if own then
  state = own
elseif state then
  state, moved, beside = meet(stored, stamp, now)
end
local charged, permits, held, must = 0, nil, nil, nil
if state ~= nil then
  permits, held, must, _, after, left = decide(stamp, state, now, 0, moved)
end
if permits then
  charged = max(0, min(cost, size - permits))
  if charged > 0 then
    _, _, _, _, after, left = decide(stamp, state, now, charged, moved)
  end
  if charged > 0 or must then
    local bytes = after
    if beside then bytes, left = beside(held, charged, 0, nil, bytes, left) end
    if bytes then
      call('PSETEX', key, string.format('%d', (left + -left % 1000) / 1000 + grace), bytes)
    elseif stored then
      call('DEL', key)
    end
  end
end
return pack('<I7I7I7I7c0c4', idle, ended, now, charged, permits and (state or NONE) or FOREIGN, echo)
