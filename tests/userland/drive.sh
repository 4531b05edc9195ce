#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs cases one after the other, on the host and in the guest alike, and writes what they
# did to standard output: for each a line "#case NAME STATUS OUT-BYTES ERR-BYTES SECONDS",
# then those bytes. Standard input is a tar of the cases.
#
#   drive.sh LIMIT CASE...	LIMIT: seconds for one case
#
# What a machine that dies leaves unsaid is then missing at the end only.
limit=$1
shift
top=/tmp/userland
mkdir -p $top/home
cd $top || exit 125
tar xmf - || exit 125
export HOME=$top/home LANG=C.UTF-8 LC_ALL=C.UTF-8 TZ=UTC TERM=dumb PYTHONDONTWRITEBYTECODE=1
umask 022
for name; do
	path=$(echo $top/cases/"$name".*)
	rm -rf $top/work
	mkdir $top/work
	cd $top/work || exit 125
	case $path in
	*.py)	command=(python3 "$path") ;;
	*.pl)	command=(perl "$path") ;;
	*)	command=(bash "$path") ;;
	esac
	began=$SECONDS
	status=0
	timeout -k 5 "$limit" "${command[@]}" >$top/out 2>$top/err </dev/null || status=$?
	printf '#case %s %d %d %d %d\n' "$name" $status "$(stat -c %s $top/out)" \
		"$(stat -c %s $top/err)" $((SECONDS - began))
	cat $top/out $top/err
done
