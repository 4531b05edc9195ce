#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing of Debian's packages, and says nothing when nothing is.
#
#   tools/deps.sh [GROUP...]	build (default), image, debian, rehearsal, vtx, test,
#					bench
set -eu

build='gcc libc6-dev meson ninja-build pkg-config python3 musl-tools
	liburing-dev libncurses-dev libseccomp-dev libfdt-dev libssl-dev libcunit1-dev'
image='busybox-static erofs-utils'
debian='mmdebstrap erofs-utils'
rehearsal='qemu-system-x86 qemu-system-common busybox-static gcc libc6-dev python3'
vtx='bochs bochsbios vgabios isolinux syslinux-common xorriso busybox-static'
test='clang-format clang bubblewrap systemd'
bench='qemu-system-x86 runc bubblewrap busybox-static'

wanted=
for group in "${@:-build}"; do
	case $group in
	build) wanted="$wanted $build" ;;
	image) wanted="$wanted $image" ;;
	debian) wanted="$wanted $debian" ;;
	rehearsal) wanted="$wanted $rehearsal" ;;
	vtx) wanted="$wanted $vtx" ;;
	test) wanted="$wanted $test" ;;
	bench) wanted="$wanted $bench" ;;
	*) echo "deps.sh: no group \"$group\"" >&2; exit 2 ;;
	esac
done

if ! command -v dpkg-query >/dev/null; then
	echo "deps.sh: this is not Debian; install by hand:" $wanted >&2
	exit 1
fi
have=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $wanted 2>/dev/null |
	sed -n 's/^installed //p') || true
missing=
for p in $wanted; do
	case "
$have
$missing
" in
	*"
$p
"*) ;;
	*) missing="$missing
$p" ;;
	esac
done
[ -n "$missing" ] || exit 0

set -- $missing
root=
if [ "$(id -u)" != 0 ]; then
	if ! command -v sudo >/dev/null; then
		echo "deps.sh: as root, install: $*" >&2
		exit 1
	fi
	root=sudo
	[ -t 0 ] || root='sudo -n'
fi
echo "deps.sh: installing $*" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
	$root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=600 \
		-o APT::Install-Recommends=false "$@" >>"$log" 2>&1 </dev/null
}
# The lists may be old or absent: refresh them only when they do not suffice.
if ! apt install "$@" && ! { apt update && apt install "$@"; }; then
	tail -5 "$log" >&2
	echo "deps.sh: could not install $* (the end of apt-get's messages is above)" >&2
	exit 1
fi
