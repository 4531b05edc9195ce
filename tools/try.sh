#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs a task in a VM of its own, installing and building whatever that takes.
#
#   tools/try.sh [RUN-OPTION...] [-- CMD ARG...]
#
# Options before -- go to `casemate run`. The root image has Python beside Debian's essential
# packages; it is made once and kept (tools/mkimage-userland.sh). Where /dev/kvm cannot be used,
# the same happens inside the rehearsal machine (tools/rehearsal): slower, with the same output
# and status.
set -eu
here=$PWD
cd "$(dirname "$(realpath "$0")")/.."
. tools/lib.sh

options=()
while [ $# != 0 ] && [ "$1" != -- ]; do
	options+=("$1")
	shift
done
[ $# = 0 ] || shift
if [ $# = 0 ]; then
	set -- sh -c 'echo "Hello from a VM of its own."
		echo "kernel:  $(uname -s -r -m)"
		echo "memory:  $(grep MemTotal /proc/meminfo)"
		echo "100000 numbers, sorted: the last is $(seq 1 100000 | sort -n | tail -1)"'
fi

tools/deps.sh build image debian || exit 125
build
build_image		# what casemate takes without --image
export CASEMATE_CACHE=${CASEMATE_CACHE:-$HOME/.cache/casemate}
[ -e "$CASEMATE_CACHE/python.erofs" ] ||
	echo "try.sh: making a root image with Python, which takes a minute, once" >&2
image=$(CASEMATE_IMAGE=$PWD/$BUILD/tools/casemate-image tools/mkimage-userland.sh python) ||
	die "could not make the root image (see above)"
task=("$PWD/$BUILD/casemate" run --image "$image" "${options[@]}" -- "$@")
if why=$(kvm_trouble); then
	cd "$here"
	exec "${task[@]}"
fi
echo "try.sh: $why: running in the rehearsal machine (AMD-V in software emulation)" >&2
tools/deps.sh rehearsal || exit 125
exec tools/rehearsal run --share "$CASEMATE_CACHE" -- "${task[@]}"
