-- sliding.lua - sliding window, the twin of src/core/algorithm/sliding_window.c: the current block and the `blocks`
-- before it count. level.lua explains the parts.
--
--     stamp: tag 'S', blocks I2, period I7 of one block in us, size I6
--     state: stamp, id I7 of the newest block that was charged, n I2, then n counts, newest block first; the last is
--            not 0. Counts are I4, or I7 if the size needs more
--
-- Permits behave as in a queue: they enter the newest block and leave the oldest one that counts. So after a sequence
-- of takes and refunds the youngest permits remain. A return takes from the block of `since` and older ones. Only a
-- take drops counts that are too old: after a small step back of the clock they count again. (So does another plan,
-- which may be unable to hold them.)
--@part plan
local tag, blocks, period, size = parse('<BI2I7I6', #stamp == 16 and stamp or string.rep('\0', 16))
local width, form, top = 4, '<I4', COUNT_MAX -- of a count; of their sum
if size > COUNT_MAX then width, form, top = 7, '<I7', EXACT_MAX end
local most, unit, grain, fresh = size, 1, period, (now - now % period) / period
--@part room
--@part swift
--@part quick
--@part know
known = sub(state, 1, #stamp) == stamp
--@part check
local sane = tag == 83 and blocks > 0 and blocks <= (width > 4 and 512 or 1024) and period > 0
  and (blocks + 1) * period <= FILL_MAX and size > 0
--@part read
anchor = fresh
local ours = state ~= nil
-- counts[1 .. kept] are young enough to count; their sum is `had`.
local newest, counts, n, kept, age, had, rebased = fresh, nil, 0, 0, 0, 0, false
local gone = 0 -- permits admitted by this call and returned by it
if state then
  if #state >= 29 then newest, n = parse('<I7I2', state, 17) end
  ours = n > 0 and n <= blocks + 1 and #state == 25 + width * n and newest * period <= EXACT_MAX
  if ours then
    counts = { parse(string.rep(form, n), state, 26) }
    local start = newest * period
    if start > now then
      if start - now > max(SLACK_US, 2 * (blocks + 1) * period) then
        -- the newest block becomes the current one, and the older ones move up by one
        moved, rebased, newest = true, true, fresh
        if n > 1 then
          counts[2], n = counts[1] + counts[2], n - 1
          table.remove(counts, 1)
        end
      end
      anchor = newest
    else
      age = fresh - newest
    end
    kept = max(0, min(n, blocks + 1 - age))
    for k = 1, kept do used = used + counts[k] end
    local sum = used
    for k = kept + 1, n do sum = sum + counts[k] end
    ours = most > 0 and counts[n] > 0 and sum <= top
    if used == 0 then kept, age = 0, 0 end
    had = used
  end
end
--@part back
local block, young, wanted = math.floor(since / period), min(used, added - gone), cost
local rest = used - young
for k = 1, kept do -- what was given back before came from the oldest blocks
  if counts[k] > rest then counts[k] = rest end
  rest = rest - counts[k]
end
had, rebased, cost = used - young, counts ~= nil, 0
if block == anchor then
  cost = min(wanted, young)
  gone = gone + cost
end
if block <= newest or added > 0 and block <= anchor then
  for k = max(1, newest - block + 1), kept do
    local part = min(wanted - cost, counts[k])
    counts[k], cost, had = counts[k] - part, cost + part, had - part
  end
end
--@part keep
local own_counts, own_had, own_gone, own_rebased = verb == RENEW and counts and { unpack(counts) }, had, gone, rebased
--@part undo
counts, had, gone, rebased = own_counts or nil, own_had, own_gone, own_rebased
--@part kept
--@part fill
local fill = (blocks + 1) * period
--@part edge
edge = max(0, anchor - blocks) * period
--@part carry
local size2 = parse('<I6', into, #into - 5)
alike = sub(stamp, 1, 10) == sub(into, 1, 10) and size2 > COUNT_MAX == (width > 4)
used, stamp, n, rebased = min(used, size2), into, kept, true
--@part write
local young = min(used, added - gone)
local rest, old = used - young, state and sub(state, 26) or ''
if rest < had or rebased then
  for k = 1, kept do
    if counts[k] > rest then counts[k] = rest end
    rest = rest - counts[k]
  end
  old = pack(string.rep(form, n), unpack(counts, 1, n))
end
local youngest = anchor -- the block of the youngest permit, which leaves last
if young == 0 then
  local k = 1
  while counts[k] == 0 do k = k + 1 end
  youngest = newest - k + 1
end
if added > 0 then
  local first, empty = young, 0
  while kept > 0 and counts[kept] == 0 do kept = kept - 1 end
  if kept == 0 then
    n, old = 1, ''
  elseif age == 0 then
    n, first, old = kept, young + counts[1], sub(old, width + 1, width * kept)
  else
    n, empty, old = age + kept, age - 1, sub(old, 1, width * kept)
  end
  newest = anchor
  bytes = pack('<c16I7I2c0c0c0', stamp, newest, n, pack(form, first), string.rep('\0', width * empty), old)
else
  while counts[n] == 0 do n = n - 1 end
  bytes = pack('<c16I7I2c0', stamp, newest, n, sub(old, 1, width * n))
end
left = (blocks + 1) * period + (youngest * period - now)
--@part store
-- Another charge of the newest block changes one count, and not the time to live.
if known and not time and not moved and not rebased and anchor == newest and kept == n
  and added > gone and used == had + added - gone then
  offset, bytes = '25', pack(form, counts[1] + added - gone)
else
  --@paste sliding write
end
