/*-------------------------------------------------------------------------
 *
 * once.h
 *	  Idempotent operations.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef ONCE_H
#define ONCE_H

#include "fencing.h"
#include "nodes/pg_list.h"
#include "utils/jsonb.h"

/* nobody else's symbols: PostgreSQL 15 loads libraries with global ones */
#pragma GCC visibility push(hidden)

/*
 * once_operation.c: operations and the versions of their request schemas
 */
typedef struct OnceSchema OnceSchema;

typedef struct OnceVersion
{
	int			hash_version;
	bool		retired;
	OnceSchema *schema;
} OnceVersion;

typedef struct OnceOperation
{
	char	   *authorize_schema;
	char	   *authorize_name;
	char	   *authorize_owner;
	List	   *versions;		/* OnceVersion, ascending */
} OnceOperation;

extern void once_operation_load(const text *name, OnceOperation *operation);
extern const OnceVersion *once_operation_version(List *versions, int hash_version);
pg_noreturn extern void once_operation_unknown_version(const text *operation, int hash_version);
pg_noreturn extern void once_operation_refuse_request(const text *operation, int hash_version,
													  const char *refusal);

/*
 * once_authorize.c: may the caller do this?
 */
extern bool once_authorize(text *tenant_id, text *operation, Jsonb *request, Jsonb *auth,
						   const char *schema, const char *name, const char *owner);
extern void once_authorize_check(Oid function);
extern void once_authorize_init(void);

/*
 * once_schema.c, once_projection.c, once_format.c: which part of a request
 * identifies it
 */
typedef enum OnceFormat
{
	ONCE_FORMAT_NONE,
	ONCE_FORMAT_DATE_TIME,
	ONCE_FORMAT_DATE,
	ONCE_FORMAT_UUID
} OnceFormat;

/* kinds of JSON value, as bits; a schema without "type" accepts all */
#define ONCE_KIND_NULL		(1 << 0)
#define ONCE_KIND_BOOLEAN	(1 << 1)
#define ONCE_KIND_INTEGER	(1 << 2)	/* a number without fraction */
#define ONCE_KIND_NUMBER		(1 << 3)
#define ONCE_KIND_STRING		(1 << 4)
#define ONCE_KIND_ARRAY		(1 << 5)
#define ONCE_KIND_OBJECT		(1 << 6)
#define ONCE_KIND_ANY		0x7F

typedef struct OnceProperty
{
	const char *name;
	int			length;
	bool		required;
	struct OnceSchema *schema;
} OnceProperty;

struct OnceSchema
{
	int			kinds;
	OnceFormat	format;
	bool		ignore;			/* left out of the hash */
	bool		exact;			/* the format does not count */
	bool		read_only;
	bool		nullable;
	bool		whitelist;		/* of an object only the properties count */
	bool		open;			/* additionalProperties: others are left out */
	OnceProperty *properties;
	int			nproperties;
	OnceSchema *items;			/* NULL: anything, as it is */
	Jsonb	   *default_value;	/* projected; NULL: none */
};

/* Where in a document, from the inside out; NULL is the document itself. */
typedef struct OncePath
{
	const struct OncePath *outer;
	const char *name;			/* of a field; NULL: an element of an array */
	int			length;
	int			index;
} OncePath;

extern OnceSchema *once_schema_compile(Jsonb *definition);
extern void once_schema_check(Jsonb *definition);
extern Jsonb *once_projection_make(const OnceSchema *schema, List *later, Jsonb *request,
								   char **refusal);
extern Jsonb *once_projection_visible(const OnceSchema *schema, Jsonb *request);
extern char *once_format_normalize(OnceFormat format, const char *string, int length);
extern const char *once_format_example(OnceFormat format);

/*
 * once_value.c: what these share
 */
typedef struct OnceKindName
{
	const char *name;			/* as "type" in a schema has it */
	int			kinds;
} OnceKindName;

extern const OnceKindName once_value_kinds[];	/* ends with NULL */

extern const char *once_value_kind_names(int kinds);
extern OnceProperty *once_value_property(const OnceSchema *schema, const char *name,
										 int length);
extern void once_value_root(Jsonb *document, JsonbValue *value);
extern char *once_value_path_text(const OncePath *path);
extern char *once_value_clip(const char *text, int length);

#pragma GCC visibility pop

#endif							/* ONCE_H */
