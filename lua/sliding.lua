-- sliding.lua - sliding window, the twin of src/core/algorithm/sliding_window.c: the current block and the `blocks`
-- before it count. level.lua explains the parts.
--
--     stamp: tag 'S', blocks I2, period I7 of one block in us, size I4
--     state: stamp, id I7 of the newest block that was charged, n I2, then n counts I4, newest block first; the last is
--            not 0
--
-- Permits behave as in a queue: they enter the newest block and leave the oldest one that counts. So after a sequence
-- of takes and refunds the youngest permits remain. A return takes from the block of `since` and older ones. Only a
-- take drops counts that are too old: after a small step back of the clock they count again. (So does another plan,
-- which may be unable to hold them.)
--@part plan
local tag, blocks, period, size = parse('<BI2I7I4', #stamp == 14 and stamp or string.rep('\0', 14))
local most, top, unit, grain, fresh = size, COUNT_MAX, 1, period, (now - now % period) / period
--@part room
--@part swift
--@part quick
--@part know
known = sub(state, 1, #stamp) == stamp
--@part check
local sane = tag == 83 and blocks > 0 and blocks <= 1024 and period > 0 and (blocks + 1) * period <= FILL_MAX
  and size > 0
--@part read
anchor = fresh
local ours = state ~= nil
-- counts[1 .. kept] are young enough to count; their sum is `had`.
local newest, counts, n, kept, age, had, rebased = fresh, nil, 0, 0, 0, 0, false
local gone = 0 -- permits admitted by this call and returned by it
if state then
  if #state >= 27 then newest, n = parse('<I7I2', state, 15) end
  ours = n > 0 and n <= blocks + 1 and #state == 23 + 4 * n and newest * period <= EXACT_MAX
  if ours then
    counts = { parse(string.rep('<I4', n), state, 24) }
    local start = newest * period
    if start > now then
      if start - now > SLACK_US then -- the newest block becomes the current one, and the older ones move up by one
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
    kept = math.max(0, math.min(n, blocks + 1 - age))
    for k = 1, kept do used = used + counts[k] end
    local sum = used
    for k = kept + 1, n do sum = sum + counts[k] end
    ours = most > 0 and counts[n] > 0 and sum <= top
    if used == 0 then kept, age = 0, 0 end
    had = used
  end
end
--@part back
local block, young, wanted = math.floor(since / period), math.min(used, added - gone), cost
local rest = used - young
for k = 1, kept do -- what was given back before came from the oldest blocks
  if counts[k] > rest then counts[k] = rest end
  rest = rest - counts[k]
end
had, rebased, cost = used - young, counts ~= nil, 0
if block == anchor then
  cost = math.min(wanted, young)
  gone = gone + cost
end
if block <= newest or added > 0 and block <= anchor then
  for k = math.max(1, newest - block + 1), kept do
    local part = math.min(wanted - cost, counts[k])
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
--@part carry
alike = sub(stamp, 1, 10) == sub(into, 1, 10)
used, stamp, n, rebased = math.min(used, (parse('<I4', into, #into - 3))), into, kept, true
--@part write
local young = math.min(used, added - gone)
local rest, old = used - young, state and sub(state, 24) or ''
if rest < had or rebased then
  for k = 1, kept do
    if counts[k] > rest then counts[k] = rest end
    rest = rest - counts[k]
  end
  old = pack(string.rep('<I4', n), unpack(counts, 1, n))
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
    n, first, old = kept, young + counts[1], sub(old, 5, 4 * kept)
  else
    n, empty, old = age + kept, age - 1, sub(old, 1, 4 * kept)
  end
  newest = anchor
  bytes = pack('<c14I7I2I4c0c0', stamp, newest, n, first, string.rep('\0\0\0\0', empty), old)
else
  while counts[n] == 0 do n = n - 1 end
  bytes = pack('<c14I7I2c0', stamp, newest, n, sub(old, 1, 4 * n))
end
left = (blocks + 1) * period + (youngest * period - now)
--@part store
-- Another charge of the newest block changes one count, and not the time to live.
if known and not time and not moved and not rebased and anchor == newest and kept == n
  and added > gone and used == had + added - gone then
  offset, bytes = '23', pack('<I4', counts[1] + added - gone)
else
  --@paste sliding write
end
