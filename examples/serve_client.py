"""serve_client.py SOCKET - asks weir serve from Python: logins by address, and tokens that are settled afterwards.

    login 1: allowed, 1 left
    login 2: allowed, 0 left
    login 3: denied, 0 left
    tokens: 100 reserved, 37 used, 963 left
"""
import sys
import redis

weir = redis.Redis(unix_socket_path=sys.argv[1], socket_timeout=0.2)


def ask(*words):
    try:
        return weir.execute_command(*words)
    except (redis.ConnectionError, redis.TimeoutError):  # without a server this program admits everything; yours may decide otherwise
        return [1, 0, 0, 0, 0, 0, 0, 0, 0, 0]


for attempt in 1, 2, 3:
    allowed, _, left, *_ = ask("WEIR.TRY", "login", "192.0.2.7")
    print(f"login {attempt}: {'allowed' if allowed else 'denied'}, {left} left")

allowed, *_, reservation = ask("WEIR.RESERVE", "tokens", "alice", 100)
if allowed:
    used = 37  # which only the model's answer tells
    ask("WEIR.SETTLE", "tokens", "alice", reservation, used)
    left = ask("WEIR.PEEK", "tokens", "alice")[2]
    print(f"tokens: 100 reserved, {used} used, {left} left")
