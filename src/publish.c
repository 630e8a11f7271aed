/*-------------------------------------------------------------------------
 *
 * publish.c
 *	  Publishing: (document, version) and content through the gate.
 *
 * A version is made above the one that its publisher has seen, so two who
 * started from the same cannot both succeed.  The row of fencing.documents is
 * the fence: the number that may come next is one above the latest version.
 * The revisions are the receipts; they are immutable and never go, so every
 * attempt at a version that exists is replayed or in conflict.
 *
 * A new document has no row to lock.  Its version 1 is a slot, taken once
 * under a key lock, as the keys of once.c are.
 *
 * A deletion is a version without content, and has the digest of the empty
 * text.
 *
 * Each version is an event of the outbox, in the same transaction.
 *
 * Locks: the row in fencing.documents, or for version 1 the key lock of the
 * document; it stands for the event's aggregate too.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "digest.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "outbox.h"
#include "publish.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#define AGGREGATE_TYPE		"document"

typedef struct PublishGate
{
	Gate		gate;			/* first, so that the one is the other */
	text	   *document_id;
	int64		expected_version;
	const char *kind;			/* publish, rollback, delete or force */
	Jsonb	   *content;		/* NULL: a deletion */
	int64		source_version; /* or PUBLISH_NO_VERSION */
	text	   *note;			/* NULL: none */
	Relation	revisions;
} PublishGate;

/*
 * What a call of fencing_publish_force() made, for the other columns of its
 * row.
 */
typedef struct ForcedVersion
{
	MemoryContextCallback callback;
	FmgrInfo   *flinfo;			/* of the call for the first column */
	MemoryContext context;		/* of its query */
	int			location;		/* in the text of the query */
	text	   *document_id;
	int64		version;
} ForcedVersion;

static void begin_publish(PublishGate *publish, FunctionCallInfo fcinfo, const char *kind);
static void arg_expected_version(PublishGate *publish, FunctionCallInfo fcinfo, int argno);
static void arg_note(PublishGate *publish, FunctionCallInfo fcinfo, int argno);
static void run_publish(PublishGate *publish);
static bool publish_above(void *arg, Snapshot snapshot);
static bool is_another_column(FunctionCallInfo fcinfo, const text *document_id);
static void remember_force(FunctionCallInfo fcinfo, const PublishGate *publish);
static void forget_force(void *arg);
static Datum publish_answer(FunctionCallInfo fcinfo, PublishGate *publish);
static Jsonb *source_content(const text *document_id, int64 version);
static void open_publish(Gate *gate);
static void close_publish(Gate *gate, LOCKMODE lockmode);
static bool same_version(const Gate *a, const Gate *b);
static void find_published(Gate *gate, Snapshot snapshot);
static void find_document(Gate *gate, Snapshot snapshot);
static bytea *make_content_digest(Gate *gate);
static void keep_revision(Gate *gate);
static void version_never_published(const Gate *gate);
static char *describe_publish(const Gate *gate);
static void emit_event(PublishGate *publish, pg_uuid_t *revision);
static void copy_payload(SPITupleTable *rows, uint64 count, void *arg);

PG_FUNCTION_INFO_V1(fencing_publish);
PG_FUNCTION_INFO_V1(fencing_publish_rollback);
PG_FUNCTION_INFO_V1(fencing_publish_delete);
PG_FUNCTION_INFO_V1(fencing_publish_force);

/* a version above another */
static const GateKind publish_kind = {
	.function = "fencing_publish()",
	.numbers = GATE_VERSIONS,
	.same_number = same_version,
	.find_receipt = find_published,
	.find_fence = find_document,
	.make_digest = make_content_digest,
	.keep_receipt = keep_revision,
	.never_issued = version_never_published,
	.describe = describe_publish,
	.open = open_publish,
	.close = close_publish
};

/* the first one */
static const GateKind create_kind = {
	.function = "fencing_publish()",
	.numbers = GATE_SLOT,
	.same_number = same_version,
	.find_receipt = find_published,
	.make_digest = make_content_digest,
	.keep_receipt = keep_revision,
	.describe = describe_publish,
	.open = open_publish,
	.close = close_publish
};

static ForcedVersion *forced = NULL;

/*
 * fencing_publish(document_id text, expected_version bigint, content jsonb, note text)
 *	→ outcome, version, digest, digest_version, committed_at, latest_version, latest_digest
 */
Datum
fencing_publish(PG_FUNCTION_ARGS)
{
	PublishGate publish = {0};

	begin_publish(&publish, fcinfo, "publish");
	arg_expected_version(&publish, fcinfo, 1);
	if (PG_ARGISNULL(2))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("content must not be null"),
				 errhint("Call fencing_publish_delete() to delete a document; JSON null is 'null'::jsonb.")));
	publish.content = PG_GETARG_JSONB_P(2);
	arg_note(&publish, fcinfo, 3);

	run_publish(&publish);
	return publish_answer(fcinfo, &publish);
}

/*
 * fencing_publish_rollback(document_id text, expected_version bigint,
 *							source_version bigint, note text)
 *	→ as fencing_publish()
 */
Datum
fencing_publish_rollback(PG_FUNCTION_ARGS)
{
	PublishGate publish = {0};

	begin_publish(&publish, fcinfo, "rollback");
	arg_expected_version(&publish, fcinfo, 1);
	publish.source_version = args_token(fcinfo, 2, "source_version");
	if (publish.source_version > publish.expected_version)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("source_version %lld must not be above expected_version %lld",
						(long long) publish.source_version,
						(long long) publish.expected_version)));
	publish.content = source_content(publish.document_id, publish.source_version);
	arg_note(&publish, fcinfo, 3);

	run_publish(&publish);
	return publish_answer(fcinfo, &publish);
}

/*
 * fencing_publish_delete(document_id text, expected_version bigint, note text)
 *	→ as fencing_publish()
 */
Datum
fencing_publish_delete(PG_FUNCTION_ARGS)
{
	PublishGate publish = {0};

	begin_publish(&publish, fcinfo, "delete");
	publish.expected_version = args_token(fcinfo, 1, "expected_version");
	arg_note(&publish, fcinfo, 2);

	run_publish(&publish);
	return publish_answer(fcinfo, &publish);
}

/*
 * fencing_publish_force(document_id text, content jsonb, reason text)
 *	→ as fencing_publish()
 *
 * Expects the version that it finds, until nobody comes between.
 */
Datum
fencing_publish_force(PG_FUNCTION_ARGS)
{
	PublishGate publish = {0};

	begin_publish(&publish, fcinfo, "force");
	args_refuse_null(fcinfo, 1, "content");
	publish.content = PG_GETARG_JSONB_P(1);
	publish.note = args_reason(fcinfo, 2, "reason");
	store_begin_write("fencing_publish_force()");

	if (is_another_column(fcinfo, publish.document_id))
	{
		publish.expected_version = forced->version - 1;
		run_publish(&publish);
		if (publish.gate.outcome == FENCING_REPLAYED)
			return publish_answer(fcinfo, &publish);
	}

	store_until_decided(publish_above, &publish);
	remember_force(fcinfo, &publish);
	return publish_answer(fcinfo, &publish);
}

/* The version after the latest one; another publisher may be faster. */
static bool
publish_above(void *arg, Snapshot snapshot)
{
	PublishGate *publish = (PublishGate *) arg;

	publish->expected_version = publish_latest_version(publish->document_id, snapshot);
	run_publish(publish);
	return publish->gate.outcome == FENCING_COMMITTED;
}

/*
 * (fencing_publish_force(…)).* calls the function once per column, from one
 * place in the text.  The first call makes a version, those of the other
 * columns are answered with that, as far as the client's own command can be
 * told from others.
 */
static bool
is_another_column(FunctionCallInfo fcinfo, const text *document_id)
{
	return forced != NULL && forced->flinfo != fcinfo->flinfo &&
		forced->context == fcinfo->flinfo->fn_mcxt &&
		forced->location == exprLocation(fcinfo->flinfo->fn_expr) &&
		args_same_text(forced->document_id, document_id);
}

/* Until the query ends, in whose memory it is. */
static void
remember_force(FunctionCallInfo fcinfo, const PublishGate *publish)
{
	MemoryContext context = fcinfo->flinfo->fn_mcxt;

	if (fcinfo->resultinfo != NULL || !gate_call_by_client(fcinfo))
		return;
	forced = (ForcedVersion *) MemoryContextAllocZero(context, sizeof(ForcedVersion));
	forced->flinfo = fcinfo->flinfo;
	forced->context = context;
	forced->location = exprLocation(fcinfo->flinfo->fn_expr);
	forced->document_id = (text *) MemoryContextAlloc(context, VARSIZE(publish->document_id));
	memcpy(forced->document_id, publish->document_id, VARSIZE(publish->document_id));
	forced->version = publish->gate.number;
	forced->callback.func = forget_force;
	MemoryContextRegisterResetCallback(context, &forced->callback);
}

/* The query has ended, and its memory goes. */
static void
forget_force(void *arg)
{
	forced = NULL;
}

/* What all ways to publish have. */
static void
begin_publish(PublishGate *publish, FunctionCallInfo fcinfo, const char *kind)
{
	publish->document_id = args_key(fcinfo, 0, "document_id");
	publish->kind = kind;
}

/*
 * The version that the publisher has seen, 0 for none.  Raises 22004, 22023.
 */
static void
arg_expected_version(PublishGate *publish, FunctionCallInfo fcinfo, int argno)
{
	if (PG_ARGISNULL(argno))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("expected_version must not be null"),
				 errhint("It is the version that the publisher has seen, 0 for a new document.")));
	publish->expected_version = PG_GETARG_INT64(argno);
	if (publish->expected_version < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("expected_version must not be negative, but is %lld",
						(long long) publish->expected_version),
				 errhint("It is the version that the publisher has seen, 0 for a new document.")));
}

/* May be NULL. */
static void
arg_note(PublishGate *publish, FunctionCallInfo fcinfo, int argno)
{
	publish->note = PG_ARGISNULL(argno) ? NULL : PG_GETARG_TEXT_PP(argno);
}

/* Passes the gate. */
static void
run_publish(PublishGate *publish)
{
	Gate	   *gate = &publish->gate;

	/* nothing is above the highest number, so it is as good as too high */
	gate->number = publish->expected_version;
	if (gate->number < PG_INT64_MAX)
		gate->number++;
	gate->kind = publish->expected_version == PUBLISH_NO_VERSION ? &create_kind : &publish_kind;

	/* before any lock, because it may take long */
	gate->digest = digest_make(publish->content, DIGEST_VERSION);
	gate_call_pass(gate);
}

/* The scope is the document. */
static void
open_publish(Gate *gate)
{
	PublishGate *publish = (PublishGate *) gate;

	gate->scope_rel = store_table_open(STORE_DOCUMENTS, RowExclusiveLock);
	gate->nscope = 1;
	gate->scope[0] = PointerGetDatum(publish->document_id);
	publish->revisions = store_table_open(STORE_REVISIONS, RowExclusiveLock);
}

/* The tables of open_publish(). */
static void
close_publish(Gate *gate, LOCKMODE lockmode)
{
	table_close(((PublishGate *) gate)->revisions, lockmode);
	table_close(gate->scope_rel, lockmode);
}

/* With where the document is now, in the same view of things. */
static Datum
publish_answer(FunctionCallInfo fcinfo, PublishGate *publish)
{
	Gate	   *gate = &publish->gate;
	Relation	revisions = store_table_open(STORE_REVISIONS, AccessShareLock);
	Snapshot	snapshot = IsolationUsesXactSnapshot() ?
		RegisterSnapshot(GetTransactionSnapshot()) : store_fresh_snapshot();
	int64		latest = gate->outcome == FENCING_COMMITTED ? gate->number :
		publish_latest_version(publish->document_id, snapshot);
	Datum		values[6] = {0};
	bool		nulls[6] = {true, true, true, true, true, true};
	Revision	revision;

	if (gate->outcome == FENCING_COMMITTED || gate->outcome == FENCING_REPLAYED)
	{
		values[0] = Int64GetDatum(gate->number);
		values[1] = PointerGetDatum(gate->outcome == FENCING_COMMITTED ? gate->digest :
									gate->receipt.digest);
		values[2] = Int32GetDatum(gate->outcome == FENCING_COMMITTED ? DIGEST_VERSION :
								  gate->receipt.digest_version);
		nulls[0] = nulls[1] = nulls[2] = false;
	}
	if (gate->outcome != FENCING_STALE)
	{
		values[3] = TimestampTzGetDatum(gate->committed_at);
		nulls[3] = false;
	}
	publish_find_revision(revisions, publish->document_id, latest, snapshot, &revision);
	if (gate->outcome == FENCING_COMMITTED || revision.found)
	{
		values[4] = Int64GetDatum(latest);
		values[5] = PointerGetDatum(gate->outcome == FENCING_COMMITTED ? gate->digest :
									revision.digest);
		nulls[4] = nulls[5] = false;
	}
	UnregisterSnapshot(snapshot);
	table_close(revisions, gate->outcome == FENCING_COMMITTED ? NoLock : AccessShareLock);
	return args_answer(fcinfo, gate->outcome, values, nulls);
}

/* What a rollback publishes again.  Raises LF001, 22023. */
static Jsonb *
source_content(const text *document_id, int64 version)
{
	Relation	revisions = store_table_open(STORE_REVISIONS, AccessShareLock);
	Snapshot	snapshot = store_fresh_snapshot();
	Revision	source;
	Jsonb	   *content;

	publish_find_revision(revisions, document_id, version, snapshot, &source);
	if (!source.found)
	{
		/* one that lags behind cannot know */
		store_begin_write("fencing_publish()");
		publish_never_published(document_id, version, publish_latest_version(document_id, snapshot),
								NULL);
	}
	store_require_visible(revisions, source.tuple);
	content = publish_revision_content(revisions, &source);
	if (content == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("version %lld of document \"%s\" is a deletion", (long long) version,
						text_to_cstring(document_id)),
				 errhint("Call fencing_publish_delete() to delete it again.")));
	UnregisterSnapshot(snapshot);
	table_close(revisions, AccessShareLock);
	return content;
}

/*
 * The latest version of a document as the snapshot sees it, or
 * PUBLISH_NO_VERSION.
 */
int64
publish_latest_version(const text *document_id, Snapshot snapshot)
{
	Relation	documents = store_table_open(STORE_DOCUMENTS, AccessShareLock);
	Datum		key = PointerGetDatum(document_id);
	HeapTuple	row = store_find(documents, 1, &key, snapshot);
	int64		version = PUBLISH_NO_VERSION;

	if (row != NULL)
		version = DatumGetInt64(store_get(documents, row, Anum_documents_version));
	table_close(documents, AccessShareLock);
	return version;
}

/* Fills revision; found or not, as the snapshot sees it. */
void
publish_find_revision(Relation revisions, const text *document_id, int64 version,
					  Snapshot snapshot, Revision *revision)
{
	Datum		key[2] = {PointerGetDatum(document_id), Int64GetDatum(version)};
	HeapTuple	row = store_find(revisions, 2, key, snapshot);

	revision->found = row != NULL;
	revision->tuple = row;
	if (row == NULL)
		return;
	revision->digest = DatumGetByteaP(store_get(revisions, row, Anum_revisions_digest));
	revision->digest_version = DatumGetInt32(store_get(revisions, row,
													   Anum_revisions_digest_version));
	revision->committed_at = DatumGetTimestampTz(store_get(revisions, row,
														   Anum_revisions_committed_at));
}

/* The document as of a revision; NULL: it was deleted. */
Jsonb *
publish_revision_content(Relation revisions, const Revision *revision)
{
	bool		isnull;
	Datum		content = heap_getattr(revision->tuple, Anum_revisions_content,
									   RelationGetDescr(revisions), &isnull);

	return isnull ? NULL : DatumGetJsonbP(content);
}

/*
 * Raises LF001; latest is PUBLISH_NO_VERSION if there is no such document;
 * hint may be NULL.
 */
void
publish_never_published(const text *document_id, int64 version, int64 latest, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_FENCING_NEVER_ISSUED),
			 errmsg("version %lld of document \"%s\" was never published here", (long long) version,
					text_to_cstring(document_id)),
			 latest != PUBLISH_NO_VERSION ?
			 errdetail("The latest version is %lld.", (long long) latest) :
			 errdetail("There is no such document."),
			 hint != NULL ? errhint("%s", hint) : 0));
}

/* Of one document. */
static bool
same_version(const Gate *a, const Gate *b)
{
	return a->number == b->number;
}

/* The revision of the version. */
static void
find_published(Gate *gate, Snapshot snapshot)
{
	PublishGate *publish = (PublishGate *) gate;
	Revision	revision;

	publish_find_revision(publish->revisions, publish->document_id, gate->number, snapshot,
						  &revision);
	gate->receipt.found = revision.found;
	if (!revision.found)
		return;
	gate->receipt.purged = false;
	gate->receipt.digest = revision.digest;
	gate->receipt.digest_version = revision.digest_version;
	gate->receipt.result_null = true;
	gate->receipt.committed_at = revision.committed_at;
}

/*
 * The fence is the version to come, which is the only one that is accepted.
 */
static void
find_document(Gate *gate, Snapshot snapshot)
{
	GateFence  *fence = &gate->fence;

	fence->tuple = store_find(gate->scope_rel, gate->nscope, gate->scope, snapshot);
	fence->found = fence->tuple != NULL;
	if (!fence->found)
		return;
	fence->number = 1 + DatumGetInt64(store_get(gate->scope_rel, fence->tuple,
												Anum_documents_version));
	fence->purged_through = 0;
}

/* Another version of the digest is made only if a revision has it. */
static bytea *
make_content_digest(Gate *gate)
{
	if (!gate->receipt.found || gate->receipt.digest_version == DIGEST_VERSION)
		return gate->digest;
	return digest_make(((PublishGate *) gate)->content, gate->receipt.digest_version);
}

/* The revision, the document's new version, and the event. */
static void
keep_revision(Gate *gate)
{
	PublishGate *publish = (PublishGate *) gate;
	pg_uuid_t  *uuid = outbox_new_uuid();
	NameData	actor;
	Datum		revision[Natts_revisions] = {0};
	bool		revision_nulls[Natts_revisions] = {false};
	Datum		document[Natts_documents];
	bool		document_nulls[Natts_documents] = {false};

	namestrcpy(&actor, GetUserNameFromId(GetSessionUserId(), false));
	revision[Anum_revisions_document_id - 1] = PointerGetDatum(publish->document_id);
	revision[Anum_revisions_version - 1] = Int64GetDatum(gate->number);
	revision[Anum_revisions_revision - 1] = UUIDPGetDatum(uuid);
	revision[Anum_revisions_source_version - 1] = Int64GetDatum(publish->source_version);
	revision_nulls[Anum_revisions_source_version - 1] = publish->source_version == PUBLISH_NO_VERSION;
	revision[Anum_revisions_kind - 1] = CStringGetTextDatum(publish->kind);
	revision[Anum_revisions_content - 1] = PointerGetDatum(publish->content);
	revision_nulls[Anum_revisions_content - 1] = publish->content == NULL;
	revision[Anum_revisions_digest - 1] = PointerGetDatum(gate->digest);
	revision[Anum_revisions_digest_version - 1] = Int32GetDatum(DIGEST_VERSION);
	revision[Anum_revisions_note - 1] = PointerGetDatum(publish->note);
	revision_nulls[Anum_revisions_note - 1] = publish->note == NULL;
	revision[Anum_revisions_actor - 1] = NameGetDatum(&actor);
	revision[Anum_revisions_committed_at - 1] = TimestampTzGetDatum(gate->committed_at);
	store_insert(publish->revisions, revision, revision_nulls);

	document[Anum_documents_document_id - 1] = PointerGetDatum(publish->document_id);
	document[Anum_documents_version - 1] = Int64GetDatum(gate->number);
	if (publish->expected_version == PUBLISH_NO_VERSION)
		store_insert(gate->scope_rel, document, document_nulls);
	else
	{
		store_require_visible(gate->scope_rel, gate->fence.tuple);
		store_update(gate->scope_rel, gate->fence.tuple, document, document_nulls);
	}
	emit_event(publish, uuid);
}

/* Raises LF001. */
static void
version_never_published(const Gate *gate)
{
	const PublishGate *publish = (const PublishGate *) gate;

	publish_never_published(publish->document_id, publish->expected_version,
							gate->fence.found ? gate->fence.number - 1 : PUBLISH_NO_VERSION,
							gate->fence.found ? NULL :
							_("A new document is published with expected_version 0."));
}

/* The version and its document. */
static char *
describe_publish(const Gate *gate)
{
	return psprintf("version %lld of document \"%s\"", (long long) gate->number,
					text_to_cstring(((const PublishGate *) gate)->document_id));
}

/* What happened and where to find it, without the content. */
static void
emit_event(PublishGate *publish, pg_uuid_t *revision)
{
	static const char query[] =
		"SELECT pg_catalog.jsonb_build_object("
		"'document_id', $1, 'version', $2, 'source_version', $3, 'kind', $4,"
		" 'digest', pg_catalog.encode($5, 'hex'), 'digest_version', $6, 'revision', $7)";
	Oid			argtypes[] = {TEXTOID, INT8OID, INT8OID, TEXTOID, BYTEAOID, INT4OID, UUIDOID};
	text	   *kind = cstring_to_text(publish->kind);
	Datum		args[] = {PointerGetDatum(publish->document_id), Int64GetDatum(publish->gate.number),
		Int64GetDatum(publish->source_version), PointerGetDatum(kind),
		PointerGetDatum(publish->gate.digest), Int32GetDatum(DIGEST_VERSION),
	UUIDPGetDatum(revision)};
	bool		nulls[lengthof(args)] = {[2] = publish->source_version == PUBLISH_NO_VERSION};
	Jsonb	   *payload = NULL;

	owner_query_run(query, lengthof(args), argtypes, args,
					nulls, NULL,
					copy_payload, &payload);
	outbox_emit(cstring_to_text(AGGREGATE_TYPE), publish->document_id, kind, payload);
}

/* Out of SPI's memory. */
static void
copy_payload(SPITupleTable *rows, uint64 count, void *arg)
{
	*(Jsonb **) arg = DatumGetJsonbP(owner_query_copy(rows, 0, 1));
}
