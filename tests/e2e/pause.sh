#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Kept VMs that stand still: paused, suspended to the disk by hand or for being idle, and saved
# as increments. Each case has a daemon of its own.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/kept.sh"

# state NAME: what ls says of it.
state() {
	cm ls
	awk -v name="$1" '$1 == name { print $2 }' "$T/out"
}

want_state() {
	local i is
	for i in $(seq $((LIMIT * SCALE))); do
		is=$(state "$1")
		[ "$is" != "$2" ] || return 0
		sleep 0.5
	done
	fail "$1 is $is, want $2"
}

# clocks NAME: its seconds since boot and since 1970, in $up and $now.
clocks() {
	cm exec "$1" -- sh -c 'cut -d. -f1 /proc/uptime; date +%s'
	want_status 0
	{ read -r up; read -r now; } <"$T/out"
}

test_pause() {
	local before began spent
	keep box -- sh -c 'echo 0 >/tmp/n; (while :; do
		n=$(cat /tmp/n); echo $((n + 1)) >/tmp/n; sleep 0.1; done) >/dev/null 2>&1 &'
	want_status 0
	clocks box
	before=$up
	began=$(date +%s)
	cm pause box
	want_status 0
	want_state box paused
	cm exec box -- true
	want_refusal 'paused.*resume it first'
	sleep 10
	cm resume box
	want_status 0
	clocks box
	spent=$(($(date +%s) - began))
	[ "$up" -ge "$before" ] && [ $((up - before)) -le $((spent - 8)) ] ||
		fail "of $spent s, 10 of them paused, $((up - before)) went by"
	[ $(($(date +%s) - now)) -le $((2 * SCALE)) ] && [ "$now" -le "$(date +%s)" ] ||
		fail "the clock says $now, the host's $(date +%s)"
	# The process in it still counts.
	cm exec box -- sh -c 'a=$(cat /tmp/n); sleep 2; [ "$(cat /tmp/n)" -gt "$a" ] && echo on'
	want_out on
	stop
}

# A command stands still, and then goes on where it was.
test_pause_in_a_command() {
	local pid before
	: >"$T/long"
	keep box -- true
	"$CASEMATE" exec box -- sh -c 'n=0; until [ -e /tmp/end ]; do
		echo $((n += 1)); sleep 0.2; done; exit 4' >"$T/long" 2>"$T/err" </dev/null &
	pid=$!
	grows 0
	cm pause box
	want_status 0
	sleep 2			# what was on its way is here
	before=$(wc -l <"$T/long")
	sleep 3
	[ "$(wc -l <"$T/long")" = "$before" ] || fail "it went on: $before, $(wc -l <"$T/long")"
	cm resume box
	grows "$before"
	cm exec box -- touch /tmp/end
	want_status 0
	status=0
	wait $pid || status=$?
	want_status 4
	cmp "$T/long" <(seq "$(wc -l <"$T/long")") || fail 'lines are lost or came twice'
	stop
}

# grows N: the long command says more than N lines.
grows() {
	local i
	for i in $(seq $((LIMIT * SCALE))); do
		[ "$(wc -l <"$T/long")" -le "$1" ] || return 0
		sleep 0.2
	done
	fail "it stands still after $1 lines"
}

# The number of VMMs of this test's daemon; other tests have some at the same time.
own_vmms() {
	local p parent
	for p in $(programs); do
		readlink "/proc/$p/exe" 2>/dev/null | grep -q '/casemate-vmm' || continue
		parent=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$p/status" 2>/dev/null)
		! grep -qsF "$CASEMATE_E2E_TAG" "/proc/${parent:-0}/environ" || echo "$p"
	done | wc -l
}

test_suspend() {
	keep box -- sh -c 'echo kept >/tmp/file; md5sum /bin/busybox >/tmp/sum'
	"$CASEMATE" exec box -- sh -c 'n=0; while [ $n -lt 3000 ]; do
		echo $((n += 1)); done; sleep 2; echo end; exit 5' \
		>"$T/long" 2>"$T/err" </dev/null &
	local pid=$! i
	for i in $(seq $((LIMIT * SCALE))); do
		[ ! -s "$T/long" ] || break
		sleep 0.1
	done
	[ "$(own_vmms)" = 1 ] || fail "VMMs before: $(own_vmms)"
	cm suspend box
	want_status 0
	want_state box suspended
	[ "$(own_vmms)" = 0 ] || fail "its process is there"
	cm fork 1 box
	want_refusal 'suspended.*resume it first'
	# The next command brings it back, with what it had.
	cm exec box -- sh -c 'cat /tmp/file; md5sum -c /tmp/sum'
	want_status 0
	want_out $'kept\n/bin/busybox: OK'
	status=0
	wait $pid || status=$?
	want_status 5
	[ "$(md5sum <"$T/long")" = "$({ seq 3000; echo end; } | md5sum)" ] ||
		fail "$(wc -l <"$T/long") lines of 3001, or others"
	# Again, and from there to nothing.
	cm suspend box
	want_status 0
	cm resume box
	want_status 0
	cm exec box -- cat /tmp/file
	want_out kept
	cm suspend box
	cm kill box
	want_status 0
	stop
}

test_suspend_when_idle() {
	keep box -- sh -c 'echo kept >/tmp/file'
	cm snapshot box -o "$T/snap"
	want_status 0
	cm restore --keep lazy --idle 1s --idle-action suspend "$T/snap"
	want_status 0
	want_state lazy suspended
	cm exec lazy -- cat /tmp/file
	want_status 0
	want_out kept
	want_state lazy suspended
	stop
	rm -f "$T/snap"
}

test_increments() {
	local i
	keep box -- sh -c 'mkdir /tmp/d; yes | head -c 8000000 >/tmp/d/0'
	cm snapshot box -o "$T/c1" --incremental
	want_refusal 'track=yes'
	cm snapshot box -o "$T/c0" --track
	want_status 0
	for i in 1 2; do
		cm exec box -- sh -c "seq $i 3000 >/tmp/d/$i; md5sum /tmp/d/* >/tmp/sums"
		cm snapshot box -o "$T/c$i" --incremental
		want_status 0
	done
	[ "$(du -k "$T/c2" | cut -f1)" -lt "$(du -k "$T/c0" | cut -f1)" ] ||
		fail "an increment is as large as the whole: $(du -k "$T"/c[02] | xargs)"
	cm exec box -- rm -r /tmp/d
	cm restore --keep again "$T/c2"
	want_status 0
	cm exec again -- sh -c 'md5sum -c /tmp/sums >/dev/null && ls /tmp/d | xargs'
	want_out '0 1 2'
	cm snapshot verify "$T"/c[0-2]
	want_status 0
	stop
	rm -f "$T"/c[0-2]
}

run_cases pause pause_in_a_command suspend suspend_when_idle increments
