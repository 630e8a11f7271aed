# The examples of README.md and of each page of docs/, as they stand there, one after
# the other, and what the page says that they answered.  Each page has a database of
# its own, and nothing else is prepared: a newcomer has nothing but the page.
#
# ```sql    goes to one psql session per page.  Without a block of answers it must
#           end without an error or a warning.  One with parameters of a client ($1
#           outside a quoted statement) is prepared, not executed; pg_cron's are in
#           038_pg_cron.pl.
# ```bash   is run with PGHOST etc. set to the page's database.
# ```text   after one of these is all that it prints, errors too.  Times, UUIDs and
#           the width of columns are not compared, nor what "…" stands for; a number
#           of rows is left out.
# ```sh     and everything else is for reading.
#
# In SQL, "--  one | two" is the last row of what stands before it.

use strict;
use warnings;

use File::Basename qw(basename);
use FindBin qw($RealBin);
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $root = "$RealBin/../..";
my $folder = PostgreSQL::Test::Utils::tempdir();
my $node = PostgreSQL::Test::Cluster->new('readme');
$node->init(extra => [ '--encoding=UTF8', '--no-locale' ]);
# for the publication in docs/outbox.md
$node->append_conf('postgresql.conf', "wal_level = logical\n");
$node->start;

my $uuid = qr/\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/;
my $time = qr/\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?[+-]\d\d\b/;

# The code blocks of a page: kind, text, and the answers that follow, if any do.
sub blocks_of
{
	my ($page) = @_;
	my @blocks;

	while ($page =~ /^```(\w*)\n(.*?)^```\n(\s*)/msg)
	{
		my ($kind, $text) = ($1, $2);
		if ($kind eq 'text' && @blocks && $blocks[-1]{end} == $-[0])
		{
			$blocks[-1]{answers} = $text;
		}
		elsif ($kind eq 'sql' || $kind eq 'bash')
		{
			push @blocks, { kind => $kind, text => $text, end => $+[0] };
		}
	}
	return @blocks;
}

sub is_for_reading
{
	my ($sql) = @_;
	return 0 if $sql =~ /^PREPARE /;
	return $sql =~ s/\$(\w*)\$.*?\$\1\$//gsr =~ /\$\d/;
}

# What differs from run to run, and from one width to another, is no difference.
sub plain
{
	my ($text) = @_;

	# neither is the answer of a function that has none
	$text =~ s/^ +(?:fencing_\w+|pg_sleep) *\n-+\n *\n//mg;
	my @lines = grep { /\S/ && !/^\(\d+ rows?\)$/ } split /\n/, $text =~ s/$time/(time)/gr =~ s/$uuid/(uuid)/gr;

	return map { s/\s+/ /gr =~ s/-{2,}/--/gr =~ s/^ | $//gr } @lines;
}

sub is_answered
{
	my ($got, $expected, $name) = @_;
	my @got = plain($got);
	my $pattern = join '\n', map { join '.*', map { quotemeta } split /…/, $_, -1 } plain($expected);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	like(join("\n", @got), qr/^$pattern$/, $name);
	return;
}

# A session that lasts as long as the page, as the reader's does.  Errors come
# where they belong, because psql does not keep back what it has printed.
sub open_page
{
	my ($database) = @_;
	my ($in, $out) = ('', '');
	my $psql = IPC::Run::start(
		[ 'stdbuf', '-o0', 'psql', '-X', '-q', '-d', $node->connstr($database) ],
		'<', \$in, '>&', \$out, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));

	return sub {
		my ($sql) = @_;
		return $psql->finish if !defined $sql;
		$out = '';
		$in .= "$sql\n\\echo end of block\n";
		$psql->pump while $out !~ /^end of block\n/m;
		return $out =~ s/^end of block\n//mr;
	};
}

# Piece by piece, up to each "--  one | two".
sub run_sql
{
	my ($send, $block, $name) = @_;
	my ($sql, $all) = ('', '');

	foreach my $line (split /^/, $block->{text})
	{
		if ($line =~ /^--  (.*)$/)
		{
			my $answer = $1;
			my @rows = split /\n/, $send->("\\a\\t\n$sql");
			is($rows[-1] =~ s/\|/ | /gr, $answer, "$name: $answer");
			$send->('\a\t');
			$sql = '';
		}
		else
		{
			$sql .= $line;
		}
	}
	$all = $send->($sql) if $sql =~ /\S/;
	return $all;
}

sub run_bash
{
	my ($database, $text) = @_;
	my $out = '';

	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	local $ENV{PGDATABASE} = $database;
	IPC::Run::run([ 'bash', '-c', "cd '$folder' && " . $text ], '<', \undef, '>&', \$out);
	return $out;
}

sub check_page
{
	my ($file) = @_;
	my $page = basename($file, '.md');
	my $database = "page_\L$page";
	my $number = 0;

	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, 'CREATE EXTENSION fencing CASCADE') if $page ne 'README';
	my $send = open_page($database);
	foreach my $block (blocks_of(slurp_file($file)))
	{
		my ($first) = $block->{text} =~ /^(.*)$/m;
		my $name = sprintf '%s %d: %s', $page, ++$number, substr($first, 0, 60);
		my $out;

		next if $block->{text} =~ /\bcron\.schedule\b/;
		if ($block->{kind} eq 'bash')
		{
			$out = run_bash($database, $block->{text});
		}
		elsif (is_for_reading($block->{text}))
		{
			$out = $send->("PREPARE for_reading AS $block->{text}; DEALLOCATE for_reading;");
			unlike($out, qr/ERROR/, "$name: it would run") or diag $out;
			next;
		}
		else
		{
			$out = run_sql($send, $block, $name);
		}
		if (defined $block->{answers})
		{
			is_answered($out, $block->{answers}, $name);
		}
		else
		{
			unlike($out, qr/ERROR|WARNING/, "$name: without an error or a warning") or diag $out;
		}
	}
	$send->();
	is($node->safe_psql($database, $_), '', "$page: the tags are consistent")
	  foreach map { "SELECT * FROM fencing_tag_check('$_')" } split /\n/,
	  $node->safe_psql($database, 'SELECT DISTINCT vocabulary FROM fencing.tags');

	# The next page has a server without strangers.
	$node->safe_psql('postgres', "DROP DATABASE $database");
	$node->safe_psql('postgres', "DROP ROLE $_")
	  foreach split /\n/, $node->safe_psql('postgres', q{SELECT quote_ident(rolname) FROM pg_roles WHERE oid >= 16384});
	return $number;
}

my $examples = 0;
my %pages = map { basename($_, '.md') => $_ } "$root/README.md", glob("$root/docs/*.md");
$examples += check_page($pages{$_}) foreach sort keys %pages;
cmp_ok($examples, '>', 100, 'the pages have examples');

$node->stop;
done_testing();
