/*-------------------------------------------------------------------------
 *
 * canonical.c
 *	  Canonical text of a jsonb document, version 1.
 *
 * That is RFC 8785 (JSON Canonicalization Scheme), except that numbers are
 * kept exact.  RFC 8785 writes a number as ECMAScript would after reading it
 * into an IEEE 754 double, and so merges different numbers above 2^53.  Here
 * the same layout (ECMA-262, Number::toString) is applied to the exact
 * decimal.  Wherever that decimal is the shortest one for its double, the
 * results are equal.
 *
 * The walk keeps its own stack instead of recursing, so that the nesting
 * limit, which is part of the version, does not depend on max_stack_depth.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "digest.h"
#include "fencing.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/numeric.h"

/* arrays and objects in each other; a scalar is 0 */
#define MAX_DEPTH			512

/* ECMA-262: from here on, and below 10^-6, numbers have an exponent */
#define MAX_PLAIN_DIGITS	21

/* objects with more members are sorted by qsort() */
#define MOVED_MEMBERS		16

typedef struct Member
{
	JsonbValue	key;
	JsonbValue	value;
} Member;

/* An array or object whose elements are being written. */
typedef struct Level
{
	bool		is_object;
	bool		first;
	JsonbIterator *elements;	/* of an array */
	Member	   *members;		/* of an object, sorted */
	uint32		nmembers;
	uint32		next;
} Level;

static inline void append_bytes(StringInfo out, const char *bytes, int length);
static void open_level(Level *level, JsonbContainer *container, StringInfo out);
static bool next_value(Level *level, JsonbValue *value, StringInfo out);
static void read_members(Level *level, JsonbContainer *container);
static void sort_members(Member *members, int nmembers);
static int	compare_members(const void *a, const void *b);
static void write_scalar(const JsonbValue *value, StringInfo out);
static void write_string(const char *string, int length, StringInfo out);
static inline bool is_plain(const char *string);
static void write_number(Numeric number, StringInfo out);

PG_FUNCTION_INFO_V1(fencing_canonical);

/*
 * fencing_canonical(payload jsonb, digest_version int) → text
 */
Datum
fencing_canonical(PG_FUNCTION_ARGS)
{
	StringInfoData out;

	initStringInfo(&out);
	canonical_append(PG_GETARG_JSONB_P(0), PG_GETARG_INT32(1), &out);
	PG_RETURN_TEXT_P(cstring_to_text_with_len(out.data, out.len));
}

/* Digests have the version of the text that they are made of. */
bool
canonical_is_known_version(int digest_version)
{
	return digest_version == DIGEST_VERSION;
}

/* Raises LF002 for one that is not known. */
void
canonical_require_version(int digest_version)
{
	if (!canonical_is_known_version(digest_version))
		ereport(ERROR,
				(errcode(ERRCODE_FENCING_UNKNOWN_VERSION),
				 errmsg("digest version %d is not known", digest_version)));
}

/*
 * Appends the canonical text of a document to out, in UTF-8.  Raises LF002
 * for a version we do not know, 54000 if the document is nested too deep,
 * 0A000 in a database that is not in UTF8, and 22023 for a number that is
 * none.
 */
void
canonical_append(Jsonb *document, int digest_version, StringInfo out)
{
	Level	   *levels;
	int			depth = 0;
	JsonbValue	value;

	canonical_require_version(digest_version);
	if (GetDatabaseEncoding() != PG_UTF8)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("canonical form is not supported in a database with encoding %s",
						GetDatabaseEncodingName()),
				 errhint("Use a database with encoding UTF8.")));

	if (JB_ROOT_IS_SCALAR(document))
	{
		(void) JsonbExtractScalar(&document->root, &value);
		write_scalar(&value, out);
		return;
	}

	levels = (Level *) palloc(sizeof(Level) * (MAX_DEPTH + 1));
	open_level(&levels[++depth], &document->root, out);
	while (depth > 0)
	{
		CHECK_FOR_INTERRUPTS();
		if (!next_value(&levels[depth], &value, out))
			depth--;
		else if (value.type != jbvBinary)
			write_scalar(&value, out);
		else if (depth == MAX_DEPTH)
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("document is nested too deep"),
					 errdetail("The limit is %d arrays and objects in each other.", MAX_DEPTH)));
		else
			open_level(&levels[++depth], value.val.binary.data, out);
	}
	pfree(levels);
}

/*
 * appendBinaryStringInfo() as a few instructions.  No zero byte is kept at the
 * end: nobody reads it as a C string.
 */
static inline void
append_bytes(StringInfo out, const char *bytes, int length)
{
	if (out->len + length >= out->maxlen)
		enlargeStringInfo(out, length);
	memcpy(out->data + out->len, bytes, length);
	out->len += length;
}

/* Begins an array or object. */
static void
open_level(Level *level, JsonbContainer *container, StringInfo out)
{
	level->is_object = JsonContainerIsObject(container);
	level->first = true;
	if (level->is_object)
		read_members(level, container);
	else
	{
		JsonbValue	begin;

		level->elements = JsonbIteratorInit(container);
		(void) JsonbIteratorNext(&level->elements, &begin, true);
	}
	appendStringInfoCharMacro(out, level->is_object ? '{' : '[');
}

/*
 * Gives the next value of an array or object, having written what stands
 * before it; or ends the array or object and returns false.
 */
static bool
next_value(Level *level, JsonbValue *value, StringInfo out)
{
	if (level->is_object)
	{
		Member	   *member = &level->members[level->next++];

		if (level->next > level->nmembers)
		{
			pfree(level->members);
			appendStringInfoCharMacro(out, '}');
			return false;
		}
		if (!level->first)
			appendStringInfoCharMacro(out, ',');
		write_string(member->key.val.string.val, member->key.val.string.len, out);
		appendStringInfoCharMacro(out, ':');
		*value = member->value;
	}
	else
	{
		if (JsonbIteratorNext(&level->elements, value, true) != WJB_ELEM)
		{
			appendStringInfoCharMacro(out, ']');
			return false;
		}
		if (!level->first)
			appendStringInfoCharMacro(out, ',');
	}
	level->first = false;
	return true;
}

/* Reads and sorts the members of an object: jsonb has its own order. */
static void
read_members(Level *level, JsonbContainer *container)
{
	JsonbIterator *it = JsonbIteratorInit(container);
	JsonbValue	key;
	Member	   *member;

	level->nmembers = JsonContainerSize(container);
	level->next = 0;
	level->members = (Member *) palloc_extended(sizeof(Member) * Max(level->nmembers, 1),
												MCXT_ALLOC_HUGE);
	(void) JsonbIteratorNext(&it, &key, true);	/* the beginning */
	member = level->members;
	while (JsonbIteratorNext(&it, &key, true) == WJB_KEY)
	{
		member->key = key;
		(void) JsonbIteratorNext(&it, &member->value, true);
		member++;
	}
	sort_members(level->members, level->nmembers);
}

/*
 * Most objects have a few members, of which jsonb has the shorter ones first:
 * moving those that are out of place costs less than qsort(), which swaps such
 * large elements word by word.
 */
static void
sort_members(Member *members, int nmembers)
{
	if (nmembers > MOVED_MEMBERS)
	{
		qsort(members, nmembers, sizeof(Member), compare_members);
		return;
	}
	for (int i = 1; i < nmembers; i++)
	{
		Member		member = members[i];
		int			place = i;

		while (place > 0 && compare_members(&members[place - 1], &member) > 0)
			place--;
		if (place == i)
			continue;
		memmove(&members[place + 1], &members[place], (i - place) * sizeof(Member));
		members[place] = member;
	}
}

/*
 * Orders keys by UTF-16 code units, as RFC 8785 (3.2.3) wants, without
 * converting them.  That is the order of their UTF-8 bytes but for one thing:
 * characters beyond the BMP are surrogates (U+D800 to U+DFFF) in UTF-16, and
 * so sort before U+E000 to U+FFFF.  In UTF-8 those begin with a byte from
 * 0xF0 up, these with 0xEE or 0xEF.
 */
static int
compare_members(const void *a, const void *b)
{
	const JsonbValue *ka = &((const Member *) a)->key;
	const JsonbValue *kb = &((const Member *) b)->key;
	const unsigned char *sa = (const unsigned char *) ka->val.string.val;
	const unsigned char *sb = (const unsigned char *) kb->val.string.val;
	int			length = Min(ka->val.string.len, kb->val.string.len);

	/* an object may have millions of keys */
	CHECK_FOR_INTERRUPTS();
	for (int i = 0; i < length; i++)
	{
		if (sa[i] == sb[i])
			continue;
		if (sa[i] >= 0xEE && sb[i] >= 0xEE && (sa[i] >= 0xF0) != (sb[i] >= 0xF0))
			return sa[i] >= 0xF0 ? -1 : 1;
		return sa[i] < sb[i] ? -1 : 1;
	}
	return ka->val.string.len - kb->val.string.len;
}

/* A value that has no others in it. */
static void
write_scalar(const JsonbValue *value, StringInfo out)
{
	switch (value->type)
	{
		case jbvNull:
			append_bytes(out, "null", 4);
			break;
		case jbvBool:
			appendStringInfoString(out, value->val.boolean ? "true" : "false");
			break;
		case jbvString:
			write_string(value->val.string.val, value->val.string.len, out);
			break;
		case jbvNumeric:
			write_number(value->val.numeric, out);
			break;
		default:
			elog(ERROR, "unexpected jsonb value type %d", (int) value->type);
	}
}

/* Only what must be escaped is; everything else, all non-ASCII too, stays. */
static void
write_string(const char *string, int length, StringInfo out)
{
	static const char hex_digits[] = "0123456789abcdef";
	const char *end = string + length;

	appendStringInfoCharMacro(out, '"');
	while (string < end)
	{
		const char *plain = string;

		CHECK_FOR_INTERRUPTS();
		while (end - string >= (int) sizeof(uint64) && is_plain(string))
			string += sizeof(uint64);
		while (string < end && (unsigned char) *string >= 0x20 &&
			   *string != '"' && *string != '\\')
			string++;
		append_bytes(out, plain, string - plain);
		if (string == end)
			break;

		switch (*string)
		{
			case '"':
				append_bytes(out, "\\\"", 2);
				break;
			case '\\':
				append_bytes(out, "\\\\", 2);
				break;
			case '\b':
				append_bytes(out, "\\b", 2);
				break;
			case '\t':
				append_bytes(out, "\\t", 2);
				break;
			case '\n':
				append_bytes(out, "\\n", 2);
				break;
			case '\f':
				append_bytes(out, "\\f", 2);
				break;
			case '\r':
				append_bytes(out, "\\r", 2);
				break;
			default:
				append_bytes(out, "\\u00", 4);
				appendStringInfoChar(out, hex_digits[(unsigned char) *string >> 4]);
				appendStringInfoChar(out, hex_digits[(unsigned char) *string & 0xF]);
				break;
		}
		string++;
	}
	appendStringInfoCharMacro(out, '"');
}

/*
 * Whether none of eight bytes must be escaped.  A byte below n has its highest
 * bit set in (x - n) & ~x; one that equals c is below 1 in x ^ c.  A borrow
 * may set the bit of a byte above such a one, but none where there is none.
 */
static inline bool
is_plain(const char *string)
{
	const uint64 ones = UINT64CONST(0x0101010101010101);
	uint64		bytes;
	uint64		quotes;
	uint64		backslashes;

	memcpy(&bytes, string, sizeof(bytes));
	quotes = bytes ^ (ones * '"');
	backslashes = bytes ^ (ones * '\\');
	return ((((bytes - ones * 0x20) & ~bytes) |
			 ((quotes - ones) & ~quotes) |
			 ((backslashes - ones) & ~backslashes)) & (ones * 0x80)) == 0;
}

/*
 * Writes 0.d1 d2 ... dk * 10^point, without leading or trailing zero digits,
 * as ECMA-262 lays it out.  The digits come from numeric_send(): its format
 * is that of the wire protocol, and it does not expand an exponent as
 * numeric_out() does.
 */
static void
write_number(Numeric number, StringInfo out)
{
	bytea	   *sent = DatumGetByteaPP(DirectFunctionCall1(numeric_send, NumericGetDatum(number)));
	const unsigned char *field = (const unsigned char *) VARDATA_ANY(sent);
	int			ngroups = field[0] << 8 | field[1];
	int			weight = (int16) (field[2] << 8 | field[3]);
	int			sign = field[4] << 8 | field[5];
	char	   *start;
	char	   *digits;
	int			ndigits = 0;
	int			point;

	if (sign != 0x0000 && sign != 0x4000)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("document contains a number that is not finite")));

	/*
	 * four decimal digits per group; the first group begins at 10^(4 weight +
	 * 3)
	 */
	digits = start = (char *) palloc(4 * ngroups + 1);
	point = 4 * (weight + 1);
	for (int i = 0; i < ngroups; i++)
	{
		int			group = field[8 + 2 * i] << 8 | field[9 + 2 * i];

		digits[ndigits++] = '0' + group / 1000;
		digits[ndigits++] = '0' + group / 100 % 10;
		digits[ndigits++] = '0' + group / 10 % 10;
		digits[ndigits++] = '0' + group % 10;
	}
	for (; ndigits > 0 && *digits == '0'; digits++, ndigits--)
		point--;
	while (ndigits > 0 && digits[ndigits - 1] == '0')
		ndigits--;

	if (ndigits == 0)
		appendStringInfoChar(out, '0');
	else
	{
		if (sign == 0x4000)
			appendStringInfoChar(out, '-');

		if (ndigits <= point && point <= MAX_PLAIN_DIGITS)
		{
			append_bytes(out, digits, ndigits);
			for (int i = ndigits; i < point; i++)
				appendStringInfoChar(out, '0');
		}
		else if (0 < point && point <= MAX_PLAIN_DIGITS)
		{
			append_bytes(out, digits, point);
			appendStringInfoChar(out, '.');
			append_bytes(out, digits + point, ndigits - point);
		}
		else if (-6 < point && point <= 0)
		{
			append_bytes(out, "0.", 2);
			for (int i = point; i < 0; i++)
				appendStringInfoChar(out, '0');
			append_bytes(out, digits, ndigits);
		}
		else
		{
			appendStringInfoChar(out, digits[0]);
			if (ndigits > 1)
			{
				appendStringInfoChar(out, '.');
				append_bytes(out, digits + 1, ndigits - 1);
			}
			appendStringInfo(out, "e%+d", point - 1);
		}
	}
	pfree(start);
	pfree(sent);
}
