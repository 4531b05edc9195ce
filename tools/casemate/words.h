/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command lines of verbs that ask casemated. Each verb has a table of its options, from
 * which they are read and `--help` is printed; those with a word of the protocol become a
 * NAME=VALUE of the request, the others are the verb's own.
 */
#ifndef CASEMATE_TOOLS_WORDS_H
#define CASEMATE_TOOLS_WORDS_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/casemate/session.h"

#define WORDS_MAX	1100u
#define WORDS_OWN_MAX	16u

struct option_rule {
	const char *option;	/* --NAME */
	const char *word;	/* the protocol's, with its '='; "" for the verb's own */
	char kind;		/* 'v' has a value, 'p' that is a path, 'y' none: yes, 'n': no */
	const char *value, *help;	/* for --help: the value's name, what it is */
};

#define OPTION_SOCKET	{ "--socket", "", 'v', "PATH", "the daemon's socket" }
#define OPTION_JSON	{ "--json", "", 'y', NULL, "the answer as JSON" }
#define OPTIONS_END	{ NULL, NULL, 0, NULL, NULL }

struct words {
	struct {
		const char *option, *value;
	} own[WORDS_OWN_MAX];
	unsigned int own_count;
	const char *words[WORDS_MAX];	/* of the request, made here */
	unsigned int count;
	char *rest[WORDS_MAX];		/* those that are no options */
	unsigned int rest_count;
	char **command;			/* behind --, or NULL */
};

/* Adds a word of the request, in two parts. Returns 0, or EXIT_CASEMATE after saying why. */
int words_add(struct words *w, const char *first, const char *second);

/* The value of an option of the verb's own, "" if it has none; NULL: it was not given. */
const char *words_own(const struct words *w, const char *option);

/* Reads the command line; usage is printed for --help. Returns whether to go on; else the exit
 * status is in *ret_status. least, most: how many words there are that are no options. */
bool words_read(struct words *w, const struct option_rule *rules, int argc, char **argv,
		unsigned int least, unsigned int most, const char *usage, int *ret_status);
/* The same, and connects. start: a daemon is started where there is none. */
bool words_begin(struct words *w, const struct option_rule *rules, int argc, char **argv,
		 unsigned int least, unsigned int most, bool start, const char *usage,
		 struct casemate **ret, int *ret_status);

/* One request: verb, name (NULL: none, as third), then the words read. Returns 0, or
 * EXIT_CASEMATE after saying why. */
int words_ask(struct casemate *c, const struct words *w, const char *verb, const char *second,
	      const char *third);
/* The same without saying anything: as casemate_call(). */
int words_call(struct casemate *c, const struct words *w, const char *verb, const char *second,
	       const char *third);

#endif
