/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one error doctrine of the host code.
 *
 * A function that can fail returns int: 0 is done; a positive value is a documented result
 * that the caller must look at; a negative value is -errno, fatal to what was asked for, and
 * is handed on. Outputs are named ret_x and are untouched on failure.
 *
 * Libraries do not log. Where a person has to act, the function takes a struct err and says in
 * one line what is wrong and what to do next; the edge (a main(), the last frame to a client)
 * prints it once. Only the first reason is kept: later ones are consequences.
 */
#ifndef CASEMATE_BASE_ERR_H
#define CASEMATE_BASE_ERR_H

#include <stdbool.h>

#define ERR_TEXT_MAX	320

struct err {
	int code;			/* -errno, 0 when nothing is set */
	char text[ERR_TEXT_MAX];	/* one line, no newline at the end */
};

#define ERR_INIT	{ .code = 0, .text = "" }

/* Sets the reason unless one is set already. code: errno, of either sign. Returns -errno. */
int err_set(struct err *err, int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* As err_set(), with ": <strerror>" at the end. */
int err_set_errno(struct err *err, int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
