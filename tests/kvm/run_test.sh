#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `casemate run` against the guest tests/guests/channel.c, which plays kernel and initd: exit
# statuses, streams, signals, timeouts, and that nothing is left behind. One TAP line a case.
#   run_test.sh CASEMATE GUEST-DIRECTORY
# KVM that cannot be used: 77, or a failure with CASEMATE_REQUIRE_KVM=1.
casemate=$1
guests=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
n=0
failed=0

if ! { [ -c /dev/kvm ] && (exec 9<>/dev/kvm) 2>/dev/null; }; then
	echo "1..0 # SKIP /dev/kvm is missing or unusable"
	[ "$CASEMATE_REQUIRE_KVM" = 1 ] && exit 1
	exit 77
fi

# Only the magic of an EROFS image, and an ELF magic for initd: the guest looks at neither.
head -c 1024 /dev/zero > "$work/image"
printf '\342\341\365\340' >> "$work/image"
head -c 3000 /dev/zero >> "$work/image"
printf '\177ELF' > "$work/initd"
head -c 200 /dev/zero >> "$work/initd"
run=("$casemate" run --kernel "$guests/guest-channel" --image "$work/image"
     --initd "$work/initd" --mem 32M)

check() { # NAME WANTED GOT
	n=$((n + 1))
	if [ "$2" = "$3" ]; then
		echo "ok $n - $1"
	else
		failed=1
		echo "not ok $n - $1"
		printf '# wanted: %s\n# got: %s\n' "$2" "$3"
	fi
}

status() { # COMMAND...
	"$@" > "$work/out" 2> "$work/err"
	echo $?
}

check "exit status 0" 0 "$(status "${run[@]}" -- exit 0)"
check "exit status 3" 3 "$(status "${run[@]}" -- exit 3)"
check "exit status 255" 255 "$(status "${run[@]}" -- exit 255)"
check "arguments" "a|b c||d" "$("${run[@]}" -- echo a 'b c' '' d | paste -sd'|')"
check "both streams: status" 3 "$(status "${run[@]}" -- both)"
check "both streams: stdout" output "$(cat "$work/out")"
check "both streams: stderr" error "$(cat "$work/err")"
check "not found" 127 "$(status "${run[@]}" -- missing)"
check "not found: one line" 1 "$(wc -l < "$work/err")"

SECRET=1 "${run[@]}" --env A=1 --env A=2 --env TERM=x -- env > "$work/env"
path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
check "environment" "A=2|HOME=/root|PATH=$path|TERM=x" "$(sort "$work/env" | paste -sd'|')"

head -c 3000000 /dev/urandom > "$work/data"
"${run[@]}" -- cat < "$work/data" > "$work/copy"
check "stdin to stdout: status" 0 $?
check "stdin to stdout: 3 MB unharmed" "$(sha256sum < "$work/data")" "$(sha256sum < "$work/copy")"
cat "$work/data" | "${run[@]}" -- cat | (sleep 1; cat) > "$work/copy"
check "through pipes, slow reader" "$(sha256sum < "$work/data")" "$(sha256sum < "$work/copy")"
check "empty stdin" 0 "$(status "${run[@]}" -- cat < /dev/null)"
check "closed stdin" 0 "$(status "${run[@]}" -- exit 0 <&-)"
check "output of 8 MiB" 8388608 "$("${run[@]}" -- flood 8192 | wc -c)"
check "reader that goes away" 1 "$("${run[@]}" -- flood 100000 2> /dev/null | head -1 | wc -l)"

check "panic" 125 "$(status "${run[@]}" -- panic)"
check "panic: its text, in one line" \
	"casemate: the VM was lost: the guest kernel panicked: panic: asked for" \
	"$(cat "$work/err")"
check "power off without an exit" 125 "$(status "${run[@]}" -- early)"
check "broken protocol" 125 "$(status "${run[@]}" -- lie)"
check "timeout" 124 "$(status "${run[@]}" --timeout 2s -- wait)"

"${run[@]}" -- wait & pid=$!
sleep 2; kill -TERM $pid; wait $pid
check "SIGTERM reaches the task" 143 $?
# INT is ignored in background jobs of a script; casemate blocks and reads it all the same.
"${run[@]}" -- wait & pid=$!
sleep 2; kill -INT $pid; wait $pid
check "SIGINT reaches the task" 130 $?
"${run[@]}" -- stubborn & pid=$!
sleep 2; kill -INT $pid; sleep 0.2; kill -INT $pid; wait $pid
check "second SIGINT ends the VM" 130 $?
"${run[@]}" -- stubborn & pid=$!
sleep 2; kill -TERM $pid; wait $pid
check "grace after SIGTERM" 143 $?

"${run[@]}" -- stubborn & pid=$!
sleep 2; vmm=$(pgrep -P $pid casemate-vmm); kill -KILL $pid; wait $pid 2> /dev/null; sleep 0.5
check "kill -9 leaves no VMM" gone "$([ -n "$vmm" ] && { [ -d "/proc/$vmm" ] || echo gone; })"

"${run[@]}" -- stubborn 2> "$work/err" & pid=$!
sleep 2; kill -KILL "$(pgrep -P $pid casemate-vmm)"; wait $pid
check "a VMM that dies" 125 $?

"${run[@]}" --verbose -- exit 4 > "$work/out" 2> "$work/err"
check "verbose: status" 4 $?
check "verbose: boot stages" 1 "$(grep -c 'boot, milliseconds' "$work/err")"
check "verbose: the report" 1 "$(grep -c 'the report' "$work/err")"
check "verbose: memory" 1 "$(grep -c 'memory beyond guest RAM' "$work/err")"
grep 'memory beyond' "$work/err" | sed 's/^/# /'

for bad in "--mem 0" "--mem 3" "--mem x" "--mem 1000000G" "--mem -1M" "--timeout 0" \
	   "--timeout x" "--env X" "--bogus" "--image /nonexistent" "--image /etc/passwd" \
	   "--image /tmp" "--kernel /nonexistent" "--kernel /etc/passwd" "--initd /etc/passwd"; do
	# shellcheck disable=SC2086
	check "$bad" 125 "$(status "${run[@]}" $bad -- exit 0)"
	check "$bad: one line" 1 "$(wc -l < "$work/err")"
done
check "no command" 125 "$(status "${run[@]}")"
check "nothing is left" "" "$(pgrep casemate-vmm)"
echo "1..$n"
exit $failed
