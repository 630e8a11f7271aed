# Backends that are killed, sessions whose reply is lost, servers that crash:
# afterwards everything or nothing of a commit is there, the retry is answered
# accordingly, and no token is issued twice, synchronous_commit off included.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $owner_a = "'00000000-0000-0000-0000-00000000000a'";
my $owner_b = "'00000000-0000-0000-0000-00000000000b'";

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(allows_streaming => 1, extra => [ '--encoding=UTF8', '--no-locale' ]);
$node->append_conf('postgresql.conf', <<'EOT');
restart_after_crash = on
autovacuum = off
checkpoint_timeout = 1h
EOT
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION fencing CASCADE; CREATE TABLE business (line text); CREATE TABLE plain (a int); CREATE TABLE probe (a int)');

sub answer
{
	my ($sql) = @_;
	return $node->safe_psql('postgres', $sql);
}

# Starts a call in a session of its own and does not wait for its end.
sub start_call
{
	my ($call) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	my $pid = $session->query_safe('SELECT pg_backend_pid()');

	$session->query_until(qr/sent/, "\\echo sent\n$call;\n");
	return ($session, $pid);
}

sub wait_for
{
	my ($pid, $event) = @_;
	ok( $node->poll_query_until('postgres', "SELECT wait_event_type || ' ' || wait_event = '$event' FROM pg_stat_activity WHERE pid = $pid"),
		"waits: $event");
	return;
}

# Ends psql, whatever has become of its connection.
sub end_session
{
	my ($session) = @_;
	eval { $session->{run}->finish };
	return;
}

# A changed synchronous_standby_names counts when the checkpointer has seen it.
# Gives the session whose commit was the first to wait.
sub commits_wait
{
	foreach (1 .. 600)
	{
		my ($session, $pid) = start_call('INSERT INTO probe VALUES (1)');
		$node->poll_query_until('postgres',
			"SELECT state = 'idle' OR wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = $pid AND query LIKE 'INSERT%'");
		return $session if answer("SELECT state FROM pg_stat_activity WHERE pid = $pid") eq 'active';
		$session->quit;
	}
	die 'no commit waits for a standby';
}

my $commit = q{SELECT outcome, result FROM fencing_commit('job', 1, '{"a": 1}', 'INSERT INTO business VALUES (''job'') RETURNING line')};
my $state = q{SELECT (SELECT count(*) FROM fencing.receipts WHERE job_key = 'job'), (SELECT count(*) FROM business WHERE line = 'job')};
my $lock = 'BEGIN; LOCK TABLE business IN ACCESS EXCLUSIVE MODE';
my $unlocked = q{SELECT NOT EXISTS (SELECT FROM pg_locks WHERE relation = 'business'::regclass AND mode = 'AccessExclusiveLock' AND granted)};

is(answer("SELECT outcome, token FROM fencing_acquire('job', $owner_a, '1 day')"), 'acquired|1', 'a job is acquired');

#
# Terminated in the middle of its statement: the other sessions live.
#
my $locker = $node->background_psql('postgres', on_error_stop => 0);
$locker->query_safe($lock);
my ($worker, $pid) = start_call($commit);
wait_for($pid, 'Lock relation');
is(answer("SELECT outcome, token FROM fencing_renew('job', $owner_a, 1, '1 day')"), 'renewed|1', 'a heartbeat beside the commit');
is(answer("SELECT outcome, token FROM fencing_acquire('job', $owner_b)"), 'held|', 'a challenger beside the commit');
is(answer("SELECT pg_terminate_backend($pid)"), 't', 'terminated');
end_session($worker);
$locker->query_safe('ROLLBACK');
$locker->quit;
is(answer($state), '0|0', 'terminated in mid-commit: nothing is there');
is(answer(q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}), '0', 'terminated in mid-commit: no lock is left');

#
# Killed there by SIGKILL: the server restarts itself.
#
$locker = $node->background_psql('postgres', on_error_stop => 0);
$locker->query_safe($lock);
($worker, $pid) = start_call($commit);
wait_for($pid, 'Lock relation');
is(PostgreSQL::Test::Utils::system_log('pg_ctl', 'kill', 'KILL', $pid), 0, 'killed');
# Only the restart takes the lock from the other session.
ok($node->poll_query_until('postgres', $unlocked), 'the server has restarted');
end_session($worker);
end_session($locker);
is(answer($state), '0|0', 'killed in mid-commit: nothing is there');
is(answer(q{SELECT job_key, token, live FROM fencing.lease_status}), 'job|1|t', 'killed in mid-commit: the lease lives');
is(answer("SELECT outcome, token FROM fencing_acquire('job', $owner_b)"), 'held|', 'killed in mid-commit: it is held');
is(answer($commit), 'committed|{"line": "job"}', 'killed in mid-commit: the retry is a first call');
is(answer($commit), 'replayed|{"line": "job"}', 'and then a replay');
is(answer($state), '1|1', 'receipt and row are there once');

#
# Committed, and the reply never comes: the session waits for a standby that
# does not exist, its commit is on disk and visible to nobody yet.
#
my %kinds = (
	terminated => sub { answer("SELECT pg_terminate_backend($_[0])") },
	killed => sub { PostgreSQL::Test::Utils::system_log('pg_ctl', 'kill', 'KILL', $_[0]) });
foreach my $how (sort keys %kinds)
{
	my $call = qq{SELECT outcome, result FROM fencing_commit('job', 1, '{"a": 1}', 'INSERT INTO business VALUES (''$how'') RETURNING line', '$how')};
	my $other_content = qq{SELECT outcome, result FROM fencing_commit('job', 1, '{"a": 2}', step => '$how')};
	my $witness = $node->background_psql('postgres', on_error_stop => 0);

	# A lock that only a restart takes away.
	$witness->query_safe('BEGIN; LOCK TABLE plain IN ACCESS EXCLUSIVE MODE');
	answer(q{ALTER SYSTEM SET synchronous_standby_names = 'nobody'});
	$node->reload;
	my $probe = commits_wait();
	($worker, $pid) = start_call($call);
	wait_for($pid, 'IPC SyncRep');
	is(answer("SELECT count(*) FROM business WHERE line = '$how'"), '0', "$how: its row is not visible yet");
	$kinds{$how}->($pid);
	if ($how eq 'killed')
	{
		ok( $node->poll_query_until('postgres', q{SELECT NOT EXISTS (SELECT FROM pg_locks WHERE relation = 'plain'::regclass)}),
			"$how: the server has restarted");
	}
	answer('ALTER SYSTEM RESET synchronous_standby_names');
	$node->reload;
	end_session($_) foreach $worker, $probe;
	unlike($worker->{stdout}, qr/committed/, "$how: the reply was lost");
	end_session($witness);
	is(answer($call), qq(replayed|{"line": "$how"}), "$how: the retry is a replay");
	is(answer($other_content), 'conflict|', "$how: the retry with other content");
	is(answer("SELECT count(*) FROM business WHERE line = '$how'"), '1', "$how: the row is there once");
}

#
# The server crashes right after a call was answered, with synchronous_commit
# off and a WAL writer that sleeps.
#
$node->append_conf('postgresql.conf', <<'EOT');
synchronous_commit = off
wal_writer_delay = 10s
wal_writer_flush_after = 1GB
EOT
$node->restart;

sub crash
{
	$node->stop('immediate');
	$node->start;
	return;
}

# An ordinary commit can be lost so: otherwise what follows shows nothing.
my $lost = 0;
foreach my $i (1 .. 5)
{
	answer("INSERT INTO plain VALUES ($i)");
	crash();
	$lost = answer("SELECT count(*) FROM plain WHERE a = $i") eq '0';
	last if $lost;
}
ok($lost, 'an ordinary asynchronous commit is lost in a crash');

is(answer("SELECT outcome, token FROM fencing_acquire('async', $owner_a, '1 day')"), 'acquired|1', 'async: acquired');
crash();
is(answer("SELECT outcome, token FROM fencing_acquire('async', $owner_b, '1 day')"), 'held|', 'async: the token is not issued again');
is(answer("SELECT outcome FROM fencing_release('async', $owner_a, 1)"), 'released', 'async: released');
is(answer("SELECT outcome, token FROM fencing_acquire('async', $owner_b, '1 day')"), 'acquired|2', 'async: taken over');
crash();
is(answer("SELECT outcome, token FROM fencing_acquire('async', $owner_b, '1 day')"), 'renewed|2', 'async: the takeover is there');
is(answer("SELECT outcome FROM fencing_commit('async', 1, '{}', 'SELECT 1 AS one')"), 'stale', 'async: the former token is stale');

my $async = q{SELECT outcome, result FROM fencing_commit('async', 2, '{"a": 1}', 'INSERT INTO business VALUES (''async'') RETURNING line')};
is(answer($async), 'committed|{"line": "async"}', 'async: a commit');
crash();
is(answer($async), 'replayed|{"line": "async"}', 'async: its receipt is there');
is(answer(q{SELECT count(*) FROM business WHERE line = 'async'}), '1', 'async: so is its row');

# The gate alone in a savepoint that another one, rolled back, follows.
answer(q{BEGIN; SAVEPOINT s; SELECT fencing_commit('async', 2, '{"b": 1}', step => 'savepoint'); RELEASE s;
	SAVEPOINT t; INSERT INTO plain VALUES (0); ROLLBACK TO t; INSERT INTO business VALUES ('savepoint'); COMMIT});
crash();
is(answer(q{SELECT outcome FROM fencing_commit('async', 2, '{"b": 1}', step => 'savepoint')}), 'replayed', 'async: a gate in a savepoint');
is(answer(q{SELECT count(*) FROM business WHERE line = 'savepoint'}), '1', 'async: and the row beside it');

is(answer(q{SELECT fencing_revoke('async', 'test')}), '3', 'async: revoked');
crash();
is(answer(q{SELECT token FROM fencing.fences WHERE job_key = 'async'}), '3', 'async: the revocation is there');
is(answer(q{SELECT count(*) FROM fencing.revocations WHERE job_key = 'async'}), '1', 'async: and its record');

is(answer(q{SELECT outcome, fence FROM fencing_advance('external', 7)}), 'advanced|7', 'async: a new external job');
crash();
is(answer(q{SELECT outcome, fence FROM fencing_advance('external', 7)}), 'current|7', 'async: it is there');
is(answer(q{SELECT outcome, fence FROM fencing_advance('external', 8)}), 'advanced|8', 'async: it advances');
crash();
is(answer(q{SELECT outcome, fence FROM fencing_advance('external', 7)}), 'stale|8', 'async: that is there, too');

is(answer(q{SELECT fencing_forget('async')}), '', 'async: forgotten');
crash();
is(answer(q{SELECT count(*) FROM fencing.fences WHERE job_key = 'async'}), '0', 'async: it is gone');
is(answer(q{SELECT outcome FROM fencing_commit('async', 2, '{"a": 1}')}), 'pruned', 'async: its tokens are of the past');
is(answer("SELECT outcome, token FROM fencing_acquire('async', $owner_a)"), 'acquired|4', 'async: the next token is higher');

# The last session to use the extension is gone with the server: nothing shifts.
crash();
is(answer('SELECT fencing.epoch_start()'), '0', 'a crash opens no epoch');

$node->stop;
done_testing();
