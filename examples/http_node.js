// An HTTP API with the header Idempotency-Key, in Node's own http module and
// node-postgres.  A payment is made once, however often the request is sent.
//
//   PGHOST=... PGDATABASE=... PGUSER=app node examples/http_node.js [PORT]
//   curl -i localhost:8080/payments -H 'Idempotency-Key: 1' -H 'X-Tenant: acme' -H 'X-User: ann' -d '{"amount": 12.50}'

const { createServer } = require("node:http");
const { setTimeout: sleep } = require("node:timers/promises");
const { Pool } = require("pg");

// Runs once per key, in one transaction with the record of the key: $1 is the tenant,
// $2 the operation, $3 the key, $4 the request, $5 who asks.  Its row is the answer.
const pay = `INSERT INTO payments (tenant, amount, currency)
    VALUES ($1, ($4 ->> 'amount')::numeric, coalesce($4 ->> 'currency', 'EUR')) RETURNING id, amount, currency`;

const statusOf = {
  committed: 201,
  replayed: 201, // the answer of the first time
  conflict: 422, // the key was used with another request
  denied: 403, // whether or not the key exists
  pruned: 410, // too old to tell
  held: 409, // a request with this key is in progress
};

const pool = new Pool({ connectionTimeoutMillis: 5000 });
pool.on("error", () => {}); // an idle connection was lost: the pool makes another

// Did the server answer, and goes on?
const answered = (error) => error.severity && !error.code.startsWith("57P");

// A lost connection to the database is no reason to bother the client: the same call
// again tells what became of it.
async function once(tenant, key, body, user) {
  for (const pause of [100, 500, null]) {
    try {
      // the body goes in as it came, the result out as it is: no double in between
      const { rows } = await pool.query(
        "SELECT outcome, result::text FROM fencing_once($1, 'payment', $2, $3, $4, $5, wait => false)",
        [tenant, key, body, pay, JSON.stringify({ user })]);
      return rows[0];
    } catch (error) {
      if (answered(error) || pause === null) throw error;
      await sleep(pause);
    }
  }
}

async function post(headers, body) {
  const key = headers["idempotency-key"];
  if (!key) return [400, { error: "Idempotency-Key is missing" }];
  try {
    // these two headers stand for your authentication
    const { outcome, result } = await once(headers["x-tenant"] ?? "", key, body, headers["x-user"] ?? "");
    if (outcome === "committed") return [statusOf[outcome], result];
    if (outcome === "replayed") return [statusOf[outcome], result, { "Idempotent-Replayed": "true" }];
    return [statusOf[outcome], { error: outcome }];
  } catch (error) {
    // class 22: not JSON, or not as the request schema says; DETAIL names the field
    if (answered(error) && error.code.startsWith("22")) return [400, { error: error.message, detail: error.detail }];
    if (answered(error)) return [500, { error: "internal error" }];
    // nobody knows whether it was done; with the same key it is safe to try again
    return [503, { error: "try again with the same key" }, { "Retry-After": "5" }];
  }
}

const server = createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const [status, answer, headers] = await post(request.headers, Buffer.concat(chunks).toString());
  response.writeHead(status, { "Content-Type": "application/json", ...headers });
  response.end(typeof answer === "string" ? answer : JSON.stringify(answer));
});
server.listen(Number(process.argv[2] ?? 8080), "127.0.0.1", () => console.log("listening on", server.address().port));
