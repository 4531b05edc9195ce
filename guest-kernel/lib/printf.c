/* SPDX-License-Identifier: Apache-2.0 */
/* Formatted output to a buffer: the subset of C's printf that lib/kernel.h names. */
#include "guest-kernel/lib/kernel.h"

struct out {
	char *buf;
	size_t size, len;
};

static void put(struct out *o, char c)
{
	if (o->len + 1 < o->size)
		o->buf[o->len] = c;
	o->len++;
}

static void pad(struct out *o, char c, int n)
{
	while (n-- > 0)
		put(o, c);
}

struct spec {
	bool left, zero, plus, space, alt;
	int width, precision;		/* -1: not given */
};

static void put_string(struct out *o, const struct spec *s, const char *str, size_t len)
{
	int fill = s->width > (int)len ? s->width - (int)len : 0;

	if (!s->left)
		pad(o, ' ', fill);
	for (size_t i = 0; i < len; i++)
		put(o, str[i]);
	if (s->left)
		pad(o, ' ', fill);
}

static void put_number(struct out *o, const struct spec *s, uint64_t v, bool negative,
		       unsigned base, bool upper)
{
	const char *digits = upper ? "0123456789ABCDEF" : "0123456789abcdef";
	char tmp[24], prefix[3];
	int n = 0, np = 0, zeros, fill;

	if (negative)
		prefix[np++] = '-';
	else if (s->plus)
		prefix[np++] = '+';
	else if (s->space)
		prefix[np++] = ' ';
	if (s->alt && base == 16 && v != 0) {
		prefix[np++] = '0';
		prefix[np++] = upper ? 'X' : 'x';
	}
	if (s->alt && base == 8)
		prefix[np++] = '0';
	while (v != 0) {
		tmp[n++] = digits[v % base];
		v /= base;
	}
	if (n == 0 && s->precision != 0)
		tmp[n++] = '0';
	zeros = s->precision > n ? s->precision - n : 0;
	if (s->zero && !s->left && s->precision < 0 && s->width > n + np)
		zeros = s->width - n - np;
	fill = s->width - np - zeros - n;
	if (!s->left)
		pad(o, ' ', fill);
	for (int i = 0; i < np; i++)
		put(o, prefix[i]);
	pad(o, '0', zeros);
	while (n > 0)
		put(o, tmp[--n]);
	if (s->left)
		pad(o, ' ', fill);
}

static const char *parse_spec(const char *f, struct spec *s, va_list *ap)
{
	memset(s, 0, sizeof(*s));
	s->precision = -1;
	for (;; f++) {
		if (*f == '-')
			s->left = true;
		else if (*f == '0')
			s->zero = true;
		else if (*f == '+')
			s->plus = true;
		else if (*f == ' ')
			s->space = true;
		else if (*f == '#')
			s->alt = true;
		else
			break;
	}
	if (*f == '*') {
		s->width = va_arg(*ap, int);
		if (s->width < 0) {
			s->left = true;
			s->width = -s->width;
		}
		f++;
	}
	while (*f >= '0' && *f <= '9')
		s->width = s->width * 10 + (*f++ - '0');
	if (*f == '.') {
		s->precision = 0;
		f++;
		if (*f == '*') {
			s->precision = va_arg(*ap, int);
			f++;
		}
		while (*f >= '0' && *f <= '9')
			s->precision = s->precision * 10 + (*f++ - '0');
	}
	return f;
}

int kvsnprintf(char *buf, size_t size, const char *f, va_list args)
{
	struct out o = { buf, size, 0 };
	struct spec s;
	va_list ap;

	va_copy(ap, args);
	for (; *f != '\0'; f++) {
		int longs = 0, halves = 0;
		int64_t sv;
		uint64_t uv;

		if (*f != '%') {
			put(&o, *f);
			continue;
		}
		f = parse_spec(f + 1, &s, &ap);
		for (;; f++) {
			if (*f == 'l' || *f == 'z' || *f == 'j' || *f == 't')
				longs++;
			else if (*f == 'h')
				halves++;
			else
				break;
		}
		switch (*f) {
		case 'd':
		case 'i':
			sv = longs != 0 ? va_arg(ap, int64_t) : va_arg(ap, int);
			if (halves == 1)
				sv = (short)sv;
			else if (halves == 2)
				sv = (signed char)sv;
			put_number(&o, &s, sv < 0 ? -(uint64_t)sv : (uint64_t)sv, sv < 0, 10,
				   false);
			break;
		case 'u':
		case 'x':
		case 'X':
		case 'o':
			uv = longs != 0 ? va_arg(ap, uint64_t) : va_arg(ap, unsigned);
			if (halves == 1)
				uv = (unsigned short)uv;
			else if (halves == 2)
				uv = (unsigned char)uv;
			s.plus = s.space = false;
			put_number(&o, &s, uv, false, *f == 'u' ? 10 : *f == 'o' ? 8 : 16,
				   *f == 'X');
			break;
		case 'p':
			s.alt = true;
			put_number(&o, &s, (uintptr_t)va_arg(ap, void *), false, 16, false);
			break;
		case 'c': {
			char c = (char)va_arg(ap, int);

			put_string(&o, &s, &c, 1);
			break;
		}
		case 's': {
			const char *str = va_arg(ap, const char *);
			size_t n = 0, max = s.precision >= 0 ? (size_t)s.precision : SIZE_MAX;

			if (str == NULL)
				str = "(null)";
			while (n < max && str[n] != '\0')
				n++;
			put_string(&o, &s, str, n);
			break;
		}
		case '%':
			put(&o, '%');
			break;
		default:
			put(&o, '%');
			if (*f == '\0')
				f--;
			else
				put(&o, *f);
		}
	}
	va_end(ap);
	if (size > 0)
		buf[o.len < size ? o.len : size - 1] = '\0';
	return (int)o.len;
}

int ksnprintf(char *buf, size_t size, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = kvsnprintf(buf, size, fmt, ap);
	va_end(ap);
	return n;
}
