/*-------------------------------------------------------------------------
 *
 * once_format.c
 *	  One spelling for strings whose schema gives them a format.
 *
 * Dates and times are those of RFC 3339, section 5.6, UUIDs those of RFC
 * 4122. The parsing is our own because the server's input functions accept
 * much more, and depend on DateStyle and TimeZone.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>

#include "once.h"
#include "utils/datetime.h"

static char *normalize_date_time(const char *string, int length);
static bool read_date(const char *string, int *year, int *month, int *day);
static bool read_digits(const char *string, int count, int *value);
static char *normalize_uuid(const char *string, int length);

/* The one spelling of a formatted string, or NULL if it is none. */
char *
once_format_normalize(OnceFormat format, const char *string, int length)
{
	int			year;
	int			month;
	int			day;

	switch (format)
	{
		case ONCE_FORMAT_DATE_TIME:
			return normalize_date_time(string, length);
		case ONCE_FORMAT_DATE:
			if (length != 10 || !read_date(string, &year, &month, &day))
				return NULL;
			return pnstrdup(string, length);
		case ONCE_FORMAT_UUID:
			return normalize_uuid(string, length);
		case ONCE_FORMAT_NONE:
			break;
	}
	return pnstrdup(string, length);
}

/* Its name and what it looks like, for messages. */
const char *
once_format_example(OnceFormat format)
{
	switch (format)
	{
		case ONCE_FORMAT_DATE_TIME:
			return "date-time (2026-01-31T09:30:00.123456Z)";
		case ONCE_FORMAT_DATE:
			return "date (2026-01-31)";
		case ONCE_FORMAT_UUID:
			return "uuid (0b5e0f34-4f0f-4d7c-8a77-0d1f2f7a1c11)";
		case ONCE_FORMAT_NONE:
			break;
	}
	return "";
}

/*
 * RFC 3339: YYYY-MM-DDTHH:MM:SS[.ffffff](Z|+HH:MM|-HH:MM), in UTC and without
 * trailing zeros of the fraction.  A leap second has no place in UTC
 * arithmetic and is refused, as are more digits than a timestamp has; zeros
 * behind those say nothing.
 */
static char *
normalize_date_time(const char *string, int length)
{
	const char *end = string + length;
	const char *fraction;
	int			fraction_digits = 0;
	int			year;
	int			month;
	int			day;
	int			hour;
	int			minute;
	int			second;
	int			offset_hour;
	int			offset_minute;
	int			seconds;
	int			julian;
	char		buffer[40];

	if (length < 20 || !read_date(string, &year, &month, &day) ||
		(string[10] != 'T' && string[10] != 't') ||
		!read_digits(string + 11, 2, &hour) || string[13] != ':' ||
		!read_digits(string + 14, 2, &minute) || string[16] != ':' ||
		!read_digits(string + 17, 2, &second) ||
		hour > 23 || minute > 59 || second > 59)
		return NULL;
	string += 19;
	seconds = (hour * 60 + minute) * 60 + second;

	fraction = string + 1;
	if (*string == '.')
	{
		for (string++; string < end && *string >= '0' && *string <= '9'; string++)
			fraction_digits++;
		if (fraction_digits == 0 || string == end)
			return NULL;
		while (fraction_digits > 0 && fraction[fraction_digits - 1] == '0')
			fraction_digits--;
		if (fraction_digits > MAX_TIMESTAMP_PRECISION)
			return NULL;
	}

	if (*string == 'Z' || *string == 'z')
	{
		if (end - string != 1)
			return NULL;
	}
	else
	{
		if (end - string != 6 || (*string != '+' && *string != '-') || string[3] != ':' ||
			!read_digits(string + 1, 2, &offset_hour) ||
			!read_digits(string + 4, 2, &offset_minute) ||
			offset_hour > 23 || offset_minute > 59)
			return NULL;
		seconds -= (*string == '-' ? -1 : 1) * (offset_hour * 60 + offset_minute) * 60;
	}

	julian = date2j(year, month, day);
	if (seconds < 0)
	{
		julian--;
		seconds += SECS_PER_DAY;
	}
	else if (seconds >= SECS_PER_DAY)
	{
		julian++;
		seconds -= SECS_PER_DAY;
	}
	j2date(julian, &year, &month, &day);
	if (year < 0 || year > 9999)
		return NULL;

	snprintf(buffer, sizeof(buffer), "%04d-%02d-%02dT%02d:%02d:%02d%s%.*sZ",
			 year, month, day, seconds / 3600, seconds / 60 % 60, seconds % 60,
			 fraction_digits > 0 ? "." : "", fraction_digits, fraction);
	return pstrdup(buffer);
}

/* YYYY-MM-DD, a day that exists; at least ten bytes are there. */
static bool
read_date(const char *string, int *year, int *month, int *day)
{
	return read_digits(string, 4, year) && string[4] == '-' &&
		read_digits(string + 5, 2, month) && string[7] == '-' &&
		read_digits(string + 8, 2, day) &&
		*month >= 1 && *month <= MONTHS_PER_YEAR &&
		*day >= 1 && *day <= day_tab[isleap(*year)][*month - 1];
}

/* Exactly so many decimal digits. */
static bool
read_digits(const char *string, int count, int *value)
{
	*value = 0;
	for (int i = 0; i < count; i++)
	{
		if (string[i] < '0' || string[i] > '9')
			return false;
		*value = *value * 10 + (string[i] - '0');
	}
	return true;
}

/* RFC 4122: 8-4-4-4-12 hexadecimal digits, in lower case. */
static char *
normalize_uuid(const char *string, int length)
{
	char	   *result;

	if (length != 36)
		return NULL;
	result = pnstrdup(string, length);
	for (int i = 0; i < length; i++)
	{
		bool		hyphen = i == 8 || i == 13 || i == 18 || i == 23;

		if (hyphen ? result[i] != '-' : !isxdigit((unsigned char) result[i]))
			return NULL;
		result[i] = pg_ascii_tolower((unsigned char) result[i]);
	}
	return result;
}
