# Proves from the history of a nemesis run (History.pm) that what the workers
# were told was true, or says where it was not.
#
#   perl check.pl FILE...
#   perl check.pl --kinds    what it complains about
#
# Prints "complaint KIND: ..." for what must not be, and "count NAME NUMBER".
# Exit code 1 if there is any complaint, 2 if the history makes no sense.
#
# An answer that never came leaves open whether the call took effect.  "Before"
# means that an answer had been read when another call was not yet sent; all else
# is at the same time, in any order.
#
# Lost WAL.  A promotion ends a timeline at its switch point, and what the old
# server wrote after that is gone.  The history has the commit records of each
# server, with their places: a transaction of the old timeline has survived if its
# record begins before the switch point, and is gone otherwise.  No clock and no
# guess is needed, and both are checked.  The record of an acknowledged call must
# be there in either case: that proves the forced flush even of what was lost.  And
# a switch point must not be before what the standby had received.

use strict;
use warnings;

use Digest::SHA qw(sha256_hex);
use FindBin qw($RealBin);
use lib $RealBin;
use History;
use List::Util qw(any first max min);

use constant NEVER => 9**9**9;

# so long may a call whose reply was given up still wait in the server: seconds
use constant STRAGGLER => 120;

my %KINDS = (
	'outcome' => 'an answer that this call does not have',
	'sqlstate' => 'an error that is not documented, or not for this case',
	'hang' => 'no answer in time',
	'token-twice' => 'one token for two',
	'token-falls' => 'a token not above one that had been acknowledged before',
	'token-timeline' => 'a token not above all of a former timeline',
	'token-lost' => 'an acknowledged token that the database has forgotten',
	'token-of-other' => 'the token of another owner',
	'zombie' => 'let through though a higher token had been acknowledged, or with one of a former timeline',
	'lost-without-reason' => 'a heartbeat refused though nobody took over',
	'revived' => 'a heartbeat that was accepted after the release',
	'lease-taken' => 'taken over while the lease lasted',
	'committed-twice' => 'one attempt committed twice',
	'two-contents' => 'two contents accepted under one job, token and step',
	'replay-of-nothing' => 'replayed though never committed',
	'replay-differs' => 'a replay with another result or time',
	'conflict-with-nothing' => 'conflict though no other content was committed',
	'receipt-ignored' => 'another answer although the receipt was there',
	'stale-without-reason' => 'stale though the token is current',
	'pruned-without-reason' => 'pruned though nothing was purged',
	'wal' => 'acknowledged without a commit record in the WAL',
	'wal-order' => 'committed in the WAL after a higher token had been',
	'switch' => 'a standby that lost what it had received',
	'commit-lost' => 'an acknowledged commit that is not in the database',
	'undead' => 'in the database though lost with its WAL',
	'receipt-differs' => 'a receipt of another time than acknowledged',
	'row-differs' => 'a business row of another content than acknowledged, or than its receipt',
	'row-twice' => 'a business write done twice',
	'row-alone' => 'a business row without a receipt',
	'receipt-alone' => 'a receipt without a business row',
	'of-nobody' => 'a business row that nobody committed',
	'purge-undone' => 'a receipt that had been purged');

# what may be answered, apart from errors
my %OUTCOMES = (
	acquire => 'acquired renewed held',
	renew => 'renewed lost',
	release => 'released lost',
	commit => 'committed replayed conflict stale pruned failed rolledback',
	careless => '',
	revoke => 'revoked',
	forget => 'forgotten busy',
	purge => 'purged',
	new_epoch => 'begun');

# an administrator or a crash ended the session
my $SHUT_DOWN = qr/^57P0[123]$/;

my @CRASHES = qw(crash kill_server kill_backend promotion);

# the history
my %call;                               # by who and n
my (%fault, @promotions);
my (%switch, %wal);                     # by timeline; by timeline and transaction
my (%rows, %receipt, %fence, $last_timeline);

# what follows from it
my %calls;                              # by kind, in order of t0
my (%grant, %holder);                   # by job and token: who was told it first
my %raised;                             # by job: acknowledged tokens, see highest_before()
my %raisers;                            # by job: calls that may have raised the fence
my (%purges, %forgets);                 # by key; by job
my %attempts;                           # commits by key

my (%complaints, %count);

if (@ARGV == 1 && $ARGV[0] eq '--kinds')
{
	print map { "$_: $KINDS{$_}\n" } sort keys %KINDS;
	exit;
}
eval {
	read_history($_) foreach @ARGV;
	arrange();
	1;
} or do { print STDERR "no history: $@"; exit 2 };

check_promotions();
check_words($_) foreach values %call;
check_tokens();
check_superseded();
check_order();
check_leases();
check_attempts($attempts{$_}) foreach sort keys %attempts;
check_database();
report();

# ---- Reading

sub read_history
{
	my ($file) = @_;

	History::read_file($file, sub {
		my ($kind, $line) = @_;

		if ($kind eq 'call') { read_call($line) }
		elsif ($kind eq 'told') { read_reply($line) }
		elsif ($kind eq 'answer') { read_answer($line) }
		elsif ($kind eq 'purged') { push @{ called($line)->{removed} }, key($line) }
		elsif ($kind eq 'fault') { read_fault($line) }
		elsif ($kind eq 'promotion') { push @promotions, $line }
		elsif ($kind eq 'wal') { $wal{ $line->{tl} }{ $line->{xid} } = lsn($line->{lsn}) }
		elsif ($kind eq 'row') { push @{ $rows{ key($line) } }, $line->{content} }
		elsif ($kind eq 'receipt') { $receipt{ key($line) } = $line }
		elsif ($kind eq 'fence') { $fence{ $line->{job} } = $line->{token} }
		elsif ($kind eq 'end') { $last_timeline = $line->{tl} }
		else { die "$file: what is a $kind?\n" }
	});
	return;
}

sub read_call
{
	my ($line) = @_;
	my $name = "$line->{who} $line->{n}";

	die "call $name is there twice\n" if $call{$name};
	die "call $name: what is $line->{call}?\n" if !defined $OUTCOMES{ $line->{call} };
	$call{$name} = { %$line, op => $line->{call}, t0 => $line->{t}, t1 => NEVER, answer => 'none' };
	return;
}

# The call that a later line is about.
sub called
{
	my ($line) = @_;
	my $call = $call{"$line->{who} $line->{n}"}
	  or die "call $line->{who} $line->{n} was answered, but not made\n";

	die "call $line->{who} $line->{n} was answered before it was made\n"
	  if defined $line->{t} && $line->{t} < $call->{t0};
	return $call;
}

sub read_reply
{
	my ($line) = @_;
	my $call = called($line);

	complain('outcome', $call, "was answered for token $line->{token}")
	  if defined $line->{token} && defined $call->{token} && $line->{token} != $call->{token};
	$call->{$_} = $line->{$_} foreach grep { !/^(who|n|t)$/ } keys %$line;
	return $call;
}

sub read_answer
{
	my ($line) = @_;
	my $call = read_reply($line);

	$call->{t1} = $line->{t};
	$count{"answer:$call->{answer}"}++;
	$count{"error:$call->{sqlstate}"}++ if defined $call->{sqlstate};
	# there are many, and nothing follows from them
	delete $call{"$line->{who} $line->{n}"} if $call->{answer} eq 'held' && $call->{op} eq 'acquire';
	return;
}

sub read_fault
{
	my ($line) = @_;

	if (($line->{edge} // 'begin') eq 'begin')
	{
		push @{ $fault{ $line->{kind} } }, { t0 => $line->{t}, t1 => NEVER };
		$count{"fault:$line->{kind}"}++;
	}
	else
	{
		$fault{ $line->{kind} }[-1]{t1} = $line->{t};
	}
	return;
}

sub key
{
	my ($line) = @_;
	return join "\t", @$line{qw(job token step)};
}

sub split_key
{
	my ($key) = @_;
	return split /\t/, $key, 3;
}

sub lsn
{
	my ($text) = @_;
	my ($high, $low) = $text =~ m{^([0-9A-F]+)/([0-9A-F]+)$}i or die "what LSN is $text?\n";
	return (hex($high) << 32) + hex $low;
}

# ---- Arranging

sub arrange
{
	die "it does not come to its end\n" if !defined $last_timeline;
	$switch{ $_->{from} } = lsn($_->{switch}) foreach @promotions;

	push @{ $calls{ $_->{op} } }, $_ foreach sort { $a->{t0} <=> $b->{t0} } values %call;
	push @{ $attempts{ key($_) } }, $_ foreach calls('commit');

	foreach my $call (sort { $a->{t0} <=> $b->{t0} } calls('acquire', 'revoke', 'forget', 'new_epoch'))
	{
		my $job = $call->{job} // '';
		push @{ $raised{$job} }, { t1 => $call->{t1}, token => raised_to($call) }
		  if took_effect($call) eq 'yes';
		push @{ $raisers{$job} }, $call if took_effect($call) ne 'no' && $call->{answer} ne 'renewed';
	}
	foreach my $list (values %raised)
	{
		my $highest = 0;
		@$list = sort { $a->{t1} <=> $b->{t1} } @$list;
		$_->{highest} = $highest = max($highest, $_->{token}) foreach @$list;
	}

	foreach my $call (grep { defined $_->{token} } calls('acquire'))
	{
		my $holder = $holder{ $call->{job} }{ $call->{token} };
		$holder{ $call->{job} }{ $call->{token} } = $call if !$holder || $call->{answer} eq 'acquired';
	}

	foreach my $call (grep { took_effect($_) ne 'no' } calls('purge', 'forget'))
	{
		push @{ $purges{$_} }, $call foreach @{ $call->{removed} // [] };
		push @{ $forgets{ $call->{job} } }, $call if $call->{op} eq 'forget';
	}
	return;
}

# Where a call that took effect has brought the fence.
sub raised_to
{
	my ($call) = @_;
	return $call->{op} eq 'forget' ? $call->{floor} : $call->{token};
}

sub calls
{
	return map { @{ $calls{$_} // [] } } @_;
}

# yes, no or maybe
sub took_effect
{
	my ($call) = @_;
	my $answer = $call->{answer};

	return 'yes' if $answer =~ /^(acquired|renewed|released|committed|revoked|forgotten|purged|begun|written)$/;
	return 'no' if defined $call->{planned} || defined $call->{breaks};
	return 'maybe' if $answer eq 'none' || $answer eq 'lost' && defined $call->{how};
	return 'maybe' if $answer eq 'error' && ($call->{fatal} || $call->{sqlstate} =~ $SHUT_DOWN);
	return 'no';
}

# The highest token of a job that anybody had been told by then.
sub highest_before
{
	my ($job, $time) = @_;
	my $highest = 0;

	foreach my $list (grep { defined } @raised{ $job, '' })
	{
		my $number = how_many_before($list, 't1', $time);
		$highest = max($highest, $list->[ $number - 1 ]{highest}) if $number > 0;
	}
	return $highest;
}

# Of a list that is in the order of its t0 or t1.
sub how_many_before
{
	my ($list, $name, $time) = @_;
	my ($low, $high) = (0, scalar @$list);

	while ($low < $high)
	{
		my $middle = int(($low + $high) / 2);
		if ($list->[$middle]{$name} < $time) { $low = $middle + 1 }
		else { $high = $middle }
	}
	return $low;
}

# Whether a transaction can be seen on a timeline, at the end by default: 1 or 0;
# undef if nobody knows where it is.
sub survived
{
	my ($where, $timeline) = @_;
	my ($tl, $xid) = @$where{qw(tl xid)};

	$timeline //= $last_timeline;
	return if !defined $tl || !defined $xid;
	return $tl == $timeline ? 1 : 0 if $tl >= $timeline;
	my $lsn = place($where) // return;
	return $lsn < $switch{$tl} ? 1 : 0;
}

# Where its commit record begins, if there is one.
sub place
{
	my ($where) = @_;
	my ($tl, $xid) = @$where{qw(tl xid)};

	return if !defined $tl || !defined $xid || !$wal{$tl};
	return $wal{$tl}{$xid};
}

# Who was told that this is durable finds it in the WAL of his server.
sub check_wal
{
	my ($call) = @_;
	my ($tl, $xid) = @$call{qw(tl xid)};

	# the WAL of the last server need not be given
	complain('wal', $call, 'was acknowledged, but has no commit record')
	  if defined $xid && ($tl < $last_timeline || $wal{$tl}) && !defined place($call);
	return;
}

sub overlap
{
	my ($t0, $t1, @intervals) = @_;
	return any { $_->{t0} < $t1 && $_->{t1} > $t0 } @intervals;
}

# ---- Promotions

sub check_promotions
{
	foreach my $promotion (@promotions)
	{
		my ($from, $switch, $received) = ($promotion->{from}, map { lsn($_) } @$promotion{qw(switch received)});

		# of two records that begin before this point, the first was received whole
		my @missing = grep { $_ >= $switch && $_ < $received } values %{ $wal{$from} };
		complain('switch', undef, "timeline $from ends at $promotion->{switch}, though"
			. " its successor had received $promotion->{received}") if @missing > 1;

		my @lost = grep { took_effect($_) eq 'yes' && ($_->{tl} // 0) == $from && !(survived($_) // 1) }
		  calls('commit', 'acquire');
		$count{'lost:promotions'}++ if @lost;
		$count{'lost:commits'} += grep { $_->{op} eq 'commit' } @lost;
		$count{'lost:tokens'} += grep { $_->{answer} eq 'acquired' } @lost;
	}
	return;
}

# ---- Words

sub check_words
{
	my ($call) = @_;
	my ($op, $answer) = @$call{qw(op answer)};

	if ($answer eq 'none' || $answer eq 'lost' && defined $call->{how})
	{
		complain('hang', $call, 'was not answered in time') if ($call->{how} // '') eq 'timeout';
	}
	elsif ($answer eq 'error')
	{
		check_error($call, $call->{sqlstate});
	}
	elsif (!grep { $answer eq $_ } split ' ', $OUTCOMES{$op})
	{
		complain('outcome', $call, "was answered $answer");
	}
	elsif ($answer eq 'busy')
	{
		complain('sqlstate', $call, "was refused with $call->{sqlstate}") if $call->{sqlstate} ne '55006';
	}
	elsif ($answer eq 'failed')
	{
		complain('outcome', $call, 'failed with ' . ($call->{failure} // 'nothing'))
		  if !$call->{breaks} || !$call->{report} || ($call->{failure} // '') ne '22012';
	}
	elsif ($answer eq 'committed')
	{
		complain('outcome', $call, 'was committed, though its statement fails') if $call->{breaks};
		complain('outcome', $call, "was committed under the fence $call->{fence}")
		  if $call->{fence} != $call->{token};
	}
	return;
}

sub check_error
{
	my ($call, $sqlstate) = @_;
	my ($op, $fatal) = @$call{qw(op fatal)};
	my $standby = overlap(@$call{qw(t0 t1)}, @{ $fault{promotion} // [] });

	return if $sqlstate =~ $SHUT_DOWN;
	return if $sqlstate eq '25006' && $standby;
	# a conflict with recovery is one as well; and PostgreSQL has no SERIALIZABLE there
	return if $sqlstate eq '40001' && ($standby || defined $call->{iso});
	return if $sqlstate eq '0A000' && $standby && ($call->{iso} // '') eq 'SERIALIZABLE';
	return if $sqlstate eq 'LF003' && ($op eq 'careless' || ($call->{planned} // '') eq 'savepoint');
	return if $sqlstate eq '22012' && $call->{breaks} && !$call->{report};
	return if $sqlstate eq 'LF001' && ($op eq 'revoke' || $op eq 'forget');
	# our own lock_timeout
	return if $sqlstate eq '55P03' && $call->{who} eq 'nemesis';
	complain('sqlstate', $call, "was answered $sqlstate" . ($fatal ? ', fatal' : '') . ": $call->{message}");
	return;
}

# ---- Tokens

sub check_tokens
{
	my %by_timeline;    # by job: timeline and token

	foreach my $call (sort { $a->{t0} <=> $b->{t0} }
		grep { took_effect($_) eq 'yes' && $_->{answer} ne 'renewed' } calls('acquire', 'revoke', 'forget', 'new_epoch'))
	{
		my ($job, $token) = ($call->{job} // '', raised_to($call));
		check_wal($call);
		push @{ $by_timeline{$job} }, { tl => $call->{tl}, token => $token, call => $call };
		next if $call->{op} eq 'forget' || $call->{op} eq 'new_epoch';

		my $before = highest_before($job, $call->{t0});
		complain('token-falls', $call, "got token $token, after $before had been issued") if $token <= $before;
		my $other = $grant{$job}{$token};
		complain('token-twice', $call, "got token $token, and so did " . describe($other)) if $other;
		$grant{$job}{$token} = $call;
	}

	# the clocks say nothing about an answer that was read long after its server was lost
	foreach my $job (grep { length } keys %by_timeline)
	{
		my @all = (@{ $by_timeline{$job} }, @{ $by_timeline{''} // [] });
		my %highest;
		$highest{ $_->{tl} } = max($highest{ $_->{tl} } // 0, $_->{token}) foreach @all;
		my $below = 0;
		my %below;
		foreach my $tl (sort { $a <=> $b } keys %highest)
		{
			$below{$tl} = $below;
			$below = max($below, $highest{$tl});
		}
		foreach my $one (grep { $_->{call}{op} =~ /^(acquire|revoke)$/ } @{ $by_timeline{$job} })
		{
			complain('token-timeline', $one->{call},
				"got token $one->{token}, after $below{ $one->{tl} } had been issued on a former timeline")
			  if $one->{token} <= $below{ $one->{tl} };
		}
	}

	# a fence is never below what has survived, unless the job was forgotten
	foreach my $job (keys %grant)
	{
		my $highest = max(0, grep { survived($grant{$job}{$_}) // 0 } keys %{ $grant{$job} });
		my $forgotten = max(0, map { $_->{floor} // NEVER }
			grep { survived($_) // 1 } @{ $forgets{$job} // [] });
		complain('token-lost', $grant{$job}{$highest}, 'got a token that the database has forgotten')
		  if $highest > max($fence{$job} // 0, $forgotten);
	}

	foreach my $call (grep { $_->{answer} eq 'renewed' } calls('acquire', 'renew'))
	{
		my $holder = $grant{ $call->{job} }{ $call->{token} };
		complain('token-of-other', $call, 'renewed the lease of ' . describe($holder))
		  if $holder && ($holder->{owner} // '') ne $call->{owner};
	}
	return;
}

# Nobody is let through after somebody had been told a higher token.
sub check_superseded
{
	foreach my $call (calls('commit', 'renew', 'release', 'acquire'))
	{
		my ($job, $token) = @$call{qw(job token)};
		my $passed = $call->{op} eq 'commit' ?
			$call->{answer} eq 'committed' || ($call->{told} // '') eq 'committed' :
			$call->{answer} =~ /^(renewed|released)$/;
		next if !$passed;

		# who still has the lease may give it back, though its time is over: by a
		# new epoch, a promotion, or with a higher token that went with the WAL
		if ($call->{op} eq 'release')
		{
			my @higher = grep { $_->{token} > $token && defined $_->{t1} && $_->{t1} < $call->{t0} &&
				  defined $_->{tl} && defined $call->{tl} && $_->{tl} == $call->{tl} } values %{ $grant{$job} };
			complain('zombie', $call, "passed with token $token, after $higher[0]{token} had been issued") if @higher;
			next;
		}

		my $before = highest_before($job, $call->{t0});
		complain('zombie', $call, "passed with token $token, after $before had been issued") if $token < $before;

		# a promotion ends all leases, whether a higher token was lost with the WAL or not
		my $holder = $holder{$job}{$token};
		complain('zombie', $call, "passed on timeline $call->{tl}, with a token of timeline $holder->{tl}")
		  if $holder && defined $call->{tl} && defined $holder->{tl} && $holder->{tl} < $call->{tl};
	}

	# and nobody is turned away without a reason
	my %released = map { ("$_->{job} $_->{token}" => 1) } calls('release');
	foreach my $call (grep { $_->{answer} eq 'lost' && !defined $_->{how} } calls('renew', 'release'))
	{
		complain('lost-without-reason', $call, 'lost a lease that nobody took')
		  if !($call->{op} eq 'renew' && $released{"$call->{job} $call->{token}"}) && !may_be_superseded($call);
	}
	return;
}

# In the order of their commit records, nothing is committed under a token after a
# higher one was issued.  The lock of the fence is held until then, so that this
# holds also for what happened at the same time.
sub check_order
{
	my %events;    # by timeline and job

	foreach my $call (calls('acquire', 'revoke', 'forget', 'commit'))
	{
		# who knows his transaction, but not its end: a crash gives its number to another
		next if took_effect($call) ne 'yes' || $call->{answer} eq 'renewed' || !defined place($call);
		push @{ $events{ $call->{tl} }{ $call->{job} } }, { lsn => place($call), call => $call };
	}
	foreach my $timeline (sort keys %events)
	{
		my @epochs = map { { lsn => place($_), call => $_ } }
		  grep { $_->{answer} eq 'begun' && $_->{tl} == $timeline && defined place($_) } calls('new_epoch');
		check_order_of_job(@$_, @epochs) foreach values %{ $events{$timeline} };
	}
	return;
}

sub check_order_of_job
{
	my (@events) = @_;
	my $highest = 0;

	foreach my $event (sort { $a->{lsn} <=> $b->{lsn} } @events)
	{
		my ($call, $token) = ($event->{call}, raised_to($event->{call}));
		complain('wal-order', $call, "is in the WAL after token $highest") if $token < $highest;
		$highest = max($highest, $token);
	}
	return;
}

# Whether there is anything that may have ended the lease of this heartbeat.
sub may_be_superseded
{
	my ($call) = @_;
	my ($job, $token) = @$call{qw(job token)};
	my $holder = $holder{$job}{$token};

	# the timeline is not in the answer to a heartbeat
	return 1 if !$holder || overlap($holder->{t0}, $call->{t1}, @{ $fault{promotion} // [] });
	foreach my $list (grep { defined } @raisers{ $job, '' })
	{
		for (my $i = how_many_before($list, 't0', $holder->{t0} - STRAGGLER);
			$i < @$list && $list->[$i]{t0} < $call->{t1}; $i++)
		{
			return 1 if took_effect($list->[$i]) eq 'maybe' || raised_to($list->[$i]) > $token;
		}
	}
	return 0;
}

# ---- Leases

# A crash may have forgotten a release or a heartbeat, which are not flushed.
sub crashed
{
	my ($t0, $t1) = @_;
	return overlap($t0, $t1, map { @{ $fault{$_} // [] } } @CRASHES);
}

# Nobody takes over while the lease lasts that another was told, by the clock of
# the server: of one who acquires, lease_until less his ttl.
sub check_leases
{
	my (%told, %released);

	push @{ $told{ $_->{job} }{ $_->{token} } }, $_
	  foreach grep { $_->{answer} =~ /^(acquired|renewed)$/ } calls('acquire', 'renew');
	push @{ $released{"$_->{job} $_->{token}"} }, $_ foreach calls('release');

	foreach my $call (grep { $_->{answer} eq 'renewed' } calls('acquire', 'renew'))
	{
		my $release = first { $_->{answer} eq 'released' && $_->{t1} < $call->{t0} }
			@{ $released{"$call->{job} $call->{token}"} // [] };
		complain('revived', $call, 'was renewed after ' . describe($release))
		  if $release && !crashed($release->{t0}, $call->{t1});
	}

	foreach my $job (keys %told)
	{
		my @tokens = sort { $a <=> $b } keys %{ $told{$job} };
		my @enders = grep { ($_->{job} // $job) eq $job } calls('revoke', 'forget', 'new_epoch');

		foreach my $i (1 .. $#tokens)
		{
			my $next = first { $_->{answer} eq 'acquired' } @{ $told{$job}{ $tokens[$i] } } or next;
			my @before = grep { $_->{t1} < $next->{t0} } @{ $told{$job}{ $tokens[ $i - 1 ] } } or next;
			my ($last) = sort { $b->{until} <=> $a->{until} } @before;

			next if $next->{until} - $next->{ttl} / 1000 > $last->{until} - 0.00001;
			next if any { $_->{t0} < $next->{t1} } @{ $released{"$job $tokens[$i - 1]"} // [] };
			next if overlap($last->{t0}, $next->{t1}, @enders) || crashed($last->{t0}, $next->{t1});
			complain('lease-taken', $next, 'took over from ' . describe($last) . ' whose lease was not over');
		}
	}
	return;
}

# ---- Attempts of one job, token and step

sub check_attempts
{
	my ($attempts) = @_;
	my $key = key($attempts->[0]);
	my @committed = grep { $_->{answer} eq 'committed' } @$attempts;
	my @replayed = grep { $_->{answer} eq 'replayed' } @$attempts;
	my @maybe = grep { took_effect($_) eq 'maybe' } @$attempts;

	complain('committed-twice', $committed[1], 'was committed, and so was ' . describe($committed[0]))
	  if @committed > 1;
	my ($first, @others) = (@committed, @replayed);
	complain('two-contents', $_, 'was accepted, and so was ' . describe($first))
	  foreach grep { $_->{content} ne $first->{content} } @others;

	foreach my $call (@replayed, grep { $_->{answer} eq 'conflict' } @$attempts)
	{
		my $same = $call->{answer} eq 'replayed';
		my @sources = grep { $_ != $call && $_->{t0} < $call->{t1} &&
			($_->{content} eq $call->{content} xor !$same) } @committed, @maybe;
		complain($same ? 'replay-of-nothing' : 'conflict-with-nothing', $call,
			$same ? 'was replayed, but not committed before' : 'conflicts with nothing') if !@sources;
	}

	my $origin = origin(\@committed, \@replayed, \@maybe);
	if ($origin)
	{
		check_wal($origin);
		check_answers($origin, $attempts);
		check_origin($key, $origin);
	}
	foreach my $call (@$attempts)
	{
		check_stale($call) if $call->{answer} eq 'stale';
		check_pruned($call) if $call->{answer} eq 'pruned';
	}
	return;
}

# The attempt that was committed, as far as anybody was told: content, place in
# the WAL, and since when it is known.
sub origin
{
	my ($committed, $replayed, $maybe) = @_;
	my @known = (@$committed, @$replayed) or return;
	my %origin = (
		known => min(map { $_->{t1} } @known),
		map { $_ => $known[0]{$_} } qw(content committed_at result who n op));

	if (@$committed)
	{
		@origin{qw(tl xid)} = @{ $committed->[0] }{qw(tl xid)};
	}
	elsif (($origin{result} // '') =~ /"xid"/)
	{
		($origin{xid}) = $origin{result} =~ /"xid": "(\d+)"/;
		($origin{tl}) = $origin{result} =~ /"tl": (\d+)/;
	}
	else
	{
		# the gate alone: what it was told before the reply to COMMIT was lost
		my @told = grep { ($_->{told} // '') eq 'committed' && $_->{content} eq $origin{content} } @$maybe;
		@origin{qw(tl xid)} = @{ $told[0] }{qw(tl xid)} if @told == 1;
	}

	# what a replay has read is no further than the WAL had been flushed then, and
	# a standby only reads what it has
	$origin{survived} = survived(\%origin);
	$origin{survived} //= 1 if any {
		!defined $_->{tl} || $_->{tl} == $last_timeline || lsn($_->{lsn}) <= $switch{ $_->{tl} }
	} @$replayed;
	return \%origin;
}

# Whoever comes after the answer finds the receipt, and nothing else.
sub check_answers
{
	my ($origin, $attempts) = @_;

	foreach my $call (@$attempts)
	{
		my $answer = $call->{answer};
		my $right = $call->{content} eq $origin->{content} ? 'replayed' : 'conflict';

		if ($answer eq 'replayed' || $answer eq 'conflict')
		{
			complain('replay-differs', $call, 'was answered with another time than ' . describe($origin))
			  if $call->{committed_at} ne $origin->{committed_at};
			complain('replay-differs', $call, 'was answered with another result than ' . describe($origin))
			  if $answer eq 'replayed' && ($call->{result} // '') ne ($origin->{result} // '');
		}
		next if $call->{t0} <= $origin->{known} || !defined $call->{tl};
		next if $answer eq $right || $answer !~ /^(committed|replayed|conflict|stale|pruned|failed)$/;
		next if !survived($origin, $call->{tl});
		next if $answer eq 'pruned' && may_be_removed($call);
		complain('receipt-ignored', $call, "was answered $answer after " . describe($origin) . ' had been committed');
	}
	return;
}

# What was acknowledged is in the database, unless it has been lost with its WAL.
sub check_origin
{
	my ($key, $origin) = @_;
	my $receipt = $receipt{$key};
	my $survived = $origin->{survived} // return;

	if (!$survived)
	{
		complain('undead', $origin, 'was lost with its WAL, and is there') if $receipt || $rows{$key};
		return;
	}
	complain('commit-lost', $origin, 'was acknowledged, but has no receipt')
	  if !$receipt && !removed($key);
	complain('commit-lost', $origin, 'was acknowledged, but has no business row') if !$rows{$key};
	complain('row-differs', $origin, "was acknowledged, but the business row has '$_'")
	  foreach grep { $_ ne $origin->{content} } @{ $rows{$key} // [] };
	complain('receipt-differs', $origin, 'was acknowledged, but the receipt is of another time')
	  if $receipt && $receipt->{committed_at} ne $origin->{committed_at};
	return;
}

sub check_stale
{
	my ($call) = @_;
	my ($job, $token, $tl) = @$call{qw(job token tl)};
	my $holder = $holder{$job}{$token};

	$count{zombies}++ if $holder && defined $tl && ($holder->{tl} // $tl) < $tl;
	return if defined $call->{fence} && $call->{fence} > $token;
	# a former epoch is the reason
	$count{ $call->{fence} == $token ? 'zombies:last' : 'zombies:lost' }++ if defined $call->{fence};
	return if !$holder || !defined $holder->{tl} || !defined $tl || $holder->{tl} < $tl;
	return if any { $_->{t0} < $call->{t1} && took_effect($_) ne 'no' && ($_->{token} // NEVER) >= $token }
		calls('new_epoch');
	complain('stale-without-reason', $call, 'was stale under the fence ' . ($call->{fence} // 'of nobody'));
	return;
}

sub check_pruned
{
	my ($call) = @_;
	my ($job, $token, $tl) = @$call{qw(job token tl)};
	my $holder = $holder{$job}{$token};

	# the job itself may be lost
	return if !$holder || !defined $holder->{tl} || !defined $tl || $holder->{tl} < $tl;
	return if may_be_removed($call);
	complain('pruned-without-reason', $call, 'was pruned, though nobody purged so far');
	return;
}

# Whether receipts of this token may have been removed when the call was answered.
sub may_be_removed
{
	my ($call) = @_;
	my ($job, $token) = @$call{qw(job token)};

	return 1 if any { $_->{t0} < $call->{t1} && ($_->{floor} // NEVER) >= $token } @{ $forgets{$job} // [] };
	return any { $_->{t0} < $call->{t1} && purged_through($_, $job) >= $token } calls('purge');
}

# The highest token of a job that a purge reached.
sub purged_through
{
	my ($purge, $job) = @_;

	return 0 if took_effect($purge) eq 'no';
	if (!$purge->{through})
	{
		foreach my $key (@{ $purge->{removed} // [] })
		{
			my ($of, $token) = split_key($key);
			$purge->{through}{$of} = max($purge->{through}{$of} // 0, $token);
		}
	}
	return $purge->{through}{$job} // 0;
}

# ---- The database at the end

sub check_database
{
	foreach my $key (sort keys %{ { %rows, %receipt } })
	{
		my ($receipt, @contents) = ($receipt{$key}, @{ $rows{$key} // [] });
		my ($job, $token, $step) = split_key($key);
		my $name = "$job, token $token, step '$step'";
		my $content = $contents[0] // '';

		complain('row-twice', undef, "$name has " . @contents . ' business rows') if @contents > 1;
		complain('receipt-alone', undef, "$name has a receipt and no business row") if !@contents;
		complain('row-alone', undef, "$name has a business row and no receipt") if !$receipt && !removed($key);
		complain('row-differs', undef, "$name has a receipt of something else than its business row")
		  if $receipt && @contents &&
			$receipt->{digest} ne sha256_hex(qq({"content":"$content","step":"$step"}));
		complain('purge-undone', undef, "$name has a receipt that has been purged")
		  if $receipt && any { took_effect($_) eq 'yes' && survived($_) } removals($key);
		complain('of-nobody', undef, "$name has the content '$content', which nobody committed")
		  if @contents && !any { $_->{content} eq $content && took_effect($_) ne 'no' } @{ $attempts{$key} // [] };
	}
	$count{rows} = map { @$_ } values %rows;
	$count{receipts} = keys %receipt;
	$count{purged} = keys %purges;
	return;
}

sub removed
{
	my ($key) = @_;
	return any { survived($_) // 1 } removals($key);
}

# Purges and forgets that removed a receipt, if they took effect.
sub removals
{
	my ($key) = @_;
	my ($job, $token) = split_key($key);

	return (@{ $purges{$key} // [] }, grep { ($_->{floor} // NEVER) >= $token } @{ $forgets{$job} // [] });
}

# ---- The end

sub describe
{
	my ($call) = @_;
	my @what = map { defined $call->{$_} ? "$_ $call->{$_}" : () } qw(job token step content owner);

	return "call $call->{n} of $call->{who} ($call->{op}" . join('', map { ", $_" } @what) . ')';
}

sub complain
{
	my ($kind, $call, $text) = @_;

	die "complaint $kind?\n" if !$KINDS{$kind};
	push @{ $complaints{$kind} }, defined $call ? describe($call) . " $text" : $text;
	return;
}

sub report
{
	foreach my $kind (sort keys %complaints)
	{
		my @all = @{ $complaints{$kind} };
		print "complaint $kind: $KINDS{$kind}: $_\n" foreach splice @all, 0, 10;
		print "complaint $kind: and ", scalar @all, " more\n" if @all;
	}
	print "count $_ $count{$_}\n" foreach sort keys %count;
	exit(%complaints ? 1 : 0);
}
