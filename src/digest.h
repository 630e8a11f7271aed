/*-------------------------------------------------------------------------
 *
 * digest.h
 *	  Canonical texts and digests of documents.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef DIGEST_H
#define DIGEST_H

#include "lib/stringinfo.h"
#include "utils/jsonb.h"

/* nobody else's symbols: PostgreSQL 15 loads libraries with global ones */
#pragma GCC visibility push(hidden)

/* the version that new digests are made by */
#define DIGEST_VERSION		1

/*
 * canonical.c, digest.c: canonical form and digests
 */
extern void canonical_append(Jsonb *document, int digest_version, StringInfo out);
extern bytea *digest_make(Jsonb *document, int digest_version);
extern bytea *digest_sha256(const char *data, int length);
extern bool canonical_is_known_version(int digest_version);
extern void canonical_require_version(int digest_version);

#pragma GCC visibility pop

#endif							/* DIGEST_H */
