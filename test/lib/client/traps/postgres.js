// Traps of postgres.js.  argv[2] is a job whose token 1 is current.
const sql = require("postgres")();

const job = process.argv[2];
const write = "SELECT $3 ->> 'a' AS a, jsonb_typeof($3) AS t";
const attempt = async (what, call) => {
  try {
    console.log(`${what}:`, ...Object.values((await call())[0]));
  } catch (error) {
    console.log(`${what}:`, error.code);
  }
};

async function main() {
  const commit = (payload, step) => () =>
    sql`SELECT outcome, result ->> 'a' AS a, result ->> 't' AS t FROM fencing_commit(${job}, 1, ${payload}, ${write}, ${step})`;
  const text = JSON.stringify({ a: 1 });
  await attempt("serialized twice", commit(text, "twice"));
  await attempt("::jsonb does not help", () =>
    sql`SELECT outcome, result ->> 't' AS t FROM fencing_commit(${job}, 1, ${text}::jsonb, ${write}, 'cast')`);
  await attempt("::text::jsonb", () =>
    sql`SELECT outcome, result ->> 't' AS t FROM fencing_commit(${job}, 1, ${text}::text::jsonb, ${write}, 'text')`);
  await attempt("object", commit({ a: 1 }, "object"));
  await attempt("sql.json", commit(sql.json({ a: 1 }), "json"));
  await attempt("outside begin", () => sql.begin(() => sql`SELECT outcome FROM fencing_commit(${job}, 1, '{}', step => 'begin')`));
  await attempt("inside begin", () => sql.begin((tx) => tx`SELECT outcome FROM fencing_commit(${job}, 1, '{}', step => 'begin')`));
  await sql.begin(async () => {
    await sql`INSERT INTO report VALUES ('postgres.js, without tx', '2026-08-03', 1)`;
    throw new Error("rolled back");
  }).catch(() => {});
  await attempt("written without tx, rolled back", () => sql`SELECT count(*) FROM report WHERE job = 'postgres.js, without tx'`);
  await sql.end({ timeout: 5 });
}

main();
