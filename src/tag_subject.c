/*-------------------------------------------------------------------------
 *
 * tag_subject.c
 *	  What has which tag, and who follows it.
 *
 * An association belongs to the tag that the reference named, its owner, and
 * counts for the root: so it goes with the owner when a merge is undone.  Taking
 * a subject off a tag takes it off every tag of the tree, and stays so.
 *
 * A subscriber's decisions are kept, not a list of subscribers: to follow is a
 * decision at the owner; to leave is one at the owner, at the root, and at
 * every tag of the tree where the subscriber had one.  What they amount to is
 * in tag_merge.c.
 *
 * Locks: as tag_lock.c, with the subject or the subscriber.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "tag.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

static Datum run_on_subject(FunctionCallInfo fcinfo, const TagOperation *operation,
							const char *argument);
static FencingOutcome judge_on_subject(TagCall *call);
static bool is_in_tree(TagCall *call, const pg_uuid_t *tag_id);
static void read_rows(TagCall *call, StoreTable table);
static List *rows_in_tree(TagCall *call, StoreTable table, Snapshot snapshot);
static void apply_assign(TagCall *call);
static void apply_unassign(TagCall *call);
static void apply_subscribe(TagCall *call);
static void apply_unsubscribe(TagCall *call);
static void end_row(TagCall *call, Relation rel, HeapTuple row, int until_attnum);
static void decide_at(TagCall *call, const pg_uuid_t *tag_id, bool following);

PG_FUNCTION_INFO_V1(fencing_tag_assign);
PG_FUNCTION_INFO_V1(fencing_tag_unassign);
PG_FUNCTION_INFO_V1(fencing_tag_subscribe);
PG_FUNCTION_INFO_V1(fencing_tag_unsubscribe);

static const TagOperation assign = {"fencing_tag_assign()", "assign", judge_on_subject, apply_assign};
static const TagOperation unassign = {"fencing_tag_unassign()", "unassign", judge_on_subject, apply_unassign};
static const TagOperation subscribe = {"fencing_tag_subscribe()", "subscribe", judge_on_subject, apply_subscribe};
static const TagOperation unsubscribe = {"fencing_tag_unsubscribe()", "unsubscribe", judge_on_subject, apply_unsubscribe};

/*
 * fencing_tag_assign(vocabulary text, event_id uuid, reference text, subject text)
 *	→ outcome, event_no, tag_id, name, matched, migration_version, migration_kind
 */
Datum
fencing_tag_assign(PG_FUNCTION_ARGS)
{
	return run_on_subject(fcinfo, &assign, "subject");
}

/*
 * fencing_tag_unassign(vocabulary text, event_id uuid, reference text, subject text)
 *	→ as fencing_tag_assign()
 */
Datum
fencing_tag_unassign(PG_FUNCTION_ARGS)
{
	return run_on_subject(fcinfo, &unassign, "subject");
}

/*
 * fencing_tag_subscribe(vocabulary text, event_id uuid, reference text, subscriber text)
 *	→ as fencing_tag_assign()
 */
Datum
fencing_tag_subscribe(PG_FUNCTION_ARGS)
{
	return run_on_subject(fcinfo, &subscribe, "subscriber");
}

/*
 * fencing_tag_unsubscribe(vocabulary text, event_id uuid, reference text, subscriber text)
 *	→ as fencing_tag_assign()
 */
Datum
fencing_tag_unsubscribe(PG_FUNCTION_ARGS)
{
	return run_on_subject(fcinfo, &unsubscribe, "subscriber");
}

/* Associations and subscriptions. */
static Datum
run_on_subject(FunctionCallInfo fcinfo, const TagOperation *operation, const char *argument)
{
	TagCall		call = {0};

	tag_event_begin(&call, fcinfo, operation);
	call.reference.reference = args_key(fcinfo, 2, "reference");
	call.subject = args_key(fcinfo, 3, argument);
	return tag_event_run(fcinfo, &call);
}

/* Everything is accepted that has a tag. */
static FencingOutcome
judge_on_subject(TagCall *call)
{
	bool		links = call->operation == &assign || call->operation == &unassign;
	StoreTable	table = links ? STORE_TAG_LINKS : STORE_TAG_FOLLOWS;

	tag_lock_vocabulary(call);
	tag_lock_root(call, &call->reference);
	tag_lock_subject(call, table);
	read_rows(call, table);

	call->owner = call->reference.owner.id;
	call->tag_id = call->reference.root.id;
	return FENCING_COMMITTED;
}

/*
 * Reads what the subject or subscriber has in the tree of the root.  Raises
 * 40001 if the transaction sees something else.
 */
static void
read_rows(TagCall *call, StoreTable table)
{
	Snapshot	snapshot = store_fresh_snapshot();
	ListCell   *lc;

	call->rows = rows_in_tree(call, table, snapshot);
	call->associated = call->rows != NIL;
	UnregisterSnapshot(snapshot);
	if (!IsolationUsesXactSnapshot())
		return;

	snapshot = RegisterSnapshot(GetTransactionSnapshot());
	if (list_length(rows_in_tree(call, table, snapshot)) != list_length(call->rows))
		store_serialization_failure();
	UnregisterSnapshot(snapshot);
	foreach(lc, call->rows)
		store_require_visible(tag_relation(call, table), (HeapTuple) lfirst(lc));
}

/*
 * Of a tag into which nothing is merged there is one row at most; else all of
 * the subject have to be looked at.
 */
static List *
rows_in_tree(TagCall *call, StoreTable table, Snapshot snapshot)
{
	Relation	rel = tag_relation(call, table);
	AttrNumber	attnum = table == STORE_TAG_LINKS ? Anum_tag_links_tag_id : Anum_tag_follows_tag_id;
	Datum		key[4] = {PointerGetDatum(call->vocabulary), PointerGetDatum(call->subject),
	Int64GetDatum(TAG_IN_FORCE), UUIDPGetDatum(&call->reference.root.id)};
	List	   *rows = NIL;
	ListCell   *lc;

	foreach(lc, store_find_all(rel, call->reference.root.members == 1 ? 4 : 3, key, snapshot))
	{
		HeapTuple	row = (HeapTuple) lfirst(lc);

		if (is_in_tree(call, DatumGetUUIDP(store_get(rel, row, attnum))))
			rows = lappend(rows, row);
	}
	return rows;
}

/* Whether the tag leads to the root, which is locked. */
static bool
is_in_tree(TagCall *call, const pg_uuid_t *tag_id)
{
	Snapshot	snapshot;
	Tag			tag;
	bool		found;

	if (tag_same_id(tag_id, &call->reference.root.id))
		return true;
	snapshot = store_fresh_snapshot();
	found = tag_find_id(&call->tables, call->vocabulary, tag_id, snapshot, &tag);
	UnregisterSnapshot(snapshot);
	return found && tag_same_id(&tag.root, &call->reference.root.id);
}

/* The owner has the subject. */
static void
apply_assign(TagCall *call)
{
	Relation	rel = tag_relation(call, STORE_TAG_LINKS);
	Datum		values[Natts_tag_links];
	bool		nulls[Natts_tag_links] = {false};
	ListCell   *lc;
	bool		has_it = false;

	foreach(lc, call->rows)
		has_it = has_it || tag_same_id(DatumGetUUIDP(store_get(rel, (HeapTuple) lfirst(lc),
															   Anum_tag_links_tag_id)), &call->owner);
	if (!has_it)
	{
		values[Anum_tag_links_vocabulary - 1] = PointerGetDatum(call->vocabulary);
		values[Anum_tag_links_subject - 1] = PointerGetDatum(call->subject);
		values[Anum_tag_links_until_no - 1] = Int64GetDatum(TAG_IN_FORCE);
		values[Anum_tag_links_tag_id - 1] = UUIDPGetDatum(&call->owner);
		values[Anum_tag_links_from_no - 1] = Int64GetDatum(call->event_no);
		store_insert(rel, values, nulls);
	}
	if (!call->associated)
		tag_event_emit(call, "tag.assigned", true, NULL, NULL);
}

/* No tag of the tree has it. */
static void
apply_unassign(TagCall *call)
{
	Relation	rel = tag_relation(call, STORE_TAG_LINKS);
	ListCell   *lc;

	foreach(lc, call->rows)
		end_row(call, rel, (HeapTuple) lfirst(lc), Anum_tag_links_until_no);
	if (call->associated)
		tag_event_emit(call, "tag.unassigned", true, NULL, NULL);
}

/* A decision at the owner. */
static void
apply_subscribe(TagCall *call)
{
	decide_at(call, &call->owner, true);
}

/*
 * A decision at the owner, at the root, and at every tag of the tree where the
 * subscriber had one.
 */
static void
apply_unsubscribe(TagCall *call)
{
	Relation	rel = tag_relation(call, STORE_TAG_FOLLOWS);
	ListCell   *lc;

	foreach(lc, call->rows)
	{
		const pg_uuid_t *id = DatumGetUUIDP(store_get(rel, (HeapTuple) lfirst(lc),
													  Anum_tag_follows_tag_id));

		if (!tag_same_id(id, &call->owner) && !tag_same_id(id, &call->tag_id))
			decide_at(call, id, false);
	}
	decide_at(call, &call->owner, false);
	if (!tag_same_id(&call->owner, &call->tag_id))
		decide_at(call, &call->tag_id, false);
}

/* Ends the decision that was in force at the tag, and writes the next. */
static void
decide_at(TagCall *call, const pg_uuid_t *tag_id, bool following)
{
	Relation	rel = tag_relation(call, STORE_TAG_FOLLOWS);
	Datum		values[Natts_tag_follows];
	bool		nulls[Natts_tag_follows] = {false};
	ListCell   *lc;

	foreach(lc, call->rows)
	{
		HeapTuple	row = (HeapTuple) lfirst(lc);

		if (tag_same_id(DatumGetUUIDP(store_get(rel, row, Anum_tag_follows_tag_id)), tag_id))
			end_row(call, rel, row, Anum_tag_follows_until_no);
	}
	values[Anum_tag_follows_vocabulary - 1] = PointerGetDatum(call->vocabulary);
	values[Anum_tag_follows_subscriber - 1] = PointerGetDatum(call->subject);
	values[Anum_tag_follows_until_no - 1] = Int64GetDatum(TAG_IN_FORCE);
	values[Anum_tag_follows_tag_id - 1] = UUIDPGetDatum(tag_id);
	values[Anum_tag_follows_from_no - 1] = Int64GetDatum(call->event_no);
	values[Anum_tag_follows_following - 1] = BoolGetDatum(following);
	store_insert(rel, values, nulls);
}

/* What was in force is until this event. */
static void
end_row(TagCall *call, Relation rel, HeapTuple row, int until_attnum)
{
	Datum		values[Max(Natts_tag_links, Natts_tag_follows)];
	bool		nulls[Max(Natts_tag_links, Natts_tag_follows)];

	store_read_row(rel, row, values, nulls);
	values[until_attnum - 1] = Int64GetDatum(call->event_no);
	store_update(rel, row, values, nulls);
}
