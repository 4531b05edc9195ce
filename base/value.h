/* SPDX-License-Identifier: Apache-2.0 */
/* Values of options, on command lines and in the line protocol. All return 0 or -EINVAL. */
#ifndef CASEMATE_BASE_VALUE_H
#define CASEMATE_BASE_VALUE_H

#include <stdbool.h>
#include <stdint.h>

/* Decimal digits. */
int value_number(const char *text, uint64_t max, uint64_t *ret);
/* With K, M or G behind it, powers of 1024. */
int value_size(const char *text, uint64_t *ret_bytes);
/* With ms, s, m or h behind it; a bare number is seconds. max_ns: of the line protocol,
 * VALUE_TIME_MAX. */
#define VALUE_TIME_MAX	(1000ull * 24 * 3600 * 1000000000)	/* 1000 days */
int value_time(const char *text, uint64_t max_ns, uint64_t *ret_ns);
/* yes or no */
int value_bool(const char *text, bool *ret);
/* A number from 1 to 64, or a name with or without SIG. */
int value_signal(const char *text, uint32_t *ret_number);

#endif
