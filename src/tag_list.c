/*-------------------------------------------------------------------------
 *
 * tag_list.c
 *	  What tags have: lists and statistics, now and as of a number.
 *
 * Nothing is counted beforehand.  As of now the snapshot of the calling query
 * is read.  As of a number everything is as the event of that number left it:
 * names, merges, associations and decisions, also those that are over.  For
 * that everybody has to have ended who may still write a lower number; so
 * who is told of an event does not depend on when one asks.
 *
 * Locks: as of a number the vocabulary's, which is waited for and not taken.
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
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* Subscribers are judged in pages of at least so many. */
#define MIN_PAGE	100

/* What a list is about. */
typedef struct ListCall
{
	FunctionCallInfo fcinfo;
	text	   *vocabulary;
	bool		as_of;			/* an event_no was given */
	int64		event_no;		/* else TAG_NOW */
	TagReference reference;		/* without text: none was given */
	pg_uuid_t	root;
	text	   *after;
	int			max_rows;
	Snapshot	snapshot;
	bool		more;			/* there may be another page */
} ListCall;

static int	compare_names(const ListCell *a, const ListCell *b);
static void begin_list(ListCall *list, FunctionCallInfo fcinfo, int event_no_arg);
static void begin_page(ListCall *list, FunctionCallInfo fcinfo);
static void end_list(ListCall *list);
static void resolve(ListCall *list);
static void require_drawn(int64 event_no);
static void put_rows(SPITupleTable *rows, uint64 count, void *arg);
static void put_followers(SPITupleTable *rows, uint64 count, void *arg);

PG_FUNCTION_INFO_V1(fencing_tags_of);
PG_FUNCTION_INFO_V1(fencing_tag_subjects);
PG_FUNCTION_INFO_V1(fencing_tag_subscribers);
PG_FUNCTION_INFO_V1(fencing_tag_statistics);

/*
 * fencing_tags_of(vocabulary text, subject text) → SETOF tag_id, name, migration_version
 */
Datum
fencing_tags_of(PG_FUNCTION_ARGS)
{
	text	   *vocabulary = args_key(fcinfo, 0, "vocabulary");
	text	   *subject = args_key(fcinfo, 1, "subject");
	Datum		key[3] = {PointerGetDatum(vocabulary), PointerGetDatum(subject),
	Int64GetDatum(TAG_IN_FORCE)};
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Relation	links;
	TagTables	tables;
	List	   *roots = NIL;
	Tag		   *root;
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, 0);
	links = store_table_open(STORE_TAG_LINKS, AccessShareLock);
	tag_open(&tables, AccessShareLock);
	tables.by_select = true;
	foreach(lc, store_select_all(links, 3, key, GetActiveSnapshot()))
	{
		Datum		id = store_get(links, (HeapTuple) lfirst(lc), Anum_tag_links_tag_id);
		TagReference reference = {0};

		tag_find_owner(&tables, vocabulary, DatumGetUUIDP(id), &reference, GetActiveSnapshot());
		root = (Tag *) palloc(sizeof(Tag));
		*root = reference.root;
		roots = lappend(roots, root);
	}
	list_sort(roots, compare_names);
	root = NULL;
	foreach(lc, roots)
	{
		Tag		   *previous = root;
		Datum		values[3];
		bool		nulls[lengthof(values)] = {false};

		root = (Tag *) lfirst(lc);
		if (previous != NULL && tag_same_id(&previous->id, &root->id))
			continue;
		values[0] = UUIDPGetDatum(&root->id);
		values[1] = PointerGetDatum(root->name);
		values[2] = Int64GetDatum(root->version);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	tag_close(&tables, AccessShareLock);
	table_close(links, AccessShareLock);
	return (Datum) 0;
}

/* Byte by byte; a name has one tag. */
static int
compare_names(const ListCell *a, const ListCell *b)
{
	const text *one = ((const Tag *) lfirst(a))->name;
	const text *other = ((const Tag *) lfirst(b))->name;
	int			length = Min(VARSIZE_ANY_EXHDR(one), VARSIZE_ANY_EXHDR(other));
	int			order = memcmp(VARDATA_ANY(one), VARDATA_ANY(other), length);

	return order != 0 ? order : (int) VARSIZE_ANY_EXHDR(one) - (int) VARSIZE_ANY_EXHDR(other);
}

/*
 * fencing_tag_subjects(vocabulary text, reference text, event_no bigint, after text, max_rows int)
 *	→ SETOF text
 */
Datum
fencing_tag_subjects(PG_FUNCTION_ARGS)
{
	static const char now_query[] =
		"SELECT x.subject FROM pg_catalog.unnest($2) t (tag_id)"
		" CROSS JOIN LATERAL (SELECT l.subject FROM fencing.tag_links l"
		"  WHERE l.vocabulary OPERATOR(pg_catalog.=) $1 AND l.tag_id OPERATOR(pg_catalog.=) t.tag_id"
		"  AND l.until_no OPERATOR(pg_catalog.=) 9223372036854775807 AND l.subject OPERATOR(pg_catalog.>) $3"
		"  ORDER BY l.subject LIMIT $4) x"
		" WHERE $5 IS NOT NULL GROUP BY x.subject ORDER BY x.subject LIMIT $4";
	static const char then_query[] =
		"SELECT x.subject FROM pg_catalog.unnest($2) t (tag_id)"
		" CROSS JOIN LATERAL (SELECT l.subject FROM fencing.tag_links l"
		"  WHERE l.vocabulary OPERATOR(pg_catalog.=) $1 AND l.tag_id OPERATOR(pg_catalog.=) t.tag_id"
		"  AND l.until_no OPERATOR(pg_catalog.>) $5 AND l.from_no OPERATOR(pg_catalog.<=) $5"
		"  AND l.subject OPERATOR(pg_catalog.>) $3 ORDER BY l.subject LIMIT $4) x"
		" GROUP BY x.subject ORDER BY x.subject LIMIT $4";
	Oid			argtypes[] = {TEXTOID, UUIDARRAYOID, TEXTOID, INT4OID, INT8OID};
	Datum		args[lengthof(argtypes)];
	ListCall	list = {0};

	begin_page(&list, fcinfo);
	args[0] = PointerGetDatum(list.vocabulary);
	args[1] = tag_merge_members(list.vocabulary, &list.root, list.event_no, list.snapshot);
	args[2] = PointerGetDatum(list.after);
	args[3] = Int32GetDatum(list.max_rows);
	args[4] = Int64GetDatum(list.event_no);
	owner_query_run(list.as_of ? then_query : now_query, lengthof(args), argtypes, args,
					NULL, list.snapshot, put_rows, fcinfo);
	end_list(&list);
	return (Datum) 0;
}

/*
 * fencing_tag_subscribers(vocabulary text, reference text, event_no bigint, after text, max_rows int)
 *	→ SETOF text
 *
 * Of each tag of the tree the next decisions are read; up to the lowest that
 * a full page ends with, each subscriber's are all there.
 */
Datum
fencing_tag_subscribers(PG_FUNCTION_ARGS)
{
	static const char now_query[] =
		"WITH pages AS MATERIALIZED (SELECT t.tag_id, w.subscriber, w.from_no, w.following"
		"  FROM pg_catalog.unnest($2) t (tag_id)"
		"  CROSS JOIN LATERAL (SELECT f.subscriber, f.from_no, f.following FROM fencing.tag_follows f"
		"   WHERE f.vocabulary OPERATOR(pg_catalog.=) $1 AND f.tag_id OPERATOR(pg_catalog.=) t.tag_id"
		"   AND f.until_no OPERATOR(pg_catalog.=) 9223372036854775807 AND f.subscriber OPERATOR(pg_catalog.>) $3"
		"   ORDER BY f.subscriber LIMIT $4) w),"
		" ends AS MATERIALIZED (SELECT pg_catalog.min(e.last) AS last FROM (SELECT pg_catalog.max(p.subscriber) AS last"
		"  FROM pages p GROUP BY p.tag_id HAVING pg_catalog.count(*) OPERATOR(pg_catalog.=) $4) e)"
		" SELECT p.subscriber, CASE WHEN pg_catalog.count(*) OPERATOR(pg_catalog.=) 1 THEN pg_catalog.bool_and(p.following)"
		"  ELSE fencing.tag_decides($1, pg_catalog.array_agg(p.tag_id), pg_catalog.array_agg(p.from_no),"
		"   pg_catalog.array_agg(p.following), $5) END, e.last IS NOT NULL"
		" FROM pages p CROSS JOIN ends e WHERE COALESCE(p.subscriber OPERATOR(pg_catalog.<=) e.last, true)"
		" GROUP BY p.subscriber, e.last ORDER BY p.subscriber";
	static const char then_query[] =
		"WITH pages AS MATERIALIZED (SELECT t.tag_id, w.subscriber, w.from_no, w.following"
		"  FROM pg_catalog.unnest($2) t (tag_id)"
		"  CROSS JOIN LATERAL (SELECT f.subscriber, f.from_no, f.following FROM fencing.tag_follows f"
		"   WHERE f.vocabulary OPERATOR(pg_catalog.=) $1 AND f.tag_id OPERATOR(pg_catalog.=) t.tag_id"
		"   AND f.until_no OPERATOR(pg_catalog.>) $5 AND f.from_no OPERATOR(pg_catalog.<=) $5"
		"   AND f.subscriber OPERATOR(pg_catalog.>) $3 ORDER BY f.subscriber LIMIT $4) w),"
		" ends AS MATERIALIZED (SELECT pg_catalog.min(e.last) AS last FROM (SELECT pg_catalog.max(p.subscriber) AS last"
		"  FROM pages p GROUP BY p.tag_id HAVING pg_catalog.count(*) OPERATOR(pg_catalog.=) $4) e)"
		" SELECT p.subscriber, CASE WHEN pg_catalog.count(*) OPERATOR(pg_catalog.=) 1 THEN pg_catalog.bool_and(p.following)"
		"  ELSE fencing.tag_decides($1, pg_catalog.array_agg(p.tag_id), pg_catalog.array_agg(p.from_no),"
		"   pg_catalog.array_agg(p.following), $5) END, e.last IS NOT NULL"
		" FROM pages p CROSS JOIN ends e WHERE COALESCE(p.subscriber OPERATOR(pg_catalog.<=) e.last, true)"
		" GROUP BY p.subscriber, e.last ORDER BY p.subscriber";
	Oid			argtypes[] = {TEXTOID, UUIDARRAYOID, TEXTOID, INT4OID, INT8OID};
	Datum		args[lengthof(argtypes)];
	ListCall	list = {0};

	begin_page(&list, fcinfo);
	args[0] = PointerGetDatum(list.vocabulary);
	args[1] = tag_merge_members(list.vocabulary, &list.root, list.event_no, list.snapshot);
	args[3] = Int32GetDatum(Max(list.max_rows, MIN_PAGE));
	args[4] = Int64GetDatum(list.event_no);
	do
	{
		CHECK_FOR_INTERRUPTS();
		list.more = false;
		args[2] = PointerGetDatum(list.after);
		owner_query_run(list.as_of ? then_query : now_query, lengthof(args), argtypes,
						args, NULL, list.snapshot, put_followers, &list);
	} while (list.more && list.max_rows > 0);
	end_list(&list);
	return (Datum) 0;
}

/*
 * fencing_tag_statistics(vocabulary text, event_no bigint, reference text)
 *	→ SETOF tag_id, name, subjects, subscribers
 */
Datum
fencing_tag_statistics(PG_FUNCTION_ARGS)
{
	static const char query[] =
		"SELECT r.tag_id,"
		" COALESCE((SELECT m.name FROM fencing.tag_migrations m"
		"   WHERE m.vocabulary OPERATOR(pg_catalog.=) $1 AND m.tag_id OPERATOR(pg_catalog.=) r.tag_id"
		"   AND m.kind OPERATOR(pg_catalog.=) 'rename' AND m.event_no OPERATOR(pg_catalog.<=) $3 AND m.undone_no OPERATOR(pg_catalog.>) $3"
		"   ORDER BY m.event_no DESC LIMIT 1),"
		"  (SELECT m.former_name FROM fencing.tag_migrations m"
		"   WHERE m.vocabulary OPERATOR(pg_catalog.=) $1 AND m.tag_id OPERATOR(pg_catalog.=) r.tag_id"
		"   AND m.kind OPERATOR(pg_catalog.=) 'rename' ORDER BY m.event_no LIMIT 1), r.name),"
		" (SELECT pg_catalog.count(*) FROM (SELECT FROM fencing.tag_links l"
		"   WHERE l.vocabulary OPERATOR(pg_catalog.=) $1 AND l.tag_id OPERATOR(pg_catalog.=) ANY (t.members)"
		"   AND l.until_no OPERATOR(pg_catalog.>) $3 AND l.from_no OPERATOR(pg_catalog.<=) $3 GROUP BY l.subject) x),"
		" (SELECT pg_catalog.count(*) FROM (SELECT FROM fencing.tag_follows w"
		"   WHERE w.vocabulary OPERATOR(pg_catalog.=) $1 AND w.tag_id OPERATOR(pg_catalog.=) ANY (t.members)"
		"   AND w.until_no OPERATOR(pg_catalog.>) $3 AND w.from_no OPERATOR(pg_catalog.<=) $3 GROUP BY w.subscriber"
		"   HAVING CASE WHEN pg_catalog.count(*) OPERATOR(pg_catalog.=) 1 THEN pg_catalog.bool_and(w.following)"
		"    ELSE fencing.tag_decides($1, pg_catalog.array_agg(w.tag_id), pg_catalog.array_agg(w.from_no),"
		"     pg_catalog.array_agg(w.following), $3) END) x)"
		" FROM fencing.tags r"
		" CROSS JOIN LATERAL (WITH RECURSIVE below (tag_id) AS (SELECT r.tag_id"
		"   UNION ALL"
		"   SELECT g.source FROM below b CROSS JOIN LATERAL (SELECT m.source FROM fencing.tag_merges m"
		"    WHERE m.vocabulary OPERATOR(pg_catalog.=) $1 AND m.target OPERATOR(pg_catalog.=) b.tag_id"
		"    AND m.undone_no OPERATOR(pg_catalog.>) $3 AND m.made_no OPERATOR(pg_catalog.<=) $3 OFFSET 0) g)"
		"  SELECT pg_catalog.array_agg(b.tag_id) AS members FROM below b) t"
		" WHERE r.vocabulary OPERATOR(pg_catalog.=) $1 AND r.created_no OPERATOR(pg_catalog.<=) $3"
		" AND ($2 IS NULL OR r.tag_id OPERATOR(pg_catalog.=) $2)"
		" AND NOT EXISTS (SELECT FROM fencing.tag_merges g"
		"  WHERE g.vocabulary OPERATOR(pg_catalog.=) $1 AND g.source OPERATOR(pg_catalog.=) r.tag_id"
		"  AND g.undone_no OPERATOR(pg_catalog.>) $3 AND g.made_no OPERATOR(pg_catalog.<=) $3)"
		" ORDER BY r.tag_id";
	Oid			argtypes[] = {TEXTOID, UUIDOID, INT8OID};
	Datum		args[lengthof(argtypes)];
	bool		nulls[lengthof(argtypes)] = {false};
	ListCall	list = {0};

	begin_list(&list, fcinfo, 1);
	if (!PG_ARGISNULL(2))
		list.reference.reference = args_key(fcinfo, 2, "reference");
	resolve(&list);
	InitMaterializedSRF(fcinfo, 0);
	args[0] = PointerGetDatum(list.vocabulary);
	args[1] = UUIDPGetDatum(&list.root);
	nulls[1] = list.reference.reference == NULL;
	args[2] = Int64GetDatum(list.event_no);
	owner_query_run(query, lengthof(args), argtypes, args, nulls, list.snapshot, put_rows, fcinfo);
	end_list(&list);
	return (Datum) 0;
}

/* The arguments that lists and statistics have.  Raises 22004, 22023, 54000. */
static void
begin_list(ListCall *list, FunctionCallInfo fcinfo, int event_no_arg)
{
	list->fcinfo = fcinfo;
	list->vocabulary = args_key(fcinfo, 0, "vocabulary");
	list->reference.argument = "reference";
	list->as_of = !PG_ARGISNULL(event_no_arg);
	list->event_no = list->as_of ? args_token(fcinfo, event_no_arg, "event_no") : TAG_NOW;
}

/* And those of a page of a list. */
static void
begin_page(ListCall *list, FunctionCallInfo fcinfo)
{
	begin_list(list, fcinfo, 2);
	list->reference.reference = args_key(fcinfo, 1, "reference");
	list->after = PG_ARGISNULL(3) ? cstring_to_text("") : PG_GETARG_TEXT_P(3);
	list->max_rows = args_max_rows(fcinfo, 4);
	resolve(list);
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
}

/* Gives back what resolve() has registered. */
static void
end_list(ListCall *list)
{
	UnregisterSnapshot(list->snapshot);
}

/*
 * Registers the snapshot that is read, and finds the root of the reference as
 * of the number.  Raises LF001, 22023, 25006.
 */
static void
resolve(ListCall *list)
{
	TagReference *reference = &list->reference;
	TagTables	tables;

	if (!list->as_of)
		list->snapshot = RegisterSnapshot(GetActiveSnapshot());
	else
	{
		PreventCommandDuringRecovery("reading as of an event_no");
		require_drawn(list->event_no);
		tag_lock_wait_for_events(list->vocabulary);
		list->snapshot = store_fresh_snapshot();
	}
	if (reference->reference == NULL)
		return;

	tag_open(&tables, AccessShareLock);
	tables.by_select = !list->as_of;
	tag_find(&tables, list->vocabulary, reference, list->snapshot);
	tag_close(&tables, AccessShareLock);
	if (!reference->found || reference->owner.created_no > list->event_no ||
		(reference->name_row != NULL && reference->since_no > list->event_no))
		tag_unknown(list->vocabulary, reference);
	list->root = !list->as_of ? reference->root.id :
		tag_merge_reached(list->vocabulary, &reference->owner.id, TAG_IN_FORCE, list->event_no,
						  list->snapshot);
}

/* Raises 22023. */
static void
require_drawn(int64 event_no)
{
	int64		last = tag_event_last_number();

	if (event_no > last)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("event_no %lld was never drawn", (long long) event_no),
				 errdetail("The last one is %lld.", (long long) last)));
}

/* All rows, as they are. */
static void
put_rows(SPITupleTable *rows, uint64 count, void *arg)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) ((FunctionCallInfo) arg)->resultinfo;

	for (uint64 i = 0; i < count; i++)
		tuplestore_puttuple(rsinfo->setResult, rows->vals[i]);
}

/* The first column of those whose second is true. */
static void
put_followers(SPITupleTable *rows, uint64 count, void *arg)
{
	ListCall   *list = (ListCall *) arg;
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) list->fcinfo->resultinfo;
	bool		isnull;

	for (uint64 i = 0; i < count && list->max_rows > 0; i++)
	{
		Datum		subscriber = SPI_getbinval(rows->vals[i], rows->tupdesc, 1, &isnull);
		bool		isnull_set = false;

		if (!DatumGetBool(SPI_getbinval(rows->vals[i], rows->tupdesc, 2, &isnull)))
			continue;
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, &subscriber, &isnull_set);
		list->max_rows--;
	}
	if (count == 0)
		return;
	list->more = DatumGetBool(SPI_getbinval(rows->vals[count - 1], rows->tupdesc, 3, &isnull));
	list->after = DatumGetTextP(owner_query_copy(rows, count - 1, 1));
}
