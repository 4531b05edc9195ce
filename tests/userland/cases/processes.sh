# SPDX-License-Identifier: Apache-2.0
# Many processes at once: deep pipelines, orphans, sessions, terminals, contended files.
n=${US_PROCESSES:-300}
echo "== many"
for i in $(seq $n); do (exit $((i % 7))) & pids="$pids $!"; done
sum=0
for p in $pids; do
	wait $p
	sum=$((sum + $?))
done
echo $sum
p=cat
for i in $(seq 40); do p="$p | cat"; done
seq 5000 | eval "$p" | cksum
seq $n | xargs -P 16 -I{} sh -c 'echo {}' | sort -n | tail -1
for i in $(seq 30); do (for j in $(seq 20); do echo "$i $j" >>appended; done) & done
wait
sort -u appended | wc -l
echo 0 >count
add() {
	for j in $(seq 10); do
		flock lock sh -c 'c=$(cat count); echo $((c + 1)) >count'
	done
}
for i in $(seq 6); do add & done
wait
cat count
f() { if [ $1 -gt 0 ]; then (f $(($1 - 1))); else echo deep; fi; }
f 40
echo "== orphans and sessions"
sh -c '(sleep 0.2; echo parent $(ps -o ppid= -p $$ | wc -l) >orphan) &'
for i in $(seq 100); do [ -s orphan ] && break; sleep 0.1; done
cat orphan
setsid sh -c 'ps -o sid=,pgid=,pid= -p $$' | awk '{ print $1 == $2, $2 == $3 }'
setsid -w sh -c 'exit 6'
echo $?
(
	trap '' HUP
	sh -c 'sleep 0.3; echo survived' &
	kill -HUP $!
	wait
)
timeout --foreground 0.3 sh -c 'sleep 60; echo no'
echo $?
timeout 0.5 sh -c 'sleep 60 & sleep 60'
echo $?
sleep 60 &
kill -0 $! && echo alive
kill -STOP $!
ps -o stat= -p $! | cut -c1
kill -CONT $!
kill $!
wait $! 2>/dev/null
kill -0 $! 2>/dev/null || echo dead
kill -l 10 15 9
echo "== a terminal"
script -qec 'tty >/dev/null && echo is a tty; stty -a | head -1 | cut -c1-15; exit 3' /dev/null
echo $?
script -qc 'stty -echo; sleep 0.3 & jobs; fg %1 2>&1; echo back' /dev/null | tr -d '\r'
printf 'echo typed\nsleep 50\n\003echo after $?\nexit 5\n' >keys
(sleep 1; cat keys; sleep 1) |
	script -qec 'sh' /dev/null >/dev/null
echo ended
stty -a 2>&1
echo "== fifos and descriptors"
mkfifo a b
(tr a-z A-Z <a >b) &
echo through >a &
cat b
wait
exec 3<>a
echo x >&3
read -r -t 5 -u 3 line
echo $line
read -r -t 0.1 -u 3 line
echo $?
exec 3>&-
head -c 1000000 /dev/zero | (sleep 0.3; wc -c)
(trap '' PIPE; yes 2>err | head -1; cat err) | sed 's/.*: //'
exec 4>&1
(echo via four >&4)
exec 4>&-
(echo closed >&4) 2>&1 | sed 's/.*: //'
ls -l /proc/self/fd | grep -c ' -> '
cat /proc/self/cmdline | tr '\0' ' '
