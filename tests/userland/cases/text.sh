# SPDX-License-Identifier: Apache-2.0
# grep, sed, gawk, sort, find, xargs and the rest of coreutils.
n=${US_LINES:-1000000}
echo "== sort of $n lines"
awk -v n=$n 'BEGIN { x = 1; for (i = 0; i < n; i++) { x = (x * 16807) % 2147483647;
	print x, i } }' >lines
sort lines | cksum
sort -n lines | tail -1
sort -k2,2nr lines | head -1
sort -S 1M -T . lines | cksum
sort --parallel=4 -u lines | wc -l
sort -R lines | wc -l
sort lines >a; sort -n lines | sort -m - a | wc -l
sort -c a; echo $?
shuf -n 10 lines | wc -l
echo "== grep, sed, awk"
grep -c '^1' lines; grep -cv 7 lines; grep -n -m1 99 lines; grep -cE '(12|34).*5$' lines
grep -o 123 lines | wc -l
sed -n '5,7p;10q' lines; sed 's/\([0-9]*\) \([0-9]*\)/\2 \1/' lines | cksum
sed -i 's/^/x/' a; head -1 a
gawk '{ s += $2 } END { print s }' lines
gawk '{ c[length($1)]++ } END { for (l in c) print l, c[l] | "sort -n" }' lines
gawk 'BEGIN { "echo from pipe" | getline l; print l; print strftime("%F", 0); system("echo sys") }'
gawk 'BEGIN { cmd = "sort"; print "b" |& cmd; print "a" |& cmd; close(cmd, "to");
	while ((cmd |& getline l) > 0) print l }'
cut -d' ' -f2 lines | uniq | wc -l; tr -d 0-4 <lines | cksum; rev lines | head -1
split -l $((n / 7 + 1)) lines part.; ls part.*; cat part.* | cmp - lines && echo same
head -c 1000 lines | od -An -tx1 | head -2; tac lines | head -1; nl lines | sed -n 3p
comm -12 <(sort lines) <(sort lines) | wc -l; join -j1 <(seq 9 | sort) <(seq 5 | sort)
csplit -s -f cs. lines 10 20
wc -l cs.00 cs.01
fold -w 5 <<<abcdefghijk
fmt -w 20 <<<'a b c d e f g h i j k l m n'
expand <<<$'a\tb'
column -t 2>/dev/null <<<'a b'
factor 360360
md5sum lines
sha256sum lines
b2sum lines
base64 <<<hello | base64 -d; numfmt --to=iec 1048576; date -u -d @86400 +%F; expr 6 \* 7
seq -s, 5
dd if=lines bs=1k count=3 skip=1 2>/dev/null | cksum
truncate -s 1M sparse
stat -c '%s' sparse
dd if=/dev/zero of=d bs=1k count=4 seek=4 conv=notrunc 2>&1 | head -2; stat -c %s d
echo "== find | xargs"
mkdir -p t/{a,b,c}/{x,y}; for i in $(seq 30); do echo $i >t/a/x/f$i; done
touch 't/b/x/sp ace' $'t/b/y/new\nline' 't/c/x/quo"te' t/c/y/-dash
find t | LC_ALL=C sort | cat -A
find t -type f -print0 | xargs -0 wc -c | tail -1
find t -type f -exec wc -c {} + | sort -n | head -1
find t -name 'f1*' -exec cat {} + | sort -n | paste -sd+
find t/a -type f | xargs -n 5 echo | wc -l
find t/a -type f | xargs -P 4 -n 1 cat | sort -n | tail -1
find t -type d -empty
find t -size +1c -name 'f*' | wc -l
find t -name 'f?' -delete
find t -type f | wc -l
find t -newer lines -type d | wc -l; find . -maxdepth 1 -perm 644 -name 'p*' | wc -l
seq 5000 | xargs echo | wc; seq 3 | xargs -I{} echo '<{}>'; echo | xargs -r false; echo $?
xargs -a /dev/null echo none; seq 2 | xargs sh -c 'exit 3'; echo $?
find /usr/share/doc -type f | wc -l
find /usr/lib/python3 -name '*.py' | LC_ALL=C sort | xargs cat | cksum
find /usr /etc -xdev -type l | wc -l; find /usr -xdev -type d -perm 755 | wc -l
du -s --apparent-size t/c | cut -f2; ls -R t | cksum
echo "== files"
echo x >o
ln o h
ln -s o s
ln -s nowhere dangling
stat -c '%h %F' o s
readlink s
readlink -f s
cp -a o copy; cp s followed; cp -d s kept; mv copy moved; ls -1F; rm -f h; stat -c %h o
mkdir -p d1/d2/d3
rmdir d1/d2/d3
rmdir d1 2>&1
rm -r d1
mv nothere x 2>&1
install -m 750 o inst
stat -c %a inst
chmod u+s,g-r,o= o
stat -c '%a %A' o
chown 12:34 o
stat -c %u:%g o
touch -d 2001-02-03T04:05:06 o
stat -c %Y o
touch -h -d @5 s
stat -c %Y s
mktemp -u XXXX | wc -c
realpath -m a/../b
test o -ot lines && echo older
cp --sparse=always sparse sp2
cmp sparse sp2 && echo equal
cp --reflink=auto lines l2
cmp lines l2 && echo equal
ls -la nothere 2>&1
cp -r t t2
diff -r t t2 && echo same
echo diff >t2/a/x/f10
diff -r t t2
tee t1 t3 <<<both
cat t1 t3
df . >/dev/null
echo $?
sync
nproc >/dev/null
id -u
whoami
groups
uname -s -m
env -i A=1 env
tty
nice -n 5 nice
nohup true 2>&1
timeout 1 true
printenv HOME
pathchk 'a b'
arch
hostid >/dev/null
who
logname 2>&1 | head -c 0
ps -o comm= -p $$
ps -ef >/dev/null
echo $?
pgrep -x bash >/dev/null
echo $?
pkill -0 nosuch
echo $?
free >/dev/null
echo $?
uptime >/dev/null
echo $?
vmstat >/dev/null
echo $?
top -bn1 >/dev/null
echo $?
sysctl -n kernel.ostype
w >/dev/null
echo $?
pmap $$ >/dev/null
echo $?
