#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Root images: malformed ones are refused with one line, `image build` makes good ones.
. "$(dirname "$0")/lib.sh"

# The image that the tests run with, wherever the program finds it.
good=${IMAGE:-$(dirname "$CASEMATE")/images/busybox.erofs}

refused() {
	image=(--image "$1")
	run --timeout $((4 + SCALE))s -- true
	image=()
	[ -z "$IMAGE" ] || image=(--image "$IMAGE")
}

test_no_such_image() {
	refused "$T/absent"
	want_refusal 'absent'
}

test_image_is_a_directory() {
	refused /usr
	want_refusal '/usr'
}

test_image_is_a_device() {
	refused /dev/zero
	want_refusal '/dev/zero'
}

test_image_is_empty() {
	: >"$T/empty"
	refused "$T/empty"
	want_refusal 'empty'
}

test_image_is_noise() {
	head -c 1048576 /dev/urandom >"$T/noise"
	refused "$T/noise"
	want_refusal 'noise'
}

test_image_is_zeroes() {
	head -c 1048576 /dev/zero >"$T/zeroes"
	refused "$T/zeroes"
	want_refusal 'zeroes'
}

# Past the superblock the guest finds out; the end must still be one of the stated ones.
want_a_stated_end() {
	want_status 125 126 127
	want_out ''
	[ -s "$T/err" ] || fail "no word about why"
	want_clean
}

test_image_cut_short() {
	head -c 8192 "$good" >"$T/short"
	refused "$T/short"
	want_a_stated_end
}

test_image_with_a_damaged_superblock() {
	local at
	# Root inode, inode count, block count, metadata block: all ones.
	for at in 1038 1040 1060 1064; do
		cp "$good" "$T/damaged"
		printf '\377\377\377\377' |
			dd of="$T/damaged" bs=1 seek=$at conv=notrunc status=none
		refused "$T/damaged"
		case $at in
		1040) want_status 0 125 126 127 ;;	# the inode count is only told, not used
		*) want_a_stated_end ;;
		esac
		[ -z "$reason" ] || { reason="at $at: $reason"; return 0; }
	done
}

test_image_with_noise_in_its_inodes() {
	local i
	for i in 1 2 3 4 5; do
		cp "$good" "$T/damaged"
		head -c 2048 /dev/urandom |
			dd of="$T/damaged" bs=1 seek=$((1152 + 512 * i)) conv=notrunc status=none
		refused "$T/damaged"
		want_status 0 124 125 126 127 132 135 139
		want_clean
	done
}

# Kernels are checked before there is a VM.
kernel_refused() {
	run --kernel "$1" --timeout $((4 + SCALE))s -- true
	want_refusal "kernel|${1##*/}"
}

test_no_such_kernel() {
	kernel_refused "$T/absent"
}

test_kernel_is_not_one() {
	local k
	: >"$T/nothing"
	head -c 300000 /dev/urandom >"$T/noise"
	printf '\177ELF' | cat - "$T/noise" >"$T/elfish"
	for k in "$T/nothing" "$T/noise" "$T/elfish" /bin/true /bin/busybox /usr /dev/zero; do
		kernel_refused "$k"
		[ -z "$reason" ] || { reason="$k: $reason"; return 0; }
	done
}

# One field of the ELF header or the first program headers at a time, all ones or zero.
test_kernel_with_damaged_headers() {
	local real at fill fills=('\0\0\0\0' '\377\377\377\377')
	[ "$SCALE" = 1 ] || fills=('\377\377\377\377')	# each run costs seconds there
	real=$(dirname "$CASEMATE")/casemate-kernel
	for at in 16 18 20 24 32 40 52 54 56 64 72 80 96 104 112 120 128; do
		for fill in "${fills[@]}"; do
			cp "$real" "$T/kernel"
			printf "$fill" | dd of="$T/kernel" bs=1 seek=$at conv=notrunc status=none
			cmp -s "$real" "$T/kernel" && continue
			run --kernel "$T/kernel" --timeout $((4 + SCALE))s -- true
			# Some fields do not matter, some matter only to the guest.
			want_status 0 124 125
			[ "$status" != 125 ] || [ -s "$T/err" ] || fail "no reason given"
			want_clean
			[ -z "$reason" ] || { reason="$fill at $at: $reason"; return 0; }
		done
	done
}

build() {
	status=0
	"$CASEMATE" image build "$@" >"$T/out" 2>"$T/err" </dev/null || status=$?
}

# A directory tree with the programs of the good image's busybox.
make_tree() {
	rm -rf "$T/tree"
	mkdir -p "$T/tree/bin" "$T/tree/etc" "$T/tree/tmp"
	cp /bin/busybox "$T/tree/bin/busybox"
	for p in sh cat ls true stat readlink; do
		ln -s busybox "$T/tree/bin/$p"
	done
	echo content >"$T/tree/etc/file"
	chmod 640 "$T/tree/etc/file"
	ln "$T/tree/etc/file" "$T/tree/etc/hard"
}

run_built() {
	image=(--image "$T/built")
	run "$@"
	image=()
	[ -z "$IMAGE" ] || image=(--image "$IMAGE")
}

test_build_from_a_directory() {
	make_tree
	build -o "$T/built" --from-dir "$T/tree"
	want_status 0
	run_built -- sh -c 'cat /etc/file; stat -c %a /etc/file; readlink /bin/sh'
	want_status 0
	want_out "content
640
busybox"
}

test_build_from_a_tar() {
	make_tree
	tar -C "$T/tree" -cf "$T/tree.tar" .
	build -o "$T/built" --from-tar "$T/tree.tar"
	want_status 0
	run_built -- sh -c 'cat /etc/file; stat -c %a /etc/file'
	want_status 0
	want_out "content
640"
}

test_build_refuses_what_is_not_there() {
	rm -f "$T/built"
	build -o "$T/built" --from-dir "$T/absent"
	want_refusal 'absent'
	[ ! -e "$T/built" ] || fail "left an output behind"
	build -o "$T/built" --from-tar "$T/absent"
	want_refusal 'absent'
	build -o "$T/built"
	want_refusal 'from'
	build --from-dir "$T/tree"
	want_refusal '-o'
}

test_build_refuses_a_bad_tar() {
	rm -f "$T/built"
	head -c 100000 /dev/urandom >"$T/bad.tar"
	build -o "$T/built" --from-tar "$T/bad.tar"
	want_refusal 'tar'
	[ ! -e "$T/built" ] || fail "left an output behind"
}

test_build_refuses_a_tar_that_climbs_out() {
	rm -f "$T/built"
	python3 - "$T/climb.tar" <<-'END'
	import io, sys, tarfile
	with tarfile.open(sys.argv[1], 'w') as t:
	    info = tarfile.TarInfo('../climbed')
	    info.size = 2
	    t.addfile(info, io.BytesIO(b'x\n'))
	END
	build -o "$T/built" --from-tar "$T/climb.tar"
	[ ! -e "$T/climbed" ] && [ ! -e "$T/tmp/climbed" ] || fail "wrote outside"
	want_refusal
}

test_build_refuses_a_socket() {
	rm -f "$T/built"
	make_tree
	python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' \
		"$T/tree/etc/sock"
	build -o "$T/built" --from-dir "$T/tree"
	want_refusal 'sock'
	[ ! -e "$T/built" ] || fail "left an output behind"
}

run_cases no_such_image image_is_a_directory image_is_a_device image_is_empty \
	image_is_noise image_is_zeroes image_cut_short image_with_a_damaged_superblock \
	image_with_noise_in_its_inodes no_such_kernel kernel_is_not_one \
	kernel_with_damaged_headers build_from_a_directory \
	build_from_a_tar build_refuses_what_is_not_there build_refuses_a_bad_tar \
	build_refuses_a_tar_that_climbs_out build_refuses_a_socket
