# Crashes under load, synchronous_commit off: whatever a worker was told before
# is there afterwards, in whole.  And backends that are killed at COMMIT itself,
# between the gate and the commit record.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use FencingTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($owner_a, $owner_b) = (owner(10), owner(11));

# Nothing reaches the disk by itself: no WAL writer, no checkpoint.
my $node = new_node('main', <<'EOT');
restart_after_crash = on
synchronous_commit = off
wal_writer_delay = 10s
wal_writer_flush_after = 1GB
checkpoint_timeout = 1h
max_wal_size = 10GB
EOT

#
# Killed at COMMIT.  A deferred trigger of the business table waits there.
#
$node->safe_psql('postgres', q{
CREATE FUNCTION wait_at_commit() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END$$;
CREATE TABLE slow (job text, token bigint);
CREATE CONSTRAINT TRIGGER wait_at_commit AFTER INSERT ON slow
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait_at_commit()});
is(answer($node, "SELECT outcome, token FROM fencing_acquire('slow', $owner_a, '1 day')"), 'acquired|1', 'a job is acquired');
is(answer($node, "SELECT outcome, token FROM fencing_acquire('slow 2', $owner_a, '1 day')"), 'acquired|1', 'another one');

my $commit = q{SELECT outcome FROM fencing_commit('slow', 1, '{}', 'INSERT INTO slow VALUES ($1, $2)')};
my $state = q{SELECT (SELECT count(*) FROM fencing.receipts WHERE job_key LIKE 'slow%'), (SELECT count(*) FROM slow)};
foreach my $way (
	[ 'one call', $commit ],
	[ 'in a block', "BEGIN;\n$commit;\nCOMMIT" ],
	[ 'two jobs, savepoints', "BEGIN;\nSAVEPOINT s;\n$commit;\nRELEASE s;\nSAVEPOINT t;\n"
		  . q{SELECT fencing_commit('slow 2', 1, '{}', 'INSERT INTO slow VALUES ($1, $2)', report_errors => true);} . "\nRELEASE t;\nCOMMIT" ])
{
	my ($name, $call) = @$way;
	my $locker = open_session($node);
	my $worker = open_session($node);

	$locker->ask('SELECT pg_advisory_lock(1)');
	$worker->start($call);
	await_lock($node, $worker->pid, "$name: it waits at COMMIT");
	is(answer($node, "SELECT outcome, token FROM fencing_acquire('slow', $owner_b)"), 'held|', "$name: the job is held");
	is(PostgreSQL::Test::Utils::system_log('pg_ctl', 'kill', 'KILL', $worker->pid), 0, "$name: killed");
	await_true($node, 'SELECT NOT EXISTS (SELECT FROM pg_locks WHERE locktype = \'advisory\')', "$name: the server has restarted");
	$_->close foreach $locker, $worker;
	is(answer($node, $state), '0|0', "$name: nothing is there");
	is(answer($node, q{SELECT job_key, token, live FROM fencing.lease_status WHERE job_key LIKE 'slow%' ORDER BY 1}),
		"slow|1|t\nslow 2|1|t", "$name: the leases live");
}
is(answer($node, $commit), 'committed', 'the retry is a first call');
is(answer($node, $commit), 'replayed', 'the next one is a replay');
is(answer($node, $state), '1|1', 'receipt and row are there once');

#
# Under load.
#
my @jobs = map { "job-$_" } 1 .. 3;
my @workers;

sub kill_postmaster
{
	my ($pid) = split /\n/, slurp_file($node->data_dir . '/postmaster.pid');

	$node->kill9;
	# Until it has gone, and its last child has noticed.
	foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		return if !kill(0, $pid) && $node->start(fail_ok => 1);
		select undef, undef, undef, 0.1;
	}
	die 'the server does not start again';
}

my %crashes = (
	'1 immediate' => sub { $node->stop('immediate'); $node->start },
	'2 postmaster killed' => \&kill_postmaster,
	'3 backend killed' => sub {
		my $pid = answer($node, q{SELECT pid FROM pg_stat_activity WHERE application_name = 'worker' LIMIT 1});
		my $witness = open_session($node);
		$witness->ask('SELECT pg_advisory_lock(1)');
		PostgreSQL::Test::Utils::system_log('pg_ctl', 'kill', 'KILL', $pid);
		await_true($node, 'SELECT NOT EXISTS (SELECT FROM pg_locks WHERE locktype = \'advisory\')', 'the server has restarted');
		$witness->close;
	});
foreach my $crash (sort keys %crashes)
{
	my @now = start_workers($node, jobs => \@jobs, connstr => $node->connstr('postgres') . ' application_name=worker');
	# The bookkeeping between the crashes goes on meanwhile.
	my $keeper = open_session($node);

	wait_for_acknowledged(100, @now);
	$keeper->ask(q{SELECT fencing_purge('receipts', '1 day', 10)});
	$keeper->ask(q{SELECT fencing_revoke('job-1', 'test')});
	wait_for_acknowledged(300, @now);
	$crashes{$crash}->();
	stop_workers(@now);
	$keeper->close;
	push @workers, @now;
	check_acknowledged($node, $crash, @workers);
}
is(answer($node, 'SELECT fencing.epoch_start()'), '0', 'crashes open no epoch');

# What was acknowledged last replays with the same content and no other, also
# after all the takeovers since.
my $told = acknowledged(@workers);
my @last = map { my $job = $_; (grep { $_->[0] eq $job } @{ $told->{committed} })[-1] } @jobs;
my $outcomes = q{SELECT string_agg(DISTINCT outcome::text, ', ') FROM (%s) a(job, token, content), fencing_commit(job, token, %s)};
is(answer($node, sprintf $outcomes, values_list(@last), q{jsonb_build_object('by', content)}), 'replayed', 'the retry of what was committed');
is(answer($node, sprintf $outcomes, values_list(@last), q{jsonb_build_object('by', 'other')}), 'conflict', 'with other content');

# A commit that was in flight was not acknowledged: its retry is one or the other.
my %committed = map { ("@$_" => 1) } @{ $told->{committed} }, @{ $told->{stale} };
my @in_flight = grep { !$committed{"@$_"} } @{ $told->{acquired} };
cmp_ok(scalar @in_flight, '<=', 12, 'at most one call per worker was in flight');
SKIP:
{
	skip 'no commit was in flight at any crash', 2 if !@in_flight;
	is(answer($node, q{SELECT string_agg(DISTINCT outcome::text, ', ') FROM (} . values_list(@in_flight)
			  . q{) a(job, token, content), fencing_commit(job, token, jsonb_build_object('by', content), 'INSERT INTO business VALUES ($1, $2, $3 ->> ''by'')')}
			  . q{ WHERE outcome NOT IN ('replayed', 'stale', 'committed')}),
		'', 'what was in flight is answered');
	check_rows($node, 'and afterwards');
}

foreach my $job (@jobs)
{
	my ($highest) = sort { $b <=> $a } map { $_->[1] } grep { $_->[0] eq $job } @{ $told->{acquired} };
	is(answer($node, "SELECT fencing_revoke('$job', 'the end') > $highest"), 't', "$job: the next token is higher");
}

#
# Each of the other calls is there after a crash at once.
#
sub crash
{
	$node->stop('immediate');
	$node->start;
	return;
}

is(answer($node, "SELECT outcome, token FROM fencing_acquire('purge', $owner_a, '1 day')"), 'acquired|1', 'purge: a job');
is(answer($node, q{SELECT outcome FROM fencing_commit('purge', 1, '{}', 'SELECT 1')}), 'committed', 'purge: a receipt');
is(answer($node, "SELECT fencing_revoke('purge', 'test')"), '2', 'purge: its token is of the past');
is(answer($node, q{SELECT count(*) FROM fencing_receipt('purge', 1)}), '1', 'purge: the receipt is there');
$node->safe_psql('postgres', 'SELECT pg_sleep(0.001)');
is(answer($node, q{SELECT purged > 0, more FROM fencing_purge('receipts', '1 microsecond', 1000000)}), 't|f', 'purge: purged');
crash();
is(answer($node, q{SELECT count(*) FROM fencing_receipt('purge', 1)}), '0', 'purge: the receipt is gone');
is(answer($node, q{SELECT outcome FROM fencing_commit('purge', 1, '{}', 'SELECT 1')}), 'pruned', 'purge: and nobody executes it again');
check_zombies(open_session($node), 'purge', @{ $told->{committed} });

is(answer($node, "SELECT outcome, token FROM fencing_acquire('epoch', $owner_a, '1 day')"), 'acquired|1', 'epoch: a job');
is(answer($node, q{SELECT fencing_new_epoch('test', 5)}), token_of(1, 0), 'epoch: a new one');
crash();
is_answers($node, 'postgres', 'epoch',
	[ 'it is there', 'SELECT fencing.epoch_start()', token_of(1, 0) ],
	[ 'its record', 'SELECT token, reason FROM fencing.revocations WHERE job_key IS NULL', token_of(1, 0) . '|test' ],
	[ 'the holder is out', q{SELECT outcome FROM fencing_commit('epoch', 1, '{}', 'SELECT 1')}, 'stale' ],
	[ 'he comes in again', "SELECT outcome, token FROM fencing_acquire('epoch', $owner_a, '1 day')", 'acquired|' . token_of(1, 1) ]);
crash();
is(answer($node, "SELECT outcome, token FROM fencing_acquire('epoch', $owner_a, '1 day')"), 'renewed|' . token_of(1, 1), 'epoch: and stays');

# A holder counts on what he was told; so does whoever comes after a release.
my $hours = q{SELECT round(EXTRACT(epoch FROM lease_until - clock_timestamp()) / 3600) FROM fencing.lease_status WHERE job_key = 'lease'};
my $token = token_of(1, 1);
is(answer($node, "SELECT outcome, token FROM fencing_acquire('lease', $owner_a, '1 hour')"), "acquired|$token", 'lease: acquired');
is(answer($node, "SELECT outcome FROM fencing_renew('lease', $owner_a, $token, '5 hours')"), 'renewed', 'lease: renewed');
crash();
is(answer($node, $hours), '5', 'lease: it is extended');
is(answer($node, "SELECT outcome FROM fencing_acquire('lease', $owner_a, '9 hours')"), 'renewed', 'lease: acquired again');
crash();
is(answer($node, $hours), '9', 'lease: it is extended by that');
is(answer($node, "SELECT outcome FROM fencing_release('lease', $owner_a, $token)"), 'released', 'lease: released');
crash();
is(answer($node, "SELECT outcome, token FROM fencing_acquire('lease', $owner_b)"), 'acquired|' . ($token + 1), 'lease: somebody else has it');

# Who may call, and where only the gate may write.
my $may = q{SELECT has_function_privilege('app', 'fencing_revoke(text, text)', 'EXECUTE'), count(*) FROM fencing.grants WHERE role = 'app'};
$node->safe_psql('postgres', 'CREATE ROLE app');
is(answer($node, q{SELECT fencing_grant('app', 'admin')}), '', 'grant');
crash();
is(answer($node, $may), 't|1', 'grant: it is there');
is(answer($node, q{SELECT fencing_ungrant('app', 'admin')}), '', 'ungrant');
crash();
is(answer($node, $may), 'f|0', 'ungrant: it is gone');
$node->safe_psql('postgres', 'CREATE TABLE guarded (job text)');
is(answer($node, q{SELECT fencing_protect('guarded', 'job')}), '', 'protect');
crash();
is(answer($node, q{INSERT INTO guarded VALUES ('lease')}), 'LF003', 'protect: it is there');
is(answer($node, q{SELECT fencing_unprotect('guarded')}), '', 'unprotect');
crash();
is(answer($node, q{INSERT INTO guarded VALUES ('lease')}), '', 'unprotect: it is gone');

# One transaction after the other in one call.
is(answer($node, qq{DO \$\$BEGIN
	FOR i IN 1 .. 5 LOOP
		PERFORM fencing_acquire('chain ' || i, $owner_a, '1 day');
		COMMIT;
		PERFORM fencing_commit('chain ' || i, @{[ token_of(1, 1) ]}, '{}', 'SELECT 1');
		COMMIT AND CHAIN;
	END LOOP;
END\$\$}), '', 'transactions inside a call');
crash();
is(answer($node, q{SELECT count(*) FROM fencing.receipts WHERE job_key LIKE 'chain%'}), '5', 'transactions inside a call: all are there');

$node->stop;
done_testing();
