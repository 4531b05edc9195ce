#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Hostile guests end alone, with a reason on the host, and the host's memory stays bounded.
# HOSTILE is the static program built from hostile.c; it reaches the guest by standard input.
. "$(dirname "$0")/lib.sh"

HOSTILE=${HOSTILE:-$here/../../build/tests/hostile}
MEM=64			# MiB of the guest
OVERHEAD=24		# MiB the VMM may use beyond it, its own program text included
SEED=$RANDOM$RANDOM	# printed with a failure
ATTACK=$((4 + SCALE))	# seconds for one attack, boot included

# Notes in $peak the VMM's largest resident size, kB, while process $1 runs.
watch_memory() {
	local v kb
	peak=0
	while kill -0 "$1" 2>/dev/null; do
		for v in $(programs); do
			kb=$(sed -n 's/^VmHWM:[ \t]*\([0-9]*\).*/\1/p' \
				"/proc/$v/status" 2>/dev/null)
			[ "${kb:-0}" -le $peak ] || peak=$kb
		done
		sleep 0.2
	done
}

# attack NAME: runs it for at most $ATTACK seconds.
attack() {
	timeout -s KILL $((LIMIT * SCALE)) "$CASEMATE" run "${image[@]}" --mem ${MEM}M \
		--timeout ${ATTACK}s -- \
		sh -c 'cat >/tmp/h && chmod +x /tmp/h && exec /tmp/h "$@"' sh "$1" $SEED \
		<"$HOSTILE" >"$T/out" 2>"$T/err" &
	watch_memory $!
	status=0
	wait $! 2>/dev/null || status=$?
	[ $status != 0 ] || fail "status 0"
	[ $status != 2 ] || fail "the attack did not start"
	[ $peak -le $(((MEM + OVERHEAD) * 1024)) ] ||
		fail "the VMM grew to $((peak / 1024)) MiB with a guest of $MEM MiB"
	want_clean
	# The host is none the worse for it.
	if [ -z "$reason" ]; then
		"$CASEMATE" run "${image[@]}" -- true </dev/null >/dev/null 2>&1 ||
			fail "the next VM does not run"
	fi
	[ -z "$reason" ] || reason="$1, seed $SEED: $reason"
}

# The VM is at an end: Casemate says 125 and why.
ends_the_vm() {
	attack "$1"
	want_status 125
	[ "$(wc -l <"$T/err")" -ge 1 ] || fail "no reason given"
}

# Anything but success or a hang, as long as it is reported: the task's own end, or the VM's.
ends_somehow() {
	attack "$1"
	case $status in
	9 | 124 | 125 | 129 | 1[3-5]?) ;;
	*) fail "status $status, want 9, 124, 125 or a signal's" ;;
	esac
	[ "$status" != 125 ] || [ -s "$T/err" ] || fail "no reason given"
}

test_panic() {
	ends_the_vm end-panic
	head -1 "$T/err" | grep -q panic || fail "the first line does not say panic"
	! LC_ALL=C grep -q "$(printf '\033')" "$T/err" || fail "control characters got through"
}
test_power_off_by_the_task() { ends_the_vm end-poweroff; }
test_unknown_end() { ends_the_vm end-unknown; }
test_flood_of_the_serial_port() { attack serial-flood; want_status 124; }
test_noise_as_boot_stages() { ends_somehow stage-noise; }
test_noise_on_the_platform_page() { ends_the_vm platform-noise; }
test_odd_sizes_on_the_platform_page() { ends_the_vm platform-odd-sizes; }
test_noise_in_device_registers() { ends_somehow virtio-noise; }
test_flood_of_notifications() { ends_somehow virtio-notify-flood; }
test_rings_at_odd_places() { ends_somehow rings-at-odd-places; }
test_noise_over_memory() { ends_somehow memory-noise; }
test_noise_over_the_kernel() { ends_somehow kernel-noise; }
test_noise_in_page_tables() { ends_somehow page-table-noise; }
test_noise_in_the_interrupt_controller() { ends_somehow lapic-noise; }
test_write_to_the_image() { ends_somehow image-write; }
test_privileged_instruction() { attack privileged; want_status 139; }
test_port_write() { attack port-write; want_status 139; }
test_interrupts_off() { attack interrupts-off; want_status 139; }
test_software_interrupts() { ends_somehow any-interrupt; }
test_system_call_without_a_stack() { ends_somehow stack-nowhere; }
test_noise_as_system_calls() { ends_somehow system-call-noise; }
test_bad_pointers_in_system_calls() { ends_somehow system-call-pointers; }
test_memory_eater() {
	attack eat-memory
	want_status 8 137 139 125
}
test_fork_bomb() { attack fork-bomb; want_status 124 125 137 139; }
test_spin() { attack spin; want_status 124; }
test_flood_of_output() { attack output-flood; want_status 124; }

test_full_tmpfs() {
	run --mem 64M --timeout $((10 * SCALE))s -- \
		sh -c 'head -c 500000000 /dev/zero >/tmp/f; echo "status $?"'
	want_status 0 125 137
	want_clean
}

# Such a task is ended, or stopped; the shell that started it goes on.
test_memory_in_sockets() {
	input=$HOSTILE run --mem 64M --timeout $((20 * SCALE))s -- sh -c '
		cat >/tmp/h && chmod +x /tmp/h; /tmp/h eat-in-sockets
		for i in 1 2 3 4 5; do ls / >/dev/null || exit 3; done; echo alive'
	want_status 0
	want_clean
	grep -q alive "$T/out" || fail "the shell did not go on"
}
test_files_without_end() {
	input=$HOSTILE run --mem 64M --timeout $((20 * SCALE))s -- sh -c '
		cat >/tmp/h && chmod +x /tmp/h; /tmp/h make-files
		find /tmp -name "made-*" -exec rm {} +; touch /tmp/new && echo room'
	want_status 0
	want_clean
	grep -q "No space left" "$T/out" || fail "there was room for all files"
	grep -q room "$T/out" || fail "no room after all were removed"
}

test_shell_fork_bomb() {
	run --mem 64M --timeout ${ATTACK}s -- sh -c 'f() { f | f & }; f; sleep 1000'
	[ "$status" != 0 ] || fail "status 0"
	want_clean
}

run_cases panic power_off_by_the_task unknown_end flood_of_the_serial_port \
	noise_as_boot_stages noise_on_the_platform_page odd_sizes_on_the_platform_page \
	noise_in_device_registers flood_of_notifications rings_at_odd_places \
	noise_over_memory noise_over_the_kernel noise_in_page_tables \
	noise_in_the_interrupt_controller write_to_the_image privileged_instruction \
	port_write interrupts_off software_interrupts system_call_without_a_stack \
	noise_as_system_calls bad_pointers_in_system_calls memory_eater fork_bomb spin \
	flood_of_output full_tmpfs memory_in_sockets files_without_end shell_fork_bomb
