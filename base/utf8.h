/* SPDX-License-Identifier: Apache-2.0 */
/* Text of unknown origin: where it is UTF-8, and what of it a terminal may be given. */
#ifndef CASEMATE_BASE_UTF8_H
#define CASEMATE_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The character that begins at bytes: how many bytes it takes, with its number in *ret; 0 when
 * they are no UTF-8 (RFC 3629: shortest form, no surrogates). len > 0. */
size_t utf8_decode(const uint8_t *bytes, size_t len, uint32_t *ret);

/* Prints text with a dot for all that could steer a terminal or change the order of what is
 * seen: control characters, bytes that are no UTF-8, marks of direction and of no width. */
void utf8_print_clean(FILE *to, const char *text, size_t len);

#endif
