<?php // predis.php PORT NAME - Predis with a database, which Laravel sets by default.
require_once '/usr/share/php/Predis/Autoloader.php';
Predis\Autoloader::register();
[, $port, $name] = $argv;
$server = new Predis\Client("tcp://127.0.0.1:$port?database=0");
$allowed = fn() => $server->executeRaw(['WEIR.TRY', 'login', $name])[0];
[$allowed(), $allowed(), $allowed()] === [1, 1, 0] && $server->echo('x') === 'x' || exit(1);
$done = $server->transaction(function ($queue) { $queue->ping(); $queue->echo('y'); });
(string)$done[0] === 'PONG' && $done[1] === 'y' || exit(2);
$server->executeRaw(['WEIR.TRY', 'none', $name], $isError);
$isError || exit(3);
echo "ok\n";
