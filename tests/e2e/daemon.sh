#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The daemon with real VMs: kept VMs, their streams and statuses, forks, snapshots, templates
# and pools, and that nothing is left. Each case has a daemon of its own, which the first verb
# starts for the session.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/kept.sh"

test_keep_and_exec() {
	keep box -- sh -c 'echo kept >/tmp/file; echo out; echo err >&2; exit 3'
	want_status 3
	want_out out
	want_err err
	cm exec box -- cat /tmp/file
	want_status 0
	want_out kept
	cm exec --env A=b --workdir /tmp box -- sh -c 'echo $A $PWD'
	want_out 'b /tmp'
	cm exec box -- no-such-program
	want_status 127
	cm exec --timeout 1s box -- sleep 1000
	want_status 124
	cm exec nobody -- true
	want_status 125
	want_err_line
	cm ls
	grep -q '^box  *ready' "$T/out" || fail "ls does not show it"
	cm kill box
	want_status 0
	stop
}

test_streams() {
	keep box -- true
	head -c 700000 /dev/urandom >"$T/data"
	input=$T/data cm exec box -- cat
	want_status 0
	cmp -s "$T/data" "$T/out" || fail "the bytes are not the same"
	cm exec box -- sh -c 'head -c 1000000 /dev/zero | tr "\0" x; echo'
	[ "$(wc -c <"$T/out")" = 1000001 ] || fail "$(wc -c <"$T/out") bytes of 1000001"
	cm exec --limit 1000 box -- sh -c 'yes | head -c 100000'
	[ "$(wc -c <"$T/out")" = 1000 ] || fail "the limit is not kept"
	stop
}

# A deadline ends what the command started, and comes although a pipe is held open.
test_deadline_with_children() {
	keep box -- true
	cm exec --timeout 2s box -- sh -c 'sleep 1000 & sleep 1000 & wait'
	want_status 124
	cm exec box -- sh -c 'ps | grep -c "[s]leep 1000"'
	want_out 0
	stop
}

test_interrupt() {
	keep box -- true
	env --default-signal=INT "$CASEMATE" exec box -- sh -c 'echo up; exec sleep 1000' \
		>"$T/out" 2>"$T/err" </dev/null &
	local pid=$! i
	for i in $(seq $((LIMIT * SCALE * 10))); do
		[ ! -s "$T/out" ] || break
		sleep 0.1
	done
	kill -INT $pid
	status=0
	wait $pid || status=$?
	want_status 130
	stop
}

test_fork() {
	local first second
	keep box -- sh -c 'echo before >/tmp/file'
	cm fork 2 box
	want_status 0
	{ read -r first; read -r second; } <"$T/out"
	cm exec "$first" -- sh -c 'cat /tmp/file; echo changed >/tmp/file'
	want_out before
	cm exec "$second" -- cat /tmp/file
	want_out before
	cm exec box -- cat /tmp/file
	want_out before
	cm exec "$first" -- cat /tmp/file
	want_out changed
	# Children have random numbers of their own.
	cm exec "$first" -- sh -c 'head -c 16 /dev/urandom | md5sum'
	cp "$T/out" "$T/random"
	cm exec "$second" -- sh -c 'head -c 16 /dev/urandom | md5sum'
	! cmp -s "$T/out" "$T/random" || fail "two children have the same random numbers"
	cm kill box
	cm exec "$second" -- echo alone
	want_out alone
	stop
}

test_snapshot() {
	keep box -- sh -c 'echo before >/tmp/file'
	cm snapshot box -o "$T/snap"
	want_status 0
	cm exec box -- sh -c 'echo later >/tmp/file'
	cm restore --keep old "$T/snap"
	want_status 0
	want_out old
	cm exec old -- cat /tmp/file
	want_out before
	cm exec box -- cat /tmp/file
	want_out later
	cm snapshot verify "$T/snap"
	want_status 0
	stop
	rm -f "$T/snap"
}

test_pool() {
	local i
	keep box -- sh -c 'echo prepared >/tmp/file'
	cm snapshot box -o "$T/snap"
	cm kill box
	cm template add work "$T/snap" --target 2
	want_status 0
	for i in $(seq $((LIMIT * SCALE))); do
		cm template list
		[ "$(awk '$1 == "work" { print $4 }' "$T/out")" != 2 ] || break
		sleep 0.5
	done
	[ "$(awk '$1 == "work" { print $4 }' "$T/out")" = 2 ] || fail "the pool is not filled"
	python3 - "$XDG_RUNTIME_DIR/casemate/casemate.sock" "$here/../daemon" >"$T/out" <<-'END' ||
		import sys
		sys.path.insert(0, sys.argv[2])
		import client
		c = client.Client(sys.argv[1])
		names = {c.ask('create template=work')['vm'] for _ in range(4)}
		assert len(names) == 4, names
		for name in names:
		    out = c.run(name, 'cat', '/tmp/file')[0]
		    assert out == b'prepared\n', out
		print(c.ask('template list').items[0]['hits'])
	END
		fail "the leases: $(tail -1 "$T/err")"
	[ "$(cat "$T/out")" -ge 1 ] || fail "no lease was of a ready VM"
	stop
	rm -f "$T/snap"
}

test_vmm_killed() {
	keep box -- true
	# Its record is its PID.
	kill -KILL "$(find "$XDG_RUNTIME_DIR" -name '[0-9]*' -printf %f)" || fail "no VMM"
	sleep 1
	cm exec box -- true
	want_status 125
	stop
}

test_session_ends() {
	keep box -- true
	cm kill box
	local i
	for i in $(seq $((20 * SCALE))); do
		[ -e "$XDG_RUNTIME_DIR/casemate/casemate.sock" ] || break
		sleep 1
	done
	[ ! -e "$XDG_RUNTIME_DIR/casemate/casemate.sock" ] || fail "it serves nobody and goes on"
	rm -rf "$XDG_RUNTIME_DIR/casemate"
	want_clean
}

run_cases keep_and_exec streams deadline_with_children interrupt fork snapshot pool \
	vmm_killed session_ends
