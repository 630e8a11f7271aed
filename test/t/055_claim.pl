# Work that is claimed from a table of the caller's: which form of the query takes
# just the leases that it returns, whatever the plan; and six workers with batches,
# priorities, retries with back-off, poison, leases that are too short, and sessions
# that are killed: each item has its effect exactly once.
#
# FENCING_CLAIM_SECONDS says how long the workers are kept busy, 25 unless set.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use FencingTest;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $workers = 6;
my $seconds = $ENV{FENCING_CLAIM_SECONDS} // 25;

my $node = new_node('main', "fsync = off\nautovacuum = on\nautovacuum_naptime = 2s\nlog_statement = none\nlog_autovacuum_min_duration = -1\n");

#
# The query.  LIMIT ends the calls, and what stands above it may do as it likes.
#
$node->safe_psql('postgres', q{
	CREATE TABLE todo (id bigint PRIMARY KEY, priority int NOT NULL, done boolean NOT NULL DEFAULT false);
	INSERT INTO todo SELECT i, i % 5, i % 7 = 0 FROM generate_series(1, 500) i;
	CREATE TABLE indexed (LIKE todo INCLUDING ALL);
	CREATE INDEX ON indexed (priority, id) WHERE NOT done;
	INSERT INTO indexed SELECT * FROM todo;
	ANALYZE todo, indexed;
});

my $acquire = q{fencing_acquire('todo/' || t.id, gen_random_uuid(), '1 hour') a WHERE a.outcome = 'acquired'};
my $ordered = 'FROM (SELECT id FROM todo WHERE NOT done ORDER BY priority, id';
my $right = "SELECT t.id, a.token $ordered LIMIT 100) t CROSS JOIN LATERAL $acquire LIMIT 10";
my @right = (
	[ 'as it stands', $right ],
	[ 'without a limit within', $right =~ s/ LIMIT 100//r ],
	[ 'in a CTE that is joined', "WITH c AS ($right) SELECT t.id FROM c JOIN todo t USING (id) ORDER BY t.priority DESC" ],
	[ 'in a subquery that is sorted and filtered', "SELECT id FROM ($right) c WHERE token IS NOT NULL ORDER BY id DESC" ],
	[ 'in an UPDATE', "WITH c AS ($right) UPDATE todo t SET priority = t.priority FROM c WHERE t.id = c.id RETURNING t.id" ],
	[ 'prepared, its limit a parameter', 'EXECUTE claim(10)' ],
	[ 'a cursor that is not read to its end', 'FETCH 10 FROM early' ]);
my @wrong = (
	[ 'sorted after the calls', "SELECT t.id FROM todo t CROSS JOIN LATERAL $acquire AND NOT t.done ORDER BY t.priority, t.id LIMIT 10" ],
	[ 'counted after the calls', "SELECT id FROM (SELECT t.id, row_number() OVER (ORDER BY t.priority, t.id DESC) AS n FROM todo t CROSS JOIN LATERAL $acquire AND NOT t.done) c WHERE n <= 10" ]);
my $prepared = "PREPARE claim(int) AS @{[ $right =~ s/LIMIT 10$/LIMIT \$1/r ]}";
my $leases = q{SELECT count(*) AS leases FROM fencing.leases WHERE lease_until > clock_timestamp()};

# How many rows came, and how many leases were taken for them; rolled back.
sub claimed
{
	my ($settings, $query) = @_;
	my @setup = map { "SET LOCAL $_" } split /, /, $settings;
	my @rest = ($query, $leases, 'ROLLBACK');

	unshift @rest, $prepared if $query =~ /EXECUTE/;
	unshift @rest, "DECLARE early CURSOR FOR @{[ $right =~ s/ LIMIT 10$//r ]}" if $query =~ /early/;
	my ($rows, $taken) = (answers($node, 'postgres', 'BEGIN', @setup, @rest))[ -3, -2 ];
	return scalar(split /\n/, $rows), $taken;
}

foreach my $table ('todo', 'indexed')
{
	foreach my $settings ('work_mem = 4096', 'enable_nestloop = off', 'enable_indexscan = off, enable_bitmapscan = off', 'enable_seqscan = off, enable_sort = off',
		'plan_cache_mode = force_generic_plan', 'plan_cache_mode = force_custom_plan',
		'parallel_setup_cost = 0, parallel_tuple_cost = 0, min_parallel_table_scan_size = 0', 'cursor_tuple_fraction = 1')
	{
		my $wrong = '';

		foreach (@right)
		{
			my ($rows, $taken) = claimed($settings, $_->[1] =~ s/\btodo\b(?!\/)/$table/gr);
			$wrong .= "$_->[0]: $rows rows, $taken leases\n" if $rows != 10 || $taken != 10;
		}
		is($wrong, '', "$table, $settings: a lease for each row, and no other");
	}
}
foreach (@wrong)
{
	my ($rows, $taken) = claimed('work_mem = 4096', $_->[1]);
	is("$rows $taken", '10 429', "$_->[0]: leases of all, also of those that nobody is given");
}

# The order is that of the subquery, and what is held is passed over.
is_answers($node, 'postgres', 'in order',
	[ 'the first', "SELECT array_agg(id) FROM ($right) c", '{5,10,15,20,25,30,40,45,50,55}' ],
	[ 'the next', "SELECT array_agg(id) FROM ($right) c", '{60,65,75,80,85,90,95,100,110,115}' ],
	[ 'a limit within that is too low leaves nothing', "SELECT count(*) FROM (@{[ $right =~ s/LIMIT 100/LIMIT 20/r ]}) c", 0 ],
	[ 'leases', $leases, 20 ]);
$node->safe_psql('postgres', 'DROP TABLE todo, indexed; DELETE FROM fencing.leases; DELETE FROM fencing.fences');

#
# The workers.  An attempt is counted, and the next one put off, before the work
# begins: so it counts also if it takes its worker along.
#
my $attempts = 6;
$node->safe_psql('postgres', q{
CREATE TABLE todo (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, priority int NOT NULL, kind text NOT NULL, early boolean NOT NULL DEFAULT false,
	done boolean NOT NULL DEFAULT false, parked text, attempts int NOT NULL DEFAULT 0, not_before timestamptz NOT NULL DEFAULT '-infinity');
CREATE INDEX ON todo (priority, id) WHERE NOT done AND parked IS NULL;
-- nothing in it is unique: what comes twice is to be seen
CREATE TABLE effect (n bigint GENERATED ALWAYS AS IDENTITY, id bigint, token bigint, one int);
CREATE TABLE answer (worker int, step text, outcome text, n bigint, PRIMARY KEY (worker, step, outcome));
CREATE TABLE stop ();

CREATE PROCEDURE feed(n int, first boolean) LANGUAGE sql AS $$
	INSERT INTO todo (priority, kind, early)
	SELECT floor(random() * 3), CASE WHEN dice < 0.02 THEN 'poison' WHEN dice < 0.04 THEN 'slow' ELSE 'plain' END, first
	FROM (SELECT random() AS dice FROM generate_series(1, n)) d $$;

CREATE PROCEDURE told(worker int, step text, outcome text) LANGUAGE sql AS $$
	INSERT INTO answer VALUES (worker, step, outcome, 1) ON CONFLICT ON CONSTRAINT answer_pkey DO UPDATE SET n = answer.n + 1 $$;

CREATE PROCEDURE work(worker int, owner uuid, item bigint, token bigint) LANGUAGE plpgsql AS $$
DECLARE
	job text := 'todo/' || item;
	content jsonb := jsonb_build_object('id', item);
	what text;
	begun record;
	ended record;
BEGIN
	SELECT * INTO begun FROM fencing_commit(job, token, content, step => 'begin', statement => '
		UPDATE todo SET attempts = attempts + (attempts < max_attempts)::int, parked = CASE WHEN attempts >= max_attempts THEN ''attempts'' END,
			not_before = clock_timestamp() + 0.02 * 2 ^ attempts * interval ''1 second''
		WHERE id = ($3 ->> ''id'')::bigint AND NOT done AND parked IS NULL
		RETURNING kind, parked IS NOT NULL AS parked');
	CALL told(worker, 'begin', begun.outcome || CASE WHEN begun.outcome = 'committed' AND begun.result IS NULL THEN ', done already' WHEN begun.result ->> 'parked' = 'true' THEN ', parked' ELSE '' END);
	COMMIT;
	IF begun.outcome <> 'committed' OR begun.result IS NULL OR begun.result ->> 'parked' = 'true' THEN
		RETURN;
	END IF;
	-- longer than its lease lasts: then somebody else may have it
	IF begun.result ->> 'kind' = 'slow' AND random() < 0.5 THEN
		PERFORM pg_sleep(0.3);
	END IF;

	what := 'WITH d AS (UPDATE todo SET done = true WHERE id = ($3 ->> ''id'')::bigint AND NOT done AND parked IS NULL RETURNING id, kind)
		INSERT INTO effect (id, token, one) SELECT id, $2, 1 / (kind <> ''poison'')::int FROM d RETURNING id';
	SELECT * INTO ended FROM fencing_commit(job, token, content, what, report_errors => true);
	CALL told(worker, 'work', ended.outcome || CASE WHEN ended.outcome = 'committed' AND ended.result IS NULL THEN ', nothing written' ELSE '' END);
	IF ended.outcome = 'failed' THEN
		SELECT * INTO ended FROM fencing_commit(job, token, content, step => 'failed', statement => '
			UPDATE todo SET parked = ''failed'' WHERE id = ($3 ->> ''id'')::bigint AND attempts >= max_attempts AND NOT done RETURNING id');
		CALL told(worker, 'failed', ended.outcome || CASE WHEN ended.outcome = 'committed' AND ended.result IS NULL THEN ', again later' ELSE '' END);
	ELSIF ended.outcome = 'committed' AND random() < 0.05 THEN
		-- the reply is lost, and the call comes again
		COMMIT;
		SELECT * INTO ended FROM fencing_commit(job, token, content, what, report_errors => true);
		CALL told(worker, 'again', ended.outcome::text);
	END IF;
	COMMIT;
	IF random() < 0.9 THEN
		PERFORM fencing_release(job, owner, token);
		COMMIT;
	END IF;
END $$;

CREATE PROCEDURE worker(worker int) LANGUAGE plpgsql AS $$
DECLARE
	owner uuid;
	ids bigint[];
	tokens bigint[];
BEGIN
	LOOP
		owner := gen_random_uuid();
		SELECT array_agg(id), array_agg(token) INTO ids, tokens
		FROM (SELECT t.id, a.token
			FROM (SELECT id FROM todo WHERE NOT done AND parked IS NULL AND not_before <= clock_timestamp() ORDER BY priority, id LIMIT 200) t
			CROSS JOIN LATERAL fencing_acquire('todo/' || t.id, owner, '100 ms') a
			WHERE a.outcome = 'acquired' LIMIT 8) c;
		COMMIT;
		IF ids IS NULL THEN
			EXIT WHEN EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'stop'::regclass AND attname = 'now')
				AND NOT EXISTS (SELECT FROM todo WHERE NOT done AND parked IS NULL);
			PERFORM pg_sleep(0.01);
		ELSE
			FOR i IN 1 .. cardinality(ids) LOOP
				CALL work(worker, owner, ids[i], tokens[i]);
			END LOOP;
		END IF;
	END LOOP;
END $$;
} =~ s/max_attempts/$attempts/gr);

sub start
{
	my ($number) = @_;
	my ($out, $err) = ('', '');
	my $handle = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-v', 'ON_ERROR_STOP=1', '-c', "CALL worker($number)" ], '<', \undef, '>', \$out, '2>', \$err);
	return { number => $number, handle => $handle, err => \$err };
}

$node->safe_psql('postgres', 'CALL feed(2000, true)');
my @running = map { start($_) } 1 .. $workers;
my $end = time + $seconds;
my $killed = 0;
my $errors = '';

while (time < $end)
{
	usleep(250_000);
	$killed += $node->safe_psql('postgres', q{SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity WHERE query LIKE 'CALL worker%' ORDER BY random() LIMIT 1) w});
	$node->safe_psql('postgres', 'CALL feed(50, false)');
	foreach my $worker (@running)
	{
		# that it has ended is known only when its output has
		$worker->{handle}->pump_nb;
		next if $worker->{handle}->pumpable;
		$worker->{handle}->finish;
		$errors .= ${ $worker->{err} };
		$worker = start($worker->{number});
	}
}
$node->safe_psql('postgres', 'ALTER TABLE stop ADD COLUMN now int');
await_true($node, 'SELECT NOT EXISTS (SELECT FROM todo WHERE NOT done AND parked IS NULL)', 'nothing is left to do');
$_->{handle}->finish, $errors .= ${ $_->{err} } foreach @running;
is(join("
", grep { /ERROR|PANIC|WARNING/ } split /\n/, $errors), '', 'the workers met no error');

note "$killed killed; ", $node->safe_psql('postgres', q{SELECT count(*) || ' items, ' || sum(attempts) || ' attempts' FROM todo});
note 'answers: ', join '; ', split /\n/, $node->safe_psql('postgres', q{SELECT step || ' ' || outcome || ' ' || sum(n) FROM answer GROUP BY step, outcome ORDER BY step, outcome});

my $said = sub { $node->safe_psql('postgres', qq{SELECT coalesce(sum(n), 0) FROM answer WHERE (step, outcome) IN ($_[0])}) };
cmp_ok($killed, '>', 0, 'some were killed');
cmp_ok($said->(q{('work', 'stale'), ('begin', 'stale')}), '>', 0, 'some were too late');
cmp_ok($said->(q{('work', 'failed')}), '>', 0, 'some failed');
cmp_ok($said->(q{('again', 'replayed')}), '>', 0, 'some came again');
is($node->safe_psql('postgres', q{SELECT string_agg(DISTINCT step || ' ' || outcome, ', ') FROM answer
	WHERE step || ' ' || outcome !~ '^(begin (committed|committed, done already|committed, parked|stale)|work (committed|stale|failed)|failed (committed|committed, again later|stale)|again replayed)$'}), '', 'nothing else was answered');

is($node->safe_psql('postgres', q{SELECT count(*) FROM todo t WHERE kind <> 'poison' AND (NOT done OR parked IS NOT NULL OR (SELECT count(*) FROM effect e WHERE e.id = t.id) <> 1)}), 0, 'each item that can be done has its effect exactly once');
is($node->safe_psql('postgres', qq{SELECT count(*) FROM todo t WHERE kind = 'poison' AND (done OR parked IS NULL OR attempts <> $attempts OR EXISTS (SELECT FROM effect e WHERE e.id = t.id))}), 0, "each that cannot is parked after $attempts attempts, without an effect");
is($node->safe_psql('postgres', q{SELECT count(*) FROM effect e FULL JOIN (SELECT * FROM fencing.receipts WHERE step = '' AND result IS NOT NULL) r ON r.job_key = 'todo/' || e.id AND r.token = e.token WHERE e.id IS NULL OR r.token IS NULL}), 0, 'an effect stands exactly where a receipt does');
is($node->safe_psql('postgres', q{SELECT count(*) FROM (SELECT avg(n) AS n, lag(avg(n)) OVER (ORDER BY priority) AS before FROM todo JOIN effect USING (id) WHERE early GROUP BY priority) p WHERE n < before}), 0, 'of those that were there at first the urgent ones were done first');
is($node->safe_psql('postgres', q{SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'}), 0, 'no deadlock');
is(join('', grep { /ERROR|PANIC|WARNING|FATAL(?!:  terminating connection due to administrator command)/ } split /^/, slurp_file($node->logfile)), '', 'the log: nothing but who was killed');

# All leases have ended or were released: nothing of the jobs need stay.
await_true($node, 'SELECT count(*) = 0 FROM fencing.leases WHERE lease_until > clock_timestamp()', 'the last leases end');
$node->poll_query_until('postgres', q{WITH p AS MATERIALIZED (SELECT * FROM fencing_purge('jobs', '1 microsecond')) SELECT NOT more FROM p});
$node->poll_query_until('postgres', q{WITH p AS MATERIALIZED (SELECT * FROM fencing_purge('jobs', '1 microsecond')) SELECT NOT more FROM p});
is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM fencing.fences), (SELECT count(*) FROM fencing.leases), (SELECT count(*) FROM fencing.receipts)'), '0|0|0', 'all jobs are forgotten');

$node->stop;
done_testing();
