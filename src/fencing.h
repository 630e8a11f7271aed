/*-------------------------------------------------------------------------
 *
 * fencing.h
 *	  The one internal header: types and prototypes, grouped by file.
 *
 * Locks, one order for all: key lock (key_lock.c), fence row, lease row, floor row; several
 * jobs in one transaction sorted by key.  Tables are opened with
 * RowExclusiveLock; a call that wrote nothing gives that back at once.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCING_H
#define FENCING_H

#include "access/htup.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "nodes/lockoptions.h"
#include "nodes/pg_list.h"
#include "storage/lockdefs.h"
#include "utils/array.h"
#include "utils/jsonb.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

/*
 * Version shims: PostgreSQL 15 to 18
 */
#if PG_VERSION_NUM >= 180000
#define fencing_index_beginscan(heap, index, snapshot, nkeys) \
	index_beginscan(heap, index, snapshot, NULL, nkeys, 0)
#define fencing_primary_key(rel) RelationGetPrimaryKeyIndex(rel, false)
#else
#define fencing_index_beginscan(heap, index, snapshot, nkeys) \
	index_beginscan(heap, index, snapshot, nkeys, 0)
#define fencing_primary_key(rel) RelationGetPrimaryKeyIndex(rel)
#endif

#if PG_VERSION_NUM >= 160000
#define fencing_may_execute(function, roleid) \
	object_aclcheck(ProcedureRelationId, function, roleid, ACL_EXECUTE)
#define fencing_owns_relation(relid, roleid) \
	object_ownercheck(RelationRelationId, relid, roleid)
#else
#define fencing_may_execute(function, roleid) \
	pg_proc_aclcheck(function, roleid, ACL_EXECUTE)
#define fencing_owns_relation(relid, roleid) pg_class_ownercheck(relid, roleid)
#endif

#ifndef ATTRIBUTE_GENERATED_VIRTUAL
#define ATTRIBUTE_GENERATED_VIRTUAL 'v' /* no such column before 18 */
#endif

#ifndef INTERVAL_NOT_FINITE
#define INTERVAL_NOT_FINITE(i) false	/* no such value before 17 */
#endif

#ifndef pg_noreturn
#define pg_noreturn pg_attribute_noreturn()		/* before 18 */
#endif

/* SQLSTATEs of our own */
#define ERRCODE_FENCING_NEVER_ISSUED	MAKE_SQLSTATE('L', 'F', '0', '0', '1')
#define ERRCODE_FENCING_UNKNOWN_VERSION MAKE_SQLSTATE('L', 'F', '0', '0', '2')
#define ERRCODE_FENCING_OUTSIDE_GATE	MAKE_SQLSTATE('L', 'F', '0', '0', '3')
#define ERRCODE_FENCING_NOT_ACCEPTED	MAKE_SQLSTATE('L', 'F', '0', '0', '5')

/* bytes in a key, and in the name of a step */
#define FENCING_MAX_KEY			512

/* the version that new digests are made by */
#define FENCING_DIGEST_VERSION	1

/* in the order of the names in args.c */
typedef enum FencingOutcome
{
	FENCING_COMMITTED,
	FENCING_REPLAYED,
	FENCING_CONFLICT,
	FENCING_STALE,
	FENCING_PRUNED,
	FENCING_FAILED,
	FENCING_ACQUIRED,
	FENCING_RENEWED,
	FENCING_HELD,
	FENCING_LOST,
	FENCING_RELEASED,
	FENCING_ADVANCED,
	FENCING_CURRENT,
	FENCING_DENIED,
	FENCING_DONE,
	FENCING_RECORDED,
	FENCING_WRITE,
	FENCING_AHEAD,
	FENCING_DIVERGED,
	FENCING_UNDESIRED,
	FENCING_AGAIN				/* internal: begin again */
} FencingOutcome;

/*
 * fencing.c: settings
 */
extern int	fencing_max_ttl;	/* seconds */

/*
 * args.c: arguments in, answers out
 */
extern void fencing_refuse_null(FunctionCallInfo fcinfo, int argno, const char *name);
extern text *fencing_arg_key(FunctionCallInfo fcinfo, int argno, const char *name);
extern text *fencing_arg_step(FunctionCallInfo fcinfo, int argno, const char *name);
extern text *fencing_arg_reason(FunctionCallInfo fcinfo, int argno, const char *name);
extern int64 fencing_arg_token(FunctionCallInfo fcinfo, int argno, const char *name);
extern bool fencing_arg_bool(FunctionCallInfo fcinfo, int argno, const char *name);
extern int64 fencing_arg_ttl(FunctionCallInfo fcinfo, int argno, const char *name);
extern int64 fencing_arg_retention(FunctionCallInfo fcinfo, int argno, const char *name);
extern int64 fencing_interval_usecs(const Interval *interval);
extern bool fencing_same_text(const text *a, const text *b);
extern const char *fencing_outcome_name(FencingOutcome outcome);
extern Datum fencing_outcome_datum(Oid enumtype, FencingOutcome outcome);
extern Datum fencing_answer(FunctionCallInfo fcinfo, FencingOutcome outcome,
							const Datum *values, const bool *nulls);

/*
 * table.c: which state tables there are, and that they are what was made
 */
typedef enum FencingTable
{
	FENCING_FLOOR,
	FENCING_FENCES,
	FENCING_LEASES,
	FENCING_RECEIPTS,
	FENCING_REVOCATIONS,
	FENCING_GRANTS,
	FENCING_OPERATIONS,
	FENCING_REQUEST_SCHEMAS,
	FENCING_RECORDS,
	FENCING_OUTBOX,
	FENCING_OUTBOX_CONSUMERS,
	FENCING_OUTBOX_ACKS,
	FENCING_DOCUMENTS,
	FENCING_REVISIONS,
	FENCING_TARGETS
} FencingTable;

#define FENCING_NTABLES			(FENCING_TARGETS + 1)

/* columns of the tables, from 1 as in the catalog */
#define Anum_floor_sysid			1
#define Anum_floor_dboid			2
#define Anum_floor_reloid			3
#define Anum_floor_tli				4
#define Anum_floor_epoch			5
#define Anum_floor_floor			6
#define Anum_floor_since			7
#define Natts_floor					7

#define Anum_fences_job_key			1
#define Anum_fences_token			2
#define Anum_fences_purged_through	3
#define Anum_fences_external		4
#define Natts_fences				4

#define Anum_leases_job_key			1
#define Anum_leases_owner			2
#define Anum_leases_token			3
#define Anum_leases_lease_until		4
#define Natts_leases				4

#define Anum_receipts_job_key		1
#define Anum_receipts_token			2
#define Anum_receipts_step			3
#define Anum_receipts_digest		4
#define Anum_receipts_digest_version 5
#define Anum_receipts_result		6
#define Anum_receipts_committed_at	7
#define Natts_receipts				7

#define Anum_operations_operation	1
#define Anum_operations_authorize_schema 2
#define Anum_operations_authorize_name 3
#define Anum_operations_authorize_owner 4
#define Anum_operations_retention	5
#define Anum_operations_forget_after 6
#define Natts_operations			6

#define Anum_request_schemas_operation 1
#define Anum_request_schemas_hash_version 2
#define Anum_request_schemas_request_schema 3
#define Anum_request_schemas_retired_by 4
#define Natts_request_schemas		4

#define Anum_records_tenant_id		1
#define Anum_records_operation		2
#define Anum_records_key			3
#define Anum_records_hash			4
#define Anum_records_hash_version	5
#define Anum_records_digest_version	6
#define Anum_records_result			7
#define Anum_records_responded		8
#define Anum_records_purged			9
#define Anum_records_committed_at	10
#define Natts_records				10

#define Anum_outbox_no				1
#define Anum_outbox_id				2
#define Anum_outbox_aggregatetype	3
#define Anum_outbox_aggregateid		4
#define Anum_outbox_type			5
#define Anum_outbox_payload			6
#define Anum_outbox_created_at		7
#define Anum_outbox_era				8
#define Anum_outbox_xid				9
#define Natts_outbox				9

#define Anum_outbox_consumers_consumer 1
#define Anum_outbox_consumers_since	2
#define Anum_outbox_consumers_since_era 3
#define Anum_outbox_consumers_since_xid 4
#define Anum_outbox_consumers_era	5
#define Anum_outbox_consumers_xid	6
#define Anum_outbox_consumers_after_no 7
#define Anum_outbox_consumers_mark_era 8
#define Anum_outbox_consumers_mark_xid 9
#define Anum_outbox_consumers_mark_no 10
#define Natts_outbox_consumers		10

#define Anum_outbox_acks_consumer	1
#define Anum_outbox_acks_event_no	2
#define Anum_outbox_acks_acked_at	3
#define Anum_outbox_acks_reason		4
#define Natts_outbox_acks			4

#define Anum_documents_document_id	1
#define Anum_documents_version		2
#define Natts_documents				2

#define Anum_revisions_document_id	1
#define Anum_revisions_version		2
#define Anum_revisions_revision		3
#define Anum_revisions_source_version 4
#define Anum_revisions_kind			5
#define Anum_revisions_content		6
#define Anum_revisions_digest		7
#define Anum_revisions_digest_version 8
#define Anum_revisions_note			9
#define Anum_revisions_actor		10
#define Anum_revisions_committed_at 11
#define Natts_revisions				11

#define Anum_targets_document_id	1
#define Anum_targets_target_id		2
#define Anum_targets_desired		3
#define Anum_targets_applied		4
#define Anum_targets_applied_digest 5
#define Anum_targets_applied_digest_version 6
#define Anum_targets_applied_at		7
#define Anum_targets_result			8
#define Anum_targets_applications	9
#define Anum_targets_superseded		10
#define Anum_targets_attempted		11
#define Anum_targets_attempt_token	12
#define Anum_targets_attempted_at	13
#define Anum_targets_repair			14
#define Anum_targets_diverged		15
#define Anum_targets_observed		16
#define Anum_targets_observed_at	17
#define Anum_targets_rejected		18
#define Anum_targets_rejections		19
#define Anum_targets_rejected_reason 20
#define Anum_targets_rejected_at	21
#define Anum_targets_last_error		22
#define Anum_targets_last_error_at	23
#define Anum_targets_retired		24
#define Anum_targets_retired_by		25
#define Anum_targets_retired_reason 26
#define Anum_targets_retired_at		27
#define Natts_targets				27

#define Anum_grants_role			1
#define Anum_grants_access			2
#define Natts_grants				2

extern Oid	fencing_table_oid(FencingTable table);
extern Relation fencing_open(FencingTable table, LOCKMODE lockmode);
extern void fencing_verify_plan(SPIPlanPtr plan);
extern int	fencing_ncolumns(Relation rel);

/*
 * store.c: the state tables, by the table access method
 */
typedef enum FencingLock
{
	FENCING_LOCKED,				/* this row version is locked, nothing moved */
	FENCING_BUSY,				/* somebody else has it (only without waiting) */
	FENCING_MOVED				/* updated or deleted meanwhile: look again */
} FencingLock;

typedef bool (*FencingWork) (void *arg);

/* Looks at rows as the snapshot sees them; returns whether that decided. */
typedef bool (*StoreLook) (void *arg, Snapshot snapshot);

extern Snapshot fencing_fresh_snapshot(void);
extern void store_until_decided(StoreLook look, void *arg);
extern void store_begin_write(const char *function);
extern HeapTuple fencing_find(Relation rel, int nkeys, const Datum *keys, Snapshot snapshot);
extern HeapTuple fencing_select(Relation rel, int nkeys, const Datum *keys, Snapshot snapshot);
extern List *fencing_find_all(Relation rel, int nkeys, const Datum *keys, Snapshot snapshot);
extern TransactionId fencing_find_maker(Relation rel, int nkeys, const Datum *keys);
extern List *fencing_scan_all(Relation rel, Snapshot snapshot);
extern Datum fencing_get(Relation rel, HeapTuple tuple, int attnum);
extern bool fencing_visible_to_transaction(Relation rel, HeapTuple tuple);
extern void fencing_require_visible(Relation rel, HeapTuple tuple);
pg_noreturn extern void fencing_serialization_failure(void);
extern FencingLock fencing_lock_row(Relation rel, HeapTuple tuple, LockWaitPolicy policy);
extern bool fencing_with_row_lock(Relation rel, HeapTuple tuple, Snapshot snapshot,
								  bool expect_write, FencingWork work, void *arg);
extern bool fencing_subtransaction(FencingWork work, void *arg, ErrorData **error);
extern void fencing_read_row(Relation rel, HeapTuple tuple, Datum *values, bool *nulls);
extern void fencing_insert(Relation rel, const Datum *values, const bool *nulls);
extern void fencing_update(Relation rel, HeapTuple old, const Datum *values,
						   const bool *nulls);
extern void fencing_delete(Relation rel, HeapTuple tuple);
extern void fencing_delete_all(Relation rel, int nkeys, const Datum *keys, Snapshot snapshot);

/*
 * key_lock.c: locks on rows that are not there yet, and on aggregates
 */
extern bool fencing_lock_absent(Relation rel, int nkeys, const Datum *keys, bool wait);
extern void fencing_unlock_absent(Relation rel, int nkeys, const Datum *keys);
extern FencingLock key_lock_make(Relation rel, int nkeys, const Datum *keys, bool wait,
								 StoreLook make, void *arg);
extern void fencing_lock_aggregate(const text *type, const text *id);

/*
 * query.c: queries of ours, as the owner of the state tables
 */
typedef void (*FencingResultHandler) (SPITupleTable *rows, uint64 count, void *arg);

extern void fencing_query_as_owner(const char *query, int nargs, Oid *argtypes, Datum *args,
								   const bool *nulls, Snapshot snapshot,
								   FencingResultHandler handle, void *arg);
extern void fencing_execute_as_owner(const char *query, int nargs, Oid *argtypes, Datum *args,
									 const bool *nulls, Snapshot snapshot,
									 int nresults, int64 *results);

/*
 * epoch.c: what this database may have issued before
 */
extern int64 fencing_enter_epoch(void);
extern void fencing_leave_epoch(void);
extern int64 fencing_current_epoch(void);
extern int64 fencing_floor(void);
extern int64 fencing_next_token(int64 last, bool external);
extern void fencing_raise_floor(int64 token);
extern void fencing_record_revocation(text *job_key, int64 token, text *reason);

/*
 * durable.c: what was read is on the standbys
 */
extern void fencing_wait_for_standbys(void);

/*
 * canonical.c, digest.c: canonical form and digests
 */
extern void fencing_canonicalize(Jsonb *document, int digest_version, StringInfo out);
extern bytea *fencing_make_digest(Jsonb *document, int digest_version);
extern bytea *fencing_sha256(const char *data, int length);
extern bool fencing_known_digest_version(int digest_version);
extern void fencing_require_digest_version(int digest_version);

/*
 * outbox.c: events; outbox.h has the rest
 */
extern bool fencing_outbox_notify;	/* setting */
extern pg_uuid_t *fencing_emit(text *aggregate_type, text *aggregate_id, text *type,
							   Jsonb *payload);
extern pg_uuid_t *fencing_new_uuid(void);

/*
 * publish.c: documents and their revisions
 */
typedef struct FencingRevision
{
	bool		found;
	HeapTuple	tuple;
	bytea	   *digest;
	int			digest_version;
	TimestampTz committed_at;
} FencingRevision;

extern int64 fencing_latest_version(const text *document_id, Snapshot snapshot);
extern void fencing_find_revision(Relation revisions, const text *document_id, int64 version,
								  Snapshot snapshot, FencingRevision *revision);
extern Jsonb *fencing_revision_content(Relation revisions, const FencingRevision *revision);
pg_noreturn extern void fencing_never_published(const text *document_id, int64 version, int64 latest,
												const char *hint);

/*
 * target.c: where documents go
 */
typedef struct FencingTarget
{
	text	   *document_id;
	text	   *target_id;
	bool		found;
	HeapTuple	tuple;
	Datum		values[Natts_targets];	/* all columns, for writing it anew */
	bool		nulls[Natts_targets];
	int64		desired;		/* 0: the latest */
	int64		applied;
	bytea	   *applied_digest; /* NULL: nothing is applied */
	int64		rejected;		/* whose rejection is shown */
	ArrayType  *rejections;		/* ascending; all above applied, and maybe others */
	bool		diverged;
	bool		retired;
} FencingTarget;

extern void fencing_arg_target(FunctionCallInfo fcinfo, FencingTarget *target);
extern int64 fencing_arg_version(FunctionCallInfo fcinfo, int argno, const char *name);
extern void fencing_find_target(Relation targets, FencingTarget *target, Snapshot snapshot);
extern void fencing_read_target(Relation targets, FencingTarget *target, HeapTuple tuple);
extern text *fencing_target_job_key(const FencingTarget *target);
pg_noreturn extern void fencing_never_desired(const FencingTarget *target);
extern bool fencing_is_undesired(const FencingTarget *target, int64 version);
extern void fencing_set_applied(FencingTarget *target, int64 version, bytea *digest,
								int digest_version, TimestampTz applied_at);

/*
 * operation.c: operations and the versions of their request schemas
 */
typedef struct RequestSchema RequestSchema;

typedef struct RequestVersion
{
	int			hash_version;
	bool		retired;
	RequestSchema *schema;
} RequestVersion;

typedef struct FencingOperation
{
	char	   *authorize_schema;
	char	   *authorize_name;
	char	   *authorize_owner;
	List	   *versions;		/* RequestVersion, ascending */
} FencingOperation;

extern void fencing_load_operation(const text *name, FencingOperation *operation);
extern const RequestVersion *fencing_find_version(List *versions, int hash_version);
pg_noreturn extern void fencing_unknown_version(const text *operation, int hash_version);
pg_noreturn extern void fencing_refuse_request(const text *operation, int hash_version,
											   const char *refusal);

/*
 * authorize.c: may the caller do this?
 */
extern bool fencing_authorize(text *tenant_id, text *operation, Jsonb *request, Jsonb *auth,
							  const char *schema, const char *name, const char *owner);
extern void fencing_check_authorize(Oid function);
extern void fencing_init_authorize(void);

/*
 * request_schema.c, request_projection.c, request_format.c: which part of a request
 * identifies it
 */
typedef enum RequestFormat
{
	FORMAT_NONE,
	FORMAT_DATE_TIME,
	FORMAT_DATE,
	FORMAT_UUID
} RequestFormat;

/* kinds of JSON value, as bits; a schema without "type" accepts all */
#define KIND_NULL		(1 << 0)
#define KIND_BOOLEAN	(1 << 1)
#define KIND_INTEGER	(1 << 2)	/* a number without fraction */
#define KIND_NUMBER		(1 << 3)
#define KIND_STRING		(1 << 4)
#define KIND_ARRAY		(1 << 5)
#define KIND_OBJECT		(1 << 6)
#define KIND_ANY		0x7F

typedef struct RequestProperty
{
	const char *name;
	int			length;
	bool		required;
	struct RequestSchema *schema;
} RequestProperty;

struct RequestSchema
{
	int			kinds;
	RequestFormat format;
	bool		ignore;			/* left out of the hash */
	bool		exact;			/* the format does not count */
	bool		read_only;
	bool		nullable;
	bool		whitelist;		/* of an object only the properties count */
	bool		open;			/* additionalProperties: others are left out */
	RequestProperty *properties;
	int			nproperties;
	RequestSchema *items;		/* NULL: anything, as it is */
	Jsonb	   *default_value;	/* projected; NULL: none */
};

/* Where in a document, from the inside out; NULL is the document itself. */
typedef struct RequestPath
{
	const struct RequestPath *outer;
	const char *name;			/* of a field; NULL: an element of an array */
	int			length;
	int			index;
} RequestPath;

extern RequestSchema *fencing_compile_schema(Jsonb *definition);
extern void fencing_check_schema(Jsonb *definition);
extern const char *fencing_kind_names(int kinds);
extern RequestProperty *fencing_find_property(const RequestSchema *schema, const char *name,
											  int length);
extern Jsonb *fencing_project_request(const RequestSchema *schema, List *later, Jsonb *request,
									  char **refusal);
extern Jsonb *fencing_visible_request(const RequestSchema *schema, Jsonb *request);
extern void fencing_root_value(Jsonb *document, JsonbValue *value);
extern char *fencing_path_text(const RequestPath *path);
extern char *fencing_clip(const char *text, int length);
extern char *fencing_normalize(RequestFormat format, const char *string, int length);
extern const char *fencing_format_example(RequestFormat format);

/*
 * pass.c: the jobs that the transaction may write for
 */
extern void fencing_give_pass(const text *job_key);
extern bool fencing_has_pass(const text *job_key);

#endif							/* FENCING_H */
