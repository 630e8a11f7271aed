# Carries what is published in one database to a target in another: a relay of
# the outbox there, fencing_apply with the content here.
#
#   forward.py SOURCE DESTINATION CONSUMER TARGET NAME [hold=POINT]
#
# The two databases have no transaction in common: what is applied and not
# acknowledged comes again, and is told replayed.  It ends when there is nothing
# to do.  For the tests it says on standard output what it does, and may hold
# once until a line comes on standard input: when it has "read" its events, or
# has "applied" one.

import sys
import time
import uuid

import psycopg2

source_dsn, destination_dsn, consumer, target, name = sys.argv[1:6]
options = dict(option.partition("=")[::2] for option in sys.argv[6:])
owner = str(uuid.uuid4())


def say(*words):
    print(*words, flush=True)


def hold(point):
    if options.get("hold") == point:
        say("holding", point)
        del options["hold"]
        sys.stdin.readline()


def query(connection, sql, *arguments):
    with connection, connection.cursor() as cursor:
        cursor.execute(sql, arguments)
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row)) for row in cursor]


# The whole revisions, each with the event that told of it.
def read(token):
    events = query(source, "SELECT * FROM fencing_outbox_read(%s, %s, 10)", consumer, token)
    if events and events[0]["outcome"] == "stale":
        return None
    # as text: a number must arrive as it was, not as the nearest double
    return [(event["id"], query(source, "SELECT document_id, version, content::text, digest FROM fencing_publish_revision(%s)",
                                event["payload"]["revision"])[0])
            for event in events]


def apply(revision):
    with destination, destination.cursor() as cursor:
        cursor.execute("SELECT outcome FROM fencing_apply(%s, %s, %s, %s, %s, 'SELECT write($1, $2, $3, $5)')",
                       (revision["document_id"], target, revision["version"], revision["digest"], revision["content"]))
        return cursor.fetchone()[0]


source = psycopg2.connect(source_dsn)
destination = psycopg2.connect(destination_dsn, application_name=name)
while True:
    lease = query(source, "SELECT * FROM fencing_acquire(%s, %s, '1 second')", consumer, owner)[0]
    if lease["outcome"] == "held":
        time.sleep(lease["retry_after_ms"] / 1000)
        continue
    revisions = read(lease["token"])
    if revisions is None:
        say("stale")
        break
    if not revisions:
        say("idle")
        break
    hold("read")
    acknowledged = True
    for event, revision in revisions:
        say(apply(revision), revision["document_id"], revision["version"])
        hold("applied")
        outcome = query(source, "SELECT outcome FROM fencing_outbox_ack(%s, %s, %s::uuid[])", consumer, lease["token"], [event])[0]["outcome"]
        if outcome not in ("committed", "replayed"):
            say(outcome)
            acknowledged = False
            break
    if not acknowledged:
        break
source.close()
destination.close()
