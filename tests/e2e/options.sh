#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Options: what reaches the task, and what is refused with one line and no VM.
. "$(dirname "$0")/lib.sh"

test_the_host_environment_stays_outside() {
	SECRET_OF_THE_HOST=x run -- env
	want_status 0
	! grep -qE 'SECRET|CASEMATE|TMPDIR|XDG' "$T/out" ||
		fail "leaked: $(grep -E 'SECRET|CASEMATE|TMPDIR|XDG' "$T/out" | head -1)"
}

test_env() {
	run --env A=1 --env 'B=two words' --env C= --env D=x=y -- \
		sh -c 'echo "$A|$B|${C-unset}|$D|${HOME_OF_HOST-unset}"'
	want_status 0
	want_out '1|two words||x=y|unset'
}

test_env_without_a_value() {
	run --env NOVALUE -- true
	want_refusal env
}

test_env_without_a_name() {
	run --env =x -- true
	want_refusal env
}

test_workdir() {
	run --workdir /bin -- pwd
	want_status 0
	want_out /bin
}

test_default_workdir() {
	run -- pwd
	want_status 0
	grep -qE '^/(root)?$' "$T/out" || fail "starts in $(cat "$T/out")"
}

test_no_such_workdir() {
	run --workdir /no/such/dir -- true
	want_status 125 126 127
	want_out ''
	want_err_line '/no/such/dir'
}

test_memory_size_reaches_the_guest() {
	local small large
	run --mem 128M -- sh -c 'sed -n "s/MemTotal: *\([0-9]*\).*/\1/p" /proc/meminfo'
	want_status 0
	small=$(cat "$T/out")
	run --mem 512M -- sh -c 'sed -n "s/MemTotal: *\([0-9]*\).*/\1/p" /proc/meminfo'
	want_status 0
	large=$(cat "$T/out")
	[ "${small:-0}" -gt 90000 ] && [ "$small" -le 131072 ] &&
		[ "${large:-0}" -gt 450000 ] && [ "$large" -le 524288 ] ||
		fail "MemTotal is $small kB with 128M and $large kB with 512M"
}

test_bad_memory_sizes() {
	local m
	for m in 0 0M -1 -256M abc '' 7K 4095 1.5G 256X 256MM 1E 99999999G \
		 99999999999999999999999 18446744073709551615 17592186044416M; do
		run --mem "$m" -- true
		want_refusal 'mem'
		[ -z "$reason" ] || { reason="--mem '$m': $reason"; return 0; }
	done
}

test_memory_beyond_the_host() {
	local kb
	kb=$(sed -n 's/MemTotal: *\([0-9]*\).*/\1/p' /proc/meminfo)
	run --mem $((kb / 1024 / 1024 * 2 + 4))G -- true
	want_refusal 'mem'
}

test_bad_timeouts() {
	local t
	for t in 0 -1s abc '' 10x 1e9s 99999999999999999999s; do
		run --timeout "$t" -- true
		want_refusal 'timeout'
		[ -z "$reason" ] || { reason="--timeout '$t': $reason"; return 0; }
	done
}

test_no_command() {
	run
	want_refusal
	run --
	want_refusal
}

test_unknown_option() {
	run --no-such-option -- true
	want_refusal 'no-such-option'
}

test_option_without_its_value() {
	run --mem
	want_refusal 'mem'
}

test_unknown_verb() {
	status=0
	"$CASEMATE" no-such-verb >"$T/out" 2>"$T/err" </dev/null || status=$?
	want_refusal 'no-such-verb'
}

test_help() {
	status=0
	"$CASEMATE" --help >"$T/out" 2>"$T/err" </dev/null || status=$?
	want_status 0
	want_err ''
	grep -q run "$T/out" || fail "help does not name run"
}

test_verbose_goes_to_standard_error() {
	run --verbose -- echo hi
	want_status 0
	want_out hi
	[ -s "$T/err" ] || fail "--verbose said nothing"
}

# Runs in a mount namespace that the script $1 has prepared; $2 is an empty directory.
run_elsewhere() {
	status=0
	mkdir "$T/dev"
	unshare -m sh -ec "$1"'; shift 2; exec "$@"' sh x "$T/dev" "$CASEMATE" run \
		"${image[@]}" -- true >"$T/out" 2>"$T/err" </dev/null || status=$?
	rmdir "$T/dev"
}

may_mount() {
	[ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null && return
	skip "hiding /dev/kvm needs root"
	return 1
}

test_without_kvm() {
	may_mount || return 0
	run_elsewhere 'mount -t tmpfs dev "$2"
		for d in null zero full urandom; do
			: >"$2/$d"
			mount --bind /dev/$d "$2/$d"
		done
		mount --rbind "$2" /dev'
	want_refusal '/dev/kvm'
}

test_with_a_useless_kvm() {
	may_mount || return 0
	run_elsewhere 'mount --bind /dev/null /dev/kvm'
	want_refusal 'kvm'
}

run_cases the_host_environment_stays_outside env env_without_a_value env_without_a_name \
	workdir default_workdir no_such_workdir memory_size_reaches_the_guest \
	bad_memory_sizes memory_beyond_the_host bad_timeouts no_command unknown_option \
	option_without_its_value unknown_verb help verbose_goes_to_standard_error without_kvm \
	with_a_useless_kvm
