#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The suite `userland`: each case of cases/ runs on this host, in a chroot of the userland
# image's files, and in the guest, and must say the same and end the same. Prints TAP.
#
#   tests/userland/run.sh [CASE...]
#
# CASEMATE                   the program under test (default build/casemate)
# CASEMATE_USERLAND_IMAGE    the image (default: what tools/mkimage-userland.sh has made)
# CASEMATE_MACHINE           name of a running rehearsal machine that sees the image: the
#                            guest runs there, needed where there is no usable /dev/kvm
# CASEMATE_USERLAND_SCALE    small or full: the cases' sizes (default small in the machine)
set -u
top=$(dirname "$(dirname "$(dirname "$(realpath "$0")")")")
cd "$top" || exit 1
. tools/lib.sh
casemate=$(realpath "${CASEMATE:-$BUILD/casemate}")
cache=${CASEMATE_CACHE:-$HOME/.cache/casemate}

skip() {
	echo "1..0 # SKIP $*"
	exit 77
}

image=$(realpath -e "${CASEMATE_USERLAND_IMAGE:-$cache/userland.erofs}" 2>/dev/null) ||
	skip "no userland image: tools/mkimage-userland.sh makes it"
[ "$(id -u)" = 0 ] || skip "the host's side needs a chroot, hence root"
for tool in bwrap fsck.erofs; do
	command -v $tool >/dev/null || skip "$tool is missing: tools/deps.sh image test"
done
[ -x "$casemate" ] || { echo "Bail out! $casemate is not there to be tested"; exit 1; }

run=$(printf %q "$casemate")
scale=full factor=4 limit=300 mem=2G
if [ -n "${CASEMATE_MACHINE:-}" ]; then
	run="tools/rehearsal exec --name $CASEMATE_MACHINE -- $run"
	scale=small factor=5 limit=120 mem=1G
elif why=$(kvm_trouble); then
	:
else
	skip "$why, and CASEMATE_MACHINE names no rehearsal machine"
fi

# The image's files, beside it. Several of us: the second finds what the first has made.
root=${image%.erofs}.root
exec 9>"$root.lock"
flock 9
if [ ! -d "$root" ]; then
	rm -rf "$root.new"
	quietly fsck.erofs --extract="$root.new" --preserve "$image" &&
		mv "$root.new" "$root" || { echo "Bail out! $image cannot be extracted"; exit 1; }
fi
exec 9>&-

exec python3 tests/userland/suite.py --root "$root" --image "$image" --casemate "$run" \
	--scale "${CASEMATE_USERLAND_SCALE:-$scale}" --limit $limit --factor $factor \
	--mem $mem "$@"
