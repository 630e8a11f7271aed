# Sessions that are shared or change in between, as behind a transaction pooler:
# every call on another connection, several clients on one connection, and
# transactions that are prepared here and finished there.  Nothing of the
# extension belongs to a session, and no lock outlives its transaction.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $owner_a = "'00000000-0000-0000-0000-00000000000a'";
my $owner_b = "'00000000-0000-0000-0000-00000000000b'";

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(extra => [ '--encoding=UTF8', '--no-locale' ]);
$node->append_conf('postgresql.conf', 'max_prepared_transactions = 10');
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION fencing CASCADE; CREATE TABLE business (line text)');

# The output of some SQL, or the SQLSTATE of its first error, in a new session.
sub answer
{
	my ($sql) = @_;

	my ($ret, $out, $err) = $node->psql('postgres', "\\set VERBOSITY sqlstate\n$sql");
	return $err =~ /ERROR: +([0-9A-Z]{5})/ ? $1 : $out;
}

#
# The whole story, each call on a connection of its own.
#
my $report = q{SELECT outcome, result FROM fencing_commit('daily', %d, '%s', 'INSERT INTO business VALUES ($3->>''line'') RETURNING line')};
my @story = (
	[ "SELECT outcome, token FROM fencing_acquire('daily', $owner_a, '1 hour')", 'acquired|1' ],
	[ "SELECT outcome, token FROM fencing_acquire('daily', $owner_a, '1 hour')", 'renewed|1' ],
	[ "SELECT outcome, token FROM fencing_acquire('daily', $owner_b, '1 hour')", 'held|' ],
	[ "SELECT outcome, token FROM fencing_renew('daily', $owner_a, 1, '1 hour')", 'renewed|1' ],
	[ "SELECT outcome FROM fencing_release('daily', $owner_a, 1)", 'released' ],
	[ "SELECT outcome, token FROM fencing_renew('daily', $owner_a, 1)", 'lost|' ],
	[ "SELECT outcome, token FROM fencing_acquire('daily', $owner_b, '1 hour')", 'acquired|2' ],
	[ sprintf($report, 2, '{"line": "b", "n": 1.0}'), 'committed|{"line": "b"}' ],
	[ sprintf($report, 1, '{"line": "a"}'), 'stale|' ],
	[ sprintf($report, 2, '{"n": 1, "line": "b"}'), 'replayed|{"line": "b"}' ],
	[ sprintf($report, 2, '{"line": "c"}'), 'conflict|' ],
	[ "SELECT outcome FROM fencing_release('daily', $owner_a, 1)", 'lost' ],
	[ "SELECT fencing_revoke('daily', 'test')", '3' ],
	[ sprintf($report, 2, '{"line": "b", "n": 1}'), 'replayed|{"line": "b"}' ],
	[ "SELECT outcome, token FROM fencing_acquire('daily', $owner_b)", 'acquired|4' ],
	[ "SELECT outcome FROM fencing_release('daily', $owner_b, 4)", 'released' ],
	[ q{SELECT fencing_forget('daily')}, '' ],
	[ sprintf($report, 2, '{"line": "b", "n": 1}'), 'pruned|' ],
	[ "SELECT outcome, token FROM fencing_acquire('daily', $owner_a)", 'acquired|5' ],
	[ q{SELECT outcome, fence FROM fencing_advance('external', 10)}, 'advanced|10' ],
	[ q{SELECT outcome, fence FROM fencing_advance('external', 9)}, 'stale|10' ],
	[ q{SELECT outcome FROM fencing_commit('external', 10, '{}', 'SELECT 1 AS one')}, 'committed' ],
	[ q{SELECT line FROM business}, 'b' ]);
is(answer($_->[0]), $_->[1], "a connection per call: $_->[0]") foreach @story;

#
# One server connection, and every call a transaction of another client: after
# each of them no lock is left, whether it was answered, failed, or rolled back.
#
my $locks = q{SELECT string_agg(concat_ws(' ', locktype, mode), ', ') FROM pg_locks
	WHERE pid = pg_backend_pid() AND locktype IN ('advisory', 'tuple', 'transactionid')};
my $token = q{(SELECT token FROM fencing.fences WHERE job_key = 'pool')};
my @calls = (
	[ "SELECT outcome FROM fencing_acquire('pool', $owner_a)", 'renewed' ],
	[ "SELECT outcome FROM fencing_acquire('pool', $owner_b)", 'held' ],
	[ "SELECT outcome FROM fencing_renew('pool', $owner_a, $token)", 'renewed' ],
	[ "SELECT outcome FROM fencing_renew('pool', $owner_b, $token)", 'lost' ],
	[ "SELECT outcome FROM fencing_commit('pool', $token, '{}', 'SELECT 1 AS one')", 'replayed' ],
	[ "SELECT outcome FROM fencing_commit('pool', $token, '[]', 'SELECT 1 AS one')", 'conflict' ],
	[ "SELECT outcome FROM fencing_commit('pool', $token, '{}', 'SELECT 1 / 0 AS one', 'fails')", '22012' ],
	[ "SELECT outcome FROM fencing_commit('pool', $token, '{}', 'SELECT 1 / 0 AS one', 'fails', report_errors => true)", 'failed' ],
	[ "SELECT outcome FROM fencing_commit('pool', $token + 1, '{}', 'SELECT 1 AS one')", 'LF001' ],
	[ q{SELECT fencing_forget('pool')}, '55006' ],
	[ "SELECT outcome FROM fencing_release('pool', $owner_a, $token)", 'released' ],
	[ q{SELECT fencing_revoke('pool', 'test') > 0}, 't' ],
	[ "SELECT outcome FROM fencing_commit('pool', $token - 1, '{}', step => 'late')", 'stale' ],
	[ q{SELECT fencing_forget('pool')}, 'LF001' ],
	[ q{SELECT outcome FROM fencing_commit('pool', 1, '{}')}, 'pruned' ],
	[ q{SELECT outcome FROM fencing_advance('pool external', 1)}, 'current' ],
	[ q{SELECT outcome FROM fencing_advance('daily', 9)}, '22023' ],
	[ "SELECT outcome FROM fencing_acquire('pool external', $owner_a)", '22023' ]);
my $script = '';
foreach my $call (map { $_->[0] } @calls)
{
	# in a block, in a savepoint that goes, in one that stays, and as it is
	$script .= "$_;\n\\echo sqlstate :SQLSTATE\n$locks;\n"
	  foreach "BEGIN;\n$call;\nROLLBACK", "BEGIN;\nSAVEPOINT s;\n$call;\nROLLBACK TO s;\n$call;\nROLLBACK",
	  "BEGIN;\nSAVEPOINT s;\n$call;\nRELEASE s;\nCOMMIT", "\\echo alone\n$call";
}
my ($ret, $out, $err) = $node->psql('postgres', $script, on_error_stop => 0);
my @left = $out =~ /^sqlstate [0-9A-Z]{5}\n(.*)$/mg;
is(scalar @left, 4 * @calls, 'one connection: all calls ended');
is(join('', @left), '', 'one connection: no lock is left after any of them');
my @got;
push @got, $2 eq '00000' ? $1 : $2 while $out =~ /^alone\n(.*?)\n?sqlstate ([0-9A-Z]{5})$/smg;
is("@got", join(' ', map { $_->[1] } @calls), 'one connection: the answers');
unlike($err, qr/connection|server closed/, 'one connection: it held');

# The pooler resets the session between clients.
is( answer(join ";\n", "SELECT outcome FROM fencing_acquire('reset', $owner_a)", 'DISCARD ALL',
		q{SELECT outcome FROM fencing_commit('reset', (SELECT token FROM fencing.fences WHERE job_key = 'reset'), '{}', 'SELECT 1 AS one')}, 'DISCARD ALL',
		q{SELECT outcome FROM fencing_commit('reset', (SELECT token FROM fencing.fences WHERE job_key = 'reset'), '{}', 'SELECT 1 AS one')}),
	"acquired\ncommitted\nreplayed", 'one connection: DISCARD ALL between calls');
# The application's own advisory locks are another matter.
is( answer(qq{SELECT pg_advisory_lock(n) IS NULL FROM generate_series(-1, 1) n;
	SELECT outcome FROM fencing_acquire('advisory', $owner_a);
	SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
	SELECT pg_advisory_unlock_all() IS NULL;
	BEGIN;
	SELECT outcome FROM fencing_acquire('advisory 2', $owner_a);
	SELECT pg_advisory_unlock_all() IS NULL;
	COMMIT}),
	"f\nf\nf\nacquired\n3\nf\nacquired\nf", 'locks of the application stay its own');

#
# Two-phase commit.  The session that prepared is gone; the job is busy until
# another one finishes it.
#
$token = answer("SELECT token FROM fencing_acquire('prepared', $owner_a)");
is(answer("SELECT outcome FROM fencing_release('prepared', $owner_a, $token)"), 'released', 'prepared: the lease has ended');
my $commit = qq{SELECT outcome, result FROM fencing_commit('prepared', $token, '{"p": 1}', 'INSERT INTO business VALUES (''prepared'') RETURNING line')};
my $conflict = qq{SELECT outcome FROM fencing_commit('prepared', $token, '{"p": 2}')};
my $takeover = "SELECT outcome, token, lease_until, retry_after_ms FROM fencing_acquire('prepared', $owner_b)";

is(answer("BEGIN; $commit; PREPARE TRANSACTION 'p'"), 'committed|{"line": "prepared"}', 'prepared: committed');
is(answer($takeover), 'held|||100', 'prepared: a takeover finds it busy');
is(answer("SET lock_timeout = '1ms'; $commit"), '55P03', 'prepared: the retry waits');
is(answer("SET lock_timeout = '1ms'; $conflict"), '55P03', 'prepared: other content waits');
is(answer("SET lock_timeout = '1ms'; SELECT fencing_revoke('prepared', 'test')"), '55P03', 'prepared: revoke waits');
is(answer(q{SELECT fencing_forget('prepared')}), '55006', 'prepared: forget finds it busy');
is(answer("SELECT outcome FROM fencing_renew('prepared', $owner_a, $token)"), 'lost', 'prepared: a heartbeat after release is lost, without waiting');
is(answer("SELECT count(*) FROM fencing_receipt('prepared', $token)"), '0', 'prepared: no receipt yet');
# Also after a crash: what is prepared holds on.
$node->stop('immediate');
$node->start;
is(answer($takeover), 'held|||100', 'prepared: it is busy after a crash');
is(answer(q{SELECT count(*) FROM business WHERE line = 'prepared'}), '0', 'prepared: nothing to see yet');
is(answer("COMMIT PREPARED 'p'"), '', 'prepared: finished');
is(answer($commit), 'replayed|{"line": "prepared"}', 'prepared: the retry is a replay');
is(answer($conflict), 'conflict', 'prepared: other content conflicts');
is(answer("SELECT outcome, token - $token FROM fencing_acquire('prepared', $owner_b, '1 hour')"), 'acquired|1', 'prepared: the takeover goes on');
is(answer($commit), 'replayed|{"line": "prepared"}', 'prepared: and still a replay');
is(answer(q{SELECT count(*) FROM business WHERE line = 'prepared'}), '1', 'prepared: the row is there once');

# Rolled back instead.
$token = answer("SELECT token FROM fencing.fences WHERE job_key = 'prepared'");
$commit = qq{SELECT outcome FROM fencing_commit('prepared', $token, '{"p": 3}', 'INSERT INTO business VALUES (''rolled back'') RETURNING line')};
is(answer("BEGIN; $commit; PREPARE TRANSACTION 'r'"), 'committed', 'rolled back: committed');
is(answer("SELECT outcome, retry_after_ms > 100 FROM fencing_acquire('prepared', $owner_a)"), 'held|t', 'rolled back: held, the lease lives');
is(answer("ROLLBACK PREPARED 'r'"), '', 'rolled back');
is(answer("SELECT count(*) FROM fencing_receipt('prepared', $token)"), '0', 'rolled back: no receipt');
is(answer($commit), 'committed', 'rolled back: the retry is a first call');
is(answer(q{SELECT count(*) FROM business WHERE line = 'rolled back'}), '1', 'rolled back: the row is there once');

# First acquire of a key, prepared: its lock goes with the transaction.
is(answer("BEGIN; SELECT outcome FROM fencing_acquire('born prepared', $owner_a, '1 hour'); PREPARE TRANSACTION 'b'"), 'acquired', 'born: acquired');
is(answer("SELECT outcome, token, lease_until, retry_after_ms FROM fencing_acquire('born prepared', $owner_b)"), 'held|||100', 'born: a challenger finds it busy');
is(answer("SET lock_timeout = '1ms'; SELECT fencing_advance('born prepared', 5)"), '55P03', 'born: advance waits');
$node->restart;
is(answer("SELECT outcome, token, lease_until, retry_after_ms FROM fencing_acquire('born prepared', $owner_b)"), 'held|||100', 'born: busy after a restart');
is(answer("ROLLBACK PREPARED 'b'"), '', 'born: rolled back');
is(answer(q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}), '0', 'born: no lock is left');
is(answer("SELECT outcome FROM fencing_acquire('born prepared', $owner_b, '1 hour')"), 'acquired', 'born: the challenger gets it');
is(answer("SELECT outcome FROM fencing_acquire('born prepared', $owner_a)"), 'held', 'born: the first one does not');

# revoke, advance and forget, prepared.
$token = answer("SELECT token FROM fencing.fences WHERE job_key = 'born prepared'");
is(answer("BEGIN; SELECT fencing_revoke('born prepared', 'test') - $token; SELECT outcome FROM fencing_advance('external', 20); PREPARE TRANSACTION 'ra'"),
	"1\nadvanced", 'prepared revoke and advance');
is(answer("SELECT outcome, token FROM fencing_renew('born prepared', $owner_b, $token, '1 hour')"), "renewed|$token", 'prepared revoke: not yet');
is(answer("SET lock_timeout = '1ms'; SELECT fencing_commit('born prepared', $token, '{}', 'SELECT 1 AS one')"), '55P03', 'prepared revoke: a commit waits');
is(answer("COMMIT PREPARED 'ra'"), '', 'prepared revoke and advance: finished');
is(answer("SELECT outcome FROM fencing_commit('born prepared', $token, '{}', 'SELECT 1 AS one')"), 'stale', 'prepared revoke: stale');
is(answer("SELECT outcome FROM fencing_renew('born prepared', $owner_b, $token)"), 'lost', 'prepared revoke: lost');
is(answer(q{SELECT outcome, fence FROM fencing_advance('external', 20)}), 'current|20', 'prepared advance: current');
is(answer(q{BEGIN; SELECT fencing_forget('born prepared'); PREPARE TRANSACTION 'f'}), '', 'prepared forget');
is(answer("SELECT outcome, retry_after_ms FROM fencing_acquire('born prepared', $owner_b)"), 'held|100', 'prepared forget: busy');
is(answer("COMMIT PREPARED 'f'"), '', 'prepared forget: finished');
is(answer("SELECT outcome, token > $token + 1 FROM fencing_acquire('born prepared', $owner_b)"), 'acquired|t', 'prepared forget: a higher token');

is(answer('SELECT count(*) FROM pg_prepared_xacts'), '0', 'nothing is left prepared');
is(answer(q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}), '0', 'no lock is left');

$node->stop;
done_testing();
