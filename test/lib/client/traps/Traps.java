// Traps of JDBC.  args[0] is a job whose token 1 is current.
import java.sql.*;
import java.util.UUID;

public class Traps {
    static final String OWNER = "00000000-0000-4000-8000-00000000000a";
    static Connection db;

    static void attempt(String what, String sql, Object... values) throws SQLException {
        try (PreparedStatement call = db.prepareStatement(sql)) {
            for (int i = 0; i < values.length; i++) call.setObject(i + 1, values[i]);
            ResultSet row = call.executeQuery();
            row.next();
            System.out.println(what + ": " + row.getString(1));
        } catch (SQLException error) {
            System.out.println(what + ": " + error.getSQLState());
        }
    }

    static Connection connect(String options) throws SQLException {
        return DriverManager.getConnection("jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT")
            + "/" + System.getenv("PGDATABASE") + "?" + options, System.getenv("PGUSER"), null);
    }

    public static void main(String[] args) throws Exception {
        String job = args[0];
        db = connect("");
        attempt("owner, setString", "SELECT outcome FROM fencing_acquire(?, ?, '1 hour')", job, OWNER);
        attempt("owner, ?::uuid", "SELECT outcome FROM fencing_acquire(?, ?::uuid, '1 hour')", job, OWNER);
        attempt("owner, UUID", "SELECT outcome FROM fencing_acquire(?, ?, '1 hour')", job, UUID.fromString(OWNER));
        attempt("ttl, setString", "SELECT outcome FROM fencing_acquire(?, ?::uuid, ?)", job, OWNER, "1 hour");
        attempt("ttl, ?::interval", "SELECT outcome FROM fencing_acquire(?, ?::uuid, ?::interval)", job, OWNER, "1 hour");
        attempt("payload, setString", "SELECT outcome FROM fencing_commit(?, 1, ?, ?, 'payload')", job, "{}", "SELECT 1 AS a");
        attempt("payload, ?::jsonb", "SELECT outcome FROM fencing_commit(?, 1, ?::jsonb, ?, 'payload')", job, "{}", "SELECT 1 AS a");
        attempt("token, setString", "SELECT outcome FROM fencing_commit(?, ?, '{}', 'SELECT 1 AS a', 'token')", job, "1");
        try (Statement call = db.createStatement()) {
            call.executeUpdate("SELECT fencing_commit('" + job + "', 1, '{}', 'SELECT 1 AS a', 'update')");
        } catch (SQLException error) {
            System.out.println("executeUpdate: " + error.getSQLState());
        }
        attempt("executeUpdate, receipts", "SELECT count(*) FROM fencing_receipt(?, 1, 'update')", job);
        db = connect("stringtype=unspecified");
        attempt("stringtype=unspecified", "SELECT outcome FROM fencing_commit(?, 1, ?, ?, 'unspecified')", job, "{}", "SELECT 1 AS a");
        db.setAutoCommit(false);
        attempt("without commit", "SELECT outcome FROM fencing_acquire(?, ?, '1 hour')", job + " 2", OWNER);
        db.close();
        db = connect("");
        attempt("without commit, token", "SELECT token FROM fencing_acquire(?, ?::uuid, '1 hour')", job + " 2", OWNER);
        db.setReadOnly(true);
        db.setAutoCommit(false);
        attempt("read-only", "SELECT outcome FROM fencing_acquire(?, ?::uuid, '1 hour')", job, OWNER);
    }
}
