# shellcheck shell=bash
#
# What the benchmarks share: the calls of test/bench/calls as files for pgbench, a
# server of their own, and numbers.  Sourced by scripts that run inside "test/run
# shell", or with PATH leading to a PostgreSQL that has the extension; they set
# "folder" (temporary) and "bench" (test/bench).
# shellcheck disable=SC2154

# numbers the runs, for what calls insert
round=0
owner_a=0f7f2d0a-9b1e-4c55-8f0e-3c2a5d1b7e44
owner_b=5b0c8a52-6c1d-4f7e-9a3b-8d2e4f6a1c90

die()
{
	echo "${0##*/}: $*" >&2
	exit 1
}

# One call as a script, with the lines of $2 after those that all have.
script()
{
	awk -v name="$1" -v more="${2:-}" '
		/^-- [a-z0-9_]+: / { heads++; mine = $2 == name ":" ; found += mine }
		/^\\set/ && !heads { print }
		mine && !begun++ { print more }
		mine && !/^--/ { print }
		END { exit !found }' "$bench/calls" || die "there is no call $1"
}

# pgbench with what the scripts know.
call_pgbench()
{
	pgbench -n -M prepared -D i=0 -D jobs="$jobs" -D token=1 -D holder="$owner_a" -D other="$owner_b" -D total=4.50 \
		-D payload='{"day": "2026-08-03", "total": 4.50}' -D digest='\x0f7f2d0a9b1e4c558f0e3c2a5d1b7e440f7f2d0a9b1e4c558f0e3c2a5d1b7e44' \
		-D request='{"amount": 12.50, "to": "0b5e0f34-4f0f-4d7c-8a77-0d1f2f7a1c11"}' -D auth='{"user": "ann"}' \
		-D content='{"theme": "dark", "limit": 25}' -D content_digest="$content_digest" -D plain_digest="$plain_digest" "$@"
}

# A benchmark of calls that are answered otherwise than it says would be one of
# something else.
check_answers()
{
	local name answer

	for name in "$@"; do
		case $name in
			*replay) answer=replayed ;;
			*renew) answer=renewed ;;
			*acquire) answer=acquired ;;
			*) answer=committed ;;
		esac
		script "$name" | sed "s/^\\(SELECT outcome.*\\);\$/\\1 \\\\gset\\nSELECT 1 \\/ (:outcome = '$answer')::int;/" >"$folder/$name.check"
		call_pgbench -D round=$((round++)) -t 10 -f "$folder/$name.check" >"$folder/$name.log" 2>&1 || {
			cat "$folder/$name.log" >&2
			die "$name is not answered $answer"
		}
	done
}

run()
{
	psql -XqAt -v ON_ERROR_STOP=1 -v jobs="$jobs" -v owner="$owner_a" "$@"
}

# A server in $folder/data: $1 lines for its configuration.
make_server()
{
	mkdir "$folder/socket"
	initdb --no-sync -D "$folder/data" -U postgres -A trust -E UTF8 --locale=C.UTF-8 >"$folder/initdb.log" 2>&1 ||
		{ cat "$folder/initdb.log" >&2; die "initdb failed"; }
	printf '%s\n' "listen_addresses = ''" "unix_socket_directories = '$folder/socket'" "$1" >>"$folder/data/postgresql.conf"
	export PGHOST=$folder/socket PGPORT=5432 PGUSER=postgres PGDATABASE=postgres
	start_server
}

start_server()
{
	pg_ctl -w -s -D "$folder/data" -l "$folder/server.log" start || { cat "$folder/server.log" >&2; die "the server does not start"; }
}

stop_server()
{
	[ ! -e "$folder/data/postmaster.pid" ] || pg_ctl -w -s -D "$folder/data" -m fast stop
}

# Tables, functions, jobs, and $1 events to be read.
make_baselines()
{
	run -f "$bench/baselines.sql" >/dev/null
	[ "$1" -eq 0 ] || run -c "CALL bench.prepare_events($1)" >/dev/null
	content_digest=$(run -c "SELECT fencing_digest('{\"theme\": \"dark\", \"limit\": 25}')")
	plain_digest=$(run -c "SELECT digest('{\"theme\": \"dark\", \"limit\": 25}'::jsonb::text, 'sha256')")
	run -c 'VACUUM ANALYZE' -c CHECKPOINT
}

median()
{
	sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

# A plot into docs/, from the commands of gnuplot on standard input.
draw()
{
	local file=$bench/../../docs/$1.svg

	{
		cat <<-EOT
			set terminal svg size 720,520 font 'sans-serif,13' background 'white'
			set output '$file'
			set grid
			set key below
		EOT
		cat
	} | gnuplot
	echo "drawn: docs/$1.svg"
}
