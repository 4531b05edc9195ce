# SPDX-License-Identifier: Apache-2.0
# Shared by the end-to-end tests: sourced by bash scripts that define functions test_NAME and
# end with `run_cases NAME...`. Each case is one TAP line. A case calls `run` and then says
# what it wants; the first unmet wish is its failure.
#
# CASEMATE        the program under test (default build/casemate)
# CASEMATE_TEST_IMAGE   the root image with busybox (default: the program's own default)
# CASEMATE_TIME_SCALE   factor on every time limit

here=$(dirname "$(realpath "$0")")
CASEMATE=${CASEMATE:-$here/../../build/casemate}
SCALE=${CASEMATE_TIME_SCALE:-1}
IMAGE=${CASEMATE_TEST_IMAGE:-}
LIMIT=20		# seconds for one run
if [ ! -x "$CASEMATE" ]; then
	echo "Bail out! $CASEMATE is not there to be tested"
	exit 1
fi
T=$(mktemp -d "${TMPDIR:-/tmp}/casemate-e2e.XXXXXX")
trap 'rm -rf "$T"' EXIT
# Whatever is left behind is found by this: processes carry it in their environment, files
# would lie in the two directories.
export CASEMATE_E2E_TAG=e2e-$$-$RANDOM
mkdir "$T/tmp" "$T/xdg"
export TMPDIR=$T/tmp XDG_RUNTIME_DIR=$T/xdg

image=()
[ -z "$IMAGE" ] || image=(--image "$IMAGE")
status=0
reason=
skipped=

fail() {
	[ -n "$reason" ] || reason=$*
}

skip() {
	skipped=$*
}

# run ARG...: `casemate run ARG...`, its streams in $T/out and $T/err, its status in $status.
# Standard input is the file $input, by default empty.
run() {
	local began=$SECONDS
	status=0
	timeout -s KILL $((LIMIT * SCALE)) "$CASEMATE" run "${image[@]}" "$@" \
		>"$T/out" 2>"$T/err" <"${input:-/dev/null}" || status=$?
	if [ $status = 137 ] && [ $((SECONDS - began)) -ge $((LIMIT * SCALE)) ]; then
		fail "hung: no end after $((LIMIT * SCALE)) s"
	fi
}

want_status() {
	local s
	for s; do
		[ "$status" != "$s" ] || return 0
	done
	fail "status $status, want $*"
}

# want_out TEXT: standard output is exactly TEXT and a newline; '' wants it empty.
want_out() {
	if [ -z "$1" ]; then
		[ ! -s "$T/out" ] || fail "standard output is not empty: $(head -c 80 "$T/out")"
	elif ! printf '%s\n' "$1" | cmp -s - "$T/out"; then
		fail "standard output is \"$(head -c 200 "$T/out")\", want \"$1\""
	fi
}

want_err() {
	if [ -z "$1" ]; then
		[ ! -s "$T/err" ] || fail "standard error is not empty: $(head -c 200 "$T/err")"
	elif ! printf '%s\n' "$1" | cmp -s - "$T/err"; then
		fail "standard error is \"$(head -c 200 "$T/err")\", want \"$1\""
	fi
}

# One line on standard error, which matches the pattern (grep -E, any case).
want_err_line() {
	[ "$(wc -l <"$T/err")" = 1 ] ||
		fail "standard error has $(wc -l <"$T/err") lines, want 1: $(head -c 300 "$T/err")"
	grep -qiE -- "${1:-.}" "$T/err" ||
		fail "standard error says \"$(head -c 200 "$T/err")\", want /$1/"
}

# Casemate's own failure: 125, one line, nothing on standard output.
want_refusal() {
	want_status 125
	want_out ''
	want_err_line "${1:-.}"
}

want_file() {
	cmp -s "$1" "$2" || fail "$(basename "$2") ($(wc -c <"$2") bytes) differs from" \
		"$(basename "$1") ($(wc -c <"$1") bytes)"
}

# Pids of processes that run our programs, whoever started them. One find: this is asked
# often, and processes are dear in the rehearsal machine.
programs() {
	find /proc -maxdepth 2 -path '/proc/[0-9]*/exe' -lname '*/casemate*' 2>/dev/null |
		sed 's,/proc/\([0-9]*\)/exe,\1,'
}

# Those of them that are this test's: they carry the tag, or are children of this shell.
tagged() {
	local p
	for p in $(programs); do
		if grep -qsF "$CASEMATE_E2E_TAG" "/proc/$p/environ" ||
		   grep -qs "^PPid:[[:space:]]*$$\$" "/proc/$p/status"; then
			echo $p
		fi
	done
}

# The number of VMM processes, of any owner: they may have emptied their environment, so they
# are counted before and after.
vmms() {
	find /proc -maxdepth 2 -path '/proc/[0-9]*/exe' -lname '*/casemate-vmm*' 2>/dev/null |
		wc -l
}

# Nothing is left: no process, file or mount. Waits two seconds (scaled) for the first.
want_clean() {
	local i
	for i in $(seq $((20 * SCALE))); do
		[ -n "$(tagged)" ] || break
		sleep 0.1
	done
	[ -z "$(tagged)" ] || fail "left running: $(tagged | xargs ps -o pid=,args= -p |
		head -c 200)"
	[ -z "$(find "$T/tmp" "$T/xdg" -mindepth 1)" ] ||
		fail "left on disk: $(find "$T/tmp" "$T/xdg" -mindepth 1 | head -3 | xargs)"
	! grep -q casemate-vmm /proc/mounts || fail "left mounted: $(grep casemate /proc/mounts)"
}

run_cases() {
	local n=0 name bad=0 label
	echo "1..$#"
	for name; do
		n=$((n + 1))
		reason='' skipped='' status=0
		: >"$T/out"
		: >"$T/err"
		label=${name//_/ }
		"test_$name" || fail "the test script itself failed"
		if [ -n "$reason" ]; then
			bad=1
			echo "not ok $n - $label"
			echo "# $reason" | head -c 1000 | tr '\n' ' '
			echo
			sed -n '1,5s/^/# stderr: /p' "$T/err" | cut -c1-300
		elif [ -n "$skipped" ]; then
			echo "ok $n - $label # SKIP $skipped"
		else
			echo "ok $n - $label"
		fi
	done
	return $bad
}
