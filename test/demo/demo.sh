#!/usr/bin/env bash
#
# The story of two workers and one nightly report, played with real sessions; of a
# setting that is published, and delivered in the wrong order; and of a tag that is
# renamed and merged.  Every call is printed with its answer, and every answer is
# checked: the demo fails if a story does not come out as told.
#
# Run by "make demo" (test/run demo), which makes a private server; connects
# as the environment says (PGHOST, PGDATABASE ...), as a superuser.

set -euo pipefail

job=daily-report/2026-08-03
owner_a=aaaaaaaa-0000-4000-8000-000000000001
owner_b=bbbbbbbb-0000-4000-8000-000000000002
merge=cccccccc-0000-4000-8000-000000000003

# The business write of both workers; $3 is the payload.  The table has no
# unique key on purpose: nothing but the gate stands against doubled rows.
# shellcheck disable=SC2016
write_report='WITH report AS (
  INSERT INTO daily_report (day, region, orders, revenue, token)
  SELECT ($3->>'"'day'"')::date, r.region, r.orders, r.revenue, $2
  FROM jsonb_to_recordset($3->'"'rows'"') AS r(region text, orders int, revenue numeric)
  RETURNING revenue)
SELECT count(*) AS rows, sum(revenue) AS total FROM report'

# How a target in this database is written: $2 is the target, $3 the version, $5
# the content.
# shellcheck disable=SC2016
apply='INSERT INTO shop_config VALUES ($2, $3, $5)
ON CONFLICT (target) DO UPDATE SET version = EXCLUDED.version, content = EXCLUDED.content'

compute_report="SELECT region, count(*) AS orders, sum(amount) AS revenue
FROM orders WHERE day = '2026-08-03' GROUP BY region ORDER BY region COLLATE \"C\";"

folder=$(mktemp -d)
declare -A to from pid
answer=

clean_up()
{
	[ ${#pid[@]} -eq 0 ] || kill "${pid[@]}" || true
	rm -rf "$folder"
}
trap clean_up EXIT

fail()
{
	echo
	echo "THE STORY WENT WRONG: $*" >&2
	exit 1
}

act()
{
	act_number=$((${act_number:-0} + 1))
	printf '== %d. %s\n\n' "$act_number" "$1"
	shift
	printf '%s\n' "$*" | fold -s -w 80 | sed 's/ *$//'
	echo
}

# A session of its own for each worker.
open_session()
{
	local name=$1 role=$2 in out

	mkfifo "$folder/in" "$folder/out"
	# opened for both directions, so that no side waits for the other here
	exec {in}<>"$folder/in" {out}<>"$folder/out"
	rm "$folder/in" "$folder/out"
	psql -X -q -U "$role" -P footer=off -P null=NULL \
		-v write_report="$write_report" -v apply="$apply" \
		<&"$in" >&"$out" 2>&1 &
	pid[$name]=$!
	disown
	to[$name]=$in
	from[$name]=$out
}

# Prints and sends a command without waiting for the answer.
tell()
{
	local name=$1 sql=$2

	printf '%s\n' "$sql" | sed "1s/^/$name> /; 1!s/^/   /"
	printf '%s\n' "$sql" >&"${to[$name]}"
}

# Waits for the answer to everything that was sent to the session.
listen()
{
	local name=$1 line

	answer=
	printf '\\echo end of answer\n' >&"${to[$name]}"
	while IFS= read -r -t 60 line <&"${from[$name]}" || fail "no answer for session $name"; do
		[ "$line" != 'end of answer' ] || return 0
		answer+=${line:+$line$'\n'}
	done
}

ask()
{
	tell "$1" "$2"
	listen "$1"
	printf '%s\n' "$answer"
}

# The last answer must have this text in it; blanks count as one.
expect()
{
	[[ "$(tr -s ' ' <<<"$answer")" == *"$1"* ]] || fail "expected: $1"
}

# Waits until a query, asked by nobody in the story, says true.
until_true()
{
	local tries=600

	while [ "$(psql -XAtc "$1")" != t ]; do
		((tries-- > 0)) || fail "did not come true: $1"
		sleep 0.1
	done
}

# The rows of the last answer, without blanks for alignment.
rows()
{
	sed -n '3,$p' <<<"$answer" | sed 's/ *| */|/g; s/^ *//; s/ *$//; /^$/d'
}

# The worker's program makes its payload from the rows that it computed.
payload()
{
	rows | awk -F '|' '
		BEGIN { printf "{\"day\": \"2026-08-03\", \"rows\": [" }
		{ printf "%s\n  {\"region\": \"%s\", \"orders\": %s, \"revenue\": %s}", comma, $1, $2, $3; comma = "," }
		END { printf "]}" }'
}

prepare()
{
	act 'The shop' 'An administrator makes the tables, and lets the role "worker" use leases and commits.'
	open_session admin postgres
	ask admin "CREATE TABLE orders (day date, region text, amount numeric(10,2));
INSERT INTO orders VALUES
  ('2026-08-03', 'north', 3.00), ('2026-08-03', 'north', 1.50),
  ('2026-08-03', 'south', 30.00), ('2026-08-03', 'Zürich', 7.25);
CREATE TABLE daily_report (day date, region text, orders int, revenue numeric, token bigint);
CREATE ROLE worker LOGIN;
GRANT SELECT ON orders TO worker;
GRANT SELECT, INSERT ON daily_report TO worker;"
	[ -z "$answer" ] || fail 'an error'
	tell admin "SELECT fencing_grant('worker', 'client');"
	listen admin
	[[ $answer == *fencing_grant* ]] || fail 'the role cannot be granted access'

	printf '\nBoth workers write with this statement, :write_report in what follows:\n\n'
	printf '   %s\n' "${write_report//$'\n'/$'\n'   }"
	echo
	open_session A worker
	open_session B worker
}

a_takes_the_lease()
{
	act 'Worker A takes the lease' 'For 5 seconds, so that the story is short. A computes its report.'
	ask A "SELECT outcome, token, safe_for_ms
FROM fencing_acquire('$job', '$owner_a', '5 seconds');"
	expect 'acquired | 1 | 4950'
	ask A "$compute_report"
	expect 'south | 1 | 30.00'
	payload_a=$(payload)
}

b_has_to_wait()
{
	act 'Worker B wants the job too' 'It is told that somebody else has it.'
	ask B "SELECT outcome, token
FROM fencing_acquire('$job', '$owner_b', '1 hour');"
	expect 'held | NULL'
}

b_takes_over()
{
	local tries=100 sql="SELECT outcome, token, retry_after_ms
FROM fencing_acquire('$job', '$owner_b', '1 hour');"

	act 'A pauses' 'Its host is suspended, say: A sends nothing, and its lease runs out. Meanwhile a late order comes in. B asks again, each time after retry_after_ms, until it is not held any more.'
	ask admin "INSERT INTO orders VALUES ('2026-08-03', 'south', 100.00);"
	[ -z "$answer" ] || fail 'an error'
	tell B "$sql"
	listen B
	while [[ $answer == *held* ]]; do
		((tries-- > 0)) || fail 'the lease of A does not end'
		sleep "$(rows | awk -F '|' '{ print $3 / 1000 }')"
		printf '%s\n' "$sql" >&"${to[B]}"
		listen B
	done
	printf '%s\n' "$answer"
	expect 'acquired | 2 | NULL'
	ask admin 'SELECT job_key, token, owner, live FROM fencing.lease_status;'
	expect "$job | 2 | $owner_b | t"
}

b_commits_and_hears_nothing()
{
	act 'B commits, and the reply is lost' 'The rows and the receipt are written in one transaction, and are there for others once COMMIT has taken effect. But B does not hear of it: pg_sleep, sent along with COMMIT, keeps the reply in the server until B has been killed.'
	ask B "$compute_report"
	expect 'south | 2 | 130.00'
	payload_b=$(payload)
	ask B "BEGIN;
SELECT outcome, result, fence
FROM fencing_commit('$job', 2, '$payload_b', :'write_report');"
	expect 'committed | {"rows": 3, "total": 141.75} | 2'
	tell B 'COMMIT \; SELECT pg_sleep(600);'
	until_true 'SELECT EXISTS (SELECT FROM fencing.receipt_log)'
	kill -KILL "${pid[B]}"
	unset 'pid[B]'
	if IFS= read -r -t 0.1 <&"${from[B]}"; then
		fail "B heard something: $REPLY"
	fi
	until_true "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
	echo '   (B is killed; it has read nothing)'
	echo
}

a_wakes_up()
{
	act 'A wakes up' 'It does not know that it slept, and commits the report that it computed before the late order. The fence has moved on: nothing is written. Its next heartbeat tells it too.'
	ask A "SELECT outcome, result, fence
FROM fencing_commit('$job', 1, '$payload_a', :'write_report');"
	expect 'stale | NULL | 2'
	ask A "SELECT outcome, token
FROM fencing_renew('$job', '$owner_a', 1);"
	expect 'lost | NULL'
}

b_tries_again()
{
	act 'B is started again, and tries again' 'With the same token and the same content. Its JSON library writes that in another way this time: other order of the keys, 4.5 for 4.50, 1.3e2 for 130.00, an escape for a letter. The answer is that of the first time; nothing is written again.'
	open_session B worker
	ask B "SELECT outcome, result, fence
FROM fencing_commit('$job', 2, '{\"rows\": [
  {\"revenue\": 7.25, \"region\": \"Z\\u00fcrich\", \"orders\": 1},
  {\"revenue\": 4.5, \"region\": \"north\", \"orders\": 2},
  {\"revenue\": 1.3e2, \"region\": \"south\", \"orders\": 2}], \"day\": \"2026-08-03\"}', :'write_report');"
	expect 'replayed | {"rows": 3, "total": 141.75} | 2'
}

b_changes_the_content()
{
	act 'A retry with other content' 'If B put the time of computing into its report, every attempt would claim one number for another content. That is a mistake in the program, and it is told so.'
	ask B "SELECT outcome, result
FROM fencing_commit('$job', 2, '$payload_b'::jsonb
  || jsonb_build_object('computed_at', clock_timestamp()), :'write_report');"
	expect 'conflict | NULL'
}

the_end()
{
	act 'What is in the table' "B's three rows, once, with the late order; nothing of A's. And one receipt."
	ask B "SELECT outcome FROM fencing_release('$job', '$owner_b', 2);"
	expect 'released'
	ask admin 'SELECT * FROM daily_report ORDER BY region COLLATE "C";'
	[ "$(rows)" = '2026-08-03|Zürich|1|7.25|2
2026-08-03|north|2|4.50|2
2026-08-03|south|2|130.00|2' ] || fail "not B's rows, once"
	ask admin 'SELECT job_key, token, step, committed_at FROM fencing.receipt_log;'
	[ "$(rows | cut -d '|' -f 1-3)" = "$job|2|" ] || fail "not one receipt"
}

publish_twice()
{
	act 'Second story: a setting is published' 'Each version is made above the one that its publisher has seen, and never changes. Who has seen an old one is in conflict.'
	tell admin "CREATE ROLE editor LOGIN;
CREATE TABLE shop_config (target text PRIMARY KEY, version bigint, content jsonb);
GRANT SELECT, INSERT, UPDATE ON shop_config TO worker;
SELECT fencing_grant('editor', 'publisher'), fencing_grant('worker', 'target');
SELECT fencing_target_desire('prices', 'shop-1');"
	listen admin
	open_session E editor
	ask E "SELECT outcome, version FROM fencing_publish('prices', 0, '{\"tea\": 3.00}', 'first');"
	expect 'committed | 1'
	ask E "SELECT outcome, version FROM fencing_publish('prices', 1, '{\"tea\": 0.30}', 'typing error');"
	expect 'committed | 2'
	ask E "SELECT outcome, version, latest_version FROM fencing_publish('prices', 1, '{\"tea\": 3.10}');"
	expect 'conflict | NULL | 2'
}

roll_back()
{
	act 'It is rolled back' 'The old content is published again as a new version: order is by version alone, and nobody has to know what was undone.'
	ask E "SELECT outcome, version FROM fencing_publish_rollback('prices', 2, 1, 'wrong price');"
	expect 'committed | 3'
	ask admin "SELECT version, kind, source_version, actor, note FROM fencing.revision_history ORDER BY version;"
	expect '3 | rollback | 1 | editor | wrong price'
}

deliver_out_of_order()
{
	act 'It is delivered in the wrong order' 'Version 3 arrives first. Version 2, that was sent before, comes too late: the target never goes back. The second delivery of 3 writes nothing.'
	ask A "SELECT outcome, applied_version FROM fencing_apply('prices', 'shop-1', 3,
  fencing_digest('{\"tea\": 3}'), statement => :'apply');"
	expect 'committed | 3'
	ask A "SELECT outcome, applied_version FROM fencing_apply('prices', 'shop-1', 2,
  fencing_digest('{\"tea\": 0.3}'), statement => :'apply');"
	expect 'stale | 3'
	ask A "SELECT outcome, applied_version FROM fencing_apply('prices', 'shop-1', 3,
  fencing_digest('{\"tea\": 3}'), statement => :'apply');"
	expect 'replayed | 3'
	ask admin 'SELECT * FROM shop_config;'
	[ "$(rows)" = 'shop-1|3|{"tea": 3.00}' ] || fail 'the target went back'
}

see_the_lag()
{
	act 'What is rolled out where' 'Desired and applied are kept apart.'
	ask E "SELECT outcome, version FROM fencing_publish('prices', 3, '{\"tea\": 3.20}');"
	expect 'committed | 4'
	ask admin "SELECT document_id, target_id, desired_version, applied_version, lag, superseded
FROM fencing.rollout_status;"
	expect 'prices | shop-1 | 4 | 3 | 1 | 2'
}

rename_a_tag()
{
	act 'Third story: a tag is renamed' 'Everybody goes on with the links that they have. An old name leads to the tag, and makes no second one.'
	ask E "SELECT outcome, name FROM fencing_tag_create('city', gen_random_uuid(), 'Bombay');"
	ask E "SELECT outcome, name FROM fencing_tag_create('city', gen_random_uuid(), 'Bombay (city)');"
	ask A "SELECT outcome, name FROM fencing_tag_assign('city', gen_random_uuid(), 'Bombay', 'article 1');"
	expect 'committed | Bombay'
	ask E "SELECT outcome, name FROM fencing_tag_rename('city', gen_random_uuid(), 'Bombay', 'Mumbai', 0);"
	expect 'committed | Mumbai'
	ask A "SELECT name, matched FROM fencing_tag_resolve('city', 'Bombay');"
	expect 'Mumbai | former'
	ask A "SELECT outcome, name, matched FROM fencing_tag_assign('city', gen_random_uuid(), 'Bombay', 'article 2');"
	expect 'committed | Mumbai | former'
	ask E "SELECT outcome, name FROM fencing_tag_create('city', gen_random_uuid(), 'Bombay');"
	expect 'conflict | Mumbai'
}

merge_beside_a_subscribe()
{
	act 'A merge beside a subscribe' 'A reader subscribes to one of two tags while an editor merges it into the other. The merge waits for that transaction, moves nothing, and loses nothing. Who has left stays out.'
	ask B "SELECT outcome FROM fencing_tag_subscribe('city', gen_random_uuid(), 'Bombay (city)', 'reader 1');"
	ask B "SELECT outcome FROM fencing_tag_unsubscribe('city', gen_random_uuid(), 'Mumbai', 'reader 1');"
	ask A "BEGIN;
SELECT outcome, name FROM fencing_tag_subscribe('city', gen_random_uuid(), 'Bombay (city)', 'reader 2');"
	expect 'committed | Bombay (city)'
	tell E "SELECT outcome, name, matched FROM fencing_tag_merge('city', '$merge', 'Bombay (city)', 'Mumbai', 0);"
	until_true "SELECT count(*) > 0 FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE a.query LIKE '%fencing_tag_merge%' AND NOT l.granted"
	ask A 'COMMIT;'
	listen E
	printf '%s\n' "$answer"
	expect 'committed | Mumbai | merged'
	ask E "SELECT fencing_tag_subscribers('city', 'Mumbai');"
	[ "$(rows)" = 'reader 2' ] || fail 'not reader 2 alone'
	ask A "SELECT name, matched FROM fencing_tag_resolve('city', 'Bombay (city)');"
	expect 'Mumbai | merged'
}

take_the_merge_back()
{
	act 'The merge is taken back' 'What was submitted by the old name is the old tag'"'"'s again.'
	ask A "SELECT outcome, name FROM fencing_tag_assign('city', gen_random_uuid(), 'Bombay (city)', 'article 3');"
	expect 'committed | Mumbai'
	ask E "SELECT outcome, name FROM fencing_tag_undo('city', gen_random_uuid(), '$merge');"
	expect 'committed | Bombay (city)'
	ask E "SELECT name, subjects, subscribers FROM fencing_tag_statistics('city') ORDER BY name;"
	expect 'Bombay (city) | 1 | 2'
	expect 'Mumbai | 2 | 0'
	echo 'The stories came out as told: every answer was the expected one.'
}

prepare
a_takes_the_lease
b_has_to_wait
b_takes_over
b_commits_and_hears_nothing
a_wakes_up
b_tries_again
b_changes_the_content
the_end
publish_twice
roll_back
deliver_out_of_order
see_the_lag
rename_a_tag
merge_beside_a_subscribe
take_the_merge_back
