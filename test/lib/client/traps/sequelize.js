// Traps of Sequelize.  argv[2] is a job whose token 1 is current.
const { Sequelize, QueryTypes: { SELECT } } = require("sequelize");

const job = process.argv[2];
const sequelize = new Sequelize(process.env.PGDATABASE, process.env.PGUSER, null,
  { host: process.env.PGHOST, port: process.env.PGPORT, dialect: "postgres", logging: false });
const attempt = async (what, sql, options) => {
  try {
    console.log(`${what}:`, ...Object.values((await sequelize.query(sql, { type: SELECT, ...options }))[0]));
  } catch (error) {
    console.log(`${what}:`, error.original?.code ?? error.message);
  }
};

async function main() {
  await attempt("$3 inline", "SELECT outcome FROM fencing_commit($1, 1, '{}', 'SELECT $3 AS a', 'inline')", { bind: [job] });
  await attempt("$3 as a value", "SELECT outcome FROM fencing_commit($1, 1, '{}', $2, 'value')", { bind: [job, "SELECT $3 AS a"] });
  const gate = "SELECT outcome FROM fencing_commit($1, 1, '{}', step => $2)";
  await sequelize.transaction(() => attempt("gate without transaction", gate, { bind: [job, "none"] }));
  await sequelize.transaction((transaction) => attempt("gate with transaction", gate, { bind: [job, "with"], transaction }));
  await sequelize.transaction(async () => {
    await sequelize.query("INSERT INTO report VALUES ('sequelize, without', '2026-08-03', 1)");
    throw new Error("rolled back");
  }).catch(() => {});
  await attempt("written without transaction, rolled back", "SELECT count(*) FROM report WHERE job = 'sequelize, without'");
  await sequelize.close();
}

main();
