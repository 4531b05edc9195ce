#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the suites kvm and e2e in a rehearsal machine with kvm-intel (tools/rehearsal --vtx),
# in about an hour; the last line is "N passed, N failed, N skipped".
#
#   tools/test-vtx.sh [--shadow] [TEST-NAME...]	all tests, or those named (as meson names them)
#
# With --shadow its KVM has neither nested paging nor unrestricted guests.
set -eu
cd "$(dirname "$(realpath "$0")")/.."
. tools/lib.sh

machine=vtx-$$
start=--vtx
if [ "${1:-}" = --shadow ]; then
	start='--vtx --shadow'
	shift
fi
log=$BUILD/meson-logs/vtx.json
tools/deps.sh build image debian vtx test || exit 1
build
build_image
trap 'tools/rehearsal stop --name $machine 2>/dev/null || true
	rm -rf "/tmp/casemate-rehearsal-$(id -u)/$machine"' EXIT
tools/rehearsal start --name $machine $start </dev/null
export CASEMATE_TEST_IMAGE=$PWD/$IMAGE
python3 tests/machine.py --build "$BUILD" --machine $machine "--start=$start" --scale 8 \
	--log "$log" --suites kvm,e2e,rehearsal "$@" || true
python3 tests/tally.py "$log"
