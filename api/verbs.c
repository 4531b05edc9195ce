/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the verb of a line, and reading options; see server.h. */
#include "api/server.h"

#include <errno.h>
#include <string.h>

#include "base/value.h"

static int verb_hello(const struct request *q)
{
	uint32_t confined = q->client->server->pool->confined;
	struct answer a;

	answer_begin(&a, "+", q->line->tag);
	answer_pair(&a, "casemate", "%d", PROTOCOL_VERSION);
	answer_pair(&a, "release", "%s", CASEMATE_VERSION);
	answer_pair(&a, "uid", "%u", q->client->uid);
	answer_pair(&a, "role", "%s", q->client->admin ? "admin" : "operator");
	answer_pair(&a, "engine", "%s", q->client->server->user);
	answer_pair(&a, "confined", "jail%s%s%s%s", confined & BOUNDARY_USERS ? ",users" : "",
		    confined & BOUNDARY_ROOTS ? ",roots" : "",
		    confined & BOUNDARY_NO_NET ? ",no-network" : "",
		    confined & BOUNDARY_GROUPS ? ",cgroups" : "");
	answer_pair(&a, "caps", "snapshot,fork,template,pool,pty,attach,window,events,metrics,"
		    "files,connect,forward,pause,suspend,incremental");
	answer_send(&a, q->client);
	return 0;
}

static int verb_help(const struct request *q);

static const struct verb verbs_base[] = {
	{ "hello", verb_hello, 1, "hello", false },
	{ "help", verb_help, 1, "help", false },
	{ NULL, NULL, 0, NULL, false },
};

static const struct verb *const tables[] = { verbs_base, verbs_vm, verbs_pause, verbs_exec,
					    verbs_file, verbs_forward, verbs_pool };

static int verb_help(const struct request *q)
{
	struct answer a;

	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		for (const struct verb *v = tables[i]; v->name; v++) {
			answer_begin(&a, "*", q->line->tag);
			answer_word(&a, v->usage);
			answer_send(&a, q->client);
		}
	}
	reply_ok(q);
	return 0;
}

static const struct verb *verb_find(const char *name)
{
	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		for (const struct verb *v = tables[i]; v->name; v++) {
			if (!strcmp(v->name, name))
				return v;
		}
	}
	return NULL;
}

void verb_dispatch(struct client *client, const struct line *line)
{
	const struct request q = { client, line };
	const struct verb *v;

	if (line->why) {
		fail(&q, EBADMSG, "%s", line->why);
		return;
	}
	if (line->count == 0) {
		/* An empty line keeps the connection alive, no more. */
		if (line->tag[0] || line->has_chunk)
			fail(&q, EBADMSG, "a tag or chunk without a verb");
		return;
	}
	v = verb_find(line->words[0]);
	if (!v)
		fail(&q, EOPNOTSUPP, "there is no verb %.40s", line->words[0]);
	else if (line->count < v->words)
		fail(&q, EINVAL, "usage: %s", v->usage);
	else if (line->has_chunk != v->chunk)
		fail(&q, EINVAL, v->chunk ? "%s wants a chunk: a last word #N, and N bytes" :
		     "%s takes no chunk (a last word #N; quote it)", v->name);
	else
		v->run(&q);
}

/* ---- What words name ---- */

bool client_may_see(const struct client *c, uid_t owner)
{
	return c->admin || c->uid == owner;
}

struct vm *request_vm(const struct request *q, const char *name)
{
	struct vm *vm = pool_vm_find(q->client->server->pool, name);

	if (!vm || vm->role != VM_LEASED || !client_may_see(q->client, vm->owner)) {
		fail(q, ENOENT, "there is no VM %.64s", name);
		return NULL;
	}
	return vm;
}

struct exec *request_exec(const struct request *q, const char *id)
{
	struct exec *exec = NULL;
	uint64_t number;

	if (value_number(id, UINT64_MAX, &number) == 0)
		exec = pool_exec_find(q->client->server->pool, number);
	if (!exec || !client_may_see(q->client, exec->owner)) {
		fail(q, ENOENT, "there is no command %.24s, or it ended long ago", id);
		return NULL;
	}
	return exec;
}

/* ---- Options ---- */

static size_t options_end(const struct line *line)
{
	for (size_t i = 1; i < line->count; i++) {
		if (!strcmp(line->words[i], "--"))
			return i;
	}
	return line->count;
}

const char *option(const struct request *q, const char *name)
{
	size_t n = strlen(name), end = options_end(q->line);

	for (size_t i = 1; i < end; i++) {
		const char *word = q->line->words[i];

		if (!strncmp(word, name, n) && word[n] == '=')
			return word + n + 1;
	}
	return NULL;
}

static bool name_in(const char *names, const char *word, size_t len)
{
	for (const char *at = names; *at;) {
		size_t n = strcspn(at, " ");

		if (n == len && !strncmp(at, word, len))
			return true;
		at += n + (at[n] == ' ');
	}
	return false;
}

static bool is_repeated(const struct request *q, size_t from, size_t at, size_t prefix)
{
	for (size_t i = from; i < at; i++) {
		if (!strncmp(q->line->words[i], q->line->words[at], prefix))
			return true;
	}
	return false;
}

int options_known(const struct request *q, size_t from, const char *names)
{
	for (size_t i = from; i < options_end(q->line); i++) {
		const char *word = q->line->words[i];
		size_t len = strcspn(word, "=");

		if (word[len] != '=' || !name_in(names, word, len))
			return fail(q, EINVAL, "%.60s is no option here; there are: %s",
				    word, names[0] ? names : "none");
		if (strncmp(word, "env=", 4) && is_repeated(q, from, i, len + 1))
			return fail(q, EINVAL, "%.60s is given twice", word);
	}
	return 0;
}

int option_size(const struct request *q, const char *name, uint64_t *ret)
{
	const char *text = option(q, name);

	if (text && value_size(text, ret) < 0)
		return fail(q, EINVAL, "%s wants a size such as 256M, not %.40s", name, text);
	return 0;
}

int option_time(const struct request *q, const char *name, uint64_t *ret)
{
	const char *text = option(q, name);

	if (text && value_time(text, VALUE_TIME_MAX, ret) < 0)
		return fail(q, EINVAL, "%s wants a time such as 30s, not %.40s", name, text);
	return 0;
}

int option_number(const struct request *q, const char *name, uint64_t max, uint64_t *ret)
{
	const char *text = option(q, name);

	if (text && value_number(text, max, ret) < 0)
		return fail(q, EINVAL, "%s wants a number up to %llu, not %.40s", name,
			    (unsigned long long)max, text);
	return 0;
}

int option_bool(const struct request *q, const char *name, bool *ret)
{
	const char *text = option(q, name);

	if (text && value_bool(text, ret) < 0)
		return fail(q, EINVAL, "%s wants yes or no, not %.40s", name, text);
	return 0;
}

int option_path(const struct request *q, const char *name, const char **ret)
{
	const char *path = option(q, name);

	if (path && !q->client->admin)
		return fail(q, EACCES, "operators name no files: use a template, or leave out "
			    "%s", name);
	if (path && path[0] != '/')
		return fail(q, EINVAL, "%s wants an absolute path, not %.60s", name, path);
	if (path && strlen(path) >= PATH_MAX)
		return fail(q, EINVAL, "%s is too long a path", name);
	*ret = path;
	return 0;
}
