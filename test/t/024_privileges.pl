# Privileges as they are met by clients with connections of their own: what an
# unprivileged login can and cannot do, what it cannot bring about by settings,
# default privileges or names prepared before the extension was installed, and
# that nothing depends on the installing superuser remaining one.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use FencingTest ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $owner_a = "'00000000-0000-0000-0000-00000000000a'";
my $owner_b = "'00000000-0000-0000-0000-00000000000b'";

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(extra => [ '--encoding=UTF8', '--no-locale' ]);
$node->start;

# Runs calls one after the other in one session of a role, and gives for each
# its output, or the SQLSTATE of its error.
sub answers
{
	my ($db, $role, @calls) = @_;
	my @user = $role ? (extra_params => [ '-U', $role ]) : ();

	my ($ret, $out, $err) = $node->psql($db, join('', map { "$_;\n\\echo sqlstate :SQLSTATE\n" } @calls), on_error_stop => 0, @user);
	my @answers;
	push @answers, $2 eq '00000' ? $1 : $2 while $out =~ /\G(.*?)\n?sqlstate ([0-9A-Z]{5})(?:\n|$)/sg;
	return @answers;
}

# Pairs of call and answer.
sub check
{
	my ($name, $db, $role, @pairs) = @_;
	my (@calls, @expected);

	while (@pairs)
	{
		push @calls, shift @pairs;
		push @expected, shift @pairs;
	}
	my @got = answers($db, $role, @calls);
	is(scalar @got, scalar @calls, "$name: all calls were answered");
	is($got[$_], $expected[$_], "$name: $calls[$_]") foreach 0 .. $#calls;
	return;
}

sub as_superuser
{
	my ($db, $sql) = @_;
	return $node->safe_psql($db, $sql);
}

as_superuser('postgres', q{
	CREATE ROLE installer SUPERUSER LOGIN;
	CREATE ROLE owner LOGIN;
	CREATE ROLE client LOGIN;
	CREATE ROLE admin LOGIN;
	CREATE ROLE web LOGIN;
	CREATE ROLE watcher LOGIN IN ROLE pg_monitor;
	CREATE ROLE team;
	CREATE DATABASE main OWNER owner;
	CREATE DATABASE defaults;
	CREATE DATABASE prepared;
	CREATE DATABASE demoted});

#
# Only a superuser installs; owning the database is not enough.
#
check('owner of the database', 'main', 'owner',
	'CREATE EXTENSION pgcrypto', '',
	'CREATE EXTENSION fencing', '42501',
	'CREATE EXTENSION fencing CASCADE', '42501',
	q{SELECT count(*) FROM pg_namespace WHERE nspname = 'fencing'}, '0');
as_superuser('main', q{CREATE EXTENSION fencing; SELECT fencing_grant('client', 'client'); SELECT fencing_grant('admin', 'admin')});
check('owner of the database, afterwards', 'main', 'owner',
	'DROP EXTENSION fencing', '42501',
	'ALTER EXTENSION fencing UPDATE', '42501',
	'ALTER EXTENSION fencing DROP TABLE fencing.receipts', '42501',
	'DROP SCHEMA fencing CASCADE', '42501',
	'CREATE TABLE fencing.mine (a int)', '42501',
	'SELECT count(*) FROM fencing.fences', '42501',
	'SELECT count(*) FROM fencing.lease_status', '42501',
	"SELECT fencing_acquire('job', $owner_a)", '42501');

#
# A client.
#
my $commit = q{SELECT outcome, result FROM fencing_commit('job', 1, '{"a": 1}', 'SELECT current_user::text AS me')};
check('client', 'main', 'client',
	"SELECT outcome, token FROM fencing_acquire('job', $owner_a, '1 hour')", 'acquired|1',
	"SELECT outcome FROM fencing_renew('job', $owner_a, 1)", 'renewed',
	$commit, 'committed|{"me": "client"}',
	$commit, 'replayed|{"me": "client"}',
	q{SELECT result FROM fencing_receipt('job', 1)}, '{"me": "client"}',
	q{SELECT fencing_revoke('job', 'test')}, '42501',
	q{SELECT fencing_forget('job')}, '42501',
	q{SELECT fencing_advance('external', 1)}, '42501',
	q{SELECT fencing_grant('web', 'client')}, '42501',
	q{SELECT fencing_ungrant('client', 'client')}, '42501',
	'SELECT fencing.epoch_start()', '42501',
	'SELECT entries <= capacity FROM fencing_statement_cache()', 't',
	'SELECT count(*) FROM fencing.leases', '42501',
	q{UPDATE fencing.fences SET token = 0}, '42501',
	'DELETE FROM fencing.receipts', '42501',
	q{INSERT INTO fencing.grants VALUES ('client', 'admin')}, '42501',
	'CREATE OR REPLACE FUNCTION fencing_digest(payload jsonb, digest_version int DEFAULT 1) RETURNS bytea LANGUAGE sql AS $$ SELECT NULL::bytea $$', '42501',
	'ALTER FUNCTION fencing_commit OWNER TO client', '42501',
	'GRANT EXECUTE ON FUNCTION fencing_commit TO web', '',
	q{SELECT bool_or(has_function_privilege('web', oid, 'EXECUTE')) FROM pg_proc WHERE proname = 'fencing_commit'}, 'f',
	"SELECT outcome FROM fencing_acquire('job', $owner_b)", 'held');

# Who has none, and who only watches.
check('no grant', 'main', 'web', $commit, '42501', "SELECT fencing_acquire('web', $owner_a)", '42501', q{SELECT length(fencing_digest('{}'))}, '32',
	'SELECT entries, bytes FROM fencing_statement_cache()', '0|0');
check('pg_monitor', 'main', 'watcher',
	'SELECT job_key, token, live FROM fencing.lease_status', 'job|1|t',
	'SELECT job_key, token FROM fencing.receipt_log', 'job|1',
	'SELECT entries FROM fencing_statement_cache()', '0',
	'SELECT fencing.epoch_start()', '0',
	'SELECT count(*) FROM fencing.receipts', '42501',
	q{SELECT result FROM fencing_receipt('job', 1)}, '42501',
	$commit, '42501');

# Administrator: every function, no table.
check('admin', 'main', 'admin',
	q{SELECT fencing_revoke('job', 'by the administrator')}, '2',
	q{SELECT fencing_grant('web', 'relay')}, '',
	'SELECT count(*) FROM fencing.fences', '42501',
	q{SELECT outcome FROM fencing_advance('external', 3)}, 'advanced',
	q{SELECT fencing_forget('job')}, '');
check('granted by the administrator', 'main', 'web',
	"SELECT outcome FROM fencing_acquire('web', $owner_a)", 'acquired',
	q{SELECT fencing_commit('web', 3, '{}', 'SELECT 1')}, '42501');
check('admin takes it back', 'main', 'admin', q{SELECT fencing_ungrant('web', 'relay')}, '');
check('taken by the administrator', 'main', 'web', "SELECT fencing_renew('web', $owner_a, 3)", '42501');
is(as_superuser('main', 'SELECT job_key, token, reason, revoked_by, client_addr IS NULL FROM fencing.revocations'),
	'job|2|by the administrator|admin|t', 'who revoked, and why');
is(as_superuser('main', 'SELECT role, access FROM fencing.grants ORDER BY 1'), "admin|admin\nclient|client", 'who has what');

# What is taken away is gone for sessions that are open, plans kept or not.
my $session = FencingTest::Session->new($node, 'main', extra_params => [ '-U', 'client' ]);
my $acquire = "SELECT outcome FROM fencing_acquire('open', $owner_a)";
is($session->ask($acquire), 'acquired', 'an open session');
as_superuser('main', q{SELECT fencing_ungrant('client', 'client')});
is($session->ask($acquire), '42501', 'ungranted: refused at once');
as_superuser('main', q{SELECT fencing_grant('client', 'client')});
is($session->ask($acquire), 'renewed', 'granted again: answered at once');
$session->close;

#
# fencing.max_ttl is the administrator's, also before the library is loaded.
#
my $two_days = "SELECT outcome FROM fencing_acquire('ttl', $owner_a, '2 days')";
check('max_ttl, set before the first call', 'main', 'client', 'SET fencing.max_ttl = 999999', '', $two_days, '22023', $two_days, '22023');
check('max_ttl, set after it', 'main', 'client', $two_days, '22023', 'SET fencing.max_ttl = 999999', '42501', $two_days, '22023',
	'ALTER ROLE client SET fencing.max_ttl = 999999', '42501', 'SHOW fencing.max_ttl', '1d');
{
	local $ENV{PGOPTIONS} = '-c fencing.max_ttl=999999';
	check('max_ttl, from the connection', 'main', 'client', $two_days, '22023');
}
as_superuser('postgres', q{ALTER ROLE client IN DATABASE main SET fencing.max_ttl = '2d'});
check('max_ttl, given to the role', 'main', 'client', $two_days, 'acquired');
as_superuser('postgres', 'ALTER ROLE client IN DATABASE main RESET ALL; GRANT SET ON PARAMETER fencing.max_ttl TO client');
check('max_ttl, right to set it given', 'main', 'client', $two_days, '22023', q{SET fencing.max_ttl = '2d'}, '', $two_days, 'renewed');
as_superuser('postgres', 'REVOKE SET ON PARAMETER fencing.max_ttl FROM client');
$node->append_conf('postgresql.conf', q{fencing.max_ttl = '1h'});
$node->reload;
ok($node->poll_query_until('main', q{SELECT current_setting('fencing.max_ttl') IN ('1h', '3600')}), 'max_ttl: reloaded');
check('max_ttl, from the configuration', 'main', 'client', "SELECT fencing_acquire('ttl 2', $owner_a, '61 minutes')", '22023',
	"SELECT outcome FROM fencing_acquire('ttl 2', $owner_a, '60 minutes')", 'acquired');

#
# A wrapper: callers need no grant, the statement runs as the wrapper's owner,
# and what is recorded is who connected.
#
as_superuser('main', q{
	CREATE SCHEMA api;
	GRANT USAGE ON SCHEMA api TO PUBLIC;
	CREATE TABLE api.business (line text, writer text);
	GRANT ALL ON api.business TO client;
	CREATE FUNCTION api.report(token bigint, line text, OUT outcome text, OUT result jsonb) LANGUAGE plpgsql SECURITY DEFINER
	SET search_path = api, public, pg_temp AS $$
	BEGIN
		SELECT c.outcome, c.result INTO report.outcome, report.result
		FROM public.fencing_commit('wrapper', token, jsonb_build_object('line', line),
			'INSERT INTO business VALUES ($3->>''line'', current_user) RETURNING line, writer, session_user AS caller') c;
	END $$;
	ALTER FUNCTION api.report OWNER TO client;
	CREATE FUNCTION api.stop(job text) RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS
		$$ SELECT public.fencing_revoke(job, 'by wrapper') $$;
	ALTER FUNCTION api.stop OWNER TO admin});
my $wrapper_token = as_superuser('main', "SELECT token FROM fencing_acquire('wrapper', $owner_a)");
check('wrapper', 'main', 'web',
	"SELECT * FROM api.report($wrapper_token, 'one')", 'committed|{"line": "one", "caller": "web", "writer": "client"}',
	q{SELECT current_user}, 'web',
	"SELECT * FROM api.report($wrapper_token, 'one')", 'replayed|{"line": "one", "caller": "web", "writer": "client"}',
	"SELECT * FROM api.report($wrapper_token, 'two')", 'conflict|',
	q{SELECT count(*) FROM api.business}, '42501',
	qq{SELECT fencing_commit('wrapper', $wrapper_token, '{"line": "one"}')}, '42501',
	q{SELECT api.stop('wrapper')}, $wrapper_token + 1,
	q{SELECT fencing_revoke('wrapper', 'not by wrapper')}, '42501');
is(as_superuser('main', q{SELECT revoked_by FROM fencing.revocations WHERE job_key = 'wrapper'}), 'web', 'wrapper: recorded is the session user');
is(as_superuser('main', 'SELECT line, writer FROM api.business'), 'one|client', 'wrapper: the row is its owner\'s');

#
# A statement that changes the role: the caller gets what he asked for, and
# the extension is not thrown off by it.
#
as_superuser('main', 'GRANT team TO client');
my $switch_token = as_superuser('main', "SELECT token FROM fencing_acquire('switch', $owner_a)");
check('statement changes the role', 'main', 'client',
	"SELECT outcome, result FROM fencing_commit('switch', $switch_token, '{}', 'SELECT set_config(''role'', ''team'', false) AS role')", 'committed|{"role": "team"}',
	'SELECT session_user, current_user', 'client|team',
	"SELECT outcome FROM fencing_commit('switch', $switch_token, '{}')", '42501',
	'RESET ROLE', '',
	"SELECT outcome, result FROM fencing_commit('switch', $switch_token, '{}')", 'replayed|{"role": "team"}',
	"SELECT outcome FROM fencing_commit('switch', $switch_token, '{}', 'SELECT set_config(''role'', ''admin'', false)', 'admin')", '42501',
	"SELECT outcome FROM fencing_commit('switch', $switch_token, '{}', 'SELECT set_config(''role'', ''team'', true) AS role', 'local')", 'committed',
	'SELECT session_user, current_user', 'client|client',
	"SELECT outcome FROM fencing_commit('switch', $switch_token, '{}', 'SELECT 1 / (set_config(''role'', ''team'', false) = '''')::int', 'error', report_errors => true)", 'failed',
	'SELECT session_user, current_user', 'client|client');
check('statement changes the session', 'main', undef,
	"SELECT outcome FROM fencing_commit('switch', $switch_token, '{}', 'SELECT set_config(''session_authorization'', ''client'', false)', 'session')", 'committed',
	'SELECT session_user, current_user', 'client|client',
	'SELECT count(*) FROM fencing.receipts', '42501');

#
# Traps in the search_path of a login, from its first call on.  They try to
# make it a superuser.
#
as_superuser('main', q{CREATE SCHEMA trap AUTHORIZATION client});
my $traps = q{SET search_path = pg_catalog;
	CREATE FUNCTION trap.spring() RETURNS boolean LANGUAGE plpgsql AS
		$$ BEGIN INSERT INTO trap.sprung VALUES (current_user); EXECUTE 'ALTER ROLE client SUPERUSER'; RETURN true; END $$;
	CREATE TABLE trap.sprung (by text);
	CREATE FUNCTION trap.digest(bytea, text) RETURNS bytea LANGUAGE sql AS $$ SELECT '\x00'::bytea FROM trap.spring() $$;
	CREATE TABLE trap.fences (job_key text, token bigint);
	CREATE TABLE trap.receipts (job_key text, token bigint, step text);
	CREATE TABLE trap.grants (role name, access text);
};
foreach my $type ('text', 'bigint', 'bytea', 'uuid', 'name', 'oid', 'timestamptz')
{
	$traps .= "CREATE FUNCTION trap.compare($type, $type) RETURNS boolean LANGUAGE sql AS \$\$ SELECT trap.spring() \$\$;\n";
	$traps .= "CREATE OPERATOR trap.$_ (LEFTARG = $type, RIGHTARG = $type, FUNCTION = trap.compare);\n" foreach '=', '<>', '<', '<=', '>', '>=';
}
as_superuser('main', "SET SESSION AUTHORIZATION client; $traps");
as_superuser('main', 'ALTER ROLE client SET search_path = trap, pg_catalog, public');
check('traps', 'main', 'client',
	'SELECT 1::bigint = 1::bigint', '42501',
	"SELECT outcome FROM fencing_acquire('trap', $owner_a)", 'acquired',
	"SELECT outcome FROM fencing_renew('trap', $owner_a, (SELECT token FROM fencing_acquire('trap', $owner_a)))", 'renewed',
	"SELECT outcome, result FROM fencing_commit('trap', (SELECT token FROM fencing_acquire('trap', $owner_a)), '{}', 'SELECT 1 AS one')", 'committed|{"one": 1}',
	"SELECT outcome, result FROM fencing_commit('trap', (SELECT token FROM fencing_acquire('trap', $owner_a)), '{}', 'SELECT 1 AS one')", 'replayed|{"one": 1}',
	"SELECT outcome FROM fencing_commit('trap', (SELECT token FROM fencing_acquire('trap', $owner_a)), '[]')", 'conflict',
	"SELECT outcome FROM fencing_release('trap', $owner_a, (SELECT token FROM fencing_acquire('trap', $owner_a)))", 'released',
	"SELECT outcome FROM fencing_acquire('trap', $owner_b)", 'acquired');
as_superuser('postgres', 'ALTER ROLE admin SET search_path = trap, pg_catalog, public');
as_superuser('main', 'GRANT USAGE ON SCHEMA trap TO PUBLIC; GRANT ALL ON ALL TABLES IN SCHEMA trap TO PUBLIC');
check('traps for the administrator', 'main', 'admin',
	q{SELECT fencing_revoke('trap', 'test') IS NOT NULL}, 't',
	q{SELECT fencing_forget('trap')}, '',
	q{SELECT outcome FROM fencing_advance('trap external', 4)}, 'advanced',
	q{SELECT fencing_grant('web', 'relay')}, '',
	q{SELECT fencing_ungrant('web', 'relay')}, '');
as_superuser('postgres', 'ALTER ROLE admin RESET ALL');
$node->safe_psql('main', q{SET search_path = trap, pg_catalog, public;
	SELECT fencing_acquire('trap super', '00000000-0000-0000-0000-00000000000a');
	SELECT job_key FROM fencing.lease_status; SELECT fencing_revoke('trap super', 'test');
	SELECT fencing_forget('trap super'); SELECT fencing_grant('web', 'target'); SELECT fencing_ungrant('web', 'target')});
is(as_superuser('main', 'SELECT count(*) FROM trap.sprung'), '0', 'traps: none was sprung with privileges');
is(as_superuser('main', q{SELECT rolsuper FROM pg_roles WHERE rolname = 'client'}), 'f', 'traps: the client is no superuser');
is(as_superuser('main', 'SELECT (SELECT count(*) FROM trap.fences) + (SELECT count(*) FROM trap.receipts) + (SELECT count(*) FROM trap.grants)'),
	'0', 'traps: the tables are empty');
as_superuser('postgres', 'ALTER ROLE client RESET ALL');

#
# Default privileges of the installing role give nobody anything of the state.
#
as_superuser('defaults', q{
	ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO PUBLIC, client;
	ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO PUBLIC, client;
	ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO PUBLIC, client;
	ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO client;
	CREATE EXTENSION fencing CASCADE});
check('default privileges', 'defaults', 'client',
	'SELECT count(*) FROM fencing.receipts', '42501',
	q{INSERT INTO fencing.grants VALUES ('client', 'admin')}, '42501',
	'UPDATE fencing.fences SET token = 0', '42501',
	q{SELECT nextval('fencing.revocations_id_seq')}, '42501',
	'CREATE TABLE fencing.mine (a int)', '42501',
	q{SELECT fencing_acquire('job', '00000000-0000-0000-0000-00000000000a')}, '42501',
	q{SELECT fencing_grant('client', 'admin')}, '42501');
is( as_superuser('defaults', q{
	SELECT c.relname, a.grantee::regrole, a.privilege_type FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
	WHERE c.relnamespace = 'fencing'::regnamespace AND a.grantee <> c.relowner
	AND NOT (a.grantee = 'pg_monitor'::regrole AND (c.relkind = 'v' OR c.relname = 'revocations') AND a.privilege_type = 'SELECT')}),
	'', 'default privileges: nothing of the state');

#
# Names that somebody put where the extension wants to go: an error, no take-over.
#
as_superuser('prepared', 'CREATE EXTENSION pgcrypto; GRANT CREATE ON SCHEMA public TO PUBLIC');
foreach my $thing (
	[ 'TYPE fencing_outcome', q{CREATE TYPE public.fencing_outcome AS ENUM ('committed')}, '42710' ],
	[ 'FUNCTION fencing_digest(jsonb, int)', 'CREATE FUNCTION public.fencing_digest(jsonb, int) RETURNS bytea LANGUAGE sql AS $$ SELECT NULL::bytea $$', '42723' ],
	[ 'FUNCTION fencing_grant(regrole, text)', 'CREATE FUNCTION public.fencing_grant(regrole, text) RETURNS void LANGUAGE sql AS $$ SELECT $$', '42723' ])
{
	check("$thing->[0] was there", 'prepared', 'client', $thing->[1], '');
	check("$thing->[0] was there", 'prepared', undef,
		'CREATE EXTENSION fencing', $thing->[2],
		q{SELECT count(*) FROM pg_namespace WHERE nspname = 'fencing'}, '0',
		"DROP $thing->[0]", '');
}
# Operators that fit better than those of pg_catalog, wherever the script should
# leave one unqualified: what it calls, it would call as superuser.
my $better = q{CREATE TABLE public.sprung (by text); GRANT ALL ON public.sprung TO PUBLIC;
};
my @better = ('oid, integer', 'integer, oid', 'oid, bigint', 'regrole, oid', 'regclass, oid', 'name, text', 'text, name', '"char", text', 'bigint, integer',
	'bigint, oid', 'regproc, oid', 'regprocedure, oid');
foreach my $types (@better)
{
	my ($left, $right) = split /, /, $types;

	$better .= "CREATE FUNCTION public.better($types) RETURNS boolean LANGUAGE plpgsql AS
		\$\$ BEGIN INSERT INTO public.sprung VALUES (current_user); RETURN true; END \$\$;\n";
	$better .= "CREATE OPERATOR public.$_ (LEFTARG = $left, RIGHTARG = $right, FUNCTION = public.better);\n" foreach '=', '<>', '<', '>';
}
as_superuser('prepared', "SET SESSION AUTHORIZATION client; $better");
check('nothing was there', 'prepared', undef, 'CREATE EXTENSION fencing', '', q{SELECT outcome FROM fencing_acquire('job', '00000000-0000-0000-0000-00000000000a')}, 'acquired');
is(as_superuser('prepared', 'SELECT * FROM public.sprung'), '', 'better operators: none was called');

#
# The superuser who installed it becomes an ordinary role: everything works on,
# also with row security forced upon the owner of the tables.
#
check('installer', 'demoted', 'installer', 'CREATE EXTENSION fencing CASCADE', '', q{SELECT fencing_grant('client', 'client')}, '', q{SELECT fencing_grant('admin', 'admin')}, '');
as_superuser('postgres', 'ALTER ROLE installer NOSUPERUSER');
foreach my $name ('demoted', 'demoted, row security forced')
{
	my $job = $name =~ /forced/ ? 'forced' : 'job';

	check($name, 'demoted', 'client',
		"SELECT outcome FROM fencing_acquire('$job', $owner_a, '1 hour')", 'acquired',
		"SELECT outcome FROM fencing_renew('$job', $owner_a, (SELECT token FROM fencing_acquire('$job', $owner_a)), '1 hour')", 'renewed',
		"SELECT outcome, result FROM fencing_commit('$job', (SELECT token FROM fencing_acquire('$job', $owner_a)), '{}', 'SELECT current_user::text AS me')", 'committed|{"me": "client"}',
		"SELECT outcome, result FROM fencing_commit('$job', (SELECT token FROM fencing_acquire('$job', $owner_a)), '{}')", 'replayed|{"me": "client"}',
		"SELECT outcome FROM fencing_commit('$job', (SELECT token FROM fencing_acquire('$job', $owner_a)), '[]')", 'conflict',
		"SELECT count(*) FROM fencing_receipt('$job', (SELECT token FROM fencing_acquire('$job', $owner_a)))", '1',
		"SELECT outcome FROM fencing_acquire('$job', $owner_b)", 'held',
		'SELECT count(*) FROM fencing.receipts', '42501');
	check($name, 'demoted', 'admin',
		"SELECT fencing_revoke('$job', 'test') > 1", 't',
		"SELECT fencing_forget('$job')", '',
		"SELECT outcome FROM fencing_commit('$job', 1, '{}')", 'pruned',
		"SELECT outcome FROM fencing_advance('external $job', 1)", 'advanced',
		q{SELECT fencing_grant('web', 'relay')}, '',
		q{SELECT fencing_ungrant('web', 'relay')}, '');
	check($name, 'demoted', 'watcher', 'SELECT count(*) FROM fencing.lease_status', '0', 'SELECT count(*) FROM fencing.receipt_log', '0') if $job eq 'job';
	as_superuser('demoted', "ALTER TABLE fencing.$_ ENABLE ROW LEVEL SECURITY; ALTER TABLE fencing.$_ FORCE ROW LEVEL SECURITY")
	  foreach qw(floor fences leases receipts revocations grants);
}

$node->stop;
done_testing();
