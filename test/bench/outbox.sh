#!/usr/bin/env bash
#
# What the outbox costs, as it grows: each call with few events retained, and with
# ten and a hundred times as many.  Nothing may depend on what is done; a row
# passes if the largest takes at most three times as long as the smallest, or
# less than two milliseconds.
#
#   test/run shell bash test/bench/outbox.sh [SMALLEST [ROUNDS]]
#
# By default 10,000, 100,000 and 1,000,000 events, and the median of 9 calls.  Then
# all events of the largest are drained, in batches of 100, which must be linear:
# the last tenth may take at most twice as long as the first.  Needs a database
# with the extension (PGHOST, PGDATABASE ...) and no events of its own; what is
# made in it is removed.

set -euo pipefail

smallest=${1:-10000}
rounds=${2:-9}
sizes=("$smallest" $((smallest * 10)) $((smallest * 100)))
owner=0f7f2d0a-9b1e-4c55-8f0e-3c2a5d1b7e44
folder=
failed=0

run()
{
	psql -XqAt -v ON_ERROR_STOP=1 -v owner="$owner" "$@"
}

clean_up()
{
	rm -rf "$folder"
	run >/dev/null <<-'EOT'
		SET client_min_messages = warning;
		SELECT fencing_outbox_unsubscribe(c) FROM unnest('{caught_up,behind,parked,dead}'::text[]) c;
		SET session_replication_role = replica;
		DELETE FROM fencing.outbox WHERE aggregatetype = 'bench';
		DELETE FROM fencing.leases WHERE owner = :'owner';
		DELETE FROM fencing.fences WHERE job_key IN ('caught_up', 'behind', 'parked', 'dead');
		DROP SCHEMA IF EXISTS bench_outbox CASCADE;
	EOT
}

prepare()
{
	run >/dev/null <<-'EOT'
		SET client_min_messages = warning;
		DROP SCHEMA IF EXISTS bench_outbox CASCADE;
		CREATE SCHEMA bench_outbox;
		CREATE FUNCTION bench_outbox.token(c text) RETURNS bigint LANGUAGE sql AS $$ SELECT token FROM fencing.fences WHERE job_key = c $$;
		SELECT fencing_outbox_subscribe(c, from_start => true), fencing_acquire(c, :'owner', '1 day') FROM unnest('{caught_up,behind,parked,dead}'::text[]) c;
		SELECT fencing_outbox_emit('bench', 'poison', 'poison', '{}');
		SELECT fencing_outbox_park('parked', bench_outbox.token('parked'), id, 'bad') FROM fencing.outbox WHERE type = 'poison';
		-- reads and acknowledges all of it
		CREATE FUNCTION bench_outbox.catch_up(c text) RETURNS void LANGUAGE plpgsql AS $$
		DECLARE
			t bigint := bench_outbox.token(c);
			ids uuid[];
		BEGIN
			LOOP
				SELECT array_agg(id) INTO ids FROM fencing_outbox_read(c, t, 10000) WHERE id IS NOT NULL;
				EXIT WHEN ids IS NULL;
				IF (SELECT outcome FROM fencing_outbox_ack(c, t, ids)) <> 'committed' THEN
					RAISE EXCEPTION 'not acknowledged';
				END IF;
			END LOOP;
		END $$;
	EOT
}

# As many events as there are to be, of which three consumers have done all but
# the poison, and two have not begun.
grow()
{
	run -v n="$1" >/dev/null <<-'EOT'
		SELECT count(fencing_outbox_emit('bench', (i % 1000)::text, 'event', '{"n": 1}'))
		FROM generate_series(1, :n - (SELECT count(*) FROM fencing.outbox WHERE aggregatetype = 'bench')) i;
		SELECT bench_outbox.catch_up('caught_up');
		SELECT bench_outbox.catch_up('parked');
	EOT
}

# Milliseconds of a call: the median.
measure()
{
	local round

	for ((round = 0; round < rounds; round++)); do
		run -c "$1" -c '\timing on' -c "$2" | awk '/^Time:/ { print $2 }'
	done | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

emit="SELECT fencing_outbox_emit('bench', 'new', 'event', '{}')"
ids()
{
	echo "ARRAY(SELECT id FROM fencing_outbox_read('$1', bench_outbox.token('$1'), $2))"
}

calls()
{
	cat <<-EOT
		emit, with COMMIT|SELECT 1|$emit
		read, caught up|SELECT 1|SELECT count(*) FROM fencing_outbox_read('caught_up', bench_outbox.token('caught_up'))
		read 100 of all|SELECT 1|SELECT count(*) FROM fencing_outbox_read('behind', bench_outbox.token('behind'))
		read, all done but a parked one|SELECT bench_outbox.catch_up('parked')|SELECT count(*) FROM fencing_outbox_read('parked', bench_outbox.token('parked'))
		read and ack 1, caught up|$emit|SELECT outcome FROM fencing_outbox_ack('caught_up', bench_outbox.token('caught_up'), $(ids caught_up 1))
		read and ack 1, all done but a parked one|$emit|SELECT outcome FROM fencing_outbox_ack('parked', bench_outbox.token('parked'), $(ids parked 1))
		read and ack 100 of all|SELECT 1|SELECT outcome FROM fencing_outbox_ack('behind', bench_outbox.token('behind'), $(ids behind 100))
		purge, which a dead consumer holds up|SELECT 1|SELECT purged FROM fencing_purge('events', '1 microsecond')
	EOT
}

# Seconds of each tenth of the way through all events.
drain()
{
	run <<-'EOT'
		CREATE PROCEDURE bench_outbox.drain(c text, batches int) LANGUAGE plpgsql AS $$
		DECLARE
			t bigint := bench_outbox.token(c);
		BEGIN
			FOR i IN 1 .. batches LOOP
				PERFORM FROM fencing_outbox_ack(c, t, ARRAY(SELECT id FROM fencing_outbox_read(c, t, 100)));
				COMMIT;
			END LOOP;
		END $$;
		SELECT (pending / 1000)::int AS batches FROM fencing.outbox_status WHERE consumer = 'dead' \gset
		\timing on
		CALL bench_outbox.drain('dead', :batches);
		CALL bench_outbox.drain('dead', :batches);
		CALL bench_outbox.drain('dead', :batches);
		CALL bench_outbox.drain('dead', :batches);
		CALL bench_outbox.drain('dead', :batches);
		CALL bench_outbox.drain('dead', :batches);
		CALL bench_outbox.drain('dead', :batches);
		CALL bench_outbox.drain('dead', :batches);
		CALL bench_outbox.drain('dead', :batches);
		CALL bench_outbox.drain('dead', :batches);
	EOT
}

main()
{
	local size name before call

	folder=$(mktemp -d)
	trap clean_up EXIT
	prepare
	for size in "${sizes[@]}"; do
		grow "$size"
		while IFS='|' read -r name before call; do
			measure "$before" "$call" >>"$folder/$name"
		done < <(calls)
	done
	printf '%-44s %9s %9s %9s\n' 'events retained; ms' "${sizes[@]}"
	while IFS='|' read -r name before call; do
		# shellcheck disable=SC2046 # three numbers
		printf '%-44s %9s %9s %9s ' "$name" $(cat "$folder/$name")
		if awk '{ v[NR] = $1 } END { exit !(v[3] < 2 || v[3] <= 3 * v[1]) }' "$folder/$name"; then
			echo passed
		else
			echo FAILED
			failed=1
		fi
	done < <(calls)
	drain | awk -v n="${sizes[2]}" '/^Time:/ { s[++i] = $2 / 1000; sum += $2 / 1000 }
		END { printf "%-44s %9.1f %9.1f %9.1f %s\n", "drain " n ", s: all, first and last tenth", sum, s[1], s[10], s[10] <= 2 * s[1] ? "passed" : "FAILED"; exit s[10] > 2 * s[1] }' || failed=1
	return "$failed"
}

main "$@"
