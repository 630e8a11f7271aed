#!/usr/bin/env bash
#
# What a call costs, as instructions that the backend executes in user mode, by
# callgrind: they do not depend on what else the machine does.  Each is a ratio to
# something plain that is measured in the same run.
#
#   test/bench/instructions.sh [ROW...]    all rows, or some
#   test/bench/instructions.sh --record    those that test/t/050_instructions.pl checks:
#                                          writes its figures, test/bench/instructions.MAJOR
#   test/bench/instructions.sh --figures   only prints them
#
# Environment:
#   CALLS=N   how many calls are counted; else 100
#   KEEP=1    keep the temporary folder, with a profile of each call in it
#
# A backend warms up with calls that nobody counts, then makes N of them, then 2 N;
# the difference is N calls and nothing else.  All statements are prepared, as by
# a driver, and each call is a transaction of its own.  The gate alone has to be in
# a block; what BEGIN and COMMIT cost is measured with V0 and taken off.
#
# A profile, after KEEP=1 test/bench/instructions.sh commit:
#
#   callgrind_annotate --inclusive=yes FOLDER/commit.2 | head -60
#   callgrind_annotate --auto=yes --include=FOLDER/src FOLDER/commit.2
#
# The first is by function with all that it calls, the second by line, with the
# lines of functions that were inlined where they come from.  Without
# --inclusive=yes it is what each function executes itself.  Names of static
# functions of PostgreSQL need its debug symbols (postgresql-15-dbgsym).

set -euo pipefail

bench=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)

# shellcheck source=test/bench/lib.sh
. "$bench/lib.sh"

# The server that is measured tells for which major its figures are.
record()
{
	local figures file

	figures=$("$bench/../run" bench instructions --figures)
	file=$bench/instructions.$(sed -n 's/^# PostgreSQL //p' <<<"$figures")
	sed -n '/^# PostgreSQL/,$p' <<<"$figures" >"$file"
	echo "written: $file"
}

# not inside test/run yet
if [ -z "${FENCING_WORK:-}" ]; then
	if [ "${1:-}" = --record ]; then
		record
	else
		exec "$bench/../run" bench instructions "$@"
	fi
	exit
fi

n=${CALLS:-100}
warm=50
# enough that each call has a job of its own, and that no plan scans a whole table
jobs=$((warm + 3 * n + 50 > 1000 ? warm + 3 * n + 50 : 1000))
folder=
postmaster=

# name, baseline, limit, ambition, what it is
rows()
{
	cat <<-EOT
		fresh v0 1.6 1.35 fresh commit : plain INSERT of the receipt
		fresh v2 0.78 0.65 fresh commit : in PL/pgSQL
		fresh v1 - - fresh commit : by hand, in a block
		gate v0_block - - fresh commit in a block : the INSERT in a block
		commit bus 1.0 0.85 commit with statement : two plain INSERTs in a block
		commit v2_commit - - commit with statement : in PL/pgSQL
		replay r0 1.5 1.3 replay : plain SELECT of the receipt
		replay v2_replay - - replay : in PL/pgSQL
		renew update 1.2 1.0 renew : plain UPDATE
		renew v2_renew - - renew : in PL/pgSQL
		acquire upsert - - acquire, takeover : plain upsert
		acquire v2_acquire - - acquire, takeover : in PL/pgSQL
		once v2_once - - once, first : in PL/pgSQL
		once_replay v2_once_replay - - once, replay : in PL/pgSQL
		apply v2_apply - - apply : in PL/pgSQL
		emit v2_emit - - emit : in PL/pgSQL
		read_ack v2_read_ack - - read and ack 10 : in PL/pgSQL
		tag_assign v2_tag_assign - - tag assign : in PL/pgSQL
		tag_resolve v2_tag_resolve - - tag resolve : in PL/pgSQL
		digest plain_digest - - digest of 10 kB, ten times : jsonb::text and SHA-256
	EOT
}

# Calls whose difference a name of the table stands for.
parts()
{
	if [ "$1" = fresh ]; then
		echo gate v0_block v0
	else
		echo "$1"
	fi
}

clean_up()
{
	stop_server || true
	# a process may still be writing its profile when the server has stopped
	[ -n "${KEEP:-}" ] || rm -rf "$folder" 2>/dev/null || { sleep 2; rm -rf "$folder" || true; }
}

# The whole server, as a backend is its child; it counts nothing until a backend
# asks for it.
start_under_callgrind()
{
	valgrind --tool=callgrind --instr-atstart=no --callgrind-out-file="$folder/out/%p" --log-file="$folder/valgrind.log" \
		postgres -D "$folder/data" >>"$folder/server.log" 2>&1 &
	postmaster=$!
	for ((try = 0; try < 600; try++)); do
		if pg_isready -q; then
			return
		fi
		kill -0 "$postmaster" 2>/dev/null || break
		sleep 0.1
	done
	cat "$folder/server.log" "$folder/valgrind.log" >&2
	die "the server does not start under valgrind"
}

marks()
{
	cat <<-EOT
		\\set mark :i - $warm
		\\if :mark = 1
		SELECT bench.count('start');
		\\elif :mark = $((n + 1))
		SELECT bench.count('$1.1');
		\\elif :mark = $((3 * n + 1))
		SELECT bench.count('$1.2');
		SELECT bench.count('stop');
		\\endif
	EOT
}

# Leaves the profiles of N and of 2 N calls as NAME.1 and NAME.2.
count()
{
	local name=$1 file part

	script "$name" "$(marks "$name")" >"$folder/$name.script"
	call_pgbench -D round=$((round++)) -t $((warm + 3 * n + 1)) -f "$folder/$name.script" >"$folder/$name.log" 2>&1 || {
		cat "$folder/$name.log" >&2
		die "$name failed"
	}
	for part in 1 2; do
		file=$(grep -l -m 1 "^desc: Trigger: Client Request: $name.$part\$" "$folder"/out/* || true)
		[ -n "$file" ] || die "callgrind has not written what $name costs"
		mv "$file" "$folder/$name.$part"
	done
}

total()
{
	sed -n 's/^summary: //p' "$folder/$1"
}

per_call()
{
	echo $((($(total "$1.2") - $(total "$1.1")) / n))
}

instructions()
{
	if [ "$1" = fresh ]; then
		echo $(($(per_call gate) - $(per_call v0_block) + $(per_call v0)))
	else
		per_call "$1"
	fi
}

report()
{
	local name baseline limit ambition title

	printf '%-70s %9s %9s %6s %6s %6s\n' 'instructions per call' call baseline ratio limit aim
	while read -r name baseline limit ambition title; do
		awk -v a="$(instructions "$name")" -v b="$(instructions "$baseline")" -v limit="$limit" -v ambition="$ambition" -v title="$title" '
			BEGIN {
				printf "%-70s %9d %9d %6.2f %6s %6s", title, a, b, a / b, limit, ambition
				if (limit != "-")
					printf " %s", a / b <= limit ? "passed" : "FAILED"
				printf "\n"
				exit limit != "-" && a / b > limit
			}' || failed=1
	done
}

# For test/t/050_instructions.pl: name and ratio.
figures()
{
	local name baseline rest

	echo "# PostgreSQL $(pg_config --version | sed 's/^PostgreSQL \([0-9]*\).*/\1/')"
	while read -r name baseline rest; do
		awk -v name="$name" -v baseline="$baseline" -v a="$(instructions "$name")" -v b="$(instructions "$baseline")" \
			'BEGIN { printf "%s %s %.3f\n", name, baseline, a / b }'
	done
}

# The rows of one baseline each that are checked by every "make test".
gate_rows()
{
	rows | grep -E '^(fresh v0|commit bus|replay r0|renew update|acquire upsert) '
}

chosen()
{
	local name rest

	if [ "${1:-}" = --figures ]; then
		gate_rows
		return
	fi

	while read -r name rest; do
		[ $# -gt 0 ] && [[ " $* " != *" $name "* ]] || echo "$name $rest"
	done < <(rows)
}

main()
{
	local -a calls
	local name baseline rest failed=0

	if ! command -v valgrind >/dev/null || [ ! -e /usr/include/valgrind/callgrind.h ]; then
		die "there is no valgrind; please install the package valgrind"
	fi
	[ -n "$(chosen "$@")" ] || die "there is no row $*; there are $(rows | cut -d ' ' -f 1 | sort -u | xargs)"
	folder=$(mktemp -d "${TMPDIR:-/tmp}/bench.XXXXXX")
	trap clean_up EXIT
	mkdir "$folder/out"
	mapfile -t calls < <(chosen "$@" | while read -r name baseline rest; do parts "$name"; parts "$baseline"; done | tr ' ' '\n' | awk '!seen[$0]++')

	gcc -shared -fPIC -O2 -I"$(pg_config --includedir-server)" -o "$folder/callgrind.so" "$bench/callgrind.c"
	# noise: what runs now and then, and what depends on the time of day
	make_server "$(printf '%s\n' 'fsync = off' 'full_page_writes = off' 'autovacuum = off' 'checkpoint_timeout = 1h' 'max_wal_size = 8GB' 'shared_buffers = 256MB' 'jit = off')"
	make_baselines $((10 * jobs + 1000))
	run -c "CREATE FUNCTION bench.count(text) RETURNS boolean STRICT LANGUAGE c AS '$folder/callgrind.so'" 
	# splits of index pages come in waves, and would fall on one side
	run -c 'ALTER INDEX fencing.receipts_pkey SET (fillfactor = 20)' -c 'REINDEX INDEX fencing.receipts_pkey' \
		-c 'ALTER INDEX bench.receipts_pkey SET (fillfactor = 20)' -c 'REINDEX INDEX bench.receipts_pkey'
	check_answers "${calls[@]}"
	stop_server
	start_under_callgrind
	for name in "${calls[@]}"; do
		count "$name"
	done
	if [ "${1:-}" = --figures ]; then
		figures < <(chosen "$@")
	else
		report < <(chosen "$@")
	fi
	[ -z "${KEEP:-}" ] || echo "profiles: $folder/NAME.2"
	return "$failed"
}

main "$@"
