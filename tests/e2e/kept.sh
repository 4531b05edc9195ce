# SPDX-License-Identifier: Apache-2.0
# For tests of kept VMs, beside lib.sh: the command with the daemon that it starts.

# cm ARG...: the command; streams in $T/out and $T/err, status in $status.
cm() {
	status=0
	timeout -s KILL $((LIMIT * SCALE)) "$CASEMATE" "$@" >"$T/out" 2>"$T/err" \
		<"${input:-/dev/null}" || status=$?
}

# Ends the daemon of the case and looks for what it left.
stop() {
	cm stop
	want_status 0
	local i
	for i in $(seq $((10 * SCALE))); do
		[ -e "$XDG_RUNTIME_DIR/casemate/casemate.sock" ] || break
		sleep 0.1
	done
	[ ! -e "$XDG_RUNTIME_DIR/casemate/casemate.sock" ] || fail "the socket is left"
	[ -z "$(find "$XDG_RUNTIME_DIR/casemate/casemate.sock.state" -type f ! -name lock)" ] ||
		fail "records are left"
	rm -rf "$XDG_RUNTIME_DIR/casemate"
	want_clean
}

keep() {
	cm run "${image[@]}" --keep "$@"
}
