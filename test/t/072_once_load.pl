# Ten thousand keys of one tenant, 16 clients, and every key is asked for several
# times at once: exactly one business row, one event and one record per key, no
# deadlock, no error of uniqueness, no error at all.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use FencingTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $keys = $ENV{FENCING_KEYS} // 10000;
my $clients = 16;
my $calls_per_key = 4;

my $node = new_node('main', "fsync = off\nmax_connections = 40\nlog_min_messages = warning\nlog_statement = none\nlog_autovacuum_min_duration = -1\n");
$node->safe_psql('postgres', q{
	CREATE TABLE payment (key text NOT NULL, n bigint, mode text);
	CREATE FUNCTION yes(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS boolean LANGUAGE sql STABLE AS $$ SELECT auth ->> 'who' = 'ann' $$;
	CREATE SEQUENCE call MINVALUE 0;
	SELECT fencing_define_operation('pay', 'yes(text,text,jsonb,jsonb)');
	SELECT fencing_define_request('pay', 1, '{"required": ["n"], "properties": {"n": {"type": "integer"}, "currency": {"type": "string", "default": "EUR"}, "attempt": {"x-fencing": "ignore"}}}');
	CREATE TABLE told (key text, outcome fencing_outcome);
});

# Runs a script so often that each key of a kind is asked for $calls_per_key
# times, by clients next to each other.
sub load
{
	my ($name, $count, $script) = @_;
	my $base = PostgreSQL::Test::Utils::tempdir() . "/$name";
	my $calls = int($count * $calls_per_key / $clients);

	append_to_file("$base.sql", "SELECT n, n / $calls_per_key AS key FROM nextval('call') n \\gset\n$script");
	$node->safe_psql('postgres', 'ALTER SEQUENCE call RESTART');
	my ($out, $err) = run_command([
		'pgbench', '-n', '-c', $clients, '-j', 2, '-t', $calls, '-M', 'prepared', '-f', "$base.sql", '-h', $node->host, '-p', $node->port, 'postgres' ]);
	is(substr(join("\n", grep { /error|abort/i } split /\n/, $err), 0, 2000), '', "$name: no client met an error");
	like($out, qr{number of transactions actually processed: (\d+)/\1\b}, "$name: all calls were made");
	return;
}

sub check
{
	my ($name, $count, $told) = @_;

	is($node->safe_psql('postgres', "SELECT count(*), count(DISTINCT key) FROM payment WHERE mode = '$name'"), "$count|$count", "$name: one row per key");
	is($node->safe_psql('postgres', "SELECT count(*), count(*) FILTER (WHERE responded AND NOT purged AND result IS NOT NULL) FROM fencing.records WHERE key LIKE '$name-%'"), "$count|$count", "$name: one record per key, all answered");
	is($node->safe_psql('postgres', "SELECT count(*), count(DISTINCT aggregateid) FROM fencing.outbox WHERE type = '$name'"), "$count|$count", "$name: one event per key");
	is($node->safe_psql('postgres', "SELECT count(*) FROM fencing.records r JOIN payment p USING (key) WHERE key LIKE '$name-%' AND r.result <> jsonb_build_object('n', p.n, 'event', true)"), '0', "$name: each record has the result of its row");
	is($node->safe_psql('postgres', "SELECT outcome, count(*) FROM told WHERE key LIKE '$name-%' GROUP BY 1 ORDER BY 1"), $told, "$name: what the clients were told");
	return;
}

# One call.  Every attempt spells the request otherwise.
load('call', $keys, <<'EOT');
INSERT INTO told SELECT 'call-' || :key, outcome FROM fencing_once('tenant', 'pay', 'call-' || :key,
	CASE :n::bigint % 3 WHEN 0 THEN jsonb_build_object('n', :key::bigint, 'attempt', :n::bigint) WHEN 1 THEN jsonb_build_object('currency', 'EUR', 'n', :key::bigint) ELSE jsonb_build_object('n', :key::numeric(20, 5)) END,
	'INSERT INTO payment VALUES ($3, ($4 ->> ''n'')::numeric::bigint, ''call'') RETURNING n, fencing_outbox_emit(''payment'', $3, ''call'', $4) IS NOT NULL AS event', '{"who": "ann"}');
EOT
check('call', $keys, "committed|$keys\nreplayed|" . ($calls_per_key - 1) * $keys);

# Contents that differ: the first one counts, the others conflict.
my $few = $keys / 10;
load('conflict', $few, <<'EOT');
INSERT INTO told SELECT 'conflict-' || :key, outcome FROM fencing_once('tenant', 'pay', 'conflict-' || :key, jsonb_build_object('n', :n::bigint),
	'INSERT INTO payment VALUES ($3, ($4 ->> ''n'')::bigint, ''conflict'') RETURNING n, fencing_outbox_emit(''payment'', $3, ''conflict'', $4) IS NOT NULL AS event', '{"who": "ann"}');
EOT
check('conflict', $few, "committed|$few\nconflict|" . ($calls_per_key - 1) * $few);

# Gate, write, response.  Every fifth first call forgets the response or rolls
# back, so that the key goes to one of those who wait.
load('gate', $few, <<'EOT');
BEGIN;
SELECT outcome, outcome = 'committed' AS mine FROM fencing_once('tenant', 'pay', 'gate-' || :key, jsonb_build_object('n', :key::bigint), NULL, '{"who": "ann"}') \gset
\if :mine
INSERT INTO payment VALUES ('gate-' || :key, :key::bigint, 'gate');
SELECT fencing_outbox_emit('payment', 'gate-' || :key, 'gate', '1');
SELECT fencing_once_respond('tenant', 'pay', 'gate-' || :key, jsonb_build_object('n', :key::bigint, 'event', true));
\endif
\set give_up :n % 20
\if :give_up
INSERT INTO told VALUES ('gate-' || :key, :outcome::fencing_outcome);
COMMIT;
\else
ROLLBACK;
\endif
EOT
is($node->safe_psql('postgres', q{SELECT count(*) = count(DISTINCT key), count(*) > 0 FROM payment WHERE mode = 'gate'}), 't|t', 'gate: one row per key');
is($node->safe_psql('postgres', q{SELECT count(*) FROM (SELECT key FROM payment WHERE mode = 'gate') p FULL JOIN (SELECT key FROM fencing.records WHERE key LIKE 'gate-%') r USING (key) WHERE p.key IS NULL OR r.key IS NULL}), '0', 'gate: a row stands exactly where a record does');
is($node->safe_psql('postgres', q{SELECT count(*) FROM (SELECT key FROM payment WHERE mode = 'gate') p FULL JOIN (SELECT aggregateid FROM fencing.outbox WHERE type = 'gate') e ON e.aggregateid = p.key WHERE p.key IS NULL OR e.aggregateid IS NULL}), '0', 'gate: and an event');
is($node->safe_psql('postgres', q{SELECT count(*) FROM fencing.records WHERE NOT responded}), '0', 'gate: nothing is left unanswered');
is($node->safe_psql('postgres', q{SELECT (SELECT count(*) FROM told WHERE key LIKE 'gate-%' AND outcome = 'committed') = (SELECT count(*) FROM payment WHERE mode = 'gate'), string_agg(DISTINCT outcome::text, ' ' ORDER BY outcome::text) FROM told WHERE key LIKE 'gate-%'}), 't|committed replayed', 'gate: what the clients were told');

# Nothing of all that went wrong and was hidden.
is($node->safe_psql('postgres', q{SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'}), '0', 'no deadlock');
is(join('', grep { /ERROR|FATAL|PANIC|WARNING/ } split /^/, slurp_file($node->logfile)), '', 'the log: no error of uniqueness, no deadlock, nothing else');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}), '0', 'no lock is left');

$node->stop;
done_testing();
