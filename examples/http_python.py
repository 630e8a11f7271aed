# An HTTP API with the header Idempotency-Key, in Python's standard library and
# psycopg 3.  A payment is made once, however often the request is sent.
#
#   PGHOST=... PGDATABASE=... PGUSER=app python3 examples/http_python.py [PORT]
#   curl -i localhost:8080/payments -H 'Idempotency-Key: 1' -H 'X-Tenant: acme' -H 'X-User: ann' -d '{"amount": 12.50}'

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg
from psycopg.types.json import Jsonb

# Runs once per key, in one transaction with the record of the key: $1 is the tenant,
# $2 the operation, $3 the key, $4 the request, $5 who asks.  Its row is the answer.
PAY = """INSERT INTO payments (tenant, amount, currency)
    VALUES ($1, ($4 ->> 'amount')::numeric, coalesce($4 ->> 'currency', 'EUR')) RETURNING id, amount, currency"""

STATUS = {
    "committed": 201,
    "replayed": 201,  # the answer of the first time
    "conflict": 422,  # the key was used with another request
    "denied": 403,    # whether or not the key exists
    "pruned": 410,    # too old to tell
    "held": 409,      # a request with this key is in progress
}


def once(tenant, key, body, user):
    """A lost connection to the database is no reason to bother the client: the same
    call again tells what became of it.  In production take connections of a pool."""
    for pause in (0.1, 0.5, None):
        try:
            with psycopg.connect(autocommit=True, connect_timeout=5) as db:
                # the body goes in as it came, the result out as it is: no float in between
                return db.execute(
                    "SELECT outcome, result::text FROM fencing_once(%s, 'payment', %s, %s, %s, %s, wait => false)",
                    (tenant, key, body, PAY, Jsonb({"user": user}))).fetchone()
        except psycopg.OperationalError:
            if pause is None:
                raise
            time.sleep(pause)


class Payments(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode("utf-8", "replace")
        key = self.headers.get("Idempotency-Key")
        if not key:
            return self.answer(400, json.dumps({"error": "Idempotency-Key is missing"}))
        try:
            # these two headers stand for your authentication
            outcome, result = once(self.headers.get("X-Tenant", ""), key, body, self.headers.get("X-User", ""))
        except psycopg.OperationalError:
            # nobody knows whether it was done; with the same key it is safe to try again
            return self.answer(503, json.dumps({"error": "try again with the same key"}), {"Retry-After": "5"})
        except psycopg.DataError as error:
            # not JSON, or not as the request schema says; DETAIL names the field
            return self.answer(400, json.dumps({"error": error.diag.message_primary, "detail": error.diag.message_detail}))
        if outcome in ("committed", "replayed"):
            self.answer(STATUS[outcome], result, {"Idempotent-Replayed": "true"} if outcome == "replayed" else {})
        else:
            self.answer(STATUS[outcome], json.dumps({"error": outcome}))

    def answer(self, status, body, headers={}):
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *args):
        pass


server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8080), Payments)
print("listening on", server.server_port, flush=True)
server.serve_forever()
