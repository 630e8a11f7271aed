// A worker with JDBC.  It takes a job, computes, writes the result once, whatever
// happens to its connection, and is kept out when it is late.
//
//   PGHOST=... PGDATABASE=... PGUSER=app java -cp /usr/share/java/postgresql.jar examples/Worker.java [JOB]

import java.sql.*;
import java.util.*;
import java.util.concurrent.*;

public class Worker {
    static String job = "daily-report/2026-08-03";
    static final UUID owner = UUID.randomUUID(); // one per execution, not per host

    // The business write.  It is passed as a value like all others, and sees the job
    // as $1, the token as $2 and the payload as $3.
    static final String WRITE_REPORT = "INSERT INTO report"
        + " SELECT $1, ($3 ->> 'day')::date, ($3 ->> 'total')::numeric RETURNING total";

    // A connection that is made anew when it is lost.
    static class Session implements AutoCloseable {
        Connection db;

        // Every call may be sent again until it is answered: the same owner gets the
        // same token, and the same content has its effect once.  Casts belong in the
        // SQL, since setString() sends varchar: ?::jsonb, ?::uuid, ?::interval.
        List<String> ask(String sql, Object... values) throws Exception {
            for (int pause = 200; ; pause *= 5) {
                try {
                    if (db == null) db = connect(); // auto-commit: each call is a transaction of its own
                    try (PreparedStatement call = db.prepareStatement(sql)) {
                        for (int i = 0; i < values.length; i++) call.setObject(i + 1, values[i]);
                        ResultSet row = call.executeQuery();
                        row.next();
                        List<String> answer = new ArrayList<>();
                        for (int i = 1; i <= row.getMetaData().getColumnCount(); i++) answer.add(row.getString(i));
                        return answer;
                    }
                } catch (SQLException error) {
                    // 08: the driver lost the connection; 57P: the server ends it
                    if (pause > 20000 || !error.getSQLState().matches("(08|57P).*")) throw error;
                    System.out.println("connection lost");
                    db = null;
                    Thread.sleep(pause);
                }
            }
        }

        String commit(long token, String payload, String step) throws Exception {
            return ask("SELECT outcome, result FROM fencing_commit(?, ?, ?::jsonb, ?, ?)",
                job, token, payload, WRITE_REPORT, step).get(0);
        }

        public void close() throws SQLException {
            if (db != null) db.close();
        }
    }

    static Connection connect() throws SQLException {
        Map<String, String> env = System.getenv();
        return DriverManager.getConnection("jdbc:postgresql://" + env.getOrDefault("PGHOST", "localhost") + ":"
            + env.getOrDefault("PGPORT", "5432") + "/" + env.get("PGDATABASE") + "?connectTimeout=5&socketTimeout=60",
            env.get("PGUSER"), env.get("PGPASSWORD"));
    }

    // On a session of its own: at once, then every 10 seconds.
    static String heartbeat(long token, CountDownLatch stop) throws Exception {
        try (Session session = new Session()) {
            String outcome;
            do {
                outcome = session.ask("SELECT outcome FROM fencing_renew(?, ?, ?, '30 seconds')", job, owner, token).get(0);
                // lost: somebody else has the job; stop what has effects elsewhere
            } while (outcome.equals("renewed") && !stop.await(10, TimeUnit.SECONDS));
            return outcome;
        }
    }

    public static void main(String[] args) throws Exception {
        if (args.length > 0) job = args[0];
        Session session = new Session();
        List<String> lease = session.ask("SELECT outcome, token FROM fencing_acquire(?, ?, '30 seconds')", job, owner);
        System.out.println(lease.get(0) + " " + lease.get(1));
        if (lease.get(0).equals("held")) System.exit(1); // somebody else is at it
        long token = Long.parseLong(lease.get(1));

        CountDownLatch stop = new CountDownLatch(1);
        FutureTask<String> heart = new FutureTask<>(() -> heartbeat(token, stop));
        new Thread(heart).start();

        String payload = "{\"day\": \"2026-08-03\", \"total\": 16.5}"; // nothing in it changes between attempts
        System.out.println(session.commit(token, payload, ""));
        System.out.println(session.commit(token, payload, "")); // asked again: it is done already

        stop.countDown();
        System.out.println(heart.get());
        System.out.println(session.ask("SELECT outcome FROM fencing_release(?, ?, ?)", job, owner, token).get(0));

        // Another worker takes over.  What the first one still wants to write is refused.
        UUID other = UUID.randomUUID();
        List<String> taken = session.ask("SELECT outcome, token FROM fencing_acquire(?, ?, '30 seconds')", job, other);
        System.out.println(taken.get(0) + " " + taken.get(1));
        System.out.println(session.commit(token, payload, "late"));
        System.out.println(session.ask("SELECT outcome FROM fencing_release(?, ?, ?)", job, other, Long.valueOf(taken.get(1))).get(0));
        session.close();
    }
}
