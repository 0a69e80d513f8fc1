-- slots_of.lua - what the slots of a key say: functions for slots.lua and try_all.lua, the twin of
-- src/backends/shared/slots.c.
--
-- The slots of a key are a sorted set: member the slot's id, 8 bytes; score the end of its hold in microseconds. Costs
-- other than 1 are in a hash beside it, by id. Then the set also has the member '', whose score is the negative sum of
-- what all costs exceed 1 by, so that the permits in use are known without adding them up. Both keys live until the
-- latest end.
local SLOTS_MAX, WALK_MOST = 65536, '64' -- WEIR_MAX_SLOTS; as in slots.c

-- Return how many slots there are, what their costs exceed 1 by, the ends of the first and the last; or nil and an
-- error. Slots that are over are removed if `writes` is set, and left out in any case.
local function slots_read(key, costs, now, writes)
  local n, extra, first, last = redis.pcall('ZCARD', key), 0, nil, nil
  if type(n) == 'table' then return nil, n end
  if n == 0 then return 0, 0 end
  local low = call('ZRANGE', key, '0', '1', 'WITHSCORES')
  first = low[2] + 0
  if low[1] == '' then
    if n == 1 then -- a right that is missing, say, has left it behind
      if writes then call('DEL', key, costs) end
      return 0, 0
    end
    n, extra, first = n - 1, -first, low[4] + 0
  end
  if first <= now then
    local upto = string.format('%.0f', now)
    if extra > 0 then
      for _, id in ipairs(call('ZRANGEBYSCORE', key, '0', upto)) do
        local cost = call('HGET', costs, id)
        if cost then
          extra = extra - cost + 1
          if writes then call('HDEL', costs, id) end
        end
      end
    end
    if writes then
      n = n - call('ZREMRANGEBYSCORE', key, '0', upto)
      if low[1] == '' then slots_extra(key, extra) end
    else
      n = n - call('ZCOUNT', key, '0', upto)
    end
    if n == 0 then return 0, 0 end
    first = call('ZRANGEBYSCORE', key, '(' .. upto, '+inf', 'WITHSCORES', 'LIMIT', '0', '1')[2] + 0
  end
  last = call('ZRANGE', key, '-1', '-1', 'WITHSCORES')[2] + 0
  return n, extra, first, last
end

-- Return when enough of the first slots have ended for `lacks` permits more, or the last end.
local function slots_freed(key, costs, now, lacks, extra, first, last)
  if lacks <= 1 then return first end
  local freed = 0
  local list = call('ZRANGEBYSCORE', key, '(' .. string.format('%.0f', now), '+inf', 'WITHSCORES', 'LIMIT', '0',
    WALK_MOST)
  for i = 1, #list, 2 do
    freed = freed + (extra > 0 and call('HGET', costs, list[i]) or 1)
    if freed >= lacks then return list[i + 1] + 0 end
  end
  return last
end

-- Let a slot have this end and cost, where `old` is the cost that it had (0: it is new). Return what all costs exceed 1
-- by.
local function slots_put(key, costs, id, ends, cost, old, extra)
  call('ZADD', key, string.format('%.0f', ends), id)
  if cost == old then return extra end
  if cost > 1 then
    call('HSET', costs, id, string.format('%.0f', cost))
  elseif old > 1 then
    call('HDEL', costs, id)
  end
  local more = extra + cost - 1 - max(0, old - 1)
  if more > 0 or extra > 0 then slots_extra(key, more) end
  return more
end

-- Let both keys live until `last`.
local function slots_live(key, costs, now, last, extra)
  local left = last - now
  left = string.format('%d', (left + -left % 1000) / 1000 + grace)
  call('PEXPIRE', key, left)
  if extra > 0 then call('PEXPIRE', costs, left) end
end
