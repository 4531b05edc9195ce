# SPDX-License-Identifier: Apache-2.0
# Perl: data, text, processes, pipes, sockets, signals, files. Ends with status 4.
use strict;
use warnings;
use Data::Dumper;
use Digest::SHA qw(sha256_hex);
use Encode;
use Fcntl qw(:flock :seek);
use File::Copy;
use File::Find;
use File::Temp qw(tempdir);
use IO::Handle;
use IPC::Open3;
use List::Util qw(sum);
use POSIX qw(:sys_wait_h :signal_h strftime);
use Socket;
use Storable qw(freeze thaw);
use Time::HiRes qw(sleep time);

$| = 1;
$Data::Dumper::Sortkeys = $Data::Dumper::Indent = 1;

print "== data\n";
my %h = map { $_ => $_ ** 2 } 1 .. 5;
print Dumper([sort { $a <=> $b } values %h]), sum(values %h), "\n";
print sha256_hex("abc"), "\n", strftime("%F %T", gmtime(0)), "\n";
print join(",", sort { $a <=> $b } map { $_ * 77 % 1000 } 1 .. 40), "\n";
(my $u = my $t = "the quick brown fox") =~ s/(\w+)/\u$1/g;
print "$u\n", join("|", $t =~ /\b(\w)/g), "\n";
print thaw(freeze({ a => [1, 2] }))->{a}[1], length(encode("UTF-8", "\x{263a}")), "\n";
print eval { die { code => 7 } } // $@->{code}, "\n";
my @l = sort { $a <=> $b } map { rand } 1 .. 20000;
print $l[0] <= $l[-1] ? "sorted\n" : "not sorted\n";
(my $str = "x" x 1_000_000) =~ tr/x/y/;
print length $str, "\n", (POSIX::uname())[0], "\n";

print "== processes\n";
my $pid = fork;
exit 5 if !$pid;
waitpid($pid, 0);
print $? >> 8, "\n";
print `echo backtick; exit 3`, $? >> 8, "\n", system("false") >> 8, "\n";
pipe(my $r, my $w);
if (!fork) {
	close $r;
	print $w "line $_\n" for 1 .. 3;
	exit;
}
close $w;
print while <$r>;
wait;
socketpair(my $sa, my $sb, AF_UNIX, SOCK_STREAM, 0);
$sa->autoflush(1);
if (!fork) {
	close $sa;
	print $sb uc scalar <$sb>;
	exit;
}
close $sb;
print $sa "ping\n";
print scalar <$sa>;
wait;
my $p3 = open3(my $in, my $out, undef, "sort");
print $in "b\na\n";
close $in;
print <$out>;
waitpid $p3, 0;
print $?, "\n";
open(my $ph, "-|", "seq", 3);
print <$ph>;
close $ph;
open($ph, "|-", "cat");
print $ph "to cat\n";
close $ph;
$0 = "renamed";
print `ps -o args= -p $$`;

print "== signals\n";
{
	local $SIG{ALRM} = sub { die "alarm\n" };
	eval {
		alarm 1;
		select undef, undef, undef, 20;
	};
	print $@;
}
{
	local $SIG{USR1} = sub { print "usr1\n" };
	kill USR1 => $$;
	sleep 0.01;
}
{
	my $n = 0;
	local $SIG{CHLD} = sub { $n++ while waitpid(-1, WNOHANG) > 0 };
	fork || exit for 1 .. 3;
	my $end = time + 20;
	sleep 0.05 while $n < 3 && time < $end;
	print "reaped $n\n";
}
my $pending = POSIX::SigSet->new;
sigprocmask(SIG_BLOCK, POSIX::SigSet->new(SIGUSR2));
kill USR2 => $$;
sigpending($pending);
print $pending->ismember(SIGUSR2), "\n";

print "== files\n";
my $d = tempdir(CLEANUP => 1);
for (1 .. 50) {
	open(my $o, ">", "$d/f$_");
	print $o $_ x 100;
}
my ($n, $s) = (0, 0);
find(sub { -f and $n++, $s += -s }, $d);
print "$n $s\n";
copy("$d/f1", "$d/c");
print -s "$d/c", "\n";
rename "$d/c", "$d/m";
print -e "$d/c" ? "there\n" : "gone\n", scalar(my @g = glob("$d/f5*")), "\n";
symlink "f1", "$d/s";
print readlink "$d/s", "\n";
chmod 0640, "$d/f1";
printf "%o\n", (stat "$d/f1")[2] & 07777;
utime 1, 2, "$d/f1";
print join(" ", (stat "$d/f1")[7 .. 9]), "\n";
unlink "$d/f1";
print "$!\n" unless open(my $gone, "<", "$d/f1");
open(my $f, "+>", "$d/rw");
print $f "0123456789";
seek $f, 3, SEEK_SET;
read $f, my $buf, 4;
truncate $f, 5;
print "$buf ", -s $f, "\n";
flock $f, LOCK_EX;
if (!fork) {
	open(my $g, "<", "$d/rw");
	exit(flock($g, LOCK_EX | LOCK_NB) ? 0 : 1);
}
wait;
print $? >> 8, "\n";
opendir(my $dh, $d);
print scalar(grep { !/^\./ } readdir $dh), "\n";
exit 4;
