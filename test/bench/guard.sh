#!/usr/bin/env bash
#
# What a protected table costs: bulk INSERTs into a table without a trigger,
# with a trigger in C that does next to nothing, and with the guard.  PostgreSQL
# queues and calls every AFTER ROW trigger, so the check itself is what the guard
# takes more than the trivial one.
#
#   test/run shell bash test/bench/guard.sh [ROWS [ROUNDS]]
#
# Times are the backend's CPU time, which other work on the machine disturbs less.
# A crowd is what the check has to be found among: a transaction with the passes of
# 20,000 jobs.
# By default 1,000,000 rows and the median of 3 rounds.  Needs a database with
# the extension (PGHOST, PGDATABASE ...); what is made in it is removed.

set -euo pipefail

rows=${1:-1000000}
rounds=${2:-3}
jobs=100
crowd=20000
tables=(none trivial job column many crowd)
folder=

run()
{
	psql -XqAt -v ON_ERROR_STOP=1 -v rows="$rows" -v jobs="$jobs" -v crowd="$crowd" "$@"
}

clean_up()
{
	rm -rf "$folder"
	run -c 'SET client_min_messages = warning; DROP SCHEMA IF EXISTS bench_guard CASCADE' \
		-c "$(in_batches 'PERFORM fencing_release(l.job_key, l.owner, l.token), fencing_forget(l.job_key)
			FROM fencing.leases l WHERE l.job_key = job')" >/dev/null
}

# A statement for every job, as a transaction cannot hold the locks of all.
in_batches()
{
	cat <<-EOT
		DO \$\$
		DECLARE
			job text;
		BEGIN
			FOR i IN 1 .. $crowd LOOP
				job := 'bench/guard/' || i;
				$1;
				IF i % 1000 = 0 THEN
					COMMIT;
				END IF;
			END LOOP;
		END \$\$
	EOT
}

# lo_manage(), for large objects, has nothing to do on INSERT.
prepare()
{
	run >/dev/null <<-'EOT'
		SET client_min_messages = warning;
		DROP SCHEMA IF EXISTS bench_guard CASCADE;
		CREATE SCHEMA bench_guard;
		SET search_path = bench_guard, public;
		CREATE EXTENSION lo SCHEMA bench_guard;
		CREATE TABLE none (job text, n int);
		CREATE TABLE trivial (LIKE none);
		CREATE TRIGGER trivial AFTER INSERT OR UPDATE OR DELETE ON trivial FOR EACH ROW EXECUTE FUNCTION lo_manage('job');
		CREATE TABLE job (LIKE none);
		CREATE TABLE "column" (LIKE none);
		CREATE TABLE many (LIKE none);
		CREATE TABLE crowd (LIKE none);
		SELECT fencing_protect('job', job_key => 'bench/guard/1');
		SELECT fencing_protect('column', 'job');
		SELECT fencing_protect('many', 'job');
		SELECT fencing_protect('crowd', 'job');
		CREATE TABLE tokens (i int, token bigint);
	EOT
	run -c "$(in_batches "INSERT INTO bench_guard.tokens SELECT i, a.token FROM fencing_acquire(job, md5('bench')::uuid, '1 day') a")"
}

# Milliseconds of one INSERT, from the line "! 1.2 s user, 0.3 s system, 1.6 s
# elapsed" that the server reports.  It is rolled back, and so are the receipts.
measure()
{
	local table=$1 spread=1

	[ "$table" != many ] || spread=$jobs
	[ "$table" != crowd ] || spread=$crowd
	run -v table="$table" -v spread="$spread" <<-'EOT' 2>&1 >/dev/null |
		SET search_path = bench_guard, public;
		BEGIN;
		SELECT count(*) FROM tokens t, fencing_commit('bench/guard/' || i, token, '{}', step => 'bench') WHERE i <= :spread;
		SET LOCAL client_min_messages = log;
		SET LOCAL log_statement_stats = on;
		INSERT INTO :"table" SELECT 'bench/guard/' || 1 + i % :spread, i FROM generate_series(1, :rows) i;
		ROLLBACK;
	EOT
		awk '/^!.* s user, .* s system, .* s elapsed/ { ms = ($2 + $5) * 1000; if (ms > most) most = ms }
			/ERROR|FATAL/ { print > "/dev/stderr"; exit 1 }
			END { print most }'
}

median()
{
	sort -n | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

report()
{
	awk -v rows="$rows" -v jobs="$jobs" -v crowd="$crowd" '
		BEGIN {
			name["none"] = "no trigger"
			name["trivial"] = "trivial trigger in C"
			name["job"] = "protected, one job"
			name["column"] = "protected by column"
			name["many"] = "protected by column, " jobs " jobs"
			name["crowd"] = "protected by column, " crowd " jobs"
			printf "%-34s %10s %16s %8s %14s\n", "INSERT of " rows " rows", "CPU ms", "ns/row to none", "ratio", "ns/row, check"
		}
		{
			ms[$1] = $2
			printf "%-34s %10.0f", name[$1], $2
			if ($1 != "none")
				printf " %16.0f", ($2 - ms["none"]) * 1e6 / rows
			else
				printf " %16s", ""
			printf " %8.2f", $2 / ms["none"]
			if ($1 != "none" && $1 != "trivial")
				printf " %14.0f", ($2 - ms["trivial"]) * 1e6 / rows
			printf "\n"
		}'
}

main()
{
	local round table

	trap clean_up EXIT
	folder=$(mktemp -d)
	prepare
	# once for the caches and the files; then table by table, so that a busy
	# moment of the machine falls on all
	for table in "${tables[@]}"; do
		measure "$table" >/dev/null
	done
	for ((round = 0; round < rounds; round++)); do
		for table in "${tables[@]}"; do
			measure "$table" >>"$folder/$table"
		done
	done
	for table in "${tables[@]}"; do
		echo "$table $(median <"$folder/$table")"
	done | report
}

main "$@"
