# A worker with asyncpg.  It takes a job, computes, writes the result once,
# whatever happens to its connection, and is kept out when it is late.
#
#   PGHOST=... PGDATABASE=... PGUSER=app python3 examples/worker_asyncpg.py [JOB]

import asyncio
import json
import sys
import uuid

import asyncpg

job = sys.argv[1] if len(sys.argv) > 1 else "daily-report/2026-08-03"
owner = uuid.uuid4()  # one per execution, not per host

# The business write.  It is passed as a value like all others, and sees the job
# as $1, the token as $2 and the payload as $3.
WRITE_REPORT = """INSERT INTO report
    SELECT $1, ($3 ->> 'day')::date, ($3 ->> 'total')::numeric RETURNING total"""


class Session:
    """A connection that is made anew when it is lost."""

    db = None

    async def ask(self, sql, *values):
        """Every call may be sent again until it is answered: the same owner gets
        the same token, and the same content has its effect once."""
        for pause in (0.2, 1, 5, 20, None):
            try:
                if self.db is None:
                    self.db = await asyncpg.connect(timeout=5)
                return await self.db.fetchrow(sql, *values)
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                # errors of the server leave the connection as it is
                if pause is None or (self.db and not self.db.is_closed()):
                    raise
                print("connection lost", flush=True)
                self.db = None
                await asyncio.sleep(pause)

    # asyncpg sends jsonb as text: serialize once.  An interval parameter would have to
    # be a timedelta.
    async def commit(self, token, payload, step=""):
        answer = await self.ask("SELECT outcome, result FROM fencing_commit($1, $2, $3, $4, $5)",
                                job, token, json.dumps(payload), WRITE_REPORT, step)
        return answer["outcome"]


async def heartbeat(token, stop):
    """On a session of its own, since a connection does one thing at a time: at once,
    then every 10 seconds."""
    session = Session()
    while True:
        lease = await session.ask("SELECT outcome FROM fencing_renew($1, $2, $3, '30 seconds')", job, owner, token)
        if lease["outcome"] == "lost":
            return "lost"  # somebody else has the job; stop what has effects elsewhere
        try:
            await asyncio.wait_for(stop.wait(), 10)
            return lease["outcome"]
        except asyncio.TimeoutError:
            pass


async def main():
    session = Session()
    lease = await session.ask("SELECT outcome, token FROM fencing_acquire($1, $2, '30 seconds')", job, owner)
    token = lease["token"]
    print(lease["outcome"], token)
    if lease["outcome"] == "held":
        sys.exit(1)  # somebody else is at it

    stop = asyncio.Event()
    heart = asyncio.create_task(heartbeat(token, stop))

    payload = {"day": "2026-08-03", "total": 16.5}  # nothing in it changes between attempts
    print(await session.commit(token, payload))
    print(await session.commit(token, payload))  # asked again: it is done already

    stop.set()
    print(await heart)
    print((await session.ask("SELECT outcome FROM fencing_release($1, $2, $3)", job, owner, token))["outcome"])

    # Another worker takes over.  What the first one still wants to write is refused.
    other = uuid.uuid4()
    taken = await session.ask("SELECT outcome, token FROM fencing_acquire($1, $2, '30 seconds')", job, other)
    print(taken["outcome"], taken["token"])
    print(await session.commit(token, payload, "late"))
    print((await session.ask("SELECT outcome FROM fencing_release($1, $2, $3)", job, other, taken["token"]))["outcome"])


asyncio.run(main())
