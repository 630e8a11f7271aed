# A small client for PostgreSQL, in core Perl: the extended query protocol over
# a Unix-domain socket, text format.  The drivers hide what the nemesis run
# needs: to send a call and never look at the reply, to give up waiting without
# asking the server, and to tell an error that ended the connection from one
# that did not.
#
#   my $db = Wire->connect(host => $folder, port => $port, user => $user,
#                          dbname => $name, patience => $seconds);
#   my $reply = $db->query('SELECT $1::int + 1 AS sum', 41);
#
# A reply is complete when the server is ready for the next query, so that its
# transaction has ended by then if it was one of its own.  It is a hash:
#   rows      one hash per row, by column name
#   tag       command tag, as 'COMMIT'
#   code      SQLSTATE, if there was an error, with message and severity
#   lost      why there is no complete reply: 'closed' or 'timeout'

package Wire;

use strict;
use warnings;

use IO::Socket::UNIX;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

# Nothing if the server cannot be reached or does not want us (yet).
sub connect
{
	my ($class, %to) = @_;
	my $socket = IO::Socket::UNIX->new(Peer => "$to{host}/.s.PGSQL.$to{port}") or return;
	my $self = bless { socket => $socket, in => '', patience => $to{patience} }, $class;

	my $startup = pack('N', 3 << 16) . join("\0",
		user => $to{user}, database => $to{dbname}, application_name => 'fencing_stress', '', '');
	$self->_write(pack('N', length($startup) + 4) . $startup);

	my $reply = $self->receive;
	return if defined $reply->{code} || defined $reply->{lost};
	return $self;
}

sub query
{
	my ($self, $sql, @params) = @_;

	$self->send($sql, @params);
	return $self->receive;
}

# The unnamed statement and portal: Parse, Bind, Describe, Execute, Sync.
sub send
{
	my ($self, $sql, @params) = @_;
	my $values = join '', map { defined $_ ? pack('N/a*', $_) : pack('N', 0xffffffff) } @params;

	$self->_write(
		_message('P', "\0$sql\0" . pack('n', 0)),
		_message('B', "\0\0" . pack('n n', 0, scalar @params) . $values . pack('n', 0)),
		_message('D', "P\0"),
		_message('E', "\0" . pack('N', 0)),
		_message('S', ''));
	return;
}

sub receive
{
	my ($self) = @_;
	my $deadline = clock_gettime(CLOCK_MONOTONIC) + $self->{patience};
	my %reply = (rows => []);
	my @columns;

	for (;;)
	{
		my ($type, $body) = $self->_read_message($deadline, \%reply);

		if (!defined $type)
		{
			return \%reply;
		}
		elsif ($type eq 'T')
		{
			# name, then 18 bytes about the type
			@columns = unpack 'n/(Z* x18)', $body;
		}
		elsif ($type eq 'D')
		{
			push @{ $reply{rows} }, _row($body, @columns);
		}
		elsif ($type eq 'C')
		{
			($reply{tag}) = unpack 'Z*', $body;
		}
		elsif ($type eq 'E')
		{
			my %field = map { substr($_, 0, 1) => substr($_, 1) } grep { length } split /\0/, $body;
			@reply{qw(code message severity)} = @field{qw(C M V)};
		}
		elsif ($type eq 'R' && unpack('N', $body) != 0)
		{
			@reply{qw(code message severity)} = ('28000', 'asks for a password', 'FATAL');
			return \%reply;
		}
		elsif ($type eq 'Z')
		{
			return \%reply;
		}
	}
}

sub disconnect
{
	my ($self) = @_;

	close $self->{socket};
	return;
}

sub _row
{
	my ($body, @columns) = @_;
	my $at = 2;
	my %row;

	foreach my $column (@columns)
	{
		my $length = unpack 'l>', substr($body, $at, 4);
		$at += 4;
		$row{$column} = undef;
		if ($length >= 0)
		{
			$row{$column} = substr($body, $at, $length);
			$at += $length;
		}
	}
	return \%row;
}

sub _message
{
	my ($type, $body) = @_;
	return $type . pack('N', length($body) + 4) . $body;
}

# A connection that is gone is found out when the reply is read.
sub _write
{
	my ($self, @messages) = @_;
	local $SIG{PIPE} = 'IGNORE';

	syswrite $self->{socket}, join('', @messages);
	return;
}

# Type and body of the next message; or nothing, and why in the reply.
sub _read_message
{
	my ($self, $deadline, $reply) = @_;

	for (;;)
	{
		if (length $self->{in} >= 5)
		{
			my ($type, $length) = unpack 'a N', $self->{in};
			if (length $self->{in} > $length)
			{
				my $message = substr $self->{in}, 0, $length + 1, '';
				return ($type, substr $message, 5);
			}
		}

		my $patience = $deadline - clock_gettime(CLOCK_MONOTONIC);
		my $readable = '';
		vec($readable, fileno($self->{socket}), 1) = 1;
		my $ready = select $readable, undef, undef, $patience > 0 ? $patience : 0;
		next if $ready < 0 && $!{EINTR};
		if ($ready <= 0)
		{
			$reply->{lost} = 'timeout';
			return;
		}
		my $got = sysread $self->{socket}, $self->{in}, 65536, length $self->{in};
		next if !defined $got && $!{EINTR};
		if (!$got)
		{
			$reply->{lost} = 'closed';
			return;
		}
	}
}

1;
