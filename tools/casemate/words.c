/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines of verbs that ask casemated; see words.h. */
#include "tools/casemate/words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/casemate/casemate.h"

#define HELP_COLUMN	22

static const struct option_rule *rule_find(const struct option_rule *rules, const char *word)
{
	for (; rules->option; rules++) {
		if (!strcmp(rules->option, word))
			return rules;
	}
	return NULL;
}

int words_add(struct words *w, const char *first, const char *second)
{
	size_t n = strlen(first) + strlen(second) + 1;
	char *text = malloc(n);

	if (!text || w->count == WORDS_MAX - 1)
		return casemate_fail("too many words");
	snprintf(text, n, "%s%s", first, second);
	w->words[w->count++] = text;
	w->words[w->count] = NULL;
	return 0;
}

const char *words_own(const struct words *w, const char *option)
{
	/* The last one counts. */
	for (unsigned int i = w->own_count; i > 0; i--) {
		if (!strcmp(w->own[i - 1].option, option))
			return w->own[i - 1].value;
	}
	return NULL;
}

static int option_take(struct words *w, const struct option_rule *rule, const char *value)
{
	char path[PATH_MAX];

	if (!rule->word[0]) {
		if (w->own_count == WORDS_OWN_MAX)
			return casemate_fail("too many options");
		w->own[w->own_count].option = rule->option;
		w->own[w->own_count++].value = value;
		return 0;
	}
	if (rule->kind == 'p' && session_path(value, path))
		return EXIT_CASEMATE;
	return words_add(w, rule->word, rule->kind == 'p' ? path : rule->kind == 'y' ? "yes" :
			 rule->kind == 'n' ? "no" : value);
}

static bool has_value(const struct option_rule *rule)
{
	return rule->kind == 'v' || rule->kind == 'p';
}

static void help(const struct option_rule *rules, const char *usage)
{
	printf("usage: casemate %s\n", usage);
	for (; rules->option; rules++) {
		const char *value = rules->value ? rules->value : "VALUE";
		int n = printf("  %s%s%s", rules->option, has_value(rules) ? " " : "",
			       has_value(rules) ? value : "");

		printf("%*s%s\n", n < HELP_COLUMN ? HELP_COLUMN - n : 1, "",
		       rules->help ? rules->help : "");
	}
}

/* Returns 0 with *ret_help set when that was printed, or EXIT_CASEMATE. */
static int line_read(struct words *w, const struct option_rule *rules, int argc, char **argv,
		     const char *usage, bool *ret_help)
{
	*ret_help = false;
	for (int i = 1; i < argc; i++) {
		const struct option_rule *rule = rule_find(rules, argv[i]);
		bool wants = rule && has_value(rule);

		if (!strcmp(argv[i], "--")) {
			w->command = argv + i + 1;
			return 0;
		}
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
			help(rules, usage);
			*ret_help = true;
			return 0;
		}
		if (!rule && argv[i][0] == '-' && argv[i][1])
			return casemate_fail("unknown option %s; see casemate %s --help",
					     argv[i], argv[0]);
		if (wants && i + 1 == argc)
			return casemate_fail("%s wants a value; see casemate %s --help",
					     argv[i], argv[0]);
		if (rule && option_take(w, rule, wants ? argv[++i] : ""))
			return EXIT_CASEMATE;
		if (!rule && w->rest_count == WORDS_MAX)
			return casemate_fail("too many words");
		if (!rule)
			w->rest[w->rest_count++] = argv[i];
	}
	return 0;
}

bool words_read(struct words *w, const struct option_rule *rules, int argc, char **argv,
		unsigned int least, unsigned int most, const char *usage, int *ret_status)
{
	bool helped;

	*ret_status = line_read(w, rules, argc, argv, usage, &helped);
	if (*ret_status || helped)
		return false;
	if (w->rest_count >= least && w->rest_count <= most)
		return true;
	*ret_status = casemate_fail("usage: casemate %s", usage);
	return false;
}

bool words_begin(struct words *w, const struct option_rule *rules, int argc, char **argv,
		 unsigned int least, unsigned int most, bool start, const char *usage,
		 struct casemate **ret, int *ret_status)
{
	if (!words_read(w, rules, argc, argv, least, most, usage, ret_status))
		return false;
	*ret_status = session_open(ret, words_own(w, "--socket"), start);
	return *ret_status == 0;
}

int words_call(struct casemate *c, const struct words *w, const char *verb, const char *second,
	       const char *third)
{
	const char *words[WORDS_MAX + 3] = { verb };
	size_t n = 1;

	if (second)
		words[n++] = second;
	if (third)
		words[n++] = third;
	for (unsigned int i = 0; i < w->count; i++)
		words[n++] = w->words[i];
	return casemate_call_words(c, words, n);
}

int words_ask(struct casemate *c, const struct words *w, const char *verb, const char *second,
	      const char *third)
{
	return words_call(c, w, verb, second, third) ? session_fail(c) : 0;
}
