#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Templates: a VM is saved to a file, and VMs start from it.
. "$(dirname "$0")/lib.sh"

# from ARG...: as run, but without the image option: the snapshot says which image it was.
from() {
	local saved=("${image[@]}")
	image=()
	run --from "$@"
	image=("${saved[@]}")
}

test_files_stay() {
	run --save "$T/t" -- sh -c 'echo warm >/tmp/state; mkdir /tmp/d; echo done'
	want_status 0
	want_out done
	want_err ''
	[ "$(stat -c %a "$T/t")" = 600 ] || fail "mode of the file: $(stat -c %a "$T/t")"
	from "$T/t" -- sh -c 'cat /tmp/state; ls -d /tmp/d; exit 5'
	want_status 5
	want_out $'warm\n/tmp/d'
	# The template is not changed by what its children do.
	from "$T/t" -- sh -c 'rm /tmp/state; echo gone'
	want_out gone
	from "$T/t" -- cat /tmp/state
	want_out warm
	want_clean
}

# A process that waits for work goes on in each child, with its own state.
test_resident_command() {
	run --save "$T/t" --ready-when READY -- sh -c \
		'n=7; echo READY; while read line; do n=$((n + 1)); echo "$n $line"; done; exit 9'
	want_status 0
	want_out READY
	printf 'a\nb\n' >"$T/in"
	input=$T/in from "$T/t"
	want_status 9
	want_out $'8 a\n9 b'
	input=$T/in from "$T/t"
	want_status 9
	want_out $'8 a\n9 b'
	# A command of ours beside it.
	from "$T/t" -- echo beside
	want_status 0
	want_out beside
	want_clean
}

# What the guest has freed is not in the file, and takes no room there.
test_freed_memory() {
	run --save "$T/t" -- sh -c 'put() { yes $((6 * 7))$1 | head -c $2; }
		put kept 100000 >/tmp/kept; put gone 30000000 >/tmp/gone; rm /tmp/gone'
	want_status 0
	tr '\n' ' ' <"$T/t" | grep -aq '42kept 42kept 42kept' || fail 'the file is not in it'
	if tr '\n' ' ' <"$T/t" | grep -aq '42gone 42gone 42gone'; then
		fail 'the removed file is in it'
	fi
	[ "$(stat -c %b "$T/t")" -lt 40000 ] || fail "blocks: $(stat -c %b "$T/t")"
	from "$T/t" -- sh -c 'wc -c </tmp/kept; yes | head -c 30000000 >/tmp/x; wc -c </tmp/x'
	want_status 0
	want_out $'100000\n30000000'
	want_clean
}

test_time_and_chance() {
	local now past ask='date +%s; cut -d. -f1 /proc/uptime
		cat /proc/sys/kernel/random/boot_id; head -c 16 /dev/urandom | od -An -tx1'
	run --save "$T/t" -- cat /proc/uptime
	past=$(cut -d. -f1 "$T/out")
	sleep 2
	from "$T/t" -- sh -c "$ask"
	want_status 0
	now=$(date +%s)
	cp "$T/out" "$T/first"
	[ $((now - $(sed -n 1p "$T/first"))) -le $((2 * SCALE)) ] ||
		fail "the clock says $(sed -n 1p "$T/first"), the host's $now"
	[ "$(sed -n 2p "$T/first")" -ge "$past" ] &&
		[ "$(sed -n 2p "$T/first")" -le $((past + 5 * SCALE)) ] ||
		fail "uptime went from $past to $(sed -n 2p "$T/first")"
	from "$T/t" -- sh -c "$ask"
	[ "$(sed -n 3,4p "$T/out" | cat - <(sed -n 3,4p "$T/first") | sort -u | wc -l)" = 4 ] ||
		fail "two children have the same random numbers: $(sed -n 3,4p "$T/out")"
}

# A template of a template.
test_again() {
	run --save "$T/one" -- sh -c 'echo 1 >/tmp/n'
	from "$T/one" --save "$T/two" -- sh -c 'echo 2 >>/tmp/n'
	want_status 0
	from "$T/two" -- cat /tmp/n
	want_out $'1\n2'
}

# A chain restores to exactly its newest state, folded or not.
test_chain() {
	local i at=0
	run --save "$T/c0" -- sh -c \
		'mkdir /tmp/d; seq 1 20000 >/tmp/d/0; md5sum /tmp/d/* >/tmp/sums'
	want_status 0
	for i in 1 2 3; do
		from "$T/c$at" --save "$T/c$i" --incremental -- sh -c \
			"md5sum -c /tmp/sums >/dev/null && seq $i 3000 >/tmp/d/$i &&
			md5sum /tmp/d/* >/tmp/sums"
		want_status 0
		at=$i
	done
	"$CASEMATE" snapshot verify "$T"/c[0-3] >"$T/out" 2>"$T/err" || fail "verify failed"
	[ "$(du -k "$T/c3" | cut -f1)" -lt "$(du -k "$T/c0" | cut -f1)" ] ||
		fail "an increment is as large as the whole: $(du -k "$T"/c[03] | xargs)"
	from "$T/c3" -- sh -c 'md5sum -c /tmp/sums >/dev/null && ls /tmp/d | xargs'
	want_out '0 1 2 3'
	"$CASEMATE" snapshot compact -o "$T/folded" "$T"/c[0-3] >"$T/out" || fail "compact failed"
	mkdir "$T/alone"
	mv "$T/folded" "$T/alone/t"
	from "$T/alone/t" -- sh -c 'md5sum -c /tmp/sums >/dev/null && ls /tmp/d | xargs'
	want_out '0 1 2 3'
	# One that is missing is named as such.
	rm "$T/c1"
	from "$T/c3" -- true
	want_refusal 'builds on another one'
	rm -r "$T"/c[023] "$T/alone"
}

test_nothing_saved() {
	rm -f "$T/t"
	run --save "$T/t" -- sh -c 'exit 3'
	want_status 3
	want_err_line 'nothing was saved: the command failed'
	run --save "$T/t" --ready-when NEVER -- echo READY
	want_status 125
	want_err_line 'ended before it said'
	[ ! -e "$T/t" ] || fail "a file was made"
	run --save "$T/none/t" -- true
	want_refusal 'cannot make the snapshot .*No such file'
	want_clean
}

# An old file stays until the new one is whole.
test_replaced_whole() {
	echo old >"$T/t"
	run --save "$T/t" -- false
	want_status 1
	[ "$(cat "$T/t")" = old ] || fail "the old file is gone"
	run --save "$T/t" -- true
	want_status 0
	[ "$(stat -c %s "$T/t")" -gt 4 ] || fail "the old file is still there"
	[ "$(ls "$T" | grep -c '^t\.')" = 0 ] || fail "left beside it: $(ls "$T")"
}

test_damaged() {
	run --save "$T/t" -- true
	want_status 0
	cp "$T/t" "$T/bad"
	printf 'X' | dd of="$T/bad" bs=1 seek=100 conv=notrunc status=none
	from "$T/bad" -- true
	want_refusal 'snapshot .*bad'
	head -c 300000 "$T/t" >"$T/bad"
	from "$T/bad" -- true
	want_refusal 'snapshot .*bad'
	echo nonsense >"$T/bad"
	from "$T/bad" -- true
	want_refusal 'snapshot .*bad'
	from "$T/missing" -- true
	want_refusal 'cannot open the snapshot .*No such file'
	# A byte of memory: in the middle of the first page that is held.
	cp --sparse=always "$T/t" "$T/bad"
	at=$(python3 -c 'import os, sys
f = os.open(sys.argv[1], os.O_RDONLY)
print(os.lseek(f, 4 << 20, os.SEEK_DATA) + 2048)' "$T/bad")
	before=$(dd if="$T/bad" bs=1 skip="$at" count=1 status=none | od -An -tu1)
	printf "\\$(printf %o $(((before + 1) % 256)))" |
		dd of="$T/bad" bs=1 seek="$at" conv=notrunc status=none
	from "$T/bad" -- true
	want_refusal 'snapshot .*bad'
	want_clean
}

# Memory that cannot be read any more is never taken for zeros: the VM ends and says so.
test_cut_short() {
	run --mem 256M --save "$T/t" --ready-when READY -- sh -c \
		'yes | head -c 60000000 >/tmp/f; echo READY; read x; md5sum /tmp/f; md5sum </tmp/f'
	want_status 0
	mkfifo "$T/pipe"
	timeout $((LIMIT * SCALE)) "$CASEMATE" run --from "$T/t" \
		>"$T/out" 2>"$T/err" <"$T/pipe" &
	exec 9>"$T/pipe"
	sleep $SCALE
	truncate -s 4M "$T/t"
	echo go >&9
	status=0
	wait $! || status=$?
	exec 9>&-
	want_refusal 'cut short|died without a word'
	rm "$T/pipe" "$T/t"
	want_clean
}

test_options_together() {
	run --mem 64M --from "$T/x" -- true
	want_refusal '--mem does not go with --from'
	run --ready-when X -- true
	want_refusal 'want --save'
}

run_cases files_stay resident_command time_and_chance again chain nothing_saved replaced_whole \
	damaged cut_short options_together
