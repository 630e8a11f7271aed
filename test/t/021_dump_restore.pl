# pg_dump and pg_restore: into a new database of the cluster, into another
# cluster, over the source with --clean, and by CREATE DATABASE ... TEMPLATE.
# All state arrives; a place that is new to the state issues 1024 epochs above
# everything that was issued before, and no token of the past is current.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $owner_a = "'00000000-0000-0000-0000-00000000000a'";
my $owner_b = "'00000000-0000-0000-0000-00000000000b'";

# First token of the n-th move to a new place: n times 1024 epochs of 2^36.
sub first_token
{
	my ($moves) = @_;
	return $moves * 1024 * 2**36 + 1;
}
is(first_token(1), '70368744177665', 'first token after one move');

my $node = PostgreSQL::Test::Cluster->new('main');
# Any encoding but UTF8 is refused.
my @initdb = (extra => [ '--encoding=UTF8', '--no-locale' ]);
$node->init(@initdb);
$node->start;

my $other = PostgreSQL::Test::Cluster->new('other');
$other->init(@initdb);
$other->start;

# Runs calls one after the other in one session, and gives for each its output,
# or the SQLSTATE of its error.
sub answers
{
	my ($node, $db, @calls) = @_;

	my ($ret, $out, $err) = $node->psql($db, join('', map { "$_;\n\\echo sqlstate :SQLSTATE\n" } @calls), on_error_stop => 0);
	my @answers;
	push @answers, $2 eq '00000' ? $1 : $2 while $out =~ /\G(.*?)\n?sqlstate ([0-9A-Z]{5})(?:\n|$)/sg;
	return @answers;
}

sub answer
{
	my ($node, $db, $call) = @_;

	return (answers($node, $db, $call))[0];
}

my %tables = (
	fences => 'job_key, token, purged_through, external',
	leases => 'job_key, owner, token, lease_until',
	receipts => 'job_key, token, step, digest, digest_version, result, committed_at',
	revocations => 'id, job_key, token, reason, revoked_by, client_addr, revoked_at',
	grants => 'role, access',
	floor => 'sysid, dboid, reloid, tli, epoch, floor');

sub rows
{
	my ($node, $db, $table) = @_;
	return $node->safe_psql($db, "SET timezone = 'UTC'; SELECT $tables{$table} FROM fencing.$table t ORDER BY t::text");
}

# Everything but the floor row that a new place adds.
sub all_rows
{
	my ($node, $db) = @_;
	return join "\n", map { "$_:\n" . rows($node, $db, $_) } qw(fences leases receipts revocations grants);
}

#
# The source.  Role names that need quotes are among them.
#
foreach my $n ($node, $other)
{
	$n->safe_psql('postgres', q{
		CREATE ROLE app;
		CREATE ROLE "Ops ""team""";
		CREATE ROLE nobody_else});
}
$node->safe_psql('postgres', 'CREATE DATABASE source');
$node->safe_psql('source', qq{
CREATE EXTENSION fencing CASCADE;
CREATE TABLE business (line text, outcome fencing_outcome);
SELECT fencing_grant('app', 'client');
SELECT fencing_grant('app', 'external');
SELECT fencing_grant('"Ops ""team"""', 'admin');
-- a live job with receipts of two tokens and several steps
SELECT fencing_acquire('job', $owner_a, '1 day');
SELECT fencing_commit('job', 1, '{"a": 1.50}', 'INSERT INTO business VALUES (''first'') RETURNING line');
SELECT fencing_release('job', $owner_a, 1);
SELECT fencing_acquire('job', $owner_b, '1 day');
SELECT fencing_commit('job', 2, '{"a": 2}', 'INSERT INTO business VALUES (''second'') RETURNING line', 'Straße');
SELECT fencing_commit('job', 2, '{"a": 3}', 'SELECT NULL::text AS nothing', 'null');
BEGIN;
SELECT fencing_commit('job', 2, '{"a": 4}', step => 'gate');
COMMIT;
-- revoked, forgotten, external
SELECT fencing_acquire('revoked', $owner_a);
SELECT fencing_revoke('revoked', 'first reason');
SELECT fencing_revoke('revoked', 'second reason');
SELECT fencing_acquire('forgotten', $owner_a);
SELECT fencing_revoke('forgotten', 'third reason');
SELECT fencing_commit('forgotten', 1, '{}', 'SELECT 1 AS one');
SELECT fencing_forget('forgotten');
SELECT fencing_advance('external', 500);
SELECT fencing_commit('external', 500, '{"e": 1}', 'SELECT 5 AS five');
-- keys that COPY must quote
SELECT fencing_acquire(E'tab\\tnewline\\nback\\\\slash', $owner_a);
SELECT fencing_acquire('\\N', $owner_a);
});
my $may = q{SELECT string_agg(p.proname, ' ' ORDER BY p.proname) FROM pg_proc p
	WHERE p.proname LIKE 'fencing%%' AND p.proname NOT LIKE 'fencing_guard%%' AND p.proname <> 'fencing_statement_cache' AND p.provolatile <> 'i' AND has_function_privilege(%s, p.oid, 'EXECUTE')};
my $admin_may = $node->safe_psql('source', sprintf $may, q{'Ops "team"'});
like($admin_may, qr/fencing_forget/, 'an administrator may forget');
my $app_may = $node->safe_psql('source', sprintf $may, q{'app'});
like($app_may, qr/fencing_advance.*fencing_commit/, 'a client may commit');
unlike($app_may, qr/fencing_forget/, 'and not forget');
my $before = all_rows($node, 'source');
my $highest = $node->safe_psql('source', 'SELECT max(token) FROM fencing.fences WHERE NOT external');
is($node->safe_psql('source', 'SELECT max(floor) FROM fencing.floor'), '2', 'forget raised the floor');

my $dump = $node->basedir . '/source.dump';
$node->command_ok([ 'pg_dump', '--format=custom', "--file=$dump", 'source' ], 'pg_dump');

#
# What must hold in a place to which the state has moved.
#
sub check_moved
{
	my ($name, $node, $db, $moves) = @_;
	my $first = first_token($moves);
	my @checks;
	my $check = sub { push @checks, [@_] };

	is(all_rows($node, $db), $before, "$name: all rows arrived");
	cmp_ok($first, '>', $highest, "$name: the next token is above every one before");
	$check->('SELECT max(floor) FROM fencing.floor', '2', 'the floor arrived');
	$check->('SELECT fencing.epoch_start()', $first - 1, 'the epoch starts above');

	# Old receipts replay, by every spelling of the content.
	$check->(q{SELECT outcome, result FROM fencing_commit('job', 1, '{"a": 1.5}', 'SELECT 1')},
		'replayed|{"line": "first"}', 'a receipt of the past replays');
	$check->(q{SELECT outcome, result FROM fencing_commit('job', 2, '{"a": 2}', step => 'Straße')},
		'replayed|{"line": "second"}', 'a receipt of the former fence replays');
	$check->(q{SELECT outcome, result FROM fencing_commit('job', 2, '{"a": 4}', step => 'gate')},
		'replayed|', 'a receipt without result replays');
	$check->(q{SELECT outcome FROM fencing_commit('job', 2, '{"a": 5}', step => 'gate')}, 'conflict', 'and conflicts');

	# Old tokens without receipt are of the past, the former holder's as well.
	$check->(q{SELECT outcome FROM fencing_commit('job', 1, '{}', step => 'late')}, 'stale', 'lower token');
	$check->(q{SELECT outcome, result, fence FROM fencing_commit('job', 2, '{}', 'SELECT 1 AS one', 'late')}, 'stale||2', 'token of the fence');
	$check->(q{SELECT outcome FROM fencing_commit('job', 3, '{}')}, 'stale', 'token above the fence, of a former epoch');
	$check->(q{SELECT outcome FROM fencing_commit('forgotten', 1, '{}', 'SELECT 1 AS one')}, 'pruned', 'token of a forgotten job');
	$check->(q{SELECT outcome FROM fencing_commit('never seen', 1000, '{}')}, 'pruned', 'token of a job that is not known');
	$check->(sprintf(q{SELECT outcome FROM fencing_commit('never seen', %s, '{}')}, $first), 'LF001', 'above the epoch\'s start');
	$check->("SELECT outcome, token FROM fencing_renew('job', $owner_b, 2)", 'lost|', 'a lease of the past');
	$check->(q{SELECT live, former_epoch FROM fencing.lease_status WHERE job_key = 'job'}, 't|t', 'whose time was promised');
	$check->("SELECT outcome, token FROM fencing_acquire('job', $owner_a)", 'held|', 'so a challenger waits');

	# The next token, for the holder, a challenger, a new and a forgotten job.
	$check->("SELECT outcome, token FROM fencing_acquire('job', $owner_b, '1 day')", "acquired|$first", 'next token of a job');
	$check->("SELECT outcome, token FROM fencing_acquire('job', $owner_b, '1 day')", "renewed|$first", 'the same again');
	$check->("SELECT outcome, token FROM fencing_acquire('job', $owner_a)", 'held|', 'it is held');
	$check->("SELECT outcome, token FROM fencing_acquire('revoked', $owner_a)", "acquired|$first", 'next token of a revoked job');
	$check->("SELECT outcome, token FROM fencing_acquire('new', $owner_a)", "acquired|$first", 'first token of a new job');
	$check->("SELECT outcome, token FROM fencing_acquire('forgotten', $owner_a)", "acquired|$first", 'first token of a forgotten job');
	$check->('SELECT count(*) FROM fencing.floor', $moves + 1, 'one row per place');
	$check->(q{SELECT outcome FROM fencing_commit('job', 2, '{}', step => 'late')}, 'stale', 'now lower than the fence');
	$check->(sprintf(q{SELECT outcome, result, fence FROM fencing_commit('job', %s, '{"m": 1}', 'INSERT INTO business VALUES (''moved'') RETURNING line')}, $first),
		qq{committed|{"line": "moved"}|$first}, 'a commit with the new token');
	$check->(q{SELECT outcome, result FROM fencing_commit('job', 1, '{"a": 1.5}')},
		'replayed|{"line": "first"}', 'the receipt of the past still replays');
	$check->("SELECT count(DISTINCT token), max(token) FROM fencing.fences WHERE job_key IN ('job', 'new')", "1|$first", 'fences');

	# External numbers belong to somebody else and have no epochs.
	$check->(q{SELECT outcome, result FROM fencing_commit('external', 500, '{"e": 1}')}, 'replayed|{"five": 5}', 'external receipt');
	$check->(q{SELECT outcome FROM fencing_commit('external', 500, '{}', 'SELECT 1 AS one', 'more')}, 'committed', 'external token is current');
	$check->(q{SELECT outcome, fence FROM fencing_advance('external', 501)}, 'advanced|501', 'external job advances');
	$check->(q{SELECT outcome, fence FROM fencing_advance('external', 400)}, 'stale|501', 'and never back');

	# Revocations go on counting.
	$check->(q{SELECT fencing_revoke('new', 'after the move')}, $first + 1, 'revoke');
	$check->(q{SELECT id = (SELECT max(id) FROM fencing.revocations) AND id > 3 FROM fencing.revocations WHERE reason = 'after the move'},
		't', 'numbers of revocations go on');

	# Access arrived, is exact, and can be taken back.
	$check->(sprintf($may, q{'app'}), $app_may, 'client and external');
	$check->(sprintf($may, q{'Ops "team"'}), $admin_may, 'admin');
	$check->(sprintf($may, q{'nobody_else'}), '', 'nobody else');
	$check->("SET ROLE app;\nSELECT outcome FROM fencing_acquire('app', $owner_a)", 'acquired', 'a client');
	$check->('SELECT count(*) FROM fencing.fences', '42501', 'a client and the state');
	$check->("RESET ROLE;\nSELECT fencing_ungrant('app', 'client')", '', 'ungrant client');
	$check->("SELECT fencing_ungrant('app', 'external')", '', 'ungrant external');
	$check->(sprintf($may, q{'app'}), '', 'a client no more');
	$check->(q{SELECT has_table_privilege('pg_monitor', 'fencing.lease_status', 'SELECT') AND has_table_privilege('pg_monitor', 'fencing.receipt_log', 'SELECT')},
		't', 'pg_monitor reads the views');

	my @got = answers($node, $db, map { $_->[0] } @checks);
	is(scalar @got, scalar @checks, "$name: all calls were answered");
	is(shift @got, $_->[1], "$name: $_->[2]") foreach @checks;

	$node->restart;
	is(answer($node, $db, "SELECT outcome, token FROM fencing_acquire('after restart', $owner_a)"), "acquired|$first", "$name: a restart is no move");
	is(answer($node, $db, "SELECT outcome, token FROM fencing_acquire('job', $owner_b)"), "renewed|$first", "$name: and ends no lease");
	return;
}

# A new database of the same cluster.
$node->safe_psql('postgres', 'CREATE DATABASE target');
$node->command_ok([ 'pg_restore', '--exit-on-error', '--dbname=target', $dump ], 'pg_restore');
check_moved('new database', $node, 'target', 1);

# From there once more: the places add up.
my $second_dump = $node->basedir . '/target.dump';
$node->command_ok([ 'pg_dump', '--format=custom', "--file=$second_dump", 'target' ], 'pg_dump of a moved database');
$node->safe_psql('postgres', 'CREATE DATABASE target2');
$node->command_ok([ 'pg_restore', '--exit-on-error', '--dbname=target2', $second_dump ], 'pg_restore of a moved database');
is(answer($node, 'target2', "SELECT outcome, token FROM fencing_acquire('job', $owner_b)"),
	'acquired|' . first_token(2), 'second move: next token');
is(answer($node, 'target2', q{SELECT outcome, result FROM fencing_commit('job', 1, '{"a": 1.5}')}),
	'replayed|{"line": "first"}', 'second move: the oldest receipt replays');
is(answer($node, 'target2', sprintf q{SELECT outcome, result FROM fencing_commit('job', %s, '{"m": 1}')}, first_token(1)),
	'replayed|{"line": "moved"}', 'second move: so does one of between');
is(answer($node, 'target2', sprintf q{SELECT outcome FROM fencing_commit('job', %s, '{}', step => 'late')}, first_token(1)),
	'stale', 'second move: a token of between');

# Another cluster, from a plain dump by psql.
my $script = $node->basedir . '/source.sql';
$node->command_ok([ 'pg_dump', "--file=$script", 'source' ], 'pg_dump as a script');
$other->safe_psql('postgres', 'CREATE DATABASE target');
$other->command_ok([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-f', $script, 'target' ], 'psql in another cluster');
isnt(rows($other, 'target', 'floor'), rows($node, 'source', 'floor'), 'another cluster: a row of its own');
check_moved('another cluster', $other, 'target', 1);

$other->safe_psql('postgres', 'CREATE DATABASE target2');
$other->command_ok([ 'pg_restore', '--single-transaction', '--dbname=target2', $dump ], 'pg_restore in one transaction');
is(all_rows($other, 'target2'), $before, 'in one transaction: all rows arrived');

# The copy of a database file by file.
$node->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE source');
check_moved('template', $node, 'copy', 1);

# The source itself has not moved, whatever was done with its dumps.
is(all_rows($node, 'source'), $before, 'the source is as it was');
is(answer($node, 'source', "SELECT outcome, token FROM fencing_acquire('source only', $owner_a)"), 'acquired|3', 'next token of the source');
is(answer($node, 'source', "SELECT outcome, token FROM fencing_acquire('job', $owner_b, '1 day')"), 'renewed|2', 'its lease lives');

# Over the source with --clean: tokens that were issued after the dump are
# forgotten with the state, and yet none of them comes again.
is(answer($node, 'source', "SELECT fencing_release('job', $owner_b, 2);\nSELECT outcome, token FROM fencing_acquire('job', $owner_a, '1 day')"),
	"released\nacquired|3", 'a token after the dump');
is(answer($node, 'source', q{SELECT outcome FROM fencing_commit('job', 3, '{"lost": 1}', 'SELECT 1 AS one')}), 'committed', 'and a commit');
$node->command_ok([ 'pg_restore', '--clean', '--if-exists', '--exit-on-error', '--dbname=source', $dump ], 'pg_restore --clean');
check_moved('clean', $node, 'source', 1);
is(answer($node, 'source', q{SELECT outcome FROM fencing_commit('job', 3, '{"other": 1}', 'SELECT 1 AS one')}), 'stale', 'clean: the token after the dump');

# Twice over itself.
$node->command_ok([ 'pg_dump', '--format=custom', "--file=$second_dump", 'source' ], 'pg_dump after --clean');
$node->command_ok([ 'pg_restore', '--clean', '--if-exists', '--exit-on-error', '--dbname=source', $second_dump ], 'pg_restore --clean again');
is(answer($node, 'source', "SELECT outcome, token FROM fencing_acquire('job', $owner_b)"),
	'acquired|' . first_token(2), 'clean again: next token');

$other->stop;
$node->stop;
done_testing();
