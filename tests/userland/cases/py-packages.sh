# SPDX-License-Identifier: Apache-2.0
# venv, pip with a local wheel, pytest.
python3 -m venv env && ls env env/bin | LC_ALL=C sort
env/bin/python -c 'import sys; print(sys.prefix, sys.base_prefix, sys.argv)'
mkdir -p pkg/hello_pkg
echo 'def main(): print("hello from the wheel")' >pkg/hello_pkg/__init__.py
python3 - <<'E'
import zipfile, hashlib, base64
d = 'hello_pkg-1.0.dist-info/'
files = {'hello_pkg/__init__.py': open('pkg/hello_pkg/__init__.py').read(),
         d + 'METADATA': 'Metadata-Version: 2.1\nName: hello-pkg\nVersion: 1.0\n',
         d + 'WHEEL': 'Wheel-Version: 1.0\nGenerator: t\n'
                      'Root-Is-Purelib: true\nTag: py3-none-any\n',
         d + 'entry_points.txt': '[console_scripts]\nhello-pkg = hello_pkg:main\n'}
rec = ''
for n, t in files.items():
    h = base64.urlsafe_b64encode(hashlib.sha256(t.encode()).digest()).rstrip(b'=').decode()
    rec += '%s,sha256=%s,%d\n' % (n, h, len(t))
with zipfile.ZipFile('hello_pkg-1.0-py3-none-any.whl', 'w') as z:
    for n, t in files.items():
        z.writestr(n, t)
    z.writestr(d + 'RECORD', rec + d + 'RECORD,,\n')
E
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
env/bin/pip install --no-index ./hello_pkg-1.0-py3-none-any.whl
echo $?
env/bin/hello-pkg; env/bin/pip --disable-pip-version-check list 2>/dev/null | grep hello
env/bin/pip --disable-pip-version-check --no-cache-dir uninstall -y hello-pkg | tail -1
env/bin/hello-pkg 2>/dev/null
echo $?
mkdir proj; cat >proj/calc.py <<'E'
def add(a, b): return a + b
E
cat >proj/test_calc.py <<'E'
import os, pytest, subprocess, sys, threading
from calc import add
@pytest.fixture
def data(tmp_path):
    (tmp_path / 'f').write_text('content')
    yield tmp_path
@pytest.mark.parametrize('a,b,c', [(1, 2, 3), (0, 0, 0), (-1, 1, 0)])
def test_add(a, b, c): assert add(a, b) == c
def test_tmp(data): assert (data / 'f').read_text() == 'content'
def test_raises():
    with pytest.raises(ZeroDivisionError): 1 / 0
def test_capture(capfd):
    os.system('echo from shell'); print('from python', flush=True)
    assert capfd.readouterr().out == 'from shell\nfrom python\n'
def test_monkey(monkeypatch):
    monkeypatch.setenv('X', 'y')
    assert subprocess.check_output('echo $X', shell=True) == b'y\n'
def test_fails(): assert add(1, 1) == 3
@pytest.mark.skip(reason='not now')
def test_skipped(): pass
E
cd proj
python3 -m pytest -p no:cacheprovider -v -rA --color=no 2>&1 | sed 's/in [0-9.]*s//'
python3 -m pytest -q -p no:cacheprovider -k add >/dev/null
echo $?
python3 -m unittest -h >/dev/null
python3 -m json.tool <<<'{"a":1}'
python3 -m zipfile -l ../*.whl | wc -l
python3 -m compileall -q .
ls __pycache__ | wc -l
python3 -X importtime -c pass 2>&1 | tail -1 | cut -c1-6
echo 'print(1+1)' | python3 -
python3 -c 'import sys; sys.exit(17)'
echo $?
