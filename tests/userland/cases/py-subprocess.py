# SPDX-License-Identifier: Apache-2.0
"""subprocess with every arrangement of pipes."""
import itertools
import os
import signal
import subprocess as sp
import sys
import tempfile
import time

CHILD = 'import sys; d = sys.stdin.buffer.read() if %d else b""; ' \
        'sys.stdout.write("out %%d\\n" %% len(d)); sys.stdout.flush(); sys.stderr.write("err\\n")'
for i, o, e in itertools.product((None, sp.PIPE, sp.DEVNULL, 'file'),
                                 (sp.PIPE, sp.DEVNULL, 'file'),
                                 (sp.PIPE, sp.DEVNULL, sp.STDOUT, 'file')):
    files = [tempfile.TemporaryFile() for _ in range(3)]
    files[0].write(b'f' * 1000)
    files[0].seek(0)
    pick = [f if x == 'file' else x for x, f in zip((i, o, e), files)]
    p = sp.Popen(['sh', '-c', 'wc -c; echo err >&2; exit 3'],
                 stdin=pick[0], stdout=pick[1], stderr=pick[2])
    got = p.communicate(b'p' * 100 if i == sp.PIPE else None)
    for f in files[1:]:
        f.seek(0)
    print(i, o, e, p.returncode, got, [f.read() for f in files[1:]])
    for f in files:
        f.close()
big = os.urandom(3_000_000)
print(sp.run(['cat'], input=big, stdout=sp.PIPE).stdout == big)
print(sp.run(['sh', '-c', 'cat | cat | cat'], input=big, capture_output=True).stdout == big)
print(sp.check_output('echo shell; echo $X', shell=True, env={'X': 'env'}, text=True))
for argv in (['false'], ['nosuchprogram'], ['/'], ['sh', '-c', 'kill -9 $$']):
    try:
        sp.run(argv, check=True)
    except Exception as e:
        print(type(e).__name__, e)
try:
    sp.run(['sleep', '10'], timeout=0.3)
except sp.TimeoutExpired as e:
    print('timeout', round(e.timeout, 1))
p = sp.Popen(['sleep', '30'], start_new_session=True)
print(os.getsid(p.pid) == p.pid, p.poll())
os.killpg(p.pid, signal.SIGTERM)
print(p.wait())
r, w = os.pipe()
p = sp.Popen(['sh', '-c', f'echo passed >&{w}'], pass_fds=[w])
os.close(w)
print(os.read(r, 100), p.wait())
p = sp.Popen(['pwd'], cwd='/usr', stdout=sp.PIPE, preexec_fn=lambda: os.umask(0o77))
print(p.communicate()[0], p.returncode)
try:
    sp.Popen(['pwd'], cwd='/nowhere')
except OSError as e:
    print(e)
a = sp.Popen(['seq', '1000'], stdout=sp.PIPE)
b = sp.Popen(['tail', '-1'], stdin=a.stdout, stdout=sp.PIPE)
a.stdout.close()
print(b.communicate()[0], a.wait())
p = sp.Popen(['sh', '-c', 'read x; echo got $x; read y; echo got $y'],
             stdin=sp.PIPE, stdout=sp.PIPE, text=True, bufsize=1)
for word in 'one', 'two':
    p.stdin.write(word + '\n')
    p.stdin.flush()
    print(p.stdout.readline().strip())
p.communicate()
many = [sp.Popen(['sh', '-c', f'exit {k}']) for k in range(20)]
print([p.wait() for p in many])
print(os.spawnvp(os.P_WAIT, 'sh', ['sh', '-c', 'exit 9']), os.system('exit 4') >> 8)
pid = os.posix_spawnp('sh', ['sh', '-c', 'echo spawned; exit 2'], os.environ,
                      setsigmask=[signal.SIGUSR1], file_actions=[(os.POSIX_SPAWN_DUP2, 1, 2)])
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
p = sp.run([sys.executable, '-c', CHILD % 1], input=b'x' * 70000, capture_output=True)
print(p)
p = sp.run([sys.executable, '-c', 'import os; os.abort()'], stderr=sp.DEVNULL)
print(p.returncode)
p = sp.run([sys.executable, '-c', 'raise SystemExit("bye")'], capture_output=True)
print(p.returncode, p.stderr)
print(sp.getstatusoutput('echo x; exit 5'))
with sp.Popen(['cat'], stdin=sp.PIPE, stdout=sp.PIPE, user=65534, group=65534,
              extra_groups=[]) as p:
    print(open(f'/proc/{p.pid}/status').read().split('Uid:')[1].split()[:4])
