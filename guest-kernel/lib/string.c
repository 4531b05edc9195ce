/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mem* and str* functions of <string.h> that the kernel and libfdt use. Copying and
 * clearing use the processor's fast string instructions, which run natively in ring 3.
 */
#include "guest-kernel/lib/kernel.h"

/* gcc turns such loops into calls to the very function they implement. */
#pragma GCC optimize("no-tree-loop-distribute-patterns")

void *memcpy(void *restrict dst, const void *restrict src, size_t n)
{
	void *d = dst;

	__asm__ volatile("rep movsb" : "+D"(d), "+S"(src), "+c"(n) : : "memory");
	return dst;
}

void *memmove(void *dst, const void *src, size_t n)
{
	unsigned char *d = dst;
	const unsigned char *s = src;

	if ((uintptr_t)d - (uintptr_t)s >= n)
		return memcpy(dst, src, n);
	while (n >= 8) {
		uint64_t v;

		n -= 8;
		__builtin_memcpy(&v, s + n, 8);
		__builtin_memcpy(d + n, &v, 8);
	}
	while (n-- > 0)
		d[n] = s[n];
	return dst;
}

void *memset(void *dst, int c, size_t n)
{
	void *d = dst;

	__asm__ volatile("rep stosb" : "+D"(d), "+c"(n) : "a"(c) : "memory");
	return dst;
}

int memcmp(const void *a, const void *b, size_t n)
{
	const unsigned char *p = a, *q = b;

	for (; n > 0; n--, p++, q++) {
		if (*p != *q)
			return *p - *q;
	}
	return 0;
}

void *memchr(const void *s, int c, size_t n)
{
	const unsigned char *p = s;

	for (; n > 0; n--, p++) {
		if (*p == (unsigned char)c)
			return (void *)(uintptr_t)p;
	}
	return NULL;
}

size_t strlen(const char *s)
{
	size_t n = 0;

	while (s[n] != '\0')
		n++;
	return n;
}

size_t strnlen(const char *s, size_t max)
{
	size_t n = 0;

	while (n < max && s[n] != '\0')
		n++;
	return n;
}

char *strcpy(char *restrict dst, const char *restrict src)
{
	memcpy(dst, src, strlen(src) + 1);
	return dst;
}

int strcmp(const char *a, const char *b)
{
	while (*a != '\0' && *a == *b) {
		a++;
		b++;
	}
	return (unsigned char)*a - (unsigned char)*b;
}

int strncmp(const char *a, const char *b, size_t n)
{
	while (n > 0 && *a != '\0' && *a == *b) {
		a++;
		b++;
		n--;
	}
	return n == 0 ? 0 : (unsigned char)*a - (unsigned char)*b;
}

char *strchr(const char *s, int c)
{
	for (;; s++) {
		if (*s == (char)c)
			return (char *)(uintptr_t)s;
		if (*s == '\0')
			return NULL;
	}
}

char *strrchr(const char *s, int c)
{
	const char *last = NULL;

	for (;; s++) {
		if (*s == (char)c)
			last = s;
		if (*s == '\0')
			return (char *)(uintptr_t)last;
	}
}

char *strstr(const char *hay, const char *needle)
{
	size_t n = strlen(needle);

	for (; *hay != '\0' || n == 0; hay++) {
		if (strncmp(hay, needle, n) == 0)
			return (char *)(uintptr_t)hay;
		if (*hay == '\0')
			break;
	}
	return NULL;
}
