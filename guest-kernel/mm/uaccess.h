/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one way to touch a program's memory. No fault is ever taken in the kernel: the range is
 * made present (and writable) by walking the page tables in software (mm_prepare), then
 * copied. That also breaks copy-on-write through the ordinary path. Nothing sleeps between.
 */
#ifndef MM_UACCESS_H
#define MM_UACCESS_H

#include "guest-kernel/lib/kernel.h"

/* 0 or -EFAULT; on -EFAULT a part may have been copied. */
int copy_from_user(void *dst, const void __user *src, size_t n);
int copy_to_user(void __user *dst, const void *src, size_t n);
int clear_user(void __user *dst, size_t n);
/* Bytes copied before the first bad page: for read(2)/write(2). */
size_t copy_from_user_partial(void *dst, const void __user *src, size_t n);
size_t copy_to_user_partial(void __user *dst, const void *src, size_t n);
/* Length without the zero; -EFAULT, or -ENAMETOOLONG when no zero in the first `size`. */
long strncpy_from_user(char *dst, const char __user *src, size_t size);

#define GET_USER(var, uptr)	copy_from_user(&(var), (uptr), sizeof(var))
#define PUT_USER(val, uptr)	copy_to_user((uptr), &(val), sizeof(val))

/* Atomic on one vCPU because the kernel is not preempted. 0 or -EFAULT. */
int user_cmpxchg32(uint32_t __user *p, uint32_t old, uint32_t new, uint32_t *ret_seen);

struct uiovec {			/* layout of struct iovec */
	void __user *base;
	size_t len;
};

/* A read or write in progress: user or kernel memory in pieces. */
struct uio {
	const struct uiovec *iov;
	unsigned niov;
	size_t off;		/* in iov[0] */
	size_t resid;		/* bytes left in all */
	bool kernel;		/* bases are kernel addresses */
};
/* Up to n bytes between uio and a kernel buffer, advancing uio. Return bytes moved: fewer
 * than MIN(n, resid) means the next byte is at a bad address. */
size_t uio_put(struct uio *u, const void *src, size_t n);	/* to the reader */
size_t uio_get(struct uio *u, void *dst, size_t n);		/* from the writer */
size_t uio_zero(struct uio *u, size_t n);			/* zeros to the reader */
/* iov copied from user into *ret_iov (kfree it when != stack), checked: IOV_MAX, SSIZE_MAX. */
int uio_import(struct uio *u, const struct uiovec __user *uiov, unsigned long n,
	       struct uiovec **ret_iov);
void uio_init_user(struct uio *u, struct uiovec *one, void __user *base, size_t len);
void uio_init_kernel(struct uio *u, struct uiovec *one, void *base, size_t len);

#endif
