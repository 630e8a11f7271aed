/*
 * latency.c
 *	  How long it takes until somebody who waits has what it waits for: from
 *	  COMMIT of an event to its delivery, and from the release of a job to its
 *	  next acquisition.
 *
 * Two connections, one after the other in turns: one makes something ready at
 * a moment that does not depend on the other, who waits for it by polling or
 * by LISTEN.  See latency.sh.
 */
#include <libpq-fe.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *ready;		/* what the one executes */
static const char *look;		/* and the other, until it returns a row */
static const char *tidy;		/* and the other afterwards, with that row's column */
static int	rounds;
static double spread_ms;
static double *ready_at;
static double *had_at;
static volatile int turn;		/* how many rounds the other has begun */

static double
now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void
sleep_ms(double ms)
{
	struct timespec t = {(time_t) (ms / 1e3), (long) (ms * 1e6) % 1000000000};

	nanosleep(&t, NULL);
}

static PGconn *
connect_db(void)
{
	PGconn	   *conn = PQconnectdb("");

	if (PQstatus(conn) != CONNECTION_OK)
	{
		fprintf(stderr, "%s", PQerrorMessage(conn));
		exit(1);
	}
	return conn;
}

static PGresult *
execute(PGconn *conn, const char *query, const char *arg)
{
	PGresult   *res = PQexecParams(conn, query, arg ? 1 : 0, NULL, &arg, NULL, NULL, 0);

	if (PQresultStatus(res) != PGRES_TUPLES_OK && PQresultStatus(res) != PGRES_COMMAND_OK)
	{
		fprintf(stderr, "%s%s\n", PQerrorMessage(conn), query);
		exit(1);
	}
	return res;
}

/* At moments that are spread evenly over the time between two looks. */
static void *
make_ready(void *arg)
{
	PGconn	   *conn = connect_db();

	PQclear(execute(conn, "SET fencing.outbox_notify = on", NULL));
	PQclear(execute(conn, "SET fencing.lease_notify = on", NULL));
	for (int i = 0; i < rounds; i++)
	{
		while (turn <= i)
			sleep_ms(0.2);
		sleep_ms(20 + spread_ms * (i * 37 % rounds) / rounds);
		PQclear(execute(conn, ready, NULL));
		ready_at[i] = now_ms();
	}
	PQfinish(conn);
	return NULL;
}

/* Until there is a row.  pause_ms 0: until a notification comes. */
static void
wait_for(PGconn *conn, int i, double pause_ms)
{
	for (;;)
	{
		PGresult   *res = execute(conn, look, NULL);

		if (PQntuples(res) > 0)
		{
			had_at[i] = now_ms();
			if (*tidy)
				PQclear(execute(conn, tidy, PQgetvalue(res, 0, 0)));
			PQclear(res);
			return;
		}
		PQclear(res);
		turn = i + 1;
		if (pause_ms > 0)
			sleep_ms(pause_ms);
		else
		{
			struct pollfd fd = {PQsocket(conn), POLLIN};
			PGnotify   *notify;

			PQconsumeInput(conn);
			if ((notify = PQnotifies(conn)) == NULL)
			{
				(void) poll(&fd, 1, 1000);
				PQconsumeInput(conn);
				notify = PQnotifies(conn);
			}
			for (; notify != NULL; notify = PQnotifies(conn))
				PQfreemem(notify);
		}
	}
}

static int
compare(const void *a, const void *b)
{
	double		d = *(const double *) a - *(const double *) b;

	return d < 0 ? -1 : d > 0;
}

int
main(int argc, char **argv)
{
	pthread_t	thread;
	PGconn	   *conn;

	if (argc != 6)
		return 2;
	rounds = atoi(argv[1]);
	spread_ms = atof(argv[2]) > 0 ? atof(argv[2]) : 100;
	ready = argv[3];
	look = argv[4];
	tidy = argv[5];
	ready_at = calloc(rounds, sizeof(double));
	had_at = calloc(rounds, sizeof(double));
	conn = connect_db();
	PQclear(execute(conn, "LISTEN fencing_outbox", NULL));
	PQclear(execute(conn, "LISTEN fencing_lease", NULL));
	pthread_create(&thread, NULL, make_ready, NULL);
	for (int i = 0; i < rounds; i++)
		wait_for(conn, i, atof(argv[2]));
	pthread_join(thread, NULL);
	for (int i = 0; i < rounds; i++)
		had_at[i] = had_at[i] > ready_at[i] ? had_at[i] - ready_at[i] : 0;
	qsort(had_at, rounds, sizeof(double), compare);
	printf("%.1f %.1f\n", had_at[rounds / 2], had_at[(rounds * 99 - 1) / 100]);
	PQfinish(conn);
	return 0;
}
