# Keeps a target outside the database up to date: begin, observe, write if that
# says so, observe again.  The target is a file that is replaced as a whole, with
# version, digest and content, and that cannot be written conditionally.
#
#   agent.py DSN DOCUMENT TARGET FILE NAME [ttl=INTERVAL] [wait] [hold=POINT]
#
# It ends when there is nothing to do, or when somebody else is at it; with
# "wait" it waits for its turn.  For the tests it says on standard output what it
# does, and may hold once until a line comes on standard input: "before" the
# write, when the new file is there but not yet in its place ("rename"), or
# "after" the write.

import json
import os
import sys
import time
import uuid

import psycopg2

dsn, document, target, path, name = sys.argv[1:6]
options = dict(option.partition("=")[::2] for option in sys.argv[6:])
owner = str(uuid.uuid4())
ttl = options.get("ttl", "1 second")


class Refused(Exception):
    pass


def say(*words):
    print(*words, flush=True)


def hold(point):
    if options.get("hold") == point:
        say("holding", point)
        del options["hold"]
        sys.stdin.readline()


def read_back():
    try:
        with open(path) as file:
            return json.load(file)
    except FileNotFoundError:
        return {"version": None, "digest": None}


# The journal is there for the tests.
def replace(version, digest, content, key):
    if content is not None and "poison" in content:
        raise Refused("cannot be written")
    new = f"{path}.{name}"
    with open(new, "w") as file:
        json.dump({"version": version, "digest": digest, "content": content}, file)
        file.flush()
        os.fsync(file.fileno())
    hold("rename")
    with open(path + ".journal", "a") as journal:
        journal.write(f"{name} {version} {key}\n")
    if content is None:
        os.remove(new)
        if os.path.exists(path):
            os.remove(path)
    else:
        os.replace(new, path)


def query(sql, *arguments):
    with connection, connection.cursor() as cursor:
        cursor.execute(sql, arguments)
        names = [column.name for column in cursor.description]
        return dict(zip(names, cursor.fetchone()))


def observe(token):
    there = read_back()
    digest = bytes.fromhex(there["digest"]) if there["digest"] is not None else None
    outcome = query("SELECT fencing_apply_observe(%s, %s, %s, %s, %s) AS outcome", document, target, token, there["version"], digest)["outcome"]
    say("observed", there["version"] or "nothing", outcome)
    return outcome


# Until the target has it, or somebody else has the target.
def attempt(job):
    failures = 0
    while True:
        outcome = observe(job["token"])
        if outcome != "write":
            return outcome
        hold("before")
        try:
            replace(job["version"], bytes(job["digest"]).hex(), job["content"], job["idempotency_key"])
        except Refused as error:
            failures += 1
            say("failed", job["version"])
            if failures == 3:
                query("SELECT fencing_apply_reject(%s, %s, %s, %s)", document, target, job["version"], str(error))
                say("rejected", job["version"])
                return "rejected"
        hold("after")


# Nothing is to be written: is the target still as it was left?
def look(job_key):
    lease = query("SELECT * FROM fencing_acquire(%s, %s, %s)", job_key, owner, ttl)
    if lease["outcome"] == "held":
        return "held", None
    return observe(lease["token"]), lease["token"]


def release(job_key, token):
    if token is not None:
        query("SELECT fencing_release(%s, %s, %s) AS outcome", job_key, owner, token)


connection = psycopg2.connect(dsn)
while True:
    job = query("SELECT outcome, job_key, token, version, content::text, digest, idempotency_key FROM fencing_apply_begin(%s, %s, %s, %s)",
                document, target, owner, ttl)
    token = job["token"]
    if job["outcome"] in ("acquired", "renewed"):
        say(job["outcome"], job["version"], job["idempotency_key"])
        why = attempt(job)
    elif job["outcome"] == "done":
        why, token = look(job["job_key"])
        say("done" if why == "recorded" else why)
        if why not in ("diverged", "held"):
            break
    else:
        why = "held"
        say("held")
    if why in ("stale", "ahead"):
        break
    if why == "rejected":
        release(job["job_key"], token)
    if why == "held":
        if "wait" not in options:
            break
        time.sleep(0.05)
release(job["job_key"], token)
connection.close()
