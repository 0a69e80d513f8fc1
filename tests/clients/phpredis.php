<?php // phpredis.php PORT NAME - the extension phpredis.
[, $port, $name] = $argv;
$server = new Redis();
$server->connect('127.0.0.1', (int)$port);
$allowed = fn() => $server->rawCommand('WEIR.TRY', 'login', $name)[0];
$server->select(0) && $server->echo('x') === 'x' && [$allowed(), $allowed(), $allowed()] === [1, 1, 0] || exit(1);
$both = $server->multi()->rawCommand('WEIR.TRY', 'tokens', $name, '10')->rawCommand('WEIR.TRY', 'tokens', $name, '1')->exec();
$both[0][2] === 90 && $both[1][2] === 89 || exit(2);
$piped = $server->pipeline()->rawCommand('WEIR.TRY', 'tokens', $name, '1')->exec();
$piped[0][2] === 88 && $server->rawCommand('WEIR.TRY', 'none', $name) === false || exit(3);
echo "ok\n";
