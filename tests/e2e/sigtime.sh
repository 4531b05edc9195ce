#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Signals, timers and polling in the guest. SIGTIME is the static program built from
# sigtime.c; it prints TAP itself and reaches the guest by standard input. The same program is
# run on the host by another test: its checks hold on Linux.
set -u
here=$(dirname "$(realpath "$0")")
CASEMATE=${CASEMATE:-$here/../../build/casemate}
SIGTIME=${SIGTIME:-$here/../../build/tests/unit/kernel-sigtime/sigtime}
SCALE=${CASEMATE_TIME_SCALE:-1}
image=()
[ -z "${CASEMATE_TEST_IMAGE:-}" ] || image=(--image "$CASEMATE_TEST_IMAGE")

"$CASEMATE" run "${image[@]}" --timeout $((60 * SCALE))s -- \
	sh -c 'cat >/tmp/sigtime && chmod +x /tmp/sigtime && exec /tmp/sigtime' <"$SIGTIME"
status=$?
[ $status = 0 ] || [ $status = 1 ] || echo "Bail out! casemate run ended with status $status"
exit $status
