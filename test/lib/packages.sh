# shellcheck shell=bash
#
# Which PostgreSQL to test with, and the packages that this needs.  Sourced by
# test/run and others.

# The major version that this release of Debian ships.
debian_major()
{
	local version

	# shellcheck disable=SC1091
	version=$(. /etc/os-release 2>/dev/null && echo "${ID:-}-${VERSION_ID:-}")
	case $version in
		debian-12) echo 15 ;;
		debian-13) echo 17 ;;
		*)
			apt-cache show postgresql 2>/dev/null | sed -n 's/^Version: \([0-9]*\)+.*/\1/p' | sort -n | tail -n 1
			;;
	esac
}

# A path; the file need not be there yet if a package of Debian will bring it.
choose_pg_config()
{
	local major path

	if [ -n "${PG_CONFIG:-}" ]; then
		path=$(realpath -s "$(command -v "$PG_CONFIG" || echo "$PG_CONFIG")")
		[[ -x $path || $path == /usr/lib/postgresql/[0-9]*/bin/pg_config ]] ||
			die "PG_CONFIG: there is no $PG_CONFIG"
		echo "$path"
		return
	fi
	major=$(debian_major)
	if [ -z "$major" ] && can_install; then
		step 'fetching the list of packages' apt_get update >&2
		major=$(debian_major)
	fi
	[ -n "$major" ] || die "which PostgreSQL? set PG_CONFIG"
	echo "/usr/lib/postgresql/$major/bin/pg_config"
}

# The major version of a PostgreSQL; of one that is not there yet, by its path.
major_of()
{
	if [ -x "$1" ]; then
		"$1" --version | sed 's/^PostgreSQL \([0-9]*\).*/\1/'
	else
		basename "$(dirname "$(dirname "$1")")"
	fi
}

# The folder of its programs, likewise.
bin_of()
{
	if [ -x "$1" ]; then
		"$1" --bindir
	else
		dirname "$1"
	fi
}

# One line if "make" alone would take another PostgreSQL.
compare_with_path()
{
	local other ours theirs

	other=$(command -v pg_config) || return 0
	ours=$(major_of "$PG_CONFIG")
	theirs=$(major_of "$other")
	[ "$ours" = "$theirs" ] ||
		echo "PostgreSQL $ours is taken, this system's; for the $theirs of $other set PG_CONFIG=$other"
}

# One line of progress; what the command prints is kept back, and shown if it
# fails.
step()
(
	log=$(mktemp)
	trap 'end_step $? "$log"' EXIT
	trap 'exit 1' HUP INT TERM
	printf '%s ... ' "$1"
	shift
	"$@" >"$log" 2>&1
)

end_step()
{
	local code=$1 log=$2

	if [ "$code" -eq 0 ]; then
		echo 'done'
	else
		echo failed
		cat "$log" >&2
	fi
	rm -f "$log"
}

# Packages for what is not there, one a line.  Looked up by what is used, not
# by name, so that a PostgreSQL from elsewhere serves as well.  Debian's client
# package brings pgxs.mk without the headers.
missing_packages()
{
	local major pgxs='' headers=''

	major=$(major_of "$PG_CONFIG")
	if [ -x "$PG_CONFIG" ]; then
		pgxs=$("$PG_CONFIG" --pgxs)
		headers=$("$PG_CONFIG" --includedir-server)
	fi
	command -v make >/dev/null || echo make
	command -v gcc >/dev/null || echo gcc
	[ -e /usr/include/stdio.h ] || echo libc6-dev
	command -v prove >/dev/null || echo perl
	perl -MIPC::Run -e 1 2>/dev/null || echo libipc-run-perl
	[ -x "$(bin_of "$PG_CONFIG")/postgres" ] || echo "postgresql-$major"
	if [ ! -e "$pgxs" ] || [ ! -e "$headers/postgres.h" ]; then
		echo "postgresql-server-dev-$major"
	fi
}

# Packages that single tests need, which skip without them.  pg_cron, wal2json and
# pg_repack are for one major, so that only a server of Debian's layout can get
# them this way.
useful_packages()
{
	local prefix

	PATH=$PATH:/usr/sbin command -v pgbouncer >/dev/null || echo pgbouncer
	[ -e /usr/include/valgrind/callgrind.h ] || echo valgrind
	# the python3 of the package, wherever PATH begins
	/usr/bin/python3 -c 'import psycopg2' 2>/dev/null || echo python3-psycopg2
	# the clients of the examples, as far as they are light
	/usr/bin/python3 -c 'import psycopg' 2>/dev/null || echo python3-psycopg
	/usr/bin/perl -MDBD::Pg -e 1 2>/dev/null || echo libdbd-pg-perl
	ruby -rpg -e 1 2>/dev/null || echo ruby-pg
	php -r 'exit(extension_loaded("pdo_pgsql") ? 0 : 1);' 2>/dev/null || printf '%s\n' php-cli php-pgsql
	[ -e /usr/include/postgresql/libpq-fe.h ] || echo libpq-dev
	prefix=$(dirname "$(bin_of "$PG_CONFIG")")
	if [[ $prefix =~ ^/usr/lib/postgresql/([0-9]+)$ ]]; then
		[ -e "$prefix/lib/pg_cron.so" ] || echo "postgresql-${BASH_REMATCH[1]}-cron"
		[ -e "$prefix/lib/wal2json.so" ] || echo "postgresql-${BASH_REMATCH[1]}-wal2json"
		[ -x "$prefix/bin/pg_repack" ] || echo "postgresql-${BASH_REMATCH[1]}-repack"
	fi
}

have_package_list()
{
	[ -n "$(find /var/lib/apt/lists -name '*Packages*' -print -quit)" ]
}

# Those that this machine's sources are known to have; all of them, if it has no
# list to look in.
offered_packages()
{
	local package

	while IFS= read -r package; do
		if ! have_package_list || apt-cache show "$package" >/dev/null 2>&1; then
			echo "$package"
		fi
	done
}

as_root()
{
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	else
		sudo -n "$@"
	fi
}

apt_get()
{
	as_root env DEBIAN_FRONTEND=noninteractive \
		apt-get -q -y -o DPkg::Lock::Timeout=900 -o Dpkg::Use-Pty=0 "$@" </dev/null
}

# The list of packages may be absent or out of date.
apt_install()
{
	apt_get install --no-install-recommends "$@" || {
		apt_get update
		apt_get install --no-install-recommends "$@"
	}
}

# Debian's server package makes a cluster "main" when it is installed and
# starts the machine's clusters.  Nobody asked for that here: forbid both,
# only while it is installed.
apt_install_server()
(
	folder=/etc/postgresql-common/createcluster.d
	no_cluster=$folder/zz-no-main-cluster.conf
	no_start=/usr/sbin/policy-rc.d
	made_folder=

	[ ! -e "$no_start" ] || no_start=
	[ -e "$folder" ] || made_folder=$folder
	trap 'as_root rm -f "$no_cluster" $no_start; [ ! -d "$made_folder" ] || as_root rmdir "$made_folder"' EXIT
	trap 'exit 1' HUP INT TERM
	if [ -n "$no_start" ]; then
		printf '#!/bin/sh\nexit 101\n' | as_root tee "$no_start" >/dev/null
		as_root chmod 755 "$no_start"
	fi
	apt_install postgresql-common
	as_root mkdir -p "$folder"
	echo 'create_main_cluster = false' | as_root tee "$no_cluster" >/dev/null
	[ "$(pg_conftool /etc/postgresql-common/createcluster.conf show -bs create_main_cluster)" = off ] ||
		die "createcluster.conf does not include createcluster.d; please install $* yourself"
	apt_install "$@"
)

can_install()
{
	command -v apt-get >/dev/null && as_root true 2>/dev/null
}

# Several runs may find the same package missing: the first installs it.  The
# lock is on a folder, so that it leaves no file behind.
lock_packages()
{
	exec 9</var/lib/dpkg
	flock 9
}

# All at once, also those that only skipped tests need: who has to ask somebody
# else asks once.
ask_for_packages()
{
	local required useful

	required=$(missing_packages | xargs)
	if ! command -v apt-get >/dev/null; then
		die "please install what these packages of Debian contain: $required"
	fi
	useful=$(useful_packages | offered_packages | xargs)
	cat >&2 <<-EOT
		test/run: packages are missing, and only root can install them.  This command gets all:

		    apt-get update && apt-get install --no-install-recommends $required${useful:+ $useful}
	EOT
	[ -z "$useful" ] || printf '\n%s\n' "Some tests are skipped without these, all else works: $useful" >&2
	exit 1
}

install_required()
(
	[ -n "$(missing_packages)" ] || exit 0
	can_install || ask_for_packages
	lock_packages
	mapfile -t packages < <(missing_packages)
	[ ${#packages[@]} -gt 0 ] || exit 0
	install=apt_install
	[[ " ${packages[*]} " != *" postgresql-"[0-9]* ]] || install=apt_install_server
	step "installing ${packages[*]}" "$install" "${packages[@]}"
)

# Not every machine offers them, and nothing depends on them.  pgbouncer comes
# with a service, which nobody asked for either.
install_useful()
(
	[ -n "$(useful_packages)" ] && can_install || exit 0
	lock_packages
	have_package_list || step 'fetching the list of packages' apt_get update
	mapfile -t packages < <(useful_packages | offered_packages)
	[ ${#packages[@]} -gt 0 ] || exit 0
	step "installing ${packages[*]}" apt_install_server "${packages[@]}" ||
		echo "not installed, some tests will be skipped: ${packages[*]}"
	if [[ " ${packages[*]} " == *" pgbouncer "* ]]; then
		as_root update-rc.d pgbouncer disable >/dev/null 2>&1 || true
	fi
)

# test/bench/instructions.sh needs the first; the others draw, or are compared with,
# and are done without where they are not offered.
bench_packages()
{
	[ -e /usr/include/valgrind/callgrind.h ] || echo valgrind
	command -v gnuplot >/dev/null || echo gnuplot-nox
	PATH=$PATH:/usr/sbin command -v redis-server >/dev/null || echo redis-server
	PATH=$PATH:/usr/sbin command -v etcd >/dev/null || echo etcd-server
}

install_for_bench()
(
	[ -n "$(bench_packages)" ] || exit 0
	if ! can_install; then
		echo "not installed, and only root can: $(bench_packages | xargs)"
		exit 0
	fi
	lock_packages
	have_package_list || step 'fetching the list of packages' apt_get update
	mapfile -t packages < <(bench_packages | offered_packages)
	[ ${#packages[@]} -gt 0 ] || exit 0
	step "installing ${packages[*]}" apt_install_server "${packages[@]}" ||
		echo "not installed: ${packages[*]}"
	# services that nobody asked for
	for service in redis-server etcd; do
		if [[ " ${packages[*]} " == *" ${service%-server}"* ]]; then
			as_root update-rc.d "$service" disable >/dev/null 2>&1 || true
		fi
	done
)
