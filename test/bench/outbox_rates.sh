#!/usr/bin/env bash
#
# Events a second through the outbox, for 1 and for 10 consumers who all get every
# event, beside two plain tables that are used as queues.
#
#   test/run shell bash test/bench/outbox_rates.sh [EVENTS [ROUNDS]]
#
#   outbox   fencing_outbox_emit(), _read() and _ack(), with the lease of each
#            consumer; then fencing_purge('events')
#   queue    a table per consumer, as queues in SQL have it (pgmq): read sets a
#            time until which a row is not seen by others, with FOR UPDATE SKIP
#            LOCKED; what is handled is deleted
#   jobs     one table for all, as job runners have it (River): the next rows by
#            state, priority and time are marked running, FOR UPDATE SKIP LOCKED,
#            then completed; those are deleted in the end
#
# Both are written here, from what they do.  They have one row per event and
# consumer, written in one command by who emits; the outbox has one per event.
#
# The events are emitted by two clients, one per transaction, for a thousand
# aggregates at random; then each consumer reads and acknowledges all of them in
# batches of 100, all consumers at the same time.  "whole" is the events divided by
# the time that all of this takes, what has to be cleaned up included.  The outbox
# has to be at least as fast in whole as either table with 10 consumers; what
# it gives beside (order within an aggregate, fenced acknowledgements, replays)
# they do not.
#
# synchronous_commit is on for all.  The server of test/run has fsync off, so that
# this is what processors have to do and not what disks do: the stricter comparison,
# as waiting for a disk is the same for all.
# By default 10,000 events, and the median of the ratios of 5 rounds; in each all
# take their turn, in changing order.  Needs a database with the extension
# (PGHOST, PGDATABASE ...) and no events of its own; what is made in it is removed.

set -euo pipefail

events=${1:-10000}
rounds=${2:-5}
batch=100
crowds=(1 10)
ways=(outbox queue jobs)
owner=0f7f2d0a-9b1e-4c55-8f0e-3c2a5d1b7e45
folder=
failed=0

export PGOPTIONS='-c synchronous_commit=on'

run()
{
	psql -XqAt -v ON_ERROR_STOP=1 -v owner="$owner" "$@"
}

clean_up()
{
	rm -rf "$folder"
	run >/dev/null <<-'EOF'
		SET client_min_messages = warning;
		SELECT fencing_outbox_unsubscribe('bench' || i) FROM generate_series(0, 9) i;
		SET session_replication_role = replica;
		DELETE FROM fencing.outbox WHERE aggregatetype = 'bench';
		DELETE FROM fencing.leases WHERE owner = :'owner';
		DELETE FROM fencing.fences WHERE job_key ~ '^bench[0-9]$';
		DROP SCHEMA IF EXISTS bench_rates CASCADE;
	EOF
}

prepare()
{
	run >/dev/null <<-'EOF'
		SET client_min_messages = warning;
		DROP SCHEMA IF EXISTS bench_rates CASCADE;
		CREATE SCHEMA bench_rates;
		SET search_path = bench_rates, public;
		CREATE TABLE jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state text NOT NULL DEFAULT 'available', attempt smallint NOT NULL DEFAULT 0,
			priority smallint NOT NULL DEFAULT 1, queue text NOT NULL, kind text NOT NULL, args jsonb NOT NULL, created_at timestamptz NOT NULL DEFAULT now(),
			scheduled_at timestamptz NOT NULL DEFAULT now(), attempted_at timestamptz, finalized_at timestamptz, attempted_by text);
		CREATE INDEX ON jobs (state, queue, priority, scheduled_at, id);
		SELECT format('CREATE TABLE queue%s (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, read_count int NOT NULL DEFAULT 0,
			enqueued_at timestamptz NOT NULL DEFAULT now(), visible_at timestamptz NOT NULL, message jsonb)', i),
			format('CREATE INDEX ON queue%s (visible_at)', i)
		FROM generate_series(0, 9) i \gexec
	EOF
}

# One event for so many consumers.
emit_script()
{
	local message="jsonb_build_object('customer', :a::int, 'items', '[{\"sku\": \"4711\", \"count\": 3, \"price\": 12.50}, {\"sku\": \"4712\", \"count\": 1, \"price\": 7.25}]'::jsonb, 'currency', 'EUR')" i

	echo '\set a random(1, 1000)'
	case $1 in
		outbox) echo "SELECT fencing_outbox_emit('bench', :a::text, 'order.created', $message);" ;;
		jobs) echo "INSERT INTO bench_rates.jobs (queue, kind, args) SELECT 'bench' || i, 'order.created', m FROM generate_series(0, $2 - 1) i, (SELECT $message AS m OFFSET 0) p;" ;;
		queue)
			printf 'WITH p AS MATERIALIZED (SELECT %s AS m)' "$message"
			for ((i = 1; i < $2; i++)); do
				printf ', i%d AS (INSERT INTO bench_rates.queue%d (visible_at, message) SELECT clock_timestamp(), m FROM p)' "$i" "$i"
			done
			echo ' INSERT INTO bench_rates.queue0 (visible_at, message) SELECT clock_timestamp(), m FROM p;'
			;;
	esac
}

# A batch of one consumer.
consume_script()
{
	local i=$2 token=${3:-}

	case $1 in
		outbox) cat <<-EOF ;;
			SELECT array_agg(id) AS ids, sum(length(payload::text)) AS read FROM fencing_outbox_read('bench$i', $token, $batch) \gset
			SELECT outcome FROM fencing_outbox_ack('bench$i', $token, :ids::uuid[]);
		EOF
		queue) cat <<-EOF ;;
			WITH c AS (UPDATE bench_rates.queue$i SET visible_at = clock_timestamp() + interval '30 seconds', read_count = read_count + 1 WHERE id IN (SELECT id FROM bench_rates.queue$i WHERE visible_at <= clock_timestamp() ORDER BY id LIMIT $batch FOR UPDATE SKIP LOCKED) RETURNING id, message) SELECT array_agg(id) AS ids, sum(length(message::text)) AS read FROM c \gset
			DELETE FROM bench_rates.queue$i WHERE id = ANY (:ids::bigint[]);
		EOF
		jobs) cat <<-EOF ;;
			WITH c AS (UPDATE bench_rates.jobs SET state = 'running', attempt = attempt + 1, attempted_at = now(), attempted_by = 'me' WHERE id IN (SELECT id FROM bench_rates.jobs WHERE state = 'available' AND queue = 'bench$i' AND scheduled_at <= now() ORDER BY priority, scheduled_at, id LIMIT $batch FOR UPDATE SKIP LOCKED) RETURNING id, args) SELECT array_agg(id) AS ids, sum(length(args::text)) AS read FROM c \gset
			UPDATE bench_rates.jobs SET state = 'completed', finalized_at = now() WHERE id = ANY (:ids::bigint[]);
		EOF
	esac
}

# What is left of the events when all have been consumed.
purge()
{
	case $1 in
		outbox)
			while [ "$(run -c "SELECT more FROM fencing_purge('events', '1 microsecond')")" = t ]; do :; done
			;;
		jobs) run -c "DELETE FROM bench_rates.jobs WHERE state = 'completed'" ;;
		queue) ;;
	esac
}

# rows that are still there
left()
{
	case $1 in
		outbox) run -c 'SELECT count(*) FROM fencing.outbox' ;;
		jobs) run -c 'SELECT count(*) FROM bench_rates.jobs' ;;
		queue) run -c "SELECT sum((xpath('/row/n/text()', query_to_xml('SELECT count(*) AS n FROM bench_rates.queue' || i, false, true, '')))[1]::text::bigint) FROM generate_series(0, 9) i" ;;
	esac
}

vacuum()
{
	run -c "SELECT format('VACUUM (ANALYZE) %s;', oid::regclass) FROM pg_class WHERE relkind = 'r' AND relnamespace IN ('bench_rates'::regnamespace, 'fencing'::regnamespace)" | run
	run -c CHECKPOINT
}

bench()
{
	pgbench -n -M prepared "$@" || { echo "pgbench has failed" >&2; exit 1; }
}

# emit, read and acknowledge all events, in whole: each a second
measure()
{
	local way=$1 crowd=$2 i before after begun
	local -a consumers=()

	if [ "$way" = outbox ]; then
		run -v n="$crowd" -c "SELECT fencing_outbox_subscribe('bench' || i, from_start => false) FROM generate_series(0, $crowd - 1) i" >/dev/null
	fi
	emit_script "$way" "$crowd" >"$folder/emit.sql"
	for ((i = 0; i < crowd; i++)); do
		consume_script "$way" "$i" "$(run -c "SELECT token FROM fencing_acquire('bench$i', '$owner', '1 day')")" >"$folder/consume$i.sql"
	done
	vacuum
	begun=$(date +%s%N)
	bench -c 2 -j 2 -t $((events / 2)) -f "$folder/emit.sql" >"$folder/emit.out"
	before=$(date +%s%N)
	for ((i = 0; i < crowd; i++)); do
		bench -r -t $((events / batch)) -f "$folder/consume$i.sql" >"$folder/consume$i.out" &
		consumers+=($!)
	done
	for i in "${consumers[@]}"; do
		wait "$i"
	done
	after=$(date +%s%N)
	purge "$way"
	awk -v n="$events" -v a="$begun" -v b="$before" 'BEGIN { print n / (b - a) * 1e9 }' >>"$folder/emit.$way.$crowd"
	awk -v n="$events" -v a="$before" -v b="$after" 'BEGIN { print n / (b - a) * 1e9 }' >>"$folder/drain.$way.$crowd"
	awk -v n="$events" -v a="$begun" -v b="$(date +%s%N)" 'BEGIN { print n / (b - a) * 1e9 }' >>"$folder/whole.$way.$crowd"
	# a read is the first statement of a batch, an acknowledgement the second
	for ((i = 0; i < crowd; i++)); do
		awk '/latencies/ { on = 1; next } on { printf "%s ", $1 } END { print "" }' "$folder/consume$i.out"
	done | awk -v batch="$batch" -v r="$folder/read.$way.$crowd" -v a="$folder/ack.$way.$crowd" '
		{ read += batch / $1 * 1000; ack += batch / $2 * 1000 } END { print read >>r; print ack >>a }'
	[ "$(left "$way")" = 0 ] || { echo "$way: something is left" >&2; exit 1; }
	if [ "$way" = outbox ]; then
		run -c "SELECT fencing_outbox_unsubscribe('bench' || i) FROM generate_series(0, $crowd - 1) i" >/dev/null
	fi
}

median()
{
	sort -n | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

# the median of the ratios of one round each
ratio()
{
	paste "$1" "$2" | awk '{ print $1 / $2 }' | median
}

report()
{
	local crowd part name to_queue to_jobs verdict

	printf '%-42s %9s %9s %9s %9s %9s\n' 'a second, batches of '"$batch" outbox queue jobs 'to queue' 'to jobs'
	for crowd in "${crowds[@]}"; do
		for part in emit read ack drain whole; do
			case $part in
				emit) name='events emitted' ;;
				read) name='read, by all consumers' ;;
				ack) name='acknowledged, by all consumers' ;;
				drain) name='events read and acknowledged by all' ;;
				whole) name='whole' ;;
			esac
			to_queue=$(ratio "$folder/$part.outbox.$crowd" "$folder/$part.queue.$crowd")
			to_jobs=$(ratio "$folder/$part.outbox.$crowd" "$folder/$part.jobs.$crowd")
			verdict=
			if [ "$part $crowd" = 'whole 10' ]; then
				verdict=passed
				if awk -v a="$to_queue" -v b="$to_jobs" 'BEGIN { exit a >= 1 && b >= 1 }'; then
					verdict=FAILED
					failed=1
				fi
			fi
			printf '%-42s %9.0f %9.0f %9.0f %9.3f %9.3f  %s\n' "$crowd: $name" "$(median <"$folder/$part.outbox.$crowd")" "$(median <"$folder/$part.queue.$crowd")" \
				"$(median <"$folder/$part.jobs.$crowd")" "$to_queue" "$to_jobs" "$verdict"
		done
	done
}

main()
{
	local round crowd way i

	[ $((events % (2 * batch))) -eq 0 ] || { echo "outbox_rates.sh: the events must be a multiple of $((2 * batch))" >&2; exit 2; }
	folder=$(mktemp -d)
	trap clean_up EXIT
	prepare
	# once for the caches and the files
	for way in "${ways[@]}"; do
		measure "$way" 1
	done
	rm -f "$folder"/*.1
	for ((round = 0; round < rounds; round++)); do
		for crowd in "${crowds[@]}"; do
			for ((i = 0; i < ${#ways[@]}; i++)); do
				if [ $((round % 2)) -eq 0 ]; then
					way=${ways[i]}
				else
					way=${ways[${#ways[@]} - 1 - i]}
				fi
				measure "$way" "$crowd"
			done
		done
	done
	report
	return "$failed"
}

main "$@"
