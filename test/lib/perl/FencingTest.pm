# What the TAP tests with real servers have in common: nodes with the extension,
# calls whose answer is an outcome or an SQLSTATE, sessions that stay open and
# may wait, and workers that keep what they were told while a server fails.

package FencingTest;

use strict;
use warnings;

use Exporter qw(import);
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(owner token_of new_node standby_of catch_up cut_off answers answer is_answers
  open_session connect_through await_true await_lock start_workers stop_workers
  wait_for_acknowledged acknowledged values_list check_acknowledged check_rows check_zombies);

# The n-th execution of a worker, quoted.
sub owner
{
	my ($n) = @_;
	return sprintf q{'00000000-0000-4000-8000-%012x'}, $n;
}

# The n-th token of an epoch.
sub token_of
{
	my ($epoch, $n) = @_;
	return ($epoch << 36) + $n;
}

# A running server with the extension in its database postgres.
sub new_node
{
	my ($name, $conf, %params) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	# any encoding but UTF8 is refused by the digests
	$node->init(extra => [ '--encoding=UTF8', '--no-locale' ], %params);
	$node->append_conf('postgresql.conf', "autovacuum = off\n" . ($conf // ''));
	$node->start;
	$node->safe_psql('postgres',
		'CREATE EXTENSION fencing CASCADE; CREATE TABLE business (job text, token bigint, content text)');
	return $node;
}

# A streaming standby that has caught up.
sub standby_of
{
	my ($primary, $name, $conf) = @_;
	my $standby = PostgreSQL::Test::Cluster->new($name);

	$primary->backup("for_$name");
	$standby->init_from_backup($primary, "for_$name", has_streaming => 1);
	$standby->append_conf('postgresql.conf', $conf) if defined $conf;
	$standby->start;
	catch_up($primary, $standby);
	return $standby;
}

# The first may be a standby itself.
sub catch_up
{
	my ($primary, $standby) = @_;
	my $is_standby = $primary->safe_psql('postgres', 'SELECT pg_is_in_recovery()') eq 't';

	# a commit that is not flushed yet has not been written either
	$primary->safe_psql('postgres', q{SET synchronous_commit = on; SELECT pg_logical_emit_message(true, 'flush', '')})
	  if !$is_standby;
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn($is_standby ? 'replay' : 'flush'));
	return;
}

# From here on nothing that is written on the primary arrives.
sub cut_off
{
	my ($standby) = @_;

	$standby->append_conf('postgresql.conf', q{primary_conninfo = ''});
	$standby->reload;
	await_true($standby, 'SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)', $standby->name . ' is cut off');
	return;
}

# Runs calls one after the other in one session, and gives for each its output
# or the SQLSTATE of its error.
sub answers
{
	my ($node, $db, @calls) = @_;
	my ($ret, $out, $err) =
	  $node->psql($db, join('', map { "$_;\n\\echo sqlstate :SQLSTATE\n" } @calls), on_error_stop => 0);
	my @answers;

	push @answers, $2 eq '00000' ? $1 : $2 while $out =~ /\G(.*?)\n?sqlstate ([0-9A-Z]{5})(?:\n|$)/sg;
	return @answers;
}

sub answer
{
	my ($node, $call, $db) = @_;
	return (answers($node, $db // 'postgres', $call))[0];
}

# Checks of the form [ name, call, expected ], in one session.
sub is_answers
{
	my ($node, $db, $what, @checks) = @_;
	my @got = answers($node, $db, map { $_->[1] } @checks);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(scalar @got, scalar @checks, "$what: all calls were answered");
	is(shift @got, $_->[2], "$what: $_->[0]") foreach @checks;
	return;
}

sub open_session
{
	my ($node, $db) = @_;
	return FencingTest::Session->new($node, $db // 'postgres');
}

# Polls, and is a test by itself.
sub await_true
{
	my ($node, $query, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok($node->poll_query_until('postgres', $query), $name);
	return;
}

# Waits until a backend waits for a heavyweight lock.
sub await_lock
{
	my ($node, $pid, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	await_true($node, "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $pid", $name);
	return;
}

#
# Workers.  Each is a psql that takes jobs, commits and releases them, and
# writes to its own file what it was told, after it was told.
#
my $workers_started = 0;

sub start_workers
{
	my ($node, %params) = @_;
	my $count = $params{count} // 4;
	my @jobs = @{ $params{jobs} };
	my $connstr = $params{connstr} // $node->connstr('postgres');
	my @workers;

	foreach (1 .. $count)
	{
		my $number = ++$workers_started;
		my $base = PostgreSQL::Test::Utils::tempdir() . "/worker_$number";
		my $script = $params{begin} // '';

		foreach my $i (1 .. ($params{rounds} // 5000))
		{
			my $job = $jobs[ ($i + $number) % @jobs ];
			my $owner = owner($number << 32 | $i);
			my $by = "$number/$i";

			# Not every lease is released: some have to expire.
			$script .= <<"EOT";
SELECT outcome = 'acquired' AS got, token FROM fencing_acquire('$job', $owner, '50 ms') \\gset
\\if :got
\\echo acquired $job :token $by
SELECT outcome FROM fencing_commit('$job', :token, '{"by": "$by"}', 'INSERT INTO business VALUES (\$1, \$2, \$3 ->> ''by'')') \\gset
\\echo :outcome $job :token $by
EOT
			$script .= "SELECT outcome FROM fencing_release('$job', $owner, :token) \\gset\n" if $i % 10;
			$script .= "\\else\nSELECT pg_sleep(0.002) \\gset\n\\endif\n";
		}
		append_to_file("$base.sql", $script);
		my $run = IPC::Run::start(
			[ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $connstr, '-f', "$base.sql" ],
			'<', \undef, '>', "$base.log", '2>', "$base.err");
		push @workers, { run => $run, log => "$base.log" };
	}
	return @workers;
}

# Until the workers were told so often that something was committed.
sub wait_for_acknowledged
{
	my ($count, @workers) = @_;
	my $tries = 10 * $PostgreSQL::Test::Utils::timeout_default;

	while (@{ acknowledged(@workers)->{committed} } < $count)
	{
		die "the workers do not get on" if !$tries--;
		select undef, undef, undef, 0.1;
	}
	return;
}

# For workers whose server has gone they have ended already.
sub stop_workers
{
	my (@workers) = @_;

	foreach my $worker (@workers)
	{
		$worker->{run}->signal('TERM') if $worker->{run}->pumpable;
		eval { $worker->{run}->finish };
	}
	return;
}

# What was acknowledged: lists of [ job, token, content ] by outcome.
sub acknowledged
{
	my (@workers) = @_;
	my %told = (acquired => [], committed => [], stale => []);

	foreach my $worker (@workers)
	{
		# the last line may have been cut
		foreach (grep { /\n\z/ } split /^/, slurp_file($worker->{log}))
		{
			my ($outcome, @rest) = split;
			push @{ $told{$outcome} }, \@rest;
		}
	}
	return \%told;
}

sub values_list
{
	return 'VALUES ' . join ', ', map { my ($job, $token, $content) = @$_; "('$job', ${token}::bigint, '$content')" } @_;
}

# Nothing that was acknowledged is missing, and a row stands exactly where a
# receipt does.
sub check_acknowledged
{
	my ($node, $what, @workers) = @_;
	my $told = acknowledged(@workers);
	my ($acquired, $committed) = @$told{ 'acquired', 'committed' };
	my %owners;
	my @unknown = grep { !/^(?:acquired|committed|stale)$/ } sort keys %$told;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is("@unknown", '', "$what: workers were told nothing else than acquired, committed, stale");
	cmp_ok(scalar @$committed, '>', 0, "$what: " . @$acquired . ' tokens, ' . @$committed . ' commits, '
		  . @{ $told->{stale} } . ' stale');

	push @{ $owners{"$_->[0] $_->[1]"} }, $_->[2] foreach @$acquired;
	is(join(', ', grep { @{ $owners{$_} } > 1 } sort keys %owners), '', "$what: no token was issued twice");
	is( $node->safe_psql('postgres', 'SELECT string_agg(DISTINCT job, \', \') FROM (' . values_list(@$acquired) . ') a(job, token, content)'
			  . ' WHERE NOT EXISTS (SELECT FROM fencing.fences f WHERE f.job_key = job AND f.token >= a.token)'),
		'', "$what: every fence is at or above each acknowledged token");
	is( $node->safe_psql('postgres', 'SELECT count(*) FROM (' . values_list(@$committed) . ') a(job, token, content)'
			  . q{ WHERE NOT EXISTS (SELECT FROM fencing_receipt(job, token) WHERE digest = fencing_digest(jsonb_build_object('by', content)))}
			  . ' OR (SELECT count(*) FROM business b WHERE (b.job, b.token, b.content) = (a.job, a.token, a.content)) <> 1'),
		'0', "$what: every acknowledged commit has its receipt and its row");
	check_rows($node, $what);
	return;
}

# Jobs of workers are called job-...; nobody else writes to the table.
sub check_rows
{
	my ($node, $what) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is( $node->safe_psql('postgres', q{SELECT count(*) FROM (SELECT * FROM fencing.receipts WHERE job_key LIKE 'job-%') r
			FULL JOIN (SELECT job, token, count(*) AS n FROM business GROUP BY job, token) b ON r.job_key = job AND r.token = b.token
			WHERE r.job_key IS NULL OR n IS DISTINCT FROM 1}),
		'0', "$what: a row stands exactly where a receipt does");
	return;
}

# Holders of tokens of the past try again, with other content under another
# step: none is let in.  [ job, token, content ] each.
sub check_zombies
{
	my ($session, $what, @tokens) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	cmp_ok(scalar @tokens, '>', 0, "$what: there are zombies");
	is( $session->ask('SELECT string_agg(DISTINCT outcome::text, \', \') FROM (' . values_list(@tokens) . ') z(job, token, content),'
			  . q{ fencing_commit(job, token, '{}', 'INSERT INTO business VALUES ($1, $2, ''zombie'')', 'zombie')}
			  . q{ WHERE outcome NOT IN ('stale', 'pruned')}),
		'', "$what: all " . @tokens . ' are refused');
	is($session->ask(q{SELECT count(*) FROM business WHERE content = 'zombie'}), '0', "$what: and wrote nothing");
	return;
}

# A session that stays open.
package FencingTest::Session;

use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;

sub new
{
	my ($class, $node, $db, %params) = @_;
	my $self = bless { psql => $node->background_psql($db, on_error_stop => 0, %params), asked => 0 }, $class;

	$self->{pid} = $self->ask('SELECT pg_backend_pid()');
	return $self;
}

sub pid
{
	my ($self) = @_;
	return $self->{pid};
}

# Sends a call without waiting for its answer.
sub start
{
	my ($self, $call) = @_;
	my $psql = $self->{psql};

	note "session $self->{pid}: $call" if defined $self->{pid};
	$psql->{stdout} = '';
	$psql->{stdin} .= "\\echo sent\n$call\n;\n\\echo sqlstate :SQLSTATE\n";
	$psql->{timeout}->start;
	$psql->{run}->pump until $psql->{stdout} =~ /^sent\n/;
	return;
}

# Its output, or the SQLSTATE of its error.
sub finish
{
	my ($self) = @_;
	my $psql = $self->{psql};
	my $end = qr/^sent\n(.*?)\n?sqlstate ([0-9A-Z]{5})\n/s;

	$psql->{timeout}->start;
	$psql->{run}->pump until $psql->{stdout} =~ $end;
	$psql->{stdout} =~ $end;
	my $answer = $2 eq '00000' ? $1 : $2;
	note "session $self->{pid}: answer $answer" if defined $self->{pid};
	return $answer;
}

sub ask
{
	my ($self, $call) = @_;

	$self->start($call);
	return $self->finish;
}

# What the server said beside answers, since the last time.  It comes through
# another pipe than the answers, perhaps later: psql marks its end there.
sub errors
{
	my ($self) = @_;
	my $psql = $self->{psql};
	my $end = qr/^no more errors\n/m;

	$psql->{stdin} .= "\\warn no more errors\n";
	$psql->{timeout}->start;
	$psql->{run}->pump until $psql->{stderr} =~ $end;
	my $errors = $psql->{stderr} =~ s/$end//r;
	$psql->{stderr} = '';
	return $errors;
}

# Ends psql, whatever has become of its connection.
sub close
{
	my ($self) = @_;

	if ($self->{psql}{run}->pumpable)
	{
		$self->{psql}{stdin} .= "\\q\n";
	}
	eval { $self->{psql}{run}->finish };
	return;
}

1;
