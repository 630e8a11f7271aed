# Tags beyond one session: prepared transactions, crashes, dumps, standbys,
# promotions and epochs; and a migration of a tag that is never free.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use FencingTest ();
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('tags_survive');
$node->init(allows_streaming => 1, extra => [ '--encoding=UTF8', '--no-locale' ]);
$node->append_conf('postgresql.conf', "max_prepared_transactions = 5\nsynchronous_commit = off\nwal_writer_delay = 10s\n");
$node->start;
my $helpers = q{
CREATE FUNCTION id(text) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$ SELECT md5($1)::uuid $$;
CREATE FUNCTION state() RETURNS text LANGUAGE sql AS $$
SELECT string_agg(s.name || ': ' || coalesce((SELECT string_agg(x, ' ') FROM fencing_tag_subjects('v', s.name) x), '-') || ', '
	|| coalesce((SELECT string_agg(x, ' ') FROM fencing_tag_subscribers('v', s.name) x), '-'), '; ' ORDER BY s.name) FROM fencing_tag_statistics('v') s
$$;
CREATE FUNCTION history() RETURNS text LANGUAGE sql AS $$
SELECT md5(string_agg(e.event_no || s.name || s.subjects || s.subscribers, ',' ORDER BY e.event_no, s.name)) FROM fencing.tag_events e, fencing_tag_statistics('v', e.event_no) s WHERE e.vocabulary = 'v'
$$;
};

sub told
{
	my ($call, $on, $db) = @_;
	return ($on // $node)->safe_psql($db // 'postgres', "SELECT concat_ws(' ', outcome, name, matched) FROM fencing_tag_$call");
}

sub refused
{
	my ($sql, $on) = @_;
	my ($ret, $out, $err) = ($on // $node)->psql('postgres', $sql);
	return $err;
}

$node->safe_psql('postgres', "CREATE EXTENSION fencing CASCADE; $helpers");
told("create('v', id('$_'), '$_')") for qw(A B C);
told("alias('v', id('alias'), 'A', 'a')");
told("assign('v', id('1'), 'A', 's')");
told("subscribe('v', id('2'), 'a', 'U')");

# A prepared transaction has its locks, also after a crash.
$node->safe_psql('postgres', q{BEGIN; SELECT outcome FROM fencing_tag_assign('v', id('3'), 'A', 'prepared'); PREPARE TRANSACTION 'tags'});
$node->stop('immediate');
$node->start;
is($node->safe_psql('postgres', 'SELECT state()'), 'A: s, U; B: -, -; C: -, -', 'what was committed is there after a crash, though synchronous_commit is off');
my $refused = refused(q{SET lock_timeout = '100ms'; SELECT fencing_tag_merge('v', id('m'), 'A', 'B', 0)});
like($refused, qr/could not lock tags for a migration within lock_timeout/, 'a merge waits for it');
like($refused, qr/written by: prepared transaction/, '... and names it');
like(refused(q{SET lock_timeout = '100ms'; SELECT * FROM fencing_tag_statistics('v', (SELECT last_value FROM fencing.tag_events_event_no_seq))}), qr/lock timeout/, 'so does who reads as of a number');
like(refused(q{SET lock_timeout = '100ms'; SELECT fencing_tag_assign('v', id('3'), 'A', 'prepared')}), qr/lock timeout/, 'and the same event');
is(told("assign('v', id('4'), 'A', 'other')"), 'committed A current', 'not another event of the same tag');
$node->safe_psql('postgres', "COMMIT PREPARED 'tags'");
is(told("assign('v', id('3'), 'A', 'prepared')"), 'replayed A current', 'then it is there');
is(told("merge('v', id('m'), 'A', 'B', 0)"), 'committed B merged', 'and the merge takes effect');
is($node->safe_psql('postgres', "SELECT * FROM fencing_tag_check('v')"), '', 'consistent');

# A migration that is interrupted half way is not there, and is retried.
$node->safe_psql('postgres', q{BEGIN; SELECT fencing_tag_undo('v', id('u'), id('m')); ROLLBACK});
$node->psql('postgres', q{BEGIN; SELECT fencing_tag_undo('v', id('u'), id('m')); SELECT pg_terminate_backend(pg_backend_pid())});
is($node->safe_psql('postgres', 'SELECT state()'), 'B: other prepared s, U; C: -, -', 'an undo that failed half way has done nothing');
is(told("undo('v', id('u'), id('m'))"), 'committed A', 'once more it is committed');
is(told("undo('v', id('u'), id('m'))"), 'replayed A', 'and then replayed');
is($node->safe_psql('postgres', "SELECT outcome FROM fencing_tag_merge('v', id('m 2'), 'A', 'B', (SELECT migration_version FROM fencing_tag_resolve('v', 'A')))"), 'committed', 'redone');

# A dump.
my $history = $node->safe_psql('postgres', 'SELECT history()');
my $dump = $node->backup_dir . '/tags.sql';
mkdir $node->backup_dir;
$node->command_ok([ 'pg_dump', '-d', $node->connstr('postgres'), '-f', $dump ], 'pg_dump');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok([ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('restored'), '-f', $dump ], 'restored');
is($node->safe_psql('restored', 'SELECT history()'), $history, 'statistics as of every number are the same');
is($node->safe_psql('restored', "SELECT * FROM fencing_tag_check('v')"), '', 'consistent');
is(told("assign('v', id('4'), 'A', 'other')", $node, 'restored'), 'replayed B merged', 'what was submitted is known');
is(told("assign('v', id('5'), 'a', 'new')", $node, 'restored'), 'committed B merged', 'old links work');
is(told("create('v', id('6'), 'a')", $node, 'restored'), 'conflict B merged', '... and make no new tag');
is($node->safe_psql('restored', "SELECT count(*) FROM fencing.tag_events a JOIN fencing.tag_events b ON a.event_no > b.event_no WHERE a.event_id = id('5')"), $node->safe_psql('restored', 'SELECT count(*) - 1 FROM fencing.tag_events'), 'numbers go on');

# Rows without their sequence, as logical replication copies them.
$node->safe_psql('restored', "SELECT setval('fencing.tag_events_event_no_seq', 1)");
$node->safe_psql('restored', "SELECT fencing_new_epoch('a switch-over')");
is(told("assign('v', id('7'), 'a', 'newer')", $node, 'restored'), 'committed B merged', 'a new epoch moves the sequence above the rows');

# Purges take nothing.
$node->safe_psql('restored', "SELECT fencing_purge(k, '1 microsecond') FROM unnest('{receipts,records,events}'::text[]) k");
is($node->safe_psql('restored', "SELECT * FROM fencing_tag_check('v')"), '', 'nothing of it is purged');

# A standby answers what it may, and promoted goes on.
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('tags_standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby);
is($standby->safe_psql('postgres', "SELECT name, matched FROM fencing_tag_resolve('v', 'a')"), 'B|merged', 'a standby resolves');
is($standby->safe_psql('postgres', 'SELECT state()'), $node->safe_psql('postgres', 'SELECT state()'), 'and lists');
is($standby->safe_psql('postgres', "SELECT name FROM fencing_tags_of('v', 's')"), 'B', '... the tags of a subject too');
is(told("assign('v', id('4'), 'A', 'other')", $standby), 'replayed B merged', 'it knows what was submitted');
like(refused("SELECT fencing_tag_assign('v', id('8'), 'A', 'other')", $standby), qr/cannot execute fencing_tag_assign\(\) in a read-only transaction/, 'it writes nothing');
like(refused("SELECT fencing_tag_statistics('v', 1)", $standby), qr/during recovery/, 'and cannot wait for those who do');
$node->stop('immediate');
$standby->promote;
is(told("assign('v', id('8'), 'A', 'promoted')", $standby), 'committed B merged', 'promoted it does');
is($standby->safe_psql('postgres', "SELECT * FROM fencing_tag_check('v')"), '', 'consistent');

# A tag that somebody always writes to: a migration gets through.
$standby->append_conf('postgresql.conf', "synchronous_commit = on\n");
$standby->reload;
my $script = $node->backup_dir . '/busy.sql';
PostgreSQL::Test::Utils::append_to_file($script, "\\set s random(1, 1000000)\nBEGIN;\nSELECT outcome FROM fencing_tag_assign('v', gen_random_uuid(), 'C', 'busy ' || :s);\nSELECT pg_sleep(0.02);\nCOMMIT;\n");
my ($out, $err) = ('', '');
my $busy = IPC::Run::start([ 'pgbench', '-n', '-c', '8', '-T', '12', '-f', $script, $standby->connstr('postgres') ], '<', \undef, '>', \$out, '2>', \$err);
$standby->poll_query_until('postgres', "SELECT count(*) > 20 FROM fencing.tag_events WHERE subject LIKE 'busy%'");
is($standby->safe_psql('postgres', "SET statement_timeout = '10s'; SELECT outcome FROM fencing_tag_merge('v', id('busy'), 'C', 'B', 0)"), 'committed', 'a migration of a tag that is never free gets through');
$busy->finish;
is($err =~ /ERROR|error/ ? $err : '', '', 'those who write do not fail');
is($standby->safe_psql('postgres', "SELECT * FROM fencing_tag_check('v')"), '', 'consistent');

done_testing();
