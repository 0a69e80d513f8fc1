# redis_rb.rb PORT NAME - redis-rb.
require "redis"
port, name = ARGV
server = Redis.new(port: port.to_i, db: 0)
try = ->(limit, cost) { server.call("WEIR.TRY", limit, name, cost) }
exit 1 unless 3.times.map { try.call("login", "1")[0] } == [1, 1, 0] && server.echo("x") == "x"
exit 2 unless server.multi { |queue| queue.ping; queue.echo("y") } == ["PONG", "y"]
exit 3 unless server.pipelined { |queue| queue.ping; queue.call("WEIR.TRY", "tokens", name, "10") }[1][2] == 90
begin
  try.call("none", "1")
  exit 4
rescue Redis::CommandError
  puts "ok"
end
