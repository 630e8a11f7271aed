# The outbox under all that can happen at once: emitters that are slow, roll back and
# prepare; relays that take over from each other, pause, park and take back; a
# consumer whose number of parts changes; purges; and a server that crashes.  At the
# end each consumer has had each committed event exactly once, in the order of its
# aggregate.  As long as you like: FENCING_OUTBOX_SECONDS, else 24.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use FencingTest;
use IPC::Run qw(start);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $seconds = $ENV{FENCING_OUTBOX_SECONDS} || 24;
my $between = 8;                             # seconds from crash to crash
my $folder = PostgreSQL::Test::Utils::tempdir();
my $node = new_node('main', "max_prepared_transactions = 50\nmax_connections = 60\n");
$node->safe_psql('postgres', q{
CREATE TABLE emitted (n bigserial PRIMARY KEY, aggregate text);
CREATE TABLE effects (id bigserial, consumer text, no bigint, n bigint, aggregate text);
CREATE TABLE work (client text PRIMARY KEY, job text, token bigint, ids uuid[]);
CREATE TABLE counts (what text PRIMARY KEY, n bigint);
INSERT INTO counts SELECT what, 0 FROM unnest('{committed,replayed,conflict,stale,divided,gone,parked,back}'::text[]) what;
CREATE FUNCTION tell(t text) RETURNS void LANGUAGE sql AS 'INSERT INTO counts SELECT t || ''/'' || pg_backend_pid(), 1 ON CONFLICT (what) DO UPDATE SET n = counts.n + 1';

-- in the order of the aggregates, with a part that is rolled back now and then
CREATE FUNCTION emit(first int, dice int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE a text; x bigint;
BEGIN
	FOR a IN SELECT g::text FROM generate_series(first, first + dice % 3) g ORDER BY g::text COLLATE "C" LOOP
		INSERT INTO emitted (aggregate) VALUES (a) RETURNING n INTO x;
		PERFORM fencing_outbox_emit('thing', a, 'made', to_jsonb(x));
		BEGIN
			IF dice % 7 = 0 THEN
				INSERT INTO emitted (aggregate) VALUES (a) RETURNING n INTO x;
				PERFORM fencing_outbox_emit('thing', a, 'made', to_jsonb(x));
				RAISE division_by_zero;
			END IF;
		EXCEPTION WHEN division_by_zero THEN NULL;
		END;
	END LOOP;
	IF dice % 20 = 0 THEN PERFORM pg_sleep(0.05); END IF;
END $$;

-- takes a job that has something to do, and remembers what it has read
CREATE FUNCTION relay_read(c text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE j text; t bigint;
BEGIN
	DELETE FROM work WHERE client = c;
	SELECT consumer INTO j FROM fencing.outbox_consumers ORDER BY random() LIMIT 1;
	SELECT token INTO t FROM fencing_acquire(j, md5(c)::uuid, '100 milliseconds') WHERE outcome IN ('acquired', 'renewed');
	IF t IS NOT NULL THEN
		INSERT INTO work SELECT c, j, t, array_agg(id)
		FROM (SELECT id FROM fencing_outbox_read(j, t, 10) WHERE id IS NOT NULL LIMIT 1 + (random() * 9)::int) r;
	END IF;
EXCEPTION WHEN invalid_parameter_value THEN PERFORM tell('gone');
END $$;

-- acknowledges it, and only then does what is to be done
CREATE FUNCTION relay_ack(c text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE w work; o text; parked uuid;
BEGIN
	SELECT * INTO w FROM work WHERE client = c AND ids IS NOT NULL;
	IF NOT FOUND THEN RETURN; END IF;
	IF random() < 0.02 THEN
		PERFORM tell('parked') FROM fencing_outbox_park(w.job, w.token, w.ids[1], 'for a while') WHERE outcome = 'committed';
		RETURN;
	END IF;
	IF random() < 0.1 THEN
		SELECT id INTO parked FROM fencing.outbox_parked WHERE consumer = w.job LIMIT 1;
		IF parked IS NOT NULL THEN
			PERFORM tell('back') FROM fencing_outbox_park(w.job, w.token, parked, NULL) WHERE outcome = 'committed';
		END IF;
	END IF;
	o := (SELECT outcome FROM fencing_outbox_ack(w.job, w.token, w.ids));
	PERFORM tell(o);
	IF o = 'committed' THEN
		INSERT INTO effects (consumer, no, n, aggregate)
		SELECT split_part(w.job, '/', 1), no, payload::bigint, aggregateid FROM fencing.outbox WHERE id = ANY (w.ids) ORDER BY no;
	END IF;
EXCEPTION WHEN invalid_parameter_value THEN PERFORM tell('gone');
END $$;
SELECT fencing_outbox_subscribe('one', true), fencing_outbox_subscribe('two', true), fencing_outbox_subscribe('many', true, 3)});

my %scripts = (
	emit => [ 5, q{
\set a random(1, 25)
\set d random(1, 100)
SELECT emit(:a, :d);
} ],
	back => [ 1, q{
\set a random(1, 25)
\set d random(1, 100)
BEGIN;
SELECT emit(:a, :d);
ROLLBACK;
\sleep 5 ms
} ],
	prepare => [ 2, q{
\set a random(1, 25)
\set d random(1, 100)
\set n random(1, 1000000000)
BEGIN;
SELECT emit(:a, :d);
PREPARE TRANSACTION 'x:n';
\sleep 30 ms
COMMIT PREPARED 'x:n';
} ],
	relay => [ 6, q{
\set pause random(1, 60) / 60 * 150
SELECT relay_read('r:client_id');
\sleep :pause ms
SELECT relay_ack('r:client_id');
} ],
	purge => [ 1, q{
SELECT fencing_purge('events', '1 microsecond');
\sleep 100 ms
} ],
	divide => [ 1, q{
\set n random(1, 4)
SELECT fencing_outbox_subscribe('many', true, :n), tell('divided');
\sleep 700 ms
} ]);
append_to_file("$folder/$_.sql", $scripts{$_}[1]) foreach keys %scripts;

# All of them, until the time is over or the server is gone.
sub run_all
{
	my ($time) = @_;
	my %runs;

	foreach my $name (sort keys %scripts)
	{
		my $out = '';
		$runs{$name} = [ start([ 'pgbench', '-n', '-h', $node->host, '-p', $node->port, '-c', $scripts{$name}[0], '-j', 1, '-T', $time,
				'-f', "$folder/$name.sql", 'postgres' ], '<', \undef, '>', \my $ignored, '2>', \$out), \$out ];
	}
	return \%runs;
}

my $end = time + $seconds;
my $crashes = 0;
while (time < $end)
{
	my $runs = run_all(int($end - time) + 1);
	my $crash = time + $between < $end ? time + $between : 0;

	sleep 0.1 while time < ($crash || $end);
	if ($crash)
	{
		$node->stop('immediate');
		$crashes++;
	}
	foreach my $name (keys %$runs)
	{
		my ($run, $err) = @{ $runs->{$name} };

		$run->finish;
		is(join("\n", grep { /ERROR/ && !/server closed|terminat|shutting down|starting up|recovery mode/ } split /\n/, $$err), '', "$name: no error of its own");
	}
	$node->start if $crash;
	# as an operator does: some are finished, some rolled back
	foreach my $gid (split /\n/, $node->safe_psql('postgres', 'SELECT gid FROM pg_prepared_xacts'))
	{
		$node->safe_psql('postgres', ($gid =~ /[02468]$/ ? 'COMMIT' : 'ROLLBACK') . " PREPARED '$gid'");
	}
}

# What is left is drained.
$node->safe_psql('postgres', q{
DO $$
DECLARE c record; t bigint;
BEGIN
	PERFORM fencing_revoke(job_key, 'drained') FROM fencing.fences;
	FOR c IN SELECT consumer FROM fencing.outbox_consumers LOOP
		SELECT token INTO t FROM fencing_acquire(c.consumer, md5('drain')::uuid, '1 hour');
		PERFORM fencing_outbox_park(c.consumer, t, id, NULL) FROM fencing.outbox_parked WHERE consumer = c.consumer;
		LOOP
			INSERT INTO work SELECT 'drain', c.consumer, t, array_agg(id) FROM fencing_outbox_read(c.consumer, t, 1000)
			ON CONFLICT (client) DO UPDATE SET job = excluded.job, token = excluded.token, ids = excluded.ids;
			EXIT WHEN (SELECT ids IS NULL FROM work WHERE client = 'drain');
			IF (SELECT outcome <> 'committed' FROM work w, fencing_outbox_ack(w.job, w.token, w.ids) WHERE client = 'drain') THEN
				RAISE EXCEPTION 'not acknowledged';
			END IF;
			INSERT INTO effects (consumer, no, n, aggregate)
			SELECT split_part(w.job, '/', 1), no, payload::bigint, aggregateid FROM fencing.outbox, work w WHERE client = 'drain' AND id = ANY (w.ids) ORDER BY no;
		END LOOP;
	END LOOP;
END $$});

is(answer($node, q{SELECT count(*) FROM (SELECT c, e.n FROM unnest('{one,two,many}'::text[]) c CROSS JOIN emitted e LEFT JOIN effects f ON f.consumer = c AND f.n = e.n GROUP BY c, e.n HAVING count(f.n) <> 1) x}),
	0, 'each consumer has had each event exactly once');
is(answer($node, 'SELECT count(*) FROM effects f LEFT JOIN emitted e USING (n) WHERE e.n IS NULL'), 0, 'and none that was rolled back');
is(answer($node, 'SELECT count(*) FROM (SELECT no, lag(no) OVER (PARTITION BY consumer, aggregate ORDER BY id) AS before FROM effects) x WHERE before > no'),
	0, 'in the order of each aggregate');
is(answer($node, 'SELECT count(*) FROM fencing.outbox_pending'), 0, 'nothing is pending');
is(answer($node, q{SELECT count(*) FROM fencing.outbox_acks}), 0, 'and nothing kept of what is done');
is(answer($node, q{SELECT more FROM fencing_purge('events', '1 microsecond', 1000000)}), 'f', 'all can be purged');
is(answer($node, 'SELECT count(*) FROM fencing.outbox'), 0, 'and is');

my $counts = answer($node, q{SELECT string_agg(what || ' ' || n, ', ' ORDER BY what) FROM (SELECT split_part(what, '/', 1) AS what, sum(n) AS n FROM counts GROUP BY 1) x});
diag sprintf 'outbox: %s events in %d s, %d crashes; %s', answer($node, 'SELECT count(*) FROM emitted'), $seconds, $crashes, $counts;

$node->stop;
done_testing();
