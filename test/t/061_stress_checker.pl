# The checker of the nemesis run, tried on made-up histories: bad ones it must
# reject with the right complaint and no other, good ones it must accept.

use strict;
use warnings;

use Digest::SHA qw(sha256_hex);
use FindBin qw($RealBin);
use lib "$RealBin/../stress";

use History;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;

my $CHECK = "$RealBin/../stress/check.pl";
my $FILE = "$PostgreSQL::Test::Utils::tmp_check/made_up.log";

my (%tested, $clock, $calls, $transactions);
start_again();

# ---- How a history is made up
#
# Each of these is the lines of one call.  The first is begun at 2 and answered at
# 8, the second from 12 to 18 and so on, unless at => [begin, answer] says
# otherwise; that takes no turn.  The clock of the server shows the same time.  A
# transaction is on timeline 1, the first has xid 101.

sub lines_of
{
	my ($op, $answer, $reply, %set) = @_;
	my $at = delete $set{at} // turn();
	my @who = (who => delete $set{who} // 'w', n => ++$calls);
	my %arguments = map { exists $set{$_} ? ($_ => delete $set{$_}) : () }
	  qw(job owner ttl step content iso planned breaks report);
	my $token = delete $set{token};
	$arguments{token} = $token if defined $token && $op =~ /^(commit|renew|release)$/;
	my $told = delete $set{told};
	my %reply = (%$reply, %set);
	$reply{token} = $token if defined $token && !defined $arguments{token};

	return (
		History::format_line('call', t => $at->[0], @who, call => $op, %arguments),
		defined $told ? History::format_line('told', t => $at->[0] + 1, @who, told => $told, %reply) : (),
		$answer eq 'none' ? () :
			History::format_line('answer', t => $at->[1], @who, answer => $answer, %reply));
}

sub turn
{
	$clock += 10;
	return [ $clock - 8, $clock - 2 ];
}

sub start_again
{
	($clock, $transactions) = (0, 100);
	return;
}

sub place
{
	my ($set) = @_;
	my $tl = exists $set->{tl} ? delete $set->{tl} : 1;
	my $xid = delete $set->{xid} // ++$transactions;
	return (tl => $tl, xid => $xid, lsn => delete $set->{lsn} // '0/100');
}

sub acquire
{
	my (%set) = (job => 'j', owner => 'A', token => 1, @_);
	my $answer = delete $set{answer} // 'acquired';
	my $at = $set{at} //= turn();
	return lines_of('acquire', $answer,
		$answer =~ /^(lost|error|none)$/ ? {} : { place(\%set), until => $at->[1] + 1 }, ttl => 1000, %set);
}

sub renew
{
	my (%set) = (job => 'j', owner => 'A', token => 1, @_);
	my $answer = delete $set{answer} // 'renewed';
	my $at = $set{at} //= turn();
	return lines_of('renew', $answer, $answer eq 'renewed' ? { until => $at->[1] + 1 } : {}, ttl => 1000, %set);
}

sub release
{
	return lines_of('release', 'released', {}, job => 'j', owner => 'A', token => 1, @_);
}

# The receipt of a (token, step) is of this time, unless a history says otherwise.
sub time_of
{
	my ($set) = @_;
	return "1000.$set->{token}" . length $set->{step};
}

sub commit
{
	my (%set) = (job => 'j', token => 1, step => '', content => 'one', @_);
	my $answer = delete $set{answer} // 'committed';
	my $at = delete $set{committed_at} // time_of(\%set);
	my %reply;

	if ($answer !~ /^(lost|error|none)$/ || $set{told})
	{
		%reply = place(\%set);
		delete $reply{xid} if $answer =~ /^(replayed|conflict|stale|pruned)$/;
		$reply{fence} = delete $set{fence} // $set{token};
		$reply{committed_at} = $at if $answer =~ /^(committed|replayed|conflict)$/;
	}
	return lines_of('commit', $answer, \%reply, %set);
}

# The reply was lost.
sub lost
{
	my ($function, @set) = @_;
	return $function->(answer => 'lost', how => 'cut', @set);
}

sub revoke
{
	my (%set) = (job => 'j', @_);
	return lines_of('revoke', 'revoked', { place(\%set) }, who => 'nemesis', %set);
}

sub forget
{
	my (%set) = (job => 'j', @_);
	return lines_of('forget', 'forgotten', { place(\%set) }, who => 'nemesis', %set);
}

sub new_epoch
{
	my (%set) = @_;
	return lines_of('new_epoch', 'begun', { place(\%set) }, who => 'nemesis', %set);
}

# Tokens whose receipts go, all of step ''.
sub purge
{
	my ($tokens, %set) = @_;
	my @lines = lines_of('purge', 'purged', { place(\%set) }, who => 'nemesis', %set);
	splice @lines, 1, 0,
	  map { History::format_line('purged', who => 'nemesis', n => $calls, job => 'j', token => $_, step => '') } @$tokens;
	return @lines;
}

# A business row and its receipt, in the database at the end.
sub kept
{
	return (row(@_), receipt(@_));
}

sub row
{
	my (%set) = (job => 'j', token => 1, step => '', content => 'one', @_);
	return History::format_line('row', %set);
}

sub receipt
{
	my (%set) = (job => 'j', token => 1, step => '', content => 'one', @_);
	my $content = delete $set{content};
	return History::format_line('receipt', committed_at => time_of(\%set),
		digest => sha256_hex(qq({"content":"$content","step":"$set{step}"})), %set);
}

sub fence
{
	my ($token) = @_;
	return History::format_line('fence', job => 'j', token => $token);
}

# A promotion; what the old server had in its WAL: transaction => LSN
sub promotion
{
	my (%set) = (from => 1, switch => '0/500', received => '0/500', wal => {}, @_);
	my $at = turn();
	my $wal = delete $set{wal};

	return (
		History::format_line('fault', t => $at->[0], kind => 'promotion', edge => 'begin'),
		History::format_line('promotion', to => $set{from} + 1, %set),
		History::format_line('fault', t => $at->[1], kind => 'promotion', edge => 'end'),
		map { History::format_line('wal', tl => $set{from}, xid => $_, lsn => $wal->{$_}) } sort keys %$wal);
}

sub end
{
	my ($timeline) = @_;
	return History::format_line('end', tl => $timeline // 1);
}

# ---- How it is judged

# The kinds of complaints about a history; the number of the exit code if it is
# not taken for one.
sub complaints
{
	my (@lines) = @_;

	start_again();
	push @lines, end() if !grep { /^end\b/ } @lines;
	open my $handle, '>', $FILE or die "$FILE: $!\n";
	print $handle @lines;
	close $handle or die "$FILE: $!\n";

	my $accepted = IPC::Run::run([ $^X, $CHECK, $FILE ], '>', \my $output, '2>', \my $error);
	my $code = $? >> 8;
	return ("exit $code", $output . $error) if $code > 1 || $error ne '';
	my %kinds = map { /^complaint (\S+):/ ? ($1 => 1) : () } split /\n/, $output;
	return (join(' ', sort keys %kinds) || ($accepted ? 'none' : 'rejected without a complaint'), $output);
}

sub accepts
{
	my ($name, @lines) = @_;
	my ($kinds, $output) = complaints(@lines);

	is($kinds, 'none', "good: $name") or diag $output;
	return;
}

sub rejects
{
	my ($kind, $name, @lines) = @_;
	my ($kinds, $output) = complaints(@lines);

	is($kinds, $kind, "bad: $name") or diag $output;
	$tested{$kind} = 1;
	return;
}

# ---- Good ones

accepts('nothing at all');

accepts('one worker',
	acquire(), renew(), commit(), commit(answer => 'replayed'), commit(answer => 'conflict', content => 'two'),
	release(), kept(), fence(1));

accepts('two at the same time, tokens in the other order',
	acquire(at => [ 0, 9 ], token => 2, until => 5), acquire(at => [ 1, 3 ], owner => 'B', until => 3), fence(2));

accepts('a zombie that is told so',
	acquire(), acquire(owner => 'B', token => 2), commit(answer => 'stale', fence => 2),
	renew(answer => 'lost'), commit(token => 2), kept(token => 2), fence(2));

accepts('a commit that was under way when somebody took over',
	acquire(), commit(at => [ 11, 40 ]), acquire(at => [ 20, 30 ], owner => 'B', token => 2), kept(), fence(2));

accepts('lost replies: one was effective, one was not',
	acquire(), lost(\&commit), lost(\&commit, step => 's'), kept(), fence(1));

accepts('a lost reply, and the replay that knows its transaction',
	acquire(), lost(\&commit), commit(answer => 'replayed', result => '{"tl": 1, "xid": "100"}'), kept(), fence(1));

accepts('the gate alone, whose COMMIT was lost',
	acquire(), lost(\&commit, told => 'committed', xid => 7), commit(answer => 'replayed'), kept(), fence(1));

accepts('a worker that was killed in mid-call',
	acquire(), commit(answer => 'none'), commit(answer => 'replayed'), kept(), fence(1));

accepts('rolled back, then done with another content',
	acquire(), commit(told => 'committed', answer => 'rolledback', planned => 'rollback'),
	commit(content => 'two'), kept(content => 'two'), fence(1));

accepts('a statement that fails, reported and not',
	acquire(), commit(answer => 'failed', breaks => 1, report => 1, failure => '22012'),
	commit(answer => 'error', breaks => 1, sqlstate => '22012'), fence(1));

accepts('purged', acquire(), commit(), acquire(owner => 'B', token => 2), purge([1]),
	commit(answer => 'pruned', fence => 2), row(), fence(2));

accepts('forgotten', acquire(), commit(), forget(token => 2, floor => 2),
	commit(answer => 'pruned', fence => 0), row());

accepts('revoked', acquire(), revoke(token => 2), commit(answer => 'stale', fence => 2), fence(2));

accepts('a new epoch', acquire(), new_epoch(token => 1000), commit(answer => 'stale', fence => 1),
	acquire(token => 1001), fence(1001));

accepts('a heartbeat after the release', acquire(), release(), renew(answer => 'lost'), fence(1));

accepts('a lease that was released, and taken at once',
	acquire(at => [ 0, 1 ], until => 100, ttl => 99_000), release(at => [ 2, 3 ]),
	acquire(at => [ 4, 5 ], owner => 'B', token => 2, until => 6), fence(2));

accepts('a heartbeat that a crash has forgotten',
	acquire(at => [ 0, 1 ], until => 2), renew(at => [ 1, 2 ], until => 100, ttl => 98_000),
	History::format_line('fault', t => 3, kind => 'crash', edge => 'begin'),
	History::format_line('fault', t => 4, kind => 'crash', edge => 'end'),
	acquire(at => [ 5, 6 ], owner => 'B', token => 2, until => 7), fence(2));

accepts('a transaction that a crash has ended, and its number used again',
	acquire(xid => 1), lost(\&commit, told => 'committed', xid => 2),
	History::format_line('fault', t => 20, kind => 'crash', edge => 'begin'),
	History::format_line('fault', t => 21, kind => 'crash', edge => 'end'),
	acquire(xid => 2, owner => 'B', token => 2), acquire(xid => 3, token => 3), commit(answer => 'stale', fence => 3),
	(map { History::format_line('wal', tl => 1, xid => $_, lsn => "0/${_}00") } 1 .. 3), fence(3));

accepts('lost with its WAL',
	acquire(xid => 1), commit(xid => 2), promotion(wal => { 1 => '0/400', 2 => '0/500' }),
	commit(tl => 2, answer => 'stale', fence => 1), acquire(tl => 2, token => 1001), end(2), fence(1001));

accepts('arrived before the promotion',
	acquire(xid => 1), commit(xid => 2), promotion(wal => { 1 => '0/400', 2 => '0/4F0' }),
	commit(tl => 2, answer => 'replayed'), acquire(tl => 2, token => 1001), kept(), end(2), fence(1001));

accepts('a job that was lost with its WAL',
	acquire(xid => 1), promotion(wal => { 1 => '0/600' }), commit(tl => 2, answer => 'pruned', fence => 0), end(2));

accepts('a purge that was lost with its WAL',
	acquire(xid => 1), commit(xid => 2), acquire(xid => 3, owner => 'B', token => 2), purge([1], xid => 4),
	commit(answer => 'pruned', fence => 2), promotion(wal => { 1 => '0/100', 2 => '0/200', 3 => '0/300', 4 => '0/600' }),
	commit(tl => 2, answer => 'replayed'), kept(), end(2), fence(2));

accepts('errors of a session that was ended, and of a standby',
	acquire(), commit(answer => 'error', sqlstate => '57P01', fatal => 1), promotion(wal => { 101 => '0/600' }),
	commit(answer => 'error', sqlstate => '25006', at => [ 24, 25 ]), end(2));

accepts('writes that the guard refuses',
	lines_of('careless', 'error', {}, job => 'j', sqlstate => 'LF003'),
	acquire(), commit(told => 'committed', answer => 'error', sqlstate => 'LF003', planned => 'savepoint'), fence(1));

# ---- Bad ones

rejects('token-twice', 'one token for two', acquire(at => [ 0, 9 ]), acquire(at => [ 1, 8 ], owner => 'B'), fence(1));

rejects('token-falls', 'a token below that of another',
	acquire(token => 5), acquire(owner => 'B', token => 4), fence(5));

rejects('token-falls', 'a token below that of a revocation',
	acquire(), revoke(token => 5), acquire(owner => 'B', token => 4), fence(5));

rejects('token-falls', 'a token of a former epoch', acquire(), new_epoch(token => 1000), acquire(token => 2), fence(2));

rejects('token-falls token-timeline', 'a token that goes down after a promotion',
	acquire(xid => 1, token => 3), promotion(wal => { 1 => '0/600' }), acquire(tl => 2, owner => 'B', token => 2),
	end(2), fence(2));

rejects('token-timeline', 'the same, told to one who was frozen meanwhile',
	acquire(xid => 1, token => 3, at => [ 1, 90 ], until => 2), promotion(wal => { 1 => '0/600' }),
	acquire(tl => 2, owner => 'B', token => 2), end(2), fence(2));

rejects('token-falls token-timeline token-twice', 'a lost token is issued again',
	acquire(xid => 1), promotion(wal => { 1 => '0/600' }), acquire(tl => 2, owner => 'B'), end(2), fence(1));

rejects('token-lost', 'a token that the database does not know', acquire(token => 7), fence(6));

rejects('token-lost', 'a job that is gone', acquire());

rejects('token-of-other', 'the token of another', acquire(), acquire(owner => 'B', answer => 'renewed'), fence(1));

rejects('outcome', 'a heartbeat that gets another token', acquire(),
	map({ s/^(answer.*)\n/$1\ttoken=2\n/r } renew()), fence(1));

rejects('zombie', 'committed after another had a higher token',
	acquire(), acquire(owner => 'B', token => 2), commit(), kept(), fence(2));

rejects('zombie', 'told so, though the reply to COMMIT was lost',
	acquire(), acquire(owner => 'B', token => 2), lost(\&commit, told => 'committed', xid => 9), fence(2));

rejects('zombie', 'a heartbeat after another had a higher token',
	acquire(), acquire(owner => 'B', token => 2), renew(), fence(2));

rejects('zombie', 'committed with the last token that arrived, after it was succeeded on the lost primary',
	acquire(xid => 1), acquire(xid => 2, owner => 'B', token => 2), promotion(wal => { 1 => '0/400', 2 => '0/600' }),
	commit(tl => 2), kept(), end(2), fence(1));

rejects('zombie', 'committed with the last token that arrived, though nobody succeeded it',
	acquire(xid => 1), promotion(wal => { 1 => '0/400' }), commit(tl => 2), kept(), end(2), fence(1));

rejects('zombie', 'a heartbeat with a token of a former timeline',
	acquire(xid => 1), promotion(wal => { 1 => '0/400' }), renew(tl => 2), end(2), fence(1));

rejects('zombie', 'committed after a revocation', acquire(), revoke(token => 2), commit(), kept(), fence(2));

rejects('zombie', 'committed after a new epoch', acquire(), new_epoch(token => 1000), commit(), kept(), fence(1));

rejects('lost-without-reason', 'a heartbeat that fails for nothing', acquire(), renew(answer => 'lost'), fence(1));

rejects('revived', 'a heartbeat after the release', acquire(), release(), renew(), fence(1));

rejects('lease-taken', 'taken before it was over',
	acquire(at => [ 0, 1 ], until => 100, ttl => 99_000), acquire(at => [ 4, 5 ], owner => 'B', token => 2, until => 6), fence(2));

rejects('committed-twice', 'the same content, twice',
	acquire(), commit(at => [ 11, 50 ]), commit(at => [ 12, 51 ]), kept(), fence(1));

rejects('committed-twice two-contents', 'two contents under one token',
	acquire(), commit(at => [ 11, 50 ]), commit(at => [ 12, 51 ], content => 'two'), kept(), fence(1));

rejects('two-contents', 'two contents, one of them replayed only',
	acquire(), lost(\&commit, content => 'two'), commit(at => [ 21, 50 ]),
	commit(at => [ 21, 50 ], answer => 'replayed', content => 'two'), kept(), fence(1));

rejects('commit-lost replay-of-nothing', 'replayed, and never committed', acquire(), commit(answer => 'replayed'), fence(1));

rejects('receipt-ignored replay-of-nothing', 'replayed before it was committed',
	acquire(), commit(answer => 'replayed'), commit(), kept(), fence(1));

rejects('replay-differs', 'another result', acquire(), commit(result => '{"n": 1}'),
	commit(answer => 'replayed', result => '{"n": 2}'), kept(), fence(1));

rejects('replay-differs', 'another time', acquire(), commit(), commit(answer => 'replayed', committed_at => 5), kept(), fence(1));

rejects('conflict-with-nothing', 'a conflict with itself', acquire(), lost(\&commit), commit(answer => 'conflict'),
	kept(), fence(1));

rejects('receipt-ignored', 'stale, though it was committed', acquire(), commit(), acquire(owner => 'B', token => 2),
	commit(answer => 'stale', fence => 2), kept(), fence(2));

rejects('receipt-ignored', 'stale after the promotion, though it had arrived',
	acquire(xid => 1), commit(xid => 2), promotion(wal => { 1 => '0/100', 2 => '0/200' }),
	commit(tl => 2, answer => 'stale', fence => 1), kept(), end(2), fence(1));

rejects('conflict-with-nothing receipt-ignored', 'a conflict with its own content',
	acquire(), commit(), commit(answer => 'conflict'), kept(), fence(1));

rejects('stale-without-reason', 'stale, though nobody has a higher token',
	acquire(), commit(answer => 'stale'), fence(1));

rejects('pruned-without-reason', 'pruned, though nothing was purged',
	acquire(), acquire(owner => 'B', token => 2), commit(answer => 'pruned', fence => 2), fence(2));

rejects('pruned-without-reason', 'pruned, though only older ones were purged',
	acquire(), commit(), acquire(owner => 'B', token => 2), purge([1]), acquire(token => 3),
	commit(token => 2, answer => 'pruned', fence => 3), row(), fence(3));

rejects('commit-lost', 'acknowledged, and nothing is there', acquire(), commit(), fence(1));

rejects('commit-lost row-alone', 'acknowledged, and the receipt is gone', acquire(), commit(), row(), fence(1));

rejects('commit-lost', 'replayed, and nothing is there', acquire(), lost(\&commit), commit(answer => 'replayed'), fence(1));

rejects('commit-lost', 'arrived before the promotion, and nothing is there',
	acquire(xid => 1), commit(xid => 2), promotion(wal => { 1 => '0/100', 2 => '0/200' }), end(2), fence(1));

rejects('commit-lost row-alone', 'arrived, and purged by a purge that was lost',
	acquire(xid => 1), commit(xid => 2), acquire(xid => 3, owner => 'B', token => 2), purge([1], xid => 4),
	promotion(wal => { 1 => '0/100', 2 => '0/200', 3 => '0/300', 4 => '0/600' }), row(), end(2), fence(2));

rejects('commit-lost', 'a replay on the standby, of what is lost later',
	acquire(xid => 1), lost(\&commit), commit(answer => 'replayed', tl => undef), fence(1));

rejects('undead', 'lost with its WAL, and there all the same',
	acquire(xid => 1), commit(xid => 2), promotion(wal => { 1 => '0/100', 2 => '0/600' }), kept(), end(2), fence(1));

rejects('wal', 'acknowledged by the lost primary, and not in its WAL',
	acquire(xid => 1), commit(xid => 2), promotion(wal => { 1 => '0/100' }), end(2), fence(1));

rejects('wal', 'a token of the lost primary that is not in its WAL',
	acquire(xid => 1), promotion(wal => { 7 => '0/600' }), end(2));

rejects('wal-order', 'committed after a takeover that went on at the same time',
	acquire(xid => 1), commit(xid => 2, at => [ 11, 40 ]), acquire(xid => 3, owner => 'B', token => 2),
	(map { History::format_line('wal', tl => 1, xid => $_->[0], lsn => $_->[1]) }
		[ 1, '0/100' ], [ 2, '0/300' ], [ 3, '0/200' ]),
	kept(), fence(2));

rejects('switch', 'less than the standby had received', promotion(received => '0/900', wal => { 7 => '0/600', 8 => '0/700' }), end(2));

rejects('receipt-differs', 'a receipt of another time', acquire(), commit(committed_at => 5), kept(), fence(1));

rejects('row-differs', 'a receipt of another content', acquire(), commit(), row(), receipt(content => 'two'), fence(1));

rejects('row-differs', 'acknowledged, and something else is there',
	acquire(), lost(\&commit, content => 'two'), commit(), kept(content => 'two'), fence(1));

rejects('wal', 'replayed by the lost primary, and not in its WAL',
	acquire(xid => 1), lost(\&commit), commit(answer => 'replayed', result => '{"tl": 1, "xid": "9"}', lsn => '0/900'),
	promotion(wal => { 1 => '0/100' }), end(2), fence(1));

rejects('row-twice', 'the business write happened twice', acquire(), commit(), row(), kept(), fence(1));

rejects('row-alone', 'a row without a receipt', acquire(), lost(\&commit), row(), fence(1));

rejects('commit-lost receipt-alone', 'a receipt without a row', acquire(), commit(), receipt(), fence(1));

rejects('of-nobody', 'what was rolled back is there',
	acquire(), commit(told => 'committed', answer => 'rolledback', planned => 'rollback'), kept(), fence(1));

rejects('of-nobody', 'what was refused is there',
	acquire(), acquire(owner => 'B', token => 2), commit(answer => 'stale', fence => 2), kept(), fence(2));

rejects('of-nobody row-alone', 'what the guard should have refused',
	lines_of('careless', 'error', {}, job => 'j', sqlstate => 'LF003', step => 'careless', content => 'x'),
	row(step => 'careless', content => 'x'));

rejects('outcome', 'a write past the guard', lines_of('careless', 'written', {}, job => 'j'));

rejects('purge-undone', 'a purged receipt is back', acquire(), commit(), acquire(owner => 'B', token => 2), purge([1]),
	kept(), fence(2));

rejects('outcome', 'a word that is not one of commit', acquire(), commit(answer => 'denied'), fence(1));

rejects('outcome', 'a statement that fails is committed', acquire(), commit(breaks => 1), kept(), fence(1));

rejects('outcome', 'committed under another fence', acquire(), commit(fence => 2), kept(), fence(1));

rejects('sqlstate', 'a unique violation', acquire(), commit(answer => 'error', sqlstate => '23505', message => 'm'), fence(1));

rejects('sqlstate', 'LF001 for a token that was issued', acquire(), commit(answer => 'error', sqlstate => 'LF001', message => 'm'), fence(1));

rejects('sqlstate', '40001 at READ COMMITTED', acquire(), commit(answer => 'error', sqlstate => '40001', message => 'm'), fence(1));

rejects('sqlstate', '25006 where there is no standby', acquire(), commit(answer => 'error', sqlstate => '25006', message => 'm'), fence(1));

rejects('hang', 'no answer in time', acquire(answer => 'lost', how => 'timeout', token => undef));

# a history that cannot have been
rejects('exit 2', 'no end', History::format_line('end'));
rejects('exit 2', 'an answer without a call', History::format_line('answer', t => 1, who => 'w', n => 77, answer => 'acquired'));

# and every kind of complaint has been seen
my @kinds = map { /^([\w-]+)/ } split /\n/, qx($^X $CHECK --kinds);
my %seen = map { map { $_ => 1 } split } keys %tested;
cmp_ok(scalar @kinds, '>', 10, 'there are kinds of complaints');
is_deeply([ grep { !$seen{$_} } @kinds ], [], 'a bad history for each');

done_testing();
