#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes images of Debian packages and keeps them outside the tree, since they are large and
# take minutes: in $CASEMATE_CACHE, ~/.cache/casemate without it. Prints the path of the image.
#
# usage: tools/mkimage-userland.sh [--force] [userland|python|machine]
#
#   userland   what the suite `userland` and tools/conformance.sh run
#   python     python3 beside Debian's essential packages, for tools/try.sh
#   machine    what tests and benchmarks need of a host, for tools/rehearsal --vtx
#
# A changed package list is another image; newer packages come with --force.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
tool=${CASEMATE_IMAGE:-$top/build/tools/casemate-image}
cache=${CASEMATE_CACHE:-$HOME/.cache/casemate}
force=

fail()
{
	echo "mkimage-userland: $*" >&2
	exit 1
}

if [ "${1:-}" = --force ]; then
	force=1
	shift
fi
kind=${1:-userland}
case $kind in
userland)
	packages=bash,coreutils,findutils,grep,sed,gawk,tar,gzip,xz-utils,procps,git,gcc
	packages=$packages,libc6-dev,make,perl,sqlite3,python3,python3-venv,python3-pip
	packages=$packages,python3-numpy,python3-pytest,libpython3.11-testsuite
	;;
python)
	packages=python3,procps
	;;
machine)
	packages=python3,procps,mount,iproute2,erofs-utils,busybox-static
	packages=$packages,bubblewrap,runc,qemu-system-x86
	;;
*)
	fail "unknown image $kind; there are userland, python and machine"
	;;
esac
[ -x "$tool" ] || fail "$tool is missing: build first"

key=$(printf '%s' "$packages" | sha256sum | cut -c 1-12)
image=$cache/$kind-$key.erofs
mkdir -p "$cache"
# Two callers at once: the second finds what the first has made.
exec 9>"$cache/$kind.lock"
flock 9
if [ -n "$force" ] || [ ! -e "$image" ]; then
	"$tool" build -o "$image" --debian "$packages" >&2 9>&-
fi
ln -sfn "$(basename "$image")" "$cache/$kind.erofs"
echo "$image"
