# Read-only surroundings: a transaction READ ONLY, default_transaction_read_only
# and a hot standby.  Only replayed and conflict are answered, from the receipt;
# everything else is 25006, before the first lock, and never held.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $owner_a = "'00000000-0000-0000-0000-00000000000a'";
my $owner_b = "'00000000-0000-0000-0000-00000000000b'";

my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1, extra => [ '--encoding=UTF8', '--no-locale' ]);
$primary->append_conf('postgresql.conf', 'autovacuum = off');
$primary->start;
$primary->safe_psql('postgres', 'CREATE EXTENSION fencing CASCADE; CREATE TABLE business (line text)');

# Runs calls one after the other in one session, each in a savepoint where there
# is a transaction, and gives for each its output, or the SQLSTATE of its error.
sub answers
{
	my ($node, $begin, @calls) = @_;
	my $in_block = $begin =~ /^BEGIN/;
	my $script = "$begin;\n";

	foreach my $call (@calls)
	{
		$script .= "SAVEPOINT s;\n" if $in_block;
		$script .= "$call;\n\\echo sqlstate :SQLSTATE\n";
		$script .= "ROLLBACK TO s;\n" if $in_block;
	}
	my ($ret, $out, $err) = $node->psql('postgres', $script, on_error_stop => 0);
	my @answers;
	push @answers, $2 eq '00000' ? $1 : $2 while $out =~ /\G(.*?)\n?sqlstate ([0-9A-Z]{5})(?:\n|$)/sg;
	return @answers;
}

# One call in a session of its own.
sub answer
{
	my ($node, $call, $begin) = @_;

	return (answers($node, $begin || '', $call))[0];
}

# Every row with its version, so that a lock or a rewrite shows as well.
sub all_rows
{
	return $primary->safe_psql('postgres',
		join ';', map { "SELECT ctid, xmin, xmax, t.* FROM $_ t ORDER BY ctid" }
		  qw(fencing.floor fencing.fences fencing.leases fencing.receipts fencing.revocations fencing.grants business));
}

# A job with a receipt; one that was taken over; one that ended; one announced.
$primary->safe_psql('postgres', <<"EOT");
SELECT fencing_acquire('job', $owner_a, '1 hour');
SELECT fencing_commit('job', 1, '{"a": 1}', 'INSERT INTO business VALUES (''job'') RETURNING line');
SELECT fencing_acquire('moved', $owner_a, '1 hour');
SELECT fencing_commit('moved', 1, '{"a": 1}', 'SELECT 1 AS one');
SELECT fencing_release('moved', $owner_a, 1);
SELECT fencing_acquire('moved', $owner_b, '1 hour');
SELECT fencing_acquire('ended', $owner_a, '1 hour');
SELECT fencing_release('ended', $owner_a, 1);
SELECT fencing_advance('external', 5);
SELECT fencing_commit('external', 5, '{"a": 1}', 'SELECT 1 AS one');
CREATE ROLE reader;
CREATE ROLE other;
SELECT fencing_grant('reader', 'client');
EOT

my $standby = PostgreSQL::Test::Cluster->new('standby');
$primary->backup('backup');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;
$primary->wait_for_catchup($standby, 'replay');

my @answered = (
	[ 'replayed', q{SELECT outcome, result FROM fencing_commit('job', 1, '{"a": 1.0}', 'INSERT INTO business VALUES (''job'') RETURNING line')}, 'replayed|{"line": "job"}' ],
	[ 'replayed, gate alone', q{SELECT outcome, result FROM fencing_commit('job', 1, '{"a": 1}')}, 'replayed|{"line": "job"}' ],
	[ 'replayed, report_errors', q{SELECT outcome FROM fencing_commit('job', 1, '{"a": 1}', report_errors => true)}, 'replayed' ],
	[ 'replayed, strict', q{SELECT outcome FROM fencing_commit('job', 1, '{"a": 1}', strict => true)}, 'replayed' ],
	[ 'replayed after takeover', q{SELECT outcome, result, fence FROM fencing_commit('moved', 1, '{"a": 1}')}, 'replayed|{"one": 1}|2' ],
	[ 'replayed, external', q{SELECT outcome, fence FROM fencing_commit('external', 5, '{"a": 1}')}, 'replayed|5' ],
	[ 'conflict', q{SELECT outcome, result, committed_at IS NOT NULL FROM fencing_commit('job', 1, '{"a": 2}', 'INSERT INTO business VALUES (''job'')')}, 'conflict||t' ],
	[ 'conflict, strict', q{SELECT outcome FROM fencing_commit('job', 1, '{"a": 2}', strict => true)}, 'LF005' ],
	[ 'receipt', q{SELECT digest = fencing_digest('{"a": 1}'), digest_version, result FROM fencing_receipt('job', 1)}, 't|1|{"line": "job"}' ],
	[ 'no receipt', q{SELECT count(*) FROM fencing_receipt('job', 1, 'none')}, '0' ],
	[ 'canonical', q{SELECT fencing_canonical('{"b": 1, "a": 2}')}, '{"a":2,"b":1}' ],
	[ 'digest', q{SELECT fencing_digest('{}') = sha256('{}')}, 't' ],
	[ 'lease_status', q{SELECT job_key, token, live FROM fencing.lease_status ORDER BY 1}, "ended|1|f\njob|1|t\nmoved|2|t" ],
	[ 'receipt_log', q{SELECT job_key, token FROM fencing.receipt_log ORDER BY 1}, "external|5\njob|1\nmoved|1" ],
	[ 'statement_cache', q{SELECT entries FROM fencing_statement_cache()}, '0' ]);

my @refused = (
	[ 'commit of a new payload', q{SELECT fencing_commit('job', 1, '{}', 'SELECT 1 AS one', 'new')} ],
	[ 'commit, gate alone', q{SELECT fencing_commit('job', 1, '{}', step => 'new')} ],
	[ 'commit, strict', q{SELECT fencing_commit('job', 1, '{}', step => 'new', strict => true)} ],
	[ 'commit, report_errors', q{SELECT fencing_commit('job', 1, '{}', step => 'new', report_errors => true)} ],
	[ 'commit with a stale token', q{SELECT fencing_commit('moved', 1, '{}', step => 'new')} ],
	[ 'commit with a stale token, report_errors', q{SELECT fencing_commit('moved', 1, '{}', step => 'new', report_errors => true)} ],
	[ 'commit with a token never issued', q{SELECT fencing_commit('job', 2, '{}')} ],
	[ 'commit with a token never issued, report_errors', q{SELECT fencing_commit('job', 2, '{}', report_errors => true)} ],
	[ 'commit for an unknown job', q{SELECT fencing_commit('unknown', 1, '{}')} ],
	[ 'commit of an external job', q{SELECT fencing_commit('external', 5, '{}', step => 'new')} ],
	[ 'acquire of a new job', "SELECT fencing_acquire('new', $owner_a)" ],
	[ 'acquire by the holder', "SELECT fencing_acquire('job', $owner_a)" ],
	[ 'acquire of what another holds', "SELECT fencing_acquire('job', $owner_b)" ],
	[ 'acquire of an ended job', "SELECT fencing_acquire('ended', $owner_b)" ],
	[ 'renew', "SELECT fencing_renew('job', $owner_a, 1)" ],
	[ 'renew of what is lost', "SELECT fencing_renew('moved', $owner_a, 1)" ],
	[ 'renew of an unknown job', "SELECT fencing_renew('unknown', $owner_a, 1)" ],
	[ 'release', "SELECT fencing_release('job', $owner_a, 1)" ],
	[ 'release twice', "SELECT fencing_release('ended', $owner_a, 1)" ],
	[ 'release of what is lost', "SELECT fencing_release('moved', $owner_a, 1)" ],
	[ 'release of an unknown job', "SELECT fencing_release('unknown', $owner_a, 1)" ],
	[ 'revoke', q{SELECT fencing_revoke('job', 'test')} ],
	[ 'revoke of an unknown job', q{SELECT fencing_revoke('unknown', 'test')} ],
	[ 'advance', q{SELECT fencing_advance('external', 6)} ],
	[ 'advance to the current token', q{SELECT fencing_advance('external', 5)} ],
	[ 'advance to a lower token', q{SELECT fencing_advance('external', 4)} ],
	[ 'advance of a new job', q{SELECT fencing_advance('new', 1)} ],
	[ 'forget of an ended job', q{SELECT fencing_forget('ended')} ],
	[ 'forget of a live job', q{SELECT fencing_forget('job')} ],
	[ 'forget of an unknown job', q{SELECT fencing_forget('unknown')} ],
	[ 'grant', q{SELECT fencing_grant('other', 'client')} ],
	[ 'grant of what is granted', q{SELECT fencing_grant('reader', 'client')} ],
	[ 'ungrant', q{SELECT fencing_ungrant('reader', 'client')} ]);

my $locks = q{SELECT string_agg(DISTINCT locktype || ' ' || mode, ', ') FROM pg_locks
	WHERE pid = pg_backend_pid() AND locktype <> 'virtualxid' AND mode NOT IN ('AccessShareLock', 'SIReadLock')};

my $before = all_rows();
foreach my $mode (
	[ 'READ ONLY', $primary, 'BEGIN READ ONLY' ],
	[ 'READ ONLY, REPEATABLE READ', $primary, 'BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY' ],
	[ 'READ ONLY, SERIALIZABLE', $primary, 'BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY' ],
	[ 'default_transaction_read_only', $primary, 'SET default_transaction_read_only = on' ],
	[ 'hot standby', $standby, '' ],
	[ 'hot standby, READ COMMITTED', $standby, 'BEGIN' ],
	[ 'hot standby, REPEATABLE READ', $standby, 'BEGIN ISOLATION LEVEL REPEATABLE READ' ])
{
	my ($name, $node, $begin) = @$mode;
	my @got = answers($node, $begin, map({ $_->[1] } @answered, @refused), $locks);

	is(scalar @got, @answered + @refused + 1, "$name: all calls were answered");
	is(shift @got, $_->[2], "$name: $_->[0]") foreach @answered;
	is(shift @got, '25006', "$name: $_->[0]") foreach @refused;
	is(shift @got, '', "$name: nothing is locked after that");
}
is(all_rows(), $before, 'no row was written or locked');

# The answers themselves lock nothing, without a savepoint that would take it back.
foreach my $mode ([ 'READ ONLY', $primary, 'BEGIN READ ONLY' ], [ 'hot standby', $standby, 'BEGIN' ])
{
	my ($name, $node, $begin) = @$mode;

	is( $node->safe_psql('postgres', join ";\n", $begin, $answered[0][1], $answered[6][1], $locks),
		join("\n", $answered[0][2], $answered[6][2], ''), "$name: answers lock nothing");
}

# A transaction that wrote and became read-only later.
my $begin = q{BEGIN; SELECT outcome FROM fencing_commit('job', 1, '{}', 'SELECT 1 AS one', 'middle'); SET TRANSACTION READ ONLY};
my @got = answers($primary, $begin,
	q{SELECT outcome FROM fencing_commit('job', 1, '{}', step => 'middle')},
	q{SELECT outcome FROM fencing_commit('job', 1, '[]', step => 'middle')},
	"SELECT fencing_acquire('job', $owner_a)");
is("@got", "committed\nreplayed conflict 25006", 'read-only from the middle of a transaction on');

# A commit in flight: nobody waits for it or calls the job busy.
my $worker = $primary->background_psql('postgres');
is( $worker->query_safe(q{BEGIN; SELECT outcome FROM fencing_commit('job', 1, '{}', 'SELECT 1 AS one', 'in flight')}),
	'committed', 'a commit is in flight');
foreach my $call (
	[ 'commit', q{SELECT fencing_commit('job', 1, '{}', step => 'in flight')} ],
	[ 'commit of another step', q{SELECT fencing_commit('job', 1, '{}', step => 'another')} ],
	[ 'acquire', "SELECT fencing_acquire('job', $owner_b)" ],
	[ 'revoke', q{SELECT fencing_revoke('job', 'test')} ],
	[ 'forget', q{SELECT fencing_forget('job')} ])
{
	is(answer($primary, $call->[1], "SET lock_timeout = '10s'; SET default_transaction_read_only = on"), '25006', "beside a commit in flight: $call->[0]");
}
$worker->query_safe('COMMIT');
$worker->quit;

# A standby that lags knows too little to say anything but 25006.
$primary->wait_for_catchup($standby, 'replay');
is(answer($standby, q{SELECT outcome FROM fencing_commit('job', 1, '{}', step => 'in flight')}), 'replayed', 'the standby has caught up');
$standby->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
ok($standby->poll_query_until('postgres', q{SELECT pg_get_wal_replay_pause_state() = 'paused'}), 'replay is paused');
$primary->safe_psql('postgres', <<"EOT");
SELECT fencing_commit('job', 1, '{}', 'SELECT 1 AS one', 'lag');
SELECT fencing_release('job', $owner_a, 1);
SELECT fencing_acquire('job', $owner_b);
EOT
is(answer($standby, q{SELECT outcome FROM fencing_commit('job', 1, '{}', step => 'lag')}), '25006', 'a receipt that has not arrived');
is(answer($standby, q{SELECT count(*) FROM fencing_receipt('job', 1, 'lag')}), '0', 'no receipt there yet');
$standby->safe_psql('postgres', 'SELECT pg_wal_replay_resume()');
$primary->wait_for_catchup($standby, 'replay');
is(answer($standby, q{SELECT outcome, fence FROM fencing_commit('job', 1, '{}', step => 'lag')}), 'replayed|2', 'it has arrived');
is(answer($standby, q{SELECT count(*) FROM fencing_receipt('job', 1, 'lag')}), '1', 'the receipt, too');

# A replay is for those who may call, also on the standby.
is(answer($standby, q{SELECT fencing_commit('job', 1, '{"a": 1}')}, 'SET ROLE other'), '42501', 'no grant on the standby');
is(answer($standby, q{SELECT outcome FROM fencing_commit('job', 1, '{"a": 1}')}, 'SET ROLE reader'), 'replayed', 'a grant on the standby');

is($primary->safe_psql('postgres', 'SELECT * FROM business'), 'job', 'the business write happened once');

$standby->stop;
$primary->stop;
done_testing();
