# One worker of the nemesis run: takes jobs, commits under their tokens, and
# does on purpose what real workers do by accident: it loses replies, tries
# again with the same content and with another, works on after its lease has
# ended, and comes back to things of long ago.
#
#   perl worker.pl FOLDER ID INCARNATION SEED
#
# FOLDER/endpoint says where the server is, FOLDER/stop that it is enough.  Every
# call is logged before it is sent and every answer after it came, see History.pm.

use strict;
use warnings;

use FindBin qw($RealBin);
use lib $RealBin;

use History;
use Time::HiRes qw(sleep);
use Wire;

my @JOBS = qw(job/1 job/2 job/3);

# An answer that takes so long counts as a hang.
my $PATIENCE = 90;

# where a transaction is in the WAL
my $WHERE = <<'EOT';
pg_current_xact_id_if_assigned() AS xid,
CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END AS lsn,
CASE WHEN NOT pg_is_in_recovery() THEN
	('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int END AS tl
EOT

my $LEASE = <<"EOT";
SELECT l.outcome AS answer, l.token, extract(epoch FROM l.lease_until) AS until, l.retry_after_ms AS retry,
$WHERE FROM
EOT

my $COMMIT = <<"EOT";
SELECT c.outcome AS answer, c.result, extract(epoch FROM c.committed_at) AS committed_at, c.fence,
	c.error ->> 'sqlstate' AS failure,
$WHERE FROM fencing_commit(\$1, \$2, \$3, \$4, \$5, \$6) AS c
EOT

# The row says nothing about where it is, since it may be lost; the result does.
my $WRITE = <<'EOT';
INSERT INTO work (job, token, step, content) VALUES ($1, $2, $3 ->> 'step', $3 ->> 'content')
RETURNING jsonb_build_object('xid', pg_current_xact_id()::text,
	'tl', ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int)
EOT

# takes long enough for something to happen meanwhile
my $WRITE_SLOWLY = $WRITE =~ s/VALUES \((.*)\)\n/SELECT $1 FROM pg_sleep(0.02)\n/r;

# fails after it has written a row
my $BREAK = <<'EOT';
INSERT INTO work (job, token, step, content)
SELECT $1, $2 / (1 - i), $3 ->> 'step', $3 ->> 'content' FROM generate_series(0, 1) AS i
EOT

my ($folder, $id, $incarnation, $seed) = @ARGV;
my $who = "$id.$incarnation";
my $log = History->create("$folder/worker-$who.log");
my $parent = getppid;
my ($db, $twin);    # two connections
my $calls = 0;
my @past;    # attempts, for when it is much too late
my $server = '';
my $moved = 0;

srand $seed;
remember_predecessor();
until (stopped())
{
	haunt() if chance(0.2);
	# as soon as there is another server: nobody may have a token from it yet
	if ($moved && chance(0.7))
	{
		$moved = 0;
		haunt() for 1 .. 3;
	}
	write_carelessly() if chance(0.01);
	work(pick(@JOBS));
}

# What an execution does, from acquire to release.
sub work
{
	my ($job) = @_;
	my $owner = new_owner();
	my $ttl = 150 + int rand 350;
	my ($lease, $token);

	# whose reply was lost asks again, as the same owner
	do
	{
		$lease = acquire($job, $owner, $ttl) or return;
	} while (!defined $lease->{token} && $lease->{answer} ne 'held');
	$token = $lease->{token};
	if (!defined $token)
	{
		nap($lease->{retry} < 60 ? $lease->{retry} : 20 + rand 60);
		return;
	}
	acquire($job, $owner, $ttl) if chance(0.05);

	my $steps = chance(0.5) ? 1 : 1 + int rand 4;
	foreach my $step (1 .. $steps)
	{
		nap(chance(0.04) ? 1.5 * $ttl : rand 25);
		renew($job, $owner, $token, $ttl) if chance(0.3);

		my %attempt = (job => $job, token => $token, step => $steps == 1 ? '' : "step $step");
		rehearse({ %attempt, content => new_content() }) if chance(0.08);
		send_twice({ %attempt, content => new_content() }) if chance(0.05);
		my $outcome = settle({ %attempt, content => new_content() }) or return;
		last if $outcome eq 'stale' || $outcome eq 'pruned';
	}
	if (chance(0.6))
	{
		release($job, $owner, $token);
		release($job, $owner, $token) if chance(0.1);
		renew($job, $owner, $token, $ttl) if chance(0.1);
	}
}

# Tries until it knows the outcome; nothing if that is not to be known any more.
sub settle
{
	my ($attempt) = @_;
	my $outcome;

	push @past, $attempt;
	splice @past, 0, -40;
	do
	{
		# another content, in spite of the first one: somebody who computes twice
		commit_once(otherwise($attempt)) if defined $outcome && chance(0.15);
		$outcome = commit_once($attempt);
		return if stopped();
	} until ($outcome =~ /^(committed|replayed|conflict|stale|pruned)$/);

	commit_once($attempt) if chance(0.15);
	commit_once(otherwise($attempt)) if chance(0.08);
	return $outcome;
}

# One attempt goes off twice, maybe with another content.
sub send_twice
{
	my ($attempt) = @_;
	my @sent;

	connected() && ($twin //= new_connection()) or return;
	foreach my $one ($attempt, chance(0.6) ? $attempt : otherwise($attempt))
	{
		my $connection = @sent ? $twin : $db;
		my $n = begin_call('commit', %$one, mode => 'auto') or last;
		$connection->send($COMMIT, commit_parameters($one, $WRITE_SLOWLY));
		push @sent, { n => $n, connection => $connection };
	}
	# both, before a bad one closes the connections
	$_->{reply} = $_->{connection}->receive foreach @sent;
	answered($_->{n}, $_->{reply}) foreach @sent;
	push @past, $attempt;
	return;
}

# What must leave nothing behind.
sub rehearse
{
	my ($attempt) = @_;
	my $how = pick(
		{ planned => 'rollback', mode => pick('block', 'gate') },
		{ planned => 'savepoint', mode => 'block' },
		{ breaks => 1, report => 1, mode => pick('auto', 'block') },
		{ breaks => 1, mode => pick('auto', 'block') });

	commit_once($attempt, %$how);
}

# An attempt of the past comes again: as it was, with another content, or as
# another step of a token that has been superseded long since.
sub haunt
{
	return unless @past;
	my $attempt = pick(@past);

	$attempt = otherwise($attempt) if chance(0.3);
	$attempt = { %$attempt, content => new_content(), step => "$attempt->{step}+" } if chance(0.2);
	commit_once($attempt);
}

# The same number, claimed by another content.
sub otherwise
{
	my ($attempt) = @_;
	return { %$attempt, content => new_content() };
}

# Sends an attempt once.  Returns the outcome, or 'error', 'lost', 'rolledback'.
sub commit_once
{
	my ($attempt, %how) = @_;
	$how{mode} //= pick('auto', 'auto', 'auto', 'block', 'gate');
	$how{iso} = pick('REPEATABLE READ', 'SERIALIZABLE') if $how{mode} ne 'auto' && chance(0.2);

	my $statement = $how{breaks} ? $BREAK : chance(0.1) ? $WRITE_SLOWLY : $WRITE;
	my @params = commit_parameters($attempt, $how{mode} eq 'gate' ? undef : $statement, $how{report});
	my $n = begin_call('commit', %$attempt, %how) or return 'lost';
	return ask($n, $COMMIT, @params)->{answer} if $how{mode} eq 'auto';
	return commit_in_block($n, $attempt, \%how, @params);
}

sub commit_parameters
{
	my ($attempt, $statement, $report) = @_;

	return (@$attempt{qw(job token)}, qq({"step": "$attempt->{step}", "content": "$attempt->{content}"}),
		$statement, $attempt->{step}, $report ? 't' : 'f');
}

# In a transaction block: with the business write in the call, or after the gate
# alone; and as a rehearsal, which is rolled back.
sub commit_in_block
{
	my ($n, $attempt, $how, @params) = @_;
	my $planned = $how->{planned} // '';

	if (defined $how->{iso})
	{
		command($n, "BEGIN ISOLATION LEVEL $how->{iso}") && command($n, 'SELECT 1') or return 'error';
		# the snapshot gets old
		nap(rand 300) if chance(0.5);
	}
	else
	{
		command($n, 'BEGIN') or return 'error';
	}
	if ($planned eq 'savepoint')
	{
		command($n, 'SAVEPOINT before') or return 'error';
	}
	my $reply = $db->query($COMMIT, @params);
	return failed($n, $reply)->{answer} if !good($reply);
	my %told = %{ $reply->{rows}[0] };
	my $outcome = delete $told{answer};
	$log->record('told', who => $who, n => $n, told => $outcome, %told);

	if ($outcome eq 'committed' && $planned eq 'savepoint')
	{
		command($n, 'ROLLBACK TO SAVEPOINT before') or return 'error';
		# what the gate allowed is over with it
		if (chance(0.5))
		{
			insert($n, $attempt) or return 'error';
		}
	}
	elsif ($outcome eq 'committed' && $how->{mode} eq 'gate')
	{
		nap(chance(0.1) ? rand 700 : rand 10);
		insert($n, $attempt) or return 'error';
	}
	if ($outcome eq 'committed' && $planned)
	{
		command($n, $planned eq 'rollback' ? 'ROLLBACK' : 'COMMIT') or return 'error';
		$log->record('answer', who => $who, n => $n, answer => 'rolledback');
		return 'rolledback';
	}

	$db->send('COMMIT');
	return 'lost' if chance(0.05) && cut($n);
	$reply = $db->receive;
	return failed($n, $reply)->{answer} if !good($reply);
	$reply->{tag} eq 'COMMIT' or die "COMMIT was answered $reply->{tag}\n";
	$log->record('answer', who => $who, n => $n, answer => $outcome, %told);
	return $outcome;
}

# The business write of a transaction that has passed the gate.
sub insert
{
	my ($n, $attempt) = @_;

	return command($n, 'INSERT INTO work (job, token, step, content) VALUES ($1, $2, $3, $4)',
		@$attempt{qw(job token step content)});
}

# A program that has never heard of fences.
sub write_carelessly
{
	my $row = { job => pick(@JOBS), token => 1, step => 'careless', content => new_content() };
	my $n = begin_call('careless', %$row) or return;

	insert($n, $row) or return;
	$log->record('answer', who => $who, n => $n, answer => 'written');
}

sub acquire
{
	my ($job, $owner, $ttl) = @_;
	my $n = begin_call('acquire', job => $job, owner => $owner, ttl => $ttl) or return;

	return ask($n, $LEASE . 'fencing_acquire($1, $2, $3) AS l', $job, $owner, "$ttl ms");
}

sub renew
{
	my ($job, $owner, $token, $ttl) = @_;
	my $n = begin_call('renew', job => $job, owner => $owner, token => $token, ttl => $ttl) or return;

	return ask($n, $LEASE . 'fencing_renew($1, $2, $3, $4) AS l', $job, $owner, $token, "$ttl ms");
}

sub release
{
	my ($job, $owner, $token) = @_;
	my $n = begin_call('release', job => $job, owner => $owner, token => $token) or return;

	return ask($n, 'SELECT fencing_release($1, $2, $3) AS answer', $job, $owner, $token);
}

# Logs a call.  Returns its number; nothing if there is no server any more.
sub begin_call
{
	my ($call, @arguments) = @_;

	connected() or return;
	$log->record('call', who => $who, n => ++$calls, call => $call, @arguments);
	return $calls;
}

# A call that is a transaction of its own.  Its reply may get lost.
sub ask
{
	my ($n, $sql, @params) = @_;

	$db->send($sql, @params);
	return { answer => 'lost' } if chance(0.03) && cut($n);
	return answered($n, $db->receive);
}

# Ends a call with its reply.
sub answered
{
	my ($n, $reply) = @_;

	return failed($n, $reply) if !good($reply);
	$log->record('answer', who => $who, n => $n, %{ $reply->{rows}[0] });
	return $reply->{rows}[0];
}

# A command within a call.  False if it failed: then the call is over.
sub command
{
	my ($n, $sql, @params) = @_;
	my $reply = $db->query($sql, @params);

	return 1 if good($reply);
	failed($n, $reply);
	return 0;
}

sub good
{
	my ($reply) = @_;
	return !defined $reply->{code} && !defined $reply->{lost};
}

# Ends a call that has no proper answer.
sub failed
{
	my ($n, $reply) = @_;
	my $fatal = defined $reply->{code} && $reply->{severity} ne 'ERROR' ? 1 : undef;
	my $answer = defined $reply->{code} ? 'error' : 'lost';

	$log->record('answer', who => $who, n => $n, answer => $answer,
		sqlstate => $reply->{code}, fatal => $fatal, message => $reply->{message},
		how => $reply->{lost});
	if ($fatal || defined $reply->{lost})
	{
		hang_up();
	}
	elsif ($db)
	{
		# nothing to roll back is only a warning
		hang_up() if !good($db->query('ROLLBACK'));
		# a standby takes writes only when it has been promoted
		nap(20);
	}
	return { answer => $answer };
}

# Leaves without waiting for the reply, sooner or later.
sub cut
{
	my ($n) = @_;

	sleep rand 0.004;
	hang_up();
	$log->record('answer', who => $who, n => $n, answer => 'lost', how => 'cut');
	return 1;
}

sub hang_up
{
	$_->disconnect foreach grep { defined } $db, $twin;
	undef $db;
	undef $twin;
	return;
}

# True when there is a connection; waits for a server.
sub connected
{
	until ($db || stopped())
	{
		$db = new_connection() or nap(20);
	}
	return !stopped();
}

# Nothing if there is no server now.
sub new_connection
{
	open my $file, '<', "$folder/endpoint" or die "$folder/endpoint: $!\n";
	my ($host, $port) = split ' ', <$file>;
	close $file;
	$moved = $server ne '' if $port ne $server;
	$server = $port;
	return Wire->connect(host => $host, port => $port, user => 'stress_app',
		dbname => 'stress', patience => $PATIENCE);
}

sub stopped
{
	return getppid != $parent || -e "$folder/stop";
}

# Attempts of the process that was killed in our place: its successor finds
# them, as from a queue, and tries them again.
sub remember_predecessor
{
	my $file = "$folder/worker-$id." . ($incarnation - 1) . '.log';

	return unless -e $file;
	History::read_file($file, sub {
		my ($kind, $pairs) = @_;
		return unless $kind eq 'call' && $pairs->{call} eq 'commit' &&
			!grep { defined $pairs->{$_} } qw(planned breaks);
		push @past, { map { $_ => $pairs->{$_} } qw(job token step content) };
	});
	splice @past, 0, -10;
	commit_once($past[-1]) if @past;
}

sub new_content
{
	return "$who-" . ++(our $contents);
}

sub new_owner
{
	return sprintf '%04x%04x-%04x-4%03x-a%03x-%04x%04x%04x',
		(map { int rand 65536 } 1 .. 3), (map { int rand 4096 } 1 .. 2),
		(map { int rand 65536 } 1 .. 3);
}

sub chance
{
	my ($probability) = @_;
	return rand() < $probability;
}

sub pick
{
	return $_[ rand @_ ];
}

sub nap
{
	my ($ms) = @_;
	sleep $ms / 1000;
	return;
}
