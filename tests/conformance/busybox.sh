#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Busybox's own tests, from the source package of the installed busybox-static, for
# tools/conformance.sh.
#
#   busybox.sh bundle FILE	make FILE, a tar of the tests and the installed busybox
#   busybox.sh run LIMIT	run them; the tar is standard input. LIMIT: seconds for each of
#				the four parts: applets, shell, and what is slow of both
#
# The source comes through apt entries of our own (the places of the machine's own ones),
# checked with Debian's archive key; nothing stays of it but the tar, which belongs into the
# cache. What a run prints is what the suites
# print, between lines "busybox: ..." that say where each part begins and how it ended.
set -eu
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

bundle() {
	local file=$1 version source

	version=$(dpkg-query -W -f '${source:Version}' busybox-static)
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	chmod 755 "$work"
	mkdir -p "$work"/lists/partial "$work"/cache/archives/partial "$work"/top
	apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' \
		'Created-By: Packages' 'Origin: Debian' 'Component: main' | sort -u |
		sed "s|^|deb-src [signed-by=$keyring] |" >"$work/sources.list"
	apt() {
		apt-get -qq -o Dir::Etc::SourceList="$work/sources.list" \
			-o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists="$work/lists" \
			-o Dir::Cache="$work/cache" "$@" >"$work/log" 2>&1 ||
			{ tail -3 "$work/log" >&2; return 1; }
	}
	apt update
	cd "$work"
	apt source --download-only "busybox=$version" ||
		{ echo "busybox.sh: Debian no longer has the source of busybox $version" >&2
		exit 77; }
	dpkg-source --no-check -x busybox_*.dsc source >"$work/log" 2>&1
	source=$work/source
	mv "$source"/{testsuite,shell,scripts} top/
	cp "$source/debian/config/pkg/static" top/.config
	cp "$(command -v busybox)" top/busybox
	rm -f top/testsuite/mdev.tests	# as Debian does: it wants the real /dev
	tar -C top --sort=name -cf "$file.new" .
	mv "$file.new" "$file"
}

# All that have tests but the calculators.
applets() {
	{ ls -d -- */ | tr -d /; ls -- *.tests | sed 's/\.tests$//'; } | sort -u |
		grep -vx -e all_sourcecode -e bc -e dc
}

# part NAME LIMIT DIRECTORY COMMAND...
part() {
	local name=$1 limit=$2 status=0
	echo "busybox: part $name"
	cd "$3"
	shift 3
	timeout -k 10 "$limit" "$@" </dev/null 2>&1 || status=$?
	printf '\nbusybox: %s ended with %d\n' "$name" $status
}

run() {
	local limit=$1 top=/tmp/busybox f
	mkdir -p $top
	cd $top
	tar xf -
	# Some of the shell's tests count descriptors: none but the first three.
	for f in /proc/self/fd/*; do
		f=${f##*/}
		[ "$f" -le 2 ] || eval "exec $f>&-"
	done
	# Debian's environment for them (debian/rules).
	export SKIP_KNOWN_BUGS=y SKIP_INTERNET_TESTS=y LANG=C.UTF-8 LC_ALL=C.UTF-8
	export SHELL=/bin/sh ECHO=/bin/echo
	# shellcheck disable=SC2046
	part applets "$limit" $top/testsuite ./runtest -v $(cd testsuite && applets)
	cd $top/shell/ash_test
	# shellcheck disable=SC2010,SC2046
	part shell "$limit" . ./run-all $(ls -d ash-* | grep -v z_slow)
	part slow "$limit" . ./run-all ash-z_slow
	for f in *.fail; do
		[ ! -e "$f" ] || { echo "busybox: $f"; cat "$f"; }
	done
	part calculators "$limit" $top/testsuite ./runtest -v dc bc
}

case ${1:-} in
bundle)	bundle "$(realpath -m "$2")" ;;
run)	run "$2" ;;
*)	sed -n '3,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
esac
