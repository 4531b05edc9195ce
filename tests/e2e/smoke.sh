#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The shortest honest proof: a task runs in a VM and its output and status arrive.
. "$(dirname "$0")/lib.sh"

test_true() {
	run -- /bin/true
	want_status 0
	want_out ''
	want_err ''
	want_clean
}

test_output_and_status() {
	run -- sh -c 'echo out; echo err >&2; exit 3'
	want_status 3
	want_out out
	want_err err
}

test_sort() {
	run -- sh -c 'seq 1 100000 | sort -rn | head -1; exit 3'
	want_status 3
	want_out 100000
}

test_stdin() {
	seq 1 20000 >"$T/in"
	input=$T/in run -- cat
	want_status 0
	want_file "$T/in" "$T/out"
}

run_cases true output_and_status sort stdin
