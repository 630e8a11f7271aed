# Traps of psycopg 3.  argv[1] is a job whose token 1 is current.
import sys
from datetime import timedelta

import psycopg
from psycopg.types.json import Json, Jsonb

job = sys.argv[1]
owner = "00000000-0000-4000-8000-00000000000a"
db = psycopg.connect(autocommit=True)


def attempt(what, sql, *values):
    try:
        print(f"{what}:", *db.execute(sql, values).fetchone())
    except Exception as error:
        print(f"{what}:", getattr(error, "sqlstate", None) or type(error).__name__)


inline = "SELECT outcome FROM fencing_commit(%s, 1, '{}', 'SELECT 1 AS a WHERE ''x'' LIKE ''%x''', 'inline')"
attempt("% inline", inline, job)
commit = "SELECT outcome, result ->> 'a' FROM fencing_commit(%s, 1, %s, %s, %s)"
attempt("% as a value", commit, job, Jsonb({}), "SELECT 1 AS a WHERE 'x' LIKE '%x'", "value")
attempt("Json", commit, job, Json({"a": 1}), "SELECT $3 ->> 'a' AS a", "json")
attempt("Jsonb", commit, job, Jsonb({"a": 1}), "SELECT $3 ->> 'a' AS a", "jsonb")
attempt("dict", commit, job, {"a": 1}, "SELECT $3 ->> 'a' AS a", "dict")
attempt("Jsonb of text", commit, job, Jsonb('{"a": 1}'), "SELECT $3 ->> 'a' AS a", "twice")
acquire = "SELECT outcome, safe_for_ms FROM fencing_acquire(%s, %s, %s)"
attempt("ttl int", acquire, job, owner, 7200)
attempt("ttl timedelta", acquire, job, owner, timedelta(hours=2))
attempt("ttl digits", acquire, job, owner, "7201")

with psycopg.connect() as other:
    other.execute("SELECT fencing_acquire(%s, %s, '1 hour')", (job + " 2", owner))
    other.rollback()  # as closing without commit() does
attempt("without commit", "SELECT outcome, token FROM fencing_acquire(%s, %s, '1 hour')", job + " 2", "00000000-0000-4000-8000-00000000000b")
