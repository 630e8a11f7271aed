# shellcheck shell=bash
#
# Runs of pgbench against a server of lib.sh: how many calls a second, what CPU time
# a call took in its backend, and how many bytes of WAL it wrote.  Sourced.
# shellcheck disable=SC2154

# One session that stays, as a new one would cost CPU time as well.
open_session()
{
	coproc session { psql -XqAt -v ON_ERROR_STOP=1; }
	[ "$(ask 'SELECT 1')" = 1 ]
}

close_session()
{
	local pid=$session_PID

	echo '\q' >&"${session[1]}"
	wait "$pid" || true
}

ask()
{
	local answer

	echo "$1;" >&"${session[1]}"
	read -r answer <&"${session[0]}" || die "no answer to: $1"
	echo "$answer"
}

wal_bytes()
{
	ask "SELECT pg_current_wal_insert_lsn() - '0/0'"
}

server_pid()
{
	head -n 1 "$folder/data/postmaster.pid"
}

backends()
{
	# some end while they are read
	{ cat /proc/[0-9]*/stat 2>/dev/null || true; } | awk -v server="$(server_pid)" '{ sub(/^.*\) /, "") } $2 == server { n++ } END { print n }'
}

# Microseconds of CPU time of the backends that have ended, which the postmaster
# has been told.
ended_cpu()
{
	awk -v hz="$(getconf CLK_TCK)" '{ sub(/^.*\) /, ""); print ($14 + $15) * 1000000 / hz }' "/proc/$(server_pid)/stat"
}

# Runs a call: sets tps, calls_done, cpu (of all backends together) and wal.
# $1 call, then options of pgbench
run_call()
{
	local name=$1 cpu_before wal_before before try
	shift

	[ -e "$folder/$name.script" ] || script "$name" >"$folder/$name.script"
	before=$(backends)
	cpu_before=$(ended_cpu)
	wal_before=$(wal_bytes)
	round=$((round + 1))
	call_pgbench -D round="$round" "$@" -f "$folder/$name.script" >"$folder/$name.log" 2>&1 || {
		cat "$folder/$name.log" >&2
		die "$name failed"
	}
	wal=$(($(wal_bytes) - wal_before))
	for ((try = 0; try < 500; try++)); do
		[ "$(backends)" -gt "$before" ] || break
		sleep 0.01
	done
	cpu=$(awk -v a="$cpu_before" -v b="$(ended_cpu)" 'BEGIN { print b - a }')
	# without the time in which connections are made; all of it, if each call makes one
	tps=$(sed -n 's/^tps = \([0-9.]*\).*/\1/p' "$folder/$name.log")
	calls_done=$(sed -n 's/^number of transactions actually processed: \([0-9]*\).*/\1/p' "$folder/$name.log")
}

# Microseconds of CPU time of a backend that makes one call, connecting included.
measure_first()
{
	run_call "$1" -C -c 1 -t "$2"
	awk -v cpu="$cpu" -v n="$calls_done" 'BEGIN { print cpu / n }' >"$folder/$1.first"
}

# Adds "calls a second, CPU time and WAL bytes of a call" to the file NAME.ENDING.
# $1 call, $2 clients, $3 seconds, $4 ending
measure()
{
	local first=0

	[ ! -e "$folder/$1.first" ] || first=$(cat "$folder/$1.first")
	run_call "$1" -c "$2" -j $(($2 < 2 ? 1 : 2)) -T "$3"
	awk -v tps="$tps" -v cpu="$cpu" -v wal="$wal" -v n="$calls_done" -v first="$first" -v clients="$2" \
		'BEGIN { print tps, (cpu - first * clients) / (n - clients), wal / n }' >>"$folder/$1.$4"
}
