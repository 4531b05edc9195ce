#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the small default image from Debian's busybox-static: busybox with a link for every
# applet, and the few files and directories that programs expect.
#
# usage: tools/mkimage-busybox.sh [BUILD_DIR]    writes BUILD_DIR/images/busybox.erofs and,
#                                                if there is none, the link default.erofs
#        tools/mkimage-busybox.sh BUILD_DIR IMAGE PROGRAM...    writes IMAGE, with static
#                                                programs (of tests) in /bin as well
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$top/build}
image=${2:-$build/images/busybox.erofs}
shift $(($# < 2 ? $# : 2))
tool=${CASEMATE_IMAGE:-$build/tools/casemate-image}
busybox=${CASEMATE_BUSYBOX:-/bin/busybox}

fail()
{
	echo "mkimage-busybox: $*" >&2
	exit 1
}

[ -x "$busybox" ] || fail "$busybox is missing: install the package busybox-static"
[ -x "$tool" ] || fail "$tool is missing: build first (ninja -C $build)"
# The name of a dynamic program's loader stands near its beginning.
if head -c 4096 "$busybox" | grep -qa ld-linux; then
	fail "$busybox is not static: install the package busybox-static"
fi

mkdir -p "$build/images"
[ -e "$build/images/default.erofs" ] || [ "$image" != "$build/images/busybox.erofs" ] ||
	ln -sf busybox.erofs "$build/images/default.erofs"
if [ $# = 0 ] && [ -e "$image" ] && [ "$image" -nt "$busybox" ] && [ "$image" -nt "$0" ] &&
	[ "$image" -nt "$tool" ]; then
	exit 0
fi

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
trap 'exit 1' INT TERM HUP

umask 022
chmod 755 "$root"
for dir in bin dev etc home proc run sbin sys tmp usr/bin usr/sbin var/log var/tmp; do
	mkdir -p "$root/$dir"
done
mkdir -m 700 "$root/root"
chmod 1777 "$root/tmp" "$root/var/tmp"

cp "$busybox" "$root/bin/busybox"
chmod 755 "$root/bin/busybox"
"$busybox" --list-full | while read -r applet; do
	[ "$applet" = bin/busybox ] || [ -e "$root/$applet" ] ||
		ln -s /bin/busybox "$root/$applet"
done

for program; do
	cp "$program" "$root/bin/"
	chmod 755 "$root/bin/$(basename "$program")"
done

cat >"$root/etc/passwd" <<-'EOF'
	root:x:0:0:root:/root:/bin/sh
	nobody:x:65534:65534:nobody:/nonexistent:/bin/false
EOF
cat >"$root/etc/group" <<-'EOF'
	root:x:0:
	tty:x:5:
	nogroup:x:65534:
EOF
printf '127.0.0.1\tlocalhost casemate\n::1\tlocalhost\n' >"$root/etc/hosts"
printf 'casemate\n' >"$root/etc/hostname"
: >"$root/etc/resolv.conf"

# The same input gives the same image: no time of today in it.
find "$root" -exec touch -h -d '2020-01-01 00:00:00 UTC' {} +
"$tool" build -o "$image" --from-dir "$root"
