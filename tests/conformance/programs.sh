#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs PROGRAMS, the static program of programs.c, in the guest, where standard input takes it.
# It prints TAP itself.
set -u
here=$(dirname "$(realpath "$0")")
CASEMATE=${CASEMATE:-$here/../../build/casemate}
PROGRAMS=${PROGRAMS:-$here/../../build/tests/conformance/programs}
SCALE=${CASEMATE_TIME_SCALE:-1}
image=()
[ -z "${CASEMATE_TEST_IMAGE:-}" ] || image=(--image "$CASEMATE_TEST_IMAGE")

"$CASEMATE" run "${image[@]}" --timeout $((60 * SCALE))s -- \
	sh -c 'cat >/tmp/programs && chmod +x /tmp/programs && exec /tmp/programs' <"$PROGRAMS"
status=$?
[ $status = 0 ] || [ $status = 1 ] || echo "Bail out! casemate run ended with status $status"
exit $status
