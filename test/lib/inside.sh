#!/usr/bin/env bash
#
# The part of test/run that runs as the unprivileged user, in the private copy
# of the work tree: build, install into a private PostgreSQL, run the suites.
# test/run stops the servers and removes everything.

set -euo pipefail

# as long as the tests wait for anything
export PGCTLTIMEOUT=180
# settings that check more can make a server a hundred times slower
[ -z "$FENCING_SERVER_SETTINGS" ] || export PGCTLTIMEOUT=1800 PGISOLATIONTIMEOUT=7200

work=$FENCING_WORK
src=$work/src
pg=$work/pg

passed=0
failed=0
skipped=0
summary=()

die()
{
	echo "test/run: $*" >&2
	exit 1
}

# gcc and clang keep silent about headers that are the system's: warnings are
# for the extension's own code.  The unused parameter is fcinfo, in functions
# that take no argument.
build()
{
	local log=$work/build.log
	local -a options=(PG_CPPFLAGS="-isystem $("$PG_CONFIG" --includedir-server)"
		COPT="-Wall -Wextra -Wno-unused-parameter${WERROR:+ -Werror}")

	printf 'building with %s ... ' "$("$PG_CONFIG" --version)"
	cd "$src"
	make PG_CONFIG="$PG_CONFIG" clean >/dev/null
	if ! make -s -j2 PG_CONFIG="$PG_CONFIG" "${options[@]}" >"$log" 2>&1 ||
		! make -s PG_CONFIG="$PG_CONFIG" "${options[@]}" DESTDIR="$pg" install >>"$log" 2>&1; then
		echo failed
		cat "$log"
		die "the extension does not build"
	fi
	echo 'done'
	grep -A 5 'warning:' "$log" || true
}

# A PostgreSQL of our own that differs from the installed one in nothing but
# the place.  It finds its files relative to its programs, so these are real
# copies; everything else is links, in folders of our own.
copy_postgres()
{
	local folder

	for folder in "$("$PG_CONFIG" --pkglibdir)" "$("$PG_CONFIG" --sharedir)" "$("$PG_CONFIG" --includedir-server)"; do
		mkdir -p "$pg$folder"
		cp -asT "$folder" "$pg$folder"
		# an extension that is installed already is not the one to test
		find "$pg$folder" -name 'fencing*' -prune -exec rm -rf {} +
	done
	bin=$pg$("$PG_CONFIG" --bindir)
	mkdir -p "$bin"
	cp -L "$("$PG_CONFIG" --bindir)"/* "$bin"
	export PATH="$bin:$PATH"
}

start_server()
{
	[ ! -d "$work/data" ] || return 0
	mkdir "$work/socket"
	initdb --no-sync -D "$work/data" -U postgres -A trust -E UTF8 --locale=C.UTF-8 >"$work/initdb.log" 2>&1 ||
		{ cat "$work/initdb.log"; die "initdb failed"; }
	cat >>"$work/data/postgresql.conf" <<-EOT
		listen_addresses = ''
		unix_socket_directories = '$work/socket'
		fsync = off
		autovacuum = off
		log_line_prefix = '%m [%p] %q%a '
		$FENCING_SERVER_SETTINGS
	EOT
	pg_ctl -w -s -D "$work/data" -l "$work/server.log" start ||
		{ cat "$work/server.log"; die "the server does not start"; }
}

connection()
{
	export PGHOST=$work/socket PGPORT=5432 PGUSER=postgres
}

# "make installcheck" as anybody would call it, for one suite of the three.
installcheck()
{
	make -s --no-print-directory -C "$src" PG_CONFIG="$bin/pg_config" \
		REGRESS= ISOLATION= PROVE_TESTS= "$@" installcheck 2>&1
}

# $1 suite, then how many passed, failed, were skipped; exit code of its tool
count()
{
	local suite=$1 ok=$2 bad=$3 skip=$4 code=$5

	# a tool that gave up did not report the test that it gave up at
	if [ "$code" -ne 0 ] && [ "$bad" -eq 0 ]; then
		bad=1
	fi
	passed=$((passed + ok))
	failed=$((failed + bad))
	skipped=$((skipped + skip))
	summary+=("$(printf '%-10s %4d passed, %d failed, %d skipped' "$suite" "$ok" "$bad" "$skip")")
}

# The lines of pg_regress are TAP since PostgreSQL 16.
count_regress()
{
	local suite=$1 log=$2 code=$3 ok bad

	# "ok" only says that the output was as expected, also of a tool that failed
	ok=$(grep -E '^ok |\.\.\. ok( |$)' "$log" | grep -cv 'exited with exit code' || true)
	bad=$(grep -cE '^not ok |\.\.\. FAILED|\.\.\. ok.*exited with exit code|^ok .*exited with exit code' "$log" || true)
	count "$suite" "$ok" "$bad" 0 "$code"
}

# The start of each test's differences, so that one does not hide the others.
show_diffs()
{
	[ ! -e "$1" ] || awk '
		/^diff -U/ { lines = 0 }
		++lines <= 200 { print substr($0, 1, 500) }
		lines == 201 { print "... (cut; all of it with KEEP=1)" }' "$1"
}

# A backend that crashed is a failure, even if every answer was as expected.
look_for_crashes()
{
	local suite=$1

	if grep -E -A 4 'terminated by signal|PANIC:' "$work/server.log"; then
		count "$suite: crash" 0 1 0 1
		: >"$work/server.log"
	fi
}

# A new test has no expected file yet.  pg_regress gives up when it meets one;
# with an empty file it shows the result as a difference and goes on.
touch_expected()
{
	local folder=$1 name
	shift

	mkdir -p "$folder"
	for name in "$@"; do
		[ -e "$folder/$name.out" ] || : >"$folder/$name.out"
	done
}

# $1 suite, $2 make variable, $3 folder of its input, $4 of its output, then the names
run_regress()
{
	local suite=$1 variable=$2 input=$src/$3 output=$src/$4 log=$work/$1.log code=0
	shift 4

	[ $# -gt 0 ] || return 0
	touch_expected "$input/expected" "$@"
	start_server
	(connection; installcheck "$variable=$*") | tee "$log" || code=$?
	count_regress "$suite" "$log" "$code"
	[ "$code" -eq 0 ] || show_diffs "$output/regression.diffs"
	look_for_crashes "$suite"
}

run_tap()
{
	local code=0 ok=0 bad=0 skip=0

	[ $# -gt 0 ] || return 0
	if [ -n "$FENCING_SERVER_SETTINGS" ]; then
		echo "$FENCING_SERVER_SETTINGS" >"$work/settings.conf"
		export TEMP_CONFIG=$work/settings.conf
	fi
	FENCING_COUNTS=$work/tap.counts \
		installcheck PROVE="perl $src/test/lib/prove.pl" PROVE_TESTS="$*" || code=$?
	[ ! -e "$work/tap.counts" ] || read -r ok bad skip <"$work/tap.counts"
	count tap "$ok" "$bad" "$skip" "$code"
}

# Names of all files of one kind, without folder and ending.
all_of()
{
	local file

	for file in "$src/$1"/*"$2"; do
		[ ! -e "$file" ] || basename "$file" "$2"
	done
}

# The tools wait for ever, or speak of something else, when an input is missing.
# $1 folder, $2 ending, then the names
all_there()
{
	local folder=$1 ending=$2 name
	shift 2

	for name in "$@"; do
		[ -e "$src/$folder/$name$ending" ] || die "there is no $folder/$name$ending"
	done
}

run_suite()
{
	local suite=$1 name
	local -a names=()
	shift

	case $suite in
		regress)
			[ $# -gt 0 ] || mapfile -t names < <(all_of sql .sql)
			all_there sql .sql "$@"
			run_regress regress REGRESS . . "$@" "${names[@]}"
			;;
		isolation)
			[ $# -gt 0 ] || mapfile -t names < <(all_of test/isolation/specs .spec)
			all_there test/isolation/specs .spec "$@"
			run_regress isolation ISOLATION test/isolation output_iso "$@" "${names[@]}"
			;;
		tap)
			[ $# -gt 0 ] || mapfile -t names < <(all_of test/t .pl)
			for name in "$@"; do
				names+=("$(basename "$name" .pl)")
			done
			all_there test/t .pl "${names[@]}"
			names=("${names[@]/#/test/t/}")
			run_tap "${names[@]/%/.pl}"
			;;
	esac
}

# Leaves the results in the private copy, for test/run to take.
regenerate()
{
	run_suite "$@" >"$work/regenerate.log" || { cat "$work/regenerate.log"; exit 1; }
}

open_shell()
{
	start_server
	connection
	createdb fencing
	export PGDATABASE=fencing
	psql -qXc 'SET client_min_messages = warning' -c 'CREATE EXTENSION fencing CASCADE'
	if [ $# -gt 0 ]; then
		exec "$@"
	fi
	echo "psql -h $PGHOST -U $PGUSER $PGDATABASE"
	exec psql -X
}

report()
{
	echo
	[ ${#summary[@]} -eq 0 ] || printf '%s\n' "${summary[@]}"
	if [ "$skipped" -gt 0 ]; then
		echo "$passed passed, $failed failed, $skipped skipped"
	else
		echo "$passed passed, $failed failed"
	fi
	[ "$failed" -eq 0 ]
}

main()
{
	local action=$1
	shift

	copy_postgres
	build
	case $action in
		all)
			run_suite regress
			run_suite isolation
			run_suite tap
			report
			;;
		regress | isolation | tap) run_suite "$action" "$@"; report ;;
		regenerate) regenerate "$@" ;;
		shell) open_shell "$@" ;;
		demo) open_shell bash "$src/test/demo/demo.sh" ;;
		bench)
			[ -e "$src/test/bench/$1.sh" ] || die "there is no test/bench/$1.sh"
			open_shell bash "$src/test/bench/$1.sh" "${@:2}"
			;;
	esac
}

main "$@"
