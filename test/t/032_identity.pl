# The identity of a database and its epochs, line by line: what the extension
# sees by itself, what it must not take for a move, and what only an
# administrator can know, who then calls fencing_new_epoch().

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use FencingTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($owner_a, $owner_b) = map { owner($_) } 10 .. 11;

sub acquire
{
	my ($job, $owner) = @_;
	return "SELECT outcome, token FROM fencing_acquire('$job', $owner, '1 day')";
}

# By a gate alone: it needs nothing of the database but the extension.
sub commit
{
	my ($job, $token, $content) = @_;
	return sprintf q{SELECT outcome FROM fencing_commit('%s', %s, '{"n": %s}', 'SELECT 1')}, $job, $token, $content // 1;
}

my $node = new_node('main', "wal_level = replica\nmax_wal_senders = 5\nmax_connections = 30\n", allows_streaming => 1);

#
# First install; crash; restart.
#
is_answers($node, 'postgres', 'first install',
	[ 'identity', q{SELECT sysid = (SELECT system_identifier FROM pg_control_system()), dboid = (SELECT oid FROM pg_database WHERE datname = current_database()),
		reloid = 'fencing.floor'::regclass, tli, epoch, floor FROM fencing.floor}, 't|t|t|1|0|0' ],
	[ 'epoch', 'SELECT fencing.epoch_start()', '0' ],
	[ 'first token', acquire('job', $owner_a), 'acquired|1' ],
	[ 'released', "SELECT outcome FROM fencing_release('job', $owner_a, 1)", 'released' ],
	[ 'second token', acquire('job', $owner_b), 'acquired|2' ],
	[ 'commit', commit('job', 2), 'committed' ]);
$node->stop('immediate');
$node->start;
is(answer($node, q{SELECT fencing_revoke('job', 'test')}), '3', 'crash: last + 1');
$node->restart;
is(answer($node, q{SELECT fencing_revoke('job', 'test')}), '4', 'restart: last + 1');

#
# No move: a new name, a new file of the table, other copies of the extension.
#
$node->safe_psql('postgres', 'CREATE DATABASE source');
$node->safe_psql('source', 'CREATE EXTENSION fencing CASCADE');
is(answer($node, acquire('job', $owner_a), 'source'), 'acquired|1', 'another database has tokens of its own');
$node->safe_psql('postgres', 'ALTER DATABASE source RENAME TO renamed');
$node->safe_psql('renamed', 'VACUUM FULL fencing.floor; CLUSTER fencing.floor USING floor_pkey; REINDEX TABLE fencing.floor');
is_answers($node, 'renamed', 'renamed and rewritten',
	[ 'epoch', 'SELECT fencing.epoch_start()', '0' ],
	[ 'the holder', acquire('job', $owner_a), 'renewed|1' ],
	[ 'one row', 'SELECT count(*) FROM fencing.floor', '1' ]);
$node->safe_psql('postgres', 'ALTER DATABASE renamed RENAME TO source');

#
# Each part of the identity alone is enough.
#
my $moves = 0;
foreach my $part ('sysid', 'dboid', 'reloid')
{
	my $before = token_of(1024 * $moves, $moves ? 1 : 2);
	my $first = token_of(1024 * ++$moves, 1);

	is(answer($node, commit('job', $moves == 1 ? 1 : $before, 0), 'source'), 'committed', "$part: before");
	$node->safe_psql('source', $part eq 'sysid' ? 'UPDATE fencing.floor SET sysid = sysid + 1'
		: "UPDATE fencing.floor SET $part = ${part}::bigint + 1 WHERE epoch = (SELECT max(epoch) FROM fencing.floor)");
	$before = 1 if $moves == 1;
	is_answers($node, 'source', $part,
		[ 'epoch', 'SELECT fencing.epoch_start()', $first - 1 ],
		[ 'a receipt', commit('job', $before, 0), 'replayed' ],
		[ 'the holder', commit('job', $before, 1) =~ s/\)$/, step => 'late')/r, 'stale' ],
		[ 'its heartbeat', "SELECT outcome FROM fencing_renew('job', $owner_a, $before)", 'lost' ],
		[ 'nothing is written down by judging', 'SELECT count(*) FROM fencing.floor', $moves ],
		[ 'next token', acquire('job', $owner_a), "acquired|$first" ],
		[ 'a row of its own', 'SELECT count(*) FROM fencing.floor', $moves + 1 ],
		[ 'a new job', acquire("after $part", $owner_a), "acquired|$first" ]);
}

# A foreign row that is not below ours, however it came: we are a copy, or copied.
$node->safe_psql('source', 'INSERT INTO fencing.floor SELECT sysid + 2, dboid, reloid, 7, max(epoch), 0 FROM fencing.floor GROUP BY 1, 2, 3 ORDER BY max(epoch) DESC LIMIT 1');
$moves++;
is(answer($node, acquire('job', $owner_a), 'source'), 'acquired|' . token_of(1024 * $moves, 1), 'a foreign row with our epoch: up');
$node->safe_psql('source', 'INSERT INTO fencing.floor SELECT sysid + 3, dboid, reloid, 7, max(epoch) - 1, 0 FROM fencing.floor GROUP BY 1, 2, 3 ORDER BY max(epoch) DESC LIMIT 1');
is(answer($node, acquire('job', $owner_a), 'source'), 'renewed|' . token_of(1024 * $moves, 1), 'a foreign row below ours: nothing');

#
# CREATE DATABASE ... TEMPLATE, in both ways, and the copy of a copy.
#
my $template = 0;
$node->safe_psql('postgres', 'CREATE DATABASE original');
$node->safe_psql('original', 'CREATE EXTENSION fencing CASCADE; ' . acquire('job', $owner_a) . '; ' . commit('job', 1));
foreach my $strategy ('WAL_LOG', 'FILE_COPY')
{
	my $from = $template ? "copy$template" : 'original';
	my $to = 'copy' . ++$template;
	my $first = token_of(1024 * $template, 1);

	$node->safe_psql('postgres', "CREATE DATABASE $to TEMPLATE $from STRATEGY $strategy");
	is_answers($node, $to, "$strategy: $to of $from",
		[ 'a receipt', commit('job', 1), 'replayed' ],
		[ 'the holder', commit('job', $template == 1 ? 1 : token_of(1024, 1), 2) =~ s/\)$/, step => 'late')/r, 'stale' ],
		[ 'next token', acquire('job', $owner_a), "acquired|$first" ],
		[ 'commit', commit('job', $first), 'committed' ]);
}
is_answers($node, 'original', 'the original',
	[ 'its holder', acquire('job', $owner_a), 'renewed|1' ],
	[ 'epoch', 'SELECT fencing.epoch_start()', '0' ],
	[ 'next token', q{SELECT fencing_revoke('job', 'test')}, '2' ]);

#
# Restored over the original with --clean: the dump of the copy of its copy.  A
# session that is connected and has used the extension sees it at once.
#
my $dump = $node->basedir . '/copy2.dump';
my $connected = open_session($node, 'original');
is($connected->ask(commit('job', 1)), 'replayed', 'clean: connected before');
is($connected->ask(acquire('connected', $owner_a)), 'acquired|1', 'clean: connected before');
$node->command_ok([ 'pg_dump', '--format=custom', "--file=$dump", 'copy2' ], 'clean: pg_dump');
$node->command_ok([ 'pg_restore', '--clean', '--if-exists', '--exit-on-error', '--dbname=original', $dump ], 'clean: pg_restore');
is($connected->ask('SELECT fencing.epoch_start()'), token_of(3 * 1024, 0), 'clean: connected session, epoch');
is($connected->ask(commit('job', token_of(2048, 1))), 'replayed', 'clean: connected session, a receipt of the copy');
is($connected->ask(commit('job', token_of(2048, 1), 2)), 'conflict', 'clean: connected session, conflict');
is($connected->ask(acquire('job', $owner_a)), 'acquired|' . token_of(3 * 1024, 1), 'clean: connected session, next token');
is($connected->ask(commit('connected', 1)), 'pruned', 'clean: connected session, a job that the dump does not know');
$connected->close;

#
# A dump that is taken while workers work: what is restored is in itself whole,
# and every token that was issued later is below.
#
my @workers = start_workers($node, jobs => [ map { "job-$_" } 1 .. 3 ]);
wait_for_acknowledged(100, @workers);
$dump = $node->basedir . '/load.dump';
$node->command_ok([ 'pg_dump', '--format=custom', "--file=$dump", 'postgres' ], 'load: pg_dump');
my $at_dump = @{ acknowledged(@workers)->{committed} };
wait_for_acknowledged($at_dump + 50, @workers);
stop_workers(@workers);
check_acknowledged($node, 'load', @workers);
my $told = acknowledged(@workers);

my $other = PostgreSQL::Test::Cluster->new('other');
$other->init(extra => [ '--encoding=UTF8', '--no-locale' ]);
$other->append_conf('postgresql.conf', 'autovacuum = off');
$other->start;
$other->command_ok([ 'pg_restore', '--exit-on-error', '--dbname=postgres', $dump ], 'load: restored in another cluster');
check_rows($other, 'load: restored');
my $session = open_session($other);
my $receipts = $session->ask('SELECT count(*) FROM fencing.receipts WHERE job_key LIKE \'job-%\'');
cmp_ok($receipts, '>', 0, "load: $receipts receipts arrived");
cmp_ok($receipts, '<', scalar @{ $told->{committed} }, 'load: not those of later');
check_zombies($session, 'load: restored', @{ $told->{acquired} });
is($session->ask('SELECT string_agg(DISTINCT outcome::text, \', \' ORDER BY outcome::text) FROM (' . values_list(@{ $told->{committed} })
		  . q{) a(job, token, content), fencing_commit(job, token, jsonb_build_object('by', content))}),
	'replayed, stale', 'load: the same content is replayed or stale');
is($session->ask(acquire('job-1', $owner_a)), 'acquired|' . token_of(1024, 1), 'load: next token');
$session->close;
$other->stop;

#
# What nobody can see: the administrator says so before the database is used.
#
sub highest
{
	my ($db) = @_;
	return answer($node, 'SELECT max(token) FROM fencing.fences WHERE NOT external', $db);
}

# DROP EXTENSION and CREATE EXTENSION: all is gone.  The session that was there
# before keeps nothing of the old tables.
$node->safe_psql('postgres', 'CREATE DATABASE dropped');
$node->safe_psql('dropped', 'CREATE EXTENSION fencing CASCADE; ' . join('; ', map { "SELECT fencing_acquire('job', $owner_a); SELECT fencing_revoke('job', 'test')" } 1 .. 5));
is_answers($node, 'dropped', 'dropped: before', [ 'tokens', acquire('job', $owner_a), 'acquired|11' ], [ 'commit', commit('job', 11), 'committed' ]);
$connected = open_session($node, 'dropped');
is($connected->ask(commit('job', 11)), 'replayed', 'dropped: connected before');
$node->safe_psql('dropped', 'DROP EXTENSION fencing; CREATE EXTENSION fencing');
is($connected->ask('SELECT fencing.epoch_start()'), '0', 'dropped: nothing is seen');
is(answer($node, q{SELECT fencing_new_epoch('created again', 11)}, 'dropped'), token_of(1, 0), 'dropped: the administrator knows');
is($connected->ask(commit('job', 11)), 'pruned', 'dropped: a token of before');
is($connected->ask("SELECT outcome FROM fencing_renew('job', $owner_a, 11)"), 'lost', 'dropped: a heartbeat of before');
is($connected->ask(acquire('job', $owner_a)), 'acquired|' . token_of(1, 1), 'dropped: next token');
is($connected->ask(commit('job', 11)), 'pruned', 'dropped: a token of before beside the new one');
is($connected->ask(commit('job', token_of(1, 1))), 'committed', 'dropped: the new holder');
$connected->close;
is(answer($node, 'SELECT job_key, token, reason, revoked_by = session_user FROM fencing.revocations', 'dropped'),
	'|' . token_of(1, 0) . '|created again|t', 'dropped: it is recorded');

# A restore of data only, of an old dump, into the same tables.
$node->safe_psql('postgres', 'CREATE DATABASE data_only');
$node->safe_psql('data_only', 'CREATE EXTENSION fencing CASCADE; ' . acquire('job', $owner_a) . '; ' . commit('job', 1));
$dump = $node->basedir . '/data_only.dump';
$node->command_ok([ 'pg_dump', '--format=custom', "--file=$dump", 'data_only' ], 'data only: pg_dump');
is_answers($node, 'data_only', 'data only: after the dump',
	[ 'tokens', q{SELECT fencing_revoke('job', 'test') FROM generate_series(1, 5)}, join "\n", 2 .. 6 ],
	[ 'acquire', acquire('job', $owner_a), 'acquired|7' ],
	[ 'commit', commit('job', 7), 'committed' ],
	[ 'external', q{SELECT outcome FROM fencing_advance('external', 500)}, 'advanced' ]);
my $above = highest('data_only');
$node->safe_psql('data_only', 'TRUNCATE fencing.floor, fencing.fences, fencing.leases, fencing.receipts, fencing.revocations, fencing.grants');
$node->command_ok([ 'pg_restore', '--data-only', '--exit-on-error', '--dbname=data_only', $dump ], 'data only: pg_restore');
is_answers($node, 'data_only', 'data only',
	[ 'nothing is seen', 'SELECT fencing.epoch_start()', '0' ],
	[ 'the fence went down', 'SELECT job_key, token FROM fencing.fences', 'job|1' ],
	[ 'the administrator knows', "SELECT fencing_new_epoch('data restored', $above)", token_of(1, 0) ],
	[ 'a receipt of the dump', commit('job', 1), 'replayed' ],
	[ 'the holder of the dump', commit('job', 1, 2) =~ s/\)$/, step => 'late')/r, 'stale' ],
	[ 'the holder after the dump', commit('job', 7), 'stale' ],
	[ 'next token', acquire('job', $owner_a), 'acquired|' . token_of(1, 1) ],
	[ 'an external job is told its tokens again', q{SELECT outcome FROM fencing_advance('external', 500)}, 'advanced' ]);

# What "above" does: never lower, never without effect.
my $restart_at = token_of(1 << 16, 5);
is_answers($node, 'data_only', 'above',
	[ 'below the epoch', q{SELECT fencing_new_epoch('test', 3)}, token_of(2, 0) ],
	[ 'none', q{SELECT fencing_new_epoch('test')}, token_of(3, 0) ],
	[ 'at the start of a later epoch', "SELECT fencing_new_epoch('test', @{[ token_of(10, 0) ]})", token_of(10, 0) ],
	[ 'its next token', acquire('above', $owner_a), 'acquired|' . token_of(10, 1) ],
	[ 'one above it', "SELECT fencing_new_epoch('test', @{[ token_of(20, 1) ]})", token_of(21, 0) ],
	[ 'far away', "SELECT fencing_new_epoch('test', $restart_at)", token_of((1 << 16) + 1, 0) ],
	[ 'next token', acquire('above', $owner_a), 'acquired|' . token_of((1 << 16) + 1, 1) ],
	[ 'and the next move', 'DELETE FROM fencing.floor WHERE NOT EXISTS (SELECT FROM fencing.floor f WHERE f.epoch > floor.epoch); INSERT INTO fencing.floor VALUES (1, 1, 1, 1, ' . ((1 << 16) + 1) . ', 0)', '' ]);
is(answer($node, acquire('above', $owner_a), 'data_only'), 'acquired|' . token_of((1 << 16) + 1 + 1024, 1), 'above: the next move goes up from there');

#
# A new epoch beside sessions that are connected, have used the extension and
# are in the middle of something.
#
$node->safe_psql('postgres', 'CREATE DATABASE busy');
$node->safe_psql('busy', 'CREATE EXTENSION fencing CASCADE; ' . join '; ', map { acquire($_, $owner_a) } 'job', 'other', 'idle', 'old snapshot');
is(answer($node, commit('idle', 1), 'busy'), 'committed', 'busy: a receipt');
my ($worker, $other_worker, $heart, $zombie, $reader, $snapshot_reader, $admin) = map { open_session($node, 'busy') } 1 .. 7;
is($_->ask("SELECT outcome FROM fencing_renew('job', $owner_a, 1, '1 day')"), 'renewed', 'busy: connected and used')
  foreach $worker, $other_worker, $heart, $zombie, $reader, $snapshot_reader;

# Those who were only told something keep nobody waiting.
is($zombie->ask("BEGIN;\n" . acquire('job', $owner_b)), 'held|', 'busy: a challenger in a block');
is($reader->ask("BEGIN;\n" . commit('idle', 1)), 'replayed', 'busy: a replay in a block');
is($snapshot_reader->ask("BEGIN ISOLATION LEVEL REPEATABLE READ;\n" . commit('idle', 1)), 'replayed', 'busy: a snapshot');
is(answer($node, "SET lock_timeout = '10s';\nSELECT fencing_new_epoch('nobody writes')", 'busy'), token_of(1, 0), 'busy: a new epoch beside them');
is($zombie->ask("COMMIT;\n" . acquire('job', $owner_b)), 'held|', 'busy: the challenger, to whom the time that was promised counts');
is($worker->ask(acquire('job', $owner_a)), 'acquired|' . token_of(1, 1), 'busy: and not to the holder');
is($reader->ask('COMMIT;'), '', 'busy: the reader');
like($snapshot_reader->ask(commit('old snapshot', 1)), qr/^(?:stale|40001)$/, 'busy: a holder with an old snapshot');
$snapshot_reader->ask('ROLLBACK');

# A commit in flight: the new epoch waits, and others go on beside it.
is($other_worker->ask(acquire('other', $owner_a)), 'acquired|' . token_of(1, 1), 'busy: another job');
is($worker->ask("BEGIN;\n" . commit('job', token_of(1, 1))), 'committed', 'busy: a commit in flight');
$admin->start(q{SELECT fencing_new_epoch('a commit in flight')});
await_lock($node, $admin->pid, 'busy: the new epoch waits');
$_->ask("SET lock_timeout = '10s'") foreach $other_worker, $heart;
is($other_worker->ask(commit('other', token_of(1, 1))), 'committed', 'busy: another commit does not wait behind it');
is($heart->ask("SELECT outcome FROM fencing_renew('other', $owner_a, @{[ token_of(1, 1) ]}, '1 day')"), 'renewed', 'busy: nor does a heartbeat');
$reader->ask("SET lock_timeout = '10s'");
is($reader->ask(commit('idle', 1)), 'replayed', 'busy: a replay does not wait');
is($reader->ask(commit('idle', 1, 2)), 'conflict', 'busy: nor does a conflict');
is($worker->ask('COMMIT'), '', 'busy: the commit ends');
is($admin->finish, token_of(2, 0), 'busy: then the epoch begins');
like($admin->errors, qr/waiting for \d+ transactions? that judges? by the old epoch\n.*DETAIL:.*Processes: .*@{[ $worker->pid ]}/s, 'busy: it said for whom it waited');
is($other_worker->ask(commit('other', token_of(1, 1)) =~ s/\)$/, step => 'late')/r), 'stale', 'busy: the other commit is judged by it');
is($heart->ask("SELECT outcome FROM fencing_renew('other', $owner_a, @{[ token_of(1, 1) ]})"), 'lost', 'busy: and the heartbeat');
is($worker->ask(commit('job', token_of(1, 1))), 'replayed', 'busy: what was in flight is there');
is($worker->ask(commit('job', token_of(1, 1), 2) =~ s/\)$/, step => 'late')/r), 'stale', 'busy: its holder is out');
is($worker->ask(acquire('job', $owner_a)), 'acquired|' . token_of(2, 1), 'busy: and comes in again');

# One that is rolled back; a token in flight; an epoch that is rolled back.
is($worker->ask("BEGIN;\n" . commit('job', token_of(2, 1))), 'committed', 'busy: another commit in flight');
is($other_worker->ask("BEGIN;\n" . acquire('in flight', $owner_a)), 'acquired|' . token_of(2, 1), 'busy: a token in flight');
$admin->start("BEGIN;\nSELECT fencing_new_epoch('to be rolled back')");
await_lock($node, $admin->pid, 'busy: the new epoch waits for both');
is($worker->ask('ROLLBACK'), '', 'busy: the first ends');
await_lock($node, $admin->pid, 'busy: it still waits');
is($other_worker->ask('COMMIT'), '', 'busy: the second ends');
is($admin->finish, token_of(3, 0), 'busy: then it begins');
$worker->start(commit('job', token_of(2, 1)));
await_lock($node, $worker->pid, 'busy: the retry waits for its end');
is($admin->ask('ROLLBACK'), '', 'busy: rolled back');
is($worker->finish, 'committed', 'busy: the retry is judged by the epoch before');
is($other_worker->ask(commit('in flight', token_of(2, 1))), 'committed', 'busy: so is the token that was in flight');
is($admin->ask("BEGIN;\nSELECT fencing_new_epoch('in a block')"), token_of(3, 0), 'busy: once more');
$worker->start(commit('job', token_of(2, 1), 2) =~ s/\)$/, step => 'late')/r);
await_lock($node, $worker->pid, 'busy: a commit waits for its end');
is($admin->ask('COMMIT'), '', 'busy: committed');
is($worker->finish, 'stale', 'busy: the commit is judged by it');
is($other_worker->ask("SELECT outcome FROM fencing_renew('in flight', $owner_a, @{[ token_of(2, 1) ]})"), 'lost', 'busy: the heartbeat of another session');
is($admin->ask('SELECT string_agg(reason, \', \' ORDER BY id) FROM fencing.revocations'), 'nobody writes, a commit in flight, in a block', 'busy: what is recorded');
$_->close foreach $worker, $other_worker, $heart, $zombie, $reader, $snapshot_reader, $admin;

#
# Copies of the whole server, without what is no longer needed.
#
$node->safe_psql('postgres', "DROP DATABASE $_") foreach 'original', 'copy1', 'copy2', 'dropped', 'data_only', 'busy';
$node->safe_psql('postgres', 'CREATE DATABASE whole');
$node->safe_psql('whole', 'CREATE EXTENSION fencing CASCADE; ' . acquire('job', $owner_a) . '; ' . commit('job', 1));

sub check_administrator
{
	my ($what, $copy, $sees, $tokens) = @_;

	is_answers($node, 'whole', "$what: the server itself",
		[ 'goes on', "SELECT DISTINCT fencing_revoke('job', 'test') > 0 FROM generate_series(1, $tokens)", 't' ]);
	my $above = highest('whole');
	is_answers($copy, 'whole', $what,
		[ 'epoch', 'SELECT fencing.epoch_start()', $sees ],
		[ 'the administrator knows', "SELECT fencing_new_epoch('$what', $above) > $above - (1::bigint << 36)", 't' ],
		[ 'next token', "SELECT outcome, token > $above FROM fencing_acquire('job', $owner_a)", 'acquired|t' ],
		[ 'a token that was issued elsewhere', commit('job', $above), 'stale' ],
		[ 'the holder', commit('job', 1, 2) =~ s/\)$/, step => 'late')/r, 'stale' ],
		[ 'the receipt', commit('job', 1), 'replayed' ]);
	$copy->stop;
	return;
}

# A snapshot of the volume of a server that was not shut down.
$node->stop('immediate');
$node->backup_fs_cold('snapshot');
$node->start;
my $snapshot = PostgreSQL::Test::Cluster->new('snapshot');
$snapshot->init_from_backup($node, 'snapshot');
$snapshot->start;
check_administrator('snapshot', $snapshot, '0', 10);

# A base backup that is just started.
$node->backup('base');
my $base = PostgreSQL::Test::Cluster->new('base');
$base->init_from_backup($node, 'base');
$base->start;
check_administrator('base backup', $base, '0', 10);

# Two standbys that are promoted and know nothing of each other: one timeline,
# and so one epoch.
my @standbys = map { standby_of($node, $_) } 'one', 'two';
cut_off($_) foreach @standbys;
# And an epoch that an asynchronous primary has begun and lost.
is_answers($node, 'whole', 'lost epoch',
	[ 'begins', q{SELECT fencing_new_epoch('lost')}, token_of(1, 0) ],
	[ 'a token of it', acquire('lost', $owner_a), 'acquired|' . token_of(1, 1) ]);
$node->stop('immediate');
$_->promote foreach @standbys;
is_answers($standbys[0], 'whole', 'first of two', [ 'next token', acquire('job', $owner_a), 'acquired|' . token_of(1, 1) ], [ 'commit', commit('job', token_of(1, 1)), 'committed' ]);
is(answer($standbys[1], acquire('job', $owner_b), 'whole'), 'acquired|' . token_of(1, 1), 'second of two: the same token, as documented');
is_answers($standbys[1], 'whole', 'second of two',
	[ 'the administrator knows', "SELECT fencing_new_epoch('two standbys', @{[ token_of(1, 1) ]})", token_of(2, 0) ],
	[ 'his own holder', commit('job', token_of(1, 1), 2), 'stale' ],
	[ 'the token of the lost epoch', commit('lost', token_of(1, 1)), 'pruned' ],
	[ 'next token', acquire('job', $owner_b), 'acquired|' . token_of(2, 1) ]);
$standbys[1]->stop;

#
# A database that is behind the timeline that it was on: a server that was taken
# back to timeline 1, and the data of timeline 2 restored into its tables.
#
my $promoted = $standbys[0];
is(answer($promoted, 'SELECT tli, epoch FROM fencing.floor', 'whole'), '2|1', 'taken back: was on timeline 2');
$dump = $node->basedir . '/timeline2.dump';
$promoted->command_ok([ 'pg_dump', '--format=custom', "--file=$dump", 'whole' ], 'taken back: pg_dump on timeline 2');
$promoted->stop;
$node->start;
$node->safe_psql('whole', 'TRUNCATE fencing.floor, fencing.fences, fencing.leases, fencing.receipts, fencing.revocations, fencing.grants');
$node->command_ok([ 'pg_restore', '--data-only', '--exit-on-error', '--dbname=whole', $dump ], 'taken back: pg_restore on timeline 1');
check_behind($node, 'whole', 'taken back', token_of(1, 1));
$node->restart;
is(answer($node, acquire('job', $owner_a), 'whole'), 'renewed|' . token_of(2, 1), 'taken back: after a restart');

# The same by the row alone.
$node->safe_psql('source', 'UPDATE fencing.floor SET tli = 9 WHERE epoch = (SELECT max(epoch) FROM fencing.floor)');
check_behind($node, 'source', 'row ahead', highest('source'));

sub check_behind
{
	my ($node, $db, $what, $token) = @_;
	my $before = answer($node, 'SELECT string_agg(f::text, \',\' ORDER BY f::text) FROM fencing.fences f', $db);

	is_answers($node, $db, "$what: behind",
		[ 'acquire', acquire('job', $owner_b), '55000' ],
		[ 'acquire by the holder', acquire('job', $owner_a), '55000' ],
		[ 'acquire of a new job', acquire('behind', $owner_a), '55000' ],
		[ 'renew', "SELECT fencing_renew('job', $owner_a, $token)", '55000' ],
		[ 'commit', commit('job', $token, 3) =~ s/\)$/, step => 'behind')/r, '55000' ],
		[ 'commit, gate alone', "BEGIN;\nSELECT fencing_commit('job', $token, '{}', step => 'behind')", '55000' ],
		[ 'block', 'ROLLBACK', '' ],
		[ 'commit, report_errors', "SELECT outcome, error->>'sqlstate' FROM fencing_commit('job', $token, '{}', 'SELECT 1', 'behind', report_errors => true)", 'failed|55000' ],
		[ 'revoke', q{SELECT fencing_revoke('job', 'test')}, '55000' ],
		[ 'forget', q{SELECT fencing_forget('job')}, '55000' ]);
	is(answer($node, 'SELECT string_agg(f::text, \',\' ORDER BY f::text) FROM fencing.fences f', $db), $before, "$what: nothing was issued");
	my ($ret, $out, $err) = $node->psql($db, acquire('job', $owner_b));
	like($err, qr/HINT:.*fencing_new_epoch\(\)/, "$what: the hint says what to do");

	my $epoch_start = answer($node, "SELECT fencing_new_epoch('$what', $token)", $db);
	cmp_ok($epoch_start, '>=', $token, "$what: a new epoch");
	is_answers($node, $db, "$what: afterwards",
		[ 'the row', 'SELECT tli FROM fencing.floor ORDER BY epoch DESC LIMIT 1', '1' ],
		[ 'the holder', commit('job', $token, 3) =~ s/\)$/, step => 'behind')/r, 'stale' ],
		[ 'next token', acquire('job', $owner_a), 'acquired|' . ($epoch_start + 1) ],
		[ 'commit', commit('job', $epoch_start + 1), 'committed' ]);
	return;
}

$node->stop;
done_testing();
