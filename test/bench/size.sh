#!/usr/bin/env bash
#
# What a call costs as the tables grow: CPU time of the backend, with 1,000, 100,000
# and 1,000,000 jobs that have a receipt each, drawn as docs/size.svg.  A row passes
# if the call takes at most twice as long among the most jobs as among the fewest.
#
#   test/bench/size.sh [JOBS...]
#
# The median of 5 rounds of a second each, by jobs all over the tables, one client,
# fsync off.  The rows are written as the functions would have.

set -euo pipefail

bench=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
[ -n "${FENCING_WORK:-}" ] || exec "$bench/../run" bench size "$@"

# shellcheck source=test/bench/lib.sh
. "$bench/lib.sh"
# shellcheck source=test/bench/cpu.sh
. "$bench/cpu.sh"

[ $# -gt 0 ] || set -- 1000 100000 1000000
sizes=("$@")
rounds=5
calls=(gate commit replay renew acquire v0 r0)
folder=
failed=0

clean_up()
{
	stop_server || true
	[ -n "${KEEP:-}" ] || rm -rf "$folder"
}

# As many jobs as there are to be; $1 of them are there.
grow()
{
	run -v from="$1" >/dev/null <<-'EOT'
		INSERT INTO fencing.fences (job_key, token, purged_through, external)
			SELECT b + i, 1, 0, false FROM generate_series(:from, :jobs - 1) i, unnest('{100000000000000000,200000000000000000}'::bigint[]) b;
		INSERT INTO fencing.leases (job_key, owner, token, lease_until)
			SELECT b + i, :'owner', 1, clock_timestamp() + CASE WHEN b < 200000000000000000 THEN '1 day' ELSE '0' END::interval
			FROM generate_series(:from, :jobs - 1) i, unnest('{100000000000000000,200000000000000000}'::bigint[]) b;
		INSERT INTO fencing.receipts (job_key, token, step, digest, digest_version, committed_at)
			SELECT 100000000000000000 + i, 1, 'old', fencing_digest('{"day": "2026-08-03", "total": 4.50}'), 1, clock_timestamp()
			FROM generate_series(:from, :jobs - 1) i;
		INSERT INTO bench.receipts SELECT * FROM fencing.receipts
			WHERE job_key >= (100000000000000000 + :from)::text AND job_key < '2' AND step = 'old';
		VACUUM ANALYZE;
		CHECKPOINT;
	EOT
}

plot()
{
	local name
	local -a lines=()
	local -A title=([gate]='fencing\_commit, in a block' [commit]='fencing\_commit, with the business write' [replay]='fencing\_commit, replayed'
		[renew]='fencing\_renew' [acquire]='fencing\_acquire, takeover' [v0]='plain INSERT' [r0]='plain SELECT')

	command -v gnuplot >/dev/null || { echo 'gnuplot is not installed: no plot'; return; }
	for name in "${calls[@]}"; do
		lines+=("'$folder/$name.dat' with linespoints title '${title[$name]}'")
	done
	draw size <<-EOT
		set xlabel 'jobs, with a receipt each'
		set ylabel 'CPU time of a call, µs'
		set logscale x
		set yrange [0:*]
		plot $(IFS=,; echo "${lines[*]}")
	EOT
}

main()
{
	local size name turn before=0

	folder=$(mktemp -d "${TMPDIR:-/tmp}/bench.XXXXXX")
	trap clean_up EXIT
	make_server "$(printf '%s\n' 'autovacuum = off' 'checkpoint_timeout = 1h' 'max_wal_size = 8GB' 'shared_buffers = 1GB' 'fsync = off')"
	jobs=0
	make_baselines 0
	for size in "${sizes[@]}"; do
		jobs=$size
		grow "$before"
		before=$size
		open_session
		for name in "${calls[@]}"; do
			measure_first "$name" 30
		done
		for ((turn = 0; turn < rounds; turn++)); do
			for name in "${calls[@]}"; do
				measure "$name" 1 1 "$size"
			done
		done
		close_session
		for name in "${calls[@]}"; do
			echo "$size $(awk '{ print $2 }' "$folder/$name.$size" | median)" >>"$folder/$name.dat"
		done
	done
	printf '%-44s' 'CPU time by jobs, µs'
	printf ' %9s' "${sizes[@]}"
	echo
	for name in "${calls[@]}"; do
		awk -v name="$name" '{ a[NR] = $2; line = line sprintf(" %9.1f", $2) }
			END { bad = a[NR] > 2 * a[1]; printf "%-44s%s %s\n", name, line, bad ? "FAILED" : "passed"; exit bad }' "$folder/$name.dat" || failed=1
	done
	plot
	return "$failed"
}

main "$@"
