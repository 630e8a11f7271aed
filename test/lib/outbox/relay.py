# A relay of an outbox consumer, as an application would write it: takes its
# turn by a lease, reads, and for each event acknowledges and writes the effect
# in one transaction.  An event that fails three times is parked.
#
#   relay.py DSN CONSUMER NAME [hold] [LIMIT]
#
# It ends when there is nothing to do.  For the tests it says on standard output
# what it does, may hold after its first read until a line comes on standard
# input, and end when it has lost its turn meanwhile, and may stop after LIMIT
# events.

import sys
import time
import uuid

import psycopg2

dsn, consumer, name = sys.argv[1:4]
hold = held = "hold" in sys.argv[4:]
limit = int(sys.argv[-1]) if sys.argv[-1].isdigit() else None
owner = str(uuid.uuid4())


def say(*words):
    print(*words, flush=True)


def handle(cursor, event):
    if event["type"].startswith("poison"):
        raise ValueError("cannot be handled")
    cursor.execute("INSERT INTO effect (relay, event, aggregate, type) VALUES (%s, %s, %s, %s)",
                   (name, event["id"], event["aggregate_id"], event["type"]))


# Acknowledges, does what the event asks for, and commits both or nothing.
def deliver(connection, token, event):
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT outcome FROM fencing_outbox_ack(%s, %s, %s::uuid[])", (consumer, token, [event["id"]]))
        outcome = cursor.fetchone()[0]
        if outcome == "committed":
            handle(cursor, event)
        return outcome


def query(connection, sql, arguments):
    with connection, connection.cursor() as cursor:
        cursor.execute(sql, arguments)
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row)) for row in cursor]


def work(connection, token):
    global hold, limit
    failures = {}
    while True:
        events = query(connection, "SELECT * FROM fencing_outbox_read(%s, %s, 10)", (consumer, token))
        if not events:
            return "idle"
        if events[0]["outcome"] == "stale":
            return "stale"
        say("read", len(events))
        if hold:
            say("holding")
            sys.stdin.readline()
            hold = False
        for event in events:
            if limit == 0:
                return "limit"
            try:
                outcome = deliver(connection, token, event)
            except ValueError as error:
                # it is still there: later ones of its aggregate would be a conflict
                failures[event["id"]] = failures.get(event["id"], 0) + 1
                say("failed", event["type"])
                if failures[event["id"]] == 3:
                    query(connection, "SELECT fencing_outbox_park(%s, %s, %s, %s)", (consumer, token, event["id"], str(error)))
                    say("parked", event["type"])
                break
            say(outcome, event["type"])
            if outcome in ("stale", "conflict"):
                return outcome
            if limit is not None:
                limit -= 1


connection = psycopg2.connect(dsn)
while True:
    lease = query(connection, "SELECT * FROM fencing_acquire(%s, %s, '1 second')", (consumer, owner))[0]
    say(lease["outcome"])
    if lease["outcome"] == "held":
        if limit is None:
            break
        time.sleep(lease["retry_after_ms"] / 1000)
        continue
    why = work(connection, lease["token"])
    say(why)
    if why in ("idle", "limit") or (held and why == "stale"):
        break
connection.close()
