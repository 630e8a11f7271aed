# A queue in a table, with psycopg 3: any number of these workers at a time, and
# each task is done once.
#
#   PGHOST=... PGDATABASE=... PGUSER=app python3 examples/queue_worker.py
#
# It ends when there is nothing to do.

import time
import uuid

import psycopg
from psycopg.types.json import Jsonb

# Takes the leases of some open tasks.  Those of others are passed over without
# waiting.  The order is made inside, or else all would be taken before the LIMIT.
CLAIM = """SELECT t.id, lease.token
    FROM (SELECT id FROM todo WHERE done_at IS NULL ORDER BY id) AS t
    CROSS JOIN LATERAL fencing_acquire('todo/' || t.id, %s, '30 seconds') AS lease
    WHERE lease.outcome IN ('acquired', 'renewed') LIMIT 5"""

# $3 is the payload
FINISH = """UPDATE todo SET done_at = now(), answer = $3 -> 'answer'
    WHERE 'todo/' || id = $1 AND done_at IS NULL RETURNING id"""

db = None


def ask(sql, *values):
    """Every call may be sent again until it is answered."""
    global db
    for pause in (0.2, 1, 5, 20, None):
        try:
            db = db or psycopg.connect(autocommit=True, connect_timeout=5)
            return db.execute(sql, values).fetchall()
        except psycopg.OperationalError:
            if pause is None or (db and not db.closed):
                raise
            print("connection lost", flush=True)
            db = None
            time.sleep(pause)


def work(task):
    """Stands for yours.  If it may take longer than the lease, send heartbeats as the
    workers beside this file do."""
    return task.upper()


while True:
    # A new owner for each claim.  If the answer is lost, the same claim again brings
    # the same tasks (renewed), and never those that are being worked on.
    owner = uuid.uuid4()
    claimed = ask(CLAIM, owner)
    if not claimed:
        break
    for task_id, token in claimed:
        job = f"todo/{task_id}"
        # With the lease in hand, look again: it may have been done between the
        # beginning of the query above and the end of the other's lease.
        for (task,) in ask("SELECT task FROM todo WHERE id = %s AND done_at IS NULL", task_id):
            [(outcome,)] = ask("SELECT outcome FROM fencing_commit(%s, %s, %s, %s)",
                               job, token, Jsonb({"answer": work(task)}), FINISH)
            print(outcome, task, flush=True)  # stale: it took too long, and somebody else does it
        ask("SELECT outcome FROM fencing_release(%s, %s, %s)", job, owner, token)
