#!/usr/bin/env bash
#
# A worker in bash with psql.  It takes a job, computes, writes the result once,
# whatever happens to its connection, and is kept out when it is late.
#
#   PGHOST=... PGDATABASE=... PGUSER=app bash examples/worker_psql.sh [JOB]

set -euo pipefail
export PGCONNECT_TIMEOUT=5

job=${1:-daily-report/2026-08-03}
owner=$(cat /proc/sys/kernel/random/uuid)   # one per execution, not per host
late_owner=$(cat /proc/sys/kernel/random/uuid)

exec 3>&1   # for what is said beside answers

# One call.  Values go in by -v and come out quoted as :'name', never pasted into
# the SQL; psql replaces them only in what it reads from standard input or -f, not
# in -c.  Its exit code: 0 answered, 2 connection lost, 3 an error in the SQL (that
# is what ON_ERROR_STOP is for: without it psql goes on, and ends with 0).
ask()
{
	local sql=$1
	shift
	psql -X -A -t -q -F ' ' -v ON_ERROR_STOP=1 -v job="$job" -v owner="$owner" "$@" <<<"$sql"
}

# Sends a call again when its connection is lost.  Every call may be sent again:
# the same owner gets the same token, and the same content has its effect once.
answer()
{
	local code pause

	for pause in 0.2 1 5 20; do
		ask "$@" && return
		code=$?
		[ "$code" -eq 2 ] || exit "$code"
		echo 'connection lost' >&3
		sleep "$pause"
	done
	exit "$code"
}

# Heartbeats, on connections of their own: at once, then every 10 seconds, until
# the other end of its standard input is closed.
heartbeat()
{
	local outcome

	while outcome=$(answer "SELECT outcome FROM fencing_renew(:'job', :'owner', :'token', '30 seconds')" -v token="$token"); do
		# lost: somebody else has the job; stop what has effects elsewhere
		[ "$outcome" = renewed ] || break
		read -r -t 10 || [ $? -gt 128 ] || break
	done
	echo "$outcome"
}

# The business write.  It is passed as a value like all others, and sees the
# job as $1, the token as $2 and the payload as $3.
write_report="INSERT INTO report SELECT \$1, (\$3 ->> 'day')::date, (\$3 ->> 'total')::numeric RETURNING total"

commit()
{
	answer "SELECT outcome FROM fencing_commit(:'job', :'token', :'payload', :'statement', :'step')" \
		-v token="$token" -v payload="$1" -v statement="$write_report" -v step="${2:-}"
}

read -r outcome token < <(answer "SELECT outcome, token FROM fencing_acquire(:'job', :'owner', '30 seconds')")
echo "$outcome $token"
[ "$outcome" != held ] || exit 1   # somebody else is at it

exec 4> >(heartbeat)
heart=$!
payload='{"day": "2026-08-03", "total": 16.5}'   # nothing in it changes between attempts
commit "$payload"
commit "$payload"   # asked again: it is done already

exec 4>&-
wait "$heart"
answer "SELECT outcome FROM fencing_release(:'job', :'owner', :'token')" -v token="$token"

# Another worker takes over.  What the first one still wants to write is refused.
answer "SELECT outcome, token FROM fencing_acquire(:'job', :'late_owner', '30 seconds')" -v late_owner="$late_owner"
commit "$payload" late
answer "SELECT outcome FROM fencing_release(:'job', :'late_owner', :'token')" -v late_owner="$late_owner" -v token=$((token + 1))
