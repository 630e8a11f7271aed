// A worker with node-postgres.  It takes a job, computes, writes the result once,
// whatever happens to its connection, and is kept out when it is late.
//
//   PGHOST=... PGDATABASE=... PGUSER=app node examples/worker_pg.js [JOB]

const { randomUUID } = require("node:crypto");
const { setTimeout: sleep } = require("node:timers/promises");
const { Client } = require("pg");

const job = process.argv[2] ?? "daily-report/2026-08-03";
const owner = randomUUID(); // one per execution, not per host

// The business write.  It is passed as a value like all others, and sees the job
// as $1, the token as $2 and the payload as $3.
const writeReport = `INSERT INTO report
    SELECT $1, ($3 ->> 'day')::date, ($3 ->> 'total')::numeric RETURNING total`;

// A connection that is made anew when it is lost.
class Session {
  async connect() {
    const client = new Client({ connectionTimeoutMillis: 5000 });
    // without a listener, a connection that is lost between calls ends the process
    client.on("error", () => {});
    await client.connect();
    this.client = client;
  }

  // Every call may be sent again until it is answered: the same owner gets the
  // same token, and the same content has its effect once.
  async ask(sql, ...values) {
    for (const pause of [200, 1000, 5000, 20000, null]) {
      try {
        if (!this.client) await this.connect();
        return (await this.client.query(sql, values)).rows[0];
      } catch (error) {
        // only answers of the server have a severity; 57P01 and the like end the connection
        if (pause === null || (error.severity && !error.code.startsWith("57P"))) throw error;
        console.log("connection lost");
        this.client = null;
        await sleep(pause);
      }
    }
  }

  // The payload as text, serialized once.  A token is a string here, as every
  // bigint: hand it on as it is, and call Number() before you compute.
  commit(token, payload, step = "") {
    return this.ask("SELECT outcome, result FROM fencing_commit($1, $2, $3::jsonb, $4, $5)",
      job, token, JSON.stringify(payload), writeReport, step);
  }

  async end() {
    await this.client?.end();
  }
}

// On a session of its own: at once, then every 10 seconds.
async function heartbeat(token, signal) {
  const session = new Session();
  let outcome;
  do {
    ({ outcome } = await session.ask("SELECT outcome FROM fencing_renew($1, $2, $3, '30 seconds')", job, owner, token));
    // lost: somebody else has the job; stop what has effects elsewhere
    await sleep(outcome === "lost" ? 0 : 10000, null, { signal }).catch(() => {});
  } while (outcome !== "lost" && !signal.aborted);
  await session.end();
  return outcome;
}

async function main() {
  const session = new Session();
  const { outcome, token } = await session.ask("SELECT outcome, token FROM fencing_acquire($1, $2, '30 seconds')", job, owner);
  console.log(outcome, token);
  if (outcome === "held") process.exit(1); // somebody else is at it

  const stop = new AbortController();
  const heart = heartbeat(token, stop.signal);
  const payload = { day: "2026-08-03", total: 16.5 }; // nothing in it changes between attempts
  console.log((await session.commit(token, payload)).outcome);
  console.log((await session.commit(token, payload)).outcome); // asked again: it is done already

  stop.abort();
  console.log(await heart);
  console.log((await session.ask("SELECT outcome FROM fencing_release($1, $2, $3)", job, owner, token)).outcome);

  // Another worker takes over.  What the first one still wants to write is refused.
  const other = randomUUID();
  const taken = await session.ask("SELECT outcome, token FROM fencing_acquire($1, $2, '30 seconds')", job, other);
  console.log(taken.outcome, taken.token);
  console.log((await session.commit(token, payload, "late")).outcome);
  console.log((await session.ask("SELECT outcome FROM fencing_release($1, $2, $3)", job, other, taken.token)).outcome);
  await session.end();
}

main();
