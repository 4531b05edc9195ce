#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The slow lint lane: cppcheck over all C sources. Not part of tools/test.sh; findings are
# printed and make the status 1.
set -eu
cd "$(dirname "$(realpath "$0")")/.."
. tools/lib.sh

command -v cppcheck >/dev/null || die "cppcheck is missing: apt-get install cppcheck"
[ -f "$BUILD/build.ninja" ] || build

options=(
	--enable=warning,portability,performance --inline-suppr --quiet --error-exitcode=1
	--std=c11 -j 2 -I . -I include --max-configs=4
	# Debian's headers are not given to it, so this would be on every line.
	--suppress=missingIncludeSystem
	--include=tests/lint/cppcheck.h
	# The base is one of four constants.
	--suppress=zerodivcond:guest-kernel/lib/printf.c
	# Linker symbols are places in one image.
	--suppress=subtractPointers
	--suppress=comparePointers
	# The registers and the physmap are fixed addresses by design.
	--suppress=nullPointerArithmeticRedundantCheck
	# %u for a uint32_t read from the wire is what the prototypes say.
	--suppress=invalidPrintfArgType_sint
)
cppcheck "${options[@]}" api base guest-kernel initd net pool snapshot tools vmm
