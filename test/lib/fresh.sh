#!/usr/bin/env bash
#
# The part of test/fresh that runs in the throw-away system, as root.
#
#   fresh.sh KIND WITH     see test/fresh

set -euo pipefail

kind=$1
with=$2
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
major=$(. /etc/os-release && echo "${VERSION_ID/12/15}")
major=${major/13/17}
output=$(mktemp)
trap 'rm -f "$output"' EXIT

# shellcheck source=test/lib/packages.sh
. "$root/test/lib/packages.sh"

die()
{
	echo "test/fresh: $*" >&2
	exit 1
}

# As the person at this machine would type it.
typed()
{
	if [ "$kind" = user ]; then
		runuser -l visitor -c "cd '$root' && $*"
	else
		(cd "$root" && bash -c "$*")
	fi
}

# $1 what must be in the output of the last command
expect()
{
	grep -q -e "$1" "$output" || { cat "$output"; die "not in the output: $1"; }
}

# $1 a command that must fail
refused()
{
	if typed "$1" >"$output" 2>&1; then
		cat "$output"
		die "did not fail: $1"
	fi
}

demo()
{
	if [ "$with" = make ]; then
		typed make demo
	else
		typed test/run demo
	fi
}

regress()
{
	if [ "$with" = make ]; then
		typed make test SUITE=regress
	else
		typed test/run regress
	fi
}

# The story, soon, and to its end.
tell_the_story()
{
	demo >"$output" 2>&1 || { cat "$output"; return 1; }
	expect 'The stories came out as told'
	sed 10q "$output" | grep -q '^== 1\.' || { cat "$output"; die 'the story does not begin within 10 lines'; }
}

run_the_suite()
{
	regress >"$output" 2>&1 || { cat "$output"; return 1; }
	expect '^[1-9][0-9]* passed, 0 failed'
	if grep '^installing' "$output"; then
		die 'not all was installed by the first command'
	fi
}

# "make" alone cannot install anything, but names the package.
make_says_what_is_missing()
{
	refused make
	case $kind in
		server | client) expect "postgresql-server-dev-$major" ;;
		*) expect 'postgresql-server-dev-NN' ;;
	esac
}

make_builds()
{
	typed 'make && make clean'
}

# A user is told all packages at once, by a command that works as it stands.
ask_for_packages_once()
{
	local package

	refused "$(if [ "$with" = make ]; then echo make demo; else echo test/run; fi)"
	for package in gcc libipc-run-perl "postgresql-$major" "postgresql-server-dev-$major" pgbouncer; do
		expect "apt-get install .* $package\b"
	done
	sed -n 's/^ *\(apt-get update .*\)/\1/p' "$output" | sed 's/ install / install -y /' >/root/asked
	bash -e /root/asked
	PG_CONFIG=/usr/lib/postgresql/$major/bin/pg_config
	[ -z "$(missing_packages; useful_packages)" ] || die "still missing: $(missing_packages; useful_packages)"
}

# All that a run could have left behind in PostgreSQL as it is installed.
look_around()
{
	ls -R "/usr/share/postgresql/$major/extension" "/usr/lib/postgresql/$major/lib"/*.so
	pg_lsclusters
	runuser -u postgres -- psql -XAtc 'SELECT pg_postmaster_start_time()' \
		-c 'SELECT oid, datname FROM pg_database ORDER BY 1' -c 'SELECT oid, rolname FROM pg_roles ORDER BY 1' \
		-c 'SELECT name, setting FROM pg_settings ORDER BY 1'
}

begin()
{
	case $kind in
		server)
			pg_ctlcluster "$major" main start
			look_around >/root/before
			;;
		user)
			useradd -m -s /bin/bash visitor
			chown -R visitor: "$root"
			;;
	esac
}

# Nobody's cluster is touched, and none is made.
end()
{
	case $kind in
		server)
			look_around >/root/after
			diff /root/before /root/after || die 'the cluster is not as it was'
			;;
		base | client)
			[ -z "$(pg_lsclusters -h)" ] || die 'a cluster was made'
			;;
	esac
}

begin
if [ "$with" = make ]; then
	step 'make says what is missing' make_says_what_is_missing
fi
if [ "$kind" = user ]; then
	step 'a user is told all packages at once' ask_for_packages_once
fi
step 'demo' tell_the_story
step 'regress' run_the_suite
if [ "$with" = make ]; then
	step 'make builds' make_builds
fi
end
