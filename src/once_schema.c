/*-------------------------------------------------------------------------
 *
 * once_schema.c
 *	  Which part of a request identifies it, as defined: a subset of JSON
 *	  Schema.
 *
 * A schema is compiled into a tree once per backend and version; by that
 * once_projection.c projects requests.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "once.h"
#include "utils/builtins.h"

/* deeper than any request, and far from the stack's end */
#define MAX_SCHEMA_DEPTH	64

typedef struct Compilation
{
	const OncePath *path;		/* of the schema or keyword that is looked at */
	int			depth;
	bool		explain;		/* collect keywords without effect */
	List	   *unenforced;		/* their paths */
	List	   *unknown;
} Compilation;

static OnceSchema *compile_root(Compilation *compilation, Jsonb *definition);
static OnceSchema *compile_inner(Compilation *compilation, OncePath *path,
								 const JsonbValue *definition);
static OnceSchema *compile(Compilation *compilation, const JsonbValue *definition);
static void check_is_schema(const Compilation *compilation, const JsonbValue *definition);
static void compile_default(Compilation *compilation, OnceSchema *schema, JsonbValue *value);
static void compile_keyword(Compilation *compilation, OnceSchema *schema,
							const JsonbValue *keyword, const JsonbValue *value);
static void compile_type(Compilation *compilation, OnceSchema *schema, const JsonbValue *value);
static void compile_nullable(Compilation *compilation, OnceSchema *schema,
							 const JsonbValue *value);
static void compile_read_only(Compilation *compilation, OnceSchema *schema,
							  const JsonbValue *value);
static void add_type(const Compilation *compilation, OnceSchema *schema,
					 const JsonbValue *value);
pg_noreturn static void refuse_type(const Compilation *compilation, const char *found);
static void compile_properties(Compilation *compilation, OnceSchema *schema,
							   const JsonbValue *value);
static void compile_additional(Compilation *compilation, OnceSchema *schema,
							   const JsonbValue *value);
static void compile_items(Compilation *compilation, OnceSchema *schema,
						  const JsonbValue *value);
static void compile_format(Compilation *compilation, OnceSchema *schema,
						   const JsonbValue *value);
static void compile_extension(Compilation *compilation, OnceSchema *schema,
							  const JsonbValue *value);
static void compile_required(Compilation *compilation, OnceSchema *schema,
							 const JsonbValue *value);
static void require_property(Compilation *compilation, OnceSchema *schema,
							 const JsonbValue *name);
static void compile_other(Compilation *compilation, const JsonbValue *keyword);
static bool compile_boolean(const Compilation *compilation, const JsonbValue *value);
static void refuse_ignore(const Compilation *compilation, const OnceSchema *schema);
static void note_path(const Compilation *compilation, List **paths);
static char *join_paths(const List *paths);
static bool is_object(const JsonbValue *value);
static bool is_array(const JsonbValue *value);
static bool string_is(const JsonbValue *string, const char *text);
static bool string_in(const JsonbValue *string, const char *const *texts, size_t count);
static char *describe(const JsonbValue *value);
pg_noreturn static void refuse_keyword(const Compilation *compilation, const JsonbValue *value,
									   const char *message);

/* Keywords that describe the shape in a way this subset cannot follow. */
static const char *const unsupported_keywords[] = {
	"$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not",
	"if", "then", "else", "patternProperties", "unevaluatedProperties",
	"unevaluatedItems", "prefixItems", "additionalItems", "dependencies",
	"dependentSchemas"
};

/* Keywords that ask something of a value, which is not asked here. */
static const char *const unenforced_keywords[] = {
	"enum", "const", "multipleOf", "minimum", "maximum", "exclusiveMinimum",
	"exclusiveMaximum", "minLength", "maxLength", "pattern", "minItems", "maxItems",
	"uniqueItems", "contains", "minContains", "maxContains", "minProperties",
	"maxProperties", "propertyNames", "dependentRequired", "discriminator",
	"contentEncoding", "contentMediaType", "contentSchema"
};

/* Keywords that ask nothing, as do those that begin with "x-". */
static const char *const annotations[] = {
	"title", "description", "example", "examples", "deprecated", "writeOnly",
	"externalDocs", "xml", "definitions", "id", "$schema", "$id", "$anchor",
	"$dynamicAnchor", "$recursiveAnchor", "$comment", "$defs", "$vocabulary"
};

/* Keywords that have an effect, and what they do to a schema. */
static const struct
{
	const char *name;
	void		(*compile) (Compilation *compilation, OnceSchema *schema, const JsonbValue *value);
}			keywords[] = {
	{"type", compile_type},
	{"nullable", compile_nullable},
	{"properties", compile_properties},
	{"additionalProperties", compile_additional},
	{"items", compile_items},
	{"format", compile_format},
	{"readOnly", compile_read_only},
	{"x-fencing", compile_extension},
	{"required", NULL},			/* these two when all others are known */
	{"default", NULL}
};

/*
 * Compiles a schema in the current memory context.  Raises 0A000 for a
 * keyword that is not supported, 22023 for one that is used in a wrong way,
 * 54000 if it is nested too deep.
 */
OnceSchema *
once_schema_compile(Jsonb *definition)
{
	Compilation compilation = {0};

	return compile_root(&compilation, definition);
}

/*
 * Raises the same, and tells of the keywords that look as if they had an
 * effect.
 */
void
once_schema_check(Jsonb *definition)
{
	Compilation compilation = {.explain = true};
	StringInfoData detail;

	(void) compile_root(&compilation, definition);
	if (compilation.unenforced == NIL && compilation.unknown == NIL)
		return;

	initStringInfo(&detail);
	if (compilation.unenforced != NIL)
		appendStringInfo(&detail, _("Not enforced: %s."), join_paths(compilation.unenforced));
	if (compilation.unenforced != NIL && compilation.unknown != NIL)
		appendStringInfoChar(&detail, '\n');
	if (compilation.unknown != NIL)
		appendStringInfo(&detail, _("Not known, perhaps misspelt: %s."),
						 join_paths(compilation.unknown));
	ereport(NOTICE,
			(errmsg("request_schema has keywords that have no effect"),
			 errdetail_internal("%s", detail.data),
			 errhint("A request schema says what identifies a request; it does not validate values.")));
}

/* A schema that is in no other; it cannot be ignored as a whole. */
static OnceSchema *
compile_root(Compilation *compilation, Jsonb *definition)
{
	JsonbValue	value;
	OnceSchema *schema;

	once_value_root(definition, &value);
	schema = compile(compilation, &value);
	refuse_ignore(compilation, schema);
	return schema;
}

/* A schema within the one that is looked at. */
static OnceSchema *
compile_inner(Compilation *compilation, OncePath *path, const JsonbValue *definition)
{
	OnceSchema *schema;

	path->outer = compilation->path;
	compilation->path = path;
	compilation->depth++;
	schema = compile(compilation, definition);
	compilation->depth--;
	compilation->path = path->outer;
	return schema;
}

/* One schema, and those within it. */
static OnceSchema *
compile(Compilation *compilation, const JsonbValue *definition)
{
	OnceSchema *schema = (OnceSchema *) palloc0(sizeof(OnceSchema));
	OncePath	path = {.outer = compilation->path};
	JsonbIterator *it;
	JsonbValue	keyword;
	JsonbValue	value;
	JsonbValue *required;
	JsonbValue *fallback;

	check_is_schema(compilation, definition);
	if (definition->type == jbvBool)
	{
		schema->kinds = ONCE_KIND_ANY;
		return schema;
	}

	it = JsonbIteratorInit(definition->val.binary.data);
	(void) JsonbIteratorNext(&it, &keyword, true);
	while (JsonbIteratorNext(&it, &keyword, true) == WJB_KEY)
	{
		(void) JsonbIteratorNext(&it, &value, true);
		path.name = keyword.val.string.val;
		path.length = keyword.val.string.len;
		compilation->path = &path;
		compile_keyword(compilation, schema, &keyword, &value);
	}

	if (schema->kinds == 0)
		schema->kinds = ONCE_KIND_ANY;
	else
	{
		schema->whitelist = schema->whitelist || (schema->kinds & ONCE_KIND_OBJECT) != 0;
		if (schema->nullable)	/* as OpenAPI 3.0 has it */
			schema->kinds |= ONCE_KIND_NULL;
	}

	/* these refer to what stands beside them, the default to all of it */
	required = getKeyJsonValueFromContainer(definition->val.binary.data, "required", 8, NULL);
	fallback = getKeyJsonValueFromContainer(definition->val.binary.data, "default", 7, NULL);
	path.name = "required";
	path.length = 8;
	if (required != NULL)
		compile_required(compilation, schema, required);
	path.name = "default";
	path.length = 7;
	if (fallback != NULL)
		compile_default(compilation, schema, fallback);
	compilation->path = path.outer;
	return schema;
}

/* An object, or true, which accepts anything. */
static void
check_is_schema(const Compilation *compilation, const JsonbValue *definition)
{
	if (compilation->depth > MAX_SCHEMA_DEPTH)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("request_schema is nested too deep"),
				 errdetail("The limit is %d schemas in each other.", MAX_SCHEMA_DEPTH)));
	if (is_object(definition) || (definition->type == jbvBool && definition->val.boolean))
		return;
	if (compilation->path != NULL)
		refuse_keyword(compilation, definition,
					   _("\"%s\" in request_schema must be an object, not %s"));
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("request_schema must be an object, not %s", describe(definition)),
			 definition->type == jbvString ?
			 errhint("It is a string that is JSON itself: pass the object.") : 0));
}

/* It must match the schema that it is in. */
static void
compile_default(Compilation *compilation, OnceSchema *schema, JsonbValue *value)
{
	char	   *refusal;

	schema->default_value = once_projection_make(schema, NIL, JsonbValueToJsonb(value), &refusal);
	if (schema->default_value == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"%s\" in request_schema does not match its own schema",
						once_value_path_text(compilation->path)),
				 errdetail_internal("%s", refusal)));
}

/* All keywords but those that refer to others. */
static void
compile_keyword(Compilation *compilation, OnceSchema *schema, const JsonbValue *keyword,
				const JsonbValue *value)
{
	for (size_t i = 0; i < lengthof(keywords); i++)
	{
		if (string_is(keyword, keywords[i].name))
		{
			if (keywords[i].compile != NULL)
				keywords[i].compile(compilation, schema, value);
			return;
		}
	}
	compile_other(compilation, keyword);
}

static void
compile_nullable(Compilation *compilation, OnceSchema *schema, const JsonbValue *value)
{
	schema->nullable = compile_boolean(compilation, value);
}

static void
compile_read_only(Compilation *compilation, OnceSchema *schema, const JsonbValue *value)
{
	schema->read_only = compile_boolean(compilation, value);
}

/* A name, or an array of names. */
static void
compile_type(Compilation *compilation, OnceSchema *schema, const JsonbValue *value)
{
	JsonbIterator *it;
	JsonbValue	name;

	if (!is_array(value))
	{
		add_type(compilation, schema, value);
		return;
	}
	it = JsonbIteratorInit(value->val.binary.data);
	(void) JsonbIteratorNext(&it, &name, true);
	while (JsonbIteratorNext(&it, &name, true) == WJB_ELEM)
		add_type(compilation, schema, &name);
	if (schema->kinds == 0)
		refuse_type(compilation, _("an empty array"));
}

/* One name. */
static void
add_type(const Compilation *compilation, OnceSchema *schema, const JsonbValue *value)
{
	for (const OnceKindName *kind = once_value_kinds;
		 kind->name != NULL && value->type == jbvString; kind++)
	{
		if (string_is(value, kind->name))
		{
			schema->kinds |= kind->kinds;
			return;
		}
	}
	refuse_type(compilation, describe(value));
}

/* Raises 22023. */
static void
refuse_type(const Compilation *compilation, const char *found)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("\"%s\" in request_schema must be a type, or an array of types, not %s",
					once_value_path_text(compilation->path), found),
			 errhint("Available types: null, boolean, integer, number, string, array, object.")));
}

/* A schema for each. */
static void
compile_properties(Compilation *compilation, OnceSchema *schema, const JsonbValue *value)
{
	JsonbIterator *it;
	JsonbValue	name;
	JsonbValue	definition;

	if (!is_object(value))
		refuse_keyword(compilation, value,
					   _("\"%s\" in request_schema must be an object with a schema for each property, not %s"));

	schema->whitelist = true;
	schema->properties = (OnceProperty *)
		palloc0(sizeof(OnceProperty) * Max(JsonContainerSize(value->val.binary.data), 1));
	it = JsonbIteratorInit(value->val.binary.data);
	(void) JsonbIteratorNext(&it, &name, true);
	while (JsonbIteratorNext(&it, &name, true) == WJB_KEY)
	{
		OnceProperty *property = &schema->properties[schema->nproperties++];
		OncePath	path = {.name = name.val.string.val,.length = name.val.string.len};

		(void) JsonbIteratorNext(&it, &definition, true);
		property->name = pnstrdup(name.val.string.val, name.val.string.len);
		property->length = name.val.string.len;
		property->schema = compile_inner(compilation, &path, &definition);
	}
}

/* May a request have properties that are not listed?  They are left out. */
static void
compile_additional(Compilation *compilation, OnceSchema *schema, const JsonbValue *value)
{
	if (is_object(value))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("\"%s\" in request_schema must be true or false, not a schema",
						once_value_path_text(compilation->path)),
				 errhint("A property with schema {} takes any value whole into the hash.")));
	schema->open = compile_boolean(compilation, value);
	schema->whitelist = true;
}

/* One schema for all of them. */
static void
compile_items(Compilation *compilation, OnceSchema *schema, const JsonbValue *value)
{
	if (is_array(value))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("\"%s\" in request_schema must be one schema for all items, not an array",
						once_value_path_text(compilation->path))));
	compilation->depth++;
	schema->items = compile(compilation, value);
	compilation->depth--;
	refuse_ignore(compilation, schema->items);
}

/* Some are normalized; others have no effect, which is noted. */
static void
compile_format(Compilation *compilation, OnceSchema *schema, const JsonbValue *value)
{
	if (value->type != jbvString)
		refuse_keyword(compilation, value, _("\"%s\" in request_schema must be a string, not %s"));
	if (string_is(value, "date-time"))
		schema->format = ONCE_FORMAT_DATE_TIME;
	else if (string_is(value, "date"))
		schema->format = ONCE_FORMAT_DATE;
	else if (string_is(value, "uuid"))
		schema->format = ONCE_FORMAT_UUID;
	else
		note_path(compilation, &compilation->unenforced);
}

/* "x-fencing" */
static void
compile_extension(Compilation *compilation, OnceSchema *schema, const JsonbValue *value)
{
	if (value->type == jbvString && string_is(value, "exact"))
		schema->exact = true;
	else if (value->type == jbvString && string_is(value, "ignore"))
		schema->ignore = true;
	else
		refuse_keyword(compilation, value,
					   _("\"%s\" in request_schema must be \"exact\" or \"ignore\", not %s"));
}

/*
 * What is left out of the hash is not asked for, nor what OpenAPI 3.0
 * requires of responses only.
 */
static void
compile_required(Compilation *compilation, OnceSchema *schema, const JsonbValue *value)
{
	JsonbIterator *it;
	JsonbValue	name;

	if (!is_array(value))
		refuse_keyword(compilation, value,
					   _("\"%s\" in request_schema must be an array of property names, not %s"));

	it = JsonbIteratorInit(value->val.binary.data);
	(void) JsonbIteratorNext(&it, &name, true);
	while (JsonbIteratorNext(&it, &name, true) == WJB_ELEM)
		require_property(compilation, schema, &name);
}

/* One that is not listed must be allowed. */
static void
require_property(Compilation *compilation, OnceSchema *schema, const JsonbValue *name)
{
	OnceProperty *property;

	if (name->type != jbvString)
		refuse_keyword(compilation, name,
					   _("\"%s\" in request_schema must have names of properties, not %s"));
	property = once_value_property(schema, name->val.string.val, name->val.string.len);
	if (property != NULL)
		property->required = !property->schema->read_only;
	else if (!schema->open)
		refuse_keyword(compilation, name,
					   _("\"%s\" in request_schema names a property that is not listed: %s"));
}

/* A keyword that makes no difference to the hash. */
static void
compile_other(Compilation *compilation, const JsonbValue *keyword)
{
	if (string_in(keyword, unsupported_keywords, lengthof(unsupported_keywords)))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("keyword \"%s\" is not supported in request_schema",
						once_value_path_text(compilation->path)),
				 errhint("Write out the properties that identify the request.")));
	if (string_in(keyword, unenforced_keywords, lengthof(unenforced_keywords)))
		note_path(compilation, &compilation->unenforced);
	else if (!string_in(keyword, annotations, lengthof(annotations)) &&
			 !(keyword->val.string.len >= 2 && memcmp(keyword->val.string.val, "x-", 2) == 0))
		note_path(compilation, &compilation->unknown);
}

/* Raises 22023 for another value. */
static bool
compile_boolean(const Compilation *compilation, const JsonbValue *value)
{
	if (value->type != jbvBool)
		refuse_keyword(compilation, value,
					   _("\"%s\" in request_schema must be true or false, not %s"));
	return value->val.boolean;
}

/* Only a field of an object can be left out. */
static void
refuse_ignore(const Compilation *compilation, const OnceSchema *schema)
{
	OncePath	path = {.outer = compilation->path,.name = "x-fencing",.length = 9};

	if (schema->ignore)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"%s\" in request_schema cannot be \"ignore\"", once_value_path_text(&path)),
				 errhint("Only a property can be left out.")));
}

/* For the NOTICE at definition. */
static void
note_path(const Compilation *compilation, List **paths)
{
	if (compilation->explain)
		*paths = lappend(*paths, once_value_path_text(compilation->path));
}

/* With commas between them. */
static char *
join_paths(const List *paths)
{
	StringInfoData text;
	ListCell   *lc;

	initStringInfo(&text);
	foreach(lc, paths)
		appendStringInfo(&text, "%s%s", text.len == 0 ? "" : ", ", (char *) lfirst(lc));
	return text.data;
}

static bool
is_object(const JsonbValue *value)
{
	return value->type == jbvBinary && JsonContainerIsObject(value->val.binary.data);
}

static bool
is_array(const JsonbValue *value)
{
	return value->type == jbvBinary && JsonContainerIsArray(value->val.binary.data);
}

/* Of a value that is a string. */
static bool
string_is(const JsonbValue *string, const char *text)
{
	return string->val.string.len == (int) strlen(text) &&
		memcmp(string->val.string.val, text, string->val.string.len) == 0;
}

/* Of a value that is a string. */
static bool
string_in(const JsonbValue *string, const char *const *texts, size_t count)
{
	for (size_t i = 0; i < count; i++)
	{
		if (string_is(string, texts[i]))
			return true;
	}
	return false;
}

/* What stands there instead; a schema, unlike a request, is no secret. */
static char *
describe(const JsonbValue *value)
{
	switch (value->type)
	{
		case jbvNull:
			return pstrdup("null");
		case jbvBool:
			return pstrdup(value->val.boolean ? "true" : "false");
		case jbvString:
			return psprintf("\"%s\"", once_value_clip(value->val.string.val, value->val.string.len));
		case jbvNumeric:
			return pstrdup(_("a number"));
		default:
			return pstrdup(is_object(value) ? _("an object") : _("an array"));
	}
}

/*
 * Raises 22023; the message takes the path of the keyword and what stands
 * there.
 */
static void
refuse_keyword(const Compilation *compilation, const JsonbValue *value, const char *message)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg_internal(message, once_value_path_text(compilation->path), describe(value))));
}
