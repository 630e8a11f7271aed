# Asynchronous replication and failover.  The last second of WAL of the primary
# does not arrive, and yet every token of the promoted standby is above all that
# the primary acknowledged, and every holder of a token of the primary is out,
# also the one whose token is the last that did arrive.  Then the same again, to
# the old primary and on; sessions of the standby judge by the new epoch at once.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use File::Copy qw(copy);
use FencingTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($owner_a, $owner_b, $owner_c) = map { owner($_) } 10 .. 12;
my @jobs = ('job-1', 'job-2', 'job-3');

# wal_log_hints for pg_rewind.  No checkpoint comes soon after a promotion, so
# pg_control stays on the old timeline.
my $conf = <<'EOT';
wal_log_hints = on
wal_keep_size = 256MB
wal_retrieve_retry_interval = 100ms
checkpoint_timeout = 1h
checkpoint_completion_target = 1.0
EOT

my $node1 = new_node('node1', $conf, allows_streaming => 1);

sub commit
{
	my ($job, $token, $payload, $step) = @_;
	$step = defined $step ? ", '$step'" : '';
	return "SELECT outcome, result FROM fencing_commit('$job', $token, '$payload', 'SELECT ''$job'' AS job'$step)";
}

is_answers($node1, 'postgres', 'before',
	[ 'arrived', "SELECT outcome, token FROM fencing_acquire('arrived', $owner_a, '1 day')", 'acquired|1' ],
	[ 'worked', "SELECT outcome, token FROM fencing_acquire('worked', $owner_a, '1 day')", 'acquired|1' ],
	[ 'worked commits', commit('worked', 1, '{"n": 1}'), 'committed|{"job": "worked"}' ],
	[ 'moved', "SELECT outcome, token FROM fencing_acquire('moved', $owner_a, '1 day')", 'acquired|1' ],
	[ 'moved commits', commit('moved', 1, '{"n": 1}'), 'committed|{"job": "moved"}' ],
	[ 'moved released', "SELECT outcome FROM fencing_release('moved', $owner_a, 1)", 'released' ],
	[ 'moved on', "SELECT outcome, token FROM fencing_acquire('moved', $owner_b, '1 day')", 'acquired|2' ],
	[ 'ended', "SELECT outcome, token FROM fencing_acquire('ended', $owner_a, '1 day')", 'acquired|1' ],
	[ 'ended released', "SELECT outcome FROM fencing_release('ended', $owner_a, 1)", 'released' ],
	[ 'external', q{SELECT outcome, fence FROM fencing_advance('external', 100)}, 'advanced|100' ]);

my $node2 = standby_of($node1, 'node2');

# Sessions of the standby: one that has used the extension, one that has not,
# one in a transaction.
my ($used, $fresh, $block) = map { open_session($node2) } 1 .. 3;
is($used->ask('SELECT fencing.epoch_start()'), '0', 'standby: epoch');
is($used->ask(commit('worked', 1, '{"n": 1}')), 'replayed|{"job": "worked"}', 'standby: replay');
is($used->ask(commit('arrived', 1, '{}')), '25006', 'standby: the holder');
is($block->ask('BEGIN ISOLATION LEVEL REPEATABLE READ; ' . commit('worked', 1, '{"n": 1}')), 'replayed|{"job": "worked"}', 'standby: replay in a block');

#
# The lost second.
#
cut_off($node2);
is_answers($node1, 'postgres', 'lost',
	[ 'arrived commits with the last token that arrived', commit('arrived', 1, '{"n": 1}'), 'committed|{"job": "arrived"}' ],
	[ 'worked commits a step', commit('worked', 1, '{"n": 2}', 'late'), 'committed|{"job": "worked"}' ],
	[ 'moved released', "SELECT outcome FROM fencing_release('moved', $owner_b, 2)", 'released' ],
	[ 'moved further', "SELECT outcome, token FROM fencing_acquire('moved', $owner_a, '1 day')", 'acquired|3' ],
	[ 'moved commits', commit('moved', 3, '{"n": 3}'), 'committed|{"job": "moved"}' ],
	[ 'new', "SELECT outcome, token FROM fencing_acquire('new', $owner_a, '1 day')", 'acquired|1' ],
	[ 'new commits', commit('new', 1, '{"n": 1}'), 'committed|{"job": "new"}' ],
	[ 'ended forgotten', q{SELECT fencing_forget('ended')}, '' ],
	[ 'ended begins again', "SELECT outcome, token FROM fencing_acquire('ended', $owner_b, '1 day')", 'acquired|2' ],
	[ 'external', q{SELECT outcome, fence FROM fencing_advance('external', 101)}, 'advanced|101' ]);
my @lost = start_workers($node1, jobs => \@jobs);
wait_for_acknowledged(200, @lost);
stop_workers(@lost);
check_acknowledged($node1, 'node1', @lost);
my @zombies = (
	@{ acknowledged(@lost)->{acquired} },
	map { [ @$_, '' ] }[ 'arrived', 1 ], [ 'worked', 1 ], [ 'moved', 1 ], [ 'moved', 2 ], [ 'moved', 3 ], [ 'new', 1 ], [ 'ended', 1 ], [ 'ended', 2 ]);
my $highest = answer($node1, 'SELECT max(token) FROM fencing.fences');
$node1->stop('immediate');
$node2->promote;

#
# The sessions that were there before, the transaction first: it began in
# recovery and stays read-only.
#
is($block->ask(commit('worked', 1, '{"n": 1}')), 'replayed|{"job": "worked"}', 'block from before: a replay');
is($block->ask("SAVEPOINT s;\nSELECT fencing_acquire('arrived', $owner_b)"), '25006', 'block from before: acquire');
is($block->ask("ROLLBACK TO s;\n" . commit('arrived', 1, '{"n": 1}')), '25006', 'block from before: commit');
is($block->ask("ROLLBACK;\nSELECT fencing.epoch_start()"), token_of(1, 0), 'block from before: afterwards');
is($used->ask(commit('arrived', 1, '{"n": 1}')), 'stale|', 'used session: the token that arrived last');
is($used->ask('SELECT fencing.epoch_start()'), token_of(1, 0), 'used session: epoch');
check_zombies($used, 'used session', @zombies);
check_zombies($fresh, 'fresh session', @zombies);
$_->close foreach $used, $fresh;

is_answers($node2, 'postgres', 'promoted',
	[ 'a receipt that arrived', commit('worked', 1, '{"n": 1.0}'), 'replayed|{"job": "worked"}' ],
	[ 'with other content', commit('worked', 1, '{"n": 2}'), 'conflict|' ],
	[ 'a receipt that arrived, of a former token', commit('moved', 1, '{"n": 1}'), 'replayed|{"job": "moved"}' ],
	[ 'a receipt that did not arrive', commit('worked', 1, '{"n": 2}', 'late'), 'stale|' ],
	[ 'a receipt that did not arrive, of an unknown token', commit('moved', 3, '{"n": 3}'), 'stale|' ],
	[ 'a receipt that did not arrive, of an unknown job', commit('new', 1, '{"n": 1}'), 'pruned|' ],
	[ 'strict', q{SELECT outcome FROM fencing_commit('arrived', 1, '{}', strict => true)}, 'LF005' ],
	[ 'report_errors', q{SELECT outcome, error FROM fencing_commit('arrived', 1, '{}', report_errors => true)}, 'stale|' ],
	[ 'heartbeat', "SELECT outcome, token FROM fencing_renew('arrived', $owner_a, 1)", 'lost|' ],
	[ 'heartbeat with a token that did not arrive', "SELECT outcome FROM fencing_renew('moved', $owner_a, 3)", 'lost' ],
	[ 'heartbeat of an unknown job', "SELECT outcome FROM fencing_renew('new', $owner_a, 1)", 'lost' ],
	[ 'all leases are of the former epoch', 'SELECT bool_and(former_epoch) FROM fencing.lease_status', 't' ],
	[ 'an external job goes on', q{SELECT outcome, fence FROM fencing_commit('external', 100, '{}', 'SELECT 1')}, 'committed|100' ],
	[ 'and hears its tokens again', q{SELECT outcome, fence FROM fencing_advance('external', 101)}, 'advanced|101' ],
	[ 'a challenger waits for the time that was promised', "SELECT outcome, token, retry_after_ms > 0 FROM fencing_acquire('moved', $owner_c, '1 day')", 'held||t' ],
	[ 'unless its holder releases', "SELECT fencing_release('moved', $owner_b, 2)", 'released' ],
	[ 'then it need not', "SELECT outcome, token FROM fencing_acquire('moved', $owner_c, '1 day')", 'acquired|' . token_of(1, 1) ],
	[ 'the same owner gets a new token', "SELECT outcome, token FROM fencing_acquire('arrived', $owner_a, '1 day')", 'acquired|' . token_of(1, 1) ],
	[ 'an unknown job', "SELECT outcome, token FROM fencing_acquire('new', $owner_b, '1 day')", 'acquired|' . token_of(1, 1) ],
	[ 'a new job', "SELECT outcome, token FROM fencing_acquire('newer', $owner_b, '1 day')", 'acquired|' . token_of(1, 1) ],
	[ 'a revoked job', q{SELECT fencing_revoke('worked', 'test')}, token_of(1, 1) ],
	[ 'the zombie of an unknown job', commit('new', 1, '{"n": 1}'), 'pruned|' ],
	[ 'the zombie beside the new holder', commit('arrived', 1, '{"n": 1}'), 'stale|' ],
	[ 'the new holder', commit('arrived', token_of(1, 1), '{"n": 1}'), 'committed|{"job": "arrived"}' ],
	[ 'again', "SELECT outcome, token FROM fencing_acquire('arrived', $owner_a, '1 day')", 'renewed|' . token_of(1, 1) ],
	[ 'a token of the future', commit('arrived', token_of(1, 2), '{}'), 'LF001' ],
	[ 'the epoch is written down', 'SELECT tli, epoch FROM fencing.floor', '2|1' ]);
cmp_ok(token_of(1, 1), '>', $highest, 'promoted: above every token of the old primary');

# A crash of the promoted server, on the way: pg_control may lag.
$node2->stop('immediate');
$node2->start;
is_answers($node2, 'postgres', 'promoted and crashed',
	[ 'epoch', 'SELECT fencing.epoch_start()', token_of(1, 0) ],
	[ 'the holder', "SELECT outcome, token FROM fencing_renew('arrived', $owner_a, @{[ token_of(1, 1) ]}, '1 day')", 'renewed|' . token_of(1, 1) ],
	[ 'a challenger', "SELECT outcome FROM fencing_acquire('arrived', $owner_b)", 'held' ],
	[ 'his commit', commit('arrived', token_of(1, 1), '{"n": 1}'), 'replayed|{"job": "arrived"}' ],
	[ 'next token', q{SELECT fencing_revoke('arrived', 'test')}, token_of(1, 2) ]);

#
# Back again: the old primary becomes a standby and is promoted, after having
# missed the last second of the new one.
#
$node2->safe_psql('postgres', 'CHECKPOINT');
copy($node1->data_dir . '/postgresql.conf', $node1->basedir . '/postgresql.conf') or die;
$node1->command_ok(
	[ 'pg_rewind', '--no-sync', '--target-pgdata', $node1->data_dir, '--source-server', $node2->connstr('postgres') ],
	'pg_rewind of the old primary');
copy($node1->basedir . '/postgresql.conf', $node1->data_dir . '/postgresql.conf') or die;
$node1->append_conf('postgresql.conf', sprintf "primary_conninfo = '%s application_name=node1'\n", $node2->connstr =~ s/'/''/gr);
$node1->set_standby_mode;
$node1->start;
catch_up($node2, $node1);

($used, $fresh) = map { open_session($node1) } 1 .. 2;
is($used->ask('SELECT fencing.epoch_start()'), token_of(1, 0), 'second standby: epoch');
is($used->ask(commit('arrived', token_of(1, 1), '{"n": 1}')), 'replayed|{"job": "arrived"}', 'second standby: replay');

cut_off($node1);
my @lost2 = start_workers($node2, jobs => \@jobs);
wait_for_acknowledged(200, @lost2);
stop_workers(@lost2);
check_acknowledged($node2, 'node2', @lost2);
is_answers($node2, 'postgres', 'lost again',
	[ 'a holder without receipt', "SELECT outcome, token FROM fencing_acquire('ended', $owner_c, '1 day')", 'acquired|' . token_of(1, 1) ],
	[ 'a commit of the last that arrived', commit('moved', token_of(1, 1), '{"n": 4}'), 'committed|{"job": "moved"}' ]);
$highest = answer($node2, 'SELECT max(token) FROM fencing.fences');
$node2->stop('immediate');
$node1->promote;

push @zombies, @{ acknowledged(@lost2)->{acquired} },
  map { [ @$_, '' ] }[ 'ended', token_of(1, 1) ], [ 'moved', token_of(1, 1) ], [ 'arrived', token_of(1, 1) ], [ 'new', token_of(1, 1) ];
is($fresh->ask(commit('moved', token_of(1, 1), '{"n": 4}')), 'stale|', 'second promotion: the token that arrived last');
check_zombies($used, 'second promotion, used session', @zombies);
check_zombies($fresh, 'second promotion, fresh session', @zombies);
$_->close foreach $used, $fresh, $block;
cmp_ok(token_of(2, 1), '>', $highest, 'second promotion: above every token of the second primary');
is_answers($node1, 'postgres', 'second promotion',
	[ 'epoch', 'SELECT fencing.epoch_start()', token_of(2, 0) ],
	[ 'a receipt of the first primary', commit('worked', 1, '{"n": 1}'), 'replayed|{"job": "worked"}' ],
	[ 'a receipt of the second primary', commit('arrived', token_of(1, 1), '{"n": 1}'), 'replayed|{"job": "arrived"}' ],
	[ 'another waits for its holder', "SELECT outcome FROM fencing_acquire('moved', $owner_b)", 'held' ],
	[ 'who does not', "SELECT outcome, token FROM fencing_acquire('moved', $owner_c, '1 day')", 'acquired|' . token_of(2, 1) ],
	map({ [ "next token of $_", "SELECT outcome, token FROM fencing_acquire('$_', $owner_b, '1 day')", 'acquired|' . token_of(2, 1) ] }
		'job-1', 'ended', 'arrived', 'newest'));
my @won = start_workers($node1, jobs => [ map { "job-again-$_" } 1 .. 3 ]);
wait_for_acknowledged(50, @won);
stop_workers(@won);
check_acknowledged($node1, 'node1 again', @won);

#
# Two promotions in a row with nobody who would write down the first.
#
push @zombies, @{ acknowledged(@won)->{acquired} }, map { [ $_, token_of(2, 1), '' ] } 'job-1', 'moved', 'ended', 'arrived', 'newest';
my $node3 = standby_of($node1, 'node3', $conf);
my $node4 = standby_of($node3, 'node4', $conf);
$node1->stop('immediate');
$node3->promote;
# node4 follows to the new timeline.
await_true($node4, 'SELECT received_tli = 4 FROM pg_stat_wal_receiver', 'the next standby has followed');
catch_up($node3, $node4);
$used = open_session($node4);
is($used->ask('SELECT tli, epoch FROM fencing.floor'), '3|2', 'nobody has written down the third promotion');
$node3->stop('immediate');
$node4->promote;
is($used->ask('SELECT fencing.epoch_start()'), token_of(4, 0), 'the fourth promotion counts the third');
check_zombies($used, 'two promotions in a row', @zombies);
is($used->ask("SELECT outcome, token FROM fencing_acquire('moved', $owner_c)"), 'acquired|' . token_of(4, 1), 'two promotions in a row: next token');
is($used->ask('SELECT tli, epoch FROM fencing.floor'), '5|4', 'two promotions in a row: written down');
is($used->ask(commit('worked', 1, '{"n": 1}')), 'replayed|{"job": "worked"}', 'two promotions in a row: the first receipt');
$used->close;

$node4->stop;
done_testing();
