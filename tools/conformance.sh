#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# CPython's own regression suite (Debian's libpython3.11-testsuite, in the userland image), on
# this host and in the guest: which single tests that pass here pass there too?
#
# And busybox's own tests, from Debian's source package (tests/conformance/busybox.sh), with the
# busybox-static of this host on both sides.
#
#   tools/conformance.sh [--redo] [MODULE...]	run what has no result yet, then the table
#   tools/conformance.sh --table [MODULE...]	the table of what has been run, no more
#
# MODULE is a module of CPython's, or "busybox"; without any it is all of them.
#
# The last lines are "Busybox: N of M, P %" and "CPython: N of M, P %": M single tests pass on
# the host, N of them in the guest. A test that the guest skips, loses or never ends counts as
# failed. Above them come the counts by module and the name of each test that is missing from N;
# docs/CONFORMANCE.md says why they are.
#
# A module's log is the state: $BUILD/conformance/{host,guest}/MODULE.log, complete when its
# last line says so, so a broken run goes on where it was. --redo forgets the named modules'
# logs (all without names). The host runs the same image's python in a chroot, as root, in
# mount and PID namespaces of its own: an overlay in memory, nothing stays; test_time may not
# set this host's clock. The guest is one `casemate run` a module. When a module reaches its
# limit, regrtest's watchdog ends it and says where it was: it is run again without that test,
# which is lost.
#
# CASEMATE_CONFORMANCE_TIMEOUT (1200) is a module's limit in seconds,
# CASEMATE_CONFORMANCE_MEM (1500M) the guest's memory.
set -eu
cd "$(dirname "$(realpath "$0")")/.."
. tools/lib.sh

modules=(test_os test_posix test_posixpath test_subprocess test_signal test_threading
	test_thread test_mmap test_select test_epoll test_poll test_fcntl test_io test_file
	test_fileio test_tempfile test_shutil test_glob test_pathlib test_stat
	test_multiprocessing_fork test_multiprocessing_spawn test_concurrent_futures
	test_sqlite3 test_zipfile test_tarfile test_resource test_time test_random test_fork1
	test_wait3 test_wait4 test_faulthandler test_memoryview test_unicode_file busybox)
out=$PWD/$BUILD/conformance
cache=${CASEMATE_CACHE:-$HOME/.cache/casemate}
limit=${CASEMATE_CONFORMANCE_TIMEOUT:-1200}
mem=${CASEMATE_CONFORMANCE_MEM:-1500M}
machine=conformance-$$
complete='conformance: complete'
clean=(env -i HOME=/root TERM=dumb
	PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
reruns=2

redo= table=
while [ $# != 0 ]; do
	case $1 in
	--redo) redo=1 ;;
	--table) table=1 ;;
	-*) sed -n '3,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
	*) break ;;
	esac
	shift
done
[ $# = 0 ] || modules=("$@")

tables() {
	local cpython=()
	for module in "${modules[@]}"; do
		if [ "$module" = busybox ]; then
			python3 tests/conformance/report.py busybox "$out"
		else
			cpython+=("$module")
		fi
	done
	[ "${#cpython[@]}" = 0 ] ||
		python3 tests/conformance/report.py table "$out" "${cpython[@]}"
}

if [ -n "$table" ]; then
	tables
	exit
fi

# host_run COMMAND...: the image's root, chrooted into.
host_run() {
	timeout -k 10 $((limit + 60)) unshare --mount --pid --fork --kill-child bash -c '
		image=$1 at=$2
		shift 2
		mount -t tmpfs tmpfs "$at"
		mkdir "$at"/{image,upper,work,top}
		mount -t erofs -o loop,ro "$image" "$at/image"
		mount -t overlay -o "lowerdir=$at/image,upperdir=$at/upper,workdir=$at/work" \
			overlay "$at/top"
		mount -t proc proc "$at/top/proc"
		mount --rbind /dev "$at/top/dev"
		mount -t sysfs sysfs "$at/top/sys"
		mount -t tmpfs tmpfs "$at/top/tmp"
		exec setpriv --bounding-set -sys_time,-sys_boot,-sys_module \
			chroot "$at/top" "$@"' host-run "$image" "$out/mnt" "${clean[@]}" "$@"
}

guest_run() {
	local run=("$PWD/$BUILD/casemate" run --mem "$mem" --image "$image"
		--timeout "$((limit + 30))s" -- "$@")

	[ -n "$kvm" ] || run=(tools/rehearsal exec --name "$machine"
		--timeout $((limit + 60)) -- "${run[@]}")
	timeout -k 10 $((limit + 120)) "${run[@]}"
}

# busybox_run SIDE: its four parts have the limit each.
busybox_run() {
	local log=$out/$1/busybox.log tests=$cache/busybox-tests.tar part=$limit

	grep -qs "^$complete" "$log" && return 0
	[ -e "$tests" ] || tests/conformance/busybox.sh bundle "$tests" || return 0
	echo "$1: busybox" >&2
	limit=$((4 * part + 60)) "$1_run" "${clean[@]}" bash -c \
		"$(cat tests/conformance/busybox.sh)" busybox.sh run "$part" \
		<"$tests" >"$log" 2>&1 || echo "conformance: exit status $?" >>"$log"
	echo "$complete" >>"$log"
}

# module_run SIDE MODULE: makes SIDE's log of it.
module_run() {
	local log=$out/$1/$2.log lost skip=() status

	grep -qs "^$complete" "$log" && return 0
	echo "$1: $2" >&2
	: >"$log"
	for _ in $(seq $((reruns + 1))); do
		status=0
		"$1_run" python3 -m test -v --timeout "$limit" "${skip[@]}" "$2" \
			</dev/null >>"$log" 2>&1 || status=$?
		echo "conformance: exit status $status" >>"$log"
		lost=$(python3 tests/conformance/report.py lost "$log")
		[ -n "$lost" ] || break
		echo "$1: $2: without $lost, once more" >&2
		skip+=(-i "$lost")
	done
	echo "$complete" >>"$log"
}

[ "$(id -u)" = 0 ] || die "the host's side needs root, to mount the image: run it with sudo"
mkdir -p "$out"/{host,guest,mnt}
if [ -n "$redo" ]; then
	for module in "${modules[@]}"; do
		rm -f "$out"/{host,guest}/"$module.log"
	done
fi
tools/deps.sh build image rehearsal || exit 1
build
image=$(tools/mkimage-userland.sh userland) || die "could not make the userland image"
image=$(realpath "$image")

kvm=1
if why=$(kvm_trouble); then
	:
else
	kvm=
	echo "conformance: $why: the guest runs in the rehearsal machine" >&2
	trap 'tools/rehearsal stop --name $machine 2>/dev/null || true' EXIT
	trap 'exit 130' INT TERM
	tools/rehearsal start --name $machine --mem 4G --share "$(dirname "$image")" \
		</dev/null >&2 || die "the rehearsal machine does not start (see above)"
fi
for module in "${modules[@]}"; do
	for side in host guest; do
		if [ "$module" = busybox ]; then
			busybox_run $side
		else
			module_run $side "$module"
		fi
	done
done
tables
