-- bucket_single.lua - one take from one token or leaky bucket, the commonest call, or one settlement, in as few steps
-- as it can be decided. A settlement gives back permits that were not used, or charges those used beyond the estimate.
--
-- KEYS     one key.
-- ARGV     one string:
--          '<c26ddddc4' the stamp of the state with room (level.lua); the half units that drain every microsecond,
--              which is the tick; the half units of a full bucket; the room less 4, in microseconds; the half units of
--              the permits; the echo, as in each.lua. If a take's cost exceeds the size, its half units are one more
--              than a full bucket's.
--          '<d' for a settlement, whose permits are at most the size: the half units of a permit.
--          '<d' if it gives back: when the permits were charged, in us. Otherwise they are charged.
--          The caller vouches that all of these agree. Numbers are doubles, which are cheaper to read than integers;
--          all are integers below 2^53.
-- Returns  one string. If the key has a state with room under this stamp, not overdrawn, and, except for a return, the
-- clock has not stepped back:
--              after a take or settlement that leaves no bucket overdrawn: '<I7I7c4' its half units; its tick, which is
--              the time or, after a return, that of the last change before; the echo.
--              after a take that is denied: the state; the seconds and microseconds of TIME with a blank between them;
--              the echo. Whether scripts write such a state has not been checked then.
--          Otherwise the answer of each.lua. That is longer, and the byte before its echo is below a digit, because it
--          ends a number below 2^53 or is NONE or FOREIGN.
-- Errors   'WEIR ...' if ARGV is invalid; then nothing was written.
--
-- A return counts as of the state's last change (docs/design/semantics.md), so it does not ask the time, and it leaves
-- the time to live as it is: the key may outlive its state until its reservations would have drained unsettled. A take
-- or charge runs the same commands as each.lua. Every step of Lua costs Redis 40 to 110 instructions, and every byte
-- that becomes a string 10. So takes and returns have separate branches, and text is joined only from text.
local redis, struct, args, key = redis, struct, ARGV[1], KEYS[1]
local call, parse, len = redis.call, struct.unpack, args and #args
local form = len == 62 and '<c26ddddc4' or len == 78 and '<c26ddddc4dd' or len == 70 and '<c26ddddc4d'
if not form then
  return redis.error_reply('WEIR bad arguments')
end
-- Behind the last value parse() returns a position. So `since` is nil for a take, and `returns` except for a return.
local double, drain, full, near, units, echo, unit, since, returns = parse(form, args)
local now, state
if returns then
  state = redis.pcall('GET', key)
  if state and #state == 40 then
    local own, used, anchor = parse('<c26I7I7', state)
    if own == double and used > 0 and used <= full and used % 2 == 0 then
      if anchor > since then units = units - (anchor - since) * drain end
      if units >= used then
        call('DEL', key)
        return struct.pack('<I7I7', 0, anchor) .. echo
      end
      if units <= 0 then
        return struct.pack('<I7I7', used, anchor) .. echo
      end
      local bytes = struct.pack('<I7I7', used - units, anchor)
      call('SETRANGE', key, '26', bytes)
      return bytes .. echo
    end
  end
  local clock = call('TIME')
  now = clock[1] * 1000000 + clock[2]
else
  local clock = call('TIME')
  now, state = clock[1] * 1000000 + clock[2], redis.pcall('GET', key)
  if state and #state == 40 then
    local own, used, anchor = parse('<c26I7I7', state)
    if own == double and anchor <= now then
      local level, bytes = used - (now - anchor) * drain
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
          call('SETRANGE', key, '26', bytes)
          return bytes .. echo
        end
        local tick, room, grace = 1, near + 4, 2000
        --@paste level anew
        anew(key, now + level / drain, bytes)
        return bytes .. echo
      end
    end
  end
end
--@include bucket_rest.lua
if since then
  return returns and decide(8, units / unit, since) or decide(4, units / unit, 1)
end
local _, _, q, _, size = parse('<BI7I7I5I6', double)
return decide(0, units <= full and units / q or size + 1, 1)
