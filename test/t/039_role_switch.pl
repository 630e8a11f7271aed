# Whoever a session is before a call, it is afterwards: also if the statement
# changes the role, an error comes in the middle, or in what the extension does
# as the owner of its tables, and whether or not somebody catches that error.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use FencingTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $owner = owner(10);
my $node = new_node('main');

# app may become other, who may do nothing with the extension; keeper is an
# administrator of it and no superuser.
$node->safe_psql('postgres', qq{
CREATE ROLE app LOGIN;
CREATE ROLE other LOGIN;
CREATE ROLE keeper LOGIN;
CREATE ROLE definer;
GRANT other TO app, keeper;
SELECT fencing_grant('app', 'client');
SELECT fencing_grant('definer', 'client');
SELECT fencing_grant('keeper', 'admin');
GRANT ALL ON SCHEMA public TO app, definer;
CREATE TABLE line (text text, by name DEFAULT current_user);
GRANT SELECT, INSERT ON line TO app, other, definer;
SELECT fencing_acquire(job, $owner, '1 day') FROM unnest('{job,inner,locked}'::text[]) job;

-- \$1 says how the role changes, \$2 what comes then
CREATE FUNCTION turn(how text, what text) RETURNS text LANGUAGE plpgsql AS
\$\$BEGIN
	IF how LIKE 'set_config%' THEN
		PERFORM set_config('role', 'other', how = 'set_config local');
	ELSE
		EXECUTE how;
	END IF;
	IF what = 'error' THEN
		RAISE EXCEPTION 'as %', current_user USING ERRCODE = 'TE001';
	ELSIF what = 'sleep' THEN
		PERFORM pg_sleep(600);
	END IF;
	INSERT INTO line VALUES (how);
	RETURN current_user;
END\$\$;

-- what somebody who catches the error is told, and who he is then
CREATE FUNCTION caught(call text) RETURNS text LANGUAGE plpgsql AS
\$\$BEGIN
	EXECUTE call;
	RETURN 'no error';
EXCEPTION WHEN OTHERS OR query_canceled THEN
	RETURN concat_ws(' ', SQLSTATE, session_user, current_user, current_setting('role'));
END\$\$});

# As a login of its own.
sub login
{
	my ($role) = @_;
	return FencingTest::Session->new($node, 'postgres', extra_params => [ '--username', $role ]);
}

my $who = q{SELECT session_user, current_user, current_setting('role')};
my $step = 0;

# Every call is one of a new step.
sub commit
{
	my ($how, $what, $options) = @_;
	$step++;
	return "SELECT outcome, result->>'turn' AS result, error->>'sqlstate' AS error, error->>'message' AS message"
	  . " FROM fencing_commit('job', 1, '{}', 'SELECT turn(''$how'', ''$what'')', step => 'step $step'" . ($options ? ", $options" : '') . ')';
}

# Whether the session may still change its role, which it may not in the middle
# of the owner's work.
sub check_unchanged
{
	my ($session, $expected, $what) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($session->ask($who), $expected, "$what: unchanged");
	is($session->ask("SAVEPOINT s;\nSET LOCAL ROLE other;\nSELECT current_user;\nROLLBACK TO s"), 'other', "$what: and may change");
	is($session->ask($who), $expected, "$what: back again");
	return;
}

# Cancelled while it waits for that, wherever the clock is.
sub cancelled
{
	my ($session, $call, $event, $what) = @_;
	my $pid = $session->pid;

	$session->start($call);
	await_true($node, "SELECT wait_event_type = '$event' FROM pg_stat_activity WHERE pid = $pid", "$what: it is there");
	is(answer($node, "SELECT pg_cancel_backend($pid)"), 't', "$what: cancel");
	return $session->finish;
}

sub quoted
{
	my ($call) = @_;
	return "'" . $call =~ s/'/''/gr . "'";
}

#
# The statement changes the role.
#
my %sessions = (
	'a login' => [ login('app'), 'app|app|none' ],
	'a superuser as app' => [ open_session($node), undef ]);
$sessions{'a superuser as app'}[0]->ask('SET ROLE app');
$sessions{'a superuser as app'}[1] = $sessions{'a superuser as app'}[0]->ask($who);
like($sessions{'a superuser as app'}[1], qr/^(?!app)[^|]*\|app\|app$/, 'a superuser who has become app');

my @ways = ('set_config', 'set_config local', 'SET ROLE other', 'SET LOCAL ROLE other');
foreach my $name (sort keys %sessions)
{
	my ($session, $is) = @{ $sessions{$name} };
	my $is_in_words = $is =~ s/\|/ /gr;

	foreach my $how (@ways)
	{
		my $what = "$name, $how";

		# an error, uncaught
		is($session->ask(commit($how, 'error')), 'TE001', "$what, error");
		is($session->ask($who), $is, "$what, error: unchanged");
		is($session->ask("BEGIN;\nSAVEPOINT a;\n" . commit($how, 'error')), 'TE001', "$what, error in a block");
		is($session->ask("ROLLBACK TO a;\n$who"), $is, "$what, error in a block: unchanged");
		check_unchanged($session, $is, "$what, error in a block");
		# caught, in the same block
		is($session->ask('SELECT caught(' . quoted(commit($how, 'error')) . ')'), "TE001 $is_in_words", "$what, caught");
		check_unchanged($session, $is, "$what, caught");
		# reported
		is($session->ask(commit($how, 'error', 'report_errors => true')), 'failed||TE001|as other', "$what, reported");
		check_unchanged($session, $is, "$what, reported");
		is($session->ask('SELECT caught(' . quoted(commit($how, 'error', 'report_errors => true')) . ')'), 'no error', "$what, reported to a function");
		check_unchanged($session, $is, "$what, reported to a function");
		# cancelled, which is never reported
		foreach my $options ('', 'report_errors => true')
		{
			is(cancelled($session, 'SELECT caught(' . quoted(commit($how, 'sleep', $options)) . ')', 'Timeout', "$what, cancelled"), "57014 $is_in_words", "$what, cancelled");
			check_unchanged($session, $is, "$what, cancelled");
		}
		# the gate still works after all that
		is($session->ask(q{SELECT outcome, result->>'me' FROM fencing_commit('job', 1, '{}', 'SELECT current_user AS me', step => 'after } . "$name $how')"), 'committed|app', "$what: a commit after all that");
		is($session->ask('COMMIT'), '', "$what: committed");
		is($session->ask($who), $is, "$what: the end");
	}

	# Without an error the change is the caller's own doing: it is there after
	# the call, the receipt is written all the same, and it ends as it would
	# have without the call.
	foreach my $how (@ways)
	{
		my $what = "$name, $how, no error";

		my $call = commit($how, 'go on');
		is($session->ask("BEGIN;\n$call"), 'committed|other||', $what);
		is($session->ask('SELECT current_user'), 'other', "$what: the statement's role");
		is($session->ask("SAVEPOINT a;\n" . commit($how, 'go on')), '42501', "$what: which may not call");
		is($session->ask("ROLLBACK TO a;\nCOMMIT;\nSELECT current_user"), $how =~ /local/i ? 'app' : 'other', "$what: after COMMIT");
		is($session->ask($name eq 'a login' ? "RESET ROLE;\n$who" : "SET ROLE app;\n$who"), $is, "$what: reset");
		is($session->ask($call), 'replayed|other||', "$what: its receipt is there");
		is($session->ask($who), $is, "$what: a replay changes nothing");
		is($session->ask("BEGIN;\n" . commit($how, 'go on', 'report_errors => true') . ";\nROLLBACK;\n$who"), "committed|other||\n$is", "$what: rolled back");
	}
	$session->close;
}
is(answer($node, 'SELECT by, count(*) FROM line GROUP BY by'), 'other|8', 'the statements wrote as the role that they took');

#
# Inside a security definer function.
#
$node->safe_psql('postgres', q{
SET ROLE definer;
CREATE FUNCTION as_definer(call text) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS
$$BEGIN
	RETURN caught(call);
END$$;
CREATE FUNCTION fail() RETURNS int LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'as %', current_user USING ERRCODE = 'TE001'; END$$;
});
my $app = login('app');
is($app->ask('BEGIN'), '', 'security definer: a block');
foreach my $case (
	[ 'a role', commit('SET ROLE other', 'error'), '42501' ],
	[ 'a role, reported', commit('SET ROLE other', 'error', 'report_errors => true'), '42501' ],
	[ 'an error', q{SELECT fencing_commit('job', 1, '{}', 'SELECT fail()', step => 'definer')}, 'TE001' ])
{
	my ($name, $call, $state) = @$case;
	is($app->ask('SELECT as_definer(' . quoted($call) . ')'), "$state app definer none", "security definer: $name");
	check_unchanged($app, 'app|app|none', "security definer: $name");
}
is($app->ask('SELECT as_definer(' . quoted(q{SELECT fencing_commit('job', 1, '{}', 'INSERT INTO line VALUES (''definer'') RETURNING by', step => 'definer')}) . ')'),
	'no error', 'security definer: a commit');
is($app->ask(q{COMMIT; SELECT result->>'by' FROM fencing_receipt('job', 1, 'definer')}), 'definer', 'security definer: written as the definer');

#
# The statement's own call of the gate fails, and it goes on.
#
$node->safe_psql('postgres', q{
CREATE FUNCTION nested() RETURNS text LANGUAGE plpgsql AS
$$DECLARE told text;
BEGIN
	told := caught('SELECT fencing_commit(''inner'', 1, ''{}'', ''SELECT turn(''''SET ROLE other'''', ''''error'''')'')');
	PERFORM fencing_commit('inner', 1, '{}', 'SELECT turn(''set_config'', ''error'')', report_errors => true);
	RETURN told || ', then ' || current_user;
END$$});
is($app->ask(q{SELECT outcome, result FROM fencing_commit('job', 1, '{}', 'SELECT nested()', step => 'nested')}),
	'committed|{"nested": "TE001 app app none, then app"}', 'nested: committed');
is($app->ask($who), 'app|app|none', 'nested: unchanged');
is($app->ask(q{SELECT count(*) FROM fencing_receipt('inner', 1)}), '0', 'nested: the inner one left nothing');

#
# The row of the statement becomes jsonb by a cast of its type: as the caller.
#
$node->safe_psql('postgres', q{
CREATE TYPE way AS ENUM ('look', 'turn', 'fine');
CREATE FUNCTION to_json_of(way) RETURNS json LANGUAGE plpgsql AS
$$BEGIN
	IF $1 = 'look' THEN
		PERFORM FROM fencing.receipts;
	ELSIF $1 = 'turn' THEN
		PERFORM set_config('role', 'other', true);
		RAISE EXCEPTION 'as %', current_user USING ERRCODE = 'TE001';
	END IF;
	RETURN to_json(current_user::text);
END$$;
CREATE CAST (way AS json) WITH FUNCTION to_json_of(way)});
my $convert = q{SELECT outcome, result, error->>'sqlstate' FROM fencing_commit('job', 1, '{}', 'SELECT ''%s''::way AS m', step => 'cast', report_errors => %s)};
is($app->ask('BEGIN'), '', 'a cast: a block');
is($app->ask('SELECT caught(' . quoted(sprintf $convert, 'look', 'true') . ')'), '42501 app app none', 'a cast: sees no table of the extension');
check_unchanged($app, 'app|app|none', 'a cast that looks');
is($app->ask('SELECT caught(' . quoted(sprintf $convert, 'turn', 'false') . ')'), 'TE001 app app none', 'a cast: an error');
check_unchanged($app, 'app|app|none', 'a cast that fails');
is($app->ask(sprintf $convert, 'turn', 'true'), 'failed||TE001', 'a cast: an error, reported');
check_unchanged($app, 'app|app|none', 'a cast that fails and is reported');
is($app->ask(sprintf $convert, 'fine', 'true'), 'committed|{"m": "app"}|', 'a cast: as the caller');
is($app->ask("COMMIT;\n$who"), 'app|app|none', 'a cast: unchanged');

#
# Errors in what the extension does as the owner: a superuser breaks its tables.
#
$node->safe_psql('postgres', q{
CREATE FUNCTION break() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN RAISE EXCEPTION 'as %', current_user USING ERRCODE = 'TE001'; END$$;
CREATE TRIGGER break BEFORE INSERT ON fencing.revocations FOR EACH STATEMENT EXECUTE FUNCTION break();
CREATE TRIGGER break BEFORE DELETE ON fencing.receipts FOR EACH STATEMENT EXECUTE FUNCTION break();
SELECT fencing_advance('external', 1);
SELECT fencing_commit('external', 1, '{}', 'SELECT 1');
SELECT fencing_advance('external', 2)});
my $keeper = login('keeper');
my $superuser = answer($node, 'SELECT current_user');
foreach my $call (
	[ 'revoke', q{SELECT fencing_revoke('inner', 'test')} ],
	[ 'new epoch', q{SELECT fencing_new_epoch('test')} ],
	[ 'purge', q{SELECT fencing_purge('receipts', '1 microsecond')} ])
{
	my ($name, $sql) = @$call;

	$keeper->errors;
	is($keeper->ask($sql), 'TE001', "owner, $name: an error");
	like($keeper->errors, qr/ERROR:  as \Q$superuser\E$/m, "owner, $name: it came while he was at work");
	is($keeper->ask($who), 'keeper|keeper|none', "owner, $name: unchanged");
	is($keeper->ask("BEGIN;\nSELECT caught(" . quoted($sql) . ')'), 'TE001 keeper keeper none', "owner, $name: caught");
	check_unchanged($keeper, 'keeper|keeper|none', "owner, $name, caught");
	is($keeper->ask("SAVEPOINT a;\nSELECT count(*) FROM fencing.fences"), '42501', "owner, $name: no privilege is left");
	is($keeper->ask("ROLLBACK TO a;\nCOMMIT;\n$who"), 'keeper|keeper|none', "owner, $name: the end");
}

# Waiting for a lock, in a subtransaction of the extension.
is($app->ask(q{BEGIN; SELECT outcome FROM fencing_commit('locked', 1, '{}', 'SELECT 1')}), 'committed', 'a commit in flight');
foreach my $call ([ 'revoke', q{SELECT fencing_revoke('locked', 'test')} ], [ 'commit', q{SELECT fencing_commit('locked', 1, '{}', 'SELECT 1')} ], [ 'new epoch', q{SELECT fencing_new_epoch('test')} ])
{
	my ($name, $sql) = @$call;

	is($keeper->ask("BEGIN;\nSET LOCAL lock_timeout = 10;\nSELECT caught(" . quoted($sql) . ')'), '55P03 keeper keeper none', "waiting, $name: a timeout");
	check_unchanged($keeper, 'keeper|keeper|none', "waiting, $name");
	is($keeper->ask('SET LOCAL lock_timeout = 0'), '', "waiting, $name: no timeout");
	is(cancelled($keeper, 'SELECT caught(' . quoted($sql) . ')', 'Lock', "waiting, $name, cancelled"), '57014 keeper keeper none', "waiting, $name: cancelled");
	check_unchanged($keeper, 'keeper|keeper|none', "waiting, $name, cancelled");
	is($keeper->ask("COMMIT;\n$who"), 'keeper|keeper|none', "waiting, $name: the end");
}
is($app->ask('COMMIT'), '', 'the commit ends');
$_->close foreach $app, $keeper;

$node->stop;
done_testing();
