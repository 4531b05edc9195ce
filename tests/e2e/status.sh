#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Exit statuses: the task's own, 128+N for signals, 124 for the time limit, 126 and 127 as a
# shell has them.
. "$(dirname "$0")/lib.sh"

test_every_kind_of_status() {
	local s
	for s in 0 1 2 77 124 125 126 127 128 255; do
		run -- sh -c "exit $s"
		want_status $s
		want_out ''
		want_err ''
	done
}

test_killed_by_a_signal() {
	local s
	for s in 9 15 6 11; do
		run -- sh -c "kill -$s \$\$"
		want_status $((128 + s))
	done
}

test_status_of_a_pipeline() {
	run -- sh -c 'true | false | sh -c "exit 5"'
	want_status 5
}

test_no_such_program() {
	run -- /no/such/program
	want_status 127
	want_out ''
	want_err_line '/no/such/program'
}

test_no_such_program_in_path() {
	run -- no-such-program
	want_status 127
	want_err_line 'no-such-program'
}

test_not_executable() {
	run -- /etc/passwd
	[ $status != 127 ] || run -- /proc/version
	want_status 126
	want_out ''
	want_err_line
}

test_a_directory() {
	run -- /bin/..
	want_status 126
	want_err_line
}

test_programs_are_found_in_path() {
	run -- true
	want_status 0
}

test_arguments_arrive_unchanged() {
	printf '<%s>\n' '' 'a b' '*' '$HOME' "it's" 'ü€' '--' '-x' 'two
lines' >"$T/want"
	run -- sh -c 'printf "<%s>\n" "$@"' sh '' 'a b' '*' '$HOME' "it's" 'ü€' '--' '-x' 'two
lines'
	want_status 0
	want_file "$T/want" "$T/out"
}

test_many_arguments() {
	run -- sh -c 'shift 1999; echo $# "$1"' sh $(seq 1 3000)
	want_status 0
	want_out "1001 2000"
}

test_too_many_arguments() {
	run -- true $(seq 1 5000)
	want_refusal
}

test_too_long_an_argument() {
	run -- true "$(head -c 100000 /dev/zero | tr '\0' x)"
	want_refusal
}

test_orphans_do_not_hold_the_exit() {
	run -- sh -c 'sleep 1000 & echo started'
	want_status 0
	want_out started
	want_clean
}

test_timeout() {
	run --timeout $((1 + SCALE))s -- sh -c 'echo before; sleep 1000'
	want_status 124
	want_out before
	want_clean
}

test_timeout_of_a_task_that_ignores_signals() {
	run --timeout $((1 + SCALE))s -- sh -c 'trap "" TERM INT HUP; while :; do sleep 1; done'
	want_status 124
	want_clean
}

test_timeout_not_reached() {
	run --timeout 300s -- sh -c 'exit 4'
	want_status 4
}

run_cases every_kind_of_status killed_by_a_signal status_of_a_pipeline no_such_program \
	no_such_program_in_path not_executable a_directory programs_are_found_in_path \
	arguments_arrive_unchanged many_arguments too_many_arguments too_long_an_argument \
	orphans_do_not_hold_the_exit timeout timeout_of_a_task_that_ignores_signals \
	timeout_not_reached
