/* SPDX-License-Identifier: Apache-2.0 */
/* The values of the line protocol's options. All return 0 or -EINVAL. */
#ifndef CASEMATE_API_VALUE_H
#define CASEMATE_API_VALUE_H

#include <stdbool.h>
#include <stdint.h>

/* Decimal digits. */
int value_number(const char *text, uint64_t max, uint64_t *ret);
/* With K, M or G behind it, powers of 1024. */
int value_size(const char *text, uint64_t *ret_bytes);
/* With ms, s, m or h behind it; a bare number is seconds. At most 1000 days. */
int value_time(const char *text, uint64_t *ret_ns);
/* yes or no */
int value_bool(const char *text, bool *ret);
/* A number from 1 to 64, or a name with or without SIG. */
int value_signal(const char *text, uint32_t *ret_number);

#endif
