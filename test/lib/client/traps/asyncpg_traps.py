# Traps of asyncpg.  argv[1] is a job whose token 1 is current.
import asyncio
import json
import sys
from datetime import timedelta

import asyncpg

job = sys.argv[1]
owner = "00000000-0000-4000-8000-00000000000a"


async def main():
    db = await asyncpg.connect()

    async def attempt(what, sql, *values):
        try:
            print(f"{what}:", *await db.fetchrow(sql, *values))
        except Exception as error:
            print(f"{what}:", getattr(error, "sqlstate", None) or type(error).__name__)

    commit = "SELECT outcome, result ->> 'a' FROM fencing_commit($1, 1, $2, $3, $4)"
    await attempt("dict", commit, job, {"a": 1}, "SELECT $3 ->> 'a' AS a", "dict")
    await attempt("text", commit, job, json.dumps({"a": 1}), "SELECT $3 ->> 'a' AS a", "text")
    acquire = "SELECT outcome, safe_for_ms FROM fencing_acquire($1, $2, $3)"
    await attempt("ttl text", acquire, job, owner, "2 hours")
    await attempt("ttl timedelta", acquire, job, owner, timedelta(hours=2))
    await db.close()


asyncio.run(main())
