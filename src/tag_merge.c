/*-------------------------------------------------------------------------
 *
 * tag_merge.c
 *	  The forest of merged tags: edges, and what follows from them.
 *
 * An edge goes from a tag that was a root to the tag that the target's
 * reference named, which may itself be merged.  Edges are kept, with the
 * numbers of the merge and of its undo, so that the forest can be walked as
 * of any number; where the edges in force lead is kept with each tag.
 *
 * Of subscribers the forest decides: see fencing_tag_decides().
 *
 * Locks: none here; who writes has the roots, by tag_lock.c.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "tag.h"
#include "utils/array.h"
#include "utils/datum.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* A place where decisions of one subscriber stand. */
typedef struct Standing
{
	pg_uuid_t	tag_id;
	int64		number;			/* of the latest of them */
	bool		following;
} Standing;

static bool find_parent(Relation merges, text *vocabulary, const pg_uuid_t *tag_id,
						int64 made_before, int64 event_no, Snapshot snapshot, pg_uuid_t *parent);
static bool is_below_another(Relation merges, text *vocabulary, const Standing *places, int nplaces,
							 const Standing *place, int64 event_no, Snapshot snapshot);
static Datum *array_elements(Datum array, Oid type, int *count);
static void copy_array(SPITupleTable *rows, uint64 count, void *arg);

PG_FUNCTION_INFO_V1(fencing_tag_reached);
PG_FUNCTION_INFO_V1(fencing_tag_decides);

/*
 * fencing.tag_reached(vocabulary text, tag_id uuid, made_before bigint, event_no bigint) → uuid
 */
Datum
fencing_tag_reached(PG_FUNCTION_ARGS)
{
	pg_uuid_t  *reached = (pg_uuid_t *) palloc(sizeof(pg_uuid_t));

	*reached = tag_merge_reached(PG_GETARG_TEXT_P(0), PG_GETARG_UUID_P(1), PG_GETARG_INT64(2),
								 PG_GETARG_INT64(3), GetActiveSnapshot());
	PG_RETURN_UUID_P(reached);
}

/*
 * fencing.tag_decides(vocabulary text, tag_ids uuid[], event_nos bigint[],
 *					   following boolean[], event_no bigint) → boolean
 *
 * A decision stands where the merges lead that are older than it.  Where some
 * stand the latest decides; where none stands what is merged in decides, and
 * to have left there counts before to follow.  So those count that stand
 * highest in their branch.
 */
Datum
fencing_tag_decides(PG_FUNCTION_ARGS)
{
	text	   *vocabulary = PG_GETARG_TEXT_P(0);
	int64		event_no = PG_GETARG_INT64(4);
	Snapshot	snapshot = GetActiveSnapshot();
	Relation	merges = store_table_open(STORE_TAG_MERGES, AccessShareLock);
	int			count;
	Datum	   *tag_ids = array_elements(PG_GETARG_DATUM(1), UUIDOID, &count);
	Datum	   *event_nos = array_elements(PG_GETARG_DATUM(2), INT8OID, &count);
	Datum	   *following = array_elements(PG_GETARG_DATUM(3), BOOLOID, &count);
	Standing   *places = (Standing *) palloc(count * sizeof(Standing));
	int			nplaces = 0;
	bool		follows = true;

	for (int i = 0; i < count; i++)
	{
		int64		number = DatumGetInt64(event_nos[i]);
		pg_uuid_t	at = tag_merge_reached(vocabulary, DatumGetUUIDP(tag_ids[i]), number, event_no,
										   snapshot);
		int			j = 0;

		while (j < nplaces && !tag_same_id(&places[j].tag_id, &at))
			j++;
		if (j == nplaces)
			places[nplaces++].number = -1;
		if (number > places[j].number)
		{
			places[j].tag_id = at;
			places[j].number = number;
			places[j].following = DatumGetBool(following[i]);
		}
	}
	for (int i = 0; i < nplaces && follows; i++)
		follows = places[i].following ||
			is_below_another(merges, vocabulary, places, nplaces, &places[i], event_no, snapshot);
	table_close(merges, AccessShareLock);
	PG_RETURN_BOOL(follows);
}

/* Whether there is another place on the way to the root. */
static bool
is_below_another(Relation merges, text *vocabulary, const Standing *places, int nplaces,
				 const Standing *place, int64 event_no, Snapshot snapshot)
{
	pg_uuid_t	tag_id = place->tag_id;

	while (find_parent(merges, vocabulary, &tag_id, TAG_IN_FORCE, event_no, snapshot, &tag_id))
	{
		for (int i = 0; i < nplaces; i++)
		{
			if (tag_same_id(&places[i].tag_id, &tag_id))
				return true;
		}
	}
	return false;
}

/* They are not null. */
static Datum *
array_elements(Datum array, Oid type, int *count)
{
	Datum	   *elements;
	bool	   *nulls;
	int			length = type == UUIDOID ? UUID_LEN : type == INT8OID ? sizeof(int64) : sizeof(bool);

	deconstruct_array(DatumGetArrayTypeP(array), type, length, type == INT8OID ? FLOAT8PASSBYVAL : type == BOOLOID,
					  type == INT8OID ? TYPALIGN_DOUBLE : TYPALIGN_CHAR, &elements, &nulls, count);
	return elements;
}

/*
 * The tag that is reached from one along the merges that were made before a
 * number, and are in force at another.
 */
pg_uuid_t
tag_merge_reached(text *vocabulary, const pg_uuid_t *tag_id, int64 made_before, int64 event_no,
				  Snapshot snapshot)
{
	Relation	merges = store_table_open(STORE_TAG_MERGES, AccessShareLock);
	pg_uuid_t	reached = *tag_id;

	while (find_parent(merges, vocabulary, &reached, made_before, event_no, snapshot, &reached))
		CHECK_FOR_INTERRUPTS();
	table_close(merges, AccessShareLock);
	return reached;
}

/* The target of the edge from a tag, if there is such a one. */
static bool
find_parent(Relation merges, text *vocabulary, const pg_uuid_t *tag_id, int64 made_before,
			int64 event_no, Snapshot snapshot, pg_uuid_t *parent)
{
	Datum		key[3] = {PointerGetDatum(vocabulary), UUIDPGetDatum(tag_id),
	Int64GetDatum(TAG_IN_FORCE)};
	ListCell   *lc;

	/* by the whole key, past all that are undone */
	foreach(lc, store_find_all(merges, event_no == TAG_NOW ? 3 : 2, key, snapshot))
	{
		HeapTuple	row = (HeapTuple) lfirst(lc);
		int64		made_no = DatumGetInt64(store_get(merges, row, Anum_tag_merges_made_no));
		int64		undone_no = DatumGetInt64(store_get(merges, row, Anum_tag_merges_undone_no));

		if (made_no <= event_no && event_no < undone_no && made_no < made_before)
		{
			*parent = *DatumGetUUIDP(store_get(merges, row, Anum_tag_merges_target));
			return true;
		}
	}
	return false;
}

/* An edge from the event of the call on. */
void
tag_merge_insert(TagCall *call, const pg_uuid_t *source, const pg_uuid_t *target)
{
	Datum		values[Natts_tag_merges];
	bool		nulls[Natts_tag_merges] = {false};

	values[Anum_tag_merges_vocabulary - 1] = PointerGetDatum(call->vocabulary);
	values[Anum_tag_merges_source - 1] = UUIDPGetDatum(source);
	values[Anum_tag_merges_undone_no - 1] = Int64GetDatum(TAG_IN_FORCE);
	values[Anum_tag_merges_target - 1] = UUIDPGetDatum(target);
	values[Anum_tag_merges_made_no - 1] = Int64GetDatum(call->event_no);
	store_insert(tag_relation(call, STORE_TAG_MERGES), values, nulls);
}

/* The edge is undone by the event of the call. */
void
tag_merge_end(TagCall *call, const pg_uuid_t *source)
{
	Relation	merges = tag_relation(call, STORE_TAG_MERGES);
	Datum		key[3] = {PointerGetDatum(call->vocabulary), UUIDPGetDatum(source),
	Int64GetDatum(TAG_IN_FORCE)};
	Snapshot	snapshot = store_fresh_snapshot();
	HeapTuple	row = store_find(merges, 3, key, snapshot);
	Datum		values[Natts_tag_merges];
	bool		nulls[Natts_tag_merges];

	UnregisterSnapshot(snapshot);
	if (row == NULL)
		elog(ERROR, "tag %s is not merged", tag_id_to_cstring(source));
	store_require_visible(merges, row);
	store_read_row(merges, row, values, nulls);
	values[Anum_tag_merges_undone_no - 1] = Int64GetDatum(call->event_no);
	store_update(merges, row, values, nulls);
}

/*
 * Gives a tag, and all that are merged into it, another root.  Returns how
 * many that are.  Raises 40001.
 */
int
tag_merge_move(TagCall *call, const pg_uuid_t *top, const pg_uuid_t *root)
{
	Relation	tags = call->tables.tags;
	Snapshot	snapshot = store_fresh_snapshot();
	int			count;
	Datum	   *members = array_elements(tag_merge_members(call->vocabulary, top, TAG_NOW, snapshot),
										 UUIDOID, &count);

	for (int i = 0; i < count; i++)
	{
		Datum		values[Natts_tags];
		bool		nulls[Natts_tags];
		Tag			tag;

		if (!tag_find_id(&call->tables, call->vocabulary, DatumGetUUIDP(members[i]), snapshot, &tag))
			elog(ERROR, "tag %s is not there", tag_id_to_cstring(DatumGetUUIDP(members[i])));
		store_require_visible(tags, tag.row);
		store_read_row(tags, tag.row, values, nulls);
		values[Anum_tags_root - 1] = UUIDPGetDatum(root);
		store_update(tags, tag.row, values, nulls);
	}
	UnregisterSnapshot(snapshot);
	return count;
}

/* A tag and all that lead to it as of a number: an array. */
Datum
tag_merge_members(text *vocabulary, const pg_uuid_t *root, int64 event_no, Snapshot snapshot)
{
	static const char query[] =
		"WITH RECURSIVE below (tag_id) AS (SELECT $2"
		" UNION ALL"
		" SELECT g.source FROM below b CROSS JOIN LATERAL (SELECT m.source FROM fencing.tag_merges m"
		"  WHERE m.vocabulary OPERATOR(pg_catalog.=) $1 AND m.target OPERATOR(pg_catalog.=) b.tag_id"
		"  AND m.undone_no OPERATOR(pg_catalog.>) $3 AND m.made_no OPERATOR(pg_catalog.<=) $3 OFFSET 0) g)"
		" SELECT pg_catalog.array_agg(b.tag_id ORDER BY b.tag_id) FROM below b";
	Oid			argtypes[] = {TEXTOID, UUIDOID, INT8OID};
	Datum		args[] = {PointerGetDatum(vocabulary), UUIDPGetDatum(root), Int64GetDatum(event_no)};
	Datum		members = (Datum) 0;

	owner_query_run(query, lengthof(args), argtypes, args, NULL, snapshot, copy_array, &members);
	return members;
}

/* Out of SPI's memory. */
static void
copy_array(SPITupleTable *rows, uint64 count, void *arg)
{
	*(Datum *) arg = owner_query_copy(rows, 0, 1);
}
