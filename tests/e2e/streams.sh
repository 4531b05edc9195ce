#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Standard input, output and error: bytes, in order, apart, complete before the exit.
. "$(dirname "$0")/lib.sh"

test_stdin_end_of_file() {
	run -- sh -c 'cat; echo done'
	want_status 0
	want_out done
}

test_binary_through_cat() {
	head -c 1000000 /dev/urandom >"$T/in"
	input=$T/in run -- cat
	want_status 0
	want_file "$T/in" "$T/out"
}

test_every_byte_both_ways() {
	python3 -c 'import sys; sys.stdout.buffer.write(bytes(range(256)) * 3)' >"$T/in"
	input=$T/in run -- sh -c 'cat >&2'
	want_status 0
	want_out ''
	want_file "$T/in" "$T/err"
}

test_output_without_newline() {
	run -- printf 'no end'
	want_status 0
	[ "$(cat "$T/out"; echo .)" = 'no end.' ] || fail "output changed"
}

test_streams_stay_apart() {
	run -- sh -c 'for i in $(seq 1 2000); do echo $i; echo e$i >&2; done'
	want_status 0
	seq 1 2000 >"$T/want"
	want_file "$T/want" "$T/out"
	seq 1 2000 | sed 's/^/e/' >"$T/want"
	want_file "$T/want" "$T/err"
}

test_all_output_comes_before_the_exit() {
	local i
	seq 1 5000 >"$T/want"
	for i in $(seq $((20 / SCALE + 3))); do
		run -- sh -c 'seq 1 5000; exit 7'
		want_status 7
		want_file "$T/want" "$T/out"
		[ -z "$reason" ] || break
	done
}

test_large_output_to_a_slow_reader() {
	local n
	n=$(timeout $((LIMIT * SCALE)) "$CASEMATE" run "${image[@]}" -- \
		sh -c 'head -c 5000000 /dev/zero' </dev/null | (sleep 2; wc -c))
	[ "$n" = 5000000 ] || fail "got $n bytes of 5000000"
}

test_large_input_to_a_slow_task() {
	head -c 3000000 /dev/zero >"$T/in"
	input=$T/in run -- sh -c 'sleep 1; wc -c'
	want_status 0
	want_out 3000000
}

test_input_that_nobody_reads() {
	head -c 3000000 /dev/zero >"$T/in"
	input=$T/in run -- sh -c 'exit 6'
	want_status 6
}

test_input_that_never_ends() {
	status=0
	timeout -s KILL $((LIMIT * SCALE)) "$CASEMATE" run "${image[@]}" -- head -c 10 \
		>"$T/out" 2>"$T/err" < <(exec yes) || status=$?
	want_status 0
	[ "$(wc -c <"$T/out")" = 10 ] || fail "got $(wc -c <"$T/out") bytes, want 10"
}

test_input_left_open() {
	local hold
	mkfifo "$T/fifo"
	exec {hold}<>"$T/fifo"
	input=$T/fifo run -- sh -c 'echo hi; exit 3'
	exec {hold}>&-
	rm "$T/fifo"
	want_status 3
	want_out hi
}

test_bytes_not_lines() {
	# Half a line must arrive while the task still waits for its answer.
	local got= from to
	mkfifo "$T/to" "$T/from"
	"$CASEMATE" run "${image[@]}" -- \
		sh -c 'printf "name? "; read n; printf "hello %s" "$n"' \
		<"$T/to" >"$T/from" 2>"$T/err" &
	exec {to}>"$T/to" {from}<"$T/from"
	read -r -t $((LIMIT * SCALE)) -N 6 -u $from got || true
	[ "$got" = 'name? ' ] || fail "the prompt did not come: \"$got\""
	echo you >&$to
	read -r -t $((LIMIT * SCALE)) -N 9 -u $from got || true
	[ "$got" = 'hello you' ] || fail "the answer did not come: \"$got\""
	exec {to}>&- {from}<&-
	wait $! || fail "status $?"
	rm "$T/to" "$T/from"
}

test_reader_goes_away() {
	timeout -s KILL $((LIMIT * SCALE)) "$CASEMATE" run "${image[@]}" -- yes \
		</dev/null 2>"$T/err" | head -1 >"$T/out"
	[ "${PIPESTATUS[0]}" != 137 ] || fail "went on without a reader"
	want_out y
	want_clean
}

test_closed_standard_streams() {
	status=0
	"$CASEMATE" run "${image[@]}" -- sh -c 'exit 5' <&- >&- 2>"$T/err" || status=$?
	want_status 5
}

test_stdin_is_a_pipe_in_the_guest() {
	run -- sh -c '[ ! -t 0 ] && [ ! -t 1 ] && echo no terminal'
	want_out 'no terminal'
}

run_cases stdin_end_of_file binary_through_cat every_byte_both_ways output_without_newline \
	streams_stay_apart all_output_comes_before_the_exit \
	large_output_to_a_slow_reader large_input_to_a_slow_task input_that_nobody_reads \
	input_that_never_ends input_left_open bytes_not_lines reader_goes_away \
	closed_standard_streams stdin_is_a_pipe_in_the_guest
