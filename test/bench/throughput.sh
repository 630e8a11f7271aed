#!/usr/bin/env bash
#
# How many calls a second, what CPU time of its backend a call takes, and how much
# WAL it writes: the extension against what it is compared with (test/bench/calls),
# in turn, with synchronous_commit on.
#
#   test/bench/throughput.sh [ROUNDS [SECONDS]]
#
# By default 9 rounds of 2 seconds per call and number of clients: 1, 4 and 16.  A row
# is the median of the ratios of the rounds.  pgbench runs on the same machine, so
# throughput is also that of the client, and with few clients that of the disk.
#
# CPU time is that of the backends alone, less what connecting and the first call
# take, and with one client and fsync off, which would be the file system's.  The gate
# alone has to be in a block: of its CPU time and WAL, what BEGIN and COMMIT cost is
# measured with V0 and taken off.  WAL is without full-page images.
#
# Where redis-server and etcd are installed they do the same, on loopback, for the
# plot docs/throughput.svg, which gnuplot draws.

set -euo pipefail

bench=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
[ -n "${FENCING_WORK:-}" ] || exec "$bench/../run" bench throughput "$@"

# shellcheck source=test/bench/lib.sh
. "$bench/lib.sh"
# shellcheck source=test/bench/cpu.sh
. "$bench/cpu.sh"

rounds=${1:-9}
seconds=${2:-2}
clients=(1 4 16)
jobs=10000
folder=
failed=0
others=()
pids=()
declare -A port

# what is run for CPU time, and with several clients
single=(gate v0_block v0 v2 commit bus replay r0 renew update acquire upsert digest plain_digest)
crowd=(gate v0_block gate_pipeline v0 v1 v2 commit bus)

# what is compared, call, baseline, clients, limit, title; "<" at most, ">" at least
rows()
{
	local n

	cat <<-EOT
		cpu fresh v0 1 <1.4 fresh commit : plain INSERT of the receipt
		cpu fresh v2 1 <0.8 fresh commit : in PL/pgSQL
		cpu commit bus 1 - commit with statement : two plain INSERTs in a block
		cpu replay r0 1 - replay : plain SELECT of the receipt
		cpu renew update 1 - renew : plain UPDATE
		cpu acquire upsert 1 <1.2 acquire, takeover : plain upsert
		cpu digest plain_digest 1 <0.8 canonical text and digest of 10 kB : jsonb::text and SHA-256
	EOT
	for n in "${clients[@]}"; do
		echo "tps gate v0_block $n >0.85 fresh commit in a block : the INSERT in a block"
		echo "tps gate_pipeline v0 $n >0.85 fresh commit in a pipeline : plain INSERT"
		echo "tps gate v1 $n - fresh commit in a block : by hand, in a block"
		echo "tps gate_pipeline v2 $n - fresh commit in a pipeline : in PL/pgSQL"
		echo "tps commit bus $n >1.25 commit with statement : two plain INSERTs in a block"
	done
	cat <<-EOT
		wal fresh v0 1 - fresh commit : plain INSERT of the receipt
		wal commit bus 1 - commit with statement : two plain INSERTs in a block
		wal renew update 1 - renew : plain UPDATE
		wal acquire upsert 1 - acquire, takeover : plain upsert
		first commit v0 1 <2.5 first call of a backend, commit with statement : plain INSERT
		first gate v0_block 1 - first call of a backend, fresh commit in a block : the INSERT in a block
		first replay r0 1 - first call of a backend, replay : plain SELECT of the receipt
	EOT
}

clean_up()
{
	local pid

	for pid in "${pids[@]}"; do
		kill "$pid" 2>/dev/null || true
	done
	stop_server || true
	[ -n "${KEEP:-}" ] || rm -rf "$folder"
}

start_others()
{
	local peer

	if PATH=$PATH:/usr/sbin command -v redis-server >/dev/null; then
		port[redis]=$(perl "$bench/others.pl" port)
		mkdir "$folder/redis"
		PATH=$PATH:/usr/sbin redis-server --port "${port[redis]}" --bind 127.0.0.1 --dir "$folder/redis" --save '' \
			--appendonly yes --appendfsync always >"$folder/redis.log" 2>&1 &
		pids+=($!)
		await_port redis
	fi
	if PATH=$PATH:/usr/sbin command -v etcd >/dev/null; then
		port[etcd]=$(perl "$bench/others.pl" port)
		peer=$(perl "$bench/others.pl" port)
		etcd --data-dir "$folder/etcd" --listen-client-urls "http://127.0.0.1:${port[etcd]}" \
			--advertise-client-urls "http://127.0.0.1:${port[etcd]}" --listen-peer-urls "http://127.0.0.1:$peer" \
			--initial-advertise-peer-urls "http://127.0.0.1:$peer" --initial-cluster "default=http://127.0.0.1:$peer" >"$folder/etcd.log" 2>&1 &
		pids+=($!)
		await_port etcd
	fi
}

# One that does not come up is left out.
await_port()
{
	local try

	for ((try = 0; try < 100; try++)); do
		if perl "$bench/others.pl" "$1" "${port[$1]}" 1 0.01 "start$try" >/dev/null 2>&1; then
			others+=("$1")
			return
		fi
		sleep 0.1
	done
	echo "$1 does not answer: it is left out" >&2
}

# One column of the lines of a call, or what is left of it without BEGIN and COMMIT.
# $1 cpu, tps, wal or first; $2 call, $3 clients
column()
{
	local -A number=([tps]=1 [cpu]=2 [wal]=3)
	local n=${number[$1]:-} ending=$3

	[ "$1" = tps ] || ending=cpu
	if [ "$1" = first ]; then
		awk -v connect="$(cat "$folder/connect.first")" '{ print $1 - connect }' "$folder/$2.first"
	elif [ "$2" = fresh ]; then
		paste "$folder/gate.$ending" "$folder/v0_block.$ending" "$folder/v0.$ending" | awk -v n="$n" '{ print $n - $(n + 3) + $(n + 6) }'
	else
		awk -v n="$n" '{ print $n }' "$folder/$2.$ending"
	fi
}

report()
{
	local kind name baseline n limit title
	local -A unit=([tps]='calls/s' [cpu]='CPU, µs' [wal]='WAL, bytes' [first]='CPU, µs')

	printf '%-78s %3s %-10s %9s %9s %6s %6s\n' 'per call' on of call baseline ratio limit
	while read -r kind name baseline n limit title; do
		paste <(column "$kind" "$name" "$n") <(column "$kind" "$baseline" "$n") | awk '{ print $1 / $2 }' | median |
			awk -v title="$title" -v n="$n" -v unit="${unit[$kind]}" -v limit="$limit" \
				-v a="$(column "$kind" "$name" "$n" | median)" -v b="$(column "$kind" "$baseline" "$n" | median)" '
				{
					sign = substr(limit, 1, 1)
					bound = substr(limit, 2) + 0
					bad = sign == "<" && $1 > bound || sign == ">" && $1 < bound
					printf "%-78s %3d %-10s %9.0f %9.0f %6.2f %6s%s\n", title, n, unit, a, b, $1, limit, sign == "-" ? "" : bad ? " FAILED" : " passed"
					exit bad
				}' || failed=1
	done
}

# Calls a second for each number of clients.
plot()
{
	local n name
	local -A title=([gate]='fencing\_commit' [commit]='fencing\_commit with the business write' [v0]='plain INSERT' [v1]='by hand, SQL'
		[v2]='by hand, PL/pgSQL' [bus]='two plain INSERTs' [redis]='Redis, Lua, appendfsync always' [etcd]='etcd, transaction by JSON')
	local -a names=(gate commit v0 v1 v2 bus "${others[@]}") lines=()

	command -v gnuplot >/dev/null || { echo 'gnuplot is not installed: no plot'; return; }
	for name in "${names[@]}"; do
		for n in "${clients[@]}"; do
			echo "$n $(column tps "$name" "$n" | median)"
		done >"$folder/$name.dat"
		lines+=("'$folder/$name.dat' with linespoints title '${title[$name]}'")
	done
	draw throughput <<-EOT
		set xlabel 'clients'
		set ylabel 'calls per second'
		set logscale x 2
		set xrange [${clients[0]} * 0.9 : ${clients[-1]} * 1.1]
		set xtics ($(IFS=,; echo "${clients[*]}"))
		set yrange [0:*]
		plot $(IFS=,; echo "${lines[*]}")
	EOT
}

main()
{
	local n name turn

	folder=$(mktemp -d "${TMPDIR:-/tmp}/bench.XXXXXX")
	trap clean_up EXIT
	make_server "$(printf '%s\n' 'autovacuum = off' 'checkpoint_timeout = 1h' 'max_wal_size = 8GB' 'shared_buffers = 512MB' 'synchronous_commit = on' 'full_page_writes = off' 'fsync = off')"
	make_baselines 0
	check_answers gate v2 commit replay renew acquire
	open_session
	for name in connect "${single[@]}"; do
		measure_first "$name" 50
	done
	for ((turn = 0; turn < rounds; turn++)); do
		for name in "${single[@]}"; do
			measure "$name" 1 "$seconds" cpu
		done
	done
	close_session

	stop_server
	echo 'fsync = on' >>"$folder/data/postgresql.conf"
	start_server
	start_others
	open_session
	for ((turn = 0; turn < rounds; turn++)); do
		for n in "${clients[@]}"; do
			for name in "${crowd[@]}"; do
				measure "$name" "$n" "$seconds" "$n"
			done
			for name in "${others[@]}"; do
				perl "$bench/others.pl" "$name" "${port[$name]}" "$n" "$seconds" "$turn.$n" >>"$folder/$name.$n"
			done
		done
	done
	close_session
	report < <(rows)
	plot
	return "$failed"
}

main "$@"
