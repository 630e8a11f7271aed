// Traps of lib/pq.  os.Args[1] is a job whose token 1 is current.
package main

import (
	"database/sql"
	"fmt"
	"os"
	"time"

	"github.com/lib/pq"
)

const owner = "00000000-0000-4000-8000-00000000000a"

func attempt(db *sql.DB, what, call string, values ...any) {
	var outcome string
	err := db.QueryRow(call, values...).Scan(&outcome)
	if said, ok := err.(*pq.Error); ok {
		fmt.Println(what+":", said.Code)
	} else if err != nil {
		fmt.Println(what+":", err)
	} else {
		fmt.Println(what+":", outcome)
	}
}

func main() {
	job := os.Args[1]
	db, _ := sql.Open("postgres", "")
	acquire := "SELECT outcome FROM fencing_acquire($1, $2, $3)"
	attempt(db, "ttl, Duration", acquire, job, owner, 30*time.Second)
	attempt(db, "ttl, tiny Duration", "SELECT safe_for_ms FROM fencing_acquire($1, $2, $3)", job, owner, 8*time.Microsecond)
	attempt(db, "ttl, Duration.String()", acquire, job, owner, (90 * time.Second).String())
	commit := "SELECT outcome FROM fencing_commit($1, 1, $2, 'SELECT 1 AS a', 'bytes')"
	attempt(db, "payload, []byte", commit, job, []byte("{}"))
	binary, _ := sql.Open("postgres", "binary_parameters=yes")
	attempt(binary, "payload, []byte, binary_parameters", commit, job, []byte("{}"))
	attempt(binary, "payload, string, binary_parameters", commit, job, "{}")

	tls, _ := sql.Open("postgres", "sslmode=require")
	attempt(tls, "no TLS offered", commit, job, "{}")

	tx, _ := db.Begin()
	tx.Exec("SELECT fencing_commit($1, 1, '{}', step => 'tx')", job)
	db.Exec("INSERT INTO report VALUES ('pq, without tx', '2026-08-03', 1)")
	tx.Rollback()
	attempt(db, "written without tx, rolled back", "SELECT count(*) FROM report WHERE job = 'pq, without tx'")
}
