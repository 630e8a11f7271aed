#!/usr/bin/env bash
#
# Weeks of a queue that grows by nothing but its work, bounded by nothing but the
# purges that README.md schedules: its tables stay as large as they are once the
# retention is reached, and a day takes no longer than the day before.
#
#   test/run shell bash test/bench/weeks.sh [DAYS [JOBS_PER_DAY [RETENTION]]]
#
# By default 21 days of 20,000 jobs, and a retention of 7 days; a few minutes.
#
# The weeks are simulated: the server is one of its own, whose clock (libfaketime)
# is set six hours ahead four times a day.  Everything in it sees that time, so that
# no row has to be touched to make it older.  In each quarter of a day
#
# - the jobs of that time are acquired, and committed with a receipt, by batches
#   of 250; a third of them are never released.  One in 25 is a job that comes in
#   every quarter under the same key, so that it has old receipts beside a current
#   one; the others are new;
# - fencing_purge() is called for receipts and for jobs, with its default of 10,000
#   rows, as often as once a minute would be with a million jobs a day, and in
#   proportion with less;
# - tables are vacuumed that autovacuum would vacuum: by the settings of each table
#   and the counts of dead and new rows that autovacuum goes by.
#
# From two days after the retention on the tables, in rows and in bytes with their
# indexes, may not grow by more than a tenth: the last three days beside the first
# three.  Nor may the seconds of a day's work and of its purges by more than half,
# and a second.  And what is older than the retention and a day is gone.

set -euo pipefail

days=${1:-21}
jobs=${2:-20000}
retention=${3:-7}
quarter=$((jobs / 4))
recurring=$((quarter / 25))
calls=$(((360 * jobs + 999999) / 1000000))
tables=(fences leases receipts)
settled=$((retention + 3))
folder=
offset=0
failed=0

die()
{
	echo "weeks.sh: $*" >&2
	exit 2
}

run()
{
	psql -XqAt -v ON_ERROR_STOP=1 "$@"
}

clean_up()
{
	[ ! -e "$folder/data/postmaster.pid" ] || pg_ctl -D "$folder/data" -m immediate stop >/dev/null
	rm -rf "$folder"
}

# The monotonic clock is left alone: timeouts and statistics go by that.
start_server()
{
	local library

	library=$(find /usr/lib /usr/local/lib -name libfaketime.so.1 2>/dev/null | head -n 1)
	[ -n "$library" ] || die 'needs libfaketime (on Debian: apt-get install faketime)'
	initdb --no-sync -D "$folder/data" -U postgres -A trust -E UTF8 --locale=C.UTF-8 >"$folder/log" 2>&1 || die "$(cat "$folder/log")"
	cat >>"$folder/data/postgresql.conf" <<-EOF
		listen_addresses = ''
		unix_socket_directories = '$folder'
		fsync = off
		autovacuum = off
		shared_buffers = 256MB
		max_wal_size = 4GB
	EOF
	echo +0 >"$folder/clock"
	LD_PRELOAD=$library FAKETIME_TIMESTAMP_FILE=$folder/clock FAKETIME_CACHE_DURATION=1 FAKETIME_DONT_FAKE_MONOTONIC=1 \
		pg_ctl -w -s -D "$folder/data" -l "$folder/log" start || die "$(cat "$folder/log")"
	export PGHOST=$folder PGPORT=5432 PGUSER=postgres PGDATABASE=postgres
}

# Six hours later.  Every process notices within a second.
set_clock()
{
	local expected

	offset=$((offset + 21600))
	echo "+$offset" >"$folder/clock.new"
	mv "$folder/clock.new" "$folder/clock"
	expected=$(($(date +%s) + offset))
	while [ "$(run -c 'SELECT extract(epoch FROM clock_timestamp())::bigint')" -lt "$expected" ]; do
		sleep 0.1
	done
}

prepare()
{
	run >/dev/null <<-'EOF'
		SET client_min_messages = warning;
		CREATE EXTENSION fencing CASCADE;
		CREATE TABLE business (job text, token bigint);
		CREATE PROCEDURE work(keys text[], batch int) LANGUAGE plpgsql AS $$
		DECLARE
			me uuid := gen_random_uuid();
			these text[];
			tokens bigint[];
			done bigint;
		BEGIN
			FOR low IN 1 .. cardinality(keys) BY batch LOOP
				these := keys[low : low + batch - 1];
				SELECT array_agg(token ORDER BY n) INTO tokens
				FROM unnest(these) WITH ORDINALITY u(key, n), fencing_acquire(key, me) a WHERE a.outcome = 'acquired';
				COMMIT;
				SELECT count(*) INTO done
				FROM unnest(these, tokens) u(key, token), fencing_commit(key, token, jsonb_build_object('key', key), 'SELECT $2 AS token') c
				WHERE c.outcome = 'committed';
				COMMIT;
				IF done <> cardinality(these) THEN
					RAISE EXCEPTION '% of % were committed', done, cardinality(these);
				END IF;
				PERFORM fencing_release(key, me, token) FROM unnest(these, tokens) WITH ORDINALITY u(key, token, n) WHERE n % 3 > 0;
				COMMIT;
			END LOOP;
		END $$;
		-- what autovacuum would vacuum now
		CREATE VIEW due AS
		SELECT s.relname FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid
		CROSS JOIN LATERAL (SELECT
			coalesce(max(option_value) FILTER (WHERE option_name = 'autovacuum_vacuum_threshold'), current_setting('autovacuum_vacuum_threshold'))::float AS base,
			coalesce(max(option_value) FILTER (WHERE option_name = 'autovacuum_vacuum_scale_factor'), current_setting('autovacuum_vacuum_scale_factor'))::float AS scale
			FROM pg_options_to_table(c.reloptions)) o
		WHERE s.schemaname = 'fencing' AND (n_dead_tup > base + scale * greatest(reltuples, 0)
			OR n_ins_since_vacuum > current_setting('autovacuum_vacuum_insert_threshold')::float + current_setting('autovacuum_vacuum_insert_scale_factor')::float * greatest(reltuples, 0));
	EOF
}

# new jobs, and in between those that come again
work()
{
	run -v from=$(($1 * quarter)) -v n="$quarter" -v again="$recurring" <<-'EOF'
		SELECT array_agg(CASE WHEN i % 25 = 0 AND i / 25 <= :again THEN 'again/' || i / 25 ELSE 'queue/' || :from + i END ORDER BY i) AS keys
		FROM generate_series(1, :n) i \gset
		CALL work(:'keys', 250);
	EOF
}

purge()
{
	local i

	for ((i = 0; i < calls; i++)); do
		echo "SELECT purged FROM fencing_purge('receipts', '$retention days');"
		echo "SELECT purged FROM fencing_purge('jobs', '$retention days');"
	done | run >/dev/null
}

vacuum()
{
	local table

	for table in $(run -c 'SELECT relname FROM due'); do
		run -c "VACUUM ANALYZE fencing.$table"
		vacuums=$((vacuums + 1))
	done
}

# Seconds of a command, added to a variable.
timed()
{
	local -n sum=$1
	local before
	shift

	before=$(date +%s%N)
	"$@"
	sum=$(awk -v s="$sum" -v a="$before" -v b="$(date +%s%N)" 'BEGIN { print s + (b - a) / 1e9 }')
}

# Rows, kilobytes, and for the receipts how many days the oldest are old.
state()
{
	local table

	for table in "${tables[@]}"; do
		run -F ' ' -c "SELECT count(*), pg_total_relation_size('fencing.$table') / 1024 FROM fencing.$table"
	done | tr '\n' ' '
	run -c "SELECT coalesce(round(extract(epoch FROM clock_timestamp() - min(committed_at)) / 86400, 2), 0)
		FROM fencing.receipts r JOIN fencing.fences f USING (job_key) WHERE r.token < f.token OR job_key LIKE 'queue/%'"
}

# The mean of the last three settled days beside that of the first three.
verdict()
{
	local name=$1 column=$2 factor=$3 more=$4

	awk -v first="$settled" -v last="$days" -v c="$column" -v f="$factor" -v more="$more" -v name="$name" '
		$1 >= first && $1 < first + 3 { a += $c / 3 }
		$1 > last - 3 { b += $c / 3 }
		END { bad = b > a * f + more; printf "%-24s %12.1f %12.1f  %s\n", name, a, b, bad ? "FAILED" : "passed"; exit bad }' "$folder/days" || failed=1
}

main()
{
	local day quarters working purging vacuums worked=0 i

	[ "$days" -ge $((settled + 5)) ] || die "needs at least $((settled + 5)) days for a retention of $retention"
	[ "$quarter" -ge 1000 ] || die 'needs at least 4,000 jobs a day'
	folder=$(mktemp -d)
	trap clean_up EXIT
	start_server
	prepare
	printf '%3s  %s\n' '' "$jobs jobs a day, retention $retention days, $((calls * 4)) purges of each kind a day"
	printf '%3s  %9s %9s  %9s %9s  %9s %9s  %7s  %7s %7s %8s\n' day fences kB leases kB receipts kB 'days old' 'work s' 'purge s' vacuums
	for ((day = 1; day <= days; day++)); do
		working=0 purging=0 vacuums=0
		for ((quarters = 0; quarters < 4; quarters++)); do
			set_clock
			timed working work "$worked"
			worked=$((worked + 1))
			timed purging purge
			vacuum
		done
		echo "$day $(state) $working $purging $vacuums" | tee -a "$folder/days" |
			awk '{ printf "%3d  %9d %9d  %9d %9d  %9d %9d  %8.2f  %7.1f %7.1f %8d\n", $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11 }'
	done

	printf '\n%-24s %12s %12s\n' 'mean of three days' "from day $settled" 'at the end'
	for ((i = 0; i < ${#tables[@]}; i++)); do
		verdict "${tables[i]}, rows" $((2 + 2 * i)) 1.1 0
		verdict "${tables[i]}, kB" $((3 + 2 * i)) 1.1 64
	done
	verdict 'work, s' 9 1.5 1
	verdict 'purges, s' 10 1.5 1
	if awk -v most=$((retention + 1)) '$8 > most { exit 1 }' "$folder/days"; then
		echo "nothing is older than $((retention + 1)) days: passed"
	else
		echo "something is older than $((retention + 1)) days: FAILED"
		failed=1
	fi
	[ "$failed" -eq 0 ] && echo passed || echo FAILED
	return "$failed"
}

main "$@"
