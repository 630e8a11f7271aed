// Traps of knex.  argv[2] is a job whose token 1 is current.
const knex = require("knex")({ client: "pg", connection: process.env.DATABASE_URL });

const job = process.argv[2];
const attempt = async (what, call) => {
  try {
    console.log(`${what}:`, ...Object.values((await call()).rows[0]));
  } catch (error) {
    console.log(`${what}:`, error.code ?? error.message);
  }
};

async function main() {
  await attempt("? inline", () => knex.raw("SELECT outcome FROM fencing_commit(?, 1, '{}', 'SELECT ''{}''::jsonb ? ''a'' AS a', 'inline')", [job]));
  await attempt(":name inline", () => knex.raw("SELECT outcome FROM fencing_commit(:job, 1, '{}', 'SELECT '':job'' AS a', 'inline')", { job }));
  const commit = "SELECT outcome, result ->> 'a' AS a FROM fencing_commit(?, 1, ?, ?, ?)";
  await attempt("? as a value", () => knex.raw(commit, [job, {}, "SELECT '{}'::jsonb ? 'a' AS a", "value"]));
  await attempt("array", () => knex.raw(commit, [job, [1], "SELECT 1 AS a", "array"]));
  await attempt("array as text", () => knex.raw(commit, [job, "[1]", "SELECT 1 AS a", "array"]));

  const gate = "SELECT outcome FROM fencing_commit(?, 1, '{}', step => ?)";
  await attempt("gate without trx", () => knex.transaction(() => knex.raw(gate, [job, "no trx"])));
  await attempt("gate with trx", () => knex.transaction((trx) => trx.raw(gate, [job, "trx"])));
  await knex.transaction(async (trx) => {
    await trx.raw(gate, [job, "write"]);
    await knex("report").insert({ job: "knex, without trx", day: "2026-08-03", total: 1 });
    throw new Error("rolled back");
  }).catch(() => {});
  await attempt("written without trx, rolled back", () => knex.raw("SELECT count(*) FROM report WHERE job = 'knex, without trx'"));
  await attempt("its receipts", () => knex.raw("SELECT count(*) FROM fencing_receipt(?, 1, 'write')", [job]));
  await knex.destroy();
}

main();
