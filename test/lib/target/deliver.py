# A worker that applies versions of the document config to targets in the
# database, in whatever order they arrive.  A delivery whose connection is lost is tried again, as a queue
# would: what had been committed is told replayed or stale then.
#
#   deliver.py DSN NAME < deliveries
#
# A delivery is a line "target version".  Every other one is written by the
# gate alone and a write of its own, with some work in between.  For the tests it
# says on standard output what it was told, after COMMIT has returned; also who
# its backend is, and when it is between gate and COMMIT.

import random
import sys
import time

import psycopg2

dsn, name = sys.argv[1:3]
random.seed(name)

STATEMENT = "SELECT write($1, $2, $3, $5)"


def say(*words):
    print(*words, flush=True)


def connect():
    while True:
        try:
            connection = psycopg2.connect(dsn, application_name=name)
            say("backend", connection.info.backend_pid)
            return connection
        except psycopg2.OperationalError:
            # not there yet, or in recovery
            time.sleep(0.05)


def apply(cursor, target, version, statement):
    cursor.execute("SELECT outcome FROM fencing_apply('config', %s, %s, (SELECT digest FROM message WHERE version = %s), statement => %s)",
                   (target, version, version, statement))
    return cursor.fetchone()[0]


def deliver(connection, target, version, gate_alone):
    with connection, connection.cursor() as cursor:
        if not gate_alone:
            return apply(cursor, target, version, STATEMENT)
        outcome = apply(cursor, target, version, None)
        if outcome == "committed":
            say("gate", target, version)
            time.sleep(random.random() * 0.02)
            cursor.execute("SELECT write('config', %s, version, content) FROM message WHERE version = %s", (target, version))
            time.sleep(random.random() * 0.02)
        return outcome


connection = connect()
for number, line in enumerate(sys.stdin):
    target, version = line.split()
    while True:
        try:
            say(deliver(connection, target, int(version), number % 2), target, version)
            break
        except psycopg2.Error as error:
            # no code: it has gone; 57: it says so before
            if error.pgcode is not None and not error.pgcode.startswith("57"):
                raise
            say("lost", target, version)
            connection.close()
            connection = connect()
connection.close()
