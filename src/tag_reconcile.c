/*-------------------------------------------------------------------------
 *
 * tag_reconcile.c
 *	  Are the associations and subscriptions what the events say?
 *
 * A migration moves no rows.  What is left to do before it can be complete is
 * to compare what is kept for the tags concerned with their events: in
 * batches, next to traffic, from a position that is kept with the migration.
 * Rows and events are written in one transaction, so any snapshot has both or
 * none.
 *
 * Rows are looked for in three parts of each tag: its associations, its
 * subscriptions, and, for rows that are missing, its events.  Each that is
 * found stands for its subject, of which all rows are compared then.
 *
 * Locks: of reconcile the migration's row, waiting.  check: none.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "tag.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* the parts of a tag's rows, in their order */
#define NPARTS	3

/* How far a migration is reconciled. */
typedef struct Position
{
	pg_uuid_t	tag_id;
	int			part;
	text	   *key;			/* NULL: at the beginning of the part */
	text	   *subject;
} Position;

/* A page of rows. */
typedef struct RowPage
{
	int			count;
	Datum	   *subjects;
	text	   *last_key;
} RowPage;

static bool look_migration(void *arg, Snapshot snapshot);
static bool keep_lock(void *arg);
static void read_migration(TagMigration *migration);
static bool advance(TagMigration *migration, Position *position, int max_rows);
static int	check_page(TagMigration *migration, Datum tags, Position *position, int max_rows,
					   Snapshot snapshot);
static void copy_page(SPITupleTable *rows, uint64 count, void *arg);
static int64 count_problems(TagMigration *migration, Datum tags, const RowPage *page,
							Snapshot snapshot);
static void read_position(const TagMigration *migration, Position *position);
static void write_position(TagMigration *migration, const Position *position);
static void put_problems(SPITupleTable *rows, uint64 count, void *arg);

PG_FUNCTION_INFO_V1(fencing_tag_reconcile);
PG_FUNCTION_INFO_V1(fencing_tag_check);

/*
 * fencing_tag_reconcile(vocabulary text, migration uuid, max_rows int)
 *	→ done, checked, problems
 */
Datum
fencing_tag_reconcile(PG_FUNCTION_ARGS)
{
	TagMigration migration = {.vocabulary = args_key(fcinfo, 0, "vocabulary"),
	.id = args_uuid(fcinfo, 1, "migration")};
	int			max_rows = args_max_rows(fcinfo, 2);
	TupleDesc	tupdesc;
	Datum		values[3];
	bool		nulls[3] = {false};

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "unexpected result type of function %u", fcinfo->flinfo->fn_oid);

	migration.function = "fencing_tag_reconcile()";
	migration.rel = store_table_open(STORE_TAG_MIGRATIONS, RowExclusiveLock);
	tag_reconcile_lock(&migration);
	if (!migration.completed && !(migration.reconciled && migration.problems == 0))
	{
		Position	position;

		if (migration.reconciled)
			migration.checked = migration.problems = 0;
		read_position(&migration, &position);
		migration.reconciled = advance(&migration, &position, max_rows);
		write_position(&migration, &position);
	}
	table_close(migration.rel, NoLock);

	values[0] = BoolGetDatum(migration.reconciled);
	values[1] = Int64GetDatum(migration.checked);
	values[2] = Int64GetDatum(migration.problems);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), values, nulls)));
}

/*
 * Locks the row of a migration, waiting if need be, unless it is complete.
 * Raises LF001, 25006, 40001, 55000 if it is undone.
 */
void
tag_reconcile_lock(TagMigration *migration)
{
	store_until_decided(look_migration, migration);
	store_require_visible(migration->rel, migration->row);
}

/* Whether the row is locked, or complete. */
static bool
look_migration(void *arg, Snapshot snapshot)
{
	TagMigration *migration = (TagMigration *) arg;
	Datum		key[2] = {PointerGetDatum(migration->vocabulary), UUIDPGetDatum(migration->id)};

	migration->row = store_find(migration->rel, 2, key, snapshot);
	if (migration->row == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FENCING_NEVER_ISSUED),
				 errmsg("vocabulary \"%s\" has no migration %s", text_to_cstring(migration->vocabulary),
						tag_id_to_cstring(migration->id)),
				 errhint("A migration is named by the event_id of its rename or merge.")));
	read_migration(migration);
	if (DatumGetInt64(migration->values[Anum_tag_migrations_undone_no - 1]) != TAG_IN_FORCE)
	{
		store_require_visible(migration->rel, migration->row);
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("migration %s is undone", tag_id_to_cstring(migration->id)),
				 errhint("To migrate after all, submit it as a new migration.")));
	}
	if (migration->completed)
		return true;
	store_begin_write(migration->function);
	return store_with_row_lock(migration->rel, migration->row, snapshot, true, keep_lock, NULL);
}

/* The caller writes the row. */
static bool
keep_lock(void *arg)
{
	return true;
}

/* The columns. */
static void
read_migration(TagMigration *migration)
{
	Datum	   *values = migration->values;

	store_read_row(migration->rel, migration->row, values, migration->nulls);
	migration->event_no = DatumGetInt64(values[Anum_tag_migrations_event_no - 1]);
	migration->tag_id = *DatumGetUUIDP(values[Anum_tag_migrations_tag_id - 1]);
	migration->is_merge = !migration->nulls[Anum_tag_migrations_target - 1];
	migration->completed = !migration->nulls[Anum_tag_migrations_completed_at - 1];
	migration->reconciled = DatumGetBool(values[Anum_tag_migrations_reconciled - 1]);
	migration->checked = DatumGetInt64(values[Anum_tag_migrations_checked - 1]);
	migration->problems = DatumGetInt64(values[Anum_tag_migrations_problems - 1]);
}

/* Raises 55000. */
void
tag_reconcile_require_done(const TagMigration *migration)
{
	if (!migration->reconciled)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("migration %s is not reconciled", tag_id_to_cstring(migration->id)),
				 errhint("Call fencing_tag_reconcile() until it is done.")));
	if (migration->problems > 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("migration %s has %lld problems", tag_id_to_cstring(migration->id),
						(long long) migration->problems),
				 errdetail("Rows of its tags differ from their events."),
				 errhint("fencing_tag_check() shows them. When they are mended, reconcile again.")));
}

/*
 * Goes on from the position, for at most max_rows rows; a part that is looked
 * into counts as one.  Returns whether all is done.  The tags are those of the
 * tree just after the migration.
 */
static bool
advance(TagMigration *migration, Position *position, int max_rows)
{
	Snapshot	snapshot = store_fresh_snapshot();
	pg_uuid_t	root = tag_merge_reached(migration->vocabulary, &migration->tag_id, TAG_IN_FORCE,
										 migration->event_no, snapshot);
	Datum		tags = tag_merge_members(migration->vocabulary, &root, migration->event_no, snapshot);
	int			ntags;
	Datum	   *tag_ids;
	bool	   *nulls;
	int			next = 0;

	deconstruct_array(DatumGetArrayTypeP(tags), UUIDOID, UUID_LEN, false, TYPALIGN_CHAR,
					  &tag_ids, &nulls, &ntags);
	while (next < ntags && memcmp(DatumGetUUIDP(tag_ids[next]), &position->tag_id, UUID_LEN) < 0)
		next++;
	while (next < ntags && max_rows > 0)
	{
		int			count;

		CHECK_FOR_INTERRUPTS();
		position->tag_id = *DatumGetUUIDP(tag_ids[next]);
		count = check_page(migration, tags, position, max_rows, snapshot);
		if (count < max_rows)
		{
			/* the part has no more */
			position->key = position->subject = NULL;
			position->part++;
			if (position->part == NPARTS)
			{
				position->part = 0;
				next++;
				if (next < ntags)
					position->tag_id = *DatumGetUUIDP(tag_ids[next]);
			}
		}
		max_rows -= Max(count, 1);
	}
	UnregisterSnapshot(snapshot);
	return next == ntags;
}

/* Compares the next rows of one part of one tag; returns how many. */
static int
check_page(TagMigration *migration, Datum tags, Position *position, int max_rows, Snapshot snapshot)
{
	static const char *const queries[NPARTS] = {
		"SELECT l.until_no::pg_catalog.text, l.subject FROM fencing.tag_links l"
		" WHERE l.vocabulary OPERATOR(pg_catalog.=) $1 AND l.tag_id OPERATOR(pg_catalog.=) $2"
		" AND ROW(l.until_no, l.subject) OPERATOR(pg_catalog.>) ROW(COALESCE($3, '0')::pg_catalog.int8, COALESCE($4, ''))"
		" ORDER BY l.until_no, l.subject LIMIT $5",

		"SELECT w.until_no::pg_catalog.text, w.subscriber FROM fencing.tag_follows w"
		" WHERE w.vocabulary OPERATOR(pg_catalog.=) $1 AND w.tag_id OPERATOR(pg_catalog.=) $2"
		" AND ROW(w.until_no, w.subscriber) OPERATOR(pg_catalog.>) ROW(COALESCE($3, '0')::pg_catalog.int8, COALESCE($4, ''))"
		" ORDER BY w.until_no, w.subscriber LIMIT $5",

		"SELECT e.reference, e.subject FROM fencing.tag_events e"
		" WHERE e.vocabulary OPERATOR(pg_catalog.=) $1 AND e.owner OPERATOR(pg_catalog.=) $2"
		" AND e.subject IS NOT NULL"
		" AND ROW(e.reference, e.subject) OPERATOR(pg_catalog.>) ROW(COALESCE($3, ''), COALESCE($4, ''))"
		" ORDER BY e.reference, e.subject LIMIT $5"
	};
	Oid			argtypes[] = {TEXTOID, UUIDOID, TEXTOID, TEXTOID, INT4OID};
	Datum		args[] = {PointerGetDatum(migration->vocabulary), UUIDPGetDatum(&position->tag_id),
	PointerGetDatum(position->key), PointerGetDatum(position->subject), Int32GetDatum(max_rows)};
	bool		nulls[] = {false, false, position->key == NULL, position->subject == NULL, false};
	RowPage		page = {0};

	owner_query_run(queries[position->part], lengthof(args), argtypes, args, nulls, snapshot,
					copy_page, &page);
	if (page.count > 0)
	{
		position->key = page.last_key;
		position->subject = DatumGetTextP(page.subjects[page.count - 1]);
		migration->checked += page.count;
		migration->problems += count_problems(migration, tags, &page, snapshot);
	}
	return page.count;
}

/* Out of SPI's memory. */
static void
copy_page(SPITupleTable *rows, uint64 count, void *arg)
{
	RowPage    *page = (RowPage *) arg;

	page->count = (int) count;
	if (count == 0)
		return;
	page->subjects = (Datum *) SPI_palloc(count * sizeof(Datum));
	for (uint64 i = 0; i < count; i++)
		page->subjects[i] = owner_query_copy(rows, i, 2);
	page->last_key = DatumGetTextP(owner_query_copy(rows, count - 1, 1));
}

/* How many subjects have rows, of these tags, other than their events say. */
static int64
count_problems(TagMigration *migration, Datum tags, const RowPage *page, Snapshot snapshot)
{
	static const char query[] =
		"SELECT pg_catalog.count(*) FROM pg_catalog.unnest($3) s (subject)"
		" WHERE EXISTS (SELECT FROM"
		"  (SELECT l.tag_id, l.from_no, l.until_no FROM fencing.tag_links l"
		"   WHERE l.vocabulary OPERATOR(pg_catalog.=) $1 AND l.subject OPERATOR(pg_catalog.=) s.subject"
		"   AND l.tag_id OPERATOR(pg_catalog.=) ANY ($2)) k"
		"  FULL JOIN (SELECT b.tag_id, b.from_no, b.until_no FROM fencing.tag_links_by_events b"
		"   WHERE b.vocabulary OPERATOR(pg_catalog.=) $1 AND b.subject OPERATOR(pg_catalog.=) s.subject"
		"   AND b.tag_id OPERATOR(pg_catalog.=) ANY ($2)) e"
		"  ON e.tag_id OPERATOR(pg_catalog.=) k.tag_id AND e.from_no OPERATOR(pg_catalog.=) k.from_no"
		"  AND e.until_no OPERATOR(pg_catalog.=) k.until_no"
		"  WHERE k.tag_id IS NULL OR e.tag_id IS NULL)"
		" OR EXISTS (SELECT FROM"
		"  (SELECT w.tag_id, w.from_no, w.until_no, w.following FROM fencing.tag_follows w"
		"   WHERE w.vocabulary OPERATOR(pg_catalog.=) $1 AND w.subscriber OPERATOR(pg_catalog.=) s.subject"
		"   AND w.tag_id OPERATOR(pg_catalog.=) ANY ($2)) k"
		"  FULL JOIN (SELECT b.tag_id, b.from_no, b.until_no, b.following FROM fencing.tag_follows_by_events b"
		"   WHERE b.vocabulary OPERATOR(pg_catalog.=) $1 AND b.subscriber OPERATOR(pg_catalog.=) s.subject"
		"   AND b.tag_id OPERATOR(pg_catalog.=) ANY ($2)) e"
		"  ON e.tag_id OPERATOR(pg_catalog.=) k.tag_id AND e.from_no OPERATOR(pg_catalog.=) k.from_no"
		"  AND e.until_no OPERATOR(pg_catalog.=) k.until_no AND e.following OPERATOR(pg_catalog.=) k.following"
		"  WHERE k.tag_id IS NULL OR e.tag_id IS NULL)";
	Oid			argtypes[] = {TEXTOID, UUIDARRAYOID, TEXTARRAYOID};
	ArrayType  *subjects = construct_array(page->subjects, page->count, TEXTOID, -1, false,
										   TYPALIGN_INT);
	Datum		args[] = {PointerGetDatum(migration->vocabulary), tags, PointerGetDatum(subjects)};
	int64		problems;

	owner_query_bigints(query, lengthof(args), argtypes, args, NULL, snapshot, 1, &problems);
	return problems;
}

/* Where the last call ended; at the beginning if that was the end. */
static void
read_position(const TagMigration *migration, Position *position)
{
	const Datum *values = migration->values;
	const bool *nulls = migration->nulls;

	memset(position, 0, sizeof(*position));
	if (nulls[Anum_tag_migrations_cursor_tag - 1])
		return;
	position->tag_id = *DatumGetUUIDP(values[Anum_tag_migrations_cursor_tag - 1]);
	position->part = DatumGetInt32(values[Anum_tag_migrations_cursor_part - 1]);
	if (nulls[Anum_tag_migrations_cursor_key - 1])
		return;
	position->key = DatumGetTextP(values[Anum_tag_migrations_cursor_key - 1]);
	position->subject = DatumGetTextP(values[Anum_tag_migrations_cursor_subject - 1]);
}

/* In the migration's row, which is locked. */
static void
write_position(TagMigration *migration, const Position *position)
{
	Datum	   *values = migration->values;
	bool	   *nulls = migration->nulls;

	values[Anum_tag_migrations_reconciled - 1] = BoolGetDatum(migration->reconciled);
	values[Anum_tag_migrations_checked - 1] = Int64GetDatum(migration->checked);
	values[Anum_tag_migrations_problems - 1] = Int64GetDatum(migration->problems);
	values[Anum_tag_migrations_cursor_tag - 1] = UUIDPGetDatum(&position->tag_id);
	nulls[Anum_tag_migrations_cursor_tag - 1] = migration->reconciled;
	values[Anum_tag_migrations_cursor_part - 1] = Int32GetDatum(position->part);
	values[Anum_tag_migrations_cursor_key - 1] = PointerGetDatum(position->key);
	values[Anum_tag_migrations_cursor_subject - 1] = PointerGetDatum(position->subject);
	nulls[Anum_tag_migrations_cursor_key - 1] = nulls[Anum_tag_migrations_cursor_subject - 1] =
		position->key == NULL;
	store_update(migration->rel, migration->row, values, nulls);
}

/*
 * fencing_tag_check(vocabulary text) → SETOF text
 */
Datum
fencing_tag_check(PG_FUNCTION_ARGS)
{
	static const char query[] =
		"SELECT pg_catalog.format('association of subject %L with tag %s from %s until %s %s', x.subject, x.tag_id, x.from_no,"
		"  x.until_no, CASE WHEN x.kept THEN 'does not follow from the events' ELSE 'is missing' END)"
		" FROM (SELECT COALESCE(k.subject, e.subject) AS subject, COALESCE(k.tag_id, e.tag_id) AS tag_id,"
		"   COALESCE(k.from_no, e.from_no) AS from_no, COALESCE(k.until_no, e.until_no) AS until_no,"
		"   k.tag_id IS NOT NULL AS kept, e.tag_id IS NOT NULL AS follows"
		"  FROM (SELECT l.subject, l.tag_id, l.from_no, l.until_no FROM fencing.tag_links l"
		"   WHERE l.vocabulary OPERATOR(pg_catalog.=) $1) k"
		"  FULL JOIN (SELECT b.subject, b.tag_id, b.from_no, b.until_no FROM fencing.tag_links_by_events b"
		"   WHERE b.vocabulary OPERATOR(pg_catalog.=) $1) e"
		"  ON e.subject OPERATOR(pg_catalog.=) k.subject AND e.tag_id OPERATOR(pg_catalog.=) k.tag_id"
		"  AND e.from_no OPERATOR(pg_catalog.=) k.from_no AND e.until_no OPERATOR(pg_catalog.=) k.until_no) x"
		" WHERE NOT (x.kept AND x.follows)"
		" UNION ALL"
		" SELECT pg_catalog.format('subscription of %L at tag %s from %s until %s %s', x.subscriber, x.tag_id, x.from_no,"
		"  x.until_no, CASE WHEN x.kept THEN 'does not follow from the events' ELSE 'is missing' END)"
		" FROM (SELECT COALESCE(k.subscriber, e.subscriber) AS subscriber, COALESCE(k.tag_id, e.tag_id) AS tag_id,"
		"   COALESCE(k.from_no, e.from_no) AS from_no, COALESCE(k.until_no, e.until_no) AS until_no,"
		"   k.tag_id IS NOT NULL AS kept, e.tag_id IS NOT NULL AS follows"
		"  FROM (SELECT w.subscriber, w.tag_id, w.from_no, w.until_no, w.following FROM fencing.tag_follows w"
		"   WHERE w.vocabulary OPERATOR(pg_catalog.=) $1) k"
		"  FULL JOIN (SELECT b.subscriber, b.tag_id, b.from_no, b.until_no, b.following FROM fencing.tag_follows_by_events b"
		"   WHERE b.vocabulary OPERATOR(pg_catalog.=) $1) e"
		"  ON e.subscriber OPERATOR(pg_catalog.=) k.subscriber AND e.tag_id OPERATOR(pg_catalog.=) k.tag_id"
		"  AND e.from_no OPERATOR(pg_catalog.=) k.from_no AND e.until_no OPERATOR(pg_catalog.=) k.until_no"
		"  AND e.following OPERATOR(pg_catalog.=) k.following) x"
		" WHERE NOT (x.kept AND x.follows)"
		" UNION ALL"
		" SELECT pg_catalog.format('merge of tag %s at %s, undone at %s, %s', COALESCE(g.source, e.owner), COALESCE(g.made_no, e.event_no),"
		"  COALESCE(g.undone_no, e.undone_no), CASE WHEN e.owner IS NULL THEN 'does not follow from the events' ELSE 'is missing' END)"
		" FROM (SELECT m.source, m.target, m.made_no, m.undone_no FROM fencing.tag_merges m"
		"   WHERE m.vocabulary OPERATOR(pg_catalog.=) $1) g"
		"  FULL JOIN (SELECT e.owner, e.target, e.event_no, COALESCE(u.event_no, 9223372036854775807) AS undone_no"
		"   FROM fencing.tag_events e LEFT JOIN fencing.tag_events u ON u.vocabulary OPERATOR(pg_catalog.=) e.vocabulary"
		"    AND u.migration OPERATOR(pg_catalog.=) e.event_id"
		"   WHERE e.vocabulary OPERATOR(pg_catalog.=) $1 AND e.kind OPERATOR(pg_catalog.=) 'merge') e"
		"  ON e.owner OPERATOR(pg_catalog.=) g.source AND e.target OPERATOR(pg_catalog.=) g.target"
		"  AND e.event_no OPERATOR(pg_catalog.=) g.made_no AND e.undone_no OPERATOR(pg_catalog.=) g.undone_no"
		" WHERE g.source IS NULL OR e.owner IS NULL"
		" UNION ALL"
		" SELECT pg_catalog.format('root of tag %s is %s, not %s', t.tag_id, t.root, r.root)"
		" FROM fencing.tags t CROSS JOIN LATERAL (SELECT fencing.tag_reached(t.vocabulary, t.tag_id,"
		"  9223372036854775807, 9223372036854775806) AS root OFFSET 0) r"
		" WHERE t.vocabulary OPERATOR(pg_catalog.=) $1 AND t.root OPERATOR(pg_catalog.<>) r.root"
		" UNION ALL"
		" SELECT pg_catalog.format('tag %s counts %s members, not %s', t.tag_id, t.members, c.members)"
		" FROM fencing.tags t JOIN (SELECT m.root, pg_catalog.count(*) AS members FROM fencing.tags m"
		"  WHERE m.vocabulary OPERATOR(pg_catalog.=) $1 GROUP BY m.root) c ON c.root OPERATOR(pg_catalog.=) t.tag_id"
		" WHERE t.vocabulary OPERATOR(pg_catalog.=) $1 AND t.members OPERATOR(pg_catalog.<>) c.members"
		" UNION ALL"
		" SELECT pg_catalog.format('tag %s has migration_version %s, not %s', t.tag_id, t.version, COALESCE(v.version, 0))"
		" FROM fencing.tags t LEFT JOIN (SELECT x.tag_id, pg_catalog.max(x.event_no) AS version"
		"  FROM (SELECT e.owner AS tag_id, e.event_no FROM fencing.tag_events e"
		"   WHERE e.vocabulary OPERATOR(pg_catalog.=) $1 AND e.kind OPERATOR(pg_catalog.=) ANY ('{rename,merge,undo}'::pg_catalog.text[])"
		"   UNION ALL SELECT e.tag_id, e.event_no FROM fencing.tag_events e"
		"   WHERE e.vocabulary OPERATOR(pg_catalog.=) $1 AND e.kind OPERATOR(pg_catalog.=) 'merge'"
		"   UNION ALL SELECT fencing.tag_reached(e.vocabulary, e.owner, 9223372036854775807, e.event_no OPERATOR(pg_catalog.-) 1),"
		"    e.event_no FROM fencing.tag_events e"
		"   WHERE e.vocabulary OPERATOR(pg_catalog.=) $1 AND e.kind OPERATOR(pg_catalog.=) 'undo') x"
		"  GROUP BY x.tag_id) v ON v.tag_id OPERATOR(pg_catalog.=) t.tag_id"
		" WHERE t.vocabulary OPERATOR(pg_catalog.=) $1 AND t.version OPERATOR(pg_catalog.<>) COALESCE(v.version, 0)"
		" UNION ALL"
		" SELECT pg_catalog.format('tag %s has the name %L, not %L', t.tag_id, t.name, n.name)"
		" FROM fencing.tags t JOIN (SELECT DISTINCT ON (e.owner) e.owner, e.name FROM fencing.tag_events e"
		"  WHERE e.vocabulary OPERATOR(pg_catalog.=) $1 AND e.kind OPERATOR(pg_catalog.=) ANY ('{create,rename}'::pg_catalog.text[])"
		"  AND NOT EXISTS (SELECT FROM fencing.tag_events u WHERE u.vocabulary OPERATOR(pg_catalog.=) $1"
		"   AND u.kind OPERATOR(pg_catalog.=) 'undo' AND u.migration OPERATOR(pg_catalog.=) e.event_id)"
		"  ORDER BY e.owner, e.event_no DESC) n ON n.owner OPERATOR(pg_catalog.=) t.tag_id"
		" WHERE t.vocabulary OPERATOR(pg_catalog.=) $1 AND t.name OPERATOR(pg_catalog.<>) n.name"
		" UNION ALL"
		" SELECT pg_catalog.format('name %L of tag %s %s', COALESCE(n.name, e.name), COALESCE(n.tag_id, e.owner),"
		"  CASE WHEN e.name IS NULL THEN 'does not follow from the events' ELSE 'is missing' END)"
		" FROM (SELECT t.name, t.tag_id FROM fencing.tag_names t WHERE t.vocabulary OPERATOR(pg_catalog.=) $1) n"
		"  FULL JOIN (SELECT x.name, x.owner FROM (SELECT DISTINCT ON (e.name) e.name, e.owner, e.kind FROM fencing.tag_events e"
		"   WHERE e.vocabulary OPERATOR(pg_catalog.=) $1 AND e.name IS NOT NULL ORDER BY e.name, e.event_no DESC) x"
		"   WHERE x.kind OPERATOR(pg_catalog.<>) 'release') e"
		"  ON e.name OPERATOR(pg_catalog.=) n.name AND e.owner OPERATOR(pg_catalog.=) n.tag_id"
		" WHERE n.name IS NULL OR e.name IS NULL"
		" UNION ALL"
		" SELECT pg_catalog.format('event %s leads to tag %s, not %s', e.event_no, e.tag_id, r.root)"
		" FROM fencing.tag_events e CROSS JOIN LATERAL (SELECT fencing.tag_reached(e.vocabulary, e.owner,"
		"  9223372036854775807, e.event_no) AS root OFFSET 0) r"
		" WHERE e.vocabulary OPERATOR(pg_catalog.=) $1 AND e.tag_id OPERATOR(pg_catalog.<>) r.root";
	Oid			argtypes[] = {TEXTOID};
	Datum		args[] = {PointerGetDatum(args_key(fcinfo, 0, "vocabulary"))};

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	owner_query_run(query, lengthof(args), argtypes, args, NULL, GetActiveSnapshot(), put_problems,
					fcinfo);
	return (Datum) 0;
}

/* The lines. */
static void
put_problems(SPITupleTable *rows, uint64 count, void *arg)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) ((FunctionCallInfo) arg)->resultinfo;

	for (uint64 i = 0; i < count; i++)
		tuplestore_puttuple(rsinfo->setResult, rows->vals[i]);
}
