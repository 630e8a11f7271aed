# Synchronous replication.  A commit whose wait for the standby was cut short, by
# a crash or by its user, is there to be read and may be nowhere else.  Who is
# told by reading it that something is done, "replayed", "conflict", "current",
# "done" or nothing at all, is told so only when it is on the standby: then a
# failover does not take it back.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use FencingTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($owner_a, $owner_b) = map { owner($_) } 10 .. 11;
my $node1 = new_node('node1', "wal_retrieve_retry_interval = 100ms\nmax_connections = 40\n", allows_streaming => 1);
my $node2 = standby_of($node1, 'node2', "wal_retrieve_retry_interval = 100ms\nmax_connections = 40\n");

sub commit
{
	my ($step, $payload) = @_;
	return "SELECT outcome, result FROM fencing_commit('job', 1, '$payload', 'SELECT 1 AS n', '$step')";
}

sub await_sync
{
	my ($node, $pid, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	await_true($node, "SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = $pid", $name);
	return;
}

my $once = q{SELECT outcome FROM fencing_once('t', 'o', 'k', '{}', 'SELECT 1')};
my $publish = q{SELECT outcome FROM fencing_publish('d', 0, '1')};
my $advance = q{SELECT outcome FROM fencing_advance('external', 7)};
my $ack = q{SELECT outcome FROM fencing_outbox_ack('consumer', 1, ARRAY(SELECT id FROM fencing.outbox WHERE aggregatetype = 'a'))};

$node1->safe_psql('postgres', q{CREATE FUNCTION may(text, text, jsonb, jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT true';
	SELECT fencing_define_operation('o', 'may(text, text, jsonb, jsonb)');
	SELECT fencing_define_request('o', 1, '{"type": "object"}')});
is_answers($node1, 'postgres', 'before',
	[ 'acquired', "SELECT outcome, token FROM fencing_acquire('job', $owner_a, '1 hour')", 'acquired|1' ],
	[ 'a relay', "SELECT outcome, token FROM fencing_acquire('consumer', $owner_a, '1 hour')", 'acquired|1' ],
	[ 'subscribed', q{SELECT fencing_outbox_subscribe('consumer', true)}, '' ],
	[ 'a lease', "SELECT outcome, token FROM fencing_acquire('released', $owner_a, '1 hour')", 'acquired|1' ],
	[ 'targets', q{SELECT count(fencing_target_desire('elsewhere', t, 5)) FROM unnest('{sold,rejecting,written}'::text[]) t}, '3' ],
	[ 'rejected', q{SELECT fencing_apply_reject('elsewhere', 'rejecting', 5, 'bad')}, 'recorded' ],
	[ 'another operation', q{SELECT fencing_define_operation('p', 'may(text, text, jsonb, jsonb)'), fencing_define_request('p', 1, '{"type": "object"}')}, '|' ],
	[ 'an event', q{SELECT fencing_outbox_emit('a', 'b', 'c', '1') IS NOT NULL}, 't' ]);
catch_up($node1, $node2);
$node1->append_conf('postgresql.conf', "synchronous_standby_names = 'node2'\n");
$node1->reload;
await_true($node1, q{SELECT sync_state = 'sync' FROM pg_stat_replication}, 'the standby is synchronous');
is_answers($node1, 'postgres', 'with the standby',
	[ 'commit', commit('before', 1), 'committed|{"n": 1}' ],
	[ 'replay', commit('before', 1), 'replayed|{"n": 1}' ],
	[ 'in one transaction', 'BEGIN; ' . commit('block', 1) . '; ' . commit('block', 1) . '; COMMIT', "committed|{\"n\": 1}\nreplayed|{\"n\": 1}" ]);

#
# The standby stops.  The waits of these are cut short by a crash.
#
$node2->stop;
my $retire = q{SELECT fencing_retire_request('p', 1)};
is(answer($node1, "SET synchronous_commit = local; $retire"), '', 'who asks for no standby has no wait to be cut short');
my @calls = (
	[ 'commit', commit('a', 1), 'replayed|{"n": 1}' ],
	[ 'once', $once, 'replayed' ],
	[ 'publish', $publish, 'replayed' ],
	[ 'advance', $advance, 'current' ],
	[ 'ack', $ack, 'replayed' ],
	[ 'release', "SELECT fencing_release('released', $owner_a, 1)", 'released' ],
	[ 'desire', q{SELECT fencing_target_desire('elsewhere', 'new', 7)}, '' ],
	[ 'forget', q{SELECT fencing_target_forget('elsewhere', 'sold', 'sold')}, '' ],
	[ 'reject', q{SELECT fencing_apply_reject('elsewhere', 'rejecting', 3, 'bad')}, 'recorded' ],
	[ 'subscribe', q{SELECT fencing_outbox_subscribe('new', true)}, '' ],
	[ 'define', q{SELECT fencing_define_request('p', 2, '{"type": "object"}')}, '' ],
	[ 'begin', q{SELECT outcome FROM fencing_apply('elsewhere', 'written', 5, fencing_digest('1'), '1', 'SELECT 1')}, 'done',
		"SELECT outcome FROM fencing_apply_begin('elsewhere', 'written', $owner_a)" ]);
my @writers;

foreach (@calls)
{
	my $writer = open_session($node1);

	$writer->start($_->[1]);
	await_sync($node1, $writer->pid, "$_->[0] waits for the standby");
	push @writers, $writer;
}
$node1->stop('immediate');
$_->close foreach @writers;
$node1->start;
is(answer($node1, q{SELECT count(*) FROM fencing_receipt('job', 1, 'a')}), '1', 'the receipt is there');

# They are tried again; of the last one it is another call that reads it.
$_->[1] = $_->[3] // $_->[1] foreach @calls;
push @calls, [ 'commit with another payload', commit('a', 2), 'conflict|' ], [ 'retire', $retire, '' ],
	[ 'ack in a block', "BEGIN; $ack", 'replayed' ];
my @retries = map { open_session($node1) } @calls;
foreach my $i (0 .. $#calls)
{
	$retries[$i]->start($calls[$i][1]);
	await_sync($node1, $retries[$i]->pid, "retry of $calls[$i][0] waits for the standby");
}
is(answer($node1, 'SET synchronous_commit = local; ' . commit('a', 1)), 'replayed|{"n": 1}', 'who asks for no standby does not wait');
is(answer($node1, q{SELECT outcome FROM fencing_commit('job', 9, '1', 'SELECT 1')}), 'LF001', 'nor who hears of nothing that was done');

# (Two of them stand at the same place of the WAL: a server built with assertions
# would not bear that in its queue of commits.)  The user cancels the wait: no answer.
my $hasty = open_session($node1);
$hasty->start(commit('a', 1));
await_sync($node1, $hasty->pid, 'another retry');
is(answer($node1, 'SELECT pg_cancel_backend(' . $hasty->pid . ')'), 't', 'it is cancelled');
is($hasty->finish, '57014', 'and not told replayed');
$hasty->ask(q{SET statement_timeout = '200ms'});
is($hasty->ask(commit('a', 1)), '57014', 'nor is one whose time is up');
$hasty->ask('RESET statement_timeout');
$hasty->start(commit('late', 1));
await_sync($node1, $hasty->pid, 'a commit');
is(answer($node1, 'SELECT pg_cancel_backend(' . $hasty->pid . ')'), 't', 'it is cancelled');
is($hasty->finish, 'committed|{"n": 1}', 'a commit is done, however');
like($hasty->errors, qr/WARNING: +canceling wait for synchronous replication/, 'with a warning');
$hasty->start(commit('late', 1));
await_sync($node1, $hasty->pid, 'and its retry waits');
my $killed = open_session($node1);
$killed->start(commit('a', 1));
await_sync($node1, $killed->pid, 'one that is terminated');
is(answer($node1, 'SELECT pg_terminate_backend(' . $killed->pid . ', 10000)'), 't', 'ends');
$killed->close;

# The standby comes back.
$node2->start;
is($retries[$_]->finish, $calls[$_][2], "retry of $calls[$_][0], with the standby") foreach 0 .. $#calls;
is($hasty->finish, 'replayed|{"n": 1}', 'retry of the one that was cancelled, with the standby');
is(answer($node1, commit('a', 1)), 'replayed|{"n": 1}', 'and at once');

# The standby goes, and the administrator does without.
$node2->stop;
$node1->safe_psql('postgres', q{SET synchronous_commit = local; SELECT outcome FROM fencing_commit('job', 1, '1', 'SELECT 1 AS n', 'alone')});
$hasty->start(commit('alone', 1));
await_sync($node1, $hasty->pid, 'a retry');
$node1->append_conf('postgresql.conf', "synchronous_standby_names = ''\n");
$node1->reload;
is($hasty->finish, q{replayed|{"n": 1}}, q{without the standby it is answered});
is(answer($node1, commit(q{alone}, 1)), q{replayed|{"n": 1}}, 'and so is everybody');
$node1->append_conf('postgresql.conf', "synchronous_standby_names = 'node2'\n");
$node1->reload;
$node2->start;
catch_up($node1, $node2);

# What was told survives the failover.
$node1->stop('immediate');
$node2->promote;
is_answers($node2, 'postgres', 'after the failover', map { [ @{$_}[0 .. 2] ] } grep { $_->[0] !~ /^ack/ } @calls);
is(answer($node2, commit('late', 1)), 'replayed|{"n": 1}', 'after the failover: the one that was cancelled');

# The time that the lease was promised for still counts against others, with
# synchronous replication too.
is_answers($node2, 'postgres', 'leases after the failover',
	[ 'another', "SELECT outcome, token, retry_after_ms > 0 FROM fencing_acquire('job', $owner_b, '1 hour')", 'held||t' ],
	[ 'its own heartbeat', "SELECT outcome FROM fencing_renew('job', $owner_a, 1)", 'lost' ],
	[ 'its own commit', commit('new', 1), 'stale|' ],
	[ 'its own next', "SELECT outcome, token FROM fencing_acquire('job', $owner_a, '1 hour')", 'acquired|' . token_of(1, 1) ],
	[ 'released', "SELECT fencing_release('consumer', $owner_a, 1)", 'released' ],
	[ 'so another has it', "SELECT outcome, token FROM fencing_acquire('consumer', $owner_b)", 'acquired|' . token_of(1, 1) ]);

$_->close foreach @retries, $hasty;
$node2->stop;
done_testing();
