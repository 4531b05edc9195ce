#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Enough of Linux for a shell: what scripts in the wild lean on.
. "$(dirname "$0")/lib.sh"

# sh_says SCRIPT WANT: the script's output is WANT and its status 0.
sh_says() {
	run -- sh -c "$1"
	want_status 0
	want_out "$2"
}

test_pipelines() {
	sh_says 'seq 1 1000 | grep 7 | sort -n | uniq | wc -l | tr -d " "' 271
}

test_long_pipeline() {
	sh_says 'echo x | cat | cat | cat | cat | cat | cat | cat | cat | cat | cat' x
}

test_command_substitution() {
	sh_says 'a=$(echo $(echo inner)); echo "got $a"' 'got inner'
}

test_redirections() {
	sh_says 'cd /tmp; echo a >f; echo b >>f; (echo c; echo d >&2) >>f 2>&1
		cat <f | tr "\n" ,; echo' \
		'a,b,c,d,'
}

test_here_document() {
	sh_says 'cat <<E
one
E' one
}

test_files() {
	sh_says 'cd /tmp && mkdir -p d/e && echo x >d/e/f && mv d/e/f d/g && ln -s g d/l &&
		cat d/l && rm d/g && [ ! -e d/l ] && rm -r d && ls | wc -l | tr -d " "' 'x
0'
}

test_writing_over_the_image() {
	sh_says 'echo new >/etc/fresh && cat /etc/fresh && rm /etc/fresh &&
		ls /etc | grep -c fresh || true' 'new
0'
}

test_background_and_wait() {
	sh_says '(sleep 0.2; exit 3) & wait $!; echo $?' 3
}

test_signal_handlers() {
	sh_says 'trap "echo caught; exit 0" TERM; kill -TERM $$; sleep 5; echo missed' caught
}

test_kill_a_child() {
	sh_says 'sleep 1000 & kill -9 $!; wait $!; echo $?' 137
}

test_child_status_and_pipefail() {
	sh_says 'false; echo $?; sh -c "exit 42"; echo $?' '1
42'
}

test_devices() {
	sh_says 'head -c 4 /dev/zero | od -An -tx1 | tr -d " "; echo x >/dev/null
		head -c 16 /dev/urandom | wc -c | tr -d " "
		echo x >/dev/full 2>/dev/null || echo full' \
		'00000000
16
full'
}

test_random_numbers_differ() {
	local a
	run -- sh -c 'head -c 16 /dev/urandom | od -An -tx1'
	a=$(cat "$T/out")
	run -- sh -c 'head -c 16 /dev/urandom | od -An -tx1'
	[ -n "$a" ] && [ "$a" != "$(cat "$T/out")" ] || fail "two VMs, the same bytes: $a"
}

test_clock() {
	local before after guest
	before=$(date +%s)
	run -- date +%s
	after=$(date +%s)
	guest=$(cat "$T/out")
	[ "${guest:-0}" -ge $((before - 1)) ] && [ "$guest" -le $((after + 1)) ] ||
		fail "the guest says $guest, the host $before to $after"
}

test_sleep_lasts() {
	local before after
	before=$(date +%s%N)
	run -- sleep 1
	after=$(date +%s%N)
	want_status 0
	[ $(((after - before) / 1000000)) -ge 1000 ] || fail "sleep 1 was too short"
}

test_proc() {
	sh_says '[ -r /proc/self/status ] && [ -d /proc/1 ] && grep -c MemTotal /proc/meminfo;
		cat /proc/self/comm' '1
cat'
}

test_many_processes() {
	sh_says 'for i in $(seq 1 200); do (exit 0); done; for i in $(seq 1 50); do sleep 0.1 & done
		wait; echo ok' ok
}

test_preemption() {
	# A busy loop must not keep another process from running.
	run --timeout 60s -- sh -c '(while :; do :; done) & p=$!; sleep 0.2; echo alive; kill $p'
	want_status 0
	want_out alive
}

test_deep_recursion_ends_the_task_only() {
	run --timeout 60s -- sh -c 'sh -c "f() { f; }; f" >/dev/null 2>&1; echo $?'
	want_status 0
	grep -qE '^(139|137|134|2)$' "$T/out" || fail "status of the deep one: $(cat "$T/out")"
}

test_memory_in_use_is_given_back() {
	sh_says 'for i in 1 2 3 4 5 6; do head -c 30000000 /dev/zero >/tmp/f && rm /tmp/f ||
		echo bad; done; echo ok' ok
}

run_cases pipelines long_pipeline command_substitution redirections here_document files \
	writing_over_the_image background_and_wait signal_handlers kill_a_child \
	child_status_and_pipefail devices random_numbers_differ clock sleep_lasts proc \
	many_processes preemption deep_recursion_ends_the_task_only \
	memory_in_use_is_given_back
