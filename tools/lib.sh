# SPDX-License-Identifier: Apache-2.0
# Shared by the scripts in tools/: sourced with the project's directory as current directory.

BUILD=${CASEMATE_BUILD:-build}
IMAGE=$BUILD/images/busybox.erofs

die() {
	echo "${0##*/}: $*" >&2
	exit 125
}

# Prints why /dev/kvm cannot be used; succeeds and prints nothing when it can.
kvm_trouble() {
	python3 -c '
import fcntl, os, sys
try:
    kvm = os.open("/dev/kvm", os.O_RDWR | os.O_CLOEXEC)
    fcntl.ioctl(kvm, 0xae01, 0)
except FileNotFoundError:
    sys.exit("/dev/kvm does not exist")
except OSError as e:
    sys.exit("/dev/kvm is unusable (%s)" % e.strerror.lower())
' 2>&1
}

# Runs a command whose output is only of interest when it fails.
quietly() {
	local log status=0
	log=$(mktemp)
	"$@" >"$log" 2>&1 </dev/null || status=$?
	[ $status = 0 ] || grep -v '^\[[0-9]*/[0-9]*\] [CL]' "$log" | tail -60 >&2
	rm -f "$log"
	return $status
}

# build [DIRECTORY [MESON-OPTION...]]
build() {
	local dir=${1:-$BUILD}
	[ $# = 0 ] || shift
	if [ ! -f "$dir/build.ninja" ]; then
		quietly meson setup "$dir" "$@" || die "meson setup failed (see above)"
	fi
	quietly ninja -C "$dir" || die "the build failed (see above)"
}

# The small root image, of Debian's busybox. Its maker does nothing when it is up to date.
build_image() {
	quietly tools/mkimage-busybox.sh "$BUILD" || die "could not make $IMAGE (see above)"
}
