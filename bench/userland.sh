# SPDX-License-Identifier: Apache-2.0
# Runs inside userland.py's two sides: bash -c "$(cat userland.sh)" - RUNS SIZE. Prints
# `NAME MICROSECONDS` for each run of each item, `getppid NANOSECONDS` a call, and in the guest
# `ring0 NAME ENTRIES`, once an item.
set -eu
runs=$1
# full: what the goals speak of; small: what emulation can do.
case $2 in
full)	files=5000 lines=3000 mib=1024 sort=1000000 matrix=1500 loop=300 calls=3000000 ;;
*)	files=200 lines=200 mib=16 sort=20000 matrix=100 loop=20 calls=30000 ;;
esac
cd "$(mktemp -d)"

entries() {
	[ ! -e /proc/casemate ] || sed -n 's/^ring-0 entries //p' /proc/casemate
}

# item NAME COMMAND...: once to warm up, then RUNS times.
item() {
	local name=$1 i began before=0
	shift
	"$@" >/dev/null
	before=$(entries)
	"$@" >/dev/null
	[ -z "$before" ] || echo "ring0 $name $(($(entries) - before))"
	for ((i = 0; i < runs; i++)); do
		began=${EPOCHREALTIME/./}
		"$@" >/dev/null
		echo "$name $((${EPOCHREALTIME/./} - began))"
	done
}

cat >getppid.c <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	long n = atol(argv[1]);
	struct timespec a, b;

	clock_gettime(CLOCK_MONOTONIC, &a);
	for (long i = 0; i < n; i++)
		getppid();
	clock_gettime(CLOCK_MONOTONIC, &b);
	printf("getppid %.1f\n", ((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec)) / n);
	return 0;
}
C
gcc -O2 -o getppid getppid.c
for ((i = 0; i <= runs; i++)); do
	[ $i = 0 ] && ./getppid "$calls" >/dev/null || ./getppid "$calls"
done
item python-pass python3 -c pass
item bash-loop bash -c "for i in \$(seq $loop); do /bin/true; done"
mkdir tree
(
	cd tree
	for ((i = 0; i < files; i++)); do
		[ $((i % 100)) != 0 ] || mkdir "d$((i / 100))"
		echo "$i" >"d$((i / 100))/f$i"
	done
	git init -q .
	git add .
	git -c user.name=x -c user.email=x@x commit -qm x
)
item git-status git -C tree status
for ((i = 0; i < lines / 10; i++)); do
	echo "int f$i(int *a, int n) {"
	echo "	int s = 0;"
	for j in 1 2 3 4 5 6; do
		echo "	for (int i = 0; i < n; i += $j) s += a[i] * $((i + j)) ^ s >> $j;"
	done
	echo "	return s;"
	echo "}"
done >big.c
item gcc gcc -O2 -c -o big.o big.c
write_read() {
	dd if=/dev/zero of=big bs=1M count=$mib status=none
	dd if=big of=/dev/null bs=1M status=none
	rm big
}
item tmpfs-write-read write_read
awk -v n=$sort 'BEGIN { x = 1; for (i = 0; i < n; i++) {
	x = (x * 1103515245 + 12345) % 2147483648; print x } }' >numbers
item sort sort numbers
item numpy python3 -c "import numpy as n; n.random.seed(1); a = n.random.rand($matrix, $matrix)
for _ in range(3): a @ a"
