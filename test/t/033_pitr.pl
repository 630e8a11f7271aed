# Point-in-time recovery from a base backup and an archive, to a point before
# the last tokens: what came later is gone, and none of its tokens comes again.
# Then once more from the same archive, and from the recovered server.

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

sub commit
{
	my ($job, $token, $content, $step) = @_;
	return sprintf q{SELECT outcome, result FROM fencing_commit('%s', %s, '{"n": %s}', 'SELECT %s AS n', '%s')}, $job, $token, $content, $content, $step // '';
}

my $node = new_node('main', '', allows_streaming => 1, has_archiving => 1);
is_answers($node, 'postgres', 'before the backup',
	[ 'job', acquire('job', $owner_a), 'acquired|1' ],
	[ 'commit', commit('job', 1, 1), 'committed|{"n": 1}' ]);
$node->backup('base');

# The point: two jobs hold a token that is the last one of theirs that survives.
is_answers($node, 'postgres', 'before the point',
	[ 'commit', commit('job', 1, 2, 'second'), 'committed|{"n": 2}' ],
	[ 'revoke', q{SELECT fencing_revoke('job', 'test')}, '2' ],
	[ 'acquire', acquire('job', $owner_a), 'acquired|3' ],
	[ 'holder', acquire('holder', $owner_a), 'acquired|1' ],
	[ 'purged', acquire('purged', $owner_a), 'acquired|1' ],
	[ 'purged commits', commit('purged', 1, 1), 'committed|{"n": 1}' ],
	[ 'purged is revoked', q{SELECT fencing_revoke('purged', 'test')}, '2' ],
	[ 'external', q{SELECT outcome FROM fencing_advance('external', 100)}, 'advanced' ]);
my @workers = start_workers($node, jobs => [ map { "job-$_" } 1 .. 3 ]);
wait_for_acknowledged(100, @workers);
my $at_point = acknowledged(@workers);
$node->safe_psql('postgres', q{SELECT pg_create_restore_point('the point')});
wait_for_acknowledged(@{ $at_point->{committed} } + 100, @workers);
stop_workers(@workers);
my $told = acknowledged(@workers);
is_answers($node, 'postgres', 'after the point',
	[ 'commit with a token of before', commit('holder', 1, 1), 'committed|{"n": 1}' ],
	[ 'commit with another', commit('job', 3, 1), 'committed|{"n": 1}' ],
	[ 'takeover', q{SELECT fencing_revoke('job', 'test')}, '4' ],
	[ 'acquire', acquire('job', $owner_b), 'acquired|5' ],
	[ 'commit with a new token', commit('job', 5, 1), 'committed|{"n": 1}' ],
	[ 'a new job', acquire('new', $owner_a), 'acquired|1' ],
	[ 'its commit', commit('new', 1, 1), 'committed|{"n": 1}' ],
	[ 'purge', q{SELECT purged > 0 FROM fencing_purge('receipts', '1 microsecond')}, 't' ],
	[ 'purged', commit('purged', 1, 1), 'pruned|' ],
	[ 'external', q{SELECT outcome FROM fencing_advance('external', 101)}, 'advanced' ]);
my $highest = answer($node, 'SELECT max(token) FROM fencing.fences');
$node->safe_psql('postgres', 'SELECT pg_switch_wal()');
$node->stop;

my @zombies = (@{ $told->{acquired} }, map { [ @$_, '' ] }[ 'job', 1 ], [ 'job', 3 ], [ 'job', 5 ], [ 'holder', 1 ], [ 'new', 1 ], [ 'purged', 1 ]);

# Each recovery takes the next timeline: the archive is shared.
sub recover
{
	my ($name, $target, $timeline) = @_;
	my $recovered = PostgreSQL::Test::Cluster->new($name);
	my $archive = $node->archive_dir;

	$recovered->init_from_backup($node, 'base', has_restoring => 1, standby => 0);
	# what the recovered server writes is archived there, too
	$recovered->append_conf('postgresql.conf', <<"EOT");
$target
recovery_target_timeline = 'current'
recovery_target_action = 'promote'
archive_mode = on
archive_command = 'test ! -e "$archive/%f" && cp "%p" "$archive/%f"'
EOT
	$recovered->start;
	await_true($recovered, 'SELECT NOT pg_is_in_recovery()', "$name: recovered");
	is(answer($recovered, q{SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)}), sprintf('%08X', $timeline), "$name: timeline $timeline");
	# the history of this timeline is in the archive before the next recovery looks
	await_true($recovered, sprintf(q{SELECT size > 0 FROM pg_stat_file('%s/%08X.history', true)}, $archive, $timeline), "$name: its history is archived");
	return $recovered;
}

my $first = recover('first', q{recovery_target_name = 'the point'}, 2);
my $session = open_session($first);
check_rows($first, 'first');
check_zombies($session, 'first', @zombies);
is($session->ask('SELECT string_agg(DISTINCT outcome::text, \', \') FROM (' . values_list(@{ $at_point->{committed} })
		  . q{) a(job, token, content), fencing_commit(job, token, jsonb_build_object('by', content))}),
	'replayed', 'first: every commit that was acknowledged before the point is there');
is($session->ask('SELECT string_agg(DISTINCT outcome::text, \', \' ORDER BY outcome::text) FROM (' . values_list(@{ $told->{committed} })
		  . q{) a(job, token, content), fencing_commit(job, token, jsonb_build_object('by', content))}),
	'replayed, stale', 'first: those of later are stale');
$session->close;
is_answers($first, 'postgres', 'first',
	[ 'receipt before the backup', commit('job', 1, 1), 'replayed|{"n": 1}' ],
	[ 'receipt before the point', commit('job', 1, 2, 'second'), 'replayed|{"n": 2}' ],
	[ 'receipt after the point, of the last token before', commit('holder', 1, 1), 'stale|' ],
	[ 'receipt after the point, of a later token', commit('job', 5, 1), 'stale|' ],
	[ 'receipt after the point, of a later job', commit('new', 1, 1), 'pruned|' ],
	[ 'what was purged later is there again', commit('purged', 1, 1), 'replayed|{"n": 1}' ],
	[ 'heartbeat', "SELECT outcome FROM fencing_renew('holder', $owner_a, 1)", 'lost' ],
	[ 'external goes on', q{SELECT outcome, fence FROM fencing_commit('external', 100, '{}', 'SELECT 1')}, 'committed|100' ],
	[ 'next token', acquire('job', $owner_a), 'acquired|' . token_of(1, 1) ],
	[ 'others wait for one that held on', acquire('holder', $owner_b), 'held|' ],
	[ 'next token of a job that held on', acquire('holder', $owner_a), 'acquired|' . token_of(1, 1) ],
	[ 'next token of a job of later', acquire('new', $owner_b), 'acquired|' . token_of(1, 1) ],
	[ 'its commit', commit('new', token_of(1, 1), 1), 'committed|{"n": 1}' ]);
cmp_ok(token_of(1, 1), '>', $highest, 'first: above all that was issued');

# From the same backup and archive again, to an earlier point.
my $second = recover('second', q{recovery_target = 'immediate'}, 3);
is_answers($second, 'postgres', 'second',
	[ 'receipt before the backup', commit('job', 1, 1), 'replayed|{"n": 1}' ],
	[ 'receipt before the point', commit('job', 1, 2, 'second'), 'stale|' ],
	[ 'a token of the first recovery', commit('job', token_of(1, 1), 1), 'stale|' ],
	[ 'a receipt of the first recovery', commit('new', token_of(1, 1), 1), 'pruned|' ],
	[ 'next token', acquire('job', $owner_a), 'acquired|' . token_of(2, 1) ]);
$session = open_session($second);
check_zombies($session, 'second', @zombies, map { [ $_, token_of(1, 1), '' ] } 'job', 'holder', 'new');
$session->close;

# A crash after the recovery is no other one.
$second->stop('immediate');
$second->start;
is_answers($second, 'postgres', 'second, crashed',
	[ 'holder', acquire('job', $owner_a), 'renewed|' . token_of(2, 1) ],
	[ 'next token', q{SELECT fencing_revoke('job', 'test')}, token_of(2, 2) ]);

$_->stop foreach $first, $second;
done_testing();
