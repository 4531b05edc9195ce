#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fuzzes the guest kernel's system calls in a VM: tests/sysfuzz says how.
#
# usage: tools/sysfuzz.sh [SEED [CALLS [WORKERS]]]    SEED `random`, the default: any
# CASEMATE, SYSFUZZ: the programs (default: those of build/); CASEMATE_TIME_SCALE: factor on
# the time limit; SYSFUZZ_ARGS: more options of `casemate run`, such as --verbose.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
casemate=${CASEMATE:-$top/build/casemate}
program=${SYSFUZZ:-$top/build/tests/sysfuzz}
seed=${1:-random}
calls=${2:-100000}
scale=${CASEMATE_TIME_SCALE:-1}

# No KVM is the one reason not to run.
if [ ! -e /dev/kvm ] && [ -z "${CASEMATE_REQUIRE_KVM:-}" ]; then
	echo "sysfuzz: skipped: there is no /dev/kvm"
	exit 77
fi
[ "$seed" != random ] || seed=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')
echo "sysfuzz: seed $seed, $calls calls"
# shellcheck disable=SC2086,SC2016
exec "$casemate" run --mem 256M --timeout $((scale * (60 + calls / 400)))s \
	${SYSFUZZ_ARGS:-} -- \
	sh -c 'cat >/tmp/s && chmod +x /tmp/s && exec /tmp/s "$@"' sh "$seed" "$calls" \
	"${3:-3}" <"$program"
