/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between the kernel and the running program's memory, page by page through the
 * physmap. The page tables are walked in software, so that what the processor has cached does
 * not matter and no fault is ever taken in the kernel.
 */
#include "guest-kernel/mm/uaccess.h"

#include "abi/layout.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/mm/mm_internal.h"

#define UIO_MAX		0x7ffff000UL	/* bytes moved by one call, as in Linux */
#define UIO_IOV_MAX	1024u

/* Bytes from p to the end of its page, at most n. */
static inline size_t in_page(uintptr_t p, size_t n)
{
	return MIN(n, PAGE_SIZE - (p & (PAGE_SIZE - 1)));
}

size_t copy_from_user_partial(void *dst, const void __user *src, size_t n)
{
	return mm_peek(current->mm, (uintptr_t)src, dst, n);
}

size_t copy_to_user_partial(void __user *dst, const void *src, size_t n)
{
	return mm_poke(current->mm, (uintptr_t)dst, src, n);
}

int copy_from_user(void *dst, const void __user *src, size_t n)
{
	return copy_from_user_partial(dst, src, n) == n ? 0 : -EFAULT;
}

int copy_to_user(void __user *dst, const void *src, size_t n)
{
	return copy_to_user_partial(dst, src, n) == n ? 0 : -EFAULT;
}

static size_t clear_user_partial(void __user *dst, size_t n)
{
	uintptr_t va = (uintptr_t)dst;
	size_t done = 0;

	while (done < n) {
		size_t part = in_page(va + done, n - done);
		void *p = mm_user_page(current->mm, va + done, true);

		if (p == NULL)
			break;
		memset(p, 0, part);
		done += part;
	}
	return done;
}

int clear_user(void __user *dst, size_t n)
{
	return clear_user_partial(dst, n) == n ? 0 : -EFAULT;
}

long strncpy_from_user(char *dst, const char __user *src, size_t size)
{
	uintptr_t va = (uintptr_t)src;
	size_t done = 0;

	while (done < size) {
		size_t part = in_page(va + done, size - done);
		const char *p = mm_user_page(current->mm, va + done, false);
		size_t len;

		if (p == NULL)
			return -EFAULT;
		len = strnlen(p, part);
		memcpy(dst + done, p, len);
		done += len;
		if (len < part) {
			dst[done] = '\0';
			return (long)done;
		}
	}
	return -ENAMETOOLONG;
}

int user_cmpxchg32(uint32_t __user *p, uint32_t old, uint32_t new, uint32_t *ret_seen)
{
	uint32_t *k;

	if (((uintptr_t)p & 3) != 0)
		return -EFAULT;
	k = mm_user_page(current->mm, (uintptr_t)p, true);
	if (k == NULL)
		return -EFAULT;
	*ret_seen = *k;
	if (*k == old)
		*(volatile uint32_t *)k = new;
	return 0;
}

/* ---- uio ---- */

void uio_init_user(struct uio *u, struct uiovec *one, void __user *base, size_t len)
{
	one->base = base;
	one->len = MIN(len, UIO_MAX);
	u->iov = one;
	u->niov = 1;
	u->off = 0;
	u->resid = one->len;
	u->kernel = false;
}

void uio_init_kernel(struct uio *u, struct uiovec *one, void *base, size_t len)
{
	uio_init_user(u, one, base, len);
	one->len = u->resid = len;
	u->kernel = true;
}

enum uio_dir {
	UIO_PUT, UIO_GET, UIO_ZERO,
};

static size_t uio_piece(struct uio *u, char *base, char *buf, size_t n, enum uio_dir dir)
{
	if (u->kernel) {
		if (dir == UIO_PUT)
			memcpy(base, buf, n);
		else if (dir == UIO_GET)
			memcpy(buf, base, n);
		else
			memset(base, 0, n);
		return n;
	}
	if (dir == UIO_PUT)
		return copy_to_user_partial(base, buf, n);
	if (dir == UIO_GET)
		return copy_from_user_partial(buf, base, n);
	return clear_user_partial(base, n);
}

static size_t uio_move(struct uio *u, char *buf, size_t n, enum uio_dir dir)
{
	size_t done = 0;

	n = MIN(n, u->resid);
	while (done < n) {
		size_t part = MIN(n - done, u->iov->len - u->off), moved;

		if (part == 0) {
			u->iov++;
			u->niov--;
			u->off = 0;
			continue;
		}
		moved = uio_piece(u, (char *)u->iov->base + u->off,
				  buf != NULL ? buf + done : NULL, part, dir);
		u->off += moved;
		u->resid -= moved;
		done += moved;
		if (moved < part)
			break;
	}
	return done;
}

size_t uio_put(struct uio *u, const void *src, size_t n)
{
	return uio_move(u, (char *)(uintptr_t)src, n, UIO_PUT);
}

size_t uio_get(struct uio *u, void *dst, size_t n)
{
	return uio_move(u, dst, n, UIO_GET);
}

size_t uio_zero(struct uio *u, size_t n)
{
	return uio_move(u, NULL, n, UIO_ZERO);
}

int uio_import(struct uio *u, const struct uiovec __user *uiov, unsigned long n,
	       struct uiovec **ret_iov)
{
	struct uiovec *iov;
	size_t total = 0;

	*ret_iov = NULL;
	memset(u, 0, sizeof(*u));
	if (n > UIO_IOV_MAX)
		return -EINVAL;
	if (n == 0)
		return 0;
	iov = kmalloc(n * sizeof(*iov));
	if (iov == NULL)
		return -ENOMEM;
	if (copy_from_user(iov, uiov, n * sizeof(*iov)) != 0) {
		kfree(iov);
		return -EFAULT;
	}
	for (unsigned long i = 0; i < n; i++) {
		uintptr_t base = (uintptr_t)iov[i].base;

		if ((long)iov[i].len < 0) {
			kfree(iov);
			return -EINVAL;
		}
		if (base > CM_USER_TOP || iov[i].len > CM_USER_TOP - base) {
			kfree(iov);
			return -EFAULT;
		}
		iov[i].len = MIN(iov[i].len, UIO_MAX - total);
		total += iov[i].len;
	}
	u->iov = iov;
	u->niov = (unsigned)n;
	u->resid = total;
	*ret_iov = iov;
	return 0;
}
