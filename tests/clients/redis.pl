# redis.pl PORT NAME - Perl's Redis.
use strict;
use warnings;
use Redis;
my ($port, $name) = @ARGV;
my $server = Redis->new(server => "127.0.0.1:$port", name => 'tests');
my $try = sub { $server->__std_cmd('weir.try', @_) };
$server->select(0);
die 'decisions' unless join(' ', map { ($try->('login', $name))[0] } 1 .. 3) eq '1 1 0';
$server->multi;
$server->ping;
$server->echo('y');
my @done = $server->exec;
die 'transaction' unless "@done" eq 'PONG y';
die 'no error' if eval { $try->('none', $name); 1 };
print "ok\n";
