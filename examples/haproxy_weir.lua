-- haproxy_weir.lua - HAProxy asks weir serve: `http-request lua.weir LIMIT` takes a permit of the key in txn.weir_key.
--
-- It sets txn.weir_denied, and for denied requests txn.weir_retry, in seconds. If weir serve does not answer, the
-- request passes. The environment variable SERVE_ADDRESS has the server's address, SERVE_TIMEOUT the seconds to wait
-- for it (default 1). docs/gateways.md shows the configuration.
local address = os.getenv("SERVE_ADDRESS") or "unix@/run/weir/weir.sock"
local timeout = tonumber(os.getenv("SERVE_TIMEOUT")) or 1

local function word(text)
    return "$" .. #text .. "\r\n" .. text .. "\r\n"
end

-- Return the integers of the reply to WEIR.TRY, or nil and a reason.
local function try(limit, key)
    local tcp = core.tcp()
    tcp:settimeout(timeout)
    if not tcp:connect(address) then
        return nil, "cannot connect to " .. address
    end
    tcp:send("*3\r\n" .. word("WEIR.TRY") .. word(limit) .. word(key))
    local head = tcp:receive("*l") or "no answer"
    local numbers = {}
    for i = 1, tonumber(head:match("^%*(%d+)")) or 0 do
        numbers[i] = tonumber((tcp:receive("*l") or ""):match("^:(-?%d+)"))
    end
    tcp:close()
    return #numbers == 8 and numbers or nil, head
end

core.register_action("weir", { "http-req" }, function(txn, limit)
    local key = txn:get_var("txn.weir_key")
    if not key or key == "" then
        return
    end
    local decision, reason = try(limit, tostring(key))
    if not decision then
        txn:Warning("weir: " .. limit .. ": " .. reason)
    elseif decision[1] == 0 then
        txn:set_var("txn.weir_denied", true)
        txn:set_var("txn.weir_retry", math.max(1, math.ceil(decision[4] / 1000000)))
    end
end, 1)
