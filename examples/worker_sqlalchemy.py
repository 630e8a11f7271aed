# A worker with SQLAlchemy, and the business write by SQLAlchemy: the gate without a
# statement, at the beginning of the transaction.
#
#   PGHOST=... PGDATABASE=... PGUSER=app python3 examples/worker_sqlalchemy.py [JOB]

import json
import sys
import threading
import time
import uuid

from sqlalchemy import Column, Date, MetaData, Numeric, Table, Text, create_engine, insert, text
from sqlalchemy.exc import DBAPIError

job = sys.argv[1] if len(sys.argv) > 1 else "daily-report/2026-08-03"
owner = str(uuid.uuid4())  # one per execution, not per host

# the rest from PGHOST, PGUSER ...; pre-ping replaces connections that were lost while idle
engine = create_engine("postgresql+psycopg2://", pool_pre_ping=True, connect_args={"connect_timeout": 5})
report = Table("report", MetaData(), Column("job", Text), Column("day", Date), Column("total", Numeric))

# In text() a colon begins a parameter; CAST(... AS jsonb) avoids the one of "::".
ACQUIRE = text("SELECT outcome, token FROM fencing_acquire(:job, CAST(:owner AS uuid), '30 seconds')")
RENEW = text("SELECT outcome FROM fencing_renew(:job, CAST(:owner AS uuid), :token, '30 seconds')")
RELEASE = text("SELECT outcome FROM fencing_release(:job, CAST(:owner AS uuid), :token)")
COMMIT = text("SELECT outcome FROM fencing_commit(:job, :token, CAST(:payload AS jsonb), step => :step)")


def transaction(work):
    """Every transaction of these may be repeated until COMMIT has returned: the same
    owner gets the same token, and the same content has its effect once."""
    for pause in (0.2, 1, 5, 20, None):
        try:
            # one connection of the pool, one transaction; all of it has to go through db
            with engine.begin() as db:
                return work(db)
        except DBAPIError as error:
            # sqlstate None: no answer of the server
            if pause is None or getattr(error.orig, "pgcode", None) not in (None, "57P01", "57P02", "57P03"):
                raise
            print("connection lost", flush=True)
            time.sleep(pause)


def ask(call, **values):
    return transaction(lambda db: db.execute(call, {"job": job, **values}).one())


def commit(token, payload, step=""):
    def work(db):
        outcome = db.execute(COMMIT, {"job": job, "token": token, "payload": json.dumps(payload), "step": step}).scalar_one()
        # write only after "committed": "replayed" means that it is written already
        if outcome == "committed":
            db.execute(insert(report).values(job=job, **payload))
        return outcome
    return transaction(work)


def heartbeat(token, stop, outcomes):
    """On another connection of the pool: at once, then every 10 seconds."""
    while True:
        outcomes.append(ask(RENEW, owner=owner, token=token).outcome)
        # lost: somebody else has the job; stop what has effects elsewhere
        if outcomes[-1] == "lost" or stop.wait(10):
            return


lease = ask(ACQUIRE, owner=owner)
print(lease.outcome, lease.token)
if lease.outcome == "held":
    sys.exit(1)  # somebody else is at it

stop, outcomes = threading.Event(), []
heart = threading.Thread(target=heartbeat, args=(lease.token, stop, outcomes), daemon=True)
heart.start()

payload = {"day": "2026-08-03", "total": 16.5}  # nothing in it changes between attempts
print(commit(lease.token, payload))
print(commit(lease.token, payload))  # asked again: it is done already

stop.set()
heart.join()
print(outcomes[-1])
print(ask(RELEASE, owner=owner, token=lease.token).outcome)

# Another worker takes over.  What the first one still wants to write is refused.
other = str(uuid.uuid4())
taken = ask(ACQUIRE, owner=other)
print(taken.outcome, taken.token)
print(commit(lease.token, payload, "late"))
print(ask(RELEASE, owner=other, token=taken.token).outcome)
