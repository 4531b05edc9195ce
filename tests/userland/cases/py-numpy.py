# SPDX-License-Identifier: Apache-2.0
"""numpy's linear algebra: results to six digits, which do not depend on the processor."""
import os
import numpy as np

n = int(os.environ.get('US_MATRIX', 500))
i = np.arange(n * n, dtype=float).reshape(n, n)
a = np.sin(i) + np.eye(n) * 10
b = np.cos(np.arange(n))
x = np.linalg.solve(a, b)
print(np.allclose(a @ x, b), round(float(np.linalg.norm(x)), 6))
print(np.allclose(np.linalg.inv(a) @ a, np.eye(n)))
q, r = np.linalg.qr(a)
print(np.allclose(q @ r, a), np.allclose(q.T @ q, np.eye(n)))
u, s, v = np.linalg.svd(a)
print(np.allclose((u * s) @ v, a), round(float(s[0]), 4))
w = np.linalg.eigvalsh(a + a.T)
print(round(float(w.sum()), 4), round(float(np.trace(a + a.T)), 4))
sgn, ld = np.linalg.slogdet(a)
print(sgn, round(float(ld), 4))
c = np.linalg.cholesky(a @ a.T)
print(np.allclose(c @ c.T, a @ a.T))
print(np.allclose(np.fft.ifft(np.fft.fft(b)), b))
rng = np.random.default_rng(1)
print(rng.integers(0, 100, 10), round(float(rng.normal(size=1000).mean()), 6))
np.save('a.npy', a)
m = np.load('a.npy', mmap_mode='r')
print(np.array_equal(m, a), type(m).__name__)
m = np.memmap('mm', dtype='f4', mode='w+', shape=(100, 100))
m[:] = 3
m.flush()
print(np.fromfile('mm', dtype='f4').sum())
print(np.sort(rng.random(100000)).searchsorted(0.5) > 49000, np.einsum('ij,ji', a, a).round(3))
