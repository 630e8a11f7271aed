/*-------------------------------------------------------------------------
 *
 * protect.c
 *	  Protected tables: writes only in a transaction that passed the gate.
 *
 * The gate gives the transaction a pass (pass.c) for the job that it answers
 * "committed" for.  AFTER ROW triggers look for the pass of the job that a
 * row belongs to; AFTER, because only then all other triggers and the
 * generated columns have had their say about the key.  TRUNCATE has no rows
 * and gets a trigger of its own.
 *
 * Locks: on the table and its partitions what CREATE TRIGGER and DROP TRIGGER
 * take.  A check takes none and reads no table.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/catalog.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "job.h"
#include "miscadmin.h"
#include "parser/parse_func.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/syscache.h"

#define ROW_TRIGGER			"fencing_guard_row"
#define TRUNCATE_TRIGGER	"fencing_guard_truncate"

/* first argument of the triggers; the second is the column or the key */
#define BY_COLUMN			"column"
#define BY_JOB				"job"

/* What a trigger keeps between the rows of one command. */
typedef struct Guard
{
	text	   *job_key;		/* by job; else by column: */
	int			column;
} Guard;

static TriggerData *trigger_data(FunctionCallInfo fcinfo);
static Guard *get_guard(FunctionCallInfo fcinfo, TriggerData *trigger);
static void check_row(TriggerData *trigger, const Guard *guard, HeapTuple row);
static void refuse_write(Relation rel, const Guard *guard, const text *job_key);
static bool may_see_key(Relation rel, const Guard *guard, const text *job_key);
static bool may_select(Oid relid, AttrNumber column, Oid role);
static Relation open_own_table(Oid relid, LOCKMODE lockmode);
static bool is_guarded(Oid relid, Oid namespace);
static void refuse_state_table(Oid relid);
static void check_partitions(Relation root, List *tables);
static void refuse_inheritance(Relation rel);
static void warn_of_trigger_privilege(Oid relid);
static void drop_guards(Relation root, Oid namespace, LOCKMODE lockmode);
static List *guard_names(Relation rel, Oid namespace, bool *cloned);
static List *protected_tables(Relation rel, LOCKMODE lockmode);
static Oid	guard_function(Oid namespace, const char *name);
static char *qualified_name(Relation rel);
static void check_key_column(Relation rel, const char *column);
static void execute_command(const char *command);

PG_FUNCTION_INFO_V1(fencing_protect);
PG_FUNCTION_INFO_V1(fencing_unprotect);
PG_FUNCTION_INFO_V1(fencing_guard_row);
PG_FUNCTION_INFO_V1(fencing_guard_truncate);

/*
 * fencing_guard_row() → trigger: raises LF003 for a row, old or new, of a job
 * that the transaction has no pass for.
 */
Datum
fencing_guard_row(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = trigger_data(fcinfo);
	Guard	   *guard;

	if (!TRIGGER_FIRED_AFTER(trigger->tg_event) || !TRIGGER_FIRED_FOR_ROW(trigger->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be fired AFTER ROW", ROW_TRIGGER)));

	guard = get_guard(fcinfo, trigger);
	check_row(trigger, guard, trigger->tg_trigtuple);
	if (TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) && guard->job_key == NULL)
		check_row(trigger, guard, trigger->tg_newtuple);
	return PointerGetDatum(NULL);
}

/*
 * fencing_guard_truncate() → trigger: raises LF003 unless the table belongs to
 * one job, and the transaction has a pass for that.
 */
Datum
fencing_guard_truncate(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = trigger_data(fcinfo);
	Guard	   *guard;

	if (!TRIGGER_FIRED_BY_TRUNCATE(trigger->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be fired for TRUNCATE", TRUNCATE_TRIGGER)));

	guard = get_guard(fcinfo, trigger);
	if (guard->job_key == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FENCING_OUTSIDE_GATE),
				 errmsg("cannot truncate protected table \"%s\"",
						RelationGetRelationName(trigger->tg_relation)),
				 errdetail("Its rows belong to more than one job."),
				 errhint("Delete the rows of one job, or end the protection by fencing_unprotect()."),
				 errtable(trigger->tg_relation)));
	if (!pass_has(guard->job_key))
		refuse_write(trigger->tg_relation, guard, guard->job_key);
	return PointerGetDatum(NULL);
}

/* Raises 39P01 if it was not called as a trigger. */
static TriggerData *
trigger_data(FunctionCallInfo fcinfo)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function must be called as a trigger")));
	return (TriggerData *) fcinfo->context;
}

/*
 * Reads the arguments of the trigger.  They are looked up once per command
 * and table: the FmgrInfo of a trigger lives that long.
 */
static Guard *
get_guard(FunctionCallInfo fcinfo, TriggerData *trigger)
{
	Guard	   *guard = (Guard *) fcinfo->flinfo->fn_extra;
	char	  **args = trigger->tg_trigger->tgargs;
	MemoryContext context;

	if (guard != NULL)
		return guard;

	if (trigger->tg_trigger->tgnargs != 2 ||
		(strcmp(args[0], BY_COLUMN) != 0 && strcmp(args[0], BY_JOB) != 0))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("trigger \"%s\" does not have the arguments that %s gives it",
						trigger->tg_trigger->tgname, "fencing_protect()")));

	context = MemoryContextSwitchTo(fcinfo->flinfo->fn_mcxt);
	guard = (Guard *) palloc0(sizeof(Guard));
	if (strcmp(args[0], BY_JOB) == 0)
		guard->job_key = cstring_to_text(args[1]);
	else
	{
		/* by name, as the columns of partitions are not in one order */
		check_key_column(trigger->tg_relation, args[1]);
		guard->column = SPI_fnumber(RelationGetDescr(trigger->tg_relation), args[1]);
	}
	MemoryContextSwitchTo(context);
	fcinfo->flinfo->fn_extra = guard;
	return guard;
}

/* May this transaction write for the job of the row? */
static void
check_row(TriggerData *trigger, const Guard *guard, HeapTuple row)
{
	text	   *job_key = guard->job_key;

	if (job_key == NULL)
	{
		bool		isnull;
		Datum		key = heap_getattr(row, guard->column,
									   RelationGetDescr(trigger->tg_relation), &isnull);

		if (!isnull)
			job_key = DatumGetTextPP(key);
	}
	if (job_key == NULL || !pass_has(job_key))
		refuse_write(trigger->tg_relation, guard, job_key);
}

/* Raises LF003. */
static void
refuse_write(Relation rel, const Guard *guard, const text *job_key)
{
	ereport(ERROR,
			(errcode(ERRCODE_FENCING_OUTSIDE_GATE),
			 errmsg("write to protected table \"%s\" outside the gate",
					RelationGetRelationName(rel)),
			 job_key == NULL ? errdetail("The row has no job key.") :
			 may_see_key(rel, guard, job_key) ?
			 errdetail("The transaction was not answered \"committed\" for job \"%s\".",
					   text_to_cstring(job_key)) :
			 errdetail("The transaction was not answered \"committed\" for the job of the row."),
			 errhint("Write in a transaction in which fencing_commit() has answered \"committed\"."),
			 errtable(rel)));
}

/*
 * A key in an error message is something read from the table.  (And one that
 * is longer than any job's only fills the log.)
 */
static bool
may_see_key(Relation rel, const Guard *guard, const text *job_key)
{
	Oid			relid = RelationGetRelid(rel);

	if (guard->job_key != NULL)
		return true;

	/*
	 * A cascade runs as the owner of the table, but it is the outer role that
	 * gets the error.
	 */
	return VARSIZE_ANY_EXHDR(job_key) <= ARGS_MAX_KEY &&
		may_select(relid, guard->column, GetUserId()) &&
		may_select(relid, guard->column, GetOuterUserId());
}

/* By the table or the column, and no row is hidden from the role. */
static bool
may_select(Oid relid, AttrNumber column, Oid role)
{
	return check_enable_rls(relid, role, true) != RLS_ENABLED &&
		(pg_class_aclcheck(relid, role, ACL_SELECT) == ACLCHECK_OK ||
		 pg_attribute_aclcheck(relid, column, role, ACL_SELECT) == ACLCHECK_OK);
}

/*
 * fencing_protect(relation regclass, job_key_column name, job_key text) → void
 */
Datum
fencing_protect(PG_FUNCTION_ARGS)
{
	Relation	rel;
	StringInfoData arguments;
	Oid			namespace;
	LOCKMODE	lockmode;
	List	   *tables;
	ListCell   *lc;

	args_refuse_null(fcinfo, 0, "relation");
	store_begin_write("fencing_protect()");
	if (PG_ARGISNULL(1) == PG_ARGISNULL(2))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("exactly one of job_key_column and job_key must be given")));

	/*
	 * DROP TRIGGER takes the stronger lock, and a lock raised is a deadlock
	 */
	namespace = get_func_namespace(fcinfo->flinfo->fn_oid);
	lockmode = is_guarded(PG_GETARG_OID(0), namespace) ? AccessExclusiveLock :
		ShareRowExclusiveLock;
	rel = open_own_table(PG_GETARG_OID(0), lockmode);
	refuse_inheritance(rel);

	initStringInfo(&arguments);
	if (PG_ARGISNULL(2))
	{
		char	   *column = NameStr(*PG_GETARG_NAME(1));

		check_key_column(rel, column);
		appendStringInfo(&arguments, "%s, %s", quote_literal_cstr(BY_COLUMN),
						 quote_literal_cstr(column));
	}
	else
		appendStringInfo(&arguments, "%s, %s", quote_literal_cstr(BY_JOB),
						 quote_literal_cstr(text_to_cstring(args_key(fcinfo, 2, "job_key"))));

	tables = protected_tables(rel, lockmode);
	check_partitions(rel, tables);
	foreach(lc, tables)
		warn_of_trigger_privilege(lfirst_oid(lc));

	drop_guards(rel, namespace, lockmode);

	/*
	 * partitions get row triggers from their parent, present and future ones
	 */
	execute_command(psprintf("CREATE TRIGGER %s AFTER INSERT OR UPDATE OR DELETE ON %s"
							 " FOR EACH ROW EXECUTE FUNCTION %s(%s)",
							 ROW_TRIGGER, qualified_name(rel),
							 quote_qualified_identifier(get_namespace_name(namespace), ROW_TRIGGER),
							 arguments.data));

	/* but statement triggers each need their own */
	foreach(lc, tables)
	{
		Relation	part = table_open(lfirst_oid(lc), NoLock);

		execute_command(psprintf("CREATE TRIGGER %s BEFORE TRUNCATE ON %s"
								 " FOR EACH STATEMENT EXECUTE FUNCTION %s(%s)",
								 TRUNCATE_TRIGGER, qualified_name(part),
								 quote_qualified_identifier(get_namespace_name(namespace),
															TRUNCATE_TRIGGER),
								 arguments.data));
		table_close(part, NoLock);
	}
	table_close(rel, NoLock);
	ForceSyncCommit();
	PG_RETURN_VOID();
}

/*
 * fencing_unprotect(relation regclass) → void
 */
Datum
fencing_unprotect(PG_FUNCTION_ARGS)
{
	Relation	rel;

	args_refuse_null(fcinfo, 0, "relation");
	store_begin_write("fencing_unprotect()");
	rel = open_own_table(PG_GETARG_OID(0), AccessExclusiveLock);
	drop_guards(rel, get_func_namespace(fcinfo->flinfo->fn_oid), AccessExclusiveLock);
	table_close(rel, NoLock);
	ForceSyncCommit();
	PG_RETURN_VOID();
}

/*
 * Opens a table whose owner the caller is.  A catalog or a state table is
 * refused before it is locked: everybody needs it.
 */
static Relation
open_own_table(Oid relid, LOCKMODE lockmode)
{
	Relation	rel;

	if (!OidIsValid(relid) || get_rel_name(relid) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	if (!compat_owns_relation(relid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, get_relkind_objtype(get_rel_relkind(relid)),
					   get_rel_name(relid));
	if (IsCatalogRelationOid(relid))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied: \"%s\" is a system catalog", get_rel_name(relid))));
	refuse_state_table(relid);

	rel = relation_open(relid, lockmode);
	if (rel->rd_rel->relkind != RELKIND_RELATION &&
		rel->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a table", RelationGetRelationName(rel))));
	if (RELATION_IS_OTHER_TEMP(rel))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot alter temporary tables of other sessions")));
	return rel;
}

/* The gate writes them itself, in transactions that no gate has let pass. */
static void
refuse_state_table(Oid relid)
{
	if (get_rel_namespace(relid) == get_namespace_oid("fencing", false))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("relation \"fencing.%s\" belongs to the extension itself",
						get_rel_name(relid)),
				 errdetail("Only tables outside the schema \"fencing\" can be protected.")));
}

/* Before anything is changed: are the table and its partitions fit for it? */
static void
check_partitions(Relation root, List *tables)
{
	ListCell   *lc;

	foreach(lc, tables)
	{
		Oid			relid = lfirst_oid(lc);

		refuse_state_table(relid);
		if (get_rel_relkind(relid) == RELKIND_FOREIGN_TABLE)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot protect table \"%s\": its partition \"%s\" is a foreign table",
							RelationGetRelationName(root), get_rel_name(relid)),
					 errdetail("What is written where that is stored fires no trigger here."),
					 errhint("Detach that partition, or protect each of the others by itself.")));
	}
}

/*
 * A child of a table that inherits has no triggers of its own for what is
 * written through its parent, and the other way round.
 */
static void
refuse_inheritance(Relation rel)
{
	Oid			relid = RelationGetRelid(rel);

	if (!rel->rd_rel->relispartition && rel->rd_rel->relkind == RELKIND_RELATION &&
		(has_superclass(relid) || find_inheritance_children(relid, NoLock) != NIL))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("table \"%s\" has inheritance parents or children",
						RelationGetRelationName(rel)),
				 errdetail("Tables that inherit cannot be protected; partitioned tables can.")));
}

/*
 * A role with the TRIGGER privilege can replace a trigger of that name by its
 * own.  GRANT ALL gives it to people who do not know that they have it.
 */
static void
warn_of_trigger_privilege(Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Form_pg_class rel;
	Datum		value;
	bool		isnull;
	Acl		   *acl;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", relid);
	rel = (Form_pg_class) GETSTRUCT(tuple);
	value = SysCacheGetAttr(RELOID, tuple, Anum_pg_class_relacl, &isnull);
	if (!isnull)
	{
		acl = DatumGetAclP(value);
		for (int i = 0; i < ACL_NUM(acl); i++)
		{
			AclItem    *item = &ACL_DAT(acl)[i];

			if ((ACLITEM_GET_PRIVS(*item) & ACL_TRIGGER) != 0 &&
				item->ai_grantee != rel->relowner)
				ereport(WARNING,
						(errcode(ERRCODE_WARNING_PRIVILEGE_NOT_REVOKED),
						 errmsg("role \"%s\" can end the protection of table \"%s\"",
								item->ai_grantee == ACL_ID_PUBLIC ? "public" :
								GetUserNameFromId(item->ai_grantee, false),
								NameStr(rel->relname)),
						 errdetail("It has the TRIGGER privilege on the table."),
						 errhint("Revoke that.")));
		}
	}
	ReleaseSysCache(tuple);
}

/*
 * Takes the guards off a table and its partitions.  Those that a partition
 * has from its parent go with the parent's.
 */
static void
drop_guards(Relation root, Oid namespace, LOCKMODE lockmode)
{
	ListCell   *lc;

	foreach(lc, protected_tables(root, lockmode))
	{
		Relation	rel = table_open(lfirst_oid(lc), lockmode);
		char	   *table = qualified_name(rel);
		bool		cloned;
		List	   *names = guard_names(rel, namespace, &cloned);
		ListCell   *lc2;

		if (cloned && RelationGetRelid(rel) == RelationGetRelid(root))
			ereport(ERROR,
					(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
					 errmsg("table \"%s\" is protected with the table that it is a partition of",
							RelationGetRelationName(rel))));
		table_close(rel, NoLock);
		foreach(lc2, names)
			execute_command(psprintf("DROP TRIGGER %s ON %s",
									 quote_identifier((char *) lfirst(lc2)), table));
	}
}

/* Whether the table has a guard already; only to choose a lock by. */
static bool
is_guarded(Oid relid, Oid namespace)
{
	Relation	rel = try_relation_open(relid, AccessShareLock);
	bool		cloned;
	bool		result;

	if (rel == NULL)
		return false;
	result = guard_names(rel, namespace, &cloned) != NIL || cloned;
	relation_close(rel, AccessShareLock);
	return result;
}

/*
 * The names of the guards that are the table's own, and whether it has any
 * from its parent.  They are known by their functions, as anybody may have
 * renamed them.
 *
 * Nothing is looked up while the relcache entry is read.  A GRANT elsewhere
 * takes no lock on the table, and with the next look-up the triggers are
 * built anew.
 */
static List *
guard_names(Relation rel, Oid namespace, bool *cloned)
{
	Oid			row_function = guard_function(namespace, ROW_TRIGGER);
	Oid			truncate_function = guard_function(namespace, TRUNCATE_TRIGGER);
	List	   *names = NIL;

	*cloned = false;
	for (int i = 0; rel->trigdesc != NULL && i < rel->trigdesc->numtriggers; i++)
	{
		const Trigger *trigger = &rel->trigdesc->triggers[i];

		if (trigger->tgfoid != row_function && trigger->tgfoid != truncate_function)
			continue;
		if (trigger->tgisclone)
			*cloned = true;
		else
			names = lappend(names, pstrdup(trigger->tgname));
	}
	return names;
}

/* The table itself, and its partitions if it is partitioned. */
static List *
protected_tables(Relation rel, LOCKMODE lockmode)
{
	if (rel->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
		return list_make1_oid(RelationGetRelid(rel));
	return find_all_inheritors(RelationGetRelid(rel), lockmode, NULL);
}

/* The trigger function beside fencing_protect(). */
static Oid
guard_function(Oid namespace, const char *name)
{
	return LookupFuncName(list_make2(makeString(get_namespace_name(namespace)),
									 makeString(pstrdup(name))), 0, NULL, false);
}

/* For messages. */
static char *
qualified_name(Relation rel)
{
	return quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)),
									  RelationGetRelationName(rel));
}

/* The key has to be text, and to be there when a trigger looks at the row. */
static void
check_key_column(Relation rel, const char *column)
{
	int			attnum = SPI_fnumber(RelationGetDescr(rel), column);
	Form_pg_attribute attribute;
	bool		is_virtual;
	Oid			type;

	if (attnum <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of relation \"%s\" does not exist",
						column, RelationGetRelationName(rel)),
				 errhint("If it was renamed, protect the table again.")));

	attribute = TupleDescAttr(RelationGetDescr(rel), attnum - 1);
	is_virtual = attribute->attgenerated == ATTRIBUTE_GENERATED_VIRTUAL;
	type = getBaseType(attribute->atttypid);	/* from here on it may be
												 * another */
	if (type != TEXTOID && type != VARCHAROID)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("column \"%s\" of relation \"%s\" is not of type text or varchar",
						column, RelationGetRelationName(rel))));
	if (is_virtual)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("column \"%s\" of relation \"%s\" is a virtual generated column",
						column, RelationGetRelationName(rel)),
				 errdetail("A trigger does not see its value.")));
}

/* As the caller, who owns the table; every name in it is qualified. */
static void
execute_command(const char *command)
{
	int			result;

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	result = SPI_execute(command, false, 0);
	if (result != SPI_OK_UTILITY)
		elog(ERROR, "SPI_execute returned %s for command: %s",
			 SPI_result_code_string(result), command);
	SPI_finish();
}
