// A worker with Go's pgx.  It takes a job, computes, writes the result once, whatever
// happens to its connection, and is kept out when it is late.
//
//	PGHOST=... PGDATABASE=... PGUSER=app go run examples/worker_pgx.go [JOB]
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgconn" // in version 5: github.com/jackc/pgx/v5/pgconn
	"github.com/jackc/pgx/v4/pgxpool"
)

// The business write.  It is passed as a value like all others, and sees the job
// as $1, the token as $2 and the payload as $3.
const writeReport = `INSERT INTO report
	SELECT $1, ($3 ->> 'day')::date, ($3 ->> 'total')::numeric RETURNING total`

// pgx makes JSON of it, once.
type payload struct {
	Day   string  `json:"day"`
	Total float64 `json:"total"`
}

var job = "daily-report/2026-08-03"
var ctx = context.Background()

// One per execution, not per host.  pgx takes the 16 bytes for a uuid parameter.
func newOwner() (owner [16]byte) {
	rand.Read(owner[:])
	return
}

// ask sends a call again until it is answered.  Every call may be sent again: the
// same owner gets the same token, and the same content has its effect once.  The
// pool replaces connections that were lost.
func ask(db *pgxpool.Pool, call string, values ...any) (outcome string, token *int64) {
	for pause := 200 * time.Millisecond; ; pause *= 5 {
		err := db.QueryRow(ctx, call, values...).Scan(&outcome, &token)
		if err == nil {
			return
		}
		// an error of the server leaves the connection as it is, but for 57P01 and the like
		var said *pgconn.PgError
		if errors.As(err, &said) && !strings.HasPrefix(said.Code, "57P") || pause > 20*time.Second {
			log.Fatal(err)
		}
		fmt.Println("connection lost")
		time.Sleep(pause)
	}
}

func acquire(db *pgxpool.Pool, owner [16]byte) (string, *int64) {
	return ask(db, "SELECT outcome, token FROM fencing_acquire($1, $2, $3)", job, owner, 30*time.Second)
}

func commit(db *pgxpool.Pool, token int64, content payload, step string) string {
	outcome, _ := ask(db, "SELECT outcome, fence FROM fencing_commit($1, $2, $3, $4, $5)", job, token, content, writeReport, step)
	return outcome
}

func release(db *pgxpool.Pool, owner [16]byte, token int64) string {
	outcome, _ := ask(db, "SELECT fencing_release($1, $2, $3), NULL::bigint", job, owner, token)
	return outcome
}

// heartbeat gets a connection of its own from the pool.  At once, then every 10 seconds.
func heartbeat(db *pgxpool.Pool, owner [16]byte, token int64, stop chan bool, last chan string) {
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
	db, err := pgxpool.Connect(ctx, "connect_timeout=5") // the rest from PGHOST, PGUSER ...; in version 5: pgxpool.New
	if err != nil {
		log.Fatal(err)
	}
	owner := newOwner()
	outcome, token := acquire(db, owner)
	if outcome == "held" {
		log.Fatal(outcome) // somebody else is at it
	}
	fmt.Println(outcome, *token)

	stop, last := make(chan bool), make(chan string, 1)
	go heartbeat(db, owner, *token, stop, last)

	content := payload{Day: "2026-08-03", Total: 16.5} // nothing in it changes between attempts
	fmt.Println(commit(db, *token, content, ""))
	fmt.Println(commit(db, *token, content, "")) // asked again: it is done already

	close(stop)
	fmt.Println(<-last)
	fmt.Println(release(db, owner, *token))

	// Another worker takes over.  What the first one still wants to write is refused.
	other := newOwner()
	outcome, taken := acquire(db, other)
	fmt.Println(outcome, *taken)
	fmt.Println(commit(db, *token, content, "late"))
	fmt.Println(release(db, other, *taken))
}
