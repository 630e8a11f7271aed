# Idempotent operations where one session is not enough to see it: what is in the
# server's log, calls whose backend is killed, prepared transactions, a hot
# standby, a crash, dump and restore.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use FencingTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $conf = <<'EOT';
max_prepared_transactions = 20
restart_after_crash = on
synchronous_commit = off
wal_writer_delay = 10s
log_statement = none
log_min_error_statement = panic
EOT
my $node = new_node('main', $conf, allows_streaming => 1);

# Who may do what, an operation that uses it, and one that logs what it is given.
$node->safe_psql('postgres', q{
	CREATE TABLE payment (key text, content text);
	CREATE TABLE allowed (who text);
	INSERT INTO allowed VALUES ('ann');
	CREATE FUNCTION may(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS boolean LANGUAGE sql STABLE AS
		$$ SELECT EXISTS (SELECT FROM public.allowed a WHERE a.who = auth ->> 'who') $$;
	CREATE FUNCTION talks(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN
		IF auth ->> 'fail' IS NOT NULL THEN
			RAISE EXCEPTION USING errcode = auth ->> 'fail', message = auth::text, detail = auth::text, hint = auth::text;
		END IF;
		RETURN true;
	END $$;
	SELECT fencing_define_operation('pay', 'may(text,text,jsonb,jsonb)', '1 hour', '2 hours'), fencing_define_operation('talk', 'talks(text,text,jsonb,jsonb)');
	SELECT fencing_define_request('pay', 1, '{"required": ["by"], "properties": {"by": {"type": "string"}, "n": {"type": "integer", "default": 1}}}'), fencing_define_request('talk', 1, '{}')});

my $ann = q{'{"who": "ann"}'};

sub once
{
	my ($key, $by, $options) = @_;
	return sprintf q{SELECT outcome, result FROM fencing_once('t', 'pay', '%s', '{"by": "%s"}', 'INSERT INTO payment VALUES ($3, $4 ->> ''by'') RETURNING content', %s%s)},
	  $key, $by // 'A', $ann, $options ? ", $options" : '';
}

sub gate
{
	my ($key, $by) = @_;
	return sprintf q{SELECT outcome, result FROM fencing_once('t', 'pay', '%s', '{"by": "%s"}', NULL, %s)}, $key, $by // 'A', $ann;
}

sub respond
{
	my ($key, $result) = @_;
	return sprintf q{SELECT fencing_once_respond('t', 'pay', '%s', '%s')}, $key, $result // '{"content": "A"}';
}

sub denied
{
	my ($key) = @_;
	return sprintf q{SELECT outcome, result, committed_at, hash_version, error FROM fencing_once('t', 'pay', '%s', '{"by": "A"}', 'SELECT 1', '{"who": "eve"}')}, $key;
}

# records and rows of a key
sub kept
{
	my ($node, $key) = @_;
	return answer($node, "SELECT (SELECT count(*) FROM fencing.records WHERE key = '$key'), (SELECT count(*) FROM payment WHERE key = '$key')");
}

my $first = 'committed|{"content": "A"}';
my $again = 'replayed|{"content": "A"}';

#
# auth is in no line of the log, not even with DEBUG1 and every detail, and not
# in pg_stat_statements.  A denial says the operation and the SQLSTATE, and the
# same for a key that is there as for one that is not.
#
my $statistics = -e (readpipe('pg_config --pkglibdir') =~ s/\s+\z//r) . '/pg_stat_statements.so';
$node->append_conf('postgresql.conf', "log_min_messages = debug1\nlog_error_verbosity = verbose\n"
	  . ($statistics ? "shared_preload_libraries = 'pg_stat_statements'\npg_stat_statements.track = all\n" : ''));
$node->restart;
answer($node, 'CREATE EXTENSION pg_stat_statements') if $statistics;

sub talk
{
	my ($key, $auth, $statement, $options) = @_;
	return sprintf q{SELECT outcome, error ->> 'sqlstate' FROM fencing_once('t', 'talk', '%s', '1', '%s', '%s'%s)}, $key, $statement // 'SELECT 1 AS one', $auth, $options ? ", $options" : '';
}

my $offset = -s $node->logfile;
is_answers($node, 'postgres', 'secret',
	[ 'a first call', talk('there', '{"token": "S3CR3T"}'), 'committed|' ],
	[ 'a replay', talk('there', '{"token": "S3CR3T"}'), 'replayed|' ],
	[ 'raised', talk('there', '{"token": "S3CR3T", "fail": "P0001"}'), 'denied|' ],
	[ 'raised, key absent', talk('absent', '{"token": "S3CR3T", "fail": "P0001"}'), 'denied|' ],
	[ 'raised, of an odd class', talk('there', '{"token": "S3CR3T", "fail": "XX001"}'), 'denied|' ],
	[ 'strict', talk('there', '{"token": "S3CR3T", "fail": "22012"}', undef, 'strict => true'), 'LF005' ],
	[ 'report_errors', talk('there', '{"token": "S3CR3T", "fail": "22012"}', undef, 'report_errors => true'), 'denied|' ],
	[ 'the statement fails', talk('error', '{"token": "S3CR3T"}', 'SELECT 1 / 0, $5'), '22012' ],
	[ 'the statement fails, reported', talk('error', '{"token": "S3CR3T"}', 'SELECT 1 / 0, $5', 'report_errors => true'), 'failed|22012' ],
	[ 'no such operation', q{SELECT fencing_once('t', 'none', 'k', '1', 'SELECT 1', '{"token": "S3CR3T"}')}, '22023' ],
	[ 'NULL', q{SELECT fencing_once('t', 'talk', NULL, '1', 'SELECT 1', '{"token": "S3CR3T"}')}, '22004' ],
	[ 'not a statement', talk('error', '{"token": "S3CR3T"}', 'TRUNCATE payment'), '0A000' ],
	[ 'unknown version', q{UPDATE fencing.records SET hash_version = 9 WHERE key = 'there'}, '' ],
	[ 'its answer', talk('there', '{"token": "S3CR3T"}'), 'LF002' ],
	[ 'known again', q{UPDATE fencing.records SET hash_version = 1 WHERE key = 'there'}, '' ],
	[ 'dropped', 'ALTER FUNCTION talks RENAME TO silent', '' ],
	[ 'dropped: denied', talk('there', '{"token": "S3CR3T"}'), 'denied|' ],
	# a message of ours draws no statement into the log, nor the context of one
	[ 'statements of errors are logged, as by default', 'SET log_min_error_statement = error', '' ],
	[ 'dropped: denied, by default', talk('there', '{"token": "S3CR3T"}'), 'denied|' ],
	[ 'there again, by default', 'ALTER FUNCTION silent RENAME TO talks', '' ],
	[ 'raised, by default', talk('there', '{"token": "S3CR3T", "fail": "22012"}'), 'denied|' ],
	[ 'raised, within a function', q{DO $$ BEGIN EXECUTE format('SELECT fencing_once(''t'', ''talk'', ''there'', ''1'', ''SELECT 1'', %L)', '{"token": "S3CR' || '3T", "fail": "22012"}'); END $$}, '' ],
	# errors that are nobody's verdict go on without what they say, statement and context
	[ 'a serialization failure', talk('there', '{"token": "S3CR3T", "fail": "40001"}'), '40001' ],
	[ 'cancelled', talk('there', '{"token": "S3CR3T", "fail": "57014"}'), '57014' ],
	[ 'within a function', q{DO $$ BEGIN EXECUTE format('SELECT fencing_once(''t'', ''talk'', ''there'', ''1'', ''SELECT 1'', %L)', '{"token": "S3CR' || '3T", "fail": "40001"}'); END $$}, '40001' ],
	[ 'statements are not logged', 'RESET log_min_error_statement', '' ],
	[ 'gone again', 'ALTER FUNCTION talks RENAME TO silent', '' ],
	[ 'there again', 'ALTER FUNCTION silent RENAME TO talks', '' ]);
my ($ret, $out, $err) = $node->psql('postgres', '\set VERBOSITY verbose' . "\n" . talk('there', '{"token": "S3CR3T", "fail": "40P01"}'));
like($err, qr/40P01/, 'secret: a deadlock goes on');
unlike($err, qr/S3CR3T/, 'secret: and says nothing to the client');
my $log = substr(slurp_file($node->logfile), $offset);
is(join('', grep { /S3CR3T/ } split /^/, $log), '', 'secret: it is in no line of the log');
like($log, qr/talk/, 'secret: the log names the operation');
like($log, qr/P0001/, 'secret: and the SQLSTATE');
like($log, qr/WARNING:  LF002:/, 'secret: an unknown version is a WARNING');
SKIP:
{
	skip 'pg_stat_statements is not installed', 2 if !$statistics;
	is(answer($node, q{SELECT count(*) FROM pg_stat_statements WHERE query LIKE '%' || 'S3CR' || '3T%'}), '0', 'secret: it is not in pg_stat_statements');
	is(answer($node, q{SELECT count(*) > 0 FROM pg_stat_statements WHERE query LIKE '%fencing_once%'}), 't', 'secret: where the calls are');
}

# The denials of a key that is there, of one that is absent and of one that is in
# use: the same lines, but for time, process and key.
my $worker = open_session($node);
is($worker->ask("BEGIN;\n" . once('busy')), $first, 'denials: a key is in use');
is(answer($node, once('there')), $first, 'denials: one is there');
my %lines;
foreach my $key ('there', 'absent', 'busy')
{
	$offset = -s $node->logfile;
	is(answer($node, "SET lock_timeout = 1;\n" . denied($key)), 'denied||||', "denials: $key");
	is(answer($node, "SET lock_timeout = 1;\n" . denied($key) =~ s/'\)$/', strict => true)/r), 'LF005', "denials: $key, strict");
	$lines{$key} = join '', map { s/^.*? (?=DEBUG|LOG|INFO|NOTICE|WARNING|ERROR|DETAIL|HINT|CONTEXT|LOCATION)//r =~ s/"$key"/KEY/gr } grep { !/connection|disconnection|process|shmem|checkpoint/ } split /^/, substr(slurp_file($node->logfile), $offset);
}
isnt($lines{there}, '', 'denials: the log has something');
is($lines{absent}, $lines{there}, 'denials: the log of an absent key');
is($lines{busy}, $lines{there}, 'denials: the log of a key in use');

# And the same time: the medians of calls that take turns, ten at a time since a
# clock may count whole microseconds.  A look-up, let alone a wait, on one side
# only would show each time, what else the machine does not.
my %ratio;
foreach my $try (1 .. 5)
{
	my %median = map { split /=/ } split /\n/, answer($node, q{SET client_min_messages = warning;
		CREATE TEMP TABLE took (key text, us numeric);
		DO $$
		DECLARE
			key text;
			started timestamptz;
		BEGIN
			FOR i IN 1 .. 200 LOOP
				FOREACH key IN ARRAY ARRAY['there', 'absent', 'busy'] LOOP
					started := clock_timestamp();
					FOR j IN 1 .. 10 LOOP
						PERFORM outcome FROM fencing_once('t', 'pay', key, '{"by": "A"}', 'SELECT 1', '{"who": "eve"}');
					END LOOP;
					INSERT INTO took VALUES (key, 1e5 * extract(epoch FROM clock_timestamp() - started));
				END LOOP;
			END LOOP;
		END $$;
		SELECT key || '=' || round((percentile_cont(0.5) WITHIN GROUP (ORDER BY us))::numeric, 2) FROM took GROUP BY key});
	diag 'once: medians of denials in microseconds: ' . join ', ', map { "$_ $median{$_}" } sort keys %median;
	%ratio = map { ($_ => $median{$_} / $median{there}) } 'absent', 'busy';
	last if !grep { $_ <= 0.8 || $_ >= 1.25 } values %ratio;
}
foreach my $key (sort keys %ratio)
{
	cmp_ok($ratio{$key}, '>', 0.8, "denials: $key takes as long");
	cmp_ok($ratio{$key}, '<', 1.25, "denials: $key takes no longer");
}
is($worker->ask('ROLLBACK'), '', 'denials: rolled back');

#
# Why a call is denied: the client hears nothing, the log says enough to find it.
# An ordinary no has no line, and what a function raises itself is not repeated.
#
$node->safe_psql('postgres', q{
	CREATE ROLE app;
	SELECT fencing_grant('app', 'client');
	CREATE TABLE secret_list (who text);
	CREATE FUNCTION why(what text) RETURNS text LANGUAGE plpgsql AS $f$
	DECLARE
		bodies jsonb := $j${"false": "RETURN false", "nil": "RETURN NULL", "table": "RETURN EXISTS (SELECT FROM public.secret_list)", "write": "DELETE FROM public.allowed; RETURN true",
			"unqualified": "RETURN EXISTS (SELECT FROM listed)", "function": "RETURN listed(1)", "type": "RETURN auth ->> 0 = auth::listed::text", "temporary": "RETURN EXISTS (SELECT FROM listed)",
			"own": "RAISE EXCEPTION USING errcode = '42501', message = auth::text", "dynamic": "EXECUTE format('SELECT 1 FROM %I', auth ->> 'token'); RETURN true",
			"subfunction": "RETURN public.internal()", "execute": "RETURN true", "gone": "RETURN true", "strict": "RETURN true"}$j$;
	BEGIN
		EXECUTE format('CREATE FUNCTION public.%I(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS boolean LANGUAGE plpgsql AS %L', 'why_' || what, 'BEGIN ' || (bodies ->> what) || '; END');
		PERFORM fencing_define_operation('why ' || what, format('public.%I(text,text,jsonb,jsonb)', 'why_' || what)::regprocedure), fencing_define_request('why ' || what, 1, '{}');
		RETURN what;
	END $f$;
	CREATE FUNCTION internal() RETURNS boolean LANGUAGE sql AS 'SELECT true';
	REVOKE EXECUTE ON FUNCTION internal FROM PUBLIC;
	SELECT why(w) FROM unnest('{false,nil,table,write,unqualified,function,type,temporary,own,dynamic,subfunction,execute,gone,strict}'::text[]) w;
	REVOKE EXECUTE ON FUNCTION why_execute FROM PUBLIC;
	DROP FUNCTION why_gone;
	ALTER FUNCTION why_strict STRICT});
foreach my $case (
	[ 'false', undef, undef ],
	[ 'false', 'null', 'its authorize function public.why_false returned false, and auth is null' ],
	[ 'nil', undef, 'its authorize function public.why_nil returned null' ],
	[ 'nil', 'null', 'its authorize function public.why_nil returned null, and auth is null' ],
	[ 'strict', 'null', 'its authorize function public.why_strict is strict, and auth is null' ],
	[ 'table', undef, 'its authorize function public.why_table raised an error with SQLSTATE 42501: permission denied for table secret_list' ],
	[ 'subfunction', undef, 'its authorize function public.why_subfunction raised an error with SQLSTATE 42501: permission denied for function internal' ],
	[ 'write', undef, 'its authorize function public.why_write raised an error with SQLSTATE 25006: cannot execute DELETE in a read-only transaction' ],
	(map { [ $_, undef, "its authorize function public.why_$_ raised an error with SQLSTATE " . ($_ eq 'unqualified' ? '42P01' : $_ eq 'type' ? '42704' : '42883') . ': are all names in it qualified? It runs with search_path pg_catalog, pg_temp' ] } 'unqualified', 'function', 'type'),
	[ 'temporary', undef, 'its authorize function public.why_temporary raised an error with SQLSTATE 42P01: authorize function reads temporary table "listed"' ],
	[ 'own', undef, 'its authorize function public.why_own raised an error with SQLSTATE 42501' ],
	[ 'dynamic', undef, 'its authorize function public.why_dynamic raised an error with SQLSTATE 42P01: are all names in it qualified? It runs with search_path pg_catalog, pg_temp' ],
	[ 'execute', undef, 'role "app" has no EXECUTE on its authorize function public.why_execute' ],
	[ 'gone', undef, 'its authorize function public.why_gone is not there or not the one it was' ])
{
	my ($what, $auth, $reason) = @$case;
	my $name = "why: $what" . (defined $auth ? ', no auth' : '');
	$offset = -s $node->logfile;
	is( answer(
			$node,
			($what eq 'temporary' ? "CREATE TEMP TABLE listed AS SELECT 1;\nGRANT SELECT ON listed TO app;\n" : '')
			. "SET ROLE app;\nSELECT outcome, error FROM fencing_once('t', 'why $what', 'k', '1', 'SELECT 1', "
			  . ($auth // q{'{"token": "S3CR3T"}'}) . ')'),
		'denied|',
		$name);
	my @reasons = map { /LOG:.*?(operation "why .*)/ ? $1 : () } split /\n/, substr(slurp_file($node->logfile), $offset);
	is(join("\n", @reasons), defined $reason ? qq{operation "why $what" denied: $reason} : '', "$name: the log");

	# the server itself names at DEBUG1 a relation that is not there
	unlike(substr(slurp_file($node->logfile), $offset), qr/S3CR3T/, "$name: auth is not in it")
	  if $what ne 'dynamic';
}
$node->safe_psql('postgres', q{
	DELETE FROM fencing.request_schemas WHERE operation LIKE 'why %';
	DELETE FROM fencing.operations WHERE operation LIKE 'why %';
	SELECT fencing_ungrant('app', 'client');
	DROP ROLE app});

#
# Killed in the middle of a call: the retry is a first call.
#
my $locker = open_session($node);
foreach my $how ('terminated', 'killed')
{
	foreach my $way ([ 'one call', once($how) ], [ 'in a block', "BEGIN;\n" . once($how) ], [ 'gate', "BEGIN;\n" . gate($how) . ";\nINSERT INTO payment VALUES ('$how', 'A')" ])
	{
		my ($name, $call) = @$way;

		is($locker->ask('BEGIN; LOCK TABLE payment IN ACCESS EXCLUSIVE MODE'), '', "$how, $name: the table is locked");
		$worker->start($call);
		await_lock($node, $worker->pid, "$how, $name: in mid-call");
		is(answer($node, denied($how)), 'denied||||', "$how, $name: who is denied does not wait");
		if ($how eq 'killed')
		{
			is(PostgreSQL::Test::Utils::system_log('pg_ctl', 'kill', 'KILL', $worker->pid), 0, "$how, $name: killed");
			await_true($node, q{SELECT NOT EXISTS (SELECT FROM pg_locks WHERE relation = 'payment'::regclass AND mode = 'AccessExclusiveLock')}, "$how, $name: the server has restarted");
			$locker->close;
			$locker = open_session($node);
		}
		else
		{
			is(answer($node, 'SELECT pg_terminate_backend(' . $worker->pid . ', 60000)'), 't', "$how, $name: terminated");
			is($locker->ask('ROLLBACK'), '', "$how, $name: unlocked");
		}
		$worker->close;
		$worker = open_session($node);
		is(kept($node, $how), '0|0', "$how, $name: nothing is there");
	}
	is(answer($node, once($how)), $first, "$how: the retry is a first call");
	is(answer($node, once($how)), $again, "$how: and then replays");
	is(kept($node, $how), '1|1', "$how: one record, one row");
}
is(answer($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}), '0', 'no lock is left');

# A client that goes away with its claim, and one whose reply never arrives.
is($worker->ask("BEGIN;\n" . gate('gone')), 'committed|', 'gone: claimed');
$worker->close;
await_true($node, 'SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = ' . $worker->pid . ')', 'gone: it is away');
is(answer($node, once('gone')), $first, 'gone: a first call');
$worker = open_session($node);
$worker->start(once('unheard'));
await_true($node, q{SELECT EXISTS (SELECT FROM fencing.records WHERE key = 'unheard')}, 'unheard: committed, its reply not read');
is(answer($node, once('unheard')), $again, 'unheard: the retry replays');
is(answer($node, once('unheard', 'B')), 'conflict|', 'unheard: other content conflicts');
is($worker->finish, $first, 'unheard: what it would have been told');
is(kept($node, 'unheard'), '1|1', 'unheard: one record, one row');

#
# Durable when the call has returned, also with synchronous_commit = off.
#
is(answer($node, once('durable')), $first, 'durable: a call');
is($worker->ask("BEGIN;\n" . gate('durable gate') . ";\n" . respond('durable gate') . ";\nCOMMIT"), "committed|\n", 'durable: gate and response');
$_->close foreach $worker, $locker;
$node->stop('immediate');
$node->start;
is(answer($node, once('durable')), $again, 'durable: after a crash');
is(kept($node, 'durable'), '1|1', 'durable: record and row');
is(answer($node, gate('durable gate')), $again, 'durable: the response');

#
# Prepared transactions.
#
($worker, $locker) = map { open_session($node) } 1 .. 2;
is($worker->ask("BEGIN;\n" . gate('prepared')), 'committed|', 'prepared: claimed');
is($worker->ask(q{PREPARE TRANSACTION 'prepared'}), '55000', 'prepared: refused without a response');
is(answer($node, 'SELECT count(*) FROM pg_prepared_xacts'), '0', 'prepared: it is not there');
is(kept($node, 'prepared'), '0|0', 'prepared: nor anything of it');
is($worker->ask('SELECT pg_current_xact_id_if_assigned() IS NULL'), 't', 'prepared: the session goes on');
foreach my $end ('COMMIT', 'ROLLBACK')
{
	my $key = "prepared $end";

	is($worker->ask("BEGIN;\n" . gate($key) . ";\nINSERT INTO payment VALUES ('$key', 'A');\n" . respond($key)), "committed|\n", "$key: claimed and answered");
	is($worker->ask("PREPARE TRANSACTION '$key'"), '', "$key: prepared");
	is_answers($node, 'postgres', $key,
		[ 'who is denied does not wait', denied($key), 'denied||||' ],
		[ 'timeout', 'SET lock_timeout = 1', '' ],
		[ 'the retry waits', once($key), '55P03' ],
		[ 'other content waits', once($key, 'B'), '55P03' ],
		[ 'another key does not', once("beside $key"), $first ],
		[ 'nobody else responds', respond($key), '55000' ]);
	is($worker->ask(respond($key)), '55000', "$key: nor does the session that prepared it");
	is($worker->ask('COMMIT'), '', "$key: the session is outside of it");
	$locker->start(once($key));
	await_lock($node, $locker->pid, "$key: a retry waits");
	is($worker->ask("$end PREPARED '$key'"), '', "$key: $end PREPARED");
	is($locker->finish, $end eq 'COMMIT' ? $again : $first, "$key: the retry");
	is(kept($node, $key), '1|1', "$key: one record, one row");
}
is($worker->ask("BEGIN;\n" . once('prepared call')), $first, 'prepared call: a call with a statement');
is($worker->ask(q{PREPARE TRANSACTION 'call'}), '', 'prepared call: prepared');
$_->close foreach $worker, $locker;
$node->stop('immediate');
$node->start;
is(answer($node, "SET lock_timeout = 1;\n" . once('prepared call')), '55P03', 'prepared call: after a crash the retry waits');
is(answer($node, q{COMMIT PREPARED 'call'}), '', 'prepared call: COMMIT PREPARED');
is(answer($node, once('prepared call')), $again, 'prepared call: replayed');

#
# The extension is dropped in the transaction of a claim: an error or not, and
# the server lives.
#
answer($node, 'CREATE DATABASE dropped');
is_answers($node, 'dropped', 'dropped',
	[ 'created', 'CREATE EXTENSION fencing CASCADE', '' ],
	[ 'a function', q{CREATE FUNCTION yes(text, text, jsonb, jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT true'}, '' ],
	[ 'an operation', q{SELECT fencing_define_operation('o', 'yes(text,text,jsonb,jsonb)'), fencing_define_request('o', 1, '{}')}, '|' ],
	[ 'a claim', q{BEGIN; SELECT outcome FROM fencing_once('t', 'o', 'k', '1')}, 'committed' ],
	[ 'dropped', 'DROP EXTENSION fencing', '' ]);
isnt((answers($node, 'dropped', q{BEGIN; SELECT outcome FROM fencing_once('t', 'o', 'k', '1')}, 'DROP EXTENSION fencing', 'COMMIT', 'SELECT 1'))[-1], undef, 'dropped: the session lives');
is(answer($node, 'SELECT 1', 'dropped'), '1', 'dropped: so does the server');

#
# Hot standby: replays, conflicts, denials and tombstones; 25006 otherwise.
#
is(answer($node, once('old')), $first, 'standby: a record');
answer($node, q{UPDATE fencing.records SET committed_at = clock_timestamp() - interval '90 minutes' WHERE key = 'old'});
is(answer($node, q{SELECT purged FROM fencing_purge('records', '1 minute')}), '1', 'standby: a tombstone');
my $standby = standby_of($node, 'standby', $conf);
is_answers($standby, 'postgres', 'standby',
	[ 'replayed', once('there'), $again ],
	[ 'replayed, gate', gate('durable gate'), $again ],
	[ 'conflict', once('there', 'B'), 'conflict|' ],
	[ 'pruned', once('old'), 'pruned|' ],
	[ 'denied', denied('there'), 'denied||||' ],
	[ 'denied, key absent', denied('absent'), 'denied||||' ],
	[ 'strict conflict', once('there', 'B', 'strict => true'), 'LF005' ],
	[ 'a new key', once('new'), '25006' ],
	[ 'a new key, report_errors', once('new', 'A', 'report_errors => true'), '25006' ],
	[ 'a gate', gate('new'), '25006' ],
	[ 'a response', respond('there'), '25006' ],
	[ 'define_operation', q{SELECT fencing_define_operation('x', 'may(text,text,jsonb,jsonb)')}, '25006' ],
	[ 'define_request', q{SELECT fencing_define_request('pay', 2, '{}')}, '25006' ],
	[ 'retire_request', q{SELECT fencing_retire_request('pay', 1)}, '25006' ],
	[ 'purge', q{SELECT fencing_purge('records', '1 minute')}, '25006' ],
	[ 'canonical text', q{SELECT fencing_request_canonical('pay', 1, '{"by": "A"}')}, '{"by":"A","n":1}' ],
	[ 'status', q{SELECT hash_version, tombstones FROM fencing.operation_status WHERE operation = 'pay'}, '1|1' ]);
# a permission that is taken on the primary, and a version that is defined there, arrive
my $reader = open_session($standby);
is($reader->ask(once('there')), $again, 'standby: a session');
answer($node, q{DELETE FROM allowed});
catch_up($node, $standby);
is($reader->ask(once('there')), 'denied|', 'standby: the permission is taken');
answer($node, q{INSERT INTO allowed VALUES ('ann')});
answer($node, q{SELECT fencing_define_request('pay', 2, '{"properties": {"by": {"type": "string"}, "n": {"type": "integer", "default": 1}, "m": {"default": 0}}}')});
catch_up($node, $standby);
is($reader->ask(q{SELECT outcome FROM fencing_once('t', 'pay', 'there', '{"by": "A", "m": 0}', 'SELECT 1', } . "$ann)"), 'replayed', 'standby: a field of the new version at its default');
is($reader->ask(q{SELECT outcome FROM fencing_once('t', 'pay', 'there', '{"by": "A", "m": 1}', 'SELECT 1', } . "$ann)"), 'conflict', 'standby: another value of it');
$reader->close;
$standby->stop;

#
# Dump and restore: operations with the name of their function, schemas with
# what is retired, records and tombstones.
#
answer($node, once('new version'));
answer($node, q{SELECT fencing_define_request('talk', 2, '{}'), fencing_retire_request('talk', 1)});
my $state = q{SELECT string_agg(t, E'\n' ORDER BY t) FROM (SELECT o::text FROM fencing.operations o
	UNION ALL SELECT (operation, hash_version, request_schema, retired_by <> '0')::text FROM fencing.request_schemas UNION ALL SELECT r::text FROM fencing.records r) s (t)};
my $before = answer($node, $state);
my $dump = $node->basedir . '/dump';
$node->command_ok([ 'pg_dump', '--format=custom', "--file=$dump", 'postgres' ], 'pg_dump');
my $other = new_node('other', $conf);
answer($other, 'CREATE DATABASE target TEMPLATE template0');
$other->command_ok([ 'pg_restore', '--exit-on-error', '--dbname=target', $dump ], 'pg_restore');
is(answer($other, $state, 'target'), $before, 'restored: all rows');
is_answers($other, 'target', 'restored',
	[ 'replayed', once('there'), $again ],
	[ 'replayed, another spelling', q{SELECT outcome FROM fencing_once('t', 'pay', 'there', '{"n": 1.0, "by": "\u0041", "m": 0}', 'SELECT 1', } . "$ann)", 'replayed' ],
	[ 'conflict', once('there', 'B'), 'conflict|' ],
	[ 'pruned', once('old'), 'pruned|' ],
	[ 'denied', denied('there'), 'denied||||' ],
	[ 'version of a record', q{SELECT outcome, hash_version FROM fencing_once('t', 'pay', 'new version', '{"by": "A"}', 'SELECT 1', } . "$ann)", 'replayed|2' ],
	[ 'a new key', once('restored'), $first ],
	[ 'a new key of an operation with a retired version', q{SELECT outcome, hash_version FROM fencing_once('t', 'talk', 'restored', '1', 'SELECT 1', '{}')}, 'committed|2' ],
	[ 'its replay', q{SELECT outcome FROM fencing_once('t', 'talk', 'there', '1', 'SELECT 1', '{}')}, 'replayed' ],
	[ 'gate', "BEGIN;\n" . gate('restored gate') . ";\n" . respond('restored gate') . ";\nCOMMIT", "committed|\n" ],
	[ 'the same definition', q{SELECT fencing_define_request('talk', 2, '{}')}, '' ],
	[ 'another one', q{SELECT fencing_define_request('talk', 2, '{"title": "other"}')}, '22023' ],
	[ 'purge', q{SELECT count(*) FROM fencing_purge('records', '1 minute')}, '1' ],
	[ 'what is retired and used stays', q{SELECT string_agg(operation || ' ' || hash_version, ', ' ORDER BY operation, hash_version) FROM fencing.request_schemas}, 'pay 1, pay 2, talk 1, talk 2' ],
	[ 'records age', q{UPDATE fencing.records SET committed_at = clock_timestamp() - interval '1 year'}, '' ],
	[ 'purge of all', q{SELECT sum(purged) > 0 FROM generate_series(1, 3) i, fencing_purge('records', (i || ' minutes')::interval)}, 't' ],
	[ 'what is in force stays', q{SELECT string_agg(operation || ' ' || hash_version, ', ' ORDER BY operation, hash_version) FROM fencing.request_schemas WHERE retired_by = '0'}, 'pay 1, pay 2, talk 2' ]);
$other->stop;

$node->stop;
done_testing();
