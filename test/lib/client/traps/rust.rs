// Traps of tokio-postgres.  The first argument is a job whose token 1 is current.
use tokio_postgres::{types::ToSql, Client, NoTls};

const OWNER: &str = "00000000-0000-4000-8000-00000000000a";

async fn attempt(db: &Client, what: &str, sql: &str, values: &[&(dyn ToSql + Sync)]) {
    match db.query_one(sql, values).await.and_then(|row| row.try_get::<_, String>(0)) {
        Ok(answer) => println!("{what}: {answer}"),
        // without the numbers and names of types
        Err(error) => println!("{what}: {}", error.to_string().split([':', '`']).next().unwrap()),
    }
}

async fn traps(job: String) {
    let from = |name| std::env::var(name).unwrap();
    let config = format!("host={} port={} user={} dbname={}", from("PGHOST"), from("PGPORT"), from("PGUSER"), from("PGDATABASE"));
    let (db, connection) = tokio_postgres::connect(&config, NoTls).await.unwrap();
    tokio::spawn(connection);

    attempt(&db, "outcome as String", "SELECT outcome FROM fencing_acquire($1, $2::text::uuid, '1 hour')", &[&job, &OWNER]).await;
    attempt(&db, "outcome::text", "SELECT outcome::text FROM fencing_acquire($1, $2::text::uuid, '1 hour')", &[&job, &OWNER]).await;
    attempt(&db, "owner, ::uuid", "SELECT outcome::text FROM fencing_acquire($1, $2::uuid, '1 hour')", &[&job, &OWNER]).await;
    attempt(&db, "payload, no cast", "SELECT outcome::text FROM fencing_commit($1, 1, $2, 'SELECT 1 AS a')", &[&job, &"{}"]).await;
    attempt(&db, "payload, ::text::jsonb", "SELECT outcome::text FROM fencing_commit($1, 1, $2::text::jsonb, 'SELECT 1 AS a')", &[&job, &"{}"]).await;
    attempt(&db, "token as i32", "SELECT outcome::text FROM fencing_commit($1, $2, '{}', 'SELECT 1 AS a')", &[&job, &1i32]).await;
}

fn main() {
    let job = std::env::args().nth(1).unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(traps(job));
}
