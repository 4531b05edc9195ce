#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `casemate snapshot inspect|verify|compact` from the command line. Needs no VM: the files
# come from tests/snapshot/snapshot_gen.c, the program SNAPSHOT_GEN.
. "$(dirname "$0")/../e2e/lib.sh"

D=$T/files
mkdir "$D"
"$SNAPSHOT_GEN" chain "$D/a" 8 1 4 && "$SNAPSHOT_GEN" chain "$D/b" 8 9 2 || exit 1
chain=("$D"/a.{0,1,2,3})

# snapshot ARG...: `casemate snapshot ARG...`, as run() of lib.sh.
snapshot() {
	status=0
	timeout -s KILL $((LIMIT * SCALE)) "$CASEMATE" snapshot "$@" \
		>"$T/out" 2>"$T/err" </dev/null || status=$?
}

# byte FILE AT: changes one byte.
byte() {
	local old
	old=$(od -An -tu1 -j "$2" -N 1 "$1" | tr -d ' ')
	printf "\\$(printf %o $((old ^ 1)))" |
		dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

want_only() {
	local have
	have=$(cd "$D" && ls -A | xargs)
	[ "$have" = "$1" ] || fail "the folder has $have, want $1"
}
files='a.0 a.1 a.2 a.3 a.full b.0 b.1 b.full'

test_inspect() {
	local line
	snapshot inspect "$D/a.1"
	want_status 0
	want_err ''
	for line in '^kind = incremental$' '^parent = [0-9a-f]{64}$' '^page_count = 2048$' \
		'^section\.vcpu = type 3, version 1,' '^machine\.memory_size = 8388608$' \
		'^vcpu\.regs\.rip = 0x[0-9a-f]+$' \
		'^memory\.0x[0-9a-f]+-0x[0-9a-f]+ = [0-9]+ pages$'; do
		grep -qE "$line" "$T/out" || fail "no line $line"
	done
	! grep -qvE '^[a-z0-9_.x-]+(\[[0-9]+\])?[a-z0-9_.]* = ' "$T/out" ||
		fail "a line is no \"name = value\": $(grep -vE ' = ' "$T/out" | head -1)"
	! LC_ALL=C grep -q '[^ -~]' "$T/out" || fail "the output is not plain text"
}

test_inspect_json() {
	snapshot inspect "$D/a.0" --json
	want_status 0
	want_err ''
	python3 - "$T/out" <<-'END' || fail "the JSON is not as it should be"
	import json, sys
	s = json.load(open(sys.argv[1]))
	assert s['kind'] == 'full' and s['page_count'] == 2048
	assert [x['name'] for x in s['sections']] == ['machine', 'cpuid', 'vcpu', 'console',
	                                               'held', 'digests']
	assert s['machine']['memory_size'] == 8 << 20
	assert len(s['vcpu']['lapic']) == 2048 and s['vcpu']['regs.rip'].startswith('0x')
	assert sum(x['pages'] for x in s['memory']) == s['pages_held']
	END
}

# What the document says is enough to read the files, and is what is printed of them.
test_a_second_reader() {
	local f
	gzip -dc "$here/golden/v1.gz" >"$T/v1"
	gzip -dc "$here/golden/v2.gz" >"$T/v2"
	for f in "$D/a.0" "$D/a.1" "$D/b.1" "$T/v1" "$T/v2"; do
		snapshot inspect --json "$f"
		want_status 0
		"$here/reader.py" "$here/../../docs/SNAPSHOT-FORMAT.md" "$f" <"$T/out" \
			>"$T/said" 2>"$T/err" || fail "$(tail -1 "$T/err")"
	done
}

test_inspect_to_a_full_disk() {
	status=0
	"$CASEMATE" snapshot inspect "$D/a.0" >/dev/full 2>"$T/err" || status=$?
	want_refusal 'standard output'
}

test_verify() {
	snapshot verify "${chain[@]}"
	want_status 0
	want_err ''
	[ "$(grep -c ': good: ' "$T/out")" = 4 ] || fail "not four good files"
	snapshot verify "$D/a.2"
	want_status 0
}

test_verify_wrong_chains() {
	snapshot verify "$D/a.0" "$D/a.2"
	want_refusal 'a\.2: .*continues'
	snapshot verify "$D/a.1" "$D/a.0"
	want_refusal 'a\.1: .*incremental.*parent'
	snapshot verify "$D/a.0" "$D/b.1"
	want_refusal 'b\.1: .*continues'
	snapshot verify "$D/a.0" "$D/b.0"
	want_refusal 'b\.0: .*full snapshot'
}

test_verify_damage() {
	local at
	for at in 100 4500 2097152 $((2097152 + 8388607)); do
		cp "$D/a.0" "$T/bad"
		byte "$T/bad" $at
		snapshot verify "$T/bad"
		want_refusal 'bad: .*(damaged|nothing is held)'
	done
	rm "$T/bad"
}

test_no_snapshots() {
	local f
	: >"$T/empty"
	head -c 10000 /dev/zero >"$T/zeros"
	head -c 2000000 "$D/a.0" >"$T/cut"
	for f in "$T/absent" "$T/empty" "$T/zeros" "$T/cut" "$CASEMATE" /dev/null "$T"; do
		snapshot inspect "$f"
		want_refusal "$(basename "$f"): "
		snapshot compact -o "$T/new" "$f"
		want_refusal "$(basename "$f"): "
		[ ! -e "$T/new" ] || fail "an output is left of $f"
	done
	snapshot verify "$T/zeros"
	want_refusal 'not finished'
	snapshot verify "$T/cut"
	want_refusal 'cut short: it has 2000000 bytes of'
}

test_compact() {
	snapshot compact -o "$D/new" "${chain[@]}"
	want_status 0
	want_err ''
	want_file "$D/a.full" "$D/new"
	[ "$(du -k "$D/new" | cut -f1)" -le $(($(du -k "$D/a.full" | cut -f1) + 64)) ] ||
		fail "holes are not holes any more"
	[ "$(stat -c %a "$D/new")" = 600 ] || fail "others may read what was in memory"
	rm "$D/new"
	want_only "$files"
}

test_compact_over_its_input() {
	cp "$D/a.0" "$D/x"
	snapshot compact --sync -o "$D/x" "$D/x" "${chain[@]:1}"
	want_status 0
	want_file "$D/a.full" "$D/x"
	(cd "$D" && "$CASEMATE" snapshot compact --sync -o x a.0) >"$T/out" 2>"$T/err" ||
		fail "an output in the current folder"
	want_file "$D/a.0" "$D/x"
	rm "$D/x"
	want_only "$files"
}

# Whatever goes wrong, an older output is untouched and nothing is left beside it.
test_compact_fails() {
	echo old >"$D/x"
	cp "$D/a.1" "$D/y"
	byte "$D/y" $((2097152 + $("$CASEMATE" snapshot inspect "$D/y" |
		sed -n 's/^memory\.\(0x[0-9a-f]*\)-.*/\1/p' | head -1)))
	snapshot compact -o "$D/x" "$D/a.0" "$D/y" "$D/a.2"
	want_refusal 'damaged'
	snapshot compact -o "$D/x" "$D/a.0" "$D/a.3"
	want_refusal 'a\.3: .*continues'
	rm "$D/y"
	(ulimit -f 3000 && "$CASEMATE" snapshot compact -o "$D/x" "${chain[@]}") \
		>"$T/out" 2>"$T/err"
	status=$?
	want_refusal 'not allowed here'
	snapshot compact -o "$D/absent/x" "$D/a.0"
	want_refusal 'absent/x: '
	snapshot compact -o "$D" "$D/a.0"
	want_refusal 'not a regular file'
	[ "$(cat "$D/x")" = old ] || fail "the old output is gone"
	rm "$D/x"
	want_only "$files"
}

test_compact_on_a_full_disk() {
	local m=$T/mount
	mkdir "$m"
	mount -t tmpfs -o size=1M none "$m" 2>/dev/null ||
		{ skip "no tmpfs can be mounted here"; return; }
	echo old >"$m/x"
	snapshot compact -o "$m/x" "${chain[@]}"
	want_refusal 'disk is full'
	[ "$(ls -A "$m") $(cat "$m/x")" = 'x old' ] || fail "left: $(ls -A "$m")"
	umount "$m"
}

test_compact_is_stopped() {
	local pid i
	"$SNAPSHOT_GEN" chain "$D/z" 256 3 1
	rm "$D/z.full"
	echo old >"$D/x"
	"$CASEMATE" snapshot compact -o "$D/x" "$D/z.0" >"$T/out" 2>"$T/err" &
	pid=$!
	for i in $(seq 500); do
		# A file without a name, where the filesystem has such.
		! ls "$D"/x.* >/dev/null 2>&1 && ! ls -l /proc/$pid/fd | grep -q deleted || break
		sleep 0.01
	done
	kill $pid 2>/dev/null
	wait $pid
	status=$?
	# Too late, where the program was quicker than this shell.
	want_status 143 0
	[ $status = 0 ] || [ "$(cat "$D/x")" = old ] || fail "the old output is gone"
	rm "$D/x" "$D/z.0"
	want_only "$files"
}

test_usage() {
	snapshot --help
	want_status 0
	grep -q compact "$T/out" || fail "no help"
	snapshot verify --help
	want_status 0
	snapshot
	want_refusal 'inspect, verify or compact'
	snapshot frob
	want_refusal 'frob: there is no such verb'
	snapshot inspect
	want_refusal 'no file'
	snapshot inspect "$D/a.0" "$D/a.1"
	want_refusal 'one file'
	snapshot verify --json "$D/a.0"
	want_refusal 'unknown option'
	snapshot compact "$D/a.0"
	want_refusal 'no -o OUT'
	snapshot compact "$D/a.0" -o
	want_refusal 'lacks its value'
}

run_cases inspect inspect_json a_second_reader inspect_to_a_full_disk verify \
	verify_wrong_chains verify_damage no_snapshots compact compact_over_its_input \
	compact_fails compact_on_a_full_disk compact_is_stopped usage
