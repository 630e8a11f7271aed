#!/usr/bin/env bash
#
# What it costs to claim work from a table of the caller's by fencing_acquire, and
# to finish it by fencing_commit, beside the usual ways with FOR UPDATE SKIP LOCKED.
#
#   test/run shell bash test/bench/claim.sh [ITEMS [ROUNDS]]
#
# Three ways to do the same: clients take the first 10 open items by priority, write
# a row for each, and mark it done.
#
#   fenced   a lease per item, in a transaction; the writes by fencing_commit, in
#            another one
#   marked   UPDATE ... WHERE id IN (SELECT ... FOR UPDATE SKIP LOCKED) sets who has
#            the item and until when, in a transaction; done, if the item is still
#            the worker's, in another one
#   locked   SELECT ... FOR UPDATE SKIP LOCKED, the writes and DELETE in a single
#            transaction
#
# Fenced is compared with marked, and has to be at least 0.7 times as fast.  That is
# fair because both give the same to a worker that calls other systems: the work is
# done outside a transaction, others see that the item is taken, and an item whose
# worker has died is free after a time.  (What marked does not give: the worker that
# is too late learns it, but a retry after a lost reply cannot be told from that.)
# Locked is shown only: it holds a transaction and the locks of its rows for as long
# as the work takes, which is nothing here.
#
# Items are finished one by one, each in a transaction of its own, as work that
# takes time is, or the whole batch in one command.  "claim" is the first of the two
# transactions alone, as these runs took it.
#
# It is run with fsync on, as every server that matters is, and that is judged; then
# with fsync off, which shows what the processor has to do.  Last, without a rule:
# what a claim takes when a thousand items before the first open one are taken.  The
# fenced one asks for the lease of each.  A caller with that many lets the
# table say so too: it sets the time before which an item is not to be claimed, in
# the transaction of the claim.
#
# By default 2,000 items a run, and the median of the ratios of 5 rounds; in each all
# take their turn, in changing order.  Needs a superuser in a database with the
# extension (PGHOST, PGDATABASE ...), on a server whose fsync may be changed; what
# is made in it is removed.

set -euo pipefail

items=${1:-2000}
rounds=${2:-5}
batch=10
rule=0.7
failed=0
folder=
variants=(items_fenced items_marked batch_fenced batch_marked batch_locked)
crowds=(1 4)
disks=(on off)
taken=1000

run()
{
	psql -XqAt -v ON_ERROR_STOP=1 "$@"
}

clean_up()
{
	rm -rf "$folder"
	run >/dev/null <<-'EOF'
		ALTER SYSTEM RESET fsync;
		SELECT pg_reload_conf();
		SET client_min_messages = warning;
		DROP SCHEMA IF EXISTS bench_claim CASCADE;
		DELETE FROM fencing.receipts WHERE job_key LIKE 'bench/claim/%';
		DELETE FROM fencing.leases WHERE job_key LIKE 'bench/claim/%';
		DELETE FROM fencing.fences WHERE job_key LIKE 'bench/claim/%';
	EOF
}

prepare()
{
	run >/dev/null <<-'EOF'
		SET client_min_messages = warning;
		DROP SCHEMA IF EXISTS bench_claim CASCADE;
		CREATE SCHEMA bench_claim;
		CREATE TABLE bench_claim.todo (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, priority int NOT NULL, payload jsonb NOT NULL,
			done boolean NOT NULL DEFAULT false, claimed_by uuid, claimed_until timestamptz NOT NULL DEFAULT '-infinity') WITH (fillfactor = 70);
		CREATE INDEX ON bench_claim.todo (priority, id) WHERE NOT done;
		CREATE TABLE bench_claim.effect (id bigint NOT NULL);
	EOF
}

# A batch: $2 is what to make of its ids, and of the tokens or the worker.
claim()
{
	case $1 in
		fenced) cat <<-EOF ;;
			WITH c AS (SELECT t.id, a.token AS mark
				FROM (SELECT id FROM bench_claim.todo WHERE NOT done ORDER BY priority, id LIMIT 200) t
				CROSS JOIN LATERAL fencing_acquire('bench/claim/' || t.id, (SELECT gen_random_uuid()), '1 minute') a
				WHERE a.outcome = 'acquired' LIMIT $batch)
		EOF
		marked) cat <<-EOF ;;
			WITH c AS (UPDATE bench_claim.todo SET claimed_by = (SELECT gen_random_uuid()), claimed_until = clock_timestamp() + interval '1 minute'
				WHERE id IN (SELECT id FROM bench_claim.todo WHERE NOT done AND claimed_until < now() ORDER BY priority, id LIMIT $batch FOR UPDATE SKIP LOCKED)
				RETURNING id, claimed_by AS mark)
		EOF
		locked) cat <<-EOF ;;
			WITH c AS (SELECT id, NULL AS mark FROM bench_claim.todo WHERE NOT done ORDER BY priority, id LIMIT $batch FOR UPDATE SKIP LOCKED)
		EOF
	esac
	echo "SELECT $2 FROM c \\gset"
}

# an item by its own call; the parameters are numbered by the item
finish()
{
	case $1 in
		fenced) echo "SELECT outcome FROM fencing_commit('bench/claim/' || :id$2, :mark$2, jsonb_build_object('id', :id$2::bigint), 'WITH d AS (UPDATE bench_claim.todo SET done = true WHERE id = (\$3 ->> ''id'')::bigint AND NOT done RETURNING id) INSERT INTO bench_claim.effect SELECT id FROM d');" ;;
		marked) echo "WITH d AS (UPDATE bench_claim.todo SET done = true WHERE id = :id$2 AND NOT done AND claimed_by = :mark$2::uuid RETURNING id) INSERT INTO bench_claim.effect SELECT id FROM d;" ;;
	esac
}

finish_all()
{
	case $1 in
		fenced) echo "SELECT count(*) FROM unnest(:ids::bigint[], :marks::bigint[]) AS c(id, token) CROSS JOIN LATERAL fencing_commit('bench/claim/' || id, token, jsonb_build_object('id', id), 'WITH d AS (UPDATE bench_claim.todo SET done = true WHERE id = (\$3 ->> ''id'')::bigint AND NOT done RETURNING id) INSERT INTO bench_claim.effect SELECT id FROM d');" ;;
		marked) echo "WITH d AS (UPDATE bench_claim.todo t SET done = true FROM unnest(:ids::bigint[], :marks::uuid[]) AS c(id, worker) WHERE t.id = c.id AND NOT done AND claimed_by = worker RETURNING t.id) INSERT INTO bench_claim.effect SELECT id FROM d;" ;;
		locked) echo "WITH d AS (DELETE FROM bench_claim.todo WHERE id = ANY (:ids::bigint[]) RETURNING id) INSERT INTO bench_claim.effect SELECT id FROM d;" ;;
	esac
}

# One batch, as a script of pgbench.
script()
{
	local how=${1%%_*} way=${1##*_} i columns=

	case $how in
		items)
			for ((i = 1; i <= batch; i++)); do
				columns+="${columns:+, }(array_agg(id))[$i] AS id$i, (array_agg(mark))[$i] AS mark$i"
			done
			claim "$way" "$columns"
			for ((i = 1; i <= batch; i++)); do
				finish "$way" "$i"
			done
			;;
		batch)
			[ "$way" != locked ] || echo 'BEGIN;'
			claim "$way" 'array_agg(id) AS ids, array_agg(mark) AS marks'
			finish_all "$way"
			[ "$way" != locked ] || echo 'COMMIT;'
			;;
	esac
}

fill()
{
	run >/dev/null <<-EOF
		TRUNCATE bench_claim.todo, bench_claim.effect;
		INSERT INTO bench_claim.todo (priority, payload) SELECT i % 3, '{"to": "somebody"}' FROM generate_series(1, $1) i;
		VACUUM ANALYZE bench_claim.todo, fencing.fences, fencing.leases, fencing.receipts;
		CHECKPOINT;
	EOF
}

# Items a second, all in all and claimed.  There are more of them than are
# taken, so that no batch is small.
measure()
{
	local variant=$1 clients=$2 out=$3 per_client finished

	per_client=$((items / batch / clients))
	fill $((items * 5 / 4 + 1000))
	pgbench -n -r -M prepared -c "$clients" -j "$clients" -t "$per_client" -f "$folder/$variant.sql" >"$folder/out" 2>"$folder/err" ||
		{ cat "$folder/err" >&2; exit 1; }
	finished=$(run -c 'SELECT count(DISTINCT id) FROM bench_claim.effect')
	[ "$finished" = "$(run -c 'SELECT count(*) FROM bench_claim.effect')" ] || { echo "$variant: something was done twice" >&2; exit 1; }
	awk -v done="$finished" -v n=$((per_client * clients)) '/^tps = / { print done * $3 / n }' "$folder/out" >>"$folder/$variant.$out"
	awk -v n=$((batch * clients)) '/WITH c AS/ { for (i = 1; $i !~ /^[0-9.]+$/; i++); print n / $i * 1000; exit }' "$folder/out" >>"$folder/claim_$variant.$out"
}

# Milliseconds of a claim beside many that others have.
beside_taken()
{
	local way=$1

	fill $((taken + 500))
	case $way in
		fenced) run -c "SELECT count(*) FROM (SELECT id FROM bench_claim.todo ORDER BY priority, id LIMIT $taken) t, fencing_acquire('bench/claim/' || id, gen_random_uuid(), '1 hour')" ;;
		marked) run -c "UPDATE bench_claim.todo SET claimed_by = gen_random_uuid(), claimed_until = 'infinity' WHERE id IN (SELECT id FROM bench_claim.todo ORDER BY priority, id LIMIT $taken)" ;;
	esac >/dev/null
	claim "$way" 'count(*) AS n' | sed "s/LIMIT 200)/LIMIT $((taken + 200)))/" >"$folder/taken.sql"
	pgbench -n -r -M prepared -t 5 -f "$folder/taken.sql" | awk '/^latency average/ { print $4 }' >>"$folder/taken_$way"
}

median()
{
	sort -n | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

# The medians, and the median of the ratios of the rounds.
row()
{
	local name=$1 ours=$folder/$2 theirs=$folder/$3 least=$4 ratio verdict=

	ratio=$(paste "$ours" "$theirs" | awk '{ print $1 / $2 }' | median)
	if [ "$least" != - ]; then
		verdict=passed
		if awk -v r="$ratio" -v least="$least" 'BEGIN { exit r >= least }'; then
			verdict=FAILED
			failed=1
		fi
	fi
	printf '%-44s %10.1f %10.1f %7.2f  %s\n' "$name" "$(median <"$ours")" "$(median <"$theirs")" "$ratio" "$verdict"
}

main()
{
	local round clients disk variant i least

	folder=$(mktemp -d)
	trap clean_up EXIT
	prepare
	for variant in "${variants[@]}"; do
		script "$variant" >"$folder/$variant.sql"
	done
	# once for the caches and the files
	for variant in "${variants[@]}"; do
		measure "$variant" 1 first
	done
	for disk in "${disks[@]}"; do
		run -c "ALTER SYSTEM SET fsync = $disk" -c 'SELECT pg_reload_conf()' >/dev/null
		for ((round = 0; round < rounds; round++)); do
			for clients in "${crowds[@]}"; do
				for ((i = 0; i < ${#variants[@]}; i++)); do
					if [ $((round % 2)) -eq 0 ]; then
						variant=${variants[i]}
					else
						variant=${variants[${#variants[@]} - 1 - i]}
					fi
					measure "$variant" "$clients" "$clients.$disk"
				done
			done
		done
	done
	for ((round = 0; round < rounds; round++)); do
		beside_taken fenced
		beside_taken marked
	done

	printf '%-44s %10s %10s %7s\n' "items a second, batches of $batch" fenced other ratio
	for disk in "${disks[@]}"; do
		least=$rule
		[ "$disk" = on ] || least=-
		for clients in "${crowds[@]}"; do
			i="fsync $disk, $clients at a time"
			row "$i: claim, to marked" claim_batch_fenced."$clients.$disk" claim_batch_marked."$clients.$disk" "$least"
			row "$i: one by one, to marked" items_fenced."$clients.$disk" items_marked."$clients.$disk" "$least"
			row "$i: in a batch, to marked" batch_fenced."$clients.$disk" batch_marked."$clients.$disk" "$least"
			row "$i: in a batch, to locked" batch_fenced."$clients.$disk" batch_locked."$clients.$disk" -
		done
	done
	row "ms of a claim beside $taken taken, to marked" taken_fenced taken_marked -
	return "$failed"
}

main "$@"
