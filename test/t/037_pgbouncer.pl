# Through pgbouncer in transaction mode, where every call may run on another
# backend, and here does: the story of two workers and a lost reply, protected
# tables, and load.  Afterwards no backend has a lock or a state of a session.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use FencingTest;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($program) = grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin', '/usr/local/sbin';
plan skip_all => 'pgbouncer is not installed' if !defined $program;

my ($owner_a, $owner_b) = map { owner($_) } 10 .. 11;
my $node = new_node('main', "max_prepared_transactions = 0\nautovacuum = off\n");
$node->safe_psql('postgres', q{
CREATE ROLE worker LOGIN;
SELECT fencing_grant('worker', 'client');
CREATE TABLE daily_report (day date, region text, revenue numeric, token bigint);
CREATE TABLE guarded (job text, line text);
SELECT fencing_protect('guarded', 'job');
GRANT SELECT, INSERT ON daily_report, guarded, business TO worker;
GRANT pg_monitor TO worker});

#
# "robin" hands out the backend that has been idle longest: each transaction is
# on another one than the transaction before.  "single" has one for everybody.
#
my $backends = 4;
my $folder = PostgreSQL::Test::Utils::tempdir_short();
my $port = PostgreSQL::Test::Cluster::get_free_port();
my $server = sprintf 'host=%s port=%s dbname=postgres', $node->host, $node->port;
append_to_file("$folder/users", qq{"worker" ""\n"admin" ""\n});
append_to_file("$folder/pgbouncer.ini", <<"EOT");
[databases]
robin = $server pool_size=$backends
single = $server pool_size=1

[pgbouncer]
listen_addr =
listen_port = $port
unix_socket_dir = $folder
auth_type = trust
auth_file = $folder/users
admin_users = admin
pool_mode = transaction
server_round_robin = 1
logfile = $folder/log
EOT
my $pgbouncer = IPC::Run::start([ $program, '-q', "$folder/pgbouncer.ini" ], '<', \undef, '>', "$folder/out", '2>', "$folder/err");

END
{
	my $status = $?;
	if ($pgbouncer)
	{
		eval { $pgbouncer->signal('KILL'); $pgbouncer->finish };
		note slurp_file("$folder/log") if -e "$folder/log";
	}
	$? = $status;
}

sub through
{
	my ($database) = @_;
	return "host=$folder port=$port dbname=$database user=worker";
}

sub open_pooled
{
	my ($database) = @_;
	return FencingTest::Session->new($node, 'postgres', extra_params => [ '--dbname', through($database) ]);
}

my $err;
foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
{
	last if $node->psql('postgres', 'SELECT 1', connstr => through('robin'), stderr => \$err) == 0;
	die 'pgbouncer has ended: ' . slurp_file("$folder/err") if !$pgbouncer->pumpable;
	select undef, undef, undef, 0.1;
}

# All backends are there before the story begins.
my @clients = map { open_pooled('robin') } 1 .. $backends;
$_->ask('BEGIN') foreach @clients;
my @pids = map { $_->ask('SELECT pg_backend_pid()') } @clients;
$_->ask('COMMIT') foreach @clients;
is(scalar(keys %{ { map { ($_ => 1) } @pids } }), $backends, "$backends clients in blocks are on $backends backends");

# What a backend knows of its client.  pgbouncer itself follows some settings.
my $state = q{SELECT pg_backend_pid(), session_user, current_user, pg_my_temp_schema(), (SELECT count(*) FROM pg_prepared_statements),
	(SELECT count(*) FROM pg_cursors WHERE name <> ''), (SELECT count(*) FROM pg_listening_channels()),
	(SELECT string_agg(name || '=' || setting, ',' ORDER BY name) FROM pg_settings WHERE source = 'session' AND name <> 'application_name'),
	(SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype NOT IN ('virtualxid', 'relation'))};

sub states
{
	my %states;

	$_->ask('BEGIN') foreach @clients;
	foreach my $client (@clients)
	{
		my ($pid, $state) = split /\|/, $client->ask($state), 2;
		$states{$pid} = $state;
	}
	$_->ask('COMMIT') foreach @clients;
	return \%states;
}
my $before = states();
my %turns = map { ($clients[0]->ask('SELECT pg_backend_pid()') => 1) } 1 .. $backends;
is(scalar(keys %turns), $backends, 'a client on its own is on each backend in turn');

#
# The story.  Each answer has the backend's number in front.
#
my ($previous, %seen) = (0);

sub told
{
	my ($session, $columns, $call) = @_;
	my ($pid, $answer) = split /\|/, $session->ask("SELECT pg_backend_pid(), $columns FROM $call"), 2;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	isnt($pid, $previous, 'on another backend');
	$previous = $pid;
	$seen{$pid}++;
	return $answer;
}

my $write = q{'INSERT INTO daily_report SELECT ($3->>''day'')::date, r.region, r.revenue, $2
	FROM jsonb_to_recordset($3->''rows'') AS r(region text, revenue numeric) RETURNING revenue'};

sub report
{
	my ($token, $revenue, $more) = @_;
	return qq{fencing_commit('daily-report/2026-08-03', $token, '{"day": "2026-08-03", "rows": [{"region": "Zürich", "revenue": $revenue}]$more}', $write)};
}

my ($a, $b) = map { open_pooled('robin') } 1 .. 2;
is(told($a, 'outcome, token, safe_for_ms', "fencing_acquire('daily-report/2026-08-03', $owner_a, '1 hour')"), 'acquired|1|3564000', 'A takes the lease');
is(told($a, 'outcome, token', "fencing_acquire('daily-report/2026-08-03', $owner_a, '1 hour')"), 'renewed|1', 'A asks again');
is(told($a, 'outcome', "fencing_renew('daily-report/2026-08-03', $owner_a, 1, '1 hour')"), 'renewed', 'A sends a heartbeat');
like(told($b, 'outcome, token', "fencing_acquire('daily-report/2026-08-03', $owner_b, '1 hour')"), qr/^held\|$/, 'B has to wait');
# A pauses for longer than that.
$node->safe_psql('postgres', q{UPDATE fencing.leases SET lease_until = clock_timestamp()});
is(told($b, 'outcome, token', "fencing_acquire('daily-report/2026-08-03', $owner_b, '1 hour')"), 'acquired|2', 'A pauses, B takes over');

# The reply to the COMMIT of B is lost: pgbouncer is told nothing of it either.
$b->ask("BEGIN;\nSELECT outcome FROM " . report(2, '141.75', ''));
$b->start("COMMIT \\; SELECT pg_sleep(600)");
await_true($node, q{SELECT EXISTS (SELECT FROM fencing.receipt_log)}, 'B has committed');
$b->{psql}{run}->signal('KILL');
unlike($b->{psql}{stdout}, qr/sqlstate/, 'and hears nothing');
$b->close;
await_true($node, q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'}, 'its backend ends');

is(told($a, 'outcome, result, fence', report(1, '41.75', '')), 'stale||2', 'A wakes up: stale');
is(told($a, 'outcome', "fencing_renew('daily-report/2026-08-03', $owner_a, 1)"), 'lost', 'A has lost its lease');
$b = open_pooled('robin');
is(told($b, 'outcome, result, fence', report(2, '1.4175e2', '')), 'replayed|{"revenue": 141.75}|2', 'B tries again: replayed');
is(told($b, 'outcome, result', report(2, '141.75', ', "at": 1')), 'conflict|', 'B tries with other content: conflict');
is(told($b, 'outcome', "fencing_release('daily-report/2026-08-03', $owner_b, 2)"), 'released', 'B releases');
is(told($b, 'result', q{fencing_receipt('daily-report/2026-08-03', 2)}), '{"revenue": 141.75}', 'the receipt');
is(answer($node, 'SELECT region, revenue, token FROM daily_report'), 'Zürich|141.75|2', 'one row, of B');
cmp_ok(scalar(keys %seen), '>=', $backends, 'all backends had their part');

# An ORM: the gate in a block, then writes.
is($a->ask("SELECT outcome FROM fencing_acquire('orm', $owner_a, '1 hour')"), 'acquired', 'gate alone: acquired');
is($a->ask(qq{BEGIN;\nSELECT outcome FROM fencing_commit('orm', 1, '{"n": 1}', strict => true);\nINSERT INTO guarded VALUES ('orm', 'a');\nCOMMIT}), 'committed', 'gate alone: committed');
is($b->ask(q{INSERT INTO guarded VALUES ('orm', 'b')}), 'LF003', 'gate alone: nobody else may write');

#
# One backend for all: nothing of a client is left for the next one.
#
my ($one, $two) = map { open_pooled('single') } 1 .. 2;
my $gate = q{SELECT outcome FROM fencing_commit('orm', 1, '{"n": 1}', step => '%s')};
is($one->ask('SELECT pg_backend_pid()'), $two->ask('SELECT pg_backend_pid()'), 'two clients share a backend');
is($one->ask("BEGIN;\n" . sprintf($gate, 'one')), 'committed', 'one: the gate');
is($one->ask(q{INSERT INTO guarded VALUES ('orm', 'one');} . "\nCOMMIT"), '', 'one: the write');
is($two->ask(q{INSERT INTO guarded VALUES ('orm', 'two')}), 'LF003', 'two: no pass');
is($one->ask(q{INSERT INTO guarded VALUES ('orm', 'one')}), 'LF003', 'one: no pass any more');
is($one->ask("BEGIN;\n" . sprintf($gate, 'rolled back') . ";\nROLLBACK"), 'committed', 'one: rolled back');
is($two->ask(q{INSERT INTO guarded VALUES ('orm', 'two')}), 'LF003', 'two: no pass of that either');
is($two->ask(sprintf($gate, 'rolled back') =~ s/, step/, 'SELECT 1', step/r), 'committed', 'two: the retry');

# A client that is killed in the middle takes its backend along.
is($one->ask("BEGIN;\n" . sprintf($gate, 'killed')), 'committed', 'one: in the middle');
$one->{psql}{run}->signal('KILL');
$one->close;
is($two->ask("SET statement_timeout = '60s';\n" . sprintf($gate, 'killed') =~ s/, step/, 'SELECT 1', step/r), 'committed', 'two: the retry is a first call');
is($two->ask('RESET statement_timeout'), '', 'two: its own setting');
is(answer($node, 'SELECT count(*) FROM guarded'), '2', 'what was written');

# Many clients in turn on few backends, and the extended protocol.
my @workers = start_workers($node, count => 8, jobs => [ map { "job-$_" } 1 .. 4 ], connstr => through('robin'));
wait_for_acknowledged(200, @workers);
append_to_file("$folder/bench.sql", <<'EOT');
\set n random(1, 5)
\set owner random(1, 1000000000)
SELECT (outcome = 'acquired')::int AS got, coalesce(token, 0) AS token FROM fencing_acquire('bench-' || :n, md5(:owner::text)::uuid, '1 hour') \gset
\if :got
SELECT outcome FROM fencing_commit('bench-' || :n, :token, jsonb_build_object('n', :n::int), 'SELECT $3 AS given', strict => true);
SELECT token FROM fencing.lease_status WHERE job_key = 'bench-' || :n;
SELECT outcome FROM fencing_release('bench-' || :n, md5(:owner::text)::uuid, :token);
\endif
EOT
foreach my $mode ('simple', 'extended')
{
	command_ok([ 'pgbench', '-n', '-M', $mode, '-c', '6', '-t', '50', '-f', "$folder/bench.sql", through('robin') ], "pgbench, $mode protocol");
}
stop_workers(@workers);
check_acknowledged($node, 'load', @workers);
is(answer($node, q{SELECT count(*) > 0 FROM fencing.receipts WHERE job_key LIKE 'bench-%'}), 't', 'pgbench has committed');

#
# What is left.
#
await_true($node, q{SELECT count(*) FILTER (WHERE state <> 'idle') = 0 FROM pg_stat_activity WHERE usename = 'worker'}, 'all backends are idle');
is(answer($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}), '0', 'no advisory lock is left');
is(answer($node, q{SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE usename = 'worker'}), '0', 'nor any other');
my $after = states();
is(scalar(keys %$after), $backends, 'all backends are asked');
my ($expected) = values %$before;
is($after->{$_}, $expected, 'no state of a session is left') foreach keys %$after;
$_->close foreach @clients, $a, $b, $two;

$node->stop;
done_testing();
