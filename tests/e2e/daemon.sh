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
	# Those too that left its group, its session and its parent.
	cm exec --timeout 2s box -- sh -c 'sleep 1000 & setsid sleep 1000 &
		(setsid sh -c "sleep 1000 & exec sleep 1000" &); wait'
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

# A command in a VM of a template: its own, and gone with it whatever ends it, unless it is kept.
test_run_of_a_template() {
	local i number pid
	keep box -- sh -c 'echo prepared >/tmp/file'
	cm snapshot box -o "$T/snap"
	cm kill box
	cm template add work "$T/snap" --target 1
	want_status 0
	cm run --template work -- sh -c 'cat /tmp/file; echo changed >/tmp/file; exit 3'
	want_status 3
	want_out prepared
	cm run --template work --keep box2 -- cat /tmp/file
	want_status 0
	want_out prepared
	cm exec box2 -- echo stays
	want_out stays
	cm kill box2
	for number in INT KILL; do
		env --default-signal=INT "$CASEMATE" run --template work -- \
			sh -c 'echo up; exec sleep 1000' >"$T/out" 2>"$T/err" </dev/null &
		pid=$!
		for i in $(seq $((LIMIT * SCALE * 10))); do
			[ ! -s "$T/out" ] || break
			sleep 0.1
		done
		want_out up
		kill -$number $pid
		status=0
		wait $pid || status=$?
		want_status $([ $number = INT ] && echo 130 || echo 137)
		for i in $(seq $((LIMIT * SCALE))); do
			cm ls
			[ "$(wc -l <"$T/out")" -gt 1 ] || break
			sleep 0.2
		done
		[ "$(wc -l <"$T/out")" -le 1 ] || fail "SIG$number: its VM goes on: $(cat "$T/out")"
	done
	cm run --template none -- true
	want_refusal 'casemate template add makes one'
	stop
	rm -f "$T/snap"
}

# A file that nobody vouches for is verified when it comes, and not again.
test_template_verified_once() {
	keep box -- sh -c 'echo prepared >/tmp/file'
	cm snapshot box -o "$T/snap"
	cp "$T/snap" "$T/copy"
	cp "$T/snap" "$T/bad"
	python3 - "$T/bad" <<-'END' || fail "cannot damage a file"
		import os, sys
		fd = os.open(sys.argv[1], os.O_RDWR)
		at = os.lseek(fd, 2 << 20, os.SEEK_DATA)     # where memory begins
		byte = os.pread(fd, 1, at)[0]
		os.pwrite(fd, bytes([byte ^ 1]), at)
	END
	sleep 3
	cm template add work "$T/copy"
	want_status 0
	cm restore --keep a "$T/copy"
	want_status 0
	cm exec a -- cat /tmp/file
	want_out prepared
	cm metrics
	grep -q '^casemate_snapshots_verified_total 1$' "$T/out" ||
		fail "$(grep verified "$T/out")"
	cm template add bad "$T/bad"
	want_status 125
	want_err_line
	cm exec a -- echo alive
	want_out alive
	stop
	rm -f "$T/snap" "$T/copy" "$T/bad"
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

# The PIDs of the daemon's VMMs: their records are named so.
records() {
	find "$XDG_RUNTIME_DIR" -path '*.state/[0-9]*' -printf '%f\n'
}

# field PID NAME: of /proc/PID/status.
field() {
	sed -n "s/^$2:[[:space:]]*//p" "/proc/$1/status"
}

# Started by root, a real VM works as a user of its own, in an empty root, without a network
# and, where version 2 of control groups is there, in one with limits; forks and restored VMs,
# too.
test_confined() {
	local pid other group limit
	[ "$(id -u)" = 0 ] || { skip "needs root, who may give users to others"; return; }
	keep box -- true
	cm fork 1 box
	want_status 0
	cm exec "$(cat "$T/out")" -- echo forked
	want_out forked
	cm snapshot box -o "$T/snap"
	cm restore --keep old "$T/snap"
	cm exec old -- echo restored
	want_out restored
	[ "$(records | wc -l)" = 3 ] || fail "not three VMs: $(records | xargs)"
	for pid in $(records); do
		field "$pid" Uid | awk '{ exit !($1 >= 1879048192 && $1 == $2 && $2 == $3) }' ||
			fail "its user is $(field "$pid" Uid)"
		[ "$(field "$pid" CapEff)" = 0000000000000000 ] || fail "it has capabilities"
		[ "$(field "$pid" Seccomp)" = 2 ] || fail "it has no filter"
		[ "$(readlink "/proc/$pid/root")" = \
		  "$XDG_RUNTIME_DIR/casemate/casemate.sock.state/root" ] ||
			fail "its root is $(readlink "/proc/$pid/root")"
		[ "$(readlink "/proc/$pid/ns/net")" != "$(readlink /proc/self/ns/net)" ] ||
			fail "it has the host's network"
		grep -q cgroup2 /proc/mounts || continue
		group=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
		grep -qw memory "$group/cgroup.controllers" || continue
		group=$group$(sed -n 's/^0:://p' "/proc/$pid/cgroup")
		# KVM's own threads, which have no command line, are there, too.
		for other in $(cat "$group/cgroup.procs"); do
			[ "$other" = "$pid" ] || [ -z "$(tr -d '\0' <"/proc/$other/cmdline")" ] ||
				fail "$other is in $group, too"
		done
		grep -qx "$pid" "$group/cgroup.procs" || fail "it is not in $group"
		limit=$(cat "$group/memory.max")
		[ "$limit" != max ] && [ "$limit" -lt $((1 << 30)) ] || fail "memory.max is $limit"
		[ "$(cat "$group/pids.max")" = 256 ] || fail "pids.max is not 256"
	done
	[ "$(for pid in $(records); do field "$pid" Uid; done | sort -u | wc -l)" = 2 ] ||
		fail "two families have not two users"
	stop
	rm -f "$T/snap"
}

# kill -9 of the engine: its VMs end, whatever they do, and the next one serves.
test_engine_killed() {
	local i engine='' old
	keep box -- true
	cm exec box -- sh -c 'yes >/dev/null & sleep 0.1'
	old=$(records)
	for i in $(tagged); do
		! grep -qs -e --engine "/proc/$i/cmdline" || engine=$i
	done
	kill -KILL "$engine" || fail "no engine"
	cm ls
	want_status 0
	[ ! -s "$T/out" ] || [ "$(wc -l <"$T/out")" = 1 ] || fail "there are VMs: $(cat "$T/out")"
	[ ! -e "/proc/$old" ] || fail "the VMM goes on"
	keep again -- echo up
	want_out up
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

# What is told of a real VM: that it has memory, worked, and rests.
test_usage() {
	keep box --mem 128M -- sh -c 'head -c 20000000 /dev/zero | tr "\0" x >/tmp/file'
	want_status 0
	cm ls --json
	python3 - "$T/out" <<-'END' || fail "ls --json: $(head -c 400 "$T/out")"
		import json, sys
		vm, = json.load(open(sys.argv[1]))
		assert vm['vm'] == 'box' and vm['mem'] == 128 << 20 and vm['execs'] == 0
		assert 20000000 < vm['private'] <= vm['rss'] < 512 << 20
		assert 0 < vm['cpu'] and 0 < vm['cpu-at'] <= vm['age'] + 1
		assert vm['idle'] < vm['age']
	END
	cm info box --json
	python3 -m json.tool "$T/out" >"$T/tidy" || fail "info --json is no JSON"
	cm top --once
	want_status 0
	grep -qE '^box +ready ' "$T/out" || fail "top does not show it"
	cm doctor --json
	python3 - "$T/out" <<-'END' || fail "doctor --json: $(head -c 400 "$T/out")"
		import json, sys
		checks = {c['check']: c['verdict'] for c in json.load(open(sys.argv[1]))}
		assert checks['kvm'] == checks['io_uring'] == 'ok', checks
		assert checks['daemon'] != 'wrong', checks
	END
	cm kill box
	stop
}

run_cases keep_and_exec streams deadline_with_children interrupt fork snapshot pool \
	run_of_a_template template_verified_once vmm_killed confined engine_killed \
	session_ends usage
