#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Connections into real VMs: connect and forward, with servers in the guest (server.c, SERVER is
# the static program) at Unix sockets; the guest has no others.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/kept.sh"
SERVER=${SERVER:-$here/../../build/tests/server}
LIMIT=60

# begin MODE...: a VM "box" with a server of each mode at /tmp/MODE.
begin() {
	local mode
	cm run "${image[@]}" --keep box -- true
	want_status 0
	input=$SERVER cm exec box -- sh -c 'cat >/tmp/server && chmod +x /tmp/server'
	for mode; do
		cm exec box -- sh -c "/tmp/server $mode /tmp/$mode >/tmp/$mode.log 2>&1 &
			until [ -s /tmp/$mode.log ]; do sleep 0.1; done; cat /tmp/$mode.log"
		want_out up
	done
}

# forward LISTEN TARGET: in the background; its address in $address, its process in $forward.
forward() {
	local i
	: >"$T/address"
	env --default-signal=INT "$CASEMATE" forward box "$@" >"$T/address" 2>"$T/forward-err" \
		</dev/null &
	forward=$!
	for i in $(seq $((LIMIT * SCALE * 10))); do
		[ ! -s "$T/address" ] || break
		sleep 0.1
	done
	read -r address <"$T/address" || fail "no address: $(cat "$T/forward-err")"
}

# host PROGRAM: python3 with a function dial() that connects to $address.
host() {
	{ cat <<-'END'; cat; } >"$T/host.py"
		import socket, sys, threading
		kind, rest = sys.argv[1].split(':', 1)
		def dial():
		    if kind == 'unix':
		        s = socket.socket(socket.AF_UNIX)
		        s.connect(rest)
		    else:
		        s = socket.create_connection(rest.rsplit(':', 1))
		    s.settimeout(float(sys.argv[2]))
		    return s
		def read(s):
		    got = b''
		    while data := s.recv(65536):
		        got += data
		    return got
		def talk(data):
		    with dial() as s:
		        t = threading.Thread(target=lambda: (s.sendall(data),
		                                             s.shutdown(socket.SHUT_WR)))
		        t.start()
		        got = read(s)
		        t.join()
		        return got
	END
	timeout -s KILL $((LIMIT * SCALE)) python3 "$T/host.py" "$address" $((LIMIT * SCALE)) \
		>"$T/out" 2>"$T/err" || fail "on the host: $(tail -1 "$T/err")"
	rm -f "$T/host.py"
}

test_connect() {
	begin echo banner
	head -c 300000 /dev/urandom >"$T/data"
	input=$T/data cm connect box unix:/tmp/echo
	want_status 0
	want_file "$T/data" "$T/out"
	# The guest's way ends first.
	input=$T/data cm connect box unix:/tmp/banner
	want_status 0
	want_out banner
	cm connect box unix:/no/such
	want_status 2
	want_err_line 'cannot connect to unix:/no/such: no such file'
	cm exec box -- sh -c 'chmod 700 /tmp/echo'
	cm connect --user 1000 box unix:/tmp/echo
	want_status 13
	# The guest has no internet sockets.
	cm connect box tcp:80
	want_status 97
	want_err_line 'no internet sockets'
	stop
}

test_forward_unix() {
	begin echo banner
	forward "unix:$TMPDIR/s" unix:/tmp/echo
	[ "$address" = "unix:$TMPDIR/s" ] || fail "it listens at $address"
	[ "$(stat -c %a "$TMPDIR/s")" = 600 ] || fail "the socket's mode: $(stat -c %a "$TMPDIR/s")"
	host <<-'END'
		import os
		data = os.urandom(200000)
		assert talk(data) == data
		done = []
		def one(n):
		    data = bytes([n]) * 20000
		    done.append(talk(data) == data)
		threads = [threading.Thread(target=one, args=(n,)) for n in range(20)]
		for t in threads: t.start()
		for t in threads: t.join()
		assert done == [True] * 20, done
	END
	cm forwards
	grep -q '^1 .*unix:/tmp/echo .* 21 ' "$T/out" || fail "forwards: $(tail -1 "$T/out")"
	kill -INT $forward
	status=0
	wait $forward || status=$?
	want_status 130
	sleep 1
	[ ! -e "$TMPDIR/s" ] || fail "the socket is left"
	cm info box
	! grep -q connect "$T/out" || fail "connections are left"
	stop
}

test_forward_tcp() {
	begin sum flood
	cm forward --detach box tcp:0 unix:/tmp/sum
	want_status 0
	address=$(cut -d' ' -f2 "$T/out")
	host <<-'END'
		data = bytes(range(256)) * 1000
		total = 0
		for b in data:
		    total = (total * 31 + b) % 2**64
		assert talk(data) == b'%d %d\n' % (len(data), total)
	END
	# A reader that leaves, and one that never reads.
	cm forward --detach box tcp:0 unix:/tmp/flood
	address=$(cut -d' ' -f2 "$T/out")
	host <<-'END'
		idle = dial()
		for _ in range(3):
		    with dial() as s:
		        assert len(s.recv(10)) > 0
		with open('/dev/stdout', 'w') as f:
		    f.write('done\n')
	END
	cm exec box -- echo alive
	want_out alive
	cm unforward 2
	want_status 0
	# A server that is not there: a reset, and the reason in the list.
	cm forward --detach box tcp:0 unix:/tmp/none
	address=$(cut -d' ' -f2 "$T/out")
	host <<-'END'
		try:
		    assert not dial().recv(10)
		except ConnectionResetError:
		    pass
	END
	cm forwards
	grep -qi 'no such file' "$T/out" || fail "no reason: $(tail -1 "$T/out")"
	stop
}

test_vm_killed() {
	begin flood
	forward "unix:$TMPDIR/s" unix:/tmp/flood
	host <<-'END'
		import subprocess, os
		s = dial()
		s.recv(10)
		subprocess.run([os.environ['CASEMATE'], 'kill', 'box'], check=True)
		try:
		    read(s)
		except ConnectionResetError:
		    pass
	END
	status=0
	wait $forward || status=$?
	want_status 125
	grep -q 'the forward ended: ' "$T/forward-err" || fail "$(cat "$T/forward-err")"
	[ ! -e "$TMPDIR/s" ] || fail "the socket is left"
	stop
}

# A copy of a VM has none of its source's connections, and those of the source go on.
test_fork() {
	begin echo
	forward "unix:$TMPDIR/s" unix:/tmp/echo
	host <<-'END'
		import subprocess, os, time
		def run(*argv):
		    return subprocess.run([os.environ['CASEMATE'], *argv], check=True,
		                          stdout=subprocess.PIPE).stdout.decode()
		s = dial()
		s.sendall(b'one')
		assert s.recv(3) == b'one'
		child = run('fork', '1', 'box').strip()
		s.sendall(b'two')
		assert s.recv(3) == b'two'
		for _ in range(100):
		    if '(restored)' not in run('info', child):
		        break
		    time.sleep(0.2)
		else:
		    raise SystemExit('a connection of nobody goes on')
		assert '(restored)' not in run('info', child)
		assert run('exec', child, '--', 'echo', 'alive') == 'alive\n'
	END
	kill -INT $forward
	wait $forward || true
	stop
}

export CASEMATE
run_cases connect forward_unix forward_tcp vm_killed fork
