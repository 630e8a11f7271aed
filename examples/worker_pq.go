// A worker with Go's database/sql and lib/pq.  It takes a job, computes, writes the
// result once, whatever happens to its connection, and is kept out when it is late.
//
//	PGHOST=... PGDATABASE=... PGUSER=app go run examples/worker_pq.go [JOB]
//
// lib/pq wants TLS unless PGSSLMODE says otherwise (disable, verify-full).
package main

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/lib/pq"
)

// The business write.  It is passed as a value like all others, and sees the job
// as $1, the token as $2 and the payload as $3.
const writeReport = `INSERT INTO report
	SELECT $1, ($3 ->> 'day')::date, ($3 ->> 'total')::numeric RETURNING total`

var job = "daily-report/2026-08-03"

// One per execution, not per host.  A UUID needs no dashes.
func newOwner() string {
	b := make([]byte, 16)
	rand.Read(b)
	return fmt.Sprintf("%x", b)
}

// ask sends a call again until it is answered.  Every call may be sent again: the
// same owner gets the same token, and the same content has its effect once.
// A sql.DB is a pool: the call is a transaction of its own, and a connection that
// was lost is replaced by the next call.  It even sends a call again by itself when
// lib/pq says "bad connection", also one that the server has executed: then the
// loss is not seen here, and the answer is "replayed" at once.
func ask(db *sql.DB, call string, values ...any) (outcome string, token sql.NullInt64) {
	for pause := 200 * time.Millisecond; ; pause *= 5 {
		err := db.QueryRow(call, values...).Scan(&outcome, &token)
		if err == nil {
			return
		}
		// an error of the server leaves the connection as it is, but for 57P01 and the like
		var said *pq.Error
		if errors.As(err, &said) && !strings.HasPrefix(string(said.Code), "57P") || pause > 20*time.Second {
			log.Fatal(err)
		}
		fmt.Println("connection lost")
		time.Sleep(pause)
	}
}

// A time.Duration would arrive as a number of nanoseconds, and be taken for seconds:
// the ttl as text, or its String().
func acquire(db *sql.DB, owner string) (string, sql.NullInt64) {
	return ask(db, "SELECT outcome, token FROM fencing_acquire($1, $2, $3)", job, owner, "30 seconds")
}

// The payload as a string: with binary_parameters=yes a []byte is taken for jsonb in
// binary format.
func commit(db *sql.DB, token int64, payload, step string) string {
	outcome, _ := ask(db, "SELECT outcome, fence FROM fencing_commit($1, $2, $3, $4, $5)", job, token, payload, writeReport, step)
	return outcome
}

func release(db *sql.DB, owner string, token int64) string {
	outcome, _ := ask(db, "SELECT fencing_release($1, $2, $3), NULL", job, owner, token)
	return outcome
}

// heartbeat has a connection of its own: the pool gives it one.  At once, then
// every 10 seconds.
func heartbeat(db *sql.DB, owner string, token int64, stop chan bool, last chan string) {
	for {
		outcome, _ := ask(db, "SELECT outcome, token FROM fencing_renew($1, $2, $3, '30 seconds')", job, owner, token)
		if outcome == "lost" {
			last <- outcome // somebody else has the job; stop what has effects elsewhere
			return
		}
		select {
		case <-stop:
			last <- outcome
			return
		case <-time.After(10 * time.Second):
		}
	}
}

func main() {
	if len(os.Args) > 1 {
		job = os.Args[1]
	}
	db, err := sql.Open("postgres", "connect_timeout=5") // the rest from PGHOST, PGUSER ...
	if err != nil {
		log.Fatal(err)
	}
	owner := newOwner()
	outcome, token := acquire(db, owner)
	fmt.Println(outcome, token.Int64)
	if outcome == "held" {
		os.Exit(1) // somebody else is at it
	}

	stop, last := make(chan bool), make(chan string, 1)
	go heartbeat(db, owner, token.Int64, stop, last)

	payload := `{"day": "2026-08-03", "total": 16.5}` // nothing in it changes between attempts
	fmt.Println(commit(db, token.Int64, payload, ""))
	fmt.Println(commit(db, token.Int64, payload, "")) // asked again: it is done already

	close(stop)
	fmt.Println(<-last)
	fmt.Println(release(db, owner, token.Int64))

	// Another worker takes over.  What the first one still wants to write is refused.
	other := newOwner()
	outcome, taken := acquire(db, other)
	fmt.Println(outcome, taken.Int64)
	fmt.Println(commit(db, token.Int64, payload, "late"))
	fmt.Println(release(db, other, taken.Int64))
}
