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

static void forget_oids(Datum arg, int cacheid, uint32 hashvalue);
static void forget_verified(Datum arg, Oid relid);
static void register_callbacks(void);
static void verify(StoreTable table, Relation rel, bool writing);
static void check_columns(Relation rel, const StoreShape *shape);
static bool is_column(Form_pg_attribute attribute, const StoreColumn *column);
static void refuse_column(Relation rel, AttrNumber attnum, const StoreColumn *column);
static void check_primary_key(Relation rel, const StoreShape *shape);
static void check_kind(Relation rel);
static void check_inheritance(Relation rel);
static void check_constraints(Relation rel);
static void check_triggers(Relation rel, const StoreShape *shape);
static bool is_immutable_trigger(const char *name, Oid function);
static void check_indexes(Relation rel);

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
		Oid			oid = get_relname_relid(store_shapes[table].name,
											get_namespace_oid("fencing", false));

		if (!OidIsValid(oid))
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_TABLE),
					 errmsg("relation \"fencing.%s\" does not exist", store_shapes[table].name),
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
	const StoreShape *shape = &store_shapes[table];
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
check_columns(Relation rel, const StoreShape *shape)
{
	int			natts = RelationGetNumberOfAttributes(rel);

	for (int i = 0; i < Max(natts, shape->ncolumns); i++)
	{
		const StoreColumn *column = i < shape->ncolumns ? &shape->columns[i] : NULL;
		Form_pg_attribute attribute = i < natts ? TupleDescAttr(RelationGetDescr(rel), i) : NULL;

		if (column == NULL ? !attribute->attisdropped :
			attribute == NULL || !is_column(attribute, column))
			refuse_column(rel, i + 1, column);
	}
}

/* Name, type, collation and NOT NULL are as made. */
static bool
is_column(Form_pg_attribute attribute, const StoreColumn *column)
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
refuse_column(Relation rel, AttrNumber attnum, const StoreColumn *column)
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
check_primary_key(Relation rel, const StoreShape *shape)
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
check_triggers(Relation rel, const StoreShape *shape)
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
