# A consumer of published settings, with psycopg 3: keeps a file as the database
# says.  A file cannot be written conditionally, so only the holder of the target's
# lease writes it, and nothing counts as applied before it has been read back.
#
#   PGHOST=... PGDATABASE=... PGUSER=app python3 examples/configuration_agent.py FILE [DOCUMENT TARGET]
#
# It brings the file up to date and ends; run it every minute, on several hosts.

import json
import os
import sys
import time
import uuid

import psycopg
from psycopg.rows import namedtuple_row

path = sys.argv[1]
document, target = sys.argv[2:4] or ("shop-settings", "example-agent")
owner = uuid.uuid4()  # one per execution, not per host
db = None


def ask(sql, *values):
    """Every call may be sent again until it is answered."""
    global db
    for pause in (0.2, 1, 5, 20, None):
        try:
            db = db or psycopg.connect(autocommit=True, connect_timeout=5, row_factory=namedtuple_row)
            return db.execute(sql, values).fetchone()
        except psycopg.OperationalError:
            if pause is None or (db and not db.closed):
                raise
            print("connection lost", flush=True)
            db = None
            time.sleep(pause)


def read_back():
    """What the file has: version and digest; nothing if there is none, or garbage."""
    try:
        with open(path) as file:
            there = json.load(file)
            return there["version"], bytes.fromhex(there["digest"])
    except (FileNotFoundError, ValueError, KeyError):
        return None, None


def replace(version, digest, content):
    """Content, version and digest in one atomic replacement."""
    new = f"{path}.{owner}"
    with open(new, "w") as file:
        # the content as the text that the database sent
        file.write(f'{{"version": {version}, "digest": "{digest.hex()}", "content": {content}}}\n')
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)


def observe(token):
    return ask("SELECT fencing_apply_observe(%s, %s, %s, %s, %s) AS outcome", document, target, token, *read_back()).outcome


while True:
    due = ask("SELECT outcome, job_key, token, version, content::text, digest FROM fencing_apply_begin(%s, %s, %s, '30 seconds')",
              document, target, owner)
    token = due.token
    if due.outcome == "done":
        # nothing to write; but is the file still as it was left?
        token = ask("SELECT token FROM fencing_acquire(%s, %s, '30 seconds')", due.job_key, owner).token
        outcome = observe(token) if token is not None else "held"
    elif due.outcome == "held":
        outcome = "held"  # somebody else is at it
    else:
        outcome = observe(token)
        if outcome == "write":
            if due.content is None:
                os.remove(path)  # the document was deleted
            else:
                replace(due.version, due.digest, due.content)
            outcome = observe(token)
    print(due.outcome, outcome, flush=True)
    # recorded: look for a newer version; diverged: begin hands the right one out again
    if due.outcome == "done" and outcome != "diverged" or outcome not in ("recorded", "diverged"):
        break
if token is not None:
    ask("SELECT outcome FROM fencing_release(%s, %s, %s)", due.job_key, owner, token)
