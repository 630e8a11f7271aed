#!/usr/bin/env perl
# A worker with DBI.  It takes a job, computes, writes the result once, whatever
# happens to its connection, and is kept out when it is late.
#
#   PGHOST=... PGDATABASE=... PGUSER=app perl examples/worker_dbi.pl [JOB]

use v5.36;
use DBI;
use JSON::PP;

my $job = $ARGV[0] // 'daily-report/2026-08-03';
my $json = JSON::PP->new->canonical;
$| = 1;

# The business write.  It is passed as a value like all others, and sees the job as
# $1, the token as $2 and the payload as $3.  In q{}, where Perl replaces no $1.
my $write_report = q{
	INSERT INTO report
	SELECT $1, ($3 ->> 'day')::date, ($3 ->> 'total')::numeric RETURNING total};

# One per execution, not per host.  A UUID needs no dashes.
sub new_owner ()
{
	open my $random, '<:raw', '/dev/urandom' or die $!;
	read $random, my $bytes, 16;
	return unpack 'H*', $bytes;
}

# A connection that is made anew when it is lost.
package Session
{
	# Every call may be sent again until it is answered: the same owner gets the
	# same token, and the same content has its effect once.
	sub ask ($self, $sql, @values)
	{
		foreach my $pause (0.2, 1, 5, 20, undef)
		{
			my $answer = eval {
				# AutoCommit: each call is a transaction of its own
				$self->{db} //= DBI->connect('dbi:Pg:connect_timeout=5', undef, undef,
					{ AutoCommit => 1, RaiseError => 1, PrintError => 0 });
				$self->{db}->selectrow_hashref($sql, undef, @values);
			};
			return $answer if $answer;
			# errors of the server leave the connection as it is
			die $@ if !defined $pause || $self->{db} && $self->{db}->ping;
			say 'connection lost';
			delete $self->{db};
			select undef, undef, undef, $pause;
		}
	}

	sub acquire ($self, $owner)
	{
		return $self->ask(q{SELECT outcome, token FROM fencing_acquire(?, ?, '30 seconds')}, $job, $owner);
	}

	sub commit ($self, $token, $payload, $step = '')
	{
		return $self->ask('SELECT outcome, result FROM fencing_commit(?, ?, ?, ?, ?)',
			$job, $token, $json->encode($payload), $write_report, $step)->{outcome};
	}

	sub release ($self, $owner, $token)
	{
		return $self->ask('SELECT outcome FROM fencing_release(?, ?, ?)', $job, $owner, $token)->{outcome};
	}
}

# In a process and on a session of its own: at once, then every 10 seconds, until
# its standard input is closed.
sub heartbeat ($owner, $token)
{
	my $session = bless {}, 'Session';
	for (;;)
	{
		my $outcome = $session->ask(q{SELECT outcome FROM fencing_renew(?, ?, ?, '30 seconds')}, $job, $owner, $token)->{outcome};
		vec(my $stop = '', fileno(STDIN), 1) = 1;
		# lost: somebody else has the job; stop what has effects elsewhere
		return say $outcome if $outcome eq 'lost' || select $stop, undef, undef, 10;
	}
}

my $owner = new_owner();
my $session = bless {}, 'Session';
my $lease = $session->acquire($owner);
say "$lease->{outcome} ", $lease->{token} // '';
exit 1 if $lease->{outcome} eq 'held';    # somebody else is at it

# A connection must not be used in a child; $session's would be closed by its end.
$session = bless {}, 'Session';
my $heart = open(my $stop, '|-') // die $!;
if (!$heart)
{
	heartbeat($owner, $lease->{token});
	exit;
}

my $payload = { day => '2026-08-03', total => 16.5 };    # nothing in it changes between attempts
say $session->commit($lease->{token}, $payload);
say $session->commit($lease->{token}, $payload);    # asked again: it is done already

close $stop;    # and waits for the child
say $session->release($owner, $lease->{token});

# Another worker takes over.  What the first one still wants to write is refused.
my $other = new_owner();
my $taken = $session->acquire($other);
say "$taken->{outcome} $taken->{token}";
say $session->commit($lease->{token}, $payload, 'late');
say $session->release($other, $taken->{token});
