# SPDX-License-Identifier: Apache-2.0
# A tree with links, odd names and modes, through tar, gzip, xz and back.
mkdir -p src/sub/deep 'src/sp ace' $'src/new\nline' src/ünïcödé src/empty
for i in $(seq ${US_TAR:-300}); do echo "file $i" >src/sub/f$i; done
head -c 300000 /dev/zero | tr '\0' 'z' >src/big
printf '\0\1\377' >src/sub/bin; : >src/zero
ln src/big src/hard
ln src/sub/bin src/sub/deep/hard2
ln -s sub/f1 src/soft
ln -s /nowhere src/dangling
ln -s . src/loop
mkfifo src/fifo; mknod src/null c 1 3 2>/dev/null; rm -f src/null
touch 'src/-rf' 'src/*' 'src/back\slash' "src/$(printf 'l%.0s' $(seq 200))"
touch $'src/tab\there' $'src/\x80bad'
chmod 4755 src/sub/f1
chmod 000 src/sub/f2
chmod 1777 src/empty
chmod 2750 src/sub/deep
chown 1:2 src/sub/f3
chmod 500 'src/sp ace'
find src -exec touch -h -d '2020-01-02 03:04:05.123456789' {} +
list() { (cd $1 && find . -printf '%P|%y|%m|%s|%n|%l|%U:%G|%T@\0' |
	sed -z '/|d|/s/|d|\([0-9]*\)|[0-9]*|[0-9]*|/|d|\1|/' |
	LC_ALL=C sort -z | tr '\n\0' '$\n' | cat -v)
}
list src >want; cksum want; wc -l <want
sed 's/[.][0-9]*$/.0000000000/' want >whole	# the old format has whole seconds
tar cf - src | gzip -c | (mkdir out1; cd out1; gzip -dc | tar xpf -)
list out1/src | diff whole -
echo ${PIPESTATUS[@]}
tar czf a.tgz src
tar tzf a.tgz | LC_ALL=C sort | cksum
mkdir out2
tar xzpf a.tgz -C out2
list out2/src | diff whole -
tar cJf a.txz src
xz -t a.txz
echo $?
mkdir out3
tar xJpf a.txz -C out3
list out3/src | diff whole -
tar --format=pax -cf p.tar src
mkdir out4
tar xpf p.tar -C out4
list out4/src | diff want -
tar -cf s.tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner src 2>/dev/null
cksum s.tar
tar --diff -f p.tar; echo $?
truncate -s 100M sparse
echo end >>sparse
tar cSf sp.tar sparse
stat -c %s sp.tar
mkdir out5
tar xSf sp.tar -C out5
cmp sparse out5/sparse
echo $?
test $(stat -c %b out5/sparse) -lt 1000 && echo sparse
cp src/big one
gzip -k one
gzip -l one.gz
zcat one.gz | cmp - src/big
echo $?
gzip -k src/big
echo $?
gzip -9 <want | gunzip | cmp - want; xz -T2 -k want; xz -dc want.xz | cmp - want; echo $?
echo broken >b.gz; gzip -t b.gz; echo $?; tar xf b.gz 2>/dev/null; echo $?
tar rf s.tar want
tar tf s.tar | tail -1
tar --delete -f s.tar want
tar tf s.tar | grep -c want
tar xf p.tar -O src/sub/f7; tar xf p.tar --to-command='cat >/dev/null' src/sub/f8; echo $?
chmod -R u+rwX src out?; rm -rf src out?; ls
