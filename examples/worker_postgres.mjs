// A worker with postgres.js.  It takes a job, computes, writes the result once,
// whatever happens to its connection, and is kept out when it is late.
//
//   PGHOST=... PGDATABASE=... PGUSER=app node examples/worker_postgres.mjs [JOB]

import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";

// In a project of your own: import postgres from "postgres"
const postgres = createRequire(import.meta.url)("postgres");

const job = process.argv[2] ?? "daily-report/2026-08-03";
const owner = randomUUID(); // one per execution, not per host
// a pool: each call is a transaction of its own, and lost connections are replaced
const sql = postgres({ connect_timeout: 5 });

// The business write.  It is passed as a value like all others, and sees the job
// as $1, the token as $2 and the payload as $3.
const writeReport = `INSERT INTO report
    SELECT $1, ($3 ->> 'day')::date, ($3 ->> 'total')::numeric RETURNING total`;

// Every call may be sent again until it is answered: the same owner gets the same
// token, and the same content has its effect once.
async function ask(call) {
  for (const pause of [200, 1000, 5000, 20000, null]) {
    try {
      return (await call())[0];
    } catch (error) {
      // only answers of the server have a severity; 57P01 and the like end the connection
      if (pause === null || (error.severity && !error.code.startsWith("57P"))) throw error;
      console.log("connection lost");
      await sleep(pause);
    }
  }
}

// A token is a string here, as every bigint.
const acquire = (owner) => ask(() => sql`SELECT outcome, token FROM fencing_acquire(${job}, ${owner}, '30 seconds')`);
const renew = (token) => ask(() => sql`SELECT outcome FROM fencing_renew(${job}, ${owner}, ${token}, '30 seconds')`);
const release = (owner, token) => ask(() => sql`SELECT outcome FROM fencing_release(${job}, ${owner}, ${token})`);

// The object itself: postgres.js serializes what goes to a jsonb parameter, and would
// make a JSON string of a text that you have serialized already.
const commit = (token, payload, step = "") => ask(() =>
  sql`SELECT outcome, result FROM fencing_commit(${job}, ${token}, ${sql.json(payload)}, ${writeReport}, ${step})`);

// On another connection of the pool: at once, then every 10 seconds.
async function heartbeat(token, signal) {
  let outcome;
  do {
    ({ outcome } = await renew(token));
    // lost: somebody else has the job; stop what has effects elsewhere
    await sleep(outcome === "lost" ? 0 : 10000, null, { signal }).catch(() => {});
  } while (outcome !== "lost" && !signal.aborted);
  return outcome;
}

const { outcome, token } = await acquire(owner);
console.log(outcome, token);
if (outcome === "held") process.exit(1); // somebody else is at it

const stop = new AbortController();
const heart = heartbeat(token, stop.signal);
const payload = { day: "2026-08-03", total: 16.5 }; // nothing in it changes between attempts
console.log((await commit(token, payload)).outcome);
console.log((await commit(token, payload)).outcome); // asked again: it is done already

stop.abort();
console.log(await heart);
console.log((await release(owner, token)).outcome);

// Another worker takes over.  What the first one still wants to write is refused.
const other = randomUUID();
const taken = await acquire(other);
console.log(taken.outcome, taken.token);
console.log((await commit(token, payload, "late")).outcome);
console.log((await release(other, taken.token)).outcome);
await sql.end({ timeout: 5 }); // without one it may wait for ever for a connection that was lost
