# Runs TAP files as prove does, and writes how many single tests passed, failed
# and were skipped to the file named by FENCING_COUNTS.  After a failure it
# shows the end of the logs of the file that failed, and which tests did.
#
#   perl prove.pl [-I folder]... file...

use strict;
use warnings;

use File::Basename qw(basename);
use Getopt::Long;
use TAP::Harness;

GetOptions('I=s' => \my @lib) or die "usage: prove.pl [-I folder]... file...\n";

# Two at a time: most of them wait for servers.
my $harness = TAP::Harness->new({ lib => \@lib, jobs => 2, color => 0 });
my $aggregate = $harness->runtests(@ARGV);

my ($passed, $failed, $skipped) = (0, 0, 0);
my @failed_files;
foreach my $file ($aggregate->descriptions)
{
	my ($parser) = $aggregate->parsers($file);
	my $bad = $parser->failed;

	# died, or ran another number of tests than planned
	$bad ||= 1 if $parser->has_problems;
	push @failed_files, $file if $bad;

	$failed += $bad;
	if (defined $parser->skip_all)
	{
		$skipped++;
	}
	else
	{
		$skipped += $parser->skipped;
		$passed += $parser->passed - $parser->skipped;
	}
}

open my $counts, '>', $ENV{FENCING_COUNTS} or die "$ENV{FENCING_COUNTS}: $!\n";
print $counts "$passed $failed $skipped\n";
close $counts;

foreach my $file (@failed_files)
{
	my $name = basename($file, '.pl');
	foreach my $log (grep { -f } glob "tmp_check/log/*$name*")
	{
		print "\n==> $log\n";
		system 'tail', '-n', '60', $log;
	}
}
# last of all, as the end of a log is what one sees first
foreach my $file (@failed_files)
{
	my $name = basename($file, '.pl');
	my $log = "tmp_check/log/regress_log_$name";

	print "\nfailed in $file:\n";
	system 'grep', '-h', '-m', '20', '-A', '6', '-E', '^(\[[^]]*\]\([^)]*\) )?(not ok |# Looks like )', $log if -f $log;
}
exit(@failed_files ? 1 : 0);
