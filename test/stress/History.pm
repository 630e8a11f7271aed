# The history of a nemesis run: what every process did and was told, line by
# line.  Workers and nemesis write it, the checker reads it.
#
# A line is a word and then name=value pairs, separated by tabs:
#
#   call       t who n call ...     about to be sent: a call of fencing_<call>
#   told       t who n told ...     its reply, in a transaction that is still open
#   answer     t who n answer ...   its end: an outcome (the transaction has been
#                                   committed), error, lost, or rolledback
#   purged     who n job token step a receipt that the call purged
#   fault      t n kind [edge]      what the nemesis did; begin and end if it took long
#   promotion  from to switch received
#                                   timelines; where the new one begins, and what
#                                   its server had received by then
#   wal        tl xid lsn           a commit record, from the WAL of a server
#   row        job token step content                      the database at the end:
#   receipt    job token step digest committed_at          business rows, receipts,
#   fence      job token                                   fences
#   end        tl                   all was written; the timeline at the end
#
# t is CLOCK_MONOTONIC, one for all processes of the machine.  A call is written
# before it is sent and its answer after it was read: what really happened, did
# so in between, however long a process was frozen.  tl, xid and lsn say where a
# transaction is in the WAL: on which timeline, by which transaction, and (lsn)
# how far the WAL had been flushed when the reply was made.  tl is absent on a
# standby.

package History;

use strict;
use warnings;

use Fcntl qw(O_WRONLY O_APPEND O_CREAT);
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

sub now
{
	return clock_gettime(CLOCK_MONOTONIC);
}

# A new file, to append to.
sub create
{
	my ($class, $file) = @_;

	sysopen my $handle, $file, O_WRONLY | O_APPEND | O_CREAT or die "$file: $!\n";
	return bless { file => $file, handle => $handle }, $class;
}

# Writes a line at once, without a buffer that a killed process would take along.
sub write
{
	my ($self, $kind, @pairs) = @_;
	my $line = format_line($kind, @pairs);

	syswrite($self->{handle}, $line) == length $line or die "$self->{file}: $!\n";
	return;
}

# The same, now.
sub record
{
	my ($self, $kind, @pairs) = @_;

	return $self->write($kind, t => sprintf('%.6f', now()), @pairs);
}

sub format_line
{
	my ($kind, @pairs) = @_;
	my $line = $kind;

	while (my ($name, $value) = splice @pairs, 0, 2)
	{
		next unless defined $value;
		$value =~ tr/\t\r\n/ /;
		$line .= "\t$name=$value";
	}
	return "$line\n";
}

# Kind, and a reference to the pairs; nothing for the torn last line of a
# process that was killed.
sub parse_line
{
	my ($line) = @_;

	return unless chomp $line;
	my ($kind, @pairs) = split /\t/, $line;
	return ($kind, { map { split /=/, $_, 2 } @pairs });
}

# Calls the function with kind and pairs of every line of a file.
sub read_file
{
	my ($file, $function) = @_;

	open my $handle, '<', $file or die "$file: $!\n";
	while (my $line = <$handle>)
	{
		my ($kind, $pairs) = parse_line($line);
		$function->($kind, $pairs) if defined $kind;
	}
	close $handle;
	return;
}

1;
