# A worker with Django's ORM: the gate without a statement, at the beginning of the
# transaction, and the business write by a model.
#
#   PGHOST=... PGDATABASE=... PGUSER=app python3 examples/worker_django.py [JOB]

import json
import os
import sys
import threading
import time
import uuid

import django
from django.conf import settings

settings.configure(DATABASES={"default": {
    "ENGINE": "django.db.backends.postgresql", "NAME": os.environ["PGDATABASE"], "USER": os.environ["PGUSER"],
    "HOST": os.environ.get("PGHOST", ""), "PORT": os.environ.get("PGPORT", ""), "OPTIONS": {"connect_timeout": 5}}})

django.setup()

from django.db import DatabaseError, InterfaceError, connection, models, transaction

job = sys.argv[1] if len(sys.argv) > 1 else "daily-report/2026-08-03"
owner = uuid.uuid4()  # one per execution, not per host


class Report(models.Model):
    job = models.TextField(primary_key=True)  # what Django calls one; the table has none
    day = models.DateField()
    total = models.DecimalField(max_digits=20, decimal_places=2)

    class Meta:
        app_label, db_table, managed = "example", "report", False


def repeat(work):
    """Every transaction of these may be repeated until COMMIT has returned: the same
    owner gets the same token, and the same content has its effect once.  Not inside
    another atomic(), nor with ATOMIC_REQUESTS: the COMMIT would come later."""
    for pause in (0.2, 1, 5, 20, None):
        try:
            with transaction.atomic(durable=True), connection.cursor() as cursor:
                return work(cursor)
        except (DatabaseError, InterfaceError) as error:
            # pgcode None: no answer of the server
            if pause is None or getattr(error.__cause__, "pgcode", None) not in (None, "57P01", "57P02", "57P03"):
                raise
            print("connection lost", flush=True)
            connection.close()  # Django does not replace it before the next request
            time.sleep(pause)


def ask(sql, *values):
    def work(cursor):
        cursor.execute(sql, values)
        return cursor.fetchone()
    return repeat(work)


def commit(token, payload, step=""):
    def work(cursor):
        cursor.execute("SELECT outcome FROM fencing_commit(%s, %s, %s, step => %s)", (job, token, json.dumps(payload), step))
        (outcome,) = cursor.fetchone()
        # write only after "committed": "replayed" means that it is written already
        if outcome == "committed":
            Report.objects.create(job=job, **payload)
        return outcome
    return repeat(work)


def heartbeat(token, stop, outcomes):
    """At once, then every 10 seconds.  Every thread has its own connection in Django."""
    while True:
        outcomes += ask("SELECT outcome FROM fencing_renew(%s, %s, %s, '30 seconds')", job, owner, token)
        # lost: somebody else has the job; stop what has effects elsewhere
        if outcomes[-1] == "lost" or stop.wait(10):
            return connection.close()


outcome, token = ask("SELECT outcome, token FROM fencing_acquire(%s, %s, '30 seconds')", job, owner)
print(outcome, token)
if outcome == "held":
    sys.exit(1)  # somebody else is at it

stop, outcomes = threading.Event(), []
heart = threading.Thread(target=heartbeat, args=(token, stop, outcomes), daemon=True)
heart.start()

payload = {"day": "2026-08-03", "total": 16.5}  # nothing in it changes between attempts
print(commit(token, payload))
print(commit(token, payload))  # asked again: it is done already

stop.set()
heart.join()
print(outcomes[-1])
print(*ask("SELECT outcome FROM fencing_release(%s, %s, %s)", job, owner, token))

# Another worker takes over.  What the first one still wants to write is refused.
other = uuid.uuid4()
outcome, taken = ask("SELECT outcome, token FROM fencing_acquire(%s, %s, '30 seconds')", job, other)
print(outcome, taken)
print(commit(token, payload, "late"))
print(*ask("SELECT outcome FROM fencing_release(%s, %s, %s)", job, other, taken))
