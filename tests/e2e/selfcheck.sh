#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The workload that checks itself (selfcheck.c, SELFCHECK is the static program) in a guest
# that is left alone: it has to pass where nothing happens to it.
. "$(dirname "$(realpath "$0")")/lib.sh"
SELFCHECK=${SELFCHECK:-$here/../../build/tests/selfcheck}
LIMIT=30

test_seconds() {
	input=$SELFCHECK
	run --timeout $((LIMIT * SCALE))s -- sh -c \
		'cat >/tmp/selfcheck && chmod +x /tmp/selfcheck && exec /tmp/selfcheck 5'
	want_status 0
	for n in 1 2 3 4 5; do
		grep -qx "ok $n" "$T/out" || fail "no \"ok $n\": $(tail -1 "$T/out")"
	done
	grep -qxE 'vm [0-9a-f-]{36} [0-9a-f]{32}' "$T/out" || fail "no line about the VM"
	[ "$(tail -1 "$T/out")" = "selfcheck: passed" ] || fail "$(tail -1 "$T/out")"
}

run_cases seconds
