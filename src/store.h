/*-------------------------------------------------------------------------
 *
 * store.h
 *	  The state tables, and how all parts look at them and write them.
 *
 * Locks, one order for all: key lock, fence row, lease row, floor row;
 * several jobs in one transaction sorted by key.  Tables are opened with
 * RowExclusiveLock; a call that wrote nothing gives that back at once.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef STORE_H
#define STORE_H

#include "access/htup.h"
#include "executor/spi.h"
#include "fencing.h"
#include "nodes/lockoptions.h"
#include "nodes/pg_list.h"
#include "storage/lock.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

/* nobody else's symbols: PostgreSQL 15 loads libraries with global ones */
#pragma GCC visibility push(hidden)

/*
 * store_table.c: which state tables there are, and that they are what was
 * made
 */
typedef enum StoreTable
{
	STORE_FLOOR,
	STORE_FENCES,
	STORE_LEASES,
	STORE_RECEIPTS,
	STORE_REVOCATIONS,
	STORE_GRANTS,
	STORE_OPERATIONS,
	STORE_REQUEST_SCHEMAS,
	STORE_RECORDS,
	STORE_OUTBOX,
	STORE_OUTBOX_CONSUMERS,
	STORE_OUTBOX_ACKS,
	STORE_OUTBOX_ATTEMPTS,
	STORE_DOCUMENTS,
	STORE_REVISIONS,
	STORE_TARGETS,
	STORE_TAGS,
	STORE_TAG_NAMES,
	STORE_TAG_EVENTS,
	STORE_TAG_MIGRATIONS,
	STORE_TAG_MERGES,
	STORE_TAG_LINKS,
	STORE_TAG_FOLLOWS
} StoreTable;

#define STORE_NTABLES			(STORE_TAG_FOLLOWS + 1)

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
#define Anum_leases_acquired_at		5
#define Anum_leases_application_name 6
#define Anum_leases_client_addr		7
#define Natts_leases				7

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
#define Anum_outbox_consumers_after_no 5
#define Anum_outbox_consumers_settled_no 6
#define Anum_outbox_consumers_part	7
#define Anum_outbox_consumers_parts 8
#define Natts_outbox_consumers		8

#define Anum_outbox_acks_consumer	1
#define Anum_outbox_acks_event_no	2
#define Anum_outbox_acks_through_no 3
#define Anum_outbox_acks_acked_at	4
#define Anum_outbox_acks_reason		5
#define Natts_outbox_acks			5

#define Anum_outbox_attempts_consumer 1
#define Anum_outbox_attempts_event_no 2
#define Anum_outbox_attempts_through_no 3
#define Anum_outbox_attempts_attempts 4
#define Anum_outbox_attempts_last_at 5
#define Natts_outbox_attempts		5

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

#define Anum_tags_vocabulary 1
#define Anum_tags_tag_id 2
#define Anum_tags_name 3
#define Anum_tags_root 4
#define Anum_tags_members 5
#define Anum_tags_version 6
#define Anum_tags_migration_kind 7
#define Anum_tags_created_no 8
#define Natts_tags 8

#define Anum_tag_names_vocabulary 1
#define Anum_tag_names_name 2
#define Anum_tag_names_tag_id 3
#define Anum_tag_names_alias 4
#define Anum_tag_names_since_no 5
#define Natts_tag_names 5

#define Anum_tag_events_vocabulary 1
#define Anum_tag_events_event_id 2
#define Anum_tag_events_event_no 3
#define Anum_tag_events_kind 4
#define Anum_tag_events_reference 5
#define Anum_tag_events_owner 6
#define Anum_tag_events_tag_id 7
#define Anum_tag_events_subject 8
#define Anum_tag_events_name 9
#define Anum_tag_events_target_reference 10
#define Anum_tag_events_target 11
#define Anum_tag_events_migration 12
#define Anum_tag_events_reason 13
#define Anum_tag_events_actor 14
#define Anum_tag_events_digest 15
#define Anum_tag_events_digest_version 16
#define Anum_tag_events_committed_at 17
#define Natts_tag_events 17

#define Anum_tag_migrations_vocabulary 1
#define Anum_tag_migrations_event_id 2
#define Anum_tag_migrations_event_no 3
#define Anum_tag_migrations_kind 4
#define Anum_tag_migrations_tag_id 5
#define Anum_tag_migrations_target 6
#define Anum_tag_migrations_name 7
#define Anum_tag_migrations_former_name 8
#define Anum_tag_migrations_undone_no 9
#define Anum_tag_migrations_completed_at 10
#define Anum_tag_migrations_reconciled 11
#define Anum_tag_migrations_checked 12
#define Anum_tag_migrations_problems 13
#define Anum_tag_migrations_cursor_tag 14
#define Anum_tag_migrations_cursor_part 15
#define Anum_tag_migrations_cursor_key 16
#define Anum_tag_migrations_cursor_subject 17
#define Natts_tag_migrations 17

#define Anum_tag_merges_vocabulary 1
#define Anum_tag_merges_source 2
#define Anum_tag_merges_undone_no 3
#define Anum_tag_merges_target 4
#define Anum_tag_merges_made_no 5
#define Natts_tag_merges 5

#define Anum_tag_links_vocabulary 1
#define Anum_tag_links_subject 2
#define Anum_tag_links_until_no 3
#define Anum_tag_links_tag_id 4
#define Anum_tag_links_from_no 5
#define Natts_tag_links 5

#define Anum_tag_follows_vocabulary 1
#define Anum_tag_follows_subscriber 2
#define Anum_tag_follows_until_no 3
#define Anum_tag_follows_tag_id 4
#define Anum_tag_follows_from_no 5
#define Anum_tag_follows_following 6
#define Natts_tag_follows 6

#define Anum_grants_role			1
#define Anum_grants_access			2
#define Natts_grants				2

/*
 * store_shape.c: the tables and their columns
 */
typedef struct StoreColumn
{
	const char *name;
	Oid			type;
	Oid			collation;
	bool		not_null;
} StoreColumn;

typedef struct StoreShape
{
	const char *name;
	const StoreColumn *columns;
	int			ncolumns;
	int			nkeys;			/* the primary key is the first columns */
	bool		by_queries;		/* the executor writes it, and knows any index */
	bool		immutable;		/* has the trigger of that name */
} StoreShape;

extern const StoreShape store_shapes[];

/*
 * store_table.c: opens a table that is as it was made
 */
extern Oid	store_table_oid(StoreTable table);
extern Relation store_table_open(StoreTable table, LOCKMODE lockmode);
extern void store_table_verify_plan(SPIPlanPtr plan);
extern int	store_table_ncolumns(Relation rel);

/*
 * store.c: the state tables, by the table access method
 */
typedef enum StoreLock
{
	STORE_LOCKED,				/* this row version is locked, nothing moved */
	STORE_BUSY,					/* somebody else has it (only without waiting) */
	STORE_MOVED					/* updated or deleted meanwhile: look again */
} StoreLock;

typedef bool (*StoreWork) (void *arg);

/* Looks at rows as the snapshot sees them; returns whether that decided. */
typedef bool (*StoreLook) (void *arg, Snapshot snapshot);

extern Snapshot store_fresh_snapshot(void);
extern void store_until_decided(StoreLook look, void *arg);
extern bool store_is_unchanged(void);
extern bool store_under_lock(StoreLook make, void *arg, Snapshot snapshot);
extern void store_begin_write(const char *function);
extern HeapTuple store_find(Relation rel, int nkeys, const Datum *keys, Snapshot snapshot);
extern HeapTuple store_select(Relation rel, int nkeys, const Datum *keys, Snapshot snapshot);
extern List *store_find_all(Relation rel, int nkeys, const Datum *keys, Snapshot snapshot);
extern List *store_select_all(Relation rel, int nkeys, const Datum *keys, Snapshot snapshot);
extern TransactionId store_find_maker(Relation rel, int nkeys, const Datum *keys);
extern List *store_scan_all(Relation rel, Snapshot snapshot);
extern Datum store_get(Relation rel, HeapTuple tuple, int attnum);
extern bool store_visible_to_transaction(Relation rel, HeapTuple tuple);
extern void store_require_visible(Relation rel, HeapTuple tuple);
pg_noreturn extern void store_serialization_failure(void);
extern StoreLock store_lock_row(Relation rel, HeapTuple tuple, LockWaitPolicy policy);
extern bool store_with_row_lock(Relation rel, HeapTuple tuple, Snapshot snapshot,
								bool expect_write, StoreWork work, void *arg);
extern bool store_subtransaction(StoreWork work, void *arg, ErrorData **error);
extern void store_read_row(Relation rel, HeapTuple tuple, Datum *values, bool *nulls);
extern void store_insert(Relation rel, const Datum *values, const bool *nulls);
extern void store_update(Relation rel, HeapTuple old, const Datum *values,
						 const bool *nulls);
extern void store_delete(Relation rel, HeapTuple tuple);
extern void store_delete_all(Relation rel, int nkeys, const Datum *keys, Snapshot snapshot);

extern int64 store_read_sequence(const char *name);

/*
 * purge_position.c: where a purge goes on that goes through a table
 */
typedef struct PagePosition
{
	const char *sequence;
	ItemPointerData first;
	ItemPointerData end;		/* and without this one */
	bool		at_end;			/* of the table */
} PagePosition;

extern void purge_position_begin(PagePosition *position, const char *sequence, Relation rel,
								 int64 npages);
extern void purge_position_keep(const PagePosition *position, const ItemPointerData *next);

/*
 * key_lock.c: locks on rows that are not there yet, and on what has none
 */
extern bool key_lock_absent(Relation rel, int nkeys, const Datum *keys, bool wait);
extern void key_lock_release(Relation rel, int nkeys, const Datum *keys);
extern StoreLock key_lock_make(Relation rel, int nkeys, const Datum *keys, bool wait,
							   StoreLook make, void *arg);
extern void key_lock_aggregate(const text *type, const text *id);
extern void key_lock_prefix_tag(LOCKTAG *tag, Relation rel, int nkeys, const Datum *keys);
extern LockAcquireResult key_lock_keep(const LOCKTAG *tag, LOCKMODE lockmode, bool wait);
extern void key_lock_give_back(const LOCKTAG *tag, LOCKMODE lockmode, LockAcquireResult result);

/*
 * owner_query.c: queries of the extension, as the owner of the state tables
 */
typedef void (*OwnerQueryHandler) (SPITupleTable *rows, uint64 count, void *arg);

extern void owner_query_run(const char *query, int nargs, Oid *argtypes, Datum *args,
							const bool *nulls, Snapshot snapshot,
							OwnerQueryHandler handle, void *arg);
extern void owner_query_bigints(const char *query, int nargs, Oid *argtypes, Datum *args,
								const bool *nulls, Snapshot snapshot,
								int nresults, int64 *results);
extern Datum owner_query_copy(SPITupleTable *rows, uint64 row, int column);

/*
 * durable.c: what was read is on the standbys
 */
extern void durable_wait_for_standbys(void);

#pragma GCC visibility pop

#endif							/* STORE_H */
