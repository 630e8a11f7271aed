/*-------------------------------------------------------------------------
 *
 * tag.h
 *	  What the files of the tags share.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef TAG_H
#define TAG_H

#include "gate.h"
#include "outbox.h"
#include "utils/uuid.h"

/* nobody else's symbols: PostgreSQL 15 loads libraries with global ones */
#pragma GCC visibility push(hidden)

/* until_no and undone_no of what is in force */
#define TAG_IN_FORCE		PG_INT64_MAX

/* as of this number everything is as it is now */
#define TAG_NOW				(PG_INT64_MAX - 1)

/* An expected_target_version that is not given. */
#define TAG_ANY_VERSION		(-1)

/* A tag as a snapshot sees it. */
typedef struct Tag
{
	HeapTuple	row;
	pg_uuid_t	id;
	text	   *name;
	pg_uuid_t	root;
	int			members;
	int64		version;
	text	   *kind;			/* of the last migration; NULL: none */
	int64		created_no;
} Tag;

/* A reference, and where it leads. */
typedef struct TagReference
{
	const char *argument;		/* for messages */
	text	   *reference;
	bool		found;
	HeapTuple	name_row;		/* NULL: the reference is an id */
	bool		alias;
	int64		since_no;		/* of the name */
	Tag			owner;			/* whose id or name it is */
	Tag			root;			/* where the merges in force lead */
} TagReference;

/* The tables by which references are resolved. */
typedef struct TagTables
{
	Relation	tags;
	Relation	names;
	bool		by_select;		/* with the predicate locks of any SELECT */
} TagTables;

/* A lock that a call has taken. */
typedef struct TagLock
{
	LOCKTAG		tag;
	LOCKMODE	lockmode;
	LockAcquireResult result;
} TagLock;

/* vocabulary, two roots, one of them perhaps twice, and a subject */
#define TAG_MAX_LOCKS	6

/* A rename or merge, locked or complete. */
typedef struct TagMigration
{
	const char *function;		/* for messages */
	text	   *vocabulary;
	pg_uuid_t  *id;				/* of its event */
	Relation	rel;
	HeapTuple	row;
	Datum		values[Natts_tag_migrations];
	bool		nulls[Natts_tag_migrations];
	int64		event_no;
	pg_uuid_t	tag_id;
	bool		is_merge;
	bool		completed;
	bool		reconciled;
	int64		checked;
	int64		problems;
} TagMigration;

typedef struct TagCall TagCall;

/* What differs between the functions that record an event. */
typedef struct TagOperation
{
	const char *function;		/* for messages */
	const char *kind;			/* of the event */

	/* Takes the locks, and judges; see GateKind. */
	FencingOutcome (*judge) (TagCall *call);

	/*
	 * With everything locked and the number drawn: writes the state, and
	 * fills the columns of the event that judge has not.
	 */
	void		(*apply) (TagCall *call);
} TagOperation;

struct TagCall
{
	Gate		gate;			/* first, so that the one is the other */
	GateKind	kind;			/* with the function's name */
	const TagOperation *operation;

	/* arguments */
	text	   *vocabulary;
	pg_uuid_t  *event_id;
	TagReference reference;
	TagReference target;		/* of merge */
	text	   *subject;		/* or subscriber; NULL: none */
	text	   *name;			/* NULL: none */
	text	   *reason;			/* of release */
	pg_uuid_t  *migration;		/* of undo */
	int64		expected_version;
	int64		expected_target_version;

	/* opened when they are needed first */
	TagTables	tables;
	Relation	relations[STORE_NTABLES];

	TagLock		locks[TAG_MAX_LOCKS];
	int			nlocks;
	bool		makes_name;		/* the key lock of the name is ours */

	/* the event: written, or found as the receipt */
	int64		event_no;
	pg_uuid_t	owner;
	pg_uuid_t	tag_id;

	/* what judge has found, for apply */
	List	   *rows;			/* in force of the subject or subscriber */
	bool		associated;		/* the root has the subject */
	bool		changed_tags;	/* the reference has to be resolved again */
	TagMigration *undone;		/* by undo */
};

/*
 * tag.c: references and tags
 */
extern void tag_open(TagTables *tables, LOCKMODE lockmode);
extern void tag_close(TagTables *tables, LOCKMODE lockmode);
extern bool tag_find_id(const TagTables *tables, text *vocabulary, const pg_uuid_t *id,
						Snapshot snapshot, Tag *tag);
extern void tag_find(const TagTables *tables, text *vocabulary, TagReference *reference,
					 Snapshot snapshot);
extern void tag_find_owner(const TagTables *tables, text *vocabulary, const pg_uuid_t *owner,
						   TagReference *reference, Snapshot snapshot);
extern Relation tag_relation(TagCall *call, StoreTable table);
extern void tag_refresh(TagCall *call, TagReference *reference);
extern void tag_require_visible(TagCall *call, const TagReference *reference);
extern const char *tag_matched(const TagReference *reference);
pg_noreturn extern void tag_unknown(text *vocabulary, const TagReference *reference);
extern text *tag_arg_name(FunctionCallInfo fcinfo, int argno, const char *name);
extern bool tag_same_id(const pg_uuid_t *a, const pg_uuid_t *b);
extern char *tag_id_to_cstring(const pg_uuid_t *id);

/*
 * tag_lock.c: vocabularies, roots and subjects
 */
extern void tag_lock_vocabulary(TagCall *call);
extern void tag_lock_root(TagCall *call, TagReference *reference);
extern void tag_lock_for_migration(TagCall *call, TagReference **references, int nreferences);
extern void tag_lock_subject(TagCall *call, StoreTable table);
extern void tag_lock_name(TagCall *call);
extern void tag_lock_give_name_back(TagCall *call);
extern void tag_lock_give_back(TagCall *call);
extern void tag_lock_wait_for_events(text *vocabulary);

/*
 * tag_event.c: an event through the gate
 */
extern Datum tag_event_run(FunctionCallInfo fcinfo, TagCall *call);
extern void tag_event_begin(TagCall *call, FunctionCallInfo fcinfo, const TagOperation *operation);
extern void tag_event_emit(TagCall *call, const char *type, bool of_subject, const char *detail,
						   const char *detail_value);
extern Datum tag_event_answer(FunctionCallInfo fcinfo, FencingOutcome outcome, int64 event_no,
							  const TagReference *reference);
extern int64 tag_event_last_number(void);

/*
 * tag_name.c: names
 */
extern bool tag_name_claim(TagCall *call, TagReference *name);
extern void tag_name_insert(TagCall *call, const pg_uuid_t *owner, bool alias);
pg_noreturn extern void tag_name_reserved(const TagReference *name);

/*
 * tag_merge.c: the forest
 */
extern void tag_merge_insert(TagCall *call, const pg_uuid_t *source, const pg_uuid_t *target);
extern void tag_merge_end(TagCall *call, const pg_uuid_t *source);
extern int	tag_merge_move(TagCall *call, const pg_uuid_t *top, const pg_uuid_t *root);
extern pg_uuid_t tag_merge_reached(text *vocabulary, const pg_uuid_t *tag_id, int64 made_before,
								   int64 event_no, Snapshot snapshot);
extern Datum tag_merge_members(text *vocabulary, const pg_uuid_t *root, int64 event_no,
							   Snapshot snapshot);

/*
 * tag_reconcile.c: migrations after they took effect
 */
extern void tag_reconcile_lock(TagMigration *migration);
extern void tag_reconcile_require_done(const TagMigration *migration);

#pragma GCC visibility pop

#endif							/* TAG_H */
