# Stands between a client and a server, and loses one reply.  It forwards
# everything, until a transaction in which the client called fencing_commit (or
# another function) has been committed: instead of the server's answer it then closes the
# connection, so that the client cannot know what became of it.  From then on
# it forwards everything.
#
#   proxy.pl SOCKET MODE [FUNCTION]
#
# SOCKET is the server's Unix-domain socket.  MODE is what gets lost, once:
#   reply     the answer of the server, after the commit
#   request   the call, which never reaches the server
#   nothing   nothing
#
# It listens on a free port of 127.0.0.1, which it says on standard output, and
# then "lost" when it has closed a connection for that reason.  It ends with its
# standard input.

use strict;
use warnings;

use IO::Select;
use IO::Socket::INET;
use IO::Socket::UNIX;

my ($path, $mode, $function) = @ARGV;
my $named = qr/\b\Q${\($function \/\/ 'fencing_commit')}\E\b/;

$| = 1;
$SIG{PIPE} = 'IGNORE';

my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 20) or die "cannot listen: $!\n";
my $select = IO::Select->new($listener, \*STDIN);
my %end_of;    # both ends of each connection, by their sockets

print $listener->sockport, "\n";
for (;;)
{
	foreach my $socket ($select->can_read)
	{
		exit if $socket == \*STDIN;
		if ($socket == $listener)
		{
			open_connection();
		}
		# its connection may have been closed in this round
		elsif ($end_of{$socket})
		{
			forward(@{ $end_of{$socket} });
		}
	}
}

# What is kept of a connection: how far it has been understood, under which
# names the call was prepared, and whether it is in the transaction now.
sub open_connection
{
	my $client = $listener->accept or return;
	my $server = IO::Socket::UNIX->new(Peer => $path) or return;
	my $connection = { client => $client, server => $server, from_client => '', from_server => '',
		answer => '', started => 0, prepared => {}, called => 0 };

	$end_of{$client} = [ $connection, 'client' ];
	$end_of{$server} = [ $connection, 'server' ];
	$select->add($client, $server);
	return;
}

sub close_connection
{
	my ($connection) = @_;

	foreach my $socket (@$connection{qw(client server)})
	{
		$select->remove($socket);
		delete $end_of{$socket};
		close $socket;
	}
	return;
}

sub forward
{
	my ($connection, $end) = @_;

	if (!sysread $connection->{$end}, $connection->{"from_$end"}, 65536, length $connection->{"from_$end"})
	{
		close_connection($connection);
	}
	elsif ($end eq 'client')
	{
		forward_requests($connection);
	}
	else
	{
		forward_answers($connection);
	}
	return;
}

sub forward_requests
{
	my ($connection) = @_;

	while (my ($type, $message) = next_message(\$connection->{from_client}, $connection->{started}))
	{
		if ($type eq 'startup')
		{
			my $code = unpack 'x4 N', $message;
			# asks for TLS, or for encryption by GSS: no
			if ($code == 80877103 || $code == 80877104)
			{
				send_all($connection->{client}, 'N');
				next;
			}
			$connection->{started} = 1;
		}
		watch($connection, $type, substr $message, 5);
		if ($connection->{called} && $mode eq 'request')
		{
			lose($connection);
			return;
		}
		send_all($connection->{server}, $message);
	}
	return;
}

# Is it the call?  Query; Parse with its name and text; Bind of a portal to a name.
sub watch
{
	my ($connection, $type, $body) = @_;

	if ($type eq 'Q')
	{
		$connection->{called} ||= $body =~ $named;
	}
	elsif ($type eq 'P')
	{
		my ($name, $text) = unpack 'Z* Z*', $body;
		$connection->{prepared}{$name} = $text =~ $named;
	}
	elsif ($type eq 'B')
	{
		my ($portal, $name) = unpack 'Z* Z*', $body;
		$connection->{called} ||= $connection->{prepared}{$name};
	}
	return;
}

# An answer is held back until it is complete.  When the call's transaction is
# over without an error, the server has committed it.
sub forward_answers
{
	my ($connection) = @_;

	while (my ($type, $message) = next_message(\$connection->{from_server}, 1))
	{
		$connection->{answer} .= $message;
		$connection->{failed} ||= $type eq 'E';
		# authentication goes to and fro before the first of these
		next if $type ne 'Z' && $connection->{called};
		if ($type eq 'Z' && substr($message, 5, 1) eq 'I')
		{
			if ($connection->{called} && !$connection->{failed} && $mode eq 'reply')
			{
				lose($connection);
				return;
			}
			$connection->{called} = 0;
		}
		$connection->{failed} = 0 if $type eq 'Z';
		send_all($connection->{client}, $connection->{answer});
		$connection->{answer} = '';
	}
	return;
}

sub lose
{
	my ($connection) = @_;

	$mode = 'nothing';
	close_connection($connection);
	print "lost\n";
	return;
}

# Takes the next whole message; the first one of a client has no type.
sub next_message
{
	my ($buffer, $typed) = @_;
	my $at = $typed ? 1 : 0;

	return if length $$buffer < $at + 4;
	my $length = $at + unpack 'N', substr $$buffer, $at, 4;
	return if length $$buffer < $length;
	return ($typed ? substr($$buffer, 0, 1) : 'startup', substr($$buffer, 0, $length, ''));
}

# A connection that is gone is found out when it is read.
sub send_all
{
	my ($socket, $bytes) = @_;

	while (length $bytes)
	{
		my $sent = syswrite $socket, $bytes;
		return if !defined $sent;
		substr $bytes, 0, $sent, '';
	}
	return;
}
