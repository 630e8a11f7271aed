// A worker with tokio-postgres (the crate postgres is the same without async).  It takes
// a job, computes, writes the result once, whatever happens to its connection, and is
// kept out when it is late.
//
//   [dependencies]
//   tokio = { version = "1", features = ["rt-multi-thread", "time"] }
//   tokio-postgres = "0.7"
//
//   PGHOST=... PGDATABASE=... PGUSER=app cargo run -- [JOB]

use std::{env, fs, time::Duration};
use tokio::{sync::oneshot, time::sleep};
use tokio_postgres::{types::ToSql, Client, NoTls};

type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

// The business write.  It is passed as a value like all others, and sees the job as
// $1, the token as $2 and the payload as $3.
const WRITE_REPORT: &str = "INSERT INTO report
    SELECT $1, ($3 ->> 'day')::date, ($3 ->> 'total')::numeric RETURNING total";

// Parameters are typed as the server says: ::text::uuid takes a string, where ::uuid would
// want a Uuid.  Likewise out: fencing_outcome is an enum, so outcome::text for a String.
const ACQUIRE: &str = "SELECT outcome::text, token FROM fencing_acquire($1, $2::text::uuid, '30 seconds')";
const RENEW: &str = "SELECT outcome::text, token FROM fencing_renew($1, $2::text::uuid, $3, '30 seconds')";
const COMMIT: &str = "SELECT outcome::text, fence FROM fencing_commit($1, $2, $3::text::jsonb, $4, $5)";
const RELEASE: &str = "SELECT outcome::text, NULL::bigint FROM fencing_release($1, $2::text::uuid, $3) AS outcome";

// One per execution, not per host.
fn new_owner() -> String {
    fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap().trim().to_string()
}

// A connection that is made anew when it is lost.
#[derive(Default)]
struct Session(Option<Client>);

impl Session {
    async fn connect() -> Result<Client, tokio_postgres::Error> {
        let from = |name, default: &str| env::var(name).unwrap_or_else(|_| default.to_string());
        let config = format!("host={} port={} user={} dbname={} connect_timeout=5", from("PGHOST", "/var/run/postgresql"),
            from("PGPORT", "5432"), from("PGUSER", "app"), from("PGDATABASE", "app"));
        let (client, connection) = tokio_postgres::connect(&config, NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    async fn once(&mut self, sql: &str, values: Values<'_>) -> Result<(String, Option<i64>), tokio_postgres::Error> {
        if self.0.is_none() {
            self.0 = Some(Session::connect().await?);
        }
        let row = self.0.as_ref().unwrap().query_one(sql, values).await?;
        Ok((row.get(0), row.get(1)))
    }

    // Every call may be sent again until it is answered: the same owner gets the same
    // token, and the same content has its effect once.
    async fn ask(&mut self, sql: &str, values: Values<'_>) -> (String, Option<i64>) {
        let mut pause = Duration::from_millis(200);
        loop {
            match self.once(sql, values).await {
                Ok(answer) => return answer,
                // an error of the server leaves the connection as it is, but for 57P01 and the like
                Err(error) if pause.as_secs() > 20 || error.code().map_or(false, |c| !c.code().starts_with("57P")) => panic!("{error}"),
                Err(_) => println!("connection lost"),
            }
            self.0 = None;
            sleep(pause).await;
            pause *= 5;
        }
    }
}

// On a session of its own: at once, then every 10 seconds.
async fn heartbeat(job: String, owner: String, token: i64, mut stop: oneshot::Receiver<()>) -> String {
    let mut session = Session::default();
    loop {
        let (outcome, _) = session.ask(RENEW, &[&job, &owner, &token]).await;
        // lost: somebody else has the job; stop what has effects elsewhere
        if outcome == "lost" || tokio::time::timeout(Duration::from_secs(10), &mut stop).await.is_ok() {
            return outcome;
        }
    }
}

async fn work(job: String) {
    let mut session = Session::default();
    let owner = new_owner();
    let (outcome, token) = session.ask(ACQUIRE, &[&job, &owner]).await;
    let token = token.expect("held: somebody else is at it");
    println!("{outcome} {token}");

    let (stop, stopped) = oneshot::channel();
    let heart = tokio::spawn(heartbeat(job.clone(), owner.clone(), token, stopped));

    let payload = r#"{"day": "2026-08-03", "total": 16.5}"#; // nothing in it changes between attempts
    println!("{}", session.ask(COMMIT, &[&job, &token, &payload, &WRITE_REPORT, &""]).await.0);
    println!("{}", session.ask(COMMIT, &[&job, &token, &payload, &WRITE_REPORT, &""]).await.0); // asked again: it is done already

    stop.send(()).ok();
    println!("{}", heart.await.unwrap());
    println!("{}", session.ask(RELEASE, &[&job, &owner, &token]).await.0);

    // Another worker takes over.  What the first one still wants to write is refused.
    let other = new_owner();
    let (outcome, taken) = session.ask(ACQUIRE, &[&job, &other]).await;
    println!("{outcome} {}", taken.unwrap());
    println!("{}", session.ask(COMMIT, &[&job, &token, &payload, &WRITE_REPORT, &"late"]).await.0);
    println!("{}", session.ask(RELEASE, &[&job, &other, &taken]).await.0);
}

fn main() {
    let job = env::args().nth(1).unwrap_or_else(|| "daily-report/2026-08-03".to_string());
    tokio::runtime::Runtime::new().unwrap().block_on(work(job));
}
