# Traps of psycopg2.  argv[1] is a job whose token 1 is current.
import sys
import uuid

import psycopg2
from psycopg2.extras import Json, register_uuid

job = sys.argv[1]
owner = uuid.UUID("00000000-0000-4000-8000-00000000000a")
db = psycopg2.connect("")
db.autocommit = True


def attempt(what, sql, *values):
    try:
        with db.cursor() as cursor:
            cursor.execute(sql, values)
            print(f"{what}:", *cursor.fetchone())
    except Exception as error:
        print(f"{what}:", getattr(error, "pgcode", None) or type(error).__name__)


inline = "SELECT outcome FROM fencing_commit(%s, 1, '{}', 'SELECT 1 AS a WHERE ''x'' LIKE ''%x''', 'inline')"
attempt("% inline", inline, job)
commit = "SELECT outcome, result ->> 'a' FROM fencing_commit(%s, 1, %s, %s, %s)"
attempt("% as a value", commit, job, "{}", "SELECT 1 AS a WHERE 'x' LIKE '%x'", "value")
attempt("Json", commit, job, Json({"a": 1}), "SELECT $3 ->> 'a' AS a", "json")
attempt("dict", commit, job, {"a": 1}, "SELECT $3 ->> 'a' AS a", "dict")
acquire = "SELECT outcome, safe_for_ms FROM fencing_acquire(%s, %s, %s)"
attempt("UUID", acquire, job, owner, "1 hour")
register_uuid()
attempt("UUID registered", acquire, job, owner, "2 hours")
attempt("ttl int", acquire, job, owner, 7200)
