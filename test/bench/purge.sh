#!/usr/bin/env bash
#
# What a purge costs, as what it must keep grows: each call with few rows kept,
# and with ten and a hundred times as many.  A row passes if the largest takes at
# most three times as long as the smallest, or less than two milliseconds.
#
#   test/run shell bash test/bench/purge.sh [SMALLEST [ROUNDS]]
#
# By default 10,000, 100,000 and 1,000,000 rows, and the median of 9 calls, with a
# batch of 1,000 rows.  Needs a database with the extension (PGHOST, PGDATABASE ...)
# that has nothing of its own; what is made in it is removed.

set -euo pipefail

smallest=${1:-10000}
rounds=${2:-9}
sizes=("$smallest" $((smallest * 10)) $((smallest * 100)))
folder=
failed=0

run()
{
	psql -XqAt -v ON_ERROR_STOP=1 "$@"
}

clean_up()
{
	rm -rf "$folder"
	run >/dev/null <<-'EOSQL'
		SET client_min_messages = warning;
		DELETE FROM fencing.receipts WHERE job_key LIKE 'bench/%';
		DELETE FROM fencing.leases WHERE job_key LIKE 'bench/%';
		DELETE FROM fencing.fences WHERE job_key LIKE 'bench/%';
		DELETE FROM fencing.records WHERE operation = 'bench';
		DELETE FROM fencing.request_schemas WHERE operation = 'bench';
		DELETE FROM fencing.operations WHERE operation = 'bench';
		DROP SCHEMA IF EXISTS bench_purge CASCADE;
	EOSQL
}

prepare()
{
	run >/dev/null <<-'EOSQL'
		SET client_min_messages = warning;
		DROP SCHEMA IF EXISTS bench_purge CASCADE;
		CREATE SCHEMA bench_purge;
		CREATE FUNCTION bench_purge.allow(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT true';
		SELECT fencing_define_operation('bench', 'bench_purge.allow(text, text, jsonb, jsonb)', '1000 days', '2000 days');
		SELECT fencing_define_request('bench', v, '{"type": "object"}') FROM generate_series(1, 2) v;
		SELECT fencing_retire_request('bench', 1);
		-- a few that may go, so that there is something to do
		CREATE FUNCTION bench_purge.old() RETURNS void LANGUAGE sql AS $$
			INSERT INTO fencing.fences SELECT 'bench/old/' || i, 2, 0, false FROM generate_series(1, 100) i ON CONFLICT DO NOTHING;
			INSERT INTO fencing.receipts SELECT 'bench/old/' || i, 1, '', '\x00', 1, NULL, '2001-01-01' FROM generate_series(1, 100) i ON CONFLICT DO NOTHING;
		$$;
	EOSQL
}

# Receipts of current tokens, old ones; leases that ended, of jobs that
# committed a moment ago; records of a schema that is retired, and of another.
grow()
{
	run -v n="$1" >/dev/null <<-'EOSQL'
		INSERT INTO fencing.fences SELECT 'bench/' || i, 1, 0, false FROM generate_series(1, :n) i ON CONFLICT DO NOTHING;
		INSERT INTO fencing.leases SELECT 'bench/' || i, md5('a')::uuid, 1, '2001-01-01', '2001-01-01', '', NULL FROM generate_series(1, :n) i ON CONFLICT DO NOTHING;
		INSERT INTO fencing.receipts SELECT 'bench/' || i, 1, s, '\x00', 1, NULL, CASE s WHEN '' THEN now() ELSE '2001-01-01' END FROM generate_series(1, :n) i, unnest('{"",old}'::text[]) s ON CONFLICT DO NOTHING;
		INSERT INTO fencing.records SELECT 'bench', 'bench', i::text, '\x00', 1 + i % 2, 1, NULL, true, false, now() - interval '1 day' FROM generate_series(1, :n) i ON CONFLICT DO NOTHING;
	EOSQL
	if [ "${2:-}" = analyze ]; then
		run -c 'VACUUM ANALYZE fencing.fences, fencing.leases, fencing.receipts, fencing.records'
	fi
}

# Milliseconds of a call: the median.
measure()
{
	local round

	for ((round = 0; round < rounds; round++)); do
		run -c "$1" -c '\timing on' -c "$2" | awk '/^Time:/ { print $2 }'
	done | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

calls()
{
	cat <<-'EOSQL'
		receipts, of current tokens|SELECT bench_purge.old()|SELECT FROM fencing_purge('receipts', '1 day', 1000)
		jobs, with young receipts|SELECT 1|SELECT FROM fencing_purge('jobs', '1 day', 1000)
		records, none of them old, a schema retired|SELECT 1|SELECT FROM fencing_purge('records', '1 day', 1000)
	EOSQL
}

main()
{
	local size name before call

	folder=$(mktemp -d)
	trap clean_up EXIT
	prepare
	# statistics of an empty table mislead no query
	run -c 'ANALYZE fencing.fences, fencing.leases, fencing.receipts, fencing.records'
	for size in "${sizes[@]}"; do
		grow "$size"
		while IFS='|' read -r name before call; do
			measure "$before" "$call" >>"$folder/$name"
		done < <(calls)
	done
	grow "$size" analyze
	while IFS='|' read -r name before call; do
		measure "$before" "$call" >>"$folder/$name"
	done < <(calls)
	printf '%-44s %9s %9s %9s %9s\n' 'rows kept; ms' "${sizes[@]}" analyzed
	while IFS='|' read -r name before call; do
		# shellcheck disable=SC2046 # four numbers
		printf '%-44s %9s %9s %9s %9s ' "$name" $(cat "$folder/$name")
		if awk '{ v[NR] = $1 } END { exit !(v[3] < 2 && v[4] < 2 || v[3] <= 3 * v[1] && v[4] <= 3 * v[1]) }' "$folder/$name"; then
			echo passed
		else
			echo FAILED
			failed=1
		fi
	done < <(calls)
	return "$failed"
}

main "$@"
