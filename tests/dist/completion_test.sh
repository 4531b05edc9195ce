#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Completion for bash: sourced, asked as bash would, and what it offers compared. A daemon with
# fake VMMs has the names. TAP; BUILD and SOURCE are the directories.
source "$SOURCE/dist/completion/casemate"
T=$(mktemp -d "${TMPDIR:-/tmp}/casemate-completion.XXXXXX")
trap 'exec 9>&-; wait; rm -rf "$T"' EXIT
PATH=$BUILD:$PATH
unset CASEMATE_SOCKET
export XDG_RUNTIME_DIR=$T
n=0
bad=0

# complete WORD...: the last one is being typed; sets got.
ask() {
	COMP_WORDS=(casemate "$@")
	COMP_CWORD=$#
	COMPREPLY=()
	_casemate 2>"$T/err"
	got=$(printf '%s\n' "${COMPREPLY[@]}" | sort | xargs)
	[ ! -s "$T/err" ] || got="$got (stderr: $(head -c 200 "$T/err"))"
}

is() {
	n=$((n + 1))
	if [ "$got" = "$2" ]; then
		echo "ok $n - $1"
	else
		echo "not ok $n - $1"
		echo "# got \"$got\", want \"$2\""
		bad=1
	fi
}

has() {
	local word all=" $got "
	for word in "${@:2}"; do
		[ "${all#* "$word" }" != "$all" ] || got="$got (no $word)"
	done
	is "$1" "${all:1:${#all}-2}"
}

echo 1..24
ask ''
has 'every verb' run exec ls info top kill pause resume suspend fork snapshot restore template \
	pool events metrics stop doctor help image
ask ex
is 'the beginning of a verb' exec
ask help sn
is 'verbs after help' snapshot
ask exec --
has 'options of a verb' --env --workdir --user --timeout --limit --tty --socket --help
ask run --rea
is 'one option' --ready-when
ask run -- --
is 'nothing behind --' ''
ask nonsense ''
is 'nothing for an unknown verb' ''
ask snapshot -
has 'options of both kinds of snapshot' -o --json --sync --quiet --socket
ask top --sort m
is 'a key' memory
ask template ''
is 'what to do with templates' 'add list remove'
ask pool s
is 'what to do with the pool' 'set status'
cd "$T" && mkdir dir 'a dir' && touch snap.1 snap.2
ask restore snap
is 'files' 'snap.1 snap.2'
ask run --from snap.
is 'files behind an option' 'snap.1 snap.2'
ask run --image a
is 'a file with a blank is one' 'a dir'
ask snapshot compact -o snap.2 snap.1 sn
is 'files of snapshot compact' 'snap.1 snap.2'
ask exec ''
is 'no names without a daemon' ''

# A daemon in the default place, with two VMs, which ends when its stdin does.
mkfifo hold
CASEMATE_BUILD=$BUILD PYTHONPATH=$SOURCE/tests/daemon python3 -c '
import sys, client
d = client.Daemon()
c = d.client()
for name in "box", "bow", "other":
    c.ask("create name=" + name)
c.ask("snapshot other file=" + d.dir + "/snap")
for name in "tom", "tim":
    c.ask("template add " + name + " file=" + d.dir + "/snap hold=no")
print(d.path, flush=True)
sys.stdin.read()
d.stop()' <hold >path &
exec 9>hold
for i in $(seq 500); do
	[ ! -s path ] || break
	sleep 0.1
done
export CASEMATE_SOCKET=$(cat path)
ask exec bo
is 'names of VMs' 'bow box'
ask kill box o
is 'more names' other
ask snapshot bo
is 'names to be saved' 'bow box'
ask run --template t
is 'names of templates' 'tim tom'
ask cat bo
is 'VMs of paths in them' 'bow: box:'
ask cp sn
is 'files to be copied' 'snap.1 snap.2'
ask cat box : /e
is 'nothing of what is in a VM' ''
unset CASEMATE_SOCKET
ask fork --socket "$(cat path)" 2 bo
is 'names of the socket that is named' 'bow box'
exit $bad
