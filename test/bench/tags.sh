#!/usr/bin/env bash
#
# What tags cost in a large vocabulary, against a plain table of tags and a
# table of associations with a foreign key, as Discourse and acts-as-taggable
# have them.
#
#   test/run shell bash test/bench/tags.sh [TAGS [ASSOCIATIONS [ROUNDS]]]
#
# By default 100,000 tags, 2,000,000 associations, of which the two largest tags
# have a tenth each, and the median of 5 rounds, in turn.  A merge of the
# two largest is taken back by an undo after each round; of the plain tables it
# is rolled back.  Needs a database with the extension (PGHOST, PGDATABASE ...)
# and no tags of its own; what is made in it is removed.

set -euo pipefail

tags=${1:-100000}
associations=${2:-2000000}
rounds=${3:-5}
calls=2000
vocabulary=bench
folder=

run()
{
	psql -XqAt -v ON_ERROR_STOP=1 -v tags="$tags" -v associations="$associations" -v v="$vocabulary" "$@"
}

clean_up()
{
	rm -rf "$folder"
	run >/dev/null <<-'EOT'
		SET client_min_messages = warning;
		DROP SCHEMA IF EXISTS bench_tags CASCADE;
		SET session_replication_role = replica;
		DELETE FROM fencing.tag_events WHERE vocabulary = :'v';
		DELETE FROM fencing.outbox WHERE payload->>'vocabulary' = :'v';
		DELETE FROM fencing.tag_links WHERE vocabulary = :'v';
		DELETE FROM fencing.tag_follows WHERE vocabulary = :'v';
		DELETE FROM fencing.tag_merges WHERE vocabulary = :'v';
		DELETE FROM fencing.tag_migrations WHERE vocabulary = :'v';
		DELETE FROM fencing.tag_names WHERE vocabulary = :'v';
		DELETE FROM fencing.tags WHERE vocabulary = :'v';
	EOT
}

# The same in both: a tenth of the associations have tag 1, a tenth tag 2, the
# others any.  Of ours the rows are written as the functions would have.
prepare()
{
	run >/dev/null <<-'EOT'
		SET client_min_messages = warning;
		DROP SCHEMA IF EXISTS bench_tags CASCADE;
		CREATE SCHEMA bench_tags;
		SET search_path = bench_tags, public;
		SELECT setseed(0.42);
		CREATE TABLE pair AS
			SELECT row_number() OVER () AS n, p.* FROM (
				SELECT DISTINCT CASE j % 10 WHEN 0 THEN 1 WHEN 1 THEN 2 ELSE 3 + floor(random() * (:tags - 2))::int END AS tag,
					's' || floor(random() * :associations / 3)::int AS subject
				FROM generate_series(1, :associations) j) p;

		CREATE TABLE tag (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE);
		CREATE TABLE tagging (tag_id bigint NOT NULL REFERENCES tag, subject text NOT NULL, created_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (tag_id, subject));
		CREATE INDEX ON tagging (subject);
		INSERT INTO tag (name) SELECT 'tag ' || i FROM generate_series(1, :tags) i;
		INSERT INTO tagging (tag_id, subject) SELECT tag, subject FROM pair;

		CREATE FUNCTION id(n bigint) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$ SELECT lpad(to_hex(n), 32, '0')::uuid $$;
		SELECT nextval('fencing.tag_events_event_no_seq') AS first \gset
		INSERT INTO fencing.tag_events (vocabulary, event_id, event_no, kind, reference, owner, tag_id, name, actor, digest, digest_version, committed_at)
			OVERRIDING SYSTEM VALUE
			SELECT :'v', gen_random_uuid(), :first + i, 'create', 'tag ' || i, id(i), id(i), 'tag ' || i, session_user, '\x00', 1, now() FROM generate_series(1, :tags) i;
		INSERT INTO fencing.tags SELECT :'v', id(i), 'tag ' || i, id(i), 1, 0, NULL, :first + i FROM generate_series(1, :tags) i;
		INSERT INTO fencing.tag_names SELECT :'v', 'tag ' || i, id(i), false, :first + i FROM generate_series(1, :tags) i;
		INSERT INTO fencing.tag_events (vocabulary, event_id, event_no, kind, reference, owner, tag_id, subject, actor, digest, digest_version, committed_at)
			OVERRIDING SYSTEM VALUE
			SELECT :'v', gen_random_uuid(), :first + :tags + n, 'assign', 'tag ' || tag, id(tag), id(tag), subject, session_user, '\x00', 1, now() FROM pair;
		INSERT INTO fencing.tag_links SELECT :'v', subject, 9223372036854775807, id(tag), :first + :tags + n FROM pair;
		SELECT setval('fencing.tag_events_event_no_seq', :first + :tags + (SELECT max(n) FROM pair));
	EOT
	run -c 'VACUUM ANALYZE bench_tags.tag, bench_tags.tagging, fencing.tags, fencing.tag_names, fencing.tag_events, fencing.tag_links'
	write_scripts
}

# One transaction each, for pgbench.
write_scripts()
{
	local draw="\\set t random(3, $tags)
\\set s random(0, $((associations / 3)) - 1)"

	cat >"$folder/resolve.plain" <<-EOT
		$draw
		SELECT id, name FROM bench_tags.tag WHERE name = 'tag ' || :t;
	EOT
	cat >"$folder/resolve.fencing" <<-EOT
		$draw
		SELECT tag_id, name FROM fencing_tag_resolve('$vocabulary', 'tag ' || :t);
	EOT
	cat >"$folder/tags_of.plain" <<-EOT
		$draw
		SELECT t.id, t.name FROM bench_tags.tagging g JOIN bench_tags.tag t ON t.id = g.tag_id WHERE g.subject = 's' || :s ORDER BY t.name;
	EOT
	cat >"$folder/tags_of.fencing" <<-EOT
		$draw
		SELECT tag_id, name FROM fencing_tags_of('$vocabulary', 's' || :s);
	EOT
	cat >"$folder/statistic.plain" <<-EOT
		$draw
		SELECT count(*) FROM bench_tags.tagging WHERE tag_id = :t;
	EOT
	cat >"$folder/statistic.fencing" <<-EOT
		$draw
		SELECT subjects FROM fencing_tag_statistics('$vocabulary', NULL, 'tag ' || :t);
	EOT
	cat >"$folder/largest.plain" <<-EOT
		SELECT count(*) FROM bench_tags.tagging WHERE tag_id = 1;
	EOT
	cat >"$folder/largest.fencing" <<-EOT
		SELECT subjects FROM fencing_tag_statistics('$vocabulary', NULL, 'tag 1');
	EOT
	cat >"$folder/page.plain" <<-EOT
		$draw
		SELECT subject FROM bench_tags.tagging WHERE tag_id = 1 AND subject > 's' || :s ORDER BY subject LIMIT 100;
	EOT
	cat >"$folder/page.fencing" <<-EOT
		$draw
		SELECT fencing_tag_subjects('$vocabulary', 'tag 1', NULL, 's' || :s);
	EOT
	cat >"$folder/assign.plain" <<-EOT
		$draw
		INSERT INTO bench_tags.tagging (tag_id, subject) SELECT id, 'new ' || :s FROM bench_tags.tag WHERE name = 'tag ' || :t ON CONFLICT DO NOTHING;
	EOT
	cat >"$folder/assign.fencing" <<-EOT
		$draw
		SELECT outcome FROM fencing_tag_assign('$vocabulary', gen_random_uuid(), 'tag ' || :t, 'new ' || :s);
	EOT
}

# Microseconds of a transaction.
measure()
{
	local what=$1 side=$2 n=$calls

	[ "$what" != largest ] || n=10
	pgbench -n -M prepared -t "$n" -f "$folder/$what.$side" 2>/dev/null | awk '/^latency average/ { print $4 * 1000 }'
}

# Milliseconds of the statements while psql shows them.
timed()
{
	run | awk '/^Time:/ { ms += $2 } END { print ms }'
}

merge_plain()
{
	timed <<-'EOT'
		\timing on
		BEGIN;
		DELETE FROM bench_tags.tagging g WHERE tag_id = 1 AND EXISTS (SELECT FROM bench_tags.tagging o WHERE o.tag_id = 2 AND o.subject = g.subject);
		UPDATE bench_tags.tagging SET tag_id = 2 WHERE tag_id = 1;
		DELETE FROM bench_tags.tag WHERE id = 1;
		ROLLBACK;
	EOT
}

merge_fencing()
{
	timed <<-'EOT'
		SELECT gen_random_uuid() AS event \gset
		SELECT migration_version AS version FROM fencing_tag_resolve(:'v', 'tag 1') \gset
		\timing on
		BEGIN;
		SELECT outcome FROM fencing_tag_merge(:'v', :'event', 'tag 1', 'tag 2', :version);
		COMMIT;
		\timing off
		SELECT outcome FROM fencing_tag_undo(:'v', gen_random_uuid(), :'event');
	EOT
}

# A batch of 10,000 rows of the migration that merges the two.
reconcile()
{
	timed <<-'EOT'
		SELECT gen_random_uuid() AS event \gset
		SELECT migration_version AS version FROM fencing_tag_resolve(:'v', 'tag 1') \gset
		SELECT outcome FROM fencing_tag_merge(:'v', :'event', 'tag 1', 'tag 2', :version);
		\timing on
		SELECT checked FROM fencing_tag_reconcile(:'v', :'event');
		\timing off
		SELECT outcome FROM fencing_tag_undo(:'v', gen_random_uuid(), :'event');
	EOT
}

median()
{
	sort -n | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

report()
{
	local what plain fencing

	printf '%-44s %12s %12s %8s\n' "$tags tags, $associations associations" plain fencing ratio
	for what in resolve tags_of statistic largest page assign merge; do
		plain=$(median <"$folder/$what.plain.times")
		fencing=$(median <"$folder/$what.fencing.times")
		awk -v what="$what" -v plain="$plain" -v fencing="$fencing" '
			BEGIN {
				name["resolve"] = "resolve a name, µs"
				name["tags_of"] = "all tags of a subject, µs"
				name["statistic"] = "statistic of a tag, µs"
				name["largest"] = "statistic of the largest tag, µs"
				name["page"] = "a page of subjects of the largest tag, µs"
				name["assign"] = "assign, with COMMIT, µs"
				name["merge"] = "merge of the two largest, with COMMIT, ms"
				printf "%-44s %12.2f %12.2f %8.2f\n", name[what], plain, fencing, fencing / plain
			}'
	done
	printf '%-44s %12s %12.0f\n' 'reconcile, a batch of 10000 rows, ms' '' "$(median <"$folder/reconcile.times")"
}

main()
{
	local round what side

	folder=$(mktemp -d)
	trap clean_up EXIT
	prepare
	for ((round = 0; round < rounds; round++)); do
		for what in resolve tags_of statistic largest page assign; do
			for side in plain fencing; do
				measure "$what" "$side" >>"$folder/$what.$side.times"
			done
		done
		merge_plain >>"$folder/merge.plain.times"
		merge_fencing >>"$folder/merge.fencing.times"
		reconcile >>"$folder/reconcile.times"
	done
	report
}

main "$@"
