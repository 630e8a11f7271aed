// Traps of node-postgres.  argv[2] is a job whose token 1 is current.
const { Client, Pool } = require("pg");

const job = process.argv[2];
const owner = "00000000-0000-4000-8000-00000000000a";

async function main() {
  const db = new Client();
  await db.connect();
  const attempt = async (what, sql, ...values) => {
    try {
      console.log(`${what}:`, ...Object.values((await db.query(sql, values)).rows[0]));
    } catch (error) {
      console.log(`${what}:`, error.code);
    }
  };

  const { rows: [lease] } = await db.query("SELECT token, safe_for_ms FROM fencing_acquire($1, $2, '1 hour')", [job, owner]);
  console.log("bigint:", typeof lease.token, typeof lease.safe_for_ms, typeof (Date.now() + lease.safe_for_ms), lease.token + 1);
  console.log("Number():", typeof (Date.now() + Number(lease.safe_for_ms)));

  const commit = "SELECT outcome, result ->> 'a' AS a, result ->> 't' AS t FROM fencing_commit($1, 1, $2, $3, $4)";
  const write = "SELECT $3 ->> 'a' AS a, jsonb_typeof($3) AS t";
  await attempt("object", commit, job, { a: 1 }, write, "object");
  await attempt("text", commit, job, JSON.stringify({ a: 1 }), write, "text");
  await attempt("array", commit, job, [1, 2], write, "array");
  await attempt("empty array", commit, job, [], write, "empty array");
  await attempt("array as text", commit, job, JSON.stringify([1, 2]), write, "array as text");
  await attempt("undefined statement", commit, job, "{}", undefined, "undefined");
  await attempt("ttl in ms", "SELECT outcome, safe_for_ms FROM fencing_acquire($1, $2, $3)", job, owner, 30000);
  await attempt("ttl in ms, too long", "SELECT outcome, safe_for_ms FROM fencing_acquire($1, $2, $3)", job, owner, 300000);

  const pool = new Pool();
  await pool.query("BEGIN");
  const busy = pool.query("SELECT pg_sleep(0.1)"); // takes the connection with the transaction
  await pool.query("SELECT fencing_commit($1, 1, '{}', step => 'pool')", [job])
    .then(() => console.log("pool.query BEGIN: committed"), (error) => console.log("pool.query BEGIN:", error.code));
  await busy;
  await pool.end();

  const uncaught = new Promise((resolve) => process.on("uncaughtException", resolve));
  const idle = new Client();
  await idle.connect();
  const { rows: [{ pid }] } = await idle.query("SELECT pg_backend_pid() AS pid");
  await db.query("SELECT pg_terminate_backend($1)", [pid]);
  await uncaught;
  console.log("lost between calls, no listener: uncaught");
  await db.end();
  process.exit();
}

main();
