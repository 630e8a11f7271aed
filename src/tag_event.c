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
 * An event that changes what a root has, or a tag, is one of the outbox too;
 * who is to be told of it is computed as of its number (tag_list.c), never
 * kept.
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
static void find_event(Gate *gate, Snapshot snapshot);
static bytea *make_event_digest(Gate *gate);
static Jsonb *event_content(const TagCall *call);
static FencingOutcome judge_event(Gate *gate);
static void keep_event(Gate *gate);
static void insert_event(TagCall *call);
static char *describe_event(const Gate *gate);
static int64 draw_number(void);
static Oid	number_sequence(void);
static void push_text(JsonbParseState **state, const char *key, const text *value);
static void push_cstring(JsonbParseState **state, const char *key, const char *value);

static const GateKind event_kind = {
	.numbers = GATE_SLOT,
	.find_receipt = find_event,
	.make_digest = make_event_digest,
	.judge_content = judge_event,
	.keep_receipt = keep_event,
	.describe = describe_event,
	.open = open_event,
	.close = close_event
};

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

	call->kind = event_kind;
	call->kind.function = call->operation->function;
	gate->kind = &call->kind;
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
			tag_require_visible(call, reference);
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

	gate->scope_rel = tag_relation(call, STORE_TAG_EVENTS);
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
		tag_lock_give_back(call);
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
