#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Whatever ends a run, nothing is left running, mounted or on disk.
. "$(dirname "$0")/lib.sh"

# Starts a task in the background and waits for its first line; $pid is casemate's.
# A shell's background jobs ignore SIGINT, hence env.
start() {
	: >"$T/out"
	env --default-signal=INT,QUIT "$CASEMATE" run "${image[@]}" -- "$@" \
		>"$T/out" 2>"$T/err" <"${input:-/dev/null}" &
	pid=$!
	local i
	for i in $(seq $((LIMIT * SCALE * 10))); do
		[ ! -s "$T/out" ] || return 0
		kill -0 $pid 2>/dev/null || break
		sleep 0.1
	done
	fail "the task did not start"
}

# Waits for casemate, but not for ever.
finish() {
	local i
	for i in $(seq $((LIMIT * SCALE * 10))); do
		kill -0 $pid 2>/dev/null || break
		sleep 0.1
	done
	if kill -0 $pid 2>/dev/null; then
		fail "did not end"
		kill -9 $pid
	fi
	status=0
	wait $pid 2>/dev/null || status=$?
}

test_normal_end() {
	run -- true
	want_clean
}

test_interrupt() {
	start sh -c 'echo up; sleep 1000'
	kill -INT $pid
	finish
	want_status 130
	want_clean
}

test_interrupt_of_a_stubborn_task() {
	start sh -c 'trap "" INT TERM; echo up; while :; do sleep 1; done'
	kill -INT $pid
	sleep 1
	kill -INT $pid
	finish
	[ "$status" != 0 ] || fail "status 0 after an interrupt"
	want_clean
}

test_interrupt_during_boot() {
	local i
	for i in 0 0.01 0.03 0.1; do
		env --default-signal=INT "$CASEMATE" run "${image[@]}" -- sleep 1000 \
			>"$T/out" 2>"$T/err" </dev/null &
		pid=$!
		# Before casemate is what runs there, the signal is still ignored.
		while [[ -e /proc/$pid && $(readlink /proc/$pid/exe) != */casemate ]]; do
			:
		done
		sleep $i
		kill -INT $pid 2>/dev/null || true
		finish
		[ "$status" != 0 ] || fail "status 0 after an interrupt"
		want_clean
	done
}

test_terminate() {
	start sh -c 'echo up; sleep 1000'
	kill -TERM $pid
	finish
	want_status 143
	want_clean
}

test_hangup() {
	start sh -c 'echo up; sleep 1000'
	kill -HUP $pid
	finish
	[ "$status" != 0 ] || fail "status 0 after a hangup"
	want_clean
}

test_kill() {
	local before
	before=$(vmms)
	start sh -c 'echo up; sleep 1000'
	[ "$(vmms)" -gt "$before" ] || fail "no casemate-vmm to be seen"
	kill -KILL $pid
	finish
	want_status 137
	want_clean
	[ "$(vmms)" -le "$before" ] || fail "a casemate-vmm is left"
}

test_kill_of_a_busy_one() {
	local before
	before=$(vmms)
	start yes
	kill -KILL $pid
	finish
	want_clean
	[ "$(vmms)" -le "$before" ] || fail "a casemate-vmm is left"
}

test_kill_of_the_vmm() {
	local vmm
	start sh -c 'echo up; sleep 1000'
	vmm=$(pgrep -P $pid | head -1)
	if [ -z "$vmm" ]; then
		fail "no casemate-vmm below casemate"
	else
		kill -KILL "$vmm"
	fi
	finish
	want_status 125
	want_err_line
	want_clean
}

test_several_at_once() {
	local n pids=()
	for n in 1 2 3 4; do
		"$CASEMATE" run "${image[@]}" -- sh -c "seq 1 3000 | tail -1; echo $n; exit $n" \
			>"$T/out$n" 2>"$T/err$n" </dev/null &
		pids+=($!)
	done
	for n in 1 2 3 4; do
		status=0
		wait ${pids[n - 1]} || status=$?
		want_status $n
		[ "$(xargs <"$T/out$n")" = "3000 $n" ] || fail "run $n: $(xargs <"$T/out$n")"
	done
	want_clean
}

run_cases normal_end interrupt interrupt_of_a_stubborn_task interrupt_during_boot terminate \
	hangup kill kill_of_a_busy_one kill_of_the_vmm several_at_once
