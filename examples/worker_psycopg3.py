# A worker with psycopg 3.  It takes a job, computes, writes the result once,
# whatever happens to its connection, and is kept out when it is late.
#
#   PGHOST=... PGDATABASE=... PGUSER=app python3 examples/worker_psycopg3.py [JOB]

import sys
import threading
import time
import uuid

import psycopg
from psycopg.rows import namedtuple_row
from psycopg.types.json import Jsonb

job = sys.argv[1] if len(sys.argv) > 1 else "daily-report/2026-08-03"
owner = uuid.uuid4()  # one per execution, not per host

# The business write.  It is passed as a value like all others, and sees the job
# as $1, the token as $2 and the payload as $3.
WRITE_REPORT = """INSERT INTO report
    SELECT $1, ($3 ->> 'day')::date, ($3 ->> 'total')::numeric RETURNING total"""


class Session:
    """A connection that is made anew when it is lost."""

    db = None

    def ask(self, sql, *values):
        """Every call may be sent again until it is answered: the same owner gets
        the same token, and the same content has its effect once."""
        for pause in (0.2, 1, 5, 20, None):
            try:
                # autocommit: each call is a transaction of its own
                self.db = self.db or psycopg.connect(autocommit=True, connect_timeout=5, row_factory=namedtuple_row)
                return self.db.execute(sql, values).fetchone()
            except psycopg.OperationalError:
                # deadlocks and the like leave the connection as it is
                if pause is None or (self.db and not self.db.closed):
                    raise
                print("connection lost", flush=True)
                self.db = None
                time.sleep(pause)

    # %s is replaced in the text of the query only, never in the values.  A dict needs
    # Jsonb (not Json: there is no fencing_commit(text, bigint, json)).
    def commit(self, token, payload, step=""):
        return self.ask("SELECT outcome, result FROM fencing_commit(%s, %s, %s, %s, %s)",
                        job, token, Jsonb(payload), WRITE_REPORT, step)


def heartbeat(token, stop, outcomes):
    """On a session of its own: at once, then every 10 seconds."""
    session = Session()
    while True:
        lease = session.ask("SELECT outcome FROM fencing_renew(%s, %s, %s, '30 seconds')", job, owner, token)
        outcomes.append(lease.outcome)
        # lost: somebody else has the job; stop what has effects elsewhere
        if lease.outcome == "lost" or stop.wait(10):
            return


session = Session()
lease = session.ask("SELECT outcome, token FROM fencing_acquire(%s, %s, '30 seconds')", job, owner)
print(lease.outcome, lease.token)
if lease.outcome == "held":
    sys.exit(1)  # somebody else is at it

stop, outcomes = threading.Event(), []
heart = threading.Thread(target=heartbeat, args=(lease.token, stop, outcomes), daemon=True)
heart.start()

payload = {"day": "2026-08-03", "total": 16.5}  # nothing in it changes between attempts
print(session.commit(lease.token, payload).outcome)
print(session.commit(lease.token, payload).outcome)  # asked again: it is done already

stop.set()
heart.join()
print(outcomes[-1])
print(session.ask("SELECT outcome FROM fencing_release(%s, %s, %s)", job, owner, lease.token).outcome)

# Another worker takes over.  What the first one still wants to write is refused.
other = uuid.uuid4()
taken = session.ask("SELECT outcome, token FROM fencing_acquire(%s, %s, '30 seconds')", job, other)
print(taken.outcome, taken.token)
print(session.commit(lease.token, payload, "late").outcome)
print(session.ask("SELECT outcome FROM fencing_release(%s, %s, %s)", job, other, taken.token).outcome)
