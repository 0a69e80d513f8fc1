-- bucket_single.lua - one take from one token or leaky bucket, the commonest call, or one settlement, in as few steps
-- as it can be decided. A settlement gives back permits that were not used, or charges those used beyond the estimate.
--
-- KEYS     one key.
-- ARGV     one string:
--          '<c22ddddc4' the stamp of the state with room (level.lua); the half units that drain every microsecond,
--              which is the tick; the half units of a full bucket; the room less 4, in microseconds; the half units of
--              the permits; the echo, as in each.lua. If a take's cost exceeds the size, its half units are one more
--              than a full bucket's.
--          '<d' for a settlement, whose permits are at most the size: the half units of a permit.
--          '<d' if it gives back: when the permits were charged, in us. Otherwise they are charged.
--          The caller vouches that all of these agree. Numbers are doubles, which are cheaper to read than integers;
--          all are integers below 2^53.
-- Returns  one string. If the key has a state with room under this stamp and the clock has not stepped back:
--              after a take or settlement that leaves something in use and no bucket overdrawn: '<I7I7c4' its half
--              units; its tick, the time; the echo.
--              after a take that is denied: the state; the seconds and microseconds of TIME with a blank between them;
--              the echo. Whether scripts write such a state has not been checked then.
--          Otherwise the answer of each.lua. That is longer, and the byte before its echo is below a digit, because it
--          ends a number below 2^53 or is NONE or FOREIGN.
-- Errors   'WEIR ...' if ARGV is invalid; then nothing was written.
--
-- It runs the same commands as each.lua. Every step of Lua costs Redis 40 to 110 instructions, and every byte that
-- becomes a string 10. So takes and returns have separate branches, and text is joined only from text.
local redis, struct, args, key = redis, struct, ARGV[1], KEYS[1]
local call, parse, len = redis.call, struct.unpack, args and #args
local form = len == 58 and '<c22ddddc4' or len == 74 and '<c22ddddc4dd' or len == 66 and '<c22ddddc4d'
if not form then
  return redis.error_reply('WEIR bad arguments')
end
local clock = call('TIME')
local now, state = clock[1] * 1000000 + clock[2], redis.pcall('GET', key)
-- Behind the last value parse() returns a position. So `since` is nil for a take, and `returns` except for a return.
local double, drain, full, near, units, echo, unit, since, returns = parse(form, args)
if state and #state == 36 then
  local own, used, anchor = parse('<c22I7I7', state)
  if own == double and anchor <= now then
    local level, bytes = used - (now - anchor) * drain
    if returns then
      local back = units
      if now > since then
        back = back - (now - since) * drain
        back = back > 0 and back - back % unit or 0
      end
      level = level - back
      if level > 0 and used <= full and used % 2 == 0 then
        bytes = struct.pack('<I7I7', level, now)
        local ends = (anchor + used / drain) % (near + 4)
        if ends < near and ends >= back / drain then
          call('SETRANGE', key, '22', bytes)
          return bytes .. echo
        end
      end
    else
      if level < 0 then level = 0 end
      level = level + units
      if level > full then
        if not since then
          return state .. clock[1] .. ' ' .. clock[2] .. echo
        end
      elseif used > 0 and used <= full and used % 2 == 0 then
        bytes = struct.pack('<I7I7', level, now)
        local idle = anchor + used / drain
        local ends = idle % (near + 4) + units / drain
        if idle < now then ends = ends + now - idle end
        if ends < near then
          call('SETRANGE', key, '22', bytes)
          return bytes .. echo
        end
      end
    end
    if bytes then
      local tick, room, grace = 1, near + 4, 2000
      --@paste level anew
      anew(key, now + level / drain, bytes)
      return bytes .. echo
    end
  end
end
--@include bucket_rest.lua
if since then
  return returns and decide(8, units / unit, since) or decide(4, units / unit, 1)
end
local _, _, q, _, size = parse('<BI7I7I3I4', double)
return decide(0, units <= full and units / q or size + 1, 1)
