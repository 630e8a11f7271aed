/*-------------------------------------------------------------------------
 *
 * tag_event.c
 *	  Events of tags: (vocabulary, event id) and what was submitted, through
 *	  the gate.
 *
 * The event is the receipt: an event id that is there is replayed, or in
 * conflict if something else was submitted under it.  Each event records the
 * reference as submitted, the tag that it named (its owner) and where that
 * led (tag_id); all other tables follow from the events of a vocabulary.
 *
 * An association belongs to the owner, and counts for the root.  An event
 * that changes what the root has is one of the outbox too; who is to be told
 * of it is computed as of its number (tag_list.c), never kept.
 *
 * Locks: the key lock of the event id; then those of tag_lock.c; fencing.floor
 * (RowShareLock) before the number is drawn.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "commands/sequence.h"
#include "digest.h"
#include "job.h"
#include "miscadmin.h"
#include "tag.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

static void open_event(Gate *gate);
static void close_event(Gate *gate, LOCKMODE lockmode);
static bool same_event(const Gate *a, const Gate *b);
static void find_event(Gate *gate, Snapshot snapshot);
static bytea *make_event_digest(Gate *gate);
static Jsonb *event_content(const TagCall *call);
static FencingOutcome judge_event(Gate *gate);
static void keep_event(Gate *gate);
static void insert_event(TagCall *call);
static char *describe_event(const Gate *gate);
static int64 draw_number(void);
static Oid	number_sequence(void);
static Datum run_on_subject(FunctionCallInfo fcinfo, const TagOperation *operation,
							const char *argument);
static FencingOutcome judge_on_subject(TagCall *call);
static bool is_in_tree(TagCall *call, const pg_uuid_t *tag_id);
static void read_rows(TagCall *call, StoreTable table);
static List *rows_in_force(TagCall *call, Relation rel, Snapshot snapshot);
static void apply_assign(TagCall *call);
static void apply_unassign(TagCall *call);
static void apply_subscribe(TagCall *call);
static void apply_unsubscribe(TagCall *call);
static void end_row(TagCall *call, Relation rel, HeapTuple row, int until_attnum);
static void decide_at(TagCall *call, const pg_uuid_t *tag_id, bool following);
static void push_text(JsonbParseState **state, const char *key, const text *value);
static void push_cstring(JsonbParseState **state, const char *key, const char *value);

PG_FUNCTION_INFO_V1(fencing_tag_assign);
PG_FUNCTION_INFO_V1(fencing_tag_unassign);
PG_FUNCTION_INFO_V1(fencing_tag_subscribe);
PG_FUNCTION_INFO_V1(fencing_tag_unsubscribe);

static const GateKind event_kind = {
	.function = "functions that write to tags",
	.numbers = GATE_SLOT,
	.same_number = same_event,
	.find_receipt = find_event,
	.make_digest = make_event_digest,
	.judge_content = judge_event,
	.keep_receipt = keep_event,
	.describe = describe_event,
	.open = open_event,
	.close = close_event
};

static const TagOperation assign = {"assign", judge_on_subject, apply_assign};
static const TagOperation unassign = {"unassign", judge_on_subject, apply_unassign};
static const TagOperation subscribe = {"subscribe", judge_on_subject, apply_subscribe};
static const TagOperation unsubscribe = {"unsubscribe", judge_on_subject, apply_unsubscribe};

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

/*
 * The arguments that all functions have that record an event.  Raises 22004,
 * 22023, 54000.
 */
void
tag_event_begin(TagCall *call, FunctionCallInfo fcinfo, const TagOperation *operation)
{
	call->operation = operation;
	call->vocabulary = args_key(fcinfo, 0, "vocabulary");
	call->event_id = args_uuid(fcinfo, 1, "event_id");
	call->reference.argument = "reference";
	call->target.argument = "target";
	call->expected_target_version = TAG_ANY_VERSION;
}

/* Passes the gate, and returns the answer. */
Datum
tag_event_run(FunctionCallInfo fcinfo, TagCall *call)
{
	Gate	   *gate = &call->gate;
	TagReference *reference = &call->reference;

	gate->kind = &event_kind;
	gate_call_pass(gate);

	if (gate->outcome == FENCING_CONFLICT && gate->receipt.found)
		return tag_event_answer(fcinfo, gate->outcome, call->event_no, NULL);
	if (gate->outcome == FENCING_REPLAYED || call->changed_tags)
	{
		TagTables	tables;
		Snapshot	snapshot = store_fresh_snapshot();

		/* what it named then, and where that leads now */
		tag_open(&tables, AccessShareLock);
		tag_find_owner(&tables, call->vocabulary, &call->owner, reference, snapshot);
		UnregisterSnapshot(snapshot);
		call->tables = tables;
		if (gate->outcome == FENCING_REPLAYED)
			tag_event_require_visible(call, reference);
		tag_close(&tables, AccessShareLock);
	}
	return tag_event_answer(fcinfo, gate->outcome, call->event_no, reference);
}

/* The columns of all functions that write; event_no 0 and reference NULL: none. */
Datum
tag_event_answer(FunctionCallInfo fcinfo, FencingOutcome outcome, int64 event_no,
				 const TagReference *reference)
{
	Datum		values[6] = {0};
	bool		nulls[6] = {true, true, true, true, true, true};

	values[0] = Int64GetDatum(event_no);
	nulls[0] = event_no == 0;
	if (reference != NULL)
	{
		const Tag  *root = &reference->root;
		const char *matched = tag_matched(reference);

		values[1] = UUIDPGetDatum(&root->id);
		values[2] = PointerGetDatum(root->name);
		values[3] = matched == NULL ? (Datum) 0 : CStringGetTextDatum(matched);
		values[4] = Int64GetDatum(root->version);
		values[5] = PointerGetDatum(root->kind);
		nulls[1] = nulls[2] = nulls[4] = false;
		nulls[3] = matched == NULL;
		nulls[5] = root->kind == NULL;
	}
	return args_answer(fcinfo, outcome, values, nulls);
}

/* The scope is the event. */
static void
open_event(Gate *gate)
{
	TagCall    *call = (TagCall *) gate;

	gate->scope_rel = tag_event_relation(call, STORE_TAG_EVENTS);
	gate->nscope = 2;
	gate->scope[0] = PointerGetDatum(call->vocabulary);
	gate->scope[1] = UUIDPGetDatum(call->event_id);
	tag_open(&call->tables, RowExclusiveLock);
}

/* All that were opened. */
static void
close_event(Gate *gate, LOCKMODE lockmode)
{
	TagCall    *call = (TagCall *) gate;

	tag_close(&call->tables, lockmode);
	for (int i = 0; i < STORE_NTABLES; i++)
	{
		if (call->relations[i] != NULL)
			table_close(call->relations[i], lockmode);
		call->relations[i] = NULL;
	}
}

/* A table that the call needs, opened once. */
Relation
tag_event_relation(TagCall *call, StoreTable table)
{
	if (call->relations[table] == NULL)
		call->relations[table] = store_table_open(table, RowExclusiveLock);
	return call->relations[table];
}

/* Of one scope. */
static bool
same_event(const Gate *a, const Gate *b)
{
	return true;
}

/* The event of that id. */
static void
find_event(Gate *gate, Snapshot snapshot)
{
	TagCall    *call = (TagCall *) gate;
	GateReceipt *receipt = &gate->receipt;
	HeapTuple	row = store_find(gate->scope_rel, gate->nscope, gate->scope, snapshot);

	receipt->found = row != NULL;
	if (row == NULL)
		return;
	receipt->purged = false;
	receipt->digest = DatumGetByteaP(store_get(gate->scope_rel, row, Anum_tag_events_digest));
	receipt->digest_version = DatumGetInt32(store_get(gate->scope_rel, row,
													  Anum_tag_events_digest_version));
	receipt->result_null = true;
	receipt->committed_at = DatumGetTimestampTz(store_get(gate->scope_rel, row,
														  Anum_tag_events_committed_at));
	call->event_no = DatumGetInt64(store_get(gate->scope_rel, row, Anum_tag_events_event_no));
	call->owner = *DatumGetUUIDP(store_get(gate->scope_rel, row, Anum_tag_events_owner));
}

/* By the version of the receipt. */
static bytea *
make_event_digest(Gate *gate)
{
	return digest_make(event_content((TagCall *) gate),
					   gate->receipt.found ? gate->receipt.digest_version : DIGEST_VERSION);
}

/*
 * What was submitted.  Not what it was expected to meet: who has read again
 * after a lost reply submits the same.
 */
static Jsonb *
event_content(const TagCall *call)
{
	JsonbParseState *state = NULL;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	push_cstring(&state, "kind", call->operation->kind);
	push_text(&state, "reference", call->reference.reference);
	if (call->target.reference != NULL)
		push_text(&state, "target", call->target.reference);
	if (call->subject != NULL)
		push_text(&state, "subject", call->subject);
	if (call->name != NULL)
		push_text(&state, "name", call->name);
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

/* A string. */
static void
push_text(JsonbParseState **state, const char *key, const text *value)
{
	JsonbValue	item;

	item.type = jbvString;
	item.val.string.val = unconstify(char *, key);
	item.val.string.len = strlen(key);
	pushJsonbValue(state, WJB_KEY, &item);

	if (value == NULL)
		item.type = jbvNull;
	else
	{
		item.val.string.val = VARDATA_ANY(value);
		item.val.string.len = VARSIZE_ANY_EXHDR(value);
	}
	pushJsonbValue(state, WJB_VALUE, &item);
}

/* The same. */
static void
push_cstring(JsonbParseState **state, const char *key, const char *value)
{
	push_text(state, key, cstring_to_text(value));
}

/* Takes the locks; what is in conflict keeps none. */
static FencingOutcome
judge_event(Gate *gate)
{
	TagCall    *call = (TagCall *) gate;
	FencingOutcome outcome;

	call->nlocks = 0;
	call->makes_name = false;
	outcome = call->operation->judge(call);
	if (outcome != FENCING_COMMITTED)
	{
		tag_name_unclaim(call);
		tag_lock_give_back(call);
	}
	return outcome;
}

/* The state, the event, and what the outbox is to have. */
static void
keep_event(Gate *gate)
{
	TagCall    *call = (TagCall *) gate;

	call->event_no = draw_number();
	call->operation->apply(call);
	insert_event(call);
}

/*
 * The next number.  fencing_new_epoch() moves the sequence while nobody
 * draws, so the epoch is entered first.
 */
static int64
draw_number(void)
{
	(void) epoch_enter();
	return nextval_internal(number_sequence(), false);
}

/* The sequence of the events' numbers. */
static Oid
number_sequence(void)
{
	Oid			sequence = get_relname_relid("tag_events_event_no_seq",
											 get_namespace_oid("fencing", false));

	if (!OidIsValid(sequence))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation \"fencing.%s\" does not exist", "tag_events_event_no_seq"),
				 errhint("Create the extension fencing again.")));
	return sequence;
}

/* The last number that was drawn, or 0. */
int64
tag_event_last_number(void)
{
	int64		number;

	owner_query_bigints("SELECT CASE WHEN s.is_called THEN s.last_value ELSE 0 END"
						" FROM fencing.tag_events_event_no_seq s",
						0, NULL, NULL, NULL, NULL, 1, &number);
	return number;
}

/* Writes the event. */
static void
insert_event(TagCall *call)
{
	Datum		values[Natts_tag_events] = {0};
	bool		nulls[Natts_tag_events] = {false};
	NameData	actor;

	namestrcpy(&actor, GetUserNameFromId(GetSessionUserId(), false));
	values[Anum_tag_events_vocabulary - 1] = PointerGetDatum(call->vocabulary);
	values[Anum_tag_events_event_id - 1] = UUIDPGetDatum(call->event_id);
	values[Anum_tag_events_event_no - 1] = Int64GetDatum(call->event_no);
	values[Anum_tag_events_kind - 1] = CStringGetTextDatum(call->operation->kind);
	values[Anum_tag_events_reference - 1] = PointerGetDatum(call->reference.reference);
	values[Anum_tag_events_owner - 1] = UUIDPGetDatum(&call->owner);
	values[Anum_tag_events_tag_id - 1] = UUIDPGetDatum(&call->tag_id);
	values[Anum_tag_events_subject - 1] = PointerGetDatum(call->subject);
	nulls[Anum_tag_events_subject - 1] = call->subject == NULL;
	values[Anum_tag_events_name - 1] = PointerGetDatum(call->name);
	nulls[Anum_tag_events_name - 1] = call->name == NULL;
	values[Anum_tag_events_target_reference - 1] = PointerGetDatum(call->target.reference);
	values[Anum_tag_events_target - 1] = UUIDPGetDatum(&call->target.owner.id);
	nulls[Anum_tag_events_target_reference - 1] = nulls[Anum_tag_events_target - 1] =
		call->target.reference == NULL;
	values[Anum_tag_events_migration - 1] = UUIDPGetDatum(call->migration);
	nulls[Anum_tag_events_migration - 1] = call->migration == NULL;
	values[Anum_tag_events_reason - 1] = PointerGetDatum(call->reason);
	nulls[Anum_tag_events_reason - 1] = call->reason == NULL;
	values[Anum_tag_events_actor - 1] = NameGetDatum(&actor);
	values[Anum_tag_events_digest - 1] = PointerGetDatum(call->gate.digest);
	values[Anum_tag_events_digest_version - 1] = Int32GetDatum(DIGEST_VERSION);
	values[Anum_tag_events_committed_at - 1] = TimestampTzGetDatum(call->gate.committed_at);
	store_insert(call->gate.scope_rel, values, nulls);
}

/* The event and its vocabulary. */
static char *
describe_event(const Gate *gate)
{
	const TagCall *call = (const TagCall *) gate;

	return psprintf("event %s of vocabulary \"%s\"", tag_id_to_cstring(call->event_id),
					text_to_cstring(call->vocabulary));
}

/*
 * Resolves the reference anew.  Raises LF001, or 40001 if the transaction's
 * snapshot knows it.
 */
void
tag_event_refresh(TagCall *call, TagReference *reference)
{
	Snapshot	snapshot = store_fresh_snapshot();

	tag_find(&call->tables, call->vocabulary, reference, snapshot);
	UnregisterSnapshot(snapshot);
	if (reference->found)
		return;
	if (IsolationUsesXactSnapshot())
	{
		tag_find(&call->tables, call->vocabulary, reference, GetTransactionSnapshot());
		if (reference->found)
			store_serialization_failure();
	}
	tag_unknown(call->vocabulary, reference);
}

/* Raises 40001 unless the transaction sees the rows that decided. */
void
tag_event_require_visible(TagCall *call, const TagReference *reference)
{
	store_require_visible(call->tables.tags, reference->owner.row);
	store_require_visible(call->tables.tags, reference->root.row);
	if (reference->name_row != NULL)
		store_require_visible(call->tables.names, reference->name_row);
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
	Relation	rel = tag_event_relation(call, table);
	Snapshot	snapshot = store_fresh_snapshot();
	List	   *rows = rows_in_force(call, rel, snapshot);
	int			attnum = table == STORE_TAG_LINKS ? Anum_tag_links_tag_id : Anum_tag_follows_tag_id;
	ListCell   *lc;

	UnregisterSnapshot(snapshot);
	if (IsolationUsesXactSnapshot())
	{
		if (list_length(rows_in_force(call, rel, GetTransactionSnapshot())) != list_length(rows))
			store_serialization_failure();
		foreach(lc, rows)
			store_require_visible(rel, (HeapTuple) lfirst(lc));
	}

	call->rows = NIL;
	foreach(lc, rows)
	{
		HeapTuple	row = (HeapTuple) lfirst(lc);

		if (is_in_tree(call, DatumGetUUIDP(store_get(rel, row, attnum))))
			call->rows = lappend(call->rows, row);
	}
	call->associated = call->rows != NIL;
}

/*
 * Of a tag into which nothing is merged there is one row at most; else all of
 * the subject have to be looked at.
 */
static List *
rows_in_force(TagCall *call, Relation rel, Snapshot snapshot)
{
	Datum		key[4] = {PointerGetDatum(call->vocabulary), PointerGetDatum(call->subject),
		Int64GetDatum(TAG_IN_FORCE), UUIDPGetDatum(&call->reference.root.id)};

	return store_find_all(rel, call->reference.root.members == 1 ? 4 : 3, key, snapshot);
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
	Relation	rel = tag_event_relation(call, STORE_TAG_LINKS);
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
	Relation	rel = tag_event_relation(call, STORE_TAG_LINKS);
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
	Relation	rel = tag_event_relation(call, STORE_TAG_FOLLOWS);
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
	Relation	rel = tag_event_relation(call, STORE_TAG_FOLLOWS);
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

/*
 * An event of the outbox, of the subject or of the vocabulary, with one detail
 * of its type.  Its aggregate is locked by what tag_lock.c has locked.
 */
void
tag_event_emit(TagCall *call, const char *type, bool of_subject, const char *detail,
			   const char *detail_value)
{
	JsonbParseState *state = NULL;
	const char *vocabulary = text_to_cstring(call->vocabulary);
	const char *aggregate = vocabulary;
	JsonbValue	item;
	Jsonb	   *payload;

	if (of_subject)
	{
		const char *subject = text_to_cstring(call->subject);

		aggregate = psprintf("%d:%s%d:%s", (int) strlen(vocabulary), vocabulary,
							 (int) strlen(subject), subject);
	}

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	push_text(&state, "vocabulary", call->vocabulary);
	item.type = jbvString;
	item.val.string.val = "event_no";
	item.val.string.len = strlen("event_no");
	pushJsonbValue(&state, WJB_KEY, &item);
	item.type = jbvNumeric;
	item.val.numeric = int64_to_numeric(call->event_no);
	pushJsonbValue(&state, WJB_VALUE, &item);
	push_cstring(&state, "event_id", tag_id_to_cstring(call->event_id));
	push_cstring(&state, "tag_id", tag_id_to_cstring(&call->tag_id));
	push_text(&state, "name", call->reference.root.name);
	push_text(&state, "subject", call->subject);
	push_text(&state, "reference", call->reference.reference);
	if (detail != NULL)
		push_cstring(&state, detail, detail_value);
	payload = JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
	(void) outbox_emit(cstring_to_text("tag"), cstring_to_text(aggregate), cstring_to_text(type),
					   payload);
}
