# A consumer in a real client language, with two relays.  One is frozen with
# events in its hands, the other takes over; when the first goes on it
# acknowledges nothing.  Every event has its effect exactly once, in the order
# of its aggregate, and the one that cannot be handled is parked.

use strict;
use warnings;

use FindBin;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $relay = "$FindBin::RealBin/../lib/outbox/relay.py";

# The python3 that Debian's package is for need not be the first of the path.
my ($python) = grep { system("$_ -c 'import psycopg2' 2>/dev/null") == 0 } 'python3', '/usr/bin/python3';
if (!defined $python)
{
	die 'python3 with psycopg2 is not installed' if $ENV{CI};
	plan skip_all => 'python3 with psycopg2 is not installed';
}

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(extra => [ '--encoding=UTF8', '--no-locale' ]);
$node->start;
$node->safe_psql('postgres', q{
CREATE EXTENSION fencing CASCADE;
CREATE ROLE relay LOGIN;
SELECT fencing_grant('relay', 'relay');
-- no constraint that would hide an effect that comes twice
CREATE TABLE effect (n bigserial, relay text, event uuid, aggregate text, type text);
GRANT INSERT ON effect TO relay;
GRANT USAGE ON SEQUENCE effect_n_seq TO relay;
SELECT fencing_outbox_subscribe('mail', true);
});

# as the application's role, not as the owner
my $dsn = $node->connstr('postgres') . ' user=relay';

sub start_relay
{
	my ($name, @options) = @_;
	my %relay = (in => '', out => '', err => '');
	$relay{run} = IPC::Run::start([ $python, $relay, $dsn, 'mail', $name, @options ],
		'<', \$relay{in}, '>', \$relay{out}, '2>', \$relay{err}, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	return \%relay;
}

sub wait_for_output
{
	my ($relay, $pattern) = @_;
	$relay->{run}->pump until $relay->{out} =~ $pattern;
	return;
}

sub finish
{
	my ($relay) = @_;
	$relay->{run}->finish;
	is($relay->{err}, '', 'no error of the relay');
	return $relay->{out};
}

sub emit
{
	my (@events) = @_;
	$node->safe_psql('postgres', join '', map { my ($aggregate) = /^(?:poison-)?(\w+)-/; "SELECT fencing_outbox_emit('account', '$aggregate', '$_', '{}');\n" } @events);
	return;
}

# Aggregate by aggregate, in the order of the effects.
sub effects
{
	return $node->safe_psql('postgres', q{SELECT string_agg(type, ' ' ORDER BY n) FROM effect GROUP BY aggregate ORDER BY aggregate});
}

#
# One frozen relay
#
emit('a-1', 'b-1', 'a-2', 'c-1', 'b-2', 'a-3', 'c-2', 'b-3', 'a-4', 'b-4', 'c-3', 'a-5');

my $frozen = start_relay('frozen', 'hold');
wait_for_output($frozen, qr/holding/);
like($frozen->{out}, qr/^acquired\nread 10\nholding\n$/, 'the first relay holds ten events');
is($node->safe_psql('postgres', 'SELECT count(*) FROM effect'), '0', 'nothing is done yet');

# A paused process, as a virtual machine that is suspended or a long collection
# of garbage: it does not even know that it has been away.
$frozen->{run}->signal('STOP');
$frozen->{in} .= "go\n";

# Its lease ends; the second takes over, and does a part of it.
my $second = start_relay('second', 4);
my $out = finish($second);
like($out, qr/acquired\nread 10\n/, 'the second relay takes over');
like($out, qr/(?:committed \S+\n){4}limit\n$/, 'and does four of the events');
is($node->safe_psql('postgres', 'SELECT count(*) FROM effect'), '4', 'four effects');

$frozen->{run}->signal('CONT');
$out = finish($frozen);
unlike($out, qr/committed/, 'the frozen relay acknowledges nothing');
like($out, qr/holding\n(?:replayed \S+\n){4}stale \S+\nstale\n/, 'what was done is replayed, and the rest is stale to it');
is($node->safe_psql('postgres', q{SELECT count(*), count(*) FILTER (WHERE relay = 'frozen') FROM effect}), '4|0', 'it had no effect');

# Whoever comes next does the rest.
my $third = start_relay('third', 1000);
$out = finish($third);
like($out, qr/idle\n$/, 'the next relay does the rest');
is(effects(), "a-1 a-2 a-3 a-4 a-5\nb-1 b-2 b-3 b-4\nc-1 c-2 c-3", 'every event once, in the order of its aggregate');

#
# Poison, and two relays at once with many events
#
emit('a-6', 'poison-b-5', 'b-6', 'c-4', 'b-7', 'a-7');
$out = finish(start_relay('fourth', 1000));
is(() = $out =~ /^failed poison-b-5$/mg, 3, 'three attempts');
like($out, qr/^parked poison-b-5$/m, 'then it is parked');
is(effects(), "a-1 a-2 a-3 a-4 a-5 a-6 a-7\nb-1 b-2 b-3 b-4\nc-1 c-2 c-3 c-4", 'only its own aggregate waits');
is($node->safe_psql('postgres', 'SELECT consumer, pending, parked FROM fencing.outbox_status'), 'mail|3|1', 'the status says so');

$node->safe_psql('postgres', q{SELECT count(fencing_outbox_emit('account', 'n' || i % 10, 'n' || i % 10 || '-' || i, '{}')) FROM generate_series(1, 300) i});
my @relays = map { start_relay($_, 100000) } 'fifth', 'sixth';
finish($_) foreach @relays;
is($node->safe_psql('postgres', q{
	SELECT count(*), count(DISTINCT event), count(*) FILTER (WHERE i < before)
	FROM (SELECT event, i, lag(i) OVER (PARTITION BY aggregate ORDER BY n) AS before
		FROM (SELECT *, split_part(type, '-', 2)::int AS i FROM effect WHERE aggregate LIKE 'n%') e) x}),
	'300|300|0', 'two relays: 300 events once each, in order');
is($node->safe_psql('postgres', 'SELECT pending, parked FROM fencing.outbox_status'), '3|1', 'the parked aggregate still waits');

# Somebody has looked into it: the event goes by hand, the next ones by themselves.
$node->safe_psql('postgres', q{
	SELECT outcome FROM fencing_outbox_ack('mail', (SELECT token FROM fencing.fences WHERE job_key = 'mail'),
		ARRAY(SELECT id FROM fencing.outbox WHERE type = 'poison-b-5'))});
finish(start_relay('seventh', 1000));
is($node->safe_psql('postgres', q{SELECT string_agg(type, ' ' ORDER BY n) FROM effect WHERE aggregate = 'b'}),
	'b-1 b-2 b-3 b-4 b-6 b-7', 'what waited behind the parked event');
is($node->safe_psql('postgres', 'SELECT pending, parked FROM fencing.outbox_status'), '0|0', 'nothing is left');

$node->stop;
done_testing();
