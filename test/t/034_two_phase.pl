# Two-phase commit.  A prepared commit is neither there nor gone: whoever asks
# for it waits, a takeover is held, and its holder is called stale only once it
# is certain; also across a crash, a new epoch and a promotion.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use FencingTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($owner_a, $owner_b) = map { owner($_) } 10 .. 11;
my $conf = "max_prepared_transactions = 20\nsynchronous_commit = off\nwal_writer_delay = 10s\n";
my $node = new_node('main', $conf, allows_streaming => 1);
$node->safe_psql('postgres', q{
CREATE TABLE report (job text, token bigint, line text);
SELECT fencing_protect('report', 'job')});

sub acquire
{
	my ($job, $owner) = @_;
	return "SELECT outcome, token FROM fencing_acquire('$job', $owner, '1 day')";
}

sub commit
{
	my ($job, $token, $content, $options) = @_;
	return sprintf q{SELECT outcome, result FROM fencing_commit('%s', %s, '{"n": %s}', 'INSERT INTO report VALUES ($1, $2, $3->>''n'') RETURNING line'%s)},
	  $job, $token, $content // 1, $options ? ", $options" : '';
}

sub prepare
{
	my ($session, $id, $call) = @_;

	is($session->ask("BEGIN;\n$call"), $_[3] // 'committed|{"line": "1"}', "$id: a commit");
	is($session->ask("PREPARE TRANSACTION '$id'"), '', "$id: is prepared");
	return;
}

sub rows
{
	my ($node, $job) = @_;
	return answer($node, "SELECT (SELECT count(*) FROM fencing.receipts WHERE job_key = '$job'), (SELECT count(*) FROM report WHERE job = '$job')");
}

my ($worker, $retry) = map { open_session($node) } 1 .. 2;

#
# Prepared, and what others are told meanwhile.
#
foreach my $end ('COMMIT', 'ROLLBACK')
{
	my $job = lc $end;
	my $committed = $end eq 'COMMIT';

	is($worker->ask(acquire($job, $owner_a)), 'acquired|1', "$job: acquired");
	prepare($worker, $job, commit($job, 1));
	is_answers($node, 'postgres', "$job: prepared",
		[ 'a challenger', acquire($job, $owner_b), 'held|' ],
		[ 'who hears when the lease ends', "SELECT outcome, lease_until > clock_timestamp() + '23 hours', retry_after_ms > 82800000 FROM fencing_acquire('$job', $owner_b)", 'held|t|t' ],
		[ 'the owner', acquire($job, $owner_a), 'renewed|1' ],
		[ 'his heartbeat', "SELECT outcome FROM fencing_renew('$job', $owner_a, 1, '1 day')", 'renewed' ],
		[ 'forget', "SELECT fencing_forget('$job')", '55006' ],
		[ 'nothing is to be seen', "SELECT count(*) FROM fencing_receipt('$job', 1)", '0' ],
		[ 'another job', acquire("beside $job", $owner_b), 'acquired|1' ],
		[ 'timeout', 'SET lock_timeout = 1', '' ],
		[ 'the retry waits', commit($job, 1), '55P03' ],
		[ 'another content waits', commit($job, 1, 2), '55P03' ],
		[ 'another step waits', commit($job, 1, 1, "step => 'other'"), '55P03' ],
		[ 'with report_errors, too', commit($job, 1, 1, 'report_errors => true') =~ s/result/error->>'sqlstate'/r, 'failed|55P03' ],
		[ 'revoke waits', "SELECT fencing_revoke('$job', 'test')", '55P03' ],
		[ 'a new epoch waits', q{SELECT fencing_new_epoch('test')}, '55P03' ]);

	# Released in the meantime, it is held all the same.
	is(answer($node, "SELECT outcome FROM fencing_release('$job', $owner_a, 1)"), 'released', "$job: released");
	is(answer($node, "SELECT outcome, lease_until, retry_after_ms FROM fencing_acquire('$job', $owner_b)"), 'held||100', "$job: the challenger still");

	$retry->start(commit($job, 1));
	await_lock($node, $retry->pid, "$job: the retry waits");
	is($worker->ask("$end PREPARED '$job'"), '', "$job: $end PREPARED");
	is($retry->finish, $committed ? 'replayed|{"line": "1"}' : 'committed|{"line": "1"}', "$job: the retry");
	is($retry->ask(commit($job, 1, 2)), 'conflict|', "$job: other content");
	is($retry->ask(acquire($job, $owner_b)), 'acquired|2', "$job: the challenger");
	is($retry->ask(commit($job, 1)), 'replayed|{"line": "1"}', "$job: the retry after the takeover");
	is(rows($node, $job), '1|1', "$job: one receipt, one row");
}

#
# A pass ends at PREPARE, and nothing else stays in the session.
#
is($worker->ask(acquire('pass', $owner_a)), 'acquired|1', 'pass: acquired');
is($worker->ask("BEGIN;\n" . commit('pass', 1)), 'committed|{"line": "1"}', 'pass: a commit');
is($worker->ask(q{INSERT INTO report VALUES ('pass', 1, 'beside') RETURNING line}), 'beside', 'pass: a row beside it');
is($worker->ask("PREPARE TRANSACTION 'pass'"), '', 'pass: prepared');
is($worker->ask(q{INSERT INTO report VALUES ('pass', 1, 'later')}), 'LF003', 'pass: afterwards it is closed');
is($worker->ask(qq{BEGIN;\nINSERT INTO report VALUES ('pass', 1, 'later')}), 'LF003', 'pass: also in a block');
is($worker->ask(qq{ROLLBACK;\nSET lock_timeout = 1;\n} . commit('pass', 1)), '55P03', 'pass: this session waits as any');
is($worker->ask("RESET lock_timeout;\nCOMMIT PREPARED 'pass'"), '', 'pass: COMMIT PREPARED');
is($worker->ask(q{INSERT INTO report VALUES ('pass', 1, 'later')}), 'LF003', 'pass: closed after that');
is($worker->ask(commit('pass', 1)), 'replayed|{"line": "1"}', 'pass: a replay');
is($worker->ask(qq{BEGIN;\n@{[ commit('pass', 1) ]};\nINSERT INTO report VALUES ('pass', 1, 'later')}), 'LF003', 'pass: that opens nothing');
is($worker->ask('ROLLBACK'), '', 'pass: rolled back');
is(rows($node, 'pass'), '1|2', 'pass: what was written');

# A row that is written before PREPARE and checked at PREPARE, since its trigger
# is deferred by nobody: the gate of a later statement does not cover it.
is($worker->ask("BEGIN;\nINSERT INTO report VALUES ('pass', 1, 'before')"), 'LF003', 'pass: not before the gate');
is($worker->ask('ROLLBACK'), '', 'pass: rolled back');

# With savepoints, report_errors and a failed call in between.
is($worker->ask(acquire('nested', $owner_a)), 'acquired|1', 'nested: acquired');
is($worker->ask("BEGIN;\nSAVEPOINT s;\n" . commit('nested', 1, 9)), 'committed|{"line": "9"}', 'nested: a commit that is taken back');
is($worker->ask("ROLLBACK TO s;\nSELECT outcome, error->>'sqlstate' FROM fencing_commit('nested', 1, '{}', 'SELECT 1/0', report_errors => true)"), 'failed|22012', 'nested: one that fails');
is($worker->ask('SAVEPOINT t; ' . commit('nested', 1, 1, 'report_errors => true')), 'committed|{"line": "1"}', 'nested: one that stays');
is($worker->ask("RELEASE t;\nPREPARE TRANSACTION 'nested'"), '', 'nested: prepared');
is($worker->ask("COMMIT PREPARED 'nested'"), '', 'nested: COMMIT PREPARED');
is($worker->ask(commit('nested', 1)), 'replayed|{"line": "1"}', 'nested: a replay');
is(rows($node, 'nested'), '1|1', 'nested: one receipt, one row');

#
# A token that is prepared: it counts once its transaction has committed.
#
prepare($worker, 'token', acquire('token', $owner_a), 'acquired|1');
is_answers($node, 'postgres', 'token: prepared',
	[ 'a challenger', acquire('token', $owner_b), 'held|' ],
	[ 'the owner', acquire('token', $owner_a), 'held|' ]);
is($worker->ask("ROLLBACK PREPARED 'token'"), '', 'token: ROLLBACK PREPARED');
is(answer($node, acquire('token', $owner_b)), 'acquired|1', 'token: it was not issued');
is(answer($node, "SELECT outcome FROM fencing_release('token', $owner_b, 1)"), 'released', 'token: released');
prepare($worker, 'token', acquire('token', $owner_a), 'acquired|2');
is(answer($node, acquire('token', $owner_b)), 'held|', 'token: held once more');
is($worker->ask("COMMIT PREPARED 'token'"), '', 'token: COMMIT PREPARED');
is(answer($node, acquire('token', $owner_a)), 'renewed|2', 'token: it was issued');

# The other calls that write.
prepare($worker, 'revoke', q{SELECT fencing_revoke('token', 'test')}, '3');
is(answer($node, "SET lock_timeout = 1;\n" . commit('token', 2)), '55P03', 'revoke: a commit waits');
is($worker->ask("COMMIT PREPARED 'revoke'"), '', 'revoke: COMMIT PREPARED');
is(answer($node, commit('token', 2)), 'stale|', 'revoke: stale');
prepare($worker, 'forget', q{SELECT fencing_forget('token')}, '');
is(answer($node, acquire('token', $owner_a)), 'held|', 'forget: held');
is($worker->ask("COMMIT PREPARED 'forget'"), '', 'forget: COMMIT PREPARED');
is(answer($node, acquire('token', $owner_a)), 'acquired|4', 'forget: the next token is higher');
prepare($worker, 'epoch', q{SELECT fencing_new_epoch('test')}, token_of(1, 0));
is(answer($node, "SET lock_timeout = 1;\n" . acquire('token', $owner_a)), '55P03', 'epoch: who acquires waits');
is($worker->ask("ROLLBACK PREPARED 'epoch'"), '', 'epoch: ROLLBACK PREPARED');
is(answer($node, acquire('token', $owner_a)), 'renewed|4', 'epoch: it did not begin');

# Purge leaves out what is busy.
is($worker->ask(acquire('purge', $owner_a)), 'acquired|4', 'purge: acquired');
is($worker->ask(commit('purge', 4)), 'committed|{"line": "1"}', 'purge: a receipt');
is($worker->ask(q{SELECT fencing_revoke('purge', 'test')}), '5', 'purge: of the past');
is($worker->ask(acquire('purge', $owner_a)), 'acquired|6', 'purge: acquired again');
prepare($worker, 'purge', commit('purge', 6));
is(answer($node, q{SELECT count(*) FROM fencing_purge('receipts', '1 microsecond')}), '1', 'purge: does not wait');
is(answer($node, commit('purge', 4)), 'replayed|{"line": "1"}', 'purge: the receipt is still there');
is($worker->ask("COMMIT PREPARED 'purge'"), '', 'purge: COMMIT PREPARED');
is(answer($node, q{SELECT purged > 0 FROM fencing_purge('receipts', '1 microsecond')}), 't', 'purge: then it goes');
is(answer($node, commit('purge', 4)), 'pruned|', 'purge: pruned');
is(answer($node, commit('purge', 6)), 'replayed|{"line": "1"}', 'purge: the receipt of the current token stays');

#
# Across a crash.
#
$worker->ask(acquire("crash $_", $owner_a)) foreach 'commit', 'rollback';
prepare($worker, "crash $_", commit("crash $_", 4)) foreach 'commit', 'rollback';
$_->close foreach $worker, $retry;
$node->stop('immediate');
$node->start;
($worker, $retry) = map { open_session($node) } 1 .. 2;
is(answer($node, acquire('crash commit', $owner_b)), 'held|', 'crash: held');
is(answer($node, "SET lock_timeout = 1;\nSELECT fencing_new_epoch('test')"), '55P03', 'crash: a new epoch waits');
$retry->start(commit('crash commit', 4));
await_lock($node, $retry->pid, 'crash: the retry waits');
is($worker->ask("COMMIT PREPARED 'crash commit'"), '', 'crash: COMMIT PREPARED');
is($retry->finish, 'replayed|{"line": "1"}', 'crash: the retry');
is($worker->ask("ROLLBACK PREPARED 'crash rollback'"), '', 'crash: ROLLBACK PREPARED');
is($retry->ask(commit('crash rollback', 4)), 'committed|{"line": "1"}', 'crash: the retry of the other');
$_->close foreach $worker, $retry;
$node->stop('immediate');
$node->start;
is(answer($node, commit("crash $_", 4)), 'replayed|{"line": "1"}', "crash: $_ is on disk") foreach 'commit', 'rollback';
$worker = open_session($node);

#
# A new epoch waits for what is prepared, and then its holder is out.
#
prepare($worker, 'epoch', commit('token', 4));
my $admin = open_session($node);
$retry = open_session($node);
$admin->start(q{SELECT fencing_new_epoch('test')});
await_lock($node, $admin->pid, 'epoch: it waits for a prepared commit');
is($worker->ask("COMMIT PREPARED 'epoch'"), '', 'epoch: COMMIT PREPARED');
is($admin->finish, token_of(1, 0), 'epoch: it begins');
is($worker->ask(commit('token', 4)), 'replayed|{"line": "1"}', 'epoch: the commit before it');
is($worker->ask(commit('token', 4, 1, "step => 'late'")), 'stale|', 'epoch: the holder');
$admin->close;

#
# Across a promotion: prepared on the old primary, asked for on the new one.
#
my $standby = standby_of($node, 'standby', $conf);
my @jobs = ('promoted commit', 'promoted rollback', 'promoted conflict', 'promoted moved');
is($worker->ask(acquire($_, $owner_a)), 'acquired|' . token_of(1, 1), "$_: acquired") foreach @jobs;
prepare($worker, $_, commit($_, token_of(1, 1))) foreach @jobs;
is($worker->ask(acquire('no commit', $owner_a)), 'acquired|' . token_of(1, 1), 'no commit: acquired');
prepare($worker, 'promoted token', acquire('promoted token', $owner_a), 'acquired|' . token_of(1, 1));
catch_up($node, $standby);
my @before = map { open_session($standby) } 1 .. 3;
is($before[0]->ask(commit('promoted commit', token_of(1, 1))), '25006', 'standby: prepared, so nobody knows');
is($before[1]->ask(commit('token', 4)), 'replayed|{"line": "1"}', 'standby: a replay');
$_->close foreach $worker, $retry;
$node->stop('immediate');
$standby->promote;

($worker, $retry, my $other) = @before;
is_answers($standby, 'postgres', 'promoted: prepared',
	[ 'a challenger', acquire('promoted commit', $owner_b), 'held|' ],
	[ 'the owner', acquire('promoted commit', $owner_a), 'held|' ],
	[ 'his heartbeat', "SELECT outcome FROM fencing_renew('promoted commit', $owner_a, @{[ token_of(1, 1) ]})", 'lost' ],
	[ 'a token that is prepared', acquire('promoted token', $owner_b), 'held|' ],
	[ 'who is certain', commit('no commit', token_of(1, 1)), 'stale|' ],
	[ 'timeout', 'SET lock_timeout = 1', '' ],
	[ 'the retry waits', commit('promoted commit', token_of(1, 1)), '55P03' ],
	[ 'a new epoch waits', q{SELECT fencing_new_epoch('test')}, '55P03' ]);

$retry->start(commit('promoted commit', token_of(1, 1)));
await_lock($standby, $retry->pid, 'promoted: the retry waits');
is($worker->ask("COMMIT PREPARED 'promoted commit'"), '', 'promoted: COMMIT PREPARED');
is($retry->finish, 'replayed|{"line": "1"}', 'promoted: replayed');

$retry->start(commit('promoted rollback', token_of(1, 1)));
$other->start(commit('promoted rollback', token_of(1, 1), 2));
await_lock($standby, $_->pid, 'promoted: another retry waits') foreach $retry, $other;
is($worker->ask("ROLLBACK PREPARED 'promoted rollback'"), '', 'promoted: ROLLBACK PREPARED');
is($retry->finish, 'stale|', 'promoted: stale, now that it is certain');
is($other->finish, 'stale|', 'promoted: whatever the content');

$retry->start(commit('promoted conflict', token_of(1, 1), 2));
await_lock($standby, $retry->pid, 'promoted: other content waits');
is($worker->ask("COMMIT PREPARED 'promoted conflict'"), '', 'promoted: COMMIT PREPARED');
is($retry->finish, 'conflict|', 'promoted: conflict');

# The zombie who asks in a block of his own, and was told stale, keeps nobody out.
is($retry->ask("BEGIN;\n" . commit('promoted rollback', token_of(1, 1))), 'stale|', 'promoted: stale in a block');
is($worker->ask("SELECT fencing_release('promoted rollback', $owner_a, @{[ token_of(1, 1) ]})"), 'released', 'promoted: its lease is released');
is($worker->ask(acquire('promoted rollback', $owner_b)), 'acquired|' . token_of(2, 1), 'promoted: the next one does not wait for it');
is($retry->ask('ROLLBACK'), '', 'promoted: rolled back');

# Taken over after the end of the prepared one, then asked for.
is($worker->ask("COMMIT PREPARED 'promoted moved'"), '', 'promoted: COMMIT PREPARED');
is($worker->ask(acquire('promoted moved', $owner_b)), 'held|', 'promoted: the time was promised');
is($worker->ask(acquire('promoted moved', $owner_a)), 'acquired|' . token_of(2, 1), 'promoted: taken over by the next token');
is($retry->ask(commit('promoted moved', token_of(1, 1))), 'replayed|{"line": "1"}', 'promoted: replayed after that');

# A token of the old epoch that is committed only now is of the past.
is($worker->ask("COMMIT PREPARED 'promoted token'"), '', 'promoted: COMMIT PREPARED of a token');
is_answers($standby, 'postgres', 'promoted: a token of the old epoch',
	[ 'commit', commit('promoted token', token_of(1, 1)), 'stale|' ],
	[ 'heartbeat', "SELECT outcome FROM fencing_renew('promoted token', $owner_a, @{[ token_of(1, 1) ]})", 'lost' ],
	[ 'acquire', acquire('promoted token', $owner_a), 'acquired|' . token_of(2, 1) ]);
foreach (@jobs)
{
	is(rows($standby, $_), $_ eq 'promoted rollback' ? '0|0' : '1|1', "$_: receipt and row");
}
is(answer($standby, 'SELECT count(*) FROM pg_prepared_xacts'), '0', 'nothing is prepared any more');
is(answer($standby, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}), '0', 'no lock is left');
$_->close foreach @before;

$standby->stop;
done_testing();
