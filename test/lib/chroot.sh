# shellcheck shell=bash
#
# Small Debians to try things in, made by debootstrap, by root; and jobs whose
# results are reported together.  Sourced, beside packages.sh.  Whatever is
# started or mounted for a job ends with it.

folder=
temporary=
job=
failed=0
results=()

release_of()
{
	case $1 in
		15) echo bookworm ;;
		17) echo trixie ;;
		18) echo sid ;;
		*) die "no release of Debian ships PostgreSQL $1" ;;
	esac
}

# The first of this machine, unless one is named.
mirror()
{
	local first

	# shellcheck disable=SC2016
	first=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | sed -n 1p)
	echo "${DEBIAN_MIRROR:-${first%/}}"
}

# A namespace of its own for processes and mounts: nothing outlives the command.
inside()
{
	local chroot=$1
	shift

	unshare --mount --pid --fork --kill-child --mount-proc="$chroot/proc" \
		chroot "$chroot" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
		DEBIAN_FRONTEND=noninteractive "$@"
}

make_chroot()
{
	local chroot=$1 release=$2

	if [ ! -x "$chroot/usr/bin/apt-get" ]; then
		command -v debootstrap >/dev/null || apt_install debootstrap
		debootstrap --variant=minbase "$release" "$chroot" "$(mirror)"
	fi
	# in case that an earlier run was interrupted
	inside "$chroot" dpkg --configure -a
}

# The caller's folder, which is kept, or a temporary one.
use_folder()
{
	trap 'exit 1' HUP INT TERM
	trap clean_up EXIT
	folder=$1
	if [ -z "$folder" ]; then
		temporary=$(mktemp -d "${TMPDIR:-/tmp}/fencing-folder.XXXXXX")
		chmod 755 "$temporary"
		folder=$temporary
	fi
	mkdir -p "$folder"
	folder=$(cd "$folder" && pwd -P)
}

clean_up()
{
	if [ -n "$job" ]; then
		kill -TERM -- "-$job" 2>/dev/null || true
		wait "$job" || true
	fi
	[ -z "$temporary" ] || rm -rf "$temporary"
}

# $1 what is tried, then the command.  A job, since errors end nothing inside a
# condition, and to stop it whole.
try()
{
	local title=$1
	shift

	echo "== $title"
	set -m
	("$@") </dev/null &
	job=$!
	set +m
	if wait "$job"; then
		results+=("$title: passed")
	else
		failed=1
		results+=("$title: FAILED")
	fi
	job=
}

report()
{
	echo
	printf '%s\n' "${results[@]}"
	return "$failed"
}
