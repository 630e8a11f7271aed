/*-------------------------------------------------------------------------
 *
 * store_shape.c
 *	  The state tables and their columns, as the script has made them.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "store.h"

#define KEY(name)				{name, TEXTOID, C_COLLATION_OID, true}
#define NULLABLE_KEY(name)		{name, TEXTOID, C_COLLATION_OID, false}
#define TEXT(name, not_null)	{name, TEXTOID, DEFAULT_COLLATION_OID, not_null}
#define NAME(name)				{name, NAMEOID, C_COLLATION_OID, true}
#define COLUMN(name, type)		{name, type, InvalidOid, true}
#define NULLABLE(name, type)	{name, type, InvalidOid, false}

static const StoreColumn floor_columns[Natts_floor] = {
	COLUMN("sysid", INT8OID),
	COLUMN("dboid", OIDOID),
	COLUMN("reloid", OIDOID),
	COLUMN("tli", INT8OID),
	COLUMN("epoch", INT8OID),
	COLUMN("floor", INT8OID),
	COLUMN("since", TIMESTAMPTZOID)
};

static const StoreColumn fences_columns[Natts_fences] = {
	KEY("job_key"),
	COLUMN("token", INT8OID),
	COLUMN("purged_through", INT8OID),
	COLUMN("external", BOOLOID)
};

static const StoreColumn leases_columns[Natts_leases] = {
	KEY("job_key"),
	COLUMN("owner", UUIDOID),
	COLUMN("token", INT8OID),
	COLUMN("lease_until", TIMESTAMPTZOID),
	COLUMN("acquired_at", TIMESTAMPTZOID),
	TEXT("application_name", true),
	NULLABLE("client_addr", INETOID)
};

static const StoreColumn receipts_columns[Natts_receipts] = {
	KEY("job_key"),
	COLUMN("token", INT8OID),
	KEY("step"),
	COLUMN("digest", BYTEAOID),
	COLUMN("digest_version", INT4OID),
	NULLABLE("result", JSONBOID),
	COLUMN("committed_at", TIMESTAMPTZOID)
};

static const StoreColumn revocations_columns[] = {
	COLUMN("id", INT8OID),
	NULLABLE_KEY("job_key"),
	COLUMN("token", INT8OID),
	TEXT("reason", true),
	NAME("revoked_by"),
	NULLABLE("client_addr", INETOID),
	COLUMN("revoked_at", TIMESTAMPTZOID)
};

static const StoreColumn grants_columns[Natts_grants] = {
	NAME("role"),
	KEY("access")
};

static const StoreColumn operations_columns[Natts_operations] = {
	KEY("operation"),
	NAME("authorize_schema"),
	NAME("authorize_name"),
	NAME("authorize_owner"),
	COLUMN("retention", INTERVALOID),
	COLUMN("forget_after", INTERVALOID)
};

static const StoreColumn request_schemas_columns[Natts_request_schemas] = {
	KEY("operation"),
	COLUMN("hash_version", INT4OID),
	COLUMN("request_schema", JSONBOID),
	COLUMN("retired_by", XID8OID)
};

static const StoreColumn records_columns[Natts_records] = {
	KEY("tenant_id"),
	KEY("operation"),
	KEY("key"),
	COLUMN("hash", BYTEAOID),
	COLUMN("hash_version", INT4OID),
	COLUMN("digest_version", INT4OID),
	NULLABLE("result", JSONBOID),
	COLUMN("responded", BOOLOID),
	COLUMN("purged", BOOLOID),
	COLUMN("committed_at", TIMESTAMPTZOID)
};

static const StoreColumn outbox_columns[Natts_outbox] = {
	COLUMN("no", INT8OID),
	COLUMN("id", UUIDOID),
	KEY("aggregatetype"),
	KEY("aggregateid"),
	TEXT("type", true),
	COLUMN("payload", JSONBOID),
	COLUMN("created_at", TIMESTAMPTZOID),
	COLUMN("era", INT8OID),
	COLUMN("xid", XID8OID)
};

static const StoreColumn outbox_consumers_columns[Natts_outbox_consumers] = {
	KEY("consumer"),
	NULLABLE("since", PG_SNAPSHOTOID),
	COLUMN("since_era", INT8OID),
	COLUMN("since_xid", XID8OID),
	COLUMN("after_no", INT8OID),
	COLUMN("settled_no", INT8OID),
	COLUMN("part", INT4OID),
	COLUMN("parts", INT4OID)
};

static const StoreColumn outbox_acks_columns[Natts_outbox_acks] = {
	KEY("consumer"),
	COLUMN("event_no", INT8OID),
	COLUMN("through_no", INT8OID),
	NULLABLE("acked_at", TIMESTAMPTZOID),
	TEXT("reason", false)
};

static const StoreColumn outbox_attempts_columns[Natts_outbox_attempts] = {
	KEY("consumer"),
	COLUMN("event_no", INT8OID),
	COLUMN("through_no", INT8OID),
	COLUMN("attempts", INT8OID),
	COLUMN("last_at", TIMESTAMPTZOID)
};

static const StoreColumn documents_columns[Natts_documents] = {
	KEY("document_id"),
	COLUMN("version", INT8OID)
};

static const StoreColumn revisions_columns[Natts_revisions] = {
	KEY("document_id"),
	COLUMN("version", INT8OID),
	COLUMN("revision", UUIDOID),
	NULLABLE("source_version", INT8OID),
	KEY("kind"),
	NULLABLE("content", JSONBOID),
	COLUMN("digest", BYTEAOID),
	COLUMN("digest_version", INT4OID),
	TEXT("note", false),
	NAME("actor"),
	COLUMN("committed_at", TIMESTAMPTZOID)
};

static const StoreColumn targets_columns[Natts_targets] = {
	KEY("document_id"),
	KEY("target_id"),
	NULLABLE("desired", INT8OID),
	COLUMN("applied", INT8OID),
	NULLABLE("applied_digest", BYTEAOID),
	NULLABLE("applied_digest_version", INT4OID),
	NULLABLE("applied_at", TIMESTAMPTZOID),
	NULLABLE("result", JSONBOID),
	COLUMN("applications", INT8OID),
	COLUMN("superseded", INT8OID),
	COLUMN("attempted", INT8OID),
	COLUMN("attempt_token", INT8OID),
	NULLABLE("attempted_at", TIMESTAMPTZOID),
	COLUMN("repair", INT8OID),
	COLUMN("diverged", BOOLOID),
	NULLABLE("observed", INT8OID),
	NULLABLE("observed_at", TIMESTAMPTZOID),
	COLUMN("rejected", INT8OID),
	COLUMN("rejections", INT8ARRAYOID),
	TEXT("rejected_reason", false),
	NULLABLE("rejected_at", TIMESTAMPTZOID),
	TEXT("last_error", false),
	NULLABLE("last_error_at", TIMESTAMPTZOID),
	COLUMN("retired", BOOLOID),
	{"retired_by", NAMEOID, C_COLLATION_OID, false},
	TEXT("retired_reason", false),
	NULLABLE("retired_at", TIMESTAMPTZOID)
};

static const StoreColumn tags_columns[Natts_tags] = {
	KEY("vocabulary"),
	COLUMN("tag_id", UUIDOID),
	KEY("name"),
	COLUMN("root", UUIDOID),
	COLUMN("members", INT4OID),
	COLUMN("version", INT8OID),
	NULLABLE_KEY("migration_kind"),
	COLUMN("created_no", INT8OID)
};

static const StoreColumn tag_names_columns[Natts_tag_names] = {
	KEY("vocabulary"),
	KEY("name"),
	COLUMN("tag_id", UUIDOID),
	COLUMN("alias", BOOLOID),
	COLUMN("since_no", INT8OID)
};

static const StoreColumn tag_events_columns[Natts_tag_events] = {
	KEY("vocabulary"),
	COLUMN("event_id", UUIDOID),
	COLUMN("event_no", INT8OID),
	KEY("kind"),
	KEY("reference"),
	COLUMN("owner", UUIDOID),
	COLUMN("tag_id", UUIDOID),
	NULLABLE_KEY("subject"),
	NULLABLE_KEY("name"),
	NULLABLE_KEY("target_reference"),
	NULLABLE("target", UUIDOID),
	NULLABLE("migration", UUIDOID),
	TEXT("reason", false),
	NAME("actor"),
	COLUMN("digest", BYTEAOID),
	COLUMN("digest_version", INT4OID),
	COLUMN("committed_at", TIMESTAMPTZOID)
};

static const StoreColumn tag_migrations_columns[Natts_tag_migrations] = {
	KEY("vocabulary"),
	COLUMN("event_id", UUIDOID),
	COLUMN("event_no", INT8OID),
	KEY("kind"),
	COLUMN("tag_id", UUIDOID),
	NULLABLE("target", UUIDOID),
	NULLABLE_KEY("name"),
	NULLABLE_KEY("former_name"),
	COLUMN("undone_no", INT8OID),
	NULLABLE("completed_at", TIMESTAMPTZOID),
	COLUMN("reconciled", BOOLOID),
	COLUMN("checked", INT8OID),
	COLUMN("problems", INT8OID),
	NULLABLE("cursor_tag", UUIDOID),
	COLUMN("cursor_part", INT4OID),
	NULLABLE_KEY("cursor_key"),
	NULLABLE_KEY("cursor_subject")
};

static const StoreColumn tag_merges_columns[Natts_tag_merges] = {
	KEY("vocabulary"),
	COLUMN("source", UUIDOID),
	COLUMN("undone_no", INT8OID),
	COLUMN("target", UUIDOID),
	COLUMN("made_no", INT8OID)
};

static const StoreColumn tag_links_columns[Natts_tag_links] = {
	KEY("vocabulary"),
	KEY("subject"),
	COLUMN("until_no", INT8OID),
	COLUMN("tag_id", UUIDOID),
	COLUMN("from_no", INT8OID)
};

static const StoreColumn tag_follows_columns[Natts_tag_follows] = {
	KEY("vocabulary"),
	KEY("subscriber"),
	COLUMN("until_no", INT8OID),
	COLUMN("tag_id", UUIDOID),
	COLUMN("from_no", INT8OID),
	COLUMN("following", BOOLOID)
};

#define SHAPE(table, keys)	.name = #table, .columns = table##_columns, \
	.ncolumns = lengthof(table##_columns), .nkeys = keys

const StoreShape store_shapes[STORE_NTABLES] = {
	[STORE_FLOOR] = {SHAPE(floor, 3)},
	[STORE_FENCES] = {SHAPE(fences, 1)},
	[STORE_LEASES] = {SHAPE(leases, 1)},
	[STORE_RECEIPTS] = {SHAPE(receipts, 3)},
	[STORE_REVOCATIONS] = {SHAPE(revocations, 1),.by_queries = true},
	[STORE_GRANTS] = {SHAPE(grants, 2)},
	[STORE_OPERATIONS] = {SHAPE(operations, 1)},
	[STORE_REQUEST_SCHEMAS] = {SHAPE(request_schemas, 2)},
	[STORE_RECORDS] = {SHAPE(records, 3)},
	[STORE_OUTBOX] = {SHAPE(outbox, 1),.by_queries = true,.immutable = true},
	[STORE_OUTBOX_CONSUMERS] = {SHAPE(outbox_consumers, 1)},
	[STORE_OUTBOX_ACKS] = {SHAPE(outbox_acks, 2)},
	[STORE_OUTBOX_ATTEMPTS] = {SHAPE(outbox_attempts, 2)},
	[STORE_DOCUMENTS] = {SHAPE(documents, 1)},
	[STORE_REVISIONS] = {SHAPE(revisions, 2),.immutable = true},
	[STORE_TARGETS] = {SHAPE(targets, 2)},
	[STORE_TAGS] = {SHAPE(tags, 2)},
	[STORE_TAG_NAMES] = {SHAPE(tag_names, 2)},
	[STORE_TAG_EVENTS] = {SHAPE(tag_events, 2),.immutable = true},
	[STORE_TAG_MIGRATIONS] = {SHAPE(tag_migrations, 2)},
	[STORE_TAG_MERGES] = {SHAPE(tag_merges, 3)},
	[STORE_TAG_LINKS] = {SHAPE(tag_links, 4)},
	[STORE_TAG_FOLLOWS] = {SHAPE(tag_follows, 4)}
};
