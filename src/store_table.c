/*-------------------------------------------------------------------------
 *
 * store_table.c
 *	  Which state tables there are, and that they are what the extension made.
 *
 * What store.c writes passes over triggers, rules, constraints and generated
 * columns, and what it reads it finds by the number of the column.  So before
 * a table is used it is compared with what the script has made: with its lock
 * held, so that nobody changes it meanwhile, and again after every
 * invalidation of its relcache entry.  In between it is a comparison of two
 * numbers.
 *
 * A reader needs the columns and the primary key; a writer needs all of it.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_index.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "store.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/plancache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

typedef struct Column
{
	const char *name;
	Oid			type;
	Oid			collation;
	bool		not_null;
} Column;

typedef struct TableShape
{
	const char *name;
	const Column *columns;
	int			ncolumns;
	int			nkeys;			/* the primary key is the first columns */
	bool		by_queries;		/* the executor writes it, and knows any index */
	bool		immutable;		/* has the trigger of that name */
} TableShape;

static void forget_oids(Datum arg, int cacheid, uint32 hashvalue);
static void forget_verified(Datum arg, Oid relid);
static void register_callbacks(void);
static void verify(StoreTable table, Relation rel, bool writing);
static void check_columns(Relation rel, const TableShape *shape);
static bool is_column(Form_pg_attribute attribute, const Column *column);
static void refuse_column(Relation rel, AttrNumber attnum, const Column *column);
static void check_primary_key(Relation rel, const TableShape *shape);
static void check_kind(Relation rel);
static void check_inheritance(Relation rel);
static void check_constraints(Relation rel);
static void check_triggers(Relation rel, const TableShape *shape);
static bool is_immutable_trigger(const char *name, Oid function);
static void check_indexes(Relation rel);

#define KEY(name)				{name, TEXTOID, C_COLLATION_OID, true}
#define NULLABLE_KEY(name)		{name, TEXTOID, C_COLLATION_OID, false}
#define TEXT(name, not_null)	{name, TEXTOID, DEFAULT_COLLATION_OID, not_null}
#define NAME(name)				{name, NAMEOID, C_COLLATION_OID, true}
#define COLUMN(name, type)		{name, type, InvalidOid, true}
#define NULLABLE(name, type)	{name, type, InvalidOid, false}

static const Column floor_columns[Natts_floor] = {
	COLUMN("sysid", INT8OID),
	COLUMN("dboid", OIDOID),
	COLUMN("reloid", OIDOID),
	COLUMN("tli", INT8OID),
	COLUMN("epoch", INT8OID),
	COLUMN("floor", INT8OID),
	COLUMN("since", TIMESTAMPTZOID)
};

static const Column fences_columns[Natts_fences] = {
	KEY("job_key"),
	COLUMN("token", INT8OID),
	COLUMN("purged_through", INT8OID),
	COLUMN("external", BOOLOID)
};

static const Column leases_columns[Natts_leases] = {
	KEY("job_key"),
	COLUMN("owner", UUIDOID),
	COLUMN("token", INT8OID),
	COLUMN("lease_until", TIMESTAMPTZOID),
	COLUMN("acquired_at", TIMESTAMPTZOID),
	TEXT("application_name", true),
	NULLABLE("client_addr", INETOID)
};

static const Column receipts_columns[Natts_receipts] = {
	KEY("job_key"),
	COLUMN("token", INT8OID),
	KEY("step"),
	COLUMN("digest", BYTEAOID),
	COLUMN("digest_version", INT4OID),
	NULLABLE("result", JSONBOID),
	COLUMN("committed_at", TIMESTAMPTZOID)
};

static const Column revocations_columns[] = {
	COLUMN("id", INT8OID),
	NULLABLE_KEY("job_key"),
	COLUMN("token", INT8OID),
	TEXT("reason", true),
	NAME("revoked_by"),
	NULLABLE("client_addr", INETOID),
	COLUMN("revoked_at", TIMESTAMPTZOID)
};

static const Column grants_columns[Natts_grants] = {
	NAME("role"),
	KEY("access")
};

static const Column operations_columns[Natts_operations] = {
	KEY("operation"),
	NAME("authorize_schema"),
	NAME("authorize_name"),
	NAME("authorize_owner"),
	COLUMN("retention", INTERVALOID),
	COLUMN("forget_after", INTERVALOID)
};

static const Column request_schemas_columns[Natts_request_schemas] = {
	KEY("operation"),
	COLUMN("hash_version", INT4OID),
	COLUMN("request_schema", JSONBOID),
	COLUMN("retired_by", XID8OID)
};

static const Column records_columns[Natts_records] = {
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

static const Column outbox_columns[Natts_outbox] = {
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

static const Column outbox_consumers_columns[Natts_outbox_consumers] = {
	KEY("consumer"),
	NULLABLE("since", PG_SNAPSHOTOID),
	COLUMN("since_era", INT8OID),
	COLUMN("since_xid", XID8OID),
	COLUMN("after_no", INT8OID),
	COLUMN("settled_no", INT8OID),
	COLUMN("part", INT4OID),
	COLUMN("parts", INT4OID)
};

static const Column outbox_acks_columns[Natts_outbox_acks] = {
	KEY("consumer"),
	COLUMN("event_no", INT8OID),
	COLUMN("through_no", INT8OID),
	NULLABLE("acked_at", TIMESTAMPTZOID),
	TEXT("reason", false)
};

static const Column outbox_attempts_columns[Natts_outbox_attempts] = {
	KEY("consumer"),
	COLUMN("event_no", INT8OID),
	COLUMN("through_no", INT8OID),
	COLUMN("attempts", INT8OID),
	COLUMN("last_at", TIMESTAMPTZOID)
};

static const Column documents_columns[Natts_documents] = {
	KEY("document_id"),
	COLUMN("version", INT8OID)
};

static const Column revisions_columns[Natts_revisions] = {
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

static const Column targets_columns[Natts_targets] = {
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

static const Column tags_columns[Natts_tags] = {
	KEY("vocabulary"),
	COLUMN("tag_id", UUIDOID),
	KEY("name"),
	COLUMN("root", UUIDOID),
	COLUMN("members", INT4OID),
	COLUMN("version", INT8OID),
	NULLABLE_KEY("migration_kind"),
	COLUMN("created_no", INT8OID)
};

static const Column tag_names_columns[Natts_tag_names] = {
	KEY("vocabulary"),
	KEY("name"),
	COLUMN("tag_id", UUIDOID),
	COLUMN("alias", BOOLOID),
	COLUMN("since_no", INT8OID)
};

static const Column tag_events_columns[Natts_tag_events] = {
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

static const Column tag_migrations_columns[Natts_tag_migrations] = {
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

static const Column tag_merges_columns[Natts_tag_merges] = {
	KEY("vocabulary"),
	COLUMN("source", UUIDOID),
	COLUMN("undone_no", INT8OID),
	COLUMN("target", UUIDOID),
	COLUMN("made_no", INT8OID)
};

static const Column tag_links_columns[Natts_tag_links] = {
	KEY("vocabulary"),
	KEY("subject"),
	COLUMN("until_no", INT8OID),
	COLUMN("tag_id", UUIDOID),
	COLUMN("from_no", INT8OID)
};

static const Column tag_follows_columns[Natts_tag_follows] = {
	KEY("vocabulary"),
	KEY("subscriber"),
	COLUMN("until_no", INT8OID),
	COLUMN("tag_id", UUIDOID),
	COLUMN("from_no", INT8OID),
	COLUMN("following", BOOLOID)
};

#define SHAPE(table, keys)	.name = #table, .columns = table##_columns, \
	.ncolumns = lengthof(table##_columns), .nkeys = keys

static const TableShape shapes[STORE_NTABLES] = {
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

/* Kept until a schema is made or dropped: the tables go only with theirs. */
static Oid	table_oids[STORE_NTABLES];
static uint64 schema_changes = 0;

/*
 * How often a table may have changed, from 1, and what that was when it was
 * verified.  An invalidation that comes during the verification makes the two
 * differ, so that it is done again.
 */
static uint64 changes[STORE_NTABLES];
static uint64 verified_for_reading[STORE_NTABLES];
static uint64 verified_for_writing[STORE_NTABLES];

/* The OID of a state table. */
Oid
store_table_oid(StoreTable table)
{
	register_callbacks();
	if (!OidIsValid(table_oids[table]))
	{
		uint64		before = schema_changes;
		Oid			oid = get_relname_relid(shapes[table].name,
											get_namespace_oid("fencing", false));

		if (!OidIsValid(oid))
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_TABLE),
					 errmsg("relation \"fencing.%s\" does not exist", shapes[table].name),
					 errhint("Create the extension fencing again.")));
		if (before != schema_changes)
			return oid;
		table_oids[table] = oid;
	}
	return table_oids[table];
}

/* Once per backend. */
static void
register_callbacks(void)
{
	static bool registered = false;

	if (registered)
		return;
	forget_oids((Datum) 0, 0, 0);
	CacheRegisterSyscacheCallback(NAMESPACEOID, forget_oids, (Datum) 0);
	CacheRegisterRelcacheCallback(forget_verified, (Datum) 0);
	registered = true;
}

/* A schema has been made or dropped. */
static void
forget_oids(Datum arg, int cacheid, uint32 hashvalue)
{
	schema_changes++;
	forget_verified(arg, InvalidOid);
	memset(table_oids, 0, sizeof(table_oids));
}

/* A table has changed; InvalidOid: any may have. */
static void
forget_verified(Datum arg, Oid relid)
{
	for (int i = 0; i < STORE_NTABLES; i++)
	{
		if (!OidIsValid(relid) || relid == table_oids[i])
			changes[i]++;
	}
}

/*
 * Opens a state table; close it with NoLock if something was written.  For
 * everything but AccessShareLock it must be fit to be written.  Raises 0A000.
 */
Relation
store_table_open(StoreTable table, LOCKMODE lockmode)
{
	Relation	rel = table_open(store_table_oid(table), lockmode);

	verify(table, rel, lockmode != AccessShareLock);
	return rel;
}

/*
 * The same for the tables of an own query.  Its triggers would be fired;
 * but one that skips or changes a row is as bad there.
 */
void
store_table_verify_plan(SPIPlanPtr plan)
{
	ListCell   *source;
	ListCell   *relid;

	foreach(source, SPI_plan_get_plan_sources(plan))
	{
		foreach(relid, ((CachedPlanSource *) lfirst(source))->relationOids)
		{
			for (int i = 0; i < STORE_NTABLES; i++)
			{
				Relation	rel;

				if (lfirst_oid(relid) != store_table_oid(i) ||
					verified_for_writing[i] == changes[i])
					continue;
				rel = table_open(lfirst_oid(relid), AccessShareLock);
				verify(i, rel, true);
				table_close(rel, AccessShareLock);
			}
		}
	}
}

/*
 * How many columns of a row the extension knows: all but those that have been
 * added and dropped again, which come last.
 */
int
store_table_ncolumns(Relation rel)
{
	TupleDesc	desc = RelationGetDescr(rel);
	int			ncolumns = desc->natts;

	while (ncolumns > 0 && TupleDescAttr(desc, ncolumns - 1)->attisdropped)
		ncolumns--;
	return ncolumns;
}

/*
 * Nothing of the relcache entry may be kept across a look into a catalog: the
 * entry can be built anew there, by a GRANT for example, which takes no lock.
 */
static void
verify(StoreTable table, Relation rel, bool writing)
{
	const TableShape *shape = &shapes[table];
	uint64	   *verified = writing ? verified_for_writing : verified_for_reading;
	uint64		before = changes[table];

	if (verified[table] == before)
		return;

	check_columns(rel, shape);
	check_primary_key(rel, shape);
	if (writing)
	{
		check_kind(rel);
		check_inheritance(rel);
		check_constraints(rel);
		check_triggers(rel, shape);
		if (!shape->by_queries)
			check_indexes(rel);
	}

	/* only what the callback knows will be forgotten */
	if (table_oids[table] == RelationGetRelid(rel))
		verified[table] = before;
}

/* Raises 0A000. */
static void
check_columns(Relation rel, const TableShape *shape)
{
	int			natts = RelationGetNumberOfAttributes(rel);

	for (int i = 0; i < Max(natts, shape->ncolumns); i++)
	{
		const Column *column = i < shape->ncolumns ? &shape->columns[i] : NULL;
		Form_pg_attribute attribute = i < natts ? TupleDescAttr(RelationGetDescr(rel), i) : NULL;

		if (column == NULL ? !attribute->attisdropped :
			attribute == NULL || !is_column(attribute, column))
			refuse_column(rel, i + 1, column);
	}
}

/* Name, type, collation and NOT NULL are as made. */
static bool
is_column(Form_pg_attribute attribute, const Column *column)
{
	return !attribute->attisdropped &&
		strcmp(NameStr(attribute->attname), column->name) == 0 &&
		attribute->atttypid == column->type &&
		attribute->atttypmod == -1 &&
		attribute->attcollation == column->collation &&
		attribute->attnotnull == column->not_null &&
		attribute->attgenerated == '\0' &&
		attribute->attinhcount == 0;
}

/* column is what should be there; NULL: nothing. */
static void
refuse_column(Relation rel, AttrNumber attnum, const Column *column)
{
	if (column == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("column \"%s\" of table \"fencing.%s\" is not supported",
						get_attname(RelationGetRelid(rel), attnum, false),
						RelationGetRelationName(rel)),
				 errdetail("Tables of the extension can only have the columns that it has made."),
				 errhint("Drop the column.")));
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("column \"%s\" of table \"fencing.%s\" has been changed or dropped",
					column->name, RelationGetRelationName(rel)),
			 column->not_null ?
			 errdetail("Column %d of the table must be \"%s\" of type %s and NOT NULL, as the extension has made it.",
					   attnum, column->name, format_type_be(column->type)) :
			 errdetail("Column %d of the table must be \"%s\" of type %s without NOT NULL, as the extension has made it.",
					   attnum, column->name, format_type_be(column->type)),
			 errhint("Change it back, or restore the table from a backup.")));
}

/* The rows are looked up by it. */
static void
check_primary_key(Relation rel, const TableShape *shape)
{
	Oid			relid = compat_primary_key(rel);
	bool		right = false;

	if (OidIsValid(relid))
	{
		Relation	index = index_open(relid, AccessShareLock);

		right = index->rd_index->indnkeyatts == shape->nkeys;
		for (int i = 0; right && i < shape->nkeys; i++)
			right = index->rd_index->indkey.values[i] == i + 1;
		index_close(index, AccessShareLock);
	}
	if (!right)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("primary key of table \"fencing.%s\" has been changed or dropped",
						RelationGetRelationName(rel)),
				 errdetail_plural("It must be on the first %d column, as the extension has made it.",
								  "It must be on the first %d columns, as the extension has made it.",
								  shape->nkeys, shape->nkeys),
				 errhint("Make it again.")));
}

/* An ordinary table of the heap, logged, without rules.  Raises 0A000. */
static void
check_kind(Relation rel)
{
	if (rel->rd_rel->relkind != RELKIND_RELATION || rel->rd_rel->relam != HEAP_TABLE_AM_OID)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("relation \"fencing.%s\" is not a table of access method heap",
						RelationGetRelationName(rel)),
				 errhint("Use ALTER TABLE ... SET ACCESS METHOD heap.")));
	if (rel->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("table \"fencing.%s\" is unlogged", RelationGetRelationName(rel)),
				 errdetail("It would be empty after a crash."),
				 errhint("Use ALTER TABLE ... SET LOGGED.")));
	if (rel->rd_rules != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("table \"fencing.%s\" has a rule, which is not supported",
						RelationGetRelationName(rel)),
				 errdetail("The extension writes its tables without applying rules."),
				 errhint("Drop the rule.")));
}

/* That the table has a child may have been long ago: look. */
static void
check_inheritance(Relation rel)
{
	if (rel->rd_rel->relispartition || has_superclass(RelationGetRelid(rel)))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("table \"fencing.%s\" inherits from another, which is not supported",
						RelationGetRelationName(rel)),
				 errhint("Use ALTER TABLE ... NO INHERIT, or DETACH PARTITION.")));
	if (rel->rd_rel->relhassubclass &&
		find_inheritance_children(RelationGetRelid(rel), NoLock) != NIL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("table \"fencing.%s\" has an inheritance child, which is not supported",
						RelationGetRelationName(rel)),
				 errhint("Drop the child, or use ALTER TABLE ... NO INHERIT.")));
}

/* Raises 0A000. */
static void
check_constraints(Relation rel)
{
	TupleConstr *constraints = RelationGetDescr(rel)->constr;

	if (constraints != NULL && constraints->num_check > 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("constraint \"%s\" on table \"fencing.%s\" is not supported",
						constraints->check[0].ccname, RelationGetRelationName(rel)),
				 errdetail("The extension writes its tables without checking constraints."),
				 errhint("Drop the constraint.")));
}

/*
 * A trigger that sees no row does no harm: a trigger for TRUNCATE, which we
 * never do, or before a statement.
 */
static void
check_triggers(Relation rel, const TableShape *shape)
{
	for (int i = 0; rel->trigdesc != NULL && i < rel->trigdesc->numtriggers; i++)
	{
		const Trigger *trigger = &rel->trigdesc->triggers[i];
		char	   *name = pstrdup(trigger->tgname);
		Oid			function = trigger->tgfoid;
		Oid			constraint = trigger->tgisinternal ? trigger->tgconstraint : InvalidOid;
		char	   *schema;

		if ((trigger->tgtype & (TRIGGER_TYPE_INSERT | TRIGGER_TYPE_UPDATE | TRIGGER_TYPE_DELETE)) == 0 ||
			(TRIGGER_FOR_BEFORE(trigger->tgtype) && !TRIGGER_FOR_ROW(trigger->tgtype)))
			continue;
		if (shape->immutable && is_immutable_trigger(name, function))
			continue;

		if (OidIsValid(constraint) && function == F_UNIQUE_KEY_RECHECK)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("deferrable constraint \"%s\" on table \"fencing.%s\" is not supported",
							get_constraint_name(constraint), RelationGetRelationName(rel)),
					 errdetail("The extension writes its tables without firing triggers."),
					 errhint("Drop the constraint.")));
		if (OidIsValid(constraint))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("foreign key \"%s\" from or to table \"fencing.%s\" is not supported",
							get_constraint_name(constraint), RelationGetRelationName(rel)),
					 errdetail("The extension writes its tables without firing triggers."),
					 errhint("Drop the foreign key.")));

		schema = get_namespace_name(get_func_namespace(function));
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("trigger \"%s\" on table \"fencing.%s\" is not supported",
						name, RelationGetRelationName(rel)),
				 errdetail("The extension writes its tables without firing triggers."),
				 schema != NULL && strcmp(schema, "repack") == 0 ?
				 errhint("pg_repack would lose rows here: use VACUUM FULL instead. If it was interrupted, drop the trigger that it has left behind.") :
				 errhint("Drop the trigger.")));
	}
}

/* The trigger of the extension's own, which refuses what it never does. */
static bool
is_immutable_trigger(const char *name, Oid function)
{
	char	   *function_name = get_func_name(function);

	return strcmp(name, "immutable") == 0 && function_name != NULL &&
		strcmp(function_name, "fencing_immutable") == 0;
}

/*
 * What writes catalogs knows plain indexes only: of one that an administrator
 * has added it would compute nonsense, or crash.
 */
static void
check_indexes(Relation rel)
{
	ListCell   *lc;

	foreach(lc, RelationGetIndexList(rel))
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);

		if (!heap_attisnull(index->rd_indextuple, Anum_pg_index_indexprs, NULL) ||
			!heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL) ||
			index->rd_index->indisexclusion)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("index \"%s\" on table \"fencing.%s\" is not supported",
							RelationGetRelationName(index), RelationGetRelationName(rel)),
					 errdetail("Tables of the extension can only have indexes on plain columns."),
					 errhint("Drop the index.")));
		index_close(index, AccessShareLock);
	}
}
