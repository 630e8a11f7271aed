/*-------------------------------------------------------------------------
 *
 * access.c
 *	  Who may call which functions, and who may read the outbox.
 *
 * fencing.grants keeps what was granted, by name of the role, so that an
 * upgrade can grant its new functions too.  The access lists of the functions
 * have the last word: a role that was renamed keeps its privileges and leaves
 * its row behind, and a new role of a former name has the rows and no
 * privileges.
 *
 * Locks: ShareRowExclusiveLock on fencing.grants, so that two changes of one
 * role do not meet in pg_proc.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "catalog/pg_proc.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/parsenodes.h"
#include "store.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#define ACCESS_CLIENT		(1 << 0)
#define ACCESS_RELAY		(1 << 1)
#define ACCESS_TARGET		(1 << 2)
#define ACCESS_PUBLISHER	(1 << 3)
#define ACCESS_EXTERNAL		(1 << 4)
#define ACCESS_ADMIN		(1 << 5)
#define ACCESS_CDC			(1 << 6)

typedef struct AccessKind
{
	const char *name;
	int			bit;
} AccessKind;

static const AccessKind access_kinds[] = {
	{"client", ACCESS_CLIENT},
	{"relay", ACCESS_RELAY},
	{"target", ACCESS_TARGET},
	{"publisher", ACCESS_PUBLISHER},
	{"external", ACCESS_EXTERNAL},
	{"admin", ACCESS_ADMIN},
	{"cdc", ACCESS_CDC}			/* no function, but the table of events */
};

/* Every function that is not for everybody; admin has them all. */
static const AccessKind functions[] = {
	{"fencing_acquire", ACCESS_CLIENT | ACCESS_RELAY},
	{"fencing_renew", ACCESS_CLIENT | ACCESS_RELAY},
	{"fencing_release", ACCESS_CLIENT | ACCESS_RELAY},
	{"fencing_commit", ACCESS_CLIENT},
	{"fencing_receipt", ACCESS_CLIENT},
	{"fencing_advance", ACCESS_EXTERNAL},
	{"fencing_once", ACCESS_CLIENT},
	{"fencing_once_respond", ACCESS_CLIENT},
	{"fencing_outbox_emit", ACCESS_CLIENT},
	{"fencing_outbox_subscribe", ACCESS_RELAY},
	{"fencing_outbox_unsubscribe", ACCESS_RELAY},
	{"fencing_outbox_read", ACCESS_RELAY},
	{"fencing_outbox_ack", ACCESS_RELAY},
	{"fencing_outbox_park", ACCESS_RELAY},
	{"fencing_define_operation", 0},
	{"fencing_define_request", 0},
	{"fencing_retire_request", 0},
	{"fencing_request_canonical", 0},
	{"fencing_request_hash", 0},
	{"fencing_immutable", 0},
	{"fencing_publish", ACCESS_PUBLISHER},
	{"fencing_publish_rollback", ACCESS_PUBLISHER},
	{"fencing_publish_delete", ACCESS_PUBLISHER},
	{"fencing_publish_force", 0},
	{"fencing_publish_current", ACCESS_PUBLISHER | ACCESS_TARGET},
	{"fencing_publish_revision", ACCESS_PUBLISHER | ACCESS_TARGET},
	{"fencing_target_desire", ACCESS_PUBLISHER},
	{"fencing_target_forget", ACCESS_PUBLISHER},
	{"fencing_apply", ACCESS_TARGET},
	{"fencing_apply_begin", ACCESS_TARGET},
	{"fencing_apply_observe", ACCESS_TARGET},
	{"fencing_apply_reject", ACCESS_TARGET},
	{"fencing_tag_resolve", ACCESS_CLIENT | ACCESS_PUBLISHER},
	{"fencing_tag_assign", ACCESS_CLIENT},
	{"fencing_tag_unassign", ACCESS_CLIENT},
	{"fencing_tag_subscribe", ACCESS_CLIENT},
	{"fencing_tag_unsubscribe", ACCESS_CLIENT},
	{"fencing_tags_of", ACCESS_CLIENT},
	{"fencing_tag_subjects", ACCESS_CLIENT},
	{"fencing_tag_subscribers", ACCESS_RELAY | ACCESS_PUBLISHER},
	{"fencing_tag_create", ACCESS_PUBLISHER},
	{"fencing_tag_alias", ACCESS_PUBLISHER},
	{"fencing_tag_rename", ACCESS_PUBLISHER},
	{"fencing_tag_merge", ACCESS_PUBLISHER},
	{"fencing_tag_undo", ACCESS_PUBLISHER},
	{"fencing_tag_complete", ACCESS_PUBLISHER},
	{"fencing_tag_reconcile", ACCESS_PUBLISHER},
	{"fencing_tag_statistics", ACCESS_PUBLISHER},
	{"fencing_tag_check", ACCESS_PUBLISHER},
	{"fencing_tag_release_name", 0},
	{"fencing_revoke", 0},
	{"fencing_forget", 0},
	{"fencing_protect", 0},
	{"fencing_unprotect", 0},
	{"fencing_new_epoch", 0},
	{"fencing_purge", 0},
	{"fencing_grant", 0},
	{"fencing_ungrant", 0}
};

/* One call: its arguments, where the functions are, the row of the grant. */
typedef struct AccessChange
{
	Oid			roleid;
	char	   *role;
	const AccessKind *access;
	Relation	grants;
	Oid			owner;			/* of the extension's objects */
	Oid			namespace;
	Oid			extension;
	NameData	rolename;
	Datum		values[Natts_grants];
	HeapTuple	row;			/* or NULL */
} AccessChange;

static void begin_change(AccessChange *change, FunctionCallInfo fcinfo, const char *function);
static void end_change(AccessChange *change);
static const AccessKind *arg_access(FunctionCallInfo fcinfo, int argno, const char *name);
static int	granted_access(Relation grants, const char *role);
static int	held_access(Oid roleid, Oid namespace, Oid extension);
static void forget_lost(Relation grants, const char *role, Oid roleid, Oid namespace, Oid extension);
static List *functions_of(Oid namespace, Oid extension, int access, int besides);
static bool may_any(Oid roleid, List *oids);
static bool may_read_outbox(Oid roleid);
static bool has_in_acl(Datum acl, Oid roleid, AclMode privilege);
static ObjectWithArgs *function_object(Oid function);
static void execute_grants(const AccessChange *change, bool is_grant, List *oids);
static void execute_grant(bool is_grant, const char *role, ObjectType type, List *objects,
						  const char *privilege);

PG_FUNCTION_INFO_V1(fencing_grant);
PG_FUNCTION_INFO_V1(fencing_ungrant);

/*
 * fencing_grant(role regrole, access text) → void
 */
Datum
fencing_grant(PG_FUNCTION_ARGS)
{
	AccessChange change;
	bool		nulls[Natts_grants] = {false};

	begin_change(&change, fcinfo, "fencing_grant()");
	if (change.row == NULL)
		store_insert(change.grants, change.values, nulls);

	/* in any case: somebody may have changed them, or the name, by hand */
	execute_grants(&change, true, functions_of(change.namespace, change.extension,
											   change.access->bit, 0));
	end_change(&change);
	PG_RETURN_VOID();
}

/*
 * fencing_ungrant(role regrole, access text) → void
 */
Datum
fencing_ungrant(PG_FUNCTION_ARGS)
{
	AccessChange change;
	int			bit;
	int			besides;

	begin_change(&change, fcinfo, "fencing_ungrant()");
	bit = change.access->bit;
	if (change.row != NULL)
		store_delete(change.grants, change.row);
	besides = granted_access(change.grants, change.role);
	if (change.row == NULL && bit != ACCESS_ADMIN)
		besides |= held_access(change.roleid, change.namespace, change.extension) & ~bit;

	/* what the owner of the functions has is not for an extension to take */
	if (change.roleid != change.owner)
		execute_grants(&change, false, functions_of(change.namespace, change.extension,
													bit, besides));
	end_change(&change);
	PG_RETURN_VOID();
}

/*
 * Reads the arguments, and with fencing.grants locked, so that changes come
 * one after the other, the row of the grant.  Raises 22004, 22023, 25006.
 */
static void
begin_change(AccessChange *change, FunctionCallInfo fcinfo, const char *function)
{
	Snapshot	snapshot;

	args_refuse_null(fcinfo, 0, "role");
	change->roleid = PG_GETARG_OID(0);
	change->access = arg_access(fcinfo, 1, "access");
	change->role = OidIsValid(change->roleid) ? GetUserNameFromId(change->roleid, true) : NULL;
	if (change->role == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("role with OID %u does not exist", change->roleid)));

	store_begin_write(function);

	change->grants = store_table_open(STORE_GRANTS, ShareRowExclusiveLock);
	change->owner = change->grants->rd_rel->relowner;
	change->namespace = get_func_namespace(fcinfo->flinfo->fn_oid);
	change->extension = getExtensionOfObject(ProcedureRelationId, fcinfo->flinfo->fn_oid);
	namestrcpy(&change->rolename, change->role);
	change->values[Anum_grants_role - 1] = NameGetDatum(&change->rolename);
	change->values[Anum_grants_access - 1] = CStringGetTextDatum(change->access->name);

	forget_lost(change->grants, change->role, change->roleid, change->namespace,
				change->extension);

	snapshot = store_fresh_snapshot();
	change->row = store_find(change->grants, 2, change->values, snapshot);
	UnregisterSnapshot(snapshot);
}

/* Keeps the lock to the end of the transaction. */
static void
end_change(AccessChange *change)
{
	table_close(change->grants, NoLock);
	ForceSyncCommit();
}

/* The kind of access.  Raises 22004, 22023. */
static const AccessKind *
arg_access(FunctionCallInfo fcinfo, int argno, const char *name)
{
	char	   *value;

	args_refuse_null(fcinfo, argno, name);
	value = text_to_cstring(PG_GETARG_TEXT_PP(argno));
	for (size_t i = 0; i < lengthof(access_kinds); i++)
	{
		if (strcmp(access_kinds[i].name, value) == 0)
			return &access_kinds[i];
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unrecognized %s: \"%s\"", name, value),
			 errhint("Available values: client, relay, target, publisher, external, admin, cdc.")));
	return NULL;				/* keep compiler quiet */
}

/* All that a role has, as bits. */
static int
granted_access(Relation grants, const char *role)
{
	Snapshot	snapshot = store_fresh_snapshot();
	int			access = 0;
	ListCell   *lc;

	foreach(lc, store_scan_all(grants, snapshot))
	{
		HeapTuple	row = (HeapTuple) lfirst(lc);
		char	   *name = TextDatumGetCString(store_get(grants, row, Anum_grants_access));

		if (strcmp(NameStr(*DatumGetName(store_get(grants, row, Anum_grants_role))), role) != 0)
			continue;
		for (size_t i = 0; i < lengthof(access_kinds); i++)
		{
			if (strcmp(access_kinds[i].name, name) == 0)
				access |= access_kinds[i].bit;
		}
	}
	UnregisterSnapshot(snapshot);
	return access;
}

/*
 * What it has by the access lists, under whatever name: it may execute one of
 * the functions that only this access gives, and "admin"; or read the events.
 */
static int
held_access(Oid roleid, Oid namespace, Oid extension)
{
	int			access = 0;

	for (size_t i = 0; i < lengthof(access_kinds); i++)
	{
		int			bit = access_kinds[i].bit;

		if (may_any(roleid, functions_of(namespace, extension, bit, ~(bit | ACCESS_ADMIN))))
			access |= bit;
	}
	if (may_read_outbox(roleid))
		access |= ACCESS_CDC;
	return access;
}

/* Deletes the rows of access that the role does not have any more. */
static void
forget_lost(Relation grants, const char *role, Oid roleid, Oid namespace, Oid extension)
{
	int			lost = granted_access(grants, role) & ~held_access(roleid, namespace, extension);

	for (size_t i = 0; i < lengthof(access_kinds); i++)
	{
		NameData	rolename;
		Datum		keys[Natts_grants];
		Snapshot	snapshot;

		if ((lost & access_kinds[i].bit) == 0)
			continue;

		namestrcpy(&rolename, role);
		keys[Anum_grants_role - 1] = NameGetDatum(&rolename);
		keys[Anum_grants_access - 1] = CStringGetTextDatum(access_kinds[i].name);
		snapshot = store_fresh_snapshot();
		store_delete_all(grants, Natts_grants, keys, snapshot);
		UnregisterSnapshot(snapshot);
	}
}

/*
 * The functions, by OID, that these kinds of access give and the kinds in
 * "besides" do not.
 */
static List *
functions_of(Oid namespace, Oid extension, int access, int besides)
{
	List	   *oids = NIL;

	for (size_t i = 0; i < lengthof(functions); i++)
	{
		int			kinds = functions[i].bit | ACCESS_ADMIN;
		CatCList   *candidates;

		if ((kinds & access) == 0 || (kinds & besides) != 0)
			continue;

		candidates = SearchSysCacheList1(PROCNAMEARGSNSP, CStringGetDatum(functions[i].name));
		for (int j = 0; j < candidates->n_members; j++)
		{
			Form_pg_proc proc = (Form_pg_proc) GETSTRUCT(&candidates->members[j]->tuple);

			/*
			 * a stranger may have a function of this name, with other
			 * arguments
			 */
			if (proc->pronamespace == namespace &&
				getExtensionOfObject(ProcedureRelationId, proc->oid) == extension)
				oids = lappend_oid(oids, proc->oid);
		}
		ReleaseSysCacheList(candidates);
	}
	return oids;
}

/*
 * Whether one of the functions was granted to the role, to itself and not to
 * a group.
 */
static bool
may_any(Oid roleid, List *oids)
{
	bool		found = false;
	ListCell   *lc;

	foreach(lc, oids)
	{
		HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(lfirst_oid(lc)));
		Datum		acl;
		bool		isnull;

		if (!HeapTupleIsValid(tuple))
			elog(ERROR, "cache lookup failed for function %u", lfirst_oid(lc));
		acl = SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_proacl, &isnull);
		found |= !isnull && has_in_acl(acl, roleid, ACL_EXECUTE);
		ReleaseSysCache(tuple);
	}
	return found;
}

/* Whether the table of events was granted to the role, to itself. */
static bool
may_read_outbox(Oid roleid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(store_table_oid(STORE_OUTBOX)));
	Datum		acl;
	bool		isnull;
	bool		found;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", store_table_oid(STORE_OUTBOX));
	acl = SysCacheGetAttr(RELOID, tuple, Anum_pg_class_relacl, &isnull);
	found = !isnull && has_in_acl(acl, roleid, ACL_SELECT);
	ReleaseSysCache(tuple);
	return found;
}

/* Does the role itself, not by PUBLIC or membership, have the privilege? */
static bool
has_in_acl(Datum value, Oid roleid, AclMode privilege)
{
	Acl		   *acl = DatumGetAclP(value);

	for (int i = 0; i < ACL_NUM(acl); i++)
	{
		if (ACL_DAT(acl)[i].ai_grantee == roleid &&
			(ACLITEM_GET_PRIVS(ACL_DAT(acl)[i]) & privilege) != 0)
			return true;
	}
	return false;
}

/* A function as GRANT names it. */
static ObjectWithArgs *
function_object(Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	ObjectWithArgs *object = makeNode(ObjectWithArgs);
	Form_pg_proc proc;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", function);
	proc = (Form_pg_proc) GETSTRUCT(tuple);
	object->objname = list_make2(makeString(get_namespace_name(proc->pronamespace)),
								 makeString(pstrdup(NameStr(proc->proname))));
	for (int i = 0; i < proc->pronargs; i++)
		object->objargs = lappend(object->objargs,
								  makeTypeNameFromOid(proc->proargtypes.values[i], -1));
	ReleaseSysCache(tuple);
	return object;
}

/*
 * GRANT or REVOKE what the access gives: these functions, and of "cdc" the
 * table of events; as their owner.
 */
static void
execute_grants(const AccessChange *change, bool is_grant, List *oids)
{
	const char *role = change->role;
	List	   *functions = NIL;
	Oid			saved_user;
	int			saved_context;
	ListCell   *lc;

	foreach(lc, oids)
		functions = lappend(functions, function_object(lfirst_oid(lc)));

	GetUserIdAndSecContext(&saved_user, &saved_context);
	SetUserIdAndSecContext(change->owner, saved_context | SECURITY_LOCAL_USERID_CHANGE |
						   SECURITY_NOFORCE_RLS);
	execute_grant(is_grant, role, OBJECT_FUNCTION, functions, NULL);
	if (change->access->bit == ACCESS_CDC)
	{
		RangeVar   *outbox = makeRangeVar(pstrdup("fencing"), pstrdup("outbox"), -1);

		execute_grant(is_grant, role, OBJECT_TABLE, list_make1(outbox), "select");

		/* pg_monitor has it from the extension, for the views */
		if (change->roleid != ROLE_PG_MONITOR)
			execute_grant(is_grant, role, OBJECT_SCHEMA, list_make1(makeString(pstrdup("fencing"))),
						  "usage");
	}
	SetUserIdAndSecContext(saved_user, saved_context);
}

/*
 * GRANT or REVOKE a privilege, NULL for all, on these objects TO or FROM
 * role.
 */
static void
execute_grant(bool is_grant, const char *role, ObjectType type, List *objects,
			  const char *privilege)
{
	GrantStmt  *stmt = makeNode(GrantStmt);
	RoleSpec   *grantee = makeNode(RoleSpec);

	if (objects == NIL)
		return;

	grantee->roletype = ROLESPEC_CSTRING;
	grantee->rolename = pstrdup(role);
	grantee->location = -1;

	stmt->is_grant = is_grant;
	stmt->targtype = ACL_TARGET_OBJECT;
	stmt->objtype = type;
	stmt->objects = objects;
	stmt->grantees = list_make1(grantee);
	stmt->behavior = DROP_RESTRICT;
	if (privilege != NULL)
	{
		AccessPriv *priv = makeNode(AccessPriv);

		priv->priv_name = pstrdup(privilege);
		stmt->privileges = list_make1(priv);
	}
	ExecuteGrantStmt(stmt);
	CommandCounterIncrement();
}
