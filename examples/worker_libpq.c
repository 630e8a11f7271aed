/*
 * A worker with libpq.  It takes a job, computes, writes the result once, whatever
 * happens to its connection, and is kept out when it is late.
 *
 *   cc -pthread examples/worker_libpq.c -o worker -I$(pg_config --includedir) -lpq
 *   PGHOST=... PGDATABASE=... PGUSER=app ./worker [JOB]
 */
#include <libpq-fe.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/*
 * The business write.  It is passed as a value like all others, and sees the job
 * as $1, the token as $2 and the payload as $3.
 */
static const char *write_report = "INSERT INTO report"
	" SELECT $1, ($3 ->> 'day')::date, ($3 ->> 'total')::numeric RETURNING total";

static const char *job = "daily-report/2026-08-03";
static char owner[33], token[21];

/* One per execution, not per host.  A UUID needs no dashes. */
static void
new_owner(char *owner)
{
	unsigned char bytes[16];

	if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
		abort();
	for (int i = 0; i < 16; i++)
		sprintf(owner + 2 * i, "%02x", bytes[i]);
}

/*
 * Sends a call with n values and gives its one row; makes the connection anew
 * when it is lost.  Every call may be sent again until it is answered: the same
 * owner gets the same token, and the same content has its effect once.
 */
static PGresult *
ask(PGconn **db, const char *sql, int n, ...)
{
	const char *values[8];
	va_list		list;

	va_start(list, n);
	for (int i = 0; i < n; i++)
		values[i] = va_arg(list, const char *);
	va_end(list);
	for (int pause = 1;; pause *= 4)
	{
		PGresult   *answer;

		if (*db == NULL)
			*db = PQconnectdb("connect_timeout=5"); /* the rest from PGHOST, PGUSER ... */
		answer = PQexecParams(*db, sql, n, NULL, values, NULL, NULL, 0);
		if (PQresultStatus(answer) == PGRES_TUPLES_OK)
			return answer;
		/* errors of the server leave the connection as it is */
		if (PQstatus(*db) == CONNECTION_OK || pause > 20)
		{
			fprintf(stderr, "%s", PQerrorMessage(*db));
			exit(1);
		}
		printf("connection lost\n");
		PQclear(answer);
		PQfinish(*db);
		*db = NULL;
		sleep(pause);
	}
}

/* Prints the outcome of a call, and a token if one is asked for. */
static void
tell(PGresult *answer, char *token)
{
	if (token != NULL)
		printf("%s %s\n", PQgetvalue(answer, 0, 0), strcpy(token, PQgetvalue(answer, 0, 1)));
	else
		printf("%s\n", PQgetvalue(answer, 0, 0));
	PQclear(answer);
}

#define ACQUIRE "SELECT outcome, token FROM fencing_acquire($1, $2, '30 seconds')"
#define RENEW "SELECT outcome FROM fencing_renew($1, $2, $3, '30 seconds')"
#define COMMIT "SELECT outcome, result FROM fencing_commit($1, $2, $3, $4, $5)"
#define RELEASE "SELECT outcome FROM fencing_release($1, $2, $3)"

/*
 * On a connection of its own, since a PGconn serves one thread: at once, then
 * every 10 seconds, until the other end of the pipe is closed.
 */
static void *
heartbeat(void *pipe)
{
	struct pollfd stop = {.fd = *(int *) pipe, .events = POLLIN};
	PGconn	   *db = NULL;
	PGresult   *answer = ask(&db, RENEW, 3, job, owner, token);

	/* lost: somebody else has the job; stop what has effects elsewhere */
	while (strcmp(PQgetvalue(answer, 0, 0), "lost") != 0 && poll(&stop, 1, 10000) == 0)
	{
		PQclear(answer);
		answer = ask(&db, RENEW, 3, job, owner, token);
	}
	PQfinish(db);
	return answer;
}

int
main(int argc, char **argv)
{
	const char *payload = "{\"day\": \"2026-08-03\", \"total\": 16.5}";	/* nothing in it changes between attempts */
	PGconn	   *db = NULL;
	pthread_t	heart;
	void	   *last;
	char		other[33], taken[21];
	int			stop[2];

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 1)
		job = argv[1];
	new_owner(owner);
	tell(ask(&db, ACQUIRE, 2, job, owner), token);
	if (token[0] == '\0')
		return 1;				/* held: somebody else is at it */

	if (pipe(stop) != 0 || pthread_create(&heart, NULL, heartbeat, &stop[0]) != 0)
		return 1;
	tell(ask(&db, COMMIT, 5, job, token, payload, write_report, ""), NULL);
	tell(ask(&db, COMMIT, 5, job, token, payload, write_report, ""), NULL); /* asked again: it is done already */

	close(stop[1]);
	pthread_join(heart, &last);
	tell(last, NULL);
	tell(ask(&db, RELEASE, 3, job, owner, token), NULL);

	/* Another worker takes over.  What the first one still wants to write is refused. */
	new_owner(other);
	tell(ask(&db, ACQUIRE, 2, job, other), taken);
	tell(ask(&db, COMMIT, 5, job, token, payload, write_report, "late"), NULL);
	tell(ask(&db, RELEASE, 3, job, other, taken), NULL);
	PQfinish(db);
	return 0;
}
