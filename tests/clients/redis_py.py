"""redis_py.py PORT NAME - redis-py, with its default pipeline: a transaction."""
import sys, redis

port, name = int(sys.argv[1]), sys.argv[2]
for protocol in ({}, {"protocol": 3}) if int(redis.__version__.split(".")[0]) >= 5 else ({},):
    server = redis.Redis(port=port, db=0, client_name="tests", **protocol)
    key = name + str(len(protocol))
    assert [server.execute_command("WEIR.TRY", "login", key)[0] for _ in range(3)] == [1, 1, 0]
    taken = server.pipeline().execute_command("WEIR.TRY", "tokens", key, 10).execute_command("PING").execute()
    assert taken[0][2] == 90 and taken[1] in (True, b"PONG"), taken
    plain = server.pipeline(transaction=False).execute_command("WEIR.TRY", "tokens", key, 10).execute()
    assert plain[0][2] == 80, plain
    try:
        server.pipeline().execute_command("WEIR.TRY", "tokens", key, 10).execute_command("NO.SUCH").execute()
        raise SystemExit("an unknown command passes")
    except redis.ResponseError:
        pass
    assert server.execute_command("WEIR.PEEK", "tokens", key)[2] == 80
    assert server.client_getname() == "tests" and server.echo("x") == b"x"
    try:
        redis.Redis(port=port, db=1).ping()
        raise SystemExit("there is a database 1")
    except redis.ResponseError:
        pass
print("ok")
