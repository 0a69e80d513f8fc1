-- gateway.lua - the yardstick of distributed mode: a token bucket in the style that API gateways use.
-- It has two keys, each read and written with one command, floating-point permits, and the caller's clock in seconds.
-- KEYS: the permits left, and the time of that. ARGV: permits a second, capacity, now in seconds, cost.
-- Returns {1 if admitted, otherwise 0; permits left}.
local rate = tonumber(ARGV[1])
local capacity = tonumber(ARGV[2])
local now = tonumber(ARGV[3])
local cost = tonumber(ARGV[4])

local fill_time = capacity / rate
local ttl = math.floor(fill_time * 2)

local last_tokens = tonumber(redis.call('GET', KEYS[1])) or capacity
local last_time = tonumber(redis.call('GET', KEYS[2])) or 0

local passed = math.max(0, now - last_time)
local tokens = math.min(capacity, last_tokens + passed * rate)
local allowed = tokens >= cost
if allowed then
  tokens = tokens - cost
end

redis.call('SETEX', KEYS[1], ttl, tokens)
redis.call('SETEX', KEYS[2], ttl, now)

return { allowed and 1 or 0, tokens }
