#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs every test suite, installing and building whatever that takes; the last line is
# "N passed, N failed, N skipped" for all of them.
#
#   tools/test.sh [TEST-NAME...]	all tests, or those named (as meson names them)
#
# The suites kvm and e2e need /dev/kvm. Where it is missing they run in the rehearsal machine,
# with the suite of that name, which always does: one boot for all of them. The suite shadow
# runs in one of its own, always.
# The suite userland runs where its image is cached already (tools/mkimage-userland.sh) and
# /dev/kvm works; CASEMATE_TEST_USERLAND=1 runs it in the rehearsal machine too, which takes
# most of an hour, 0 nowhere. CASEMATE_TEST_ASAN=0 leaves out the second build, with
# sanitizers. CASEMATE_REQUIRE_KVM=1 makes skips of kvm and e2e failures.
set -eu
cd "$(dirname "$(realpath "$0")")/.."
. tools/lib.sh

machine=test-$$
cache=${CASEMATE_CACHE:-$HOME/.cache/casemate}
booting=
tallied=
finish() {
	[ -n "$tallied" ] || echo "0 passed, 1 failed, 0 skipped"	# did not get that far
	if [ -n "$booting" ]; then
		exec >/dev/null
		wait "$booting" || true
		tools/rehearsal stop --name $machine 2>/dev/null || true
		rm -rf "/tmp/casemate-rehearsal-$(id -u)/$machine"
	fi
}
trap finish EXIT
trap 'exit 130' INT TERM

tools/deps.sh build image rehearsal test || exit 1

# The machine boots while the build and the host's tests keep the time from being idle.
mkdir -p "$cache"
machine_options="--mem 6G --share $cache"
tools/rehearsal start --name $machine $machine_options </dev/null >/dev/null &
booting=$!
build
build_image

logs=$BUILD/meson-logs
rm -f "$logs"/{host,kvm,machine,shadow,userland}.json "$BUILD"-asan/meson-logs/asan.json
host=(--suite unit --suite fuzz --suite lint --suite systemd)
export CASEMATE_TEST_IMAGE=$PWD/$IMAGE
echo "== On this host: unit, fuzz, lint, systemd"
meson test -C "$BUILD" --no-rebuild --logbase host --print-errorlogs -t 2 "${host[@]}" "$@" \
	</dev/null || true
if [ "${CASEMATE_TEST_ASAN:-1}" = 1 ]; then
	echo "== On this host, under AddressSanitizer and UBSan: unit, fuzz"
	build "$BUILD-asan" -Db_sanitize=address,undefined -Db_lundef=false
	meson test -C "$BUILD-asan" --no-rebuild --logbase asan --print-errorlogs -t 4 \
		--suite unit --suite fuzz "$@" </dev/null || true
fi
suites=(rehearsal)
if why=$(kvm_trouble); then
	echo "== On this host, with its /dev/kvm: kvm, e2e, systemd-vm"
	meson test -C "$BUILD" --no-rebuild --logbase kvm --print-errorlogs -j 2 \
		--suite kvm --suite e2e --suite systemd-vm "$@" </dev/null || true
else
	echo "== $why: the suites kvm and e2e run in the rehearsal machine"
	suites=(kvm e2e rehearsal)
fi
echo "== In the rehearsal machine (kvm-amd in software emulation): ${suites[*]}"
if wait "$booting"; then
	python3 tests/machine.py --build "$BUILD" --machine $machine "--start=$machine_options" \
		--log "$logs/machine.json" --suites "$(IFS=,; echo "${suites[*]}")" "$@" || true
else
	python3 tests/machine.py --log "$logs/machine.json" --broken
fi
echo "== In the rehearsal machine, KVM without nested paging: shadow"
tools/rehearsal stop --name $machine || true
machine_options+=" --shadow"
tools/rehearsal start --name $machine $machine_options </dev/null >/dev/null || true
python3 tests/machine.py --build "$BUILD" --machine $machine "--start=$machine_options" \
	--log "$logs/shadow.json" --suites shadow "$@" || true
[ -z "$why" ] && userland=1 || userland=0
if [ "${CASEMATE_TEST_USERLAND:-$userland}" = 1 ] && [ -e "$cache/userland.erofs" ]; then
	echo "== Programs of Debian on this host and in the guest: userland"
	[ -z "$why" ] || export CASEMATE_MACHINE=$machine
	meson test -C "$BUILD" --no-rebuild --logbase userland --print-errorlogs \
		--suite userland "$@" </dev/null || true
fi
tallied=1
python3 tests/tally.py "$logs"/{host,kvm,machine,shadow,userland}.json \
	"$BUILD"-asan/meson-logs/asan.json
