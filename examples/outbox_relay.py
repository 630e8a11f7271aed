# A relay with psycopg 3: brings the events of the outbox to somebody outside the
# database, in the order of each aggregate.  Run several of them: they take turns.
#
#   PGHOST=... PGDATABASE=... PGUSER=app python3 examples/outbox_relay.py [CONSUMER]
#
# An administrator subscribes the consumer first (fencing_outbox_subscribe).  It
# ends when there is nothing to do; a real one would wait and read again.

import sys
import time
import uuid

import psycopg
from psycopg.rows import namedtuple_row

consumer = sys.argv[1] if len(sys.argv) > 1 else "example-relay"
owner = uuid.uuid4()  # one per execution, not per host
db = None


def ask(sql, *values):
    """Every call may be sent again until it is answered."""
    global db
    for pause in (0.2, 1, 5, 20, None):
        try:
            db = db or psycopg.connect(autocommit=True, connect_timeout=5, row_factory=namedtuple_row)
            return db.execute(sql, values).fetchall()
        except psycopg.OperationalError:
            if pause is None or (db and not db.closed):
                raise
            print("connection lost", flush=True)
            db = None
            time.sleep(pause)


def deliver(event):
    """Stands for a call to a broker or another service.  It may happen twice (the relay
    dies before the acknowledgement), so hand on the id of the event as the key by which
    the receiver knows it again."""
    if "poison" in event.payload:
        raise ValueError("cannot be delivered")
    print("delivered", event.aggregate_id, event.type, flush=True)


def deliver_all(token):
    failures = {}
    # each read brings those that may be delivered now: never a later event of an
    # aggregate while an earlier one is open
    while events := ask("SELECT * FROM fencing_outbox_read(%s, %s, 10)", consumer, token):
        for event in events:
            if event.outcome == "stale":
                return  # somebody else has the turn
            try:
                deliver(event)
            except ValueError as error:
                failures[event.id] = failures.get(event.id, 0) + 1
                if failures[event.id] == 3:
                    # holds back its own aggregate only, until somebody looks into it
                    ask("SELECT fencing_outbox_park(%s, %s, %s, %s)", consumer, token, event.id, str(error))
                    print("parked", event.aggregate_id, event.type, flush=True)
                break  # later ones of its aggregate have to wait: read again
            [(outcome,)] = ask("SELECT outcome FROM fencing_outbox_ack(%s, %s, %s)", consumer, token, [event.id])
            print(outcome, flush=True)  # replayed: it had been acknowledged, and the reply was lost
            if outcome == "stale":
                return
        # the heartbeat; every event must be handled well within the lease
        ask("SELECT outcome FROM fencing_renew(%s, %s, %s, '30 seconds')", consumer, owner, token)


[lease] = ask("SELECT outcome, token FROM fencing_acquire(%s, %s, '30 seconds')", consumer, owner)
if lease.outcome != "held":
    deliver_all(lease.token)
    ask("SELECT outcome FROM fencing_release(%s, %s, %s)", consumer, owner, lease.token)
