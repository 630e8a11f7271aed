# Calls a second of the same idea in a server that is not PostgreSQL, on loopback: a
# receipt is written if the fence still has this token and the receipt is not there.
#
#   others.pl redis PORT CLIENTS SECONDS ROUND     a script in Lua
#   others.pl etcd PORT CLIENTS SECONDS ROUND      a transaction, compare and put
#   others.pl port                                 a port that is free
#
# A process with a connection per client, and each call waits for its answer.
# etcd is asked through its JSON gateway.

use strict;
use warnings;

use IO::Socket::INET;
use MIME::Base64 qw(encode_base64);
use Time::HiRes qw(time);

my ($what, $port, $clients, $seconds, $round) = @ARGV;
my $jobs = 10000;
my $digest = '0f7f2d0a9b1e4c558f0e3c2a5d1b7e440f7f2d0a9b1e4c558f0e3c2a5d1b7e44';
my $script = <<'EOT';
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 'stale' end
local receipt = redis.call('GET', KEYS[2])
if receipt then return receipt == ARGV[2] and 'replayed' or 'conflict' end
redis.call('SET', KEYS[2], ARGV[2])
return 'committed'
EOT

if ($what eq 'port')
{
	print IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1')->sockport, "\n";
	exit;
}

sub connection
{
	return IO::Socket::INET->new(PeerAddr => "127.0.0.1:$port") // die "no connection to $what: $@\n";
}

# One answer: a line, and what a bulk string has after it.
sub redis
{
	my ($socket, @words) = @_;
	my $command = '*' . @words . "\r\n" . join '', map { '$' . length($_) . "\r\n$_\r\n" } @words;

	syswrite($socket, $command) == length $command or die "redis: $!\n";
	my $line = <$socket> // die "redis has gone\n";
	die "redis: $line" if $line =~ /^-/;
	return $line if $line !~ /^\$(\d+)/;
	read($socket, my $value, $1 + 2);
	return substr $value, 0, $1;
}

sub etcd
{
	my ($socket, $path, $json) = @_;
	my $request = "POST $path HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " . length($json) . "\r\n\r\n$json";

	syswrite($socket, $request) == length $request or die "etcd: $!\n";
	my ($status, $length) = (scalar <$socket>);
	while (my $line = <$socket>)
	{
		$length = $1 if $line =~ /^Content-Length: (\d+)/i;
		last if $line =~ /^\r?\n$/;
	}
	read($socket, my $body, $length);
	die "etcd: $status$body" if $status !~ / 200 /;
	return $body;
}

sub encoded
{
	my ($text) = @_;
	return encode_base64($text, '');
}

sub prepare
{
	my $socket = connection();
	foreach my $i (0 .. $jobs - 1)
	{
		redis($socket, 'SET', "fence/$i", 1) if $what eq 'redis';
		etcd($socket, '/v3/kv/put', sprintf '{"key": "%s", "value": "%s"}', encoded("fence/$i"), encoded(1)) if $what eq 'etcd' && $i < 100;
	}
	return $what eq 'redis' ? redis($socket, 'SCRIPT', 'LOAD', $script) : undef;
}

sub call
{
	my ($socket, $sha, $i, $step) = @_;

	if ($what eq 'redis')
	{
		my $answer = redis($socket, 'EVALSHA', $sha, 2, 'fence/' . $i % $jobs, "receipt/$step", 1, $digest);
		die "redis: $answer\n" if $answer ne 'committed';
		return;
	}
	my ($fence, $receipt) = (encoded('fence/' . $i % 100), encoded("receipt/$step"));
	my $answer = etcd($socket, '/v3/kv/txn', sprintf
		'{"compare": [{"key": "%s", "target": "VALUE", "value": "%s"}, {"key": "%s", "target": "CREATE", "create_revision": "0"}], '
		. '"success": [{"request_put": {"key": "%s", "value": "%s"}}], "failure": [{"request_range": {"key": "%s"}}]}',
		$fence, encoded(1), $receipt, $receipt, encoded($digest), $receipt);
	die "etcd: $answer\n" if $answer !~ /"succeeded":true/;
	return;
}

my $sha = prepare();
my @pipes;
foreach my $client (1 .. $clients)
{
	pipe my $from, my $to or die $!;
	my $pid = fork // die $!;
	if (!$pid)
	{
		my $socket = connection();
		my $end = time + $seconds;
		my $n = 0;
		while (time < $end)
		{
			call($socket, $sha, $n * 7919 + $client * 611, "$round.$client.$n");
			$n++;
		}
		print {$to} "$n\n";
		close $to;
		exit;
	}
	close $to;
	push @pipes, $from;
}
my $sum = 0;
foreach (@pipes)
{
	$sum += <$_> // die "a client of $what has failed\n";
}
print $sum / $seconds, "\n";
