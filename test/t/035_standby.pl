# A hot standby and one behind it, while the primary purges, begins epochs and
# is made anew: they answer replays and conflicts, and 25006 to everything else.
# With synchronous replication nothing that was acknowledged is lost with the
# primary.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use FencingTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($owner_a, $owner_b) = map { owner($_) } 10 .. 11;
my $conf = "wal_retrieve_retry_interval = 100ms\n";
my $primary = new_node('primary', $conf, allows_streaming => 1);

sub commit
{
	my ($job, $token, $content, $step) = @_;
	return sprintf q{SELECT outcome, result FROM fencing_commit('%s', %s, '{"n": %s}', 'SELECT %s AS n', '%s')}, $job, $token, $content, $content, $step // '';
}

$primary->safe_psql('postgres', qq{
CREATE TABLE report (job text, line text);
CREATE TABLE plain (job text, line text);
SELECT fencing_protect('report', 'job');
SELECT fencing_acquire('job', $owner_a, '1 day');
SELECT fencing_commit('job', 1, '{"n": 1}', 'INSERT INTO report VALUES (\$1, ''x'') RETURNING 1 AS n');
SELECT fencing_acquire('purged', $owner_a, '1 day');
SELECT fencing_commit('purged', 1, '{"n": 1}', 'SELECT 1 AS n');
SELECT fencing_revoke('purged', 'test');
SELECT fencing_commit('purged', 2, '{"n": 1}', 'SELECT 1 AS n')});

my $standby = standby_of($primary, 'standby', $conf);
my $behind = standby_of($standby, 'behind', $conf);
my @nodes = ($standby, $behind);
my %session = map { ($_->name => open_session($_)) } @nodes;

sub everywhere
{
	catch_up($primary, $standby);
	catch_up($standby, $behind);
	return;
}

# In the sessions that stay open, and without waiting for anybody's lock.
sub is_everywhere
{
	my ($call, $expected, $what) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	foreach my $node (@nodes)
	{
		is($session{ $node->name }->ask($call), $expected, $node->name . ": $what");
	}
	return;
}

is_everywhere("SET lock_timeout = '10s'", '', 'sessions');
is_everywhere(commit('job', 1, 1), 'replayed|{"n": 1}', 'replay');
is_everywhere(commit('job', 1, 2), 'conflict|', 'conflict');
is_everywhere(commit('purged', 1, 1), 'replayed|{"n": 1}', 'replay of a former token');

# What else there is.
is_everywhere($_->[1], '25006', $_->[0]) foreach (
	[ 'new epoch', q{SELECT fencing_new_epoch('test')} ],
	[ 'new epoch, above', q{SELECT fencing_new_epoch('test', 100)} ],
	[ 'purge', q{SELECT fencing_purge('receipts', '1 day')} ],
	[ 'purge of nothing', q{SELECT fencing_purge('receipts', '1 day', 1)} ],
	[ 'protect', q{SELECT fencing_protect('plain', 'job')} ],
	[ 'protect again', q{SELECT fencing_protect('report', 'job')} ],
	[ 'unprotect', q{SELECT fencing_unprotect('report')} ],
	[ 'unprotect of what is not', q{SELECT fencing_unprotect('plain')} ],
	[ 'write to a protected table', q{INSERT INTO report VALUES ('job', 'y')} ],
	[ 'commit of a new step', commit('job', 1, 1, 'new') ],
	[ 'commit of a former token', commit('purged', 1, 1, 'new') ],
	[ 'commit of a token never issued', commit('job', 7, 1) ],
	[ 'acquire', "SELECT fencing_acquire('job', $owner_b)" ],
	[ 'renew', "SELECT fencing_renew('job', $owner_a, 1)" ]);

#
# A purge arrives: the standby does not know whether to say pruned.
#
is(answer($primary, q{SELECT purged, more FROM fencing_purge('receipts', '1 microsecond')}), '1|f', 'purged');
is(answer($primary, commit('purged', 1, 1)), 'pruned|', 'primary: pruned');
everywhere();
is_everywhere(commit('purged', 1, 1), '25006', 'a purged receipt');
is_everywhere(q{SELECT count(*) FROM fencing_receipt('purged', 1)}, '0', 'no receipt');
is_everywhere(commit('purged', 2, 1), 'replayed|{"n": 1}', 'the receipt of the current token');

#
# A new epoch on its way: replays and looks do not wait, and nothing of it is seen.
#
my $admin = open_session($primary);
is($admin->ask("BEGIN;\nSELECT fencing_new_epoch('test')"), token_of(1, 0), 'an epoch begins');
everywhere();
is_everywhere('SELECT fencing.epoch_start()', '0', 'not yet');
is_everywhere('SELECT epoch, new_epoch_needed FROM fencing.epoch_status', '0|f', 'nor to whoever looks');
is_everywhere(commit('job', 1, 1), 'replayed|{"n": 1}', 'replay beside a new epoch');
is_everywhere(commit('job', 1, 2), 'conflict|', 'conflict beside a new epoch');
is($admin->ask('COMMIT'), '', 'it has begun');
everywhere();
is_everywhere(commit('job', 1, 1), 'replayed|{"n": 1}', 'replay after it');
is_everywhere(commit('job', 1, 1, 'new'), '25006', 'the holder after it');
is_everywhere('SELECT fencing.epoch_start()', token_of(1, 0), 'epoch');
is_everywhere('SELECT epoch, since IS NOT NULL, new_epoch_needed FROM fencing.epoch_status', '1|t|f', 'its status');
is_everywhere('SELECT bool_and(former_epoch) FROM fencing.lease_status', 't', 'all leases are of the former one');
$admin->close;

#
# Dropped and created again: a session of the standby that has used the old one.
#
$primary->safe_psql('postgres', qq{
SELECT fencing_unprotect('report');
DROP EXTENSION fencing;
CREATE EXTENSION fencing;
SELECT fencing_new_epoch('created again', @{[ token_of(1, 0) ]});
SELECT fencing_acquire('job', $owner_a, '1 day');
SELECT fencing_commit('job', @{[ token_of(1, 1) ]}, '{"n": 3}', 'SELECT 3 AS n')});
everywhere();
is_everywhere(commit('job', 1, 1), '25006', 'created again: an old receipt is gone');
is_everywhere(commit('job', token_of(1, 1), 3), 'replayed|{"n": 3}', 'created again: a new one is there');
is_everywhere('SELECT fencing.epoch_start()', token_of(1, 0), 'created again: epoch');

#
# Synchronous replication.  What was acknowledged on the primary is there on the
# standby: at once with remote_apply, and after the primary is gone in any case.
#
$behind->stop;
$primary->append_conf('postgresql.conf', "synchronous_standby_names = 'standby'\nsynchronous_commit = remote_apply");
$primary->reload;
await_true($primary, q{SELECT sync_state = 'sync' FROM pg_stat_replication WHERE application_name = 'standby'}, 'replication is synchronous');
# It counts when the checkpointer has seen it: the second checkpoint begins after that.
$primary->safe_psql('postgres', "CHECKPOINT;\nCHECKPOINT");
my $writer = open_session($primary);
my $token = token_of(1, 1);
my @answers;
foreach my $i (1 .. 20)
{
	push @answers, $writer->ask(commit('job', $token, $i, "step $i")), $session{standby}->ask(commit('job', $token, $i, "step $i"));
}
is(join(' ', @answers), join(' ', map { (qq(committed|{"n": $_}), qq(replayed|{"n": $_})) } 1 .. 20), 'remote_apply: the standby replays at once');
$writer->close;

my @workers = start_workers($primary, jobs => [ map { "job-$_" } 1 .. 3 ], begin => "SET synchronous_commit = on;\n");
wait_for_acknowledged(200, @workers);
$primary->stop('immediate');
stop_workers(@workers);
$standby->promote;
check_acknowledged($standby, 'synchronous', @workers);
my $told = acknowledged(@workers);
is($session{standby}->ask(q{SELECT string_agg(DISTINCT outcome::text, ', ') FROM (} . values_list(@{ $told->{committed} })
		  . q{) a(job, token, content), fencing_commit(job, token, jsonb_build_object('by', content))}),
	'replayed', 'synchronous: every acknowledged commit replays');
check_zombies($session{standby}, 'synchronous', @{ $told->{acquired} });
is($session{standby}->ask("SELECT outcome, token FROM fencing_acquire('job-1', $owner_a)"), 'acquired|' . token_of(2, 1), 'synchronous: next token');
$_->close foreach values %session;

$standby->stop;
done_testing();
