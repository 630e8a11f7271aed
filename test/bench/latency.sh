#!/usr/bin/env bash
#
# How long somebody waits: from COMMIT of an event to its delivery, and from the
# release of a job to its next acquisition, by polling and by LISTEN.
#
#   test/run shell bash test/bench/latency.sh [ROUNDS]
#
# Milliseconds: half of the waits are shorter than p50, 99 of 100 than p99.  A row
# with LISTEN passes if its p50 is at most a fifth of that of polling ten times a
# second.  Needs a compiler, libpq and a database with the extension (PGHOST,
# PGDATABASE ...); what is made in it is removed.

set -euo pipefail

rounds=${1:-200}
folder=$(mktemp -d)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
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
		SELECT fencing_outbox_unsubscribe('bench/latency');
		SET session_replication_role = replica;
		DELETE FROM fencing.outbox WHERE aggregatetype = 'bench';
		DELETE FROM fencing.leases WHERE job_key LIKE 'bench/latency%';
		DELETE FROM fencing.fences WHERE job_key LIKE 'bench/latency%';
	EOSQL
}

# prints a row: name, p50 and p99; the first of a kind is what the others are
# compared with
measure()
{
	local name=$1 pause=$2 line

	line=$("$folder/latency" $((pause == 1000 ? (rounds + 4) / 5 : rounds)) "$pause" "$3" "$4" "$5")
	printf '%-36s %-12s %8s %8s' "$name" "$([ "$pause" = 0 ] && echo LISTEN || echo "every $pause ms")" ${line/ /  }
	if [ "$pause" = 0 ]; then
		if awk -v a="${line% *}" -v b="$polled" 'BEGIN { exit !(a <= b / 5) }'; then
			echo ' passed'
		else
			echo ' FAILED'
			failed=1
		fi
	else
		[ "$pause" = 100 ] && polled=${line% *}
		echo
	fi
}

main()
{
	local token pause
	local a=00000000-0000-0000-0000-00000000000a b=00000000-0000-0000-0000-00000000000b

	trap clean_up EXIT
	cc -O2 -I"$(pg_config --includedir)" -I/usr/include/postgresql "$here/latency.c" -o "$folder/latency" -L"$(pg_config --libdir)" -lpq -lpthread
	run -c "SELECT fencing_outbox_subscribe('bench/latency', true)" >/dev/null
	token=$(run -c "SELECT token FROM fencing_acquire('bench/latency', '$a', '1 day')")
	run -c "SELECT FROM fencing_acquire('bench/latency/job', '$a', '1 day')" >/dev/null

	printf '%-36s %-12s %8s %8s\n' 'waits; ms' 'looks' p50 p99
	for pause in 1000 100 0; do
		measure 'COMMIT of an event to delivery' "$pause" \
			"SELECT fencing_outbox_emit('bench', 'a', 'made', '{}')" \
			"SELECT id FROM fencing_outbox_read('bench/latency', $token)" \
			"SELECT FROM fencing_outbox_ack('bench/latency', $token, ARRAY[\$1::uuid])"
	done
	# the one who has just got it hands it back to the other, who is going to release it
	for pause in 1000 100 0; do
		measure 'release of a job to acquisition' "$pause" \
			"SELECT FROM fencing.leases l, fencing_release(l.job_key, l.owner, l.token) WHERE l.job_key = 'bench/latency/job'" \
			"SELECT token FROM fencing_acquire('bench/latency/job', '$b', '1 day') WHERE outcome = 'acquired'" \
			"SELECT \$1::text"
	done
	return "$failed"
}

main "$@"
