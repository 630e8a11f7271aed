/*-------------------------------------------------------------------------
 *
 * once_value.c
 *	  Values of a request: their kinds, their place in the document, and the
 *	  properties that a schema has for them.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "once.h"

static void append_path(StringInfo text, const OncePath *path);

const OnceKindName once_value_kinds[] = {
	{"null", ONCE_KIND_NULL},
	{"boolean", ONCE_KIND_BOOLEAN},
	{"integer", ONCE_KIND_INTEGER},
	{"number", ONCE_KIND_NUMBER | ONCE_KIND_INTEGER},
	{"string", ONCE_KIND_STRING},
	{"array", ONCE_KIND_ARRAY},
	{"object", ONCE_KIND_OBJECT},
	{NULL, 0}
};

/* "number" without "integer", which it includes */
const char *
once_value_kind_names(int kinds)
{
	StringInfoData text;

	initStringInfo(&text);
	for (size_t i = 0; once_value_kinds[i].name != NULL; i++)
	{
		int			kind = once_value_kinds[i].kinds & ~ONCE_KIND_INTEGER;

		if (kind == 0 && (kinds & ONCE_KIND_NUMBER) == 0)
			kind = ONCE_KIND_INTEGER;
		if ((kinds & kind) != 0)
			appendStringInfo(&text, "%s%s", text.len == 0 ? "" : ", ", once_value_kinds[i].name);
	}
	return text.data;
}

/* The property of this name, or NULL. */
OnceProperty *
once_value_property(const OnceSchema *schema, const char *name, int length)
{
	for (int i = 0; i < schema->nproperties; i++)
	{
		OnceProperty *property = &schema->properties[i];

		if (property->length == length && memcmp(property->name, name, length) == 0)
			return property;
	}
	return NULL;
}

/* As JavaScript has it: items[2].price */
char *
once_value_path_text(const OncePath *path)
{
	StringInfoData text;

	initStringInfo(&text);
	append_path(&text, path);
	return text.data;
}

/* From the outside in. */
static void
append_path(StringInfo text, const OncePath *path)
{
	if (path->outer != NULL)
		append_path(text, path->outer);
	if (path->name == NULL)
		appendStringInfo(text, "[%d]", path->index);
	else
		appendStringInfo(text, "%s%s", path->outer == NULL ? "" : ".",
						 once_value_clip(path->name, path->length));
}

/* What of a text goes into a message: the client may have sent megabytes. */
char *
once_value_clip(const char *text, int length)
{
	const int	limit = 64;

	return length <= limit ? pnstrdup(text, length) :
		psprintf("%.*s...", pg_mbcliplen(text, length, limit), text);
}

/* A document as a value; of a scalar its own. */
void
once_value_root(Jsonb *document, JsonbValue *value)
{
	if (!JB_ROOT_IS_SCALAR(document) || !JsonbExtractScalar(&document->root, value))
	{
		value->type = jbvBinary;
		value->val.binary.data = &document->root;
		value->val.binary.len = VARSIZE_ANY_EXHDR(document);
	}
}
