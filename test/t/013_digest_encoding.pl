# What an installation cannot digest, and what it must: a database that is not
# in UTF8, a receipt of a later version, and a payload of 50 MB.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(extra => [ '--encoding=UTF8', '--locale=C' ]);
$node->start;

my $owner = '00000000-0000-4000-8000-000000000013';

#
# Other encodings: refused, whatever the document holds, and nothing else is
# hurt
#
foreach my $encoding ('LATIN1', 'SQL_ASCII')
{
	my $database = lc "db_$encoding";
	$node->safe_psql('postgres',
		"CREATE DATABASE $database TEMPLATE template0 ENCODING '$encoding' LC_COLLATE 'C' LC_CTYPE 'C'");
	$node->safe_psql($database, q{
		CREATE EXTENSION fencing CASCADE;
		CREATE TABLE done (what text);
	});
	my $token = $node->safe_psql($database,
		"SELECT token FROM fencing_acquire('encoding', '$owner')");
	is($token, 1, "$encoding: a lease is given");

	my ($stdout, $stderr) = ('', '');
	$node->psql(
		$database, qq{
\\set VERBOSITY sqlstate
SELECT pg_backend_pid() AS pid \\gset
SELECT fencing_canonical('{"a":1}');
SELECT fencing_canonical('1');
SELECT fencing_digest('{"a":1}');
SELECT fencing_digest('{"a":"\\u0041"}', 1);
SELECT outcome FROM fencing_commit('encoding', $token, '{"a":1}', 'INSERT INTO done VALUES (\$1)');
BEGIN;
SELECT outcome FROM fencing_commit('encoding', $token, '{"a":1}');
ROLLBACK;
SELECT 'same backend', pg_backend_pid() = :pid;
SELECT 'null', fencing_canonical(NULL) IS NULL, fencing_digest(NULL) IS NULL;
SELECT 'receipts', count(*) FROM fencing.receipts;
SELECT 'receipt', count(*) FROM fencing_receipt('encoding', $token);
SELECT 'done', count(*) FROM done;
SELECT 'renew', outcome, token FROM fencing_renew('encoding', '$owner', $token);
SELECT 'release', fencing_release('encoding', '$owner', $token);
},
		stdout => \$stdout,
		stderr => \$stderr,
		on_error_stop => 0);
	my @states = $stderr =~ /ERROR:\s+(\w+)/g;
	is("@states", join(' ', ('0A000') x 6), "$encoding: canonical, digest and commit are refused");
	unlike($stderr, qr/server closed|FATAL|PANIC/, "$encoding: no crash");
	is( $stdout,
		join("\n",
			'same backend|t', 'null|t|t', 'receipts|0', 'receipt|0', 'done|0',
			"renew|renewed|$token", 'release|released'),
		"$encoding: the backend is healthy and nothing is written");
}

#
# The same server, a database in UTF8.  Its clients may use another encoding.
#
$node->safe_psql('postgres', 'CREATE EXTENSION fencing CASCADE');
is( $node->safe_psql('postgres', q{
		SET client_encoding = 'LATIN1';
		SELECT encode(fencing_digest('"\u00e9"'), 'hex') = encode(sha256('\x22c3a922'), 'hex')}),
	't',
	'UTF8: the encoding of the client does not matter');

#
# A receipt whose digest version this installation does not know
#
$node->safe_psql('postgres', qq{
	CREATE TABLE done (what text);
	SELECT * FROM fencing_acquire('version', '$owner');
	SELECT * FROM fencing_commit('version', 1, '{"a":1}', 'INSERT INTO done VALUES (\$1)');
	UPDATE fencing.receipts SET digest_version = 2 WHERE job_key = 'version';
});
my $log_size = -s $node->logfile;
my ($stdout, $stderr) = ('', '');
$node->psql(
	'postgres', q{
\set VERBOSITY sqlstate
SELECT outcome FROM fencing_commit('version', 1, '{"a":1}', 'INSERT INTO done VALUES ($1)');
SELECT outcome FROM fencing_commit('version', 1, '{"a":2}', 'INSERT INTO done VALUES ($1)');
SELECT outcome FROM fencing_commit('version', 1, '{"a":1}', 'INSERT INTO done VALUES ($1)', strict => true);
SELECT count(*) FROM done;
SELECT digest_version FROM fencing_receipt('version', 1);
},
	stdout => \$stdout,
	stderr => \$stderr,
	on_error_stop => 0);
my @states = $stderr =~ /ERROR:\s+(\w+)/g;
is("@states", 'LF002 LF002 LF002', 'a receipt of an unknown version: neither replayed nor in conflict');
is($stdout, "1\n2", 'it is never run afresh, and can be read');
my @warnings = slurp_file($node->logfile, $log_size) =~ /WARNING:  (.*)/g;
is(scalar @warnings, 3, 'each is a warning in the log of the server');

#
# 50 MB: as one string, as a string that becomes six times as long, as numbers,
# as keys.  What must come out is put together by the server without the
# extension.  The timeout is generous: it tells minutes from seconds.
#
my $mb = 1024 * 1024;
my %large = (
	'one string' => [
		"SELECT to_jsonb(repeat('0123456789', 5 * $mb))",
		"SELECT '\"' || repeat('0123456789', 5 * $mb) || '\"'"
	],
	'controls' => [
		"SELECT to_jsonb(repeat(E'\\x01', 8 * $mb))",
		"SELECT '\"' || repeat('\\u0001', 8 * $mb) || '\"'"
	],
	'numbers' => [
		"SELECT jsonb_agg((i || '00000000.001')::numeric ORDER BY i) FROM generate_series(1000000, 3600000) i",
		"SELECT '[' || string_agg(i || '00000000.001', ',' ORDER BY i) || ']' FROM generate_series(1000000, 3600000) i"
	],
	'keys' => [
		"SELECT jsonb_object_agg('key ' || i, repeat('v', 40)) FROM generate_series(1000000, 1900000) i",
		"SELECT '{' || string_agg('\"key ' || i || '\":\"' || repeat('v', 40) || '\"', ',' ORDER BY i) || '}' FROM generate_series(1000000, 1900000) i"
	]);
foreach my $kind (sort keys %large)
{
	my ($document, $expected) = @{ $large{$kind} };
	my ($octets, $same, $milliseconds) = split /\|/, $node->safe_psql(
		'postgres', qq{
		CREATE TABLE large AS SELECT ($document) AS document;
		CREATE TABLE expected AS SELECT octet_length(e) AS octets, sha256(convert_to(e, 'UTF8')) AS digest FROM ($expected) v(e);
		CREATE TABLE clock AS SELECT clock_timestamp() AS started;
		SET statement_timeout = '120s';
		CREATE TABLE got AS SELECT fencing_digest(document) AS digest FROM large;
		RESET statement_timeout;
		SELECT octets, e.digest = g.digest, round(extract(epoch FROM clock_timestamp() - started) * 1000)
		FROM expected e, got g, clock;
		DROP TABLE large, expected, got, clock});
	cmp_ok($octets, '>=', 48 * $mb, "$kind: about 50 MB");
	is($same, 't', "$kind: the digest");
	note "$kind: digest of $octets octets in $milliseconds ms";
}

# The whole way: committed, replayed, and in conflict for the last of 50
# million characters.
is( $node->safe_psql('postgres', qq{
		SET statement_timeout = '120s';
		SELECT token FROM fencing_acquire('large', '$owner') \\gset
		CREATE TABLE payloads AS
		SELECT jsonb_build_object('text', repeat('0123456789', 5 * $mb) || c) AS payload, c FROM (VALUES ('a'), ('b')) v(c);
		SELECT outcome, result FROM payloads, LATERAL fencing_commit('large', :token, payload, 'SELECT length(\$3 ->> ''text'') AS n') WHERE c = 'a';
		SELECT outcome, result FROM payloads, LATERAL fencing_commit('large', :token, payload, 'SELECT length(\$3 ->> ''text'') AS n') WHERE c = 'a';
		SELECT outcome, result FROM payloads, LATERAL fencing_commit('large', :token, payload, 'SELECT length(\$3 ->> ''text'') AS n') WHERE c = 'b';
	}),
	join("\n",
		'committed|{"n": ' . (50 * $mb + 1) . '}',
		'replayed|{"n": ' . (50 * $mb + 1) . '}',
		'conflict|'),
	'a payload of 50 MB: committed, replayed, conflict');

$node->stop;
done_testing();
