// A worker with knex, and the business write by knex: the gate without a statement,
// at the beginning of the transaction.
//
//   DATABASE_URL=postgresql://app@localhost/... node examples/worker_knex.js [JOB]

const { randomUUID } = require("node:crypto");
const { setTimeout: sleep } = require("node:timers/promises");

const knex = require("knex")({ client: "pg", connection: process.env.DATABASE_URL });

const job = process.argv[2] ?? "daily-report/2026-08-03";
const owner = randomUUID(); // one per execution, not per host

// Every transaction of these may be repeated until COMMIT has returned: the same owner
// gets the same token, and the same content has its effect once.
async function transaction(work) {
  for (const pause of [200, 1000, 5000, 20000, null]) {
    try {
      return await knex.transaction(work);
    } catch (error) {
      // only answers of the server have a severity; 57P01 and the like end the connection
      if (pause === null || (error.severity && !error.code.startsWith("57P"))) throw error;
      console.log("connection lost");
      await sleep(pause);
    }
  }
}

// Each ? in the text of the query is a value; write \\? for the operator.
const ask = (sql, ...values) => transaction(async (trx) => (await trx.raw(sql, values)).rows[0]);

const commit = (token, payload, step = "") => transaction(async (trx) => {
  const { rows: [{ outcome }] } = await trx.raw(
    "SELECT outcome FROM fencing_commit(?, ?, ?::jsonb, step => ?)", [job, token, JSON.stringify(payload), step]);
  // Write only after "committed": "replayed" means that it is written already.  Everything
  // by trx: knex("report") would take another connection, and be committed by itself.
  if (outcome === "committed") await trx("report").insert({ job, ...payload });
  return outcome;
});

// On another connection of the pool: at once, then every 10 seconds.
async function heartbeat(token, signal) {
  let outcome;
  do {
    ({ outcome } = await ask("SELECT outcome FROM fencing_renew(?, ?, ?, '30 seconds')", job, owner, token));
    // lost: somebody else has the job; stop what has effects elsewhere
    await sleep(outcome === "lost" ? 0 : 10000, null, { signal }).catch(() => {});
  } while (outcome !== "lost" && !signal.aborted);
  return outcome;
}

async function main() {
  // a token is a string here, as every bigint
  const { outcome, token } = await ask("SELECT outcome, token FROM fencing_acquire(?, ?, '30 seconds')", job, owner);
  console.log(outcome, token);
  if (outcome === "held") process.exit(1); // somebody else is at it

  const stop = new AbortController();
  const heart = heartbeat(token, stop.signal);
  const payload = { day: "2026-08-03", total: 16.5 }; // nothing in it changes between attempts
  console.log(await commit(token, payload));
  console.log(await commit(token, payload)); // asked again: it is done already

  stop.abort();
  console.log(await heart);
  console.log((await ask("SELECT outcome FROM fencing_release(?, ?, ?)", job, owner, token)).outcome);

  // Another worker takes over.  What the first one still wants to write is refused.
  const other = randomUUID();
  const taken = await ask("SELECT outcome, token FROM fencing_acquire(?, ?, '30 seconds')", job, other);
  console.log(taken.outcome, taken.token);
  console.log(await commit(token, payload, "late"));
  console.log((await ask("SELECT outcome FROM fencing_release(?, ?, ?)", job, other, taken.token)).outcome);
  await knex.destroy();
}

main();
