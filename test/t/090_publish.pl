# Publishing with many clients at once, with servers that are killed, prepared
# transactions, dumps and standbys: of one version there is one content, and of
# every version one event; nothing that was answered is lost, and of what was
# not, either all or nothing is there.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use FencingTest;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $conf = <<'EOT';
max_connections = 60
max_prepared_transactions = 10
synchronous_commit = off
wal_writer_delay = 10s
restart_after_crash = on
wal_retrieve_retry_interval = 100ms
EOT
my $node = new_node('main', $conf, allows_streaming => 1);
my $helpers = q{
-- outcome, version, and where the document is
CREATE FUNCTION told(outcome fencing_outcome, version bigint, latest bigint) RETURNS text LANGUAGE sql AS $$
SELECT concat_ws(' ', outcome, version, 'of', latest)
$$;
CREATE FUNCTION pub(document text, expected bigint, content text) RETURNS text LANGUAGE sql AS $$
SELECT told(outcome, version, latest_version) FROM fencing_publish(document, expected, to_jsonb(content))
$$;
CREATE FUNCTION back(document text, expected bigint, source bigint) RETURNS text LANGUAGE sql AS $$
SELECT told(outcome, version, latest_version) FROM fencing_publish_rollback(document, expected, source)
$$;
CREATE FUNCTION del(document text, expected bigint) RETURNS text LANGUAGE sql AS $$
SELECT told(outcome, version, latest_version) FROM fencing_publish_delete(document, expected)
$$;
CREATE FUNCTION force(document text, content text) RETURNS text LANGUAGE sql AS $$
SELECT told(outcome, version, latest_version) FROM fencing_publish_force(document, to_jsonb(content), 'has to be')
$$;
CREATE FUNCTION cur(document text) RETURNS text LANGUAGE sql AS $$
SELECT concat_ws(' ', version, kind, coalesce(content #>> '{}', '-')) FROM fencing_publish_current(document)
$$;
CREATE FUNCTION history(document text) RETURNS text LANGUAGE sql AS $$
SELECT string_agg(concat(version, ' ', coalesce(content #>> '{}', '-')), ', ' ORDER BY version) FROM fencing.revisions WHERE document_id = document
$$;
-- whatever does not fit together: versions, events, documents
CREATE VIEW wrong AS
SELECT coalesce(r.document_id, e.aggregateid) AS document_id, coalesce(r.version::text, e.payload->>'version') AS version
FROM (SELECT *, row_number() OVER (PARTITION BY document_id ORDER BY version) AS n FROM fencing.revisions) r
FULL JOIN (SELECT *, row_number() OVER (PARTITION BY aggregateid ORDER BY no) AS n FROM fencing.outbox WHERE aggregatetype = 'document') e
	ON e.aggregateid = r.document_id AND e.n = r.n
WHERE (r.version = r.n AND e.type = r.kind AND e.payload = jsonb_build_object('document_id', r.document_id, 'version', r.version,
		'source_version', r.source_version, 'kind', r.kind, 'digest', encode(r.digest, 'hex'), 'digest_version', r.digest_version, 'revision', r.revision)
	AND r.digest = coalesce(fencing_digest(r.content, r.digest_version), sha256(''))) IS NOT TRUE
UNION ALL
SELECT coalesce(d.document_id, r.document_id), d.version::text
FROM fencing.documents d FULL JOIN (SELECT document_id, max(version) AS version FROM fencing.revisions GROUP BY document_id) r ON r.document_id = d.document_id
WHERE (d.version = r.version) IS NOT TRUE;
CREATE TABLE told (document text, expected bigint, outcome fencing_outcome);
};
$node->safe_psql('postgres', $helpers);

sub sql
{
	my ($sql, $on) = @_;
	return ($on || $node)->safe_psql('postgres', $sql);
}

sub nothing_is_wrong
{
	my ($what, $on) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(sql('SELECT * FROM wrong ORDER BY document_id, version LIMIT 10', $on), '', "$what: every version with its event, without a gap");
	return;
}

# Versions, events and what the clients were told, of one document.
sub counts
{
	my ($document) = @_;
	return sql(qq{SELECT (SELECT count(*) FROM fencing.revisions WHERE document_id = '$document'),
		(SELECT count(*) FROM fencing.outbox WHERE aggregateid = '$document'),
		(SELECT count(*) FROM told WHERE document = '$document' AND outcome = 'committed')});
}

#
# Twenty publishers of one version, let go at the same moment
#
my @publishers = map { open_session($node) } 1 .. 20;
my $gate = open_session($node);
my %rounds = (
	'contents that differ' => [ 10, q{to_jsonb(%d)}, 'committed 1, conflict 19' ],
	'one content' => [ 5, q{'"the same"'}, 'committed 1, replayed 19' ]);
foreach my $what (sort keys %rounds)
{
	my ($rounds, $content, $expected) = @{ $rounds{$what} };

	foreach my $round (0 .. $rounds - 1)
	{
		$gate->ask('SELECT pg_advisory_lock(1)');
		foreach my $n (1 .. @publishers)
		{
			$publishers[ $n - 1 ]->start('BEGIN; SELECT pg_advisory_xact_lock_shared(1); COMMIT; '
				  . sprintf("SELECT outcome FROM fencing_publish('$what', $round, $content)", $n));
		}
		await_true($node, q{SELECT count(*) = 20 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}, "$what, round $round: all of them wait");
		$gate->ask('SELECT pg_advisory_unlock(1)');
		my %answers;
		$answers{ (split /\n/, $_->finish)[-1] }++ foreach @publishers;
		is(join(', ', map { "$_ $answers{$_}" } sort keys %answers), $expected, "$what, round $round: one of them publishes");
		is(sql("SELECT version FROM fencing.documents WHERE document_id = '$what'"), $round + 1, "$what, round $round: one version");
	}
	is(sql("SELECT (SELECT count(*) FROM fencing.revisions WHERE document_id = '$what'), (SELECT count(*) FROM fencing.outbox WHERE aggregateid = '$what')"), "$rounds|$rounds", "$what: as many versions and events");
}
# The first version of documents that nobody has seen.
$_->ask('\set VERBOSITY sqlstate') foreach @publishers;
foreach my $level ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')
{
	foreach my $round (1 .. 3)
	{
		my $document = "new, $level, $round";

		$gate->ask('SELECT pg_advisory_lock(1)');
		$publishers[ $_ - 1 ]->start("BEGIN; SELECT pg_advisory_xact_lock_shared(1); COMMIT; BEGIN ISOLATION LEVEL $level; "
			  . "SELECT outcome FROM fencing_publish('$document', 0, '$_'); COMMIT") foreach 1 .. @publishers;
		await_true($node, q{SELECT count(*) = 20 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}, "$document: all of them wait");
		$gate->ask('SELECT pg_advisory_unlock(1)');
		my %answers;
		foreach my $publisher (@publishers)
		{
			my ($outcome) = $publisher->finish =~ /([a-z]+)/;
			my ($error) = $publisher->errors =~ /ERROR:\s+(\w+)/;
			$answers{ $outcome // $error }++;
		}
		note join ', ', map { "$_ $answers{$_}" } sort keys %answers;
		is($answers{committed}, 1, "$document: one of them publishes");
		is(1 + ($answers{conflict} // 0) + ($level eq 'READ COMMITTED' ? 0 : $answers{40001} // 0), 20, "$document: the others conflict");
	}
}
$_->close foreach @publishers, $gate;
nothing_is_wrong('twenty publishers');

#
# Many rounds without a pause, and a counter that loses no update
#
sub load
{
	my ($name, $script, $transactions, %params) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . "/$name.sql";

	append_to_file($file, $script);
	local $ENV{PGOPTIONS} = '-c default_transaction_isolation=' . ($params{level} // 'read\ committed');
	my ($out, $err) = run_command([
		'pgbench', '-n', '-c', 20, '-j', 2, '-t', $transactions, '-M', 'prepared', '--max-tries', $params{tries} // 1,
		'-f', $file, '-h', $node->host, '-p', $node->port, 'postgres' ]);
	is(substr(join("\n", grep { /error|abort/i } split /\n/, $err), 0, 2000), '', "$name: no client met an error");
	like($out, qr{number of transactions actually processed: (\d+)/\1\b}, "$name: all of them were done");
	return;
}

# Each client goes through the versions one after the other; who lags conflicts.
my $rounds = $ENV{FENCING_PUBLISH_ROUNDS} // 200;
sql('CREATE TABLE round (client int PRIMARY KEY, n bigint); INSERT INTO round SELECT i, 0 FROM generate_series(0, 19) i');
load('rounds', <<'EOT', $rounds);
SELECT n FROM round WHERE client = :client_id \gset
BEGIN;
INSERT INTO told SELECT 'rounds', :n::bigint, outcome FROM fencing_publish('rounds', :n::bigint, jsonb_build_object('by', :client_id::int));
UPDATE round SET n = n + 1 WHERE client = :client_id;
COMMIT;
EOT
is(counts('rounds'), "$rounds|$rounds|$rounds", 'rounds: as many versions and events as successes');
is(sql(q{SELECT outcome, count(*) FROM told WHERE document = 'rounds' GROUP BY 1 ORDER BY 1}), "committed|$rounds\nconflict|" . 19 * $rounds, 'rounds: all others conflict');
is(sql(q{SELECT count(*) FROM (SELECT expected FROM told WHERE document = 'rounds' AND outcome = 'committed' GROUP BY 1 HAVING count(*) = 1) x}), $rounds, 'rounds: one success of each version');

my $read_and_add = <<'EOT';
SELECT version, content::bigint AS value FROM fencing_publish_current('%1$s') \gset
INSERT INTO told SELECT '%1$s', :version::bigint, outcome FROM fencing_publish('%1$s', :version::bigint, to_jsonb(:value::bigint + 1));
EOT
foreach my $case ([ 'counter', undef ], [ 'counter_rr', 'repeatable\ read' ], [ 'counter_ser', 'serializable' ])
{
	my ($name, $level) = @$case;
	my $script = sprintf $read_and_add, $name;

	sql("SELECT outcome FROM fencing_publish('$name', 0, '0')");
	if ($level)
	{
		# one snapshot for both, and again from the start after 40001
		load($name, "BEGIN;\n${script}COMMIT;\n", 10, level => $level, tries => 10000);
		is(sql("SELECT count(*) FROM told WHERE document = '$name' AND outcome <> 'committed'"), '0', "$name: nothing but committed, or 40001");
	}
	else
	{
		load($name, $script, 50);
	}
	is(sql("SELECT (SELECT content FROM fencing_publish_current('$name'))::bigint = count(*), count(*) > 0 FROM told WHERE document = '$name' AND outcome = 'committed'"), 't|t', "$name: no update is lost");
	is(sql("SELECT count(*) FROM fencing.revisions WHERE document_id = '$name' AND content::bigint <> version - 1"), '0', "$name: nor is one overwritten");
}

# All kinds of versions at once, on a few documents.
load('mixed', <<'EOT', 40);
\set document random(1, 3)
\set kind random(1, 5)
SELECT coalesce(max(version), 0) AS version FROM fencing_publish_current('mixed ' || :document::text) \gset
\if :kind = 1
INSERT INTO told SELECT 'mixed', :version::bigint, outcome FROM fencing_publish_force('mixed ' || :document::text, jsonb_build_object('by', :client_id::int), 'has to be');
\elif :kind = 2 and :version > 0
INSERT INTO told SELECT 'mixed', :version::bigint, outcome FROM fencing_publish_delete('mixed ' || :document::text, :version::bigint);
\else
INSERT INTO told SELECT 'mixed', :version::bigint, outcome FROM fencing_publish('mixed ' || :document::text, :version::bigint, jsonb_build_object('by', :client_id::int));
\endif
EOT
is(sql(q{SELECT (SELECT count(*) FROM told WHERE document = 'mixed' AND outcome = 'committed') = (SELECT count(*) FROM fencing.revisions WHERE document_id LIKE 'mixed %')}), 't', 'mixed: as many versions as successes');
is(sql(q{SELECT string_agg(DISTINCT kind, ' ' ORDER BY kind) FROM fencing.revisions WHERE document_id LIKE 'mixed %'}), 'delete force publish', 'mixed: all kinds');
nothing_is_wrong('load');
is(sql(q{SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'}), '0', 'no deadlock');
is(sql(q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}), '0', 'no lock is left');

#
# Killed in mid-publish
#
sql(q{SELECT pub('k', 0, 'one')});
foreach my $kind ([ 'publish', q{SELECT pub('k', %d, 'killed')} ], [ 'rollback', q{SELECT back('k', %d, 1)} ], [ 'delete', q{SELECT del('k', %d)} ], [ 'force', q{SELECT force('k', 'forced')} ])
{
	my ($name, $call) = @$kind;

	# stopped before the tables that it writes to, and before its end
	foreach my $table ($name eq 'publish' ? ('documents', 'revisions', 'outbox', 'told') : 'outbox')
	{
		my $version = sql(q{SELECT version FROM fencing.documents WHERE document_id = 'k'});
		my $before = sql(q{SELECT history('k')});
		my $publish = sprintf $call, $version;
		my $lock = $table eq 'told' ? $table : "fencing.$table";
		my $locker = open_session($node);
		my $publisher = open_session($node);

		$locker->ask("BEGIN; LOCK TABLE $lock IN SHARE MODE");
		$publisher->start($table eq 'told' ? "BEGIN; $publish; INSERT INTO told VALUES ('k', $version, 'committed'); COMMIT" : $publish);
		await_lock($node, $publisher->pid, "$name: waits for $table");
		is(PostgreSQL::Test::Utils::system_log('pg_ctl', 'kill', 'KILL', $publisher->pid), 0, "$name, $table: killed");
		# only the restart takes the lock from the other session
		ok($node->poll_query_until('postgres', "SELECT NOT EXISTS (SELECT FROM pg_locks WHERE relation = '$lock'::regclass AND mode = 'ShareLock')"), "$name, $table: the server has restarted");
		$_->close foreach $locker, $publisher;
		is(sql(q{SELECT history('k')}), $before, "$name, $table: nothing of it is there");
		nothing_is_wrong("$name, $table");
	}
	my $version = sql(q{SELECT version FROM fencing.documents WHERE document_id = 'k'});
	is(sql(sprintf $call, $version), sprintf('committed %d of %1$d', $version + 1), "$name: the retry is a first call");
}

# The server crashes right after the answer: it counts, with synchronous_commit off.
foreach my $call ([ q{SELECT pub('k', 5, 'six')}, '6 publish six' ], [ q{SELECT back('k', 6, 1)}, '7 rollback one' ], [ q{SELECT del('k', 7)}, '8 delete -' ], [ q{SELECT force('k', 'nine')}, '9 force nine' ],
	[ q{BEGIN; SAVEPOINT s; SELECT pub('k', 9, 'ten'); RELEASE s; SAVEPOINT t; SELECT pub('k', 10, 'lost'); ROLLBACK TO t; COMMIT}, '10 publish ten' ])
{
	my ($publish, $current) = @$call;

	sql($publish);
	$node->stop('immediate');
	$node->start;
	is(sql(q{SELECT cur('k')}), $current, "crash after the answer: $current");
}
nothing_is_wrong('crash after the answer');

# Publishers that are in the middle of it, again and again.
my $workers = 0;

sub start_publishers
{
	my @workers;

	foreach (1 .. 6)
	{
		my $n = ++$workers;
		my $base = PostgreSQL::Test::Utils::tempdir() . "/publisher_$n";
		my $script = '';

		foreach my $i (1 .. 3000)
		{
			my $document = 'crash ' . ($i + $n) % 3;
			$script .= <<"EOT";
SELECT coalesce(max(version), 0) AS expected FROM fencing_publish_current('$document') \\gset
SELECT outcome, version AS made FROM fencing_publish('$document', :expected, '"$n/$i"') \\gset
\\if :{?made}
\\echo :outcome '$document' :made "$n/$i"
\\endif
\\unset made
EOT
		}
		append_to_file("$base.sql", $script);
		push @workers, {
			log => "$base.log",
			run => IPC::Run::start([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-f', "$base.sql" ], '<', \undef, '>', "$base.log", '2>', "$base.err") };
	}
	return @workers;
}

# What they were told, after they were told: [ document, version, content ]
sub published
{
	my (@workers) = @_;
	my @published;

	foreach my $worker (@workers)
	{
		# the last line may have been cut
		push @published, map { /^committed '?(crash \d)'? (\d+) "?([\d\/]+)"?\n\z/ ? [ $1, $2, $3 ] : () } split /^/, slurp_file($worker->{log});
	}
	return @published;
}

foreach my $round (1 .. 4)
{
	my @workers = start_publishers();
	my $tries = 10 * $PostgreSQL::Test::Utils::timeout_default;
	while (published(@workers) < 100)
	{
		die 'the publishers do not get on' if !$tries--;
		select undef, undef, undef, 0.1;
	}
	$node->stop('immediate');
	stop_workers(@workers);
	$node->start;
	my @published = published(@workers);
	is(sql('SELECT count(*) FROM (' . values_list(@published) . ') a (document, version, content)'
			  . ' WHERE NOT EXISTS (SELECT FROM fencing.revisions r WHERE r.document_id = document AND r.version = a.version AND r.content = to_jsonb(a.content))'),
		'0', "crash $round: each of the " . @published . ' versions that were told is there');
	nothing_is_wrong("crash $round");
	is(sql(q{SELECT pub('crash 0', version, 'go on') = format('committed %s of %1$s', version + 1) FROM fencing_publish_current('crash 0')}), 't', "crash $round: and one publishes on");
}

#
# Prepared transactions: publishers without a session, that outlive a restart
#
is(sql(q{SELECT pub('p', 0, 'one'), pub('q', 0, 'one')}), 'committed 1 of 1|committed 1 of 1', 'prepared: two documents');
my $worker = open_session($node);
is($worker->ask(q{BEGIN; SELECT pub('p', 1, 'two'); PREPARE TRANSACTION 'commit'}), 'committed 2 of 2', 'prepared: a publish');
is($worker->ask(q{BEGIN; SELECT back('q', 1, 1); PREPARE TRANSACTION 'rollback'}), 'committed 2 of 2', 'prepared: a rollback');
is($worker->ask(q{BEGIN; SELECT pub('n', 0, 'one'); PREPARE TRANSACTION 'new'}), 'committed 1 of 1', 'prepared: a new document');
is($worker->ask(q{BEGIN; SELECT del('k', 10), pub('n2', 0, 'one'); PREPARE TRANSACTION 'more'}), 'committed 11 of 11|committed 1 of 1', 'prepared: several of them');
$worker->close;

sub is_prepared
{
	my ($what) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is_answers($node, 'postgres', $what,
		[ 'what was there', q{SELECT cur('p'), cur('q'), cur('n')}, '1 publish one|1 publish one|' ],
		[ 'a replay of it', q{SELECT pub('p', 0, 'one'), pub('q', 0, 'two')}, 'replayed 1 of 1|conflict of 1' ],
		[ 'other documents', q{SELECT force('other', 'x') IS NOT NULL}, 't' ],
		[ 'timeout', 'SET lock_timeout = 1', '' ],
		[ 'the same waits', q{SELECT pub('p', 1, 'two')}, '55P03' ],
		[ 'another waits', q{SELECT pub('p', 1, 'other')}, '55P03' ],
		[ 'a rollback waits', q{SELECT back('p', 1, 1)}, '55P03' ],
		[ 'a deletion waits', q{SELECT del('q', 1)}, '55P03' ],
		[ 'a force waits', q{SELECT force('q', 'x')}, '55P03' ],
		[ 'a new document waits', q{SELECT pub('n', 0, 'one')}, '55P03' ],
		[ 'a forced one waits', q{SELECT force('n', 'one')}, '55P03' ],
		[ 'the next version is not known', q{SELECT pub('p', 2, 'three')}, 'LF001' ],
		[ 'read-only', 'SET default_transaction_read_only = on', '' ],
		[ 'nobody can tell', q{SELECT pub('p', 1, 'two')}, '25006' ],
		[ 'nobody can tell of the new one', q{SELECT pub('n', 0, 'one')}, '25006' ]);
	return;
}
is_prepared('prepared');
$node->stop('immediate');
$node->start;
is_prepared('prepared, after a crash');

my @waiting = map { open_session($node) } 1 .. 6;
$waiting[0]->start(q{SELECT pub('p', 1, 'two')});
$waiting[1]->start(q{SELECT pub('p', 1, 'other')});
$waiting[2]->start(q{SELECT pub('q', 1, 'other')});
$waiting[3]->start(q{SELECT pub('n', 0, 'one')});
$waiting[4]->start(q{SELECT pub('n', 0, 'other')});
$waiting[5]->start(q{SELECT force('k', 'forced')});
await_lock($node, $_->pid, 'prepared: a publisher waits') foreach @waiting;
sql(q{COMMIT PREPARED 'commit'});
is($waiting[0]->finish, 'replayed 2 of 2', 'committed: the same is replayed');
is($waiting[1]->finish, 'conflict of 2', 'committed: another conflicts');
sql(q{ROLLBACK PREPARED 'rollback'});
is($waiting[2]->finish, 'committed 2 of 2', 'rolled back: another publishes');
sql(q{COMMIT PREPARED 'new'});
is($waiting[3]->finish, 'replayed 1 of 1', 'new: the same is replayed');
is($waiting[4]->finish, 'conflict of 1', 'new: another conflicts');
sql(q{COMMIT PREPARED 'more'});
is($waiting[5]->finish, 'committed 12 of 12', 'more: a force goes above it');
$_->close foreach @waiting;
is(sql(q{SELECT history('p'), history('q'), history('n'), history('n2')}), '1 one, 2 two|1 one, 2 other|1 one|1 one', 'prepared: what came of it');
nothing_is_wrong('prepared');

#
# Dumped and restored: all of it arrives, and one publishes on above it
#
sql(q{
CREATE ROLE editor;
CREATE ROLE agent;
SELECT fencing_grant('editor', 'publisher'), fencing_grant('agent', 'target');
SELECT fencing_outbox_subscribe('c', false), fencing_acquire('c', md5('r')::uuid, '1 day');
SELECT pub('dump', 0, 'one'), pub('dump', 1, 'two');
SELECT back('dump', 2, 1), del('dump', 3);
SELECT outcome FROM fencing_publish('dump', 4, '{"a": 1.50, "t": "tab\ttab \\\\N é"}', E'a note\n\twith \\\\N and é');
SELECT force('dump', 'six'), pub('gone', 0, 'one'), del('gone', 1);
SELECT fencing_outbox_ack('c', 1, ARRAY(SELECT id FROM fencing_outbox_read('c', 1) WHERE aggregate_id = 'dump' LIMIT 2));
SELECT fencing_target_desire('dump', 'follows'), fencing_target_desire('dump', 'stays', 2)});
my $rows = q{SET timezone = 'UTC'; SELECT * FROM fencing.documents ORDER BY document_id; SELECT * FROM fencing.revisions ORDER BY document_id, version; SELECT * FROM fencing.targets ORDER BY document_id, target_id};
my $before = sql($rows);
my $dump = $node->basedir . '/publish.dump';
$node->command_ok([ 'pg_dump', '--format=custom', "--file=$dump", 'postgres' ], 'pg_dump');

sub check_restored
{
	my ($name, $on, $database) = @_;

	is($on->safe_psql($database, $rows), $before, "$name: all rows arrived");
	is($on->safe_psql($database, 'SELECT * FROM wrong'), '', "$name: they fit together");
	is_answers($on, $database, $name,
		[ 'current', q{SELECT cur('dump'), cur('gone'), cur('p')}, '6 force six|2 delete -|2 publish two' ],
		[ 'by its id', q{SELECT count(*) FROM fencing.revisions r, LATERAL fencing_publish_revision(r.revision) p WHERE p.document_id = r.document_id AND p.version = r.version AND r.document_id = 'dump'}, '6' ],
		[ 'history', q{SELECT string_agg(concat(version, kind, source_version), ' ' ORDER BY version) FROM fencing.revision_history WHERE document_id = 'dump'}, '1publish 2publish 3rollback1 4delete 5publish 6force' ],
		[ 'rollout', q{SELECT string_agg(concat_ws(' ', target_id, desired_version, applied_version), ', ' ORDER BY target_id) FROM fencing.rollout_status}, 'follows 6 0, stays 2 0' ],
		[ 'a replay', q{SELECT outcome FROM fencing_publish('dump', 4, '{"t": "tab\u0009tab \\\\N é", "a": 1.5}')}, 'replayed' ],
		[ 'a conflict', q{SELECT pub('dump', 1, 'other'), pub('gone', 0, 'other')}, 'conflict of 6|conflict of 2' ],
		[ 'never published', q{SELECT pub('dump', 7, 'other')}, 'LF001' ],
		[ 'immutable', q{UPDATE fencing.revisions SET note = NULL}, '42501' ],
		[ 'for ever', q{DELETE FROM fencing.revisions}, '42501' ],
		[ 'all of it', q{TRUNCATE fencing.revisions}, '42501' ],
		[ 'the next version', q{SELECT pub('dump', 6, 'seven')}, 'committed 7 of 7' ],
		[ 'a rollback to what was before', q{SELECT back('dump', 7, 2)}, 'committed 8 of 8' ],
		[ 'above a deletion', q{SELECT pub('gone', 2, 'again')}, 'committed 3 of 3' ],
		[ 'by force', q{SELECT force('dump', 'nine')}, 'committed 9 of 9' ],
		[ 'a new document', q{SELECT pub('after', 0, 'one')}, 'committed 1 of 1' ],
		[ 'a relay', q{SELECT outcome FROM fencing_acquire('c', md5('r')::uuid, '1 day')}, 'acquired' ],
		[ 'events of before and after', q{SELECT string_agg(concat(aggregate_id, payload->'version'), ' ' ORDER BY aggregate_id, (payload->'version')::int) FROM fencing_outbox_read('c', (SELECT token FROM fencing.fences WHERE job_key = 'c'))},
			'after1 dump3 dump4 dump5 dump6 dump7 dump8 dump9 gone1 gone2 gone3' ],
		[ 'a publisher', q{SET ROLE editor; SELECT outcome FROM fencing_publish('after', 1, '"two"')}, 'committed' ],
		[ 'by force he may not', q{SELECT fencing_publish_force('after', '"three"', 'r')}, '42501' ],
		[ 'a target', q{SET ROLE agent; SELECT version FROM fencing_publish_current('after')}, '2' ],
		[ 'he may not publish', q{SELECT fencing_publish('after', 2, '"three"')}, '42501' ]);
	is($on->safe_psql($database, 'SELECT * FROM wrong'), '', "$name: and still fit together");
	return;
}

my $other = PostgreSQL::Test::Cluster->new('other');
$other->init(extra => [ '--encoding=UTF8', '--no-locale' ]);
$other->start;
$other->safe_psql('postgres', 'CREATE ROLE editor; CREATE ROLE agent; CREATE DATABASE target');
$other->command_ok([ 'pg_restore', '--exit-on-error', '--dbname=target', $dump ], 'pg_restore into another cluster');
check_restored('another cluster', $other, 'target');
# once more from there, over itself
my $again = $node->basedir . '/again.dump';
$other->command_ok([ 'pg_dump', '--format=custom', "--file=$again", 'target' ], 'pg_dump of what was restored');
my $there = $other->safe_psql('target', $rows);
$other->command_ok([ 'pg_restore', '--clean', '--if-exists', '--exit-on-error', '--dbname=target', $again ], 'pg_restore --clean');
is($other->safe_psql('target', $rows), $there, 'clean: all rows arrived');
is($other->safe_psql('target', q{SELECT pub('dump', 9, 'ten'), pub('dump', 6, 'seven')}), 'committed 10 of 10|replayed 7 of 10', 'clean: and one publishes on');
$node->safe_psql('postgres', 'CREATE DATABASE copy');
$node->command_ok([ 'pg_restore', '--exit-on-error', '--dbname=copy', $dump ], 'pg_restore into the same cluster');
check_restored('same cluster', $node, 'copy');
$other->stop;
is(sql($rows), $before, 'the source has not moved');

#
# A hot standby: what is known is answered, everything else is 25006
#
my $standby = standby_of($node, 'standby', $conf);
my $reader = open_session($standby);

sub is_there
{
	my ($call, $expected, $what) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($reader->ask($call), $expected, "standby: $what");
	return;
}
foreach my $level ('', 'BEGIN ISOLATION LEVEL REPEATABLE READ')
{
	my @checks = (
		[ q{SELECT pub('dump', 0, 'one'), pub('dump', 2, 'one'), pub('dump', 5, 'six')}, 'replayed 1 of 6|replayed 3 of 6|replayed 6 of 6', 'replayed' ],
		[ q{SELECT pub('dump', 0, 'other'), pub('dump', 3, 'one'), pub('gone', 1, 'one')}, 'conflict of 6|conflict of 6|conflict of 2', 'conflict' ],
		[ q{SELECT back('dump', 2, 1), back('dump', 1, 1)}, 'replayed 3 of 6|conflict of 6', 'rollback' ],
		[ q{SELECT del('dump', 3), del('gone', 1), del('dump', 1)}, 'replayed 4 of 6|replayed 2 of 2|conflict of 6', 'delete' ],
		[ q{SELECT cur('dump'), cur('gone'), cur('none')}, '6 force six|2 delete -|', 'current' ],
		[ q{SELECT count(*) FROM fencing.revisions r, LATERAL fencing_publish_revision(r.revision) p WHERE r.document_id = 'dump'}, '6', 'by its id' ],
		[ q{SELECT string_agg(concat_ws(' ', target_id, desired_version, applied_version), ', ' ORDER BY target_id) FROM fencing.rollout_status}, 'follows 6 0, stays 2 0', 'rollout' ],
		map({ [ "SELECT $_", '25006', $_ ] } q{pub('dump', 6, 'seven')}, q{pub('dump', 7, 'eight')}, q{pub('none', 0, 'one')}, q{pub('none', 1, 'one')},
			q{back('dump', 6, 1)}, q{back('dump', 9, 1)}, q{back('none', 1, 1)}, q{del('dump', 6)}, q{del('dump', 9)}, q{del('none', 1)}, q{force('dump', 'six')}, q{force('none', 'one')},
			q{fencing_target_desire('dump', 'follows')}, q{fencing_target_desire('dump', 'new', 1)}));
	foreach my $check (@checks)
	{
		$reader->ask($level) if $level;
		is_there(@$check);
		$reader->ask('ROLLBACK') if $level;
	}
}
# One that lags does not know what it has not seen.
$standby->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
await_true($standby, q{SELECT pg_get_wal_replay_pause_state() = 'paused'}, 'standby: replay is paused');
is(sql(q{SELECT pub('dump', 6, 'seven')}), 'committed 7 of 7', 'a version that has not arrived');
is_there(q{SELECT pub('dump', 6, 'seven'), cur('dump')}, '25006', 'not there yet');
is_there(q{SELECT pub('dump', 6, 'other')}, '25006', 'whatever the content');
is_there(q{SELECT cur('dump')}, '6 force six', 'the one before it');
$standby->safe_psql('postgres', 'SELECT pg_wal_replay_resume()');
catch_up($node, $standby);
is_there(q{SELECT pub('dump', 6, 'seven'), pub('dump', 6, 'other')}, 'replayed 7 of 7|conflict of 7', 'it has arrived');
# In flight on the primary: nobody waits.
$worker = open_session($node);
$worker->ask(q{BEGIN; SELECT pub('dump', 7, 'eight'), pub('new here', 0, 'one'); PREPARE TRANSACTION 'flight'});
catch_up($node, $standby);
is_there(q{SELECT pub('dump', 7, 'eight')}, '25006', 'in flight');
is_there(q{SELECT pub('new here', 0, 'one')}, '25006', 'a new document in flight');
is_there(q{SELECT pub('dump', 6, 'seven')}, 'replayed 7 of 7', 'what was before');
$worker->close;

# Promoted: versions know nothing of it.
$node->stop('immediate');
$standby->promote;
is($reader->ask(q{SET lock_timeout = 1; SELECT pub('dump', 7, 'eight')}), '55P03', 'promoted: what is prepared is waited for');
$reader->ask('RESET lock_timeout');
sql(q{COMMIT PREPARED 'flight'}, $standby);
is($reader->ask(q{SELECT pub('dump', 7, 'eight'), pub('dump', 7, 'other')}), 'replayed 8 of 8|conflict of 8', 'promoted: committed since');
is($reader->ask(q{SELECT pub('dump', 8, 'nine')}), 'committed 9 of 9', 'promoted: the next version');
is($reader->ask(q{SELECT back('dump', 9, 1)}), 'committed 10 of 10', 'promoted: a rollback to what was before');
is($reader->ask(q{SELECT pub('none', 0, 'one')}), 'committed 1 of 1', 'promoted: a new document');
nothing_is_wrong('promoted', $standby);
is(sql(q{SELECT outcome FROM fencing_acquire('c', md5('r')::uuid, '1 day')}, $standby), 'acquired', 'promoted: a relay');
is(sql(q{SELECT string_agg(payload->>'version', ' ' ORDER BY ordinality) FROM fencing_outbox_read('c', (SELECT token FROM fencing.fences WHERE job_key = 'c')) WITH ORDINALITY WHERE aggregate_id = 'dump'}, $standby),
	'3 4 5 6 7 8 9 10', 'promoted: events in order');
$reader->close;

#
# Digests are of UTF-8
#
$standby->safe_psql('postgres', q{CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'});
$standby->safe_psql('latin', 'CREATE EXTENSION fencing CASCADE');
is_answers($standby, 'latin', 'LATIN1',
	[ 'publish', q{SELECT fencing_publish('d', 0, '"a"')}, '0A000' ],
	[ 'force', q{SELECT fencing_publish_force('d', '"a"', 'r')}, '0A000' ],
	[ 'nothing is there', q{SELECT (SELECT count(*) FROM fencing.revisions) + (SELECT count(*) FROM fencing.documents) + (SELECT count(*) FROM fencing.outbox)}, '0' ]);

$standby->stop;
done_testing();
