# The nemesis: runs servers and workers, and does to them what happens to such
# things.  It freezes and kills workers, terminates and kills backends, crashes
# the server, and loses it for good together with the last of its WAL, so that an
# asynchronous standby takes over; beside that it purges, revokes, forgets and
# begins new epochs.
#
#   my $nemesis = Nemesis->new(folder => $folder, seconds => 60, seed => 1);
#   $nemesis->run;
#
# Afterwards the folder has the history (History.pm) in *.log, what the workers
# said on standard error in *.err, and $nemesis->counts what was answered how
# often.  Dies if something takes very much longer than it should.
#
# Nothing is decided by how long it takes: acts come from a shuffled pack, one
# after the other, each waits for what it has brought about, and the run lasts
# until the time is over, the pack has been played twice, and enough happened.

package Nemesis;

use strict;
use warnings;

use File::Basename qw(dirname);
use File::Path qw(rmtree);
use History;
use List::Util qw(max shuffle sum0);
use POSIX qw(WNOHANG);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Time::HiRes qw(sleep);
use Wire;

my $WORKERS = 9;
my @JOBS = qw(job/1 job/2 job/3);

# how long to wait for what is bound to happen
my $PATIENCE = $PostgreSQL::Test::Utils::timeout_default;

my @PACK = (
	('freeze') x 7, ('kill_worker') x 3, ('terminate_backends') x 3,
	('purge') x 2, ('revoke') x 2, 'forget', 'new_epoch',
	'crash', 'kill_server', 'kill_backend', 'promote');

# of the answers that only come when something happens; fewer are no proof
my %ENOUGH = (committed => 200, replayed => 30, conflict => 10, stale => 30, pruned => 3, lost => 20);

my $CONF = <<'EOT';
restart_after_crash = on
synchronous_commit = off
wal_writer_delay = '10s'
wal_keep_size = '1GB'
max_wal_size = '512MB'
shared_buffers = '16MB'
max_connections = 60
log_statement = none
EOT

my $SETUP = <<'EOT';
CREATE EXTENSION fencing CASCADE;
CREATE ROLE stress_app LOGIN;
SELECT fencing_grant('stress_app', 'client');

-- no constraint: what comes twice shall be seen
CREATE TABLE work (job text, token bigint, step text, content text);
GRANT INSERT ON work TO stress_app;
SELECT fencing_protect('work', 'job');

-- which receipts a purge removes: what is there before and not after, to a
-- transaction that sees nobody else's changes
CREATE TABLE purged (xid xid8, job text, token bigint, step text);
CREATE FUNCTION purge_and_note(older_than interval, max_rows int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	gone bigint;
BEGIN
	INSERT INTO purged SELECT pg_current_xact_id(), job_key, token, step FROM fencing.receipts;
	SELECT p.purged INTO gone FROM fencing_purge('receipts', older_than, max_rows) p;
	DELETE FROM purged p USING fencing.receipts r
	WHERE p.xid = pg_current_xact_id() AND (p.job, p.token, p.step) = (r.job_key, r.token, r.step);
	RETURN gone;
END $$;
EOT

# where a transaction is in the WAL
my $WHERE = <<'EOT';
pg_current_xact_id_if_assigned() AS xid,
('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int AS tl
EOT

sub new
{
	my ($class, %options) = @_;
	my $self = bless {
		%options,
		owner => $$,
		nodes => 0,
		faults => 0,
		calls => 0,
		timeline => 1,
		counts => {},
		workers => [],
		frozen => [],
	}, $class;

	srand $self->{seed};
	$self->{log} = History->create("$self->{folder}/nemesis.log");
	return $self;
}

sub run
{
	my ($self) = @_;

	$self->start_servers;
	my $end = History::now() + $self->{seconds};
	my $latest = $end + max($self->{seconds}, 120);
	my $rounds = 0;
	$self->spawn({ id => $_, incarnation => 0 }) foreach 1 .. $WORKERS;
	$self->wait_for_progress;

	until ($rounds >= 2 && History::now() >= $end &&
		($self->enough || History::now() >= $latest))
	{
		foreach my $act (shuffle @PACK)
		{
			$self->pause(0.05 + rand 0.5);
			$self->$act;
			last if $rounds >= 2 && History::now() >= $end && $self->enough;
		}
		$rounds++;
	}

	$self->stop_workers;
	# what was acknowledged last must be there too
	$self->crash_server;
	$self->export;
	$self->{primary}->stop('fast');
	$self->read_wal($self->{primary}, $self->{timeline});
	return;
}

# What was answered how often, as far as the logs have been read.
sub counts
{
	my ($self) = @_;

	$self->read_log($_) foreach @{ $self->{workers} };
	return $self->{counts};
}

sub read_log
{
	my ($self, $worker) = @_;
	my $file = "$self->{folder}/worker-$worker->{id}.$worker->{incarnation}.log";

	open my $handle, '<', $file or return;
	seek $handle, $worker->{read}, 0;
	while (my $line = <$handle>)
	{
		last if $line !~ /\n$/;
		$worker->{read} += length $line;
		$self->{counts}{$1}++ if $line =~ /^answer\t.*\tanswer=(\w+)/;
	}
	close $handle;
	return;
}

# What no server should ever have to say; those that are killed say nothing.
sub alarms
{
	my ($self) = @_;

	return grep { /PANIC:|TRAP:|terminated by signal (?!9:)/ }
	  map { split /\n/, slurp_file($_) } @{ $self->{server_logs} };
}

sub enough
{
	my ($self) = @_;
	my $counts = $self->counts;

	return !grep { ($counts->{$_} // 0) < 2 * $ENOUGH{$_} } keys %ENOUGH;
}

# ---- Servers

sub start_servers
{
	my ($self) = @_;
	my $primary = $self->{primary} = $self->new_node;

	$primary->init(allows_streaming => 1,
		extra => [ '--encoding=UTF8', '--locale=C', '--wal-segsize=1' ]);
	$primary->append_conf('postgresql.conf', $CONF);
	$primary->start;
	$primary->safe_psql('postgres', 'CREATE DATABASE stress');
	$primary->safe_psql('stress', $SETUP);
	$self->{timeline_start} = $primary->safe_psql('stress', 'SELECT pg_current_wal_flush_lsn()');
	$self->start_standby;
	$self->set_endpoint($primary);
	return;
}

sub new_node
{
	my ($self) = @_;
	my $node = PostgreSQL::Test::Cluster->new('stress' . ++$self->{nodes});

	push @{ $self->{server_logs} }, $node->logfile;
	return $node;
}

# A standby of the primary.
sub start_standby
{
	my ($self) = @_;
	my $standby = $self->new_node;
	my $primary = $self->{primary};

	$primary->backup('backup');
	$standby->init_from_backup($primary, 'backup', has_streaming => 1);
	rmtree($primary->backup_dir . '/backup');
	$standby->start;
	$self->{standby} = $standby;
	return;
}

# Where workers find the server; replaced as a whole.
sub set_endpoint
{
	my ($self, $node) = @_;
	my $file = "$self->{folder}/endpoint";

	open my $handle, '>', "$file.new" or die "$file.new: $!\n";
	print $handle $node->host, ' ', $node->port, "\n";
	close $handle or die "$file.new: $!\n";
	rename "$file.new", $file or die "$file: $!\n";
	return;
}

# A connection for ourselves.
sub connect
{
	my ($self, $node) = @_;
	my $db;

	$self->wait_until('a connection', sub {
		$db = Wire->connect(host => $node->host, port => $node->port,
			user => scalar getpwuid($<), dbname => 'stress', patience => $PATIENCE);
	});
	return $db;
}

# Rows of a query.
sub rows
{
	my ($self, $db, @query) = @_;
	my $reply = $db->query(@query);

	die "$query[0]: " . ($reply->{message} // $reply->{lost}) . "\n"
	  if defined $reply->{code} || defined $reply->{lost};
	return @{ $reply->{rows} };
}

# kill -9 of all processes of a server at a time.  The postmaster is stopped
# first, so that it does not start others meanwhile.
sub kill_processes
{
	my ($self, $node) = @_;
	my $file = $node->data_dir . '/postmaster.pid';
	open my $handle, '<', $file or die "$file: $!\n";
	my $postmaster = int <$handle>;
	close $handle;

	kill 'STOP', $postmaster;
	$self->wait_until('the postmaster to stop', sub { (process($postmaster))[0] eq 'T' });
	my @children = grep { (process($_))[1] == $postmaster } map { m{(\d+)} } glob '/proc/[0-9]*';
	kill 'KILL', @children;
	$node->kill9;
	$self->wait_until('the server to be dead',
		sub { !grep { (process($_))[0] ne 'Z' } $postmaster, @children });

	# who is init may not care for zombies, and their ids look alive
	unlink $file, map { $node->host . '/.s.PGSQL.' . $node->port . $_ } '', '.lock';
	return;
}

# State and parent; a zombie without parent if there is no such process.
sub process
{
	my ($pid) = @_;
	my $file;

	return ('Z', 0) if !open $file, '<', "/proc/$pid/stat";
	my $line = <$file>;
	close $file;
	return defined $line && $line =~ /.*\) (\w) (\d+)/ ? ($1, $2) : ('Z', 0);
}

# ---- Workers

sub spawn
{
	my ($self, $worker) = @_;
	my $name = $worker->{id} . '.' . ++$worker->{incarnation};
	my @command = ($^X, dirname(__FILE__) . '/worker.pl', $self->{folder},
		$worker->{id}, $worker->{incarnation}, int rand 2**31);

	my $pid = fork // die "fork: $!\n";
	if ($pid == 0)
	{
		open STDIN, '<', '/dev/null';
		open STDOUT, '>>', "$self->{folder}/worker-$name.err";
		open STDERR, '>&', \*STDOUT;
		{ no warnings 'exec'; exec @command; }
		POSIX::_exit(127);
	}
	@$worker{qw(pid killed read)} = ($pid, 0, 0);
	push @{ $self->{workers} }, $worker;
	return;
}

# Starts again who was killed; nobody may end of himself.
sub look_after_workers
{
	my ($self) = @_;

	foreach my $worker (@{ $self->{workers} })
	{
		next if waitpid($worker->{pid}, WNOHANG) != $worker->{pid};
		my $status = $?;

		$self->read_log($worker);
		$self->{workers} = [ grep { $_ != $worker } @{ $self->{workers} } ];
		if ($worker->{killed})
		{
			$self->spawn($worker);
		}
		elsif ($status != 0 || !$self->{stopping})
		{
			my $file = "$self->{folder}/worker-$worker->{id}.$worker->{incarnation}.err";
			die "a worker ended with status $status: " . slurp_file($file) . "\n";
		}
	}
	return;
}

sub stop_workers
{
	my ($self) = @_;

	$self->{stopping} = 1;
	open my $handle, '>', "$self->{folder}/stop" or die "$self->{folder}/stop: $!\n";
	close $handle;
	$self->thaw(@{ $self->{frozen} });
	$self->wait_until('the workers to stop', sub { !@{ $self->{workers} } });
	return;
}

# Up to so many workers, none of them frozen or about to be started again.
sub some_workers
{
	my ($self, $number) = @_;
	my %frozen = map { $_->{pid} => 1 } @{ $self->{frozen} };
	my @workers = shuffle grep { !$frozen{ $_->{pid} } && !$_->{killed} } @{ $self->{workers} };

	return splice @workers, 0, $number;
}

# until: when they go on; nobody is frozen for ever
sub freeze_workers
{
	my ($self, $until, @workers) = @_;

	foreach my $worker (@workers)
	{
		$self->fault('freeze');
		kill 'STOP', $worker->{pid};
		push @{ $self->{frozen} }, { pid => $worker->{pid}, until => $until };
	}
	return;
}

sub thaw
{
	my ($self, @frozen) = @_;

	foreach my $one (@frozen)
	{
		kill 'CONT', $one->{pid};
		$self->{frozen} = [ grep { $_ != $one } @{ $self->{frozen} } ];
	}
	return;
}

# ---- Waiting

# Time passes; what is due meanwhile is done.
sub pause
{
	my ($self, $seconds) = @_;
	my $end = History::now() + $seconds;

	do
	{
		my $now = History::now();
		$self->look_after_workers;
		$self->thaw(grep { defined $_->{until} && $_->{until} <= $now } @{ $self->{frozen} });
		sleep 0.02;
	} while (History::now() < $end);
	return;
}

sub wait_until
{
	my ($self, $what, $condition) = @_;
	my $deadline = History::now() + $PATIENCE;

	until ($condition->())
	{
		die "waited too long for $what\n" if History::now() > $deadline;
		$self->pause(0.02);
	}
	return;
}

# So many more of these answers than now.
sub wait_for_answers
{
	my ($self, %more) = @_;
	my %until = map { $_ => ($self->counts->{$_} // 0) + $more{$_} } keys %more;

	$self->wait_until("the workers to be told @{[ sort keys %more ]}", sub {
		my $counts = $self->counts;
		return !grep { ($counts->{$_} // 0) < $until{$_} } keys %until;
	});
	return;
}

sub wait_for_progress
{
	my ($self) = @_;
	return $self->wait_for_answers(committed => 5, acquired => 3);
}

# ---- Acts

sub fault
{
	my ($self, $kind, $edge) = @_;

	$self->{log}->record('fault', n => ++$self->{faults}, kind => $kind, edge => $edge);
	return;
}

sub freeze
{
	my ($self) = @_;

	$self->freeze_workers(History::now() + 0.6 + rand 1.5, $self->some_workers(1 + int rand 2));
	return;
}

sub kill_worker
{
	my ($self) = @_;

	foreach my $worker ($self->some_workers(1))
	{
		$self->fault('kill_worker');
		$worker->{killed} = 1;
		kill 'KILL', $worker->{pid};
	}
	return;
}

sub terminate_backends
{
	my ($self) = @_;
	my $db = $self->connect($self->{primary});

	$self->fault('terminate_backends');
	$self->rows($db, q{SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity
		WHERE usename = 'stress_app' ORDER BY random() LIMIT 3) AS a});
	$db->disconnect;
	return;
}

# stop -m immediate, and start again.
sub crash
{
	my ($self) = @_;

	$self->crash_server;
	$self->wait_for_progress;
	return;
}

sub crash_server
{
	my ($self) = @_;

	$self->fault('crash', 'begin');
	$self->{primary}->stop('immediate');
	$self->{primary}->start;
	$self->fault('crash', 'end');
	return;
}

# The same with kill -9.
sub kill_server
{
	my ($self) = @_;

	$self->fault('kill_server', 'begin');
	$self->kill_processes($self->{primary});
	$self->{primary}->start;
	$self->fault('kill_server', 'end');
	$self->wait_for_progress;
	return;
}

# One backend dies, and the postmaster restarts all.  It is one of ours, so that
# it does not end by itself at that moment.
sub kill_backend
{
	my ($self) = @_;
	my $db = $self->connect($self->{primary});
	my ($victim) = $self->rows($db, 'SELECT pg_backend_pid() AS pid');

	$self->fault('kill_backend', 'begin');
	my $other = $self->connect($self->{primary});
	kill 'KILL', $victim->{pid};
	$self->wait_until('the server to restart', sub { defined $other->query('SELECT 1')->{lost} });
	$self->connect($self->{primary})->disconnect;
	$self->fault('kill_backend', 'end');
	$self->wait_for_progress;
	return;
}

# The primary is lost, and with it WAL that has not reached the standby.
sub promote
{
	my ($self) = @_;
	my ($old, $new, $timeline) = @$self{qw(primary standby timeline)};
	my $db = $self->connect($new);

	# a new epoch must not be lost: nobody could know of it
	my ($flushed) = $self->rows($self->connect($old), 'SELECT pg_current_wal_flush_lsn() AS lsn');
	$self->wait_until('the standby to keep up', sub {
		($self->rows($db, q{SELECT count(*) AS n FROM pg_stat_wal_receiver
			WHERE status = 'streaming' AND pg_last_wal_receive_lsn() >= $1}, $flushed->{lsn}))[0]{n};
	});
	$self->fault('promotion', 'begin');

	# zombies to be: they sleep through it all
	my @zombies = $self->some_workers(2);
	$self->freeze_workers(undef, @zombies);
	my %zombie = map { $_->{pid} => 1 } @zombies;

	$self->rows($db, q{ALTER SYSTEM SET primary_conninfo = ''});
	$self->rows($db, 'SELECT pg_reload_conf()');
	$self->wait_until('the standby to be cut off', sub {
		!($self->rows($db, 'SELECT count(*) AS n FROM pg_stat_wal_receiver'))[0]{n};
	});
	$self->wait_for_answers(committed => 10, acquired => 4);
	if (rand() < 0.5)
	{
		my $act = ('purge', 'revoke', 'forget')[ rand 3 ];
		$self->$act;
		$self->wait_for_answers(committed => 3);
	}

	my @last = $self->fences;
	$self->kill_processes($old);
	my ($received) = $self->rows($db, 'SELECT pg_last_wal_receive_lsn() AS lsn');
	$db->disconnect;

	# every other time the workers find it before it is ready; else somebody was
	# there before them, with the last tokens that arrived and the last that did not
	$self->set_endpoint($new) if $timeline % 2 == 0;
	$new->promote;
	$self->{primary} = $new;
	$self->commit_as_zombie(%$_) foreach $timeline % 2 == 1 ? ($self->fences, @last) : ();
	$self->set_endpoint($new);
	$self->{timeline}++;
	my $switch = switch_point($new, $timeline, $self->{timeline});
	$self->{log}->write('promotion', from => $timeline, to => $self->{timeline},
		switch => $switch, received => $received->{lsn});
	$self->fault('promotion', 'end');
	$self->thaw(grep { $zombie{ $_->{pid} } } @{ $self->{frozen} });

	$self->read_wal($old, $timeline);
	$old->clean_node;
	$self->{timeline_start} = $switch;
	$self->wait_for_progress;
	$self->rows($self->connect($new), 'ALTER SYSTEM RESET primary_conninfo');
	$self->start_standby;
	return;
}

# Where a timeline ended, as its successor's history file has it.
sub switch_point
{
	my ($node, $from, $to) = @_;
	my $file = $node->data_dir . sprintf('/pg_wal/%08X.history', $to);
	my ($line) = grep { /^$from\t/ } split /\n/, slurp_file($file);

	die "$file: timeline $from is not there\n" if !defined $line;
	return (split /\t/, $line)[1];
}

# The commit records of a server that has ended, as far as they are on disk.
# pg_waldump ends with an error where the WAL ends.
sub read_wal
{
	my ($self, $node, $timeline) = @_;
	my $out = History->create("$self->{folder}/wal-$timeline.log");
	my $folder = $node->data_dir . '/pg_wal';
	my @command = ('pg_waldump', "--path=$folder", '--rmgr=Transaction',
		"--timeline=$timeline", "--start=$self->{timeline_start}");
	my $commits = 0;

	# pg_waldump asks the file that it happens to find first how long a segment is;
	# one that is not in use yet does not know
	foreach my $segment (grep { m{/[0-9A-F]{24}$} } glob "$folder/*")
	{
		open my $handle, '<:raw', $segment or die "$segment: $!\n";
		read $handle, my $magic, 2;
		close $handle;
		unlink $segment if $magic eq "\0\0";
	}

	open my $dump, '-|', @command or die "pg_waldump: $!\n";
	while (my $line = <$dump>)
	{
		next if $line !~ m{tx: +(\d+), lsn: ([0-9A-F/]+), .*desc: COMMIT };
		$out->write('wal', tl => $timeline, xid => $1, lsn => $2);
		$commits++;
	}
	close $dump;
	die "no commit found in the WAL of timeline $timeline\n" if !$commits;
	return;
}

# ---- Calls

# Calls a function in a transaction: further is called with the connection and
# the row, and returns what to log beside it.
sub call
{
	my ($self, $call, $arguments, $sql, $params, $further, $begin) = @_;
	my $db = $self->connect($self->{primary});
	my @who = (who => 'nemesis', n => ++$self->{calls});

	$self->{log}->record('call', @who, call => $call, @$arguments);
	my ($reply, @more);
	foreach my $command ([ $begin // 'BEGIN' ], [q{SET LOCAL lock_timeout = '5s'}], [ $sql, @$params ], ['COMMIT'])
	{
		@more = $further->($db, $reply->{rows}[0], @who) if $further && $command->[0] eq 'COMMIT';
		my $next = $db->query(@$command);
		$reply = $next if $command->[0] eq $sql || defined $next->{code} || defined $next->{lost};
		last if defined $reply->{code} || defined $reply->{lost};
	}
	if (defined $reply->{code} || defined $reply->{lost})
	{
		$self->{log}->record('answer', @who, answer => defined $reply->{code} ? 'error' : 'lost',
			sqlstate => $reply->{code}, message => $reply->{message}, how => $reply->{lost});
	}
	else
	{
		$self->{log}->record('answer', @who, %{ $reply->{rows}[0] }, @more);
	}
	$db->disconnect;
	return;
}

sub revoke
{
	my ($self) = @_;
	my $job = $JOBS[ rand @JOBS ];

	$self->call('revoke', [ job => $job ],
		"SELECT 'revoked' AS answer, token, $WHERE FROM fencing_revoke(\$1, 'stress') AS token", [$job]);
	return;
}

# A job that is in use all the time: end its lease and forget it, at once.
sub forget
{
	my ($self) = @_;
	my $job = $JOBS[ rand @JOBS ];

	$self->call('forget', [ job => $job ], 'SELECT fencing_revoke($1, $2) AS token', [ $job, 'stress' ],
		sub {
			my ($db) = @_;
			my $reply = $db->query('SELECT fencing_forget($1)', $job);
			return (answer => 'busy', sqlstate => $reply->{code}) if defined $reply->{code};
			return %{ ($self->rows($db,
				"SELECT 'forgotten' AS answer, max(floor) AS floor, $WHERE FROM fencing.floor"))[0] };
		});
	return;
}

sub new_epoch
{
	my ($self) = @_;

	$self->call('new_epoch', [],
		"SELECT 'begun' AS answer, e AS token, $WHERE FROM fencing_new_epoch('stress') AS e", []);
	return;
}

sub commit_as_zombie
{
	my ($self, %fence) = @_;
	my $content = 'zombie-' . ++$self->{zombies};
	my ($job, $token) = @fence{qw(job token)};

	$self->call('commit', [ job => $job, token => $token, step => 'zombie', content => $content ],
		"SELECT c.outcome AS answer, c.fence, extract(epoch FROM c.committed_at) AS committed_at, $WHERE
		FROM fencing_commit(\$1, \$2, \$3, \$4, 'zombie') AS c",
		[ $job, $token, qq({"step": "zombie", "content": "$content"}),
			q{INSERT INTO work VALUES ($1, $2, $3 ->> 'step', $3 ->> 'content')} ]);
	return;
}

# Job and highest token of each.
sub fences
{
	my ($self) = @_;
	return $self->rows($self->connect($self->{primary}), 'SELECT job_key AS job, token FROM fencing.fences');
}

sub purge
{
	my ($self) = @_;

	$self->call('purge', [ iso => 'REPEATABLE READ' ],
		"SELECT 'purged' AS answer, p AS purged, $WHERE FROM purge_and_note(\$1, \$2) AS p",
		[ 1 + int(rand 3) . ' s', 20 + int rand 500 ],
		sub {
			my ($db, $row, @who) = @_;
			$self->{log}->record('purged', @who, %$_) foreach $self->rows($db,
				'SELECT job, token, step FROM purged WHERE xid = pg_current_xact_id()');
			return;
		},
		'BEGIN ISOLATION LEVEL REPEATABLE READ');
	return;
}

# ---- The end

# The database, for the checker.
sub export
{
	my ($self) = @_;
	my $out = History->create("$self->{folder}/database.log");
	my $db = $self->connect($self->{primary});

	$out->write('row', %$_) foreach $self->rows($db, 'SELECT job, token, step, content FROM work');
	$out->write('receipt', %$_) foreach $self->rows($db,
		q{SELECT job_key AS job, token, step, encode(digest, 'hex') AS digest,
			extract(epoch FROM committed_at) AS committed_at FROM fencing.receipts});
	$out->write('fence', %$_) foreach $self->fences;
	$out->write('end', tl => $self->{timeline});
	$db->disconnect;
	return;
}

# Nobody stays behind, frozen ones least of all.
sub DESTROY
{
	my ($self) = @_;

	return if $$ != $self->{owner};
	local ($?, $!);
	foreach my $pid (map { $_->{pid} } @{ $self->{workers} })
	{
		kill 'KILL', $pid;
		waitpid $pid, 0;
	}
	return;
}

1;
