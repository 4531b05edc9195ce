#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The file verbs with a real VM: initd's builtins on the guest's kernel.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/kept.sh"

begin() {
	cm run "${image[@]}" --keep "${1:-box}" "${@:2}" -- true
	[ $status = 0 ] || fail "no VM: $(head -c 300 "$T/err")"
}

test_put_and_get() {
	begin
	head -c 3000001 /dev/urandom >"$T/data"
	chmod 751 "$T/data"
	cm cp "$T/data" box:/tmp/file
	want_status 0
	cm exec box -- stat -c '%a %s %u' /tmp/file
	want_out '751 3000001 0'
	cm exec box -- md5sum /tmp/file
	[ "$(cut -c1-32 "$T/out")" = "$(md5sum <"$T/data" | cut -c1-32)" ] ||
		fail "the guest has other bytes"
	cm cp box:/tmp/file "$T/back"
	want_status 0
	want_file "$T/data" "$T/back"
	[ "$(stat -c %a "$T/back")" = 751 ] || fail "the mode is $(stat -c %a "$T/back")"
	cm cat --offset 1000000 --length 5 box:/tmp/file
	cmp -s "$T/out" <(tail -c +1000001 "$T/data" | head -c 5) || fail "a part is wrong"
	# What has no size.
	cm cat box:/proc/self/comm
	want_status 0
	[ -s "$T/out" ] || fail "/proc/self/comm is empty"
	# A file of the image is replaced, in the VM's memory.
	cm exec box -- sh -c 'ls -l /bin/busybox >/tmp/before'
	cm cp - box:/etc/profile
	cm cat box:/etc/profile
	want_out ''
	# One that runs.
	printf '#!/bin/sh\necho script "$@"\n' >"$T/script"
	chmod 755 "$T/script"
	cm cp "$T/script" box:/usr/bin/script
	cm exec box -- script here
	want_out 'script here'
	stop
}

test_refusals() {
	begin
	cm cat box:/tmp/none
	want_status 1
	want_err_line 'No such file or directory'
	cm cp "$T/err" box:/no/such/file
	want_status 1
	cm cp --user 1000 "$T/err" box:/etc/x
	want_status 1
	want_err_line 'Permission denied'
	cm rm box:/tmp
	want_status 1
	want_err_line 'Is a directory'
	cm ls box:/tmp
	want_out ''
	stop
}

test_names() {
	begin
	cm mkdir -p --mode 700 box:/tmp/d/e
	input=$T/err cm cp - "box:/tmp/d/a \"b\"
c"
	want_status 0
	cm mv "box:/tmp/d/a \"b\"
c" box:/tmp/d/plain
	want_status 0
	cm exec box -- ln -s plain /tmp/d/link
	cm ls -r --json box:/tmp
	python3 - "$T/out" <<-'END' || fail "ls: $(head -c 300 "$T/out")"
		import json, sys
		found = {e['name']: e for e in json.load(open(sys.argv[1]))}
		assert sorted(found) == ['d', 'd/e', 'd/link', 'd/plain'], found
		assert found['d/link']['target'] == 'plain'
		assert found['d/e']['mode'] == '0700' and found['d/e']['type'] == 'dir'
	END
	cm chmod 4711 box:/tmp/d/plain
	cm exec box -- stat -c %a /tmp/d/plain
	want_out 4711
	cm rm -r box:/tmp/d
	want_status 0
	cm ls box:/tmp
	want_out ''
	# From one file system to another.
	cm cp "$T/err" box:/tmp/x
	cm mv box:/tmp/x box:/etc/x
	want_status 0
	cm exec box -- ls /etc/x
	want_out /etc/x
	stop
}

test_trees() {
	begin
	mkdir -p "$T/top/a/b" "$T/top/empty"
	for i in 1 2 3 4 5 6 7 8 9 10; do
		head -c $((i * 10000)) /dev/urandom >"$T/top/a/b/file $i"
	done
	ln -s ../a "$T/top/empty/link"
	cm cp -r "$T/top" box:/tmp/top
	want_status 0
	cm cp -r box:/tmp/top "$T/tree"
	want_status 0
	diff -r --no-dereference "$T/top" "$T/tree" >"$T/diff" || fail "$(head -3 "$T/diff")"
	cm exec box -- sh -c 'find /tmp/top | wc -l'
	want_out 15
	stop
	rm -rf "$T/top" "$T/tree"
}

# A client that dies leaves no part of a file; nor does a full file system.
test_nothing_half() {
	local i
	begin
	mkfifo "$T/fifo"
	"$CASEMATE" cp - box:/tmp/half <"$T/fifo" 2>"$T/err" &
	local pid=$!
	exec 9>"$T/fifo"
	head -c 200000 /dev/zero >&9
	for i in $(seq $((LIMIT * SCALE))); do
		cm info --json box
		! grep -q '"put"' "$T/out" || break
		sleep 0.5
	done
	grep -q '"put"' "$T/out" || fail "no put is under way"
	kill -KILL $pid
	wait $pid
	exec 9>&-
	rm -f "$T/fifo"
	for i in $(seq $((LIMIT * SCALE))); do
		cm info --json box
		grep -q '"put"' "$T/out" || break
		sleep 0.5
	done
	cm exec box -- sh -c 'ls -A /tmp | wc -l'
	want_out 0
	begin small --mem 48M
	head -c 30000000 /dev/zero >"$T/big"
	cm cp "$T/big" small:/tmp/big
	want_status 1
	want_err_line 'No space left'
	cm exec small -- sh -c 'ls -A /tmp | wc -l'
	want_out 0
	# Nothing holds the memory.
	head -c 15000000 /dev/zero >"$T/big"
	cm cp "$T/big" small:/tmp/big
	want_status 0
	rm -f "$T/big"
	stop
}

test_watch() {
	local i
	begin
	"$CASEMATE" watch box:/tmp >"$T/events" 2>"$T/err" </dev/null &
	local pid=$!
	for i in $(seq $((LIMIT * SCALE))); do
		grep -q watching "$T/events" && break
		sleep 0.2
	done
	cm exec box -- sh -c 'echo x >/tmp/a; mv /tmp/a /tmp/b; rm /tmp/b'
	for i in $(seq $((LIMIT * SCALE))); do
		grep -q 'deleted b' "$T/events" && break
		sleep 0.2
	done
	kill $pid
	wait $pid
	[ "$(grep -v -e attributes -e modified "$T/events" | tr '\n' ,)" = \
		"watching ,created a,written a,moved-from a,moved-to b,deleted b," ] ||
		fail "the events are $(tr '\n' , <"$T/events")"
	stop
}

# What the events of a tree tell is what is there, whatever went on meanwhile.
test_watch_tree() {
	local i
	begin
	cm exec box -- sh -c 'mkdir -p /tmp/t/old/deep; mkfifo /tmp/t/old/fifo'
	"$CASEMATE" watch -r --json box:/tmp/t >"$T/events" 2>"$T/err" </dev/null &
	local pid=$!
	for i in $(seq $((LIMIT * SCALE))); do
		grep -q watching "$T/events" && break
		sleep 0.2
	done
	cm exec box -- sh -c 'cd /tmp/t; mv old/deep . ; >deep/in; mv deep ../out; >../out/unheard
		mv ../out back; mkdir -p 1/2/3; mv back 1/2/; >"1/2/back/a b"; >last'
	want_status 0
	cm exec box -- sh -c 'cd /tmp/t
		storm() {
			i=0
			while [ $((i += 1)) -lt 25 ]; do
				mkdir -p a$1/b/c b/$1; >a$1/b/c/$i; mv a$1 b/$1 2>/dev/null
				mv b/$1/a$1/b x$1; mv -T x$1 b/y 2>/dev/null; mv b c 2>/dev/null
				[ $((i % 5)) != 0 ] || rm -rf c
			done
		}
		storm 1 2>/dev/null & storm 2 2>/dev/null & storm 3 2>/dev/null & wait; >END'
	want_status 0
	for i in $(seq $((LIMIT * SCALE))); do
		grep -q '"END"' "$T/events" && break
		sleep 0.2
	done
	cm ls -r --json box:/tmp/t
	cp "$T/out" "$T/listing"
	# Its end is that of what it watches.
	cm rm -r box:/tmp/t
	wait $pid || fail "the watch ended with $?: $(head -c 200 "$T/err")"
	tail -1 "$T/events" | grep -q '"gone"' || fail "$(tail -1 "$T/events")"
	python3 - "$T/events" "$T/listing" <<-'END' 2>"$T/diff" || fail "$(tail -1 "$T/diff")"
		import json, sys
		paths, left = {'old', 'old/deep', 'old/fifo'}, {}
		def take_away(path):
		    global paths
		    gone = {p for p in paths if p == path or p.startswith(path + '/')}
		    paths -= gone
		    return [p[len(path):] for p in gone]
		for line in open(sys.argv[1]):
		    e = json.loads(line)
		    what, name = e['event'], e.get('name')
		    assert what not in ('overflow', 'unwatched'), e
		    if what == 'created':
		        paths.add(name)
		    elif what in ('deleted', 'moved-from'):
		        left = {e.get('cookie', 0): take_away(name)}
		    elif what == 'moved-to':
		        take_away(name)
		        paths.add(name)
		        if e.get('dir'):
		            paths |= {name + p for p in left.get(e.get('cookie'), ())}
		    if name == 'last' and what == 'created':
		        want = {'old', 'old/fifo', '1', '1/2', '1/2/3', '1/2/back', '1/2/back/in',
		                '1/2/back/unheard', '1/2/back/a b', 'last'}
		        assert paths == want, sorted(paths ^ want)
		    if name == 'END':
		        break
		want = {e['name'] for e in json.load(open(sys.argv[2]))}
		assert paths == want, ('events and listing differ', sorted(paths ^ want)[:9])
	END
	stop
}

# A put goes on in a VM that is forked, and ends in the source.
test_fork_meanwhile() {
	local child i
	begin
	mkfifo "$T/fifo"
	"$CASEMATE" cp - box:/tmp/file <"$T/fifo" 2>"$T/err" &
	local pid=$!
	exec 9>"$T/fifo"
	head -c 100000 /dev/zero >&9
	for i in $(seq $((LIMIT * SCALE))); do
		cm info --json box
		! grep -q '"put"' "$T/out" || break
		sleep 0.5
	done
	cm fork 1 box
	want_status 0
	child=$(cat "$T/out")
	head -c 100000 /dev/zero >&9
	exec 9>&-
	wait $pid || fail "the put failed"
	cm exec box -- stat -c %s /tmp/file
	want_out 200000
	cm exec "$child" -- sh -c 'ls -A /tmp | wc -l'
	want_out 0
	# There it served nobody.
	cm info --json "$child"
	! grep -q restored "$T/out" || fail "the put goes on in the copy"
	rm -f "$T/fifo"
	stop
}

run_cases put_and_get refusals names trees nothing_half watch watch_tree fork_meanwhile
