# A worker with psycopg2, and the business write by the program itself: the gate
# without a statement, at the beginning of the transaction.  What is different from
# worker_psycopg3.py is in commit(); leases and heartbeats are as there.
#
#   PGHOST=... PGDATABASE=... PGUSER=app python3 examples/worker_psycopg2.py [JOB]

import sys
import threading
import time
import uuid

import psycopg2
from psycopg2.extras import Json

job = sys.argv[1] if len(sys.argv) > 1 else "daily-report/2026-08-03"
owner = str(uuid.uuid4())  # one per execution, not per host; psycopg2 adapts no UUID by itself


class Session:
    """A connection that is made anew when it is lost."""

    db = None

    def transaction(self, work):
        """Every transaction of these may be repeated until COMMIT has returned: the
        same owner gets the same token, and the same content has its effect once."""
        for pause in (0.2, 1, 5, 20, None):
            try:
                self.db = self.db or psycopg2.connect("connect_timeout=5")
                # commits at the end, rolls back on an exception; does not close
                with self.db, self.db.cursor() as cursor:
                    return work(cursor)
            except (psycopg2.OperationalError, psycopg2.InterfaceError):
                if pause is None or (self.db and not self.db.closed):
                    raise
                print("connection lost", flush=True)
                self.db = None
                time.sleep(pause)

    def ask(self, sql, *values):
        def work(cursor):
            cursor.execute(sql, values)
            return cursor.fetchone()
        return self.transaction(work)

    def commit(self, token, payload, step=""):
        def work(cursor):
            cursor.execute("SELECT outcome FROM fencing_commit(%s, %s, %s, step => %s)", (job, token, Json(payload), step))
            (outcome,) = cursor.fetchone()
            # write only after "committed": "replayed" means that it is written already
            if outcome == "committed":
                cursor.execute("INSERT INTO report VALUES (%s, %s, %s)", (job, payload["day"], payload["total"]))
            return outcome
        return self.transaction(work)


def heartbeat(token, stop, outcomes):
    """On a session of its own: at once, then every 10 seconds."""
    session = Session()
    while True:
        (outcome,) = session.ask("SELECT outcome FROM fencing_renew(%s, %s, %s, '30 seconds')", job, owner, token)
        outcomes.append(outcome)
        # lost: somebody else has the job; stop what has effects elsewhere
        if outcome == "lost" or stop.wait(10):
            return


session = Session()
outcome, token = session.ask("SELECT outcome, token FROM fencing_acquire(%s, %s, '30 seconds')", job, owner)
print(outcome, token)
if outcome == "held":
    sys.exit(1)  # somebody else is at it

stop, outcomes = threading.Event(), []
heart = threading.Thread(target=heartbeat, args=(token, stop, outcomes), daemon=True)
heart.start()

payload = {"day": "2026-08-03", "total": 16.5}  # nothing in it changes between attempts
print(session.commit(token, payload))
print(session.commit(token, payload))  # asked again: it is done already

stop.set()
heart.join()
print(outcomes[-1])
print(*session.ask("SELECT outcome FROM fencing_release(%s, %s, %s)", job, owner, token))

# Another worker takes over.  What the first one still wants to write is refused.
other = str(uuid.uuid4())
outcome, taken = session.ask("SELECT outcome, token FROM fencing_acquire(%s, %s, '30 seconds')", job, other)
print(outcome, taken)
print(session.commit(token, payload, "late"))
print(*session.ask("SELECT outcome FROM fencing_release(%s, %s, %s)", job, other, taken))
