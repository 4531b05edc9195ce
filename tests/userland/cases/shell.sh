# SPDX-License-Identifier: Apache-2.0
# Pipelines, here-documents, traps, substitutions, jobs: what scripts do.
echo "== pipelines"
seq 1 1000 | grep 7 | sort -rn | head -3
seq 1 20000 | tail -1 | cat | cat | cat
false | true; echo "${PIPESTATUS[@]}"
set -o pipefail; false | true; echo $?; set +o pipefail
yes | head -5 | wc -l
yes | head -1 >/dev/null; echo "${PIPESTATUS[@]}"
! true; echo $?
(exit 42) | cat; echo "${PIPESTATUS[0]}"
{ echo out; echo err >&2; } 2>&1 | sort
{ echo out; echo err >&2; } |& sort
echo "== here-documents"
name=world
cat <<E
hello $name $((6 * 7)) $(echo sub)
E
cat <<'E'
hello $name $(no)
E
cat <<-E
	stripped
	E
cat <<<"string $name"
wc -c <<<"$(seq 1 30000)"
while read -r a b; do echo "$b-$a"; done <<E
1 one
2 two
E
echo "== substitution"
x=$(seq 3); echo "$x"
echo $(echo $(echo nested))
echo `echo backticks`
diff <(seq 3) <(seq 4)
echo $?
tee >(tr a-z A-Z >tee.out) <<<hello; sleep 0.2; wait; cat tee.out
paste <(seq 3) <(seq 4 6) <(seq 7 9)
y=$(<tee.out); echo "$y"
echo "== traps"
(trap 'echo exit trap $?' EXIT; exit 3); echo $?
(trap 'echo term' TERM; kill -TERM $BASHPID; echo after)
(trap '' INT; kill -INT $BASHPID; echo ignored)
bash -c 'trap "echo usr1" USR1; kill -USR1 $$; kill -USR1 $$; echo done'
bash -c 'kill -KILL $$'; echo $?
bash -c 'kill -SEGV $$' 2>/dev/null; echo $?
bash -c 'trap "echo err \$LINENO" ERR; false; true'
bash -c 'trap "echo chld" CHLD; sleep 0.1 & wait; true' | sort -u
bash -c 'trap "echo interrupted; exit 9" ALRM; (sleep 0.3; kill -ALRM $$) & sleep 5 & wait $!'
echo $?
echo "== jobs"
for i in 1 2 3 4 5; do (sleep 0.0$i; exit $i) & pids="$pids $!"; done
for p in $pids; do wait $p; echo $?; done
sleep 100 & k=$!; kill $k; wait $k 2>/dev/null; echo $?
(sleep 0.1; echo late) & echo early; wait
wait -n; echo $?
{ sleep 0.1; exit 7; } & wait -n; echo $?
coproc cat; echo ping >&${COPROC[1]}; read -r -u ${COPROC[0]} r; echo $r
eval "exec ${COPROC[1]}>&-"; wait
set -m; sleep 0.1 & wait %1; echo $?; set +m
bash -c 'set -m; sleep 60 & kill -STOP %1; sleep 0.1
jobs -s | grep -c Stopped; kill -CONT %1; kill %1'
timeout 0.2 sleep 10; echo $?
timeout -s KILL 0.2 sleep 10; echo $?
echo "== redirections"
exec 5>five; echo to five >&5; exec 5>&-; cat five
exec 6<>six; echo abc >&6; exec 6>&-; cat six
echo a >f; echo b >>f; cat <f
set -C; echo c 2>/dev/null >f || echo noclobber; set +C; echo c >|f; cat f
cat nothere 2>&1; ls nothere 2>&1; cat . 2>&1; echo >nodir/x 2>/dev/null || echo failed
mkfifo p; (echo through >p) & cat p; wait
: >empty; [ -s empty ] || echo empty
echo "== expansion"
a=(one two three); echo ${#a[@]} "${a[@]:1}" ${!a[@]}
declare -A m=([k]=v [q]=w); echo ${m[k]} ${#m[@]}
s=hello.tar.gz; echo ${s%%.*} ${s#*.} ${s/l/L} ${s^^} ${#s}
echo {a..e}{1,2} ~root
touch b1 b2 b3; echo b? b[12]
printf '%05d %x %q\n' 42 255 'a b'
[[ abc =~ ^a(.)c$ ]] && echo ${BASH_REMATCH[1]}
f() { local v=$1; [ $v -le 1 ] && { echo 1; return; }; echo $((v * $(f $((v - 1))))); }
f 6
echo "== limits and umask"
umask 077; touch private; stat -c %a private; umask 022
ulimit -n 64; ulimit -n
(ulimit -f 1; head -c 100000 /dev/zero >big; echo $?) 2>/dev/null
(ulimit -t 1; while :; do :; done) 2>/dev/null; echo $?
cd /; pwd; cd - >/dev/null
cd -P .; exec -a renamed bash -c 'echo $0'
