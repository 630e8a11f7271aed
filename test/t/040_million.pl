# Many jobs: acquired, committed, released, and forgotten or purged in batches,
# again and again.  The tables do not grow with what is gone, and no token comes
# twice.  Then heartbeats: nearly all of them rewrite a row in its page.  Last
# the same with autovacuum and nothing else.
#
# FENCING_JOBS says how many jobs, 50000 unless set; 1000000 takes some minutes.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use FencingTest;
use List::Util qw(max);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $jobs = $ENV{FENCING_JOBS} || 50000;
my $rounds = 10;
my $batch = 250;
my $per_round = int($jobs / $rounds / $batch) * $batch;
die "FENCING_JOBS: at least @{[ $rounds * $batch ]}\n" if $per_round < $batch;

# No autovacuum: what is vacuumed when is the same in every run.
my $node = new_node('main', <<'EOT');
synchronous_commit = off
shared_buffers = 256MB
max_wal_size = 4GB
checkpoint_timeout = 1h
log_statement = none
EOT

my @tables = map { "fencing.$_" } 'fences', 'leases', 'receipts', 'floor';

sub sizes
{
	$node->safe_psql('postgres', "VACUUM $_") foreach @tables;
	return { map { ($_ => answer($node, "SELECT pg_total_relation_size('$_') / 1024")) } @tables };
}

# One transaction per batch, as a caller that takes care would do it.  Within a
# batch each job goes its whole way.
my $procedures = q{
CREATE TABLE told (job int PRIMARY KEY, token bigint NOT NULL);
CREATE PROCEDURE work(jobs int, batch int, content int) LANGUAGE plpgsql AS
$$DECLARE
	me uuid := gen_random_uuid();
	wrong bigint;
BEGIN
	FOR low IN 1 .. jobs BY batch LOOP
		-- a token that is not above the last one of its job is an error here
		WITH acquired AS MATERIALIZED (
			SELECT i AS job, a.outcome, a.token
			FROM generate_series(low, low + batch - 1) i, fencing_acquire('nightly/' || i, me, '1 hour') a),
		kept AS (
			INSERT INTO told SELECT job, token FROM acquired
			ON CONFLICT (job) DO UPDATE SET token = excluded.token WHERE excluded.token > told.token
			RETURNING job)
		SELECT batch - count(*) INTO wrong FROM kept;
		IF wrong <> 0 THEN
			RAISE EXCEPTION '% tokens have not gone up', wrong;
		END IF;
		COMMIT;
		SELECT count(*) FILTER (WHERE c.outcome <> 'committed') INTO wrong
		FROM told, fencing_commit('nightly/' || job, token, jsonb_build_object('n', content), 'SELECT $2 AS token') c
		WHERE job BETWEEN low AND low + batch - 1;
		IF wrong <> 0 THEN
			RAISE EXCEPTION '% were not committed', wrong;
		END IF;
		COMMIT;
		SELECT count(*) FILTER (WHERE r.outcome <> 'released') INTO wrong
		FROM told, fencing_release('nightly/' || job, me, token) r
		WHERE job BETWEEN low AND low + batch - 1;
		IF wrong <> 0 THEN
			RAISE EXCEPTION '% were not released', wrong;
		END IF;
		COMMIT;
	END LOOP;
END$$;
CREATE PROCEDURE forget(jobs int, batch int) LANGUAGE plpgsql AS
$$BEGIN
	FOR low IN 1 .. jobs BY batch LOOP
		PERFORM fencing_forget('nightly/' || i) FROM generate_series(low, low + batch - 1) i;
		COMMIT;
	END LOOP;
END$$;
CREATE PROCEDURE purge(batch int, INOUT total bigint DEFAULT 0) LANGUAGE plpgsql AS
$$DECLARE
	told record;
BEGIN
	LOOP
		SELECT * INTO told FROM fencing_purge('receipts', '1 microsecond', batch);
		COMMIT;
		total := total + told.purged;
		EXIT WHEN NOT told.more;
	END LOOP;
END$$};
$node->safe_psql('postgres', $procedures);

#
# Purged: the same jobs in each round; the receipts of the round before go.
#
my $started = time;
my (@purging, @forgetting);
foreach my $round (1 .. $rounds / 2)
{
	is(answer($node, "CALL work($per_round, $batch, $round)"), '', "purge, round $round: $per_round jobs");
	is(answer($node, 'CALL purge(1000)'), $round == 1 ? 0 : $per_round, "purge, round $round: purged all but the current");
	push @purging, sizes();
}
is(answer($node, 'SELECT count(*), min(token), max(token) FROM fencing.fences'), join('|', $per_round, $rounds / 2, $rounds / 2), 'purge: tokens have gone up by one');
is(answer($node, 'SELECT count(*) FROM fencing.receipts'), $per_round, 'purge: one receipt per job');
is(answer($node, qq{SELECT string_agg(DISTINCT outcome::text, ', ') FROM generate_series(1, $per_round, 97) i, fencing_commit('nightly/' || i, 1, '{"n": 1}')}), 'pruned', 'purge: late retries');
is(answer($node, qq{SELECT string_agg(DISTINCT outcome::text, ', ') FROM told, fencing_commit('nightly/' || job, token, '{"n": @{[ $rounds / 2 ]}}') WHERE job % 97 = 0}), 'replayed', 'purge: the last retries');

#
# Forgotten: nothing is left but the floor.
#
is(answer($node, "CALL forget($per_round, $batch)"), '', 'forget: all');
foreach my $round ($rounds / 2 + 1 .. $rounds)
{
	is(answer($node, "CALL work($per_round, $batch, $round)"), '', "forget, round $round: $per_round jobs");
	is(answer($node, "CALL forget($per_round, $batch)"), '', "forget, round $round: forgotten");
	push @forgetting, sizes();
}
my $elapsed = time - $started;
is(answer($node, 'SELECT (SELECT count(*) FROM fencing.fences), (SELECT count(*) FROM fencing.leases), (SELECT count(*) FROM fencing.receipts), (SELECT count(*) FROM fencing.floor)'), '0|0|0|1', 'forget: nothing is left');
is(answer($node, 'SELECT floor >= (SELECT max(token) FROM told) FROM fencing.floor'), 't', 'forget: but the floor');
is(answer($node, qq{SELECT string_agg(DISTINCT outcome::text, ', ') FROM told, fencing_commit('nightly/' || job, token, '{"n": $rounds}') WHERE job % 97 = 0}), 'pruned', 'forget: late retries');
is(answer($node, q{SELECT count(*) FILTER (WHERE a.token <= told.token) FROM told, fencing_acquire('nightly/' || job, gen_random_uuid(), '1 hour') a WHERE job % 97 = 0}), 0, 'forget: tokens of jobs that begin again');

#
# Sizes: a later round needs no more than the first two did, with some room.
#
foreach my $table (@tables)
{
	my @purge = map { $_->{$table} } @purging;
	my @forget = map { $_->{$table} } @forgetting;

	diag sprintf '%-17s kB after each round: purged %s; forgotten %s', $table, "@purge", "@forget";
	cmp_ok($purge[-1], '<=', 1.2 * max(@purge[ 0, 1 ]) + 64, "$table is bounded by purge");
	cmp_ok($forget[-1], '<=', 1.2 * max(@forget[ 0, 1 ]) + 64, "$table is bounded by forget");
}
diag sprintf '%d jobs in %.0f s', $per_round * $rounds, $elapsed;

#
# Heartbeats of one job, and of many beside each other.
#
sub hot
{
	my ($name, $jobs, $clients, $count, @more) = @_;
	my $script = $node->basedir . "/$name.sql";
	my $tokens = answer($node, "SELECT min(token) || '|' || max(token) FROM generate_series(1, $jobs) i, fencing_acquire('$name/' || i, @{[ owner(10) ]}, '1 day') a");
	my ($token) = split /\|/, $tokens;

	is($tokens, "$token|$token", "$name: $jobs jobs");
	append_to_file($script, "\\set n random(1, $jobs)\nSELECT outcome FROM fencing_renew('$name/' || :n, @{[ owner(10) ]}, $token, '1 day');\n");
	$node->safe_psql('postgres', 'VACUUM fencing.leases; SELECT pg_stat_reset_single_table_counters(\'fencing.leases\'::regclass)');
	my $before = answer($node, q{SELECT pg_total_relation_size('fencing.leases') / 1024});
	$node->command_ok([ 'pgbench', '-n', '-c', $clients, '-t', $count / $clients, '-f', $script, 'postgres' ], "$name: $count heartbeats");
	# a backend hands its counters in when it ends, which may be after its client has
	$node->poll_query_until('postgres', "SELECT n_tup_upd >= $count FROM pg_stat_user_tables WHERE relid = 'fencing.leases'::regclass");
	my ($updates, $hot) = split /\|/, answer($node, q{SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = 'fencing.leases'::regclass});
	my $after = answer($node, q{SELECT pg_total_relation_size('fencing.leases') / 1024});
	is($updates, $count, "$name: each was one update");
	cmp_ok($hot, '>', 0.95 * $count, sprintf '%s: %.1f %% of them in the page', $name, 100 * $hot / $updates);
	cmp_ok($after, '<=', 1.1 * $before + 64, "$name: the table has not grown ($before kB, then $after kB)");
	return;
}

hot('one', 1, 1, 10000);
hot('many', 500, 4, 10000);
$node->stop;

#
# Autovacuum as it comes, only more often, so that it need not be waited for
# long.  Before the next round it has had its turn; what it did meanwhile differs
# from run to run, hence the room.  Left alone, the tables would grow by each round.
#
my $auto = new_node('auto', "synchronous_commit = off\nlog_statement = none\nautovacuum = on\nautovacuum_naptime = 1s\n");
my $churn = 1000;
my $hot_tables = q{FROM pg_stat_user_tables WHERE schemaname = 'fencing' AND relname IN ('fences', 'leases', 'receipts', 'floor')};
my @sizes;

$auto->safe_psql('postgres', $procedures);
foreach my $round (1 .. 10)
{
	is_answers($auto, 'postgres', "autovacuum, round $round",
		[ 'work', "CALL work($churn, $batch, $round)", '' ],
		[ 'with the next token', "CALL work($churn, $batch, $round)", '' ],
		[ 'purged', 'CALL purge(1000)', $churn ],
		[ 'forgotten', "CALL forget($churn, $batch)", '' ]);
	push @sizes, { map { ($_ => answer($auto, "SELECT pg_total_relation_size('$_') / 1024")) } @tables };
	await_true($auto, "SELECT bool_and(n_dead_tup <= $churn / 2) AND max(n_tup_del) FILTER (WHERE relname = 'leases') = $round * $churn $hot_tables",
		"autovacuum, round $round: it has been there");
}
# The row of floor is rewritten in its page, which cleans itself.
is(answer($auto, "SELECT bool_and(autovacuum_count > 0 OR relname = 'floor'), sum(vacuum_count) $hot_tables"), 't|0', 'autovacuum: of each table, and nobody else');
foreach my $table (@tables)
{
	my @kilobytes = map { $_->{$table} } @sizes;

	diag sprintf '%-17s kB after each round: autovacuum %s', $table, "@kilobytes";
	cmp_ok($kilobytes[-1], '<=', 2 * max(@kilobytes[ 0, 1 ]) + 64, "$table is bounded by autovacuum");
}

$auto->stop;
done_testing();
