# What was prepared for two-phase commit before a promotion, and ends after it:
# nobody says what has become of it before that is certain, and no event of it is
# passed over.  And copies of a database that has been promoted: the exact epoch.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use FencingTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($a, $b) = map { owner($_) } 1 .. 2;
my $node = new_node('main', "max_prepared_transactions = 20\n", allows_streaming => 1);

# A server that is promoted has a new timeline, also without a primary.
sub promote
{
	append_to_file($node->data_dir . '/standby.signal', '');
	$node->restart;
	$node->promote;
	await_true($node, 'SELECT NOT pg_is_in_recovery()', 'promoted');
	return;
}

sub commit
{
	my ($job, $content) = @_;
	return sprintf q{SELECT outcome FROM fencing_commit('%s', 1, '%s', 'SELECT 1')}, $job, $content // 1;
}

# Prepared makers of jobs.
my $worker = open_session($node);
foreach my $job ('kept', 'gone', 'other')
{
	is($worker->ask("BEGIN;\nSELECT outcome FROM fencing_acquire('$job', $a, '1 day');\n" . commit($job)), "acquired\ncommitted", "$job: made and committed with");
	is($worker->ask("PREPARE TRANSACTION '$job'"), '', "$job: prepared");
}
# A prepared event, and one of the same aggregate that has been committed.
is($worker->ask(q{SELECT fencing_outbox_emit('thing', 'before', 'first', '1') IS NOT NULL}), 't', 'an event is committed');
is($worker->ask(qq{BEGIN;\nSELECT fencing_outbox_emit('thing', '$_', 'prepared', '1') IS NOT NULL;\nPREPARE TRANSACTION 'event $_'}), 't', "an event is prepared, for $_")
  foreach 'rc', 'rr', 'ser', 'late';
$worker->close;
promote();

#
# The token of the old epoch waits for who has made its job, also without a row.
#
is_answers($node, 'postgres', 'prepared',
	[ 'timeout', 'SET lock_timeout = 1', '' ],
	[ 'the retry waits', commit('kept'), '55P03' ],
	[ 'other content waits', commit('other', 2), '55P03' ],
	[ 'what will be gone, too', commit('gone'), '55P03' ],
	[ 'a challenger does not', "SELECT outcome FROM fencing_acquire('kept', $b)", 'held' ],
	[ 'nor who asks for a job that nobody makes', commit('no job'), 'pruned' ]);
# else the rest would wait for what never comes
BAIL_OUT('nobody waits for what is prepared') if !Test::More->builder->is_passing;
my @sessions = map { open_session($node) } 1 .. 3;
$sessions[0]->start(commit('kept'));
$sessions[1]->start("BEGIN;\n" . commit('gone'));
$sessions[2]->start(commit('other', 2));
await_lock($node, $_->pid, 'it waits') foreach @sessions;
is(answer($node, "COMMIT PREPARED 'kept'"), '', 'one is kept');
is(answer($node, "ROLLBACK PREPARED 'gone'"), '', 'one is gone');
is(answer($node, "COMMIT PREPARED 'other'"), '', 'one has other content');
is($sessions[0]->finish, 'replayed', 'kept: replayed');
is($sessions[1]->finish, 'pruned', 'gone: pruned');
is($sessions[2]->finish, 'conflict', 'other: conflict');
is(answer($node, "SELECT outcome FROM fencing_acquire('gone', $b)"), 'acquired', 'gone: who was told so, in a block, keeps nobody out');
is($sessions[1]->ask('COMMIT'), '', 'gone: its block ends');

#
# What is acknowledged meanwhile does not move a consumer past it.
#
my $relay = $sessions[0];
is($relay->ask(q{SELECT fencing_outbox_subscribe('late', true)}), '', 'late: a subscription');
is($relay->ask("SELECT token > 0 FROM fencing_acquire('late', $a, '1 day')"), 't', 'late: a relay');
my $late = q{(SELECT token FROM fencing.lease_status WHERE job_key = 'late')};
foreach ('first', 'second')
{
	is($relay->ask(q{SELECT fencing_outbox_emit('thing', 'after', 'after', '1') IS NOT NULL}), 't', "late: an event of this era, $_");
	is($relay->ask("SELECT outcome FROM fencing_outbox_ack('late', $late, ARRAY(SELECT id FROM fencing_outbox_read('late', $late)))"), 'committed', "late: all is acknowledged, $_");
}
is($relay->ask("SELECT count(*) FROM fencing_outbox_read('late', $late)"), '0', 'late: nothing is pending');
is(answer($node, "COMMIT PREPARED 'event late'"), '', 'late: an event of the old era is committed');
is($relay->ask("SELECT string_agg(aggregate_id, ', ') FROM fencing_outbox_read('late', $late)"), 'late', 'late: it is delivered');
#
# An event of the old era that is committed after the snapshot of a subscription
# and before the subscription itself.  Nothing is prepared any more by then, or
# that alone would make it look at all events.
#
my %levels = (rc => 'READ COMMITTED', rr => 'REPEATABLE READ', ser => 'SERIALIZABLE');
my %subscriber;
@subscriber{ sort keys %levels } = @sessions;
is($subscriber{$_}->ask("BEGIN ISOLATION LEVEL $levels{$_};\nSELECT 1"), '1', "$_: a snapshot") foreach sort keys %levels;
is(answer($node, "COMMIT PREPARED 'event $_'"), '', "$_: an event of the old era is committed") foreach sort keys %levels;
is(answer($node, 'SELECT count(*) FROM pg_prepared_xacts'), '0', 'nothing is prepared any more');
foreach my $level (sort keys %levels)
{
	my $session = $subscriber{$level};

	is($session->ask("SELECT fencing_outbox_subscribe('$level', false);\nCOMMIT"), '', "$level: a subscription");
	is($session->ask("SELECT token > 0 FROM fencing_acquire('$level', $a, '1 day')"), 't', "$level: a relay");
	is($session->ask("SELECT string_agg(type || ' ' || aggregate_id, ', ' ORDER BY aggregate_id) FROM fencing_outbox_read('$level', (SELECT token FROM fencing.lease_status WHERE job_key = '$level')) WHERE type = 'prepared'"),
		$level eq 'rc' ? '' : 'prepared rc, prepared rr, prepared ser', "$level: what its snapshot does not see is delivered");
	is($session->ask("SELECT fencing_outbox_unsubscribe('$level')"), '', "$level: unsubscribed");
}
is(answer($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}), '0', 'no lock is left');
$_->close foreach @sessions;

#
# Copies: by 1024 and one for each timeline before.
#
my $first = token_of(1, 1);
is(answer($node, "SELECT token FROM fencing_acquire('here', $a, '1 day')"), $first, 'timeline 2: the next token');
promote();
$node->safe_psql('postgres', 'CREATE DATABASE restored');
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump.sql';
$node->command_ok([ 'pg_dump', '-f', $dump, $node->connstr('postgres') ], 'dumped');
$node->command_ok([ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-f', $dump, $node->connstr('restored') ], 'restored');
is(answer($node, 'SELECT fencing.epoch_start()', 'restored'), token_of(1 + 1024 + 2, 0), 'restored on timeline 3: the exact epoch');
is(answer($node, "SELECT token FROM fencing_acquire('here', $a, '1 day')", 'restored'), token_of(1 + 1024 + 2, 1), 'restored: the next token');
is(answer($node, 'SELECT fencing.epoch_start()'), token_of(2, 0), 'the original on timeline 3');
is(answer($node, "SELECT token FROM fencing_acquire('here', $a, '1 day')"), token_of(2, 1), 'the original: the next token');
$node->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE restored');
is(answer($node, 'SELECT fencing.epoch_start()', 'copy'), token_of(1 + 2 * (1024 + 2), 0), 'a copy of the copy');
promote();
is(answer($node, 'SELECT fencing.epoch_start()', 'restored'), token_of(1 + 1024 + 2 + 1, 0), 'timeline 4: the restored one goes on by one');
is(answer($node, 'SELECT fencing.epoch_start()', 'copy'), token_of(1 + 1024 + 2 + 1024 + 3, 0), 'timeline 4: the copy that has not issued counts anew');
$node->stop;
done_testing();
