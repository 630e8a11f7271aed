#!/usr/bin/env bash
#
# All benchmarks, and at the end one table of the rows that have a limit.  "make bench"
# calls it; see there and in the scripts for what can be chosen.
#
#   test/bench/all.sh [ROUNDS [SECONDS [JOBS...]]]
#
# ROUNDS and SECONDS are those of throughput.sh, JOBS those of size.sh.

set -euo pipefail

bench=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
[ -n "${FENCING_WORK:-}" ] || exec "$bench/../run" bench all "$@"

log=$(mktemp)
trap 'rm -f "$log"' EXIT
rounds=${1:-9}
seconds=${2:-2}
shift $(($# < 2 ? $# : 2))
failed=0

part()
{
	local name=$1
	shift

	printf '\n%s\n' "== $name $*"
	{ bash "$bench/$name.sh" "$@" || echo "$name: FAILED"; } 2>&1 | tee -a "$log"
}

# The last two run in the database of "test/run shell", which has no fsync.
part instructions
part throughput "$rounds" "$seconds"
part size "$@"
part outbox 1000 5
part tags 10000 100000 3

printf '\n== with a limit\n'
grep -E '(passed|FAILED)$' "$log"
! grep -q 'FAILED$' "$log" || failed=1
exit "$failed"
