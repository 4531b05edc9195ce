/* SPDX-License-Identifier: Apache-2.0 */
/* libcasemate: the connection, its answers and streams; see client.h and casemate.h. */
#include "api/client.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "api/line.h"
#include "api/path.h"
#include "base/fd.h"

#define READ_SIZE	65536u
#define UNASKED		"unasked"	/* tag of requests whose answer nobody waits for */

static int answer_wait(struct casemate *c);

int client_broken(struct casemate *c, int error, const char *what)
{
	snprintf(c->message, sizeof(c->message), "%s%s%s", what, error ? ": " : "",
		 error ? strerror(error) : "");
	snprintf(c->hint, sizeof(c->hint), "casemate doctor looks for what is wrong");
	c->broken = true;
	return error ? -error : -EPROTO;
}

static void list_free(struct kept **list)
{
	while (*list) {
		struct kept *k = *list;

		*list = k->next;
		free(k);
	}
}

void client_answer_drop(struct casemate *c)
{
	list_free(&c->answer);
	for (size_t i = 0; i < c->item_count; i++)
		free(c->items[i]);
	c->item_count = c->item_bytes = 0;
	c->error = 0;
	c->code[0] = c->message[0] = c->hint[0] = '\0';
}

API int casemate_open(struct casemate **ret, const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct casemate *c = calloc(1, sizeof(*c));
	struct err err = ERR_INIT;

	*ret = c;
	if (!c)
		return -ENOMEM;
	c->stream_end = &c->stream;
	line_reader_init(&c->reader);
	line_reader_init(&c->watch);
	c->text = malloc(LINE_BYTES_MAX);
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (!c->text || c->fd < 0)
		return client_broken(c, c->text ? errno : ENOMEM, "cannot make a socket");
	if (api_socket_path(path, address.sun_path, sizeof(address.sun_path), &err) < 0) {
		client_broken(c, ENAMETOOLONG, "the daemon's socket");
		snprintf(c->hint, sizeof(c->hint), "name one of at most %zu bytes with --socket "
			 "or CASEMATE_SOCKET", sizeof(address.sun_path) - 1);
		return -ENAMETOOLONG;
	}
	if (connect(c->fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		char what[160];
		int error = errno;

		snprintf(what, sizeof(what), "cannot reach casemated at %.110s",
			 address.sun_path);
		client_broken(c, error, what);
		if (error == EACCES)
			snprintf(c->hint, sizeof(c->hint), "be its user or root, or a member of "
				 "its --group");
		return -error;
	}
	/* The greeting is an answer like others, or the refusal to serve us. */
	return answer_wait(c);
}

API void casemate_close(struct casemate *c)
{
	if (!c)
		return;
	client_answer_drop(c);
	list_free(&c->stream);
	list_free(&c->given);
	line_reader_done(&c->reader);
	line_reader_done(&c->watch);
	free(c->items);
	free(c->text);
	fd_close(c->fd);
	free(c);
}

API int casemate_fd(const struct casemate *c)
{
	return c->fd;
}

/* ---- Reading ---- */

struct kept *client_line_keep(const struct line *line, const char *sign)
{
	size_t count = line->count + (sign != NULL);
	size_t size = sizeof(struct kept) + (count + 1) * sizeof(char *) + line->chunk_len;
	struct kept *k;
	/* A tag stands behind the sign. */
	bool tagged = !sign && line->count > 1 && line->words[1][0] == '@';
	char *at;

	size += sign ? strlen(sign) + 1 : 0;
	for (size_t i = 0; i < line->count; i++)
		size += strlen(line->words[i]) + 1;
	k = malloc(size);
	if (!k)
		return NULL;
	*k = (struct kept){ .size = size, .chunk_len = line->chunk_len };
	at = (char *)(k->words + count + 1);
	if (sign) {
		k->words[k->count++] = strcpy(at, sign);
		at += strlen(sign) + 1;
	}
	for (size_t i = 0; i < line->count; i++) {
		size_t n = strlen(line->words[i]) + 1;

		if (i == 1 && tagged) {
			snprintf(k->tag, sizeof(k->tag), "%s", line->words[1] + 1);
			continue;
		}
		k->words[k->count++] = memcpy(at, line->words[i], n);
		at += n;
	}
	k->words[k->count] = NULL;
	k->chunk = (uint8_t *)at;
	if (line->chunk_len > 0)
		memcpy(at, line->chunk, line->chunk_len);
	return k;
}

int client_item_add(struct casemate *c, struct kept *k)
{
	if (k->size > CASEMATE_LIST_MAX - c->item_bytes)
		return -E2BIG;
	if (c->item_count == c->item_cap) {
		size_t cap = c->item_cap * 2 + 16;
		struct kept **items = realloc(c->items, cap * sizeof(struct kept *));

		if (!items)
			return -ENOMEM;
		c->items = items;
		c->item_cap = cap;
	}
	c->items[c->item_count++] = k;
	c->item_bytes += k->size;
	return 0;
}

/* Puts a line of a stream aside, for casemate_next(). Returns 0, or -errno with it freed. */
static int stream_keep(struct casemate *c, struct kept *k)
{
	if (k->size > CASEMATE_KEPT_MAX - c->kept_bytes) {
		free(k);
		return client_broken(c, ENOBUFS, "casemated says more than is taken from it");
	}
	c->kept_bytes += k->size;
	*c->stream_end = k;
	c->stream_end = &k->next;
	return 0;
}

/* Waits for bytes. Returns 1, 0 when the time is over, or -errno. */
static int receive(struct casemate *c, int timeout_ms)
{
	struct pollfd p = { c->fd, POLLIN, 0 };
	uint8_t bytes[READ_SIZE];
	ssize_t n;
	int r = timeout_ms >= 0 ? poll(&p, 1, timeout_ms) : 1;

	if (r == 0)
		return 0;
	if (r < 0)
		return errno == EINTR ? 0 : client_broken(c, errno, "cannot wait for casemated");
	do {
		n = recv(c->fd, bytes, sizeof(bytes), 0);
	} while (n < 0 && errno == EINTR);
	if (n == 0)
		return client_broken(c, ECONNRESET, "casemated closed the connection");
	if (n < 0)
		return client_broken(c, errno, "the connection to casemated was lost");
	if (line_reader_give(&c->reader, bytes, (size_t)n) < 0)
		return client_broken(c, ENOMEM, "no memory for what casemated says");
	return 1;
}

/* The next line whatever it is. Returns 1, 0 or -errno. A line's sign is its first word: "+",
 * "*", "!" or "-CODE"; a tag may follow it. */
static int line_next(struct casemate *c, struct kept **ret, int timeout_ms)
{
	const struct line *line;

	if (c->broken)
		return -EPIPE;
	for (;;) {
		int r = line_reader_next(&c->reader, &line);

		if (r < 0)
			return client_broken(c, -r, "casemated does not speak the protocol");
		if (r > 0) {
			if (line->why || line->count == 0)
				return client_broken(c, 0, "casemated does not speak the protocol");
			*ret = client_line_keep(line, NULL);
			return *ret ? 1 : client_broken(c, ENOMEM, "no memory for what casemated "
							"says");
		}
		r = receive(c, timeout_ms);
		if (r <= 0)
			return r;
	}
}

static const char *kept_value(const struct kept *k, const char *name)
{
	size_t n = strlen(name);

	for (size_t i = 1; k && i < k->count; i++) {
		if (!strncmp(k->words[i], name, n) && k->words[i][n] == '=')
			return k->words[i] + n + 1;
	}
	return NULL;
}

static const char *kept_word(const struct kept *k, size_t n)
{
	return k && n + 1 < k->count ? k->words[n + 1] : NULL;
}

static int answer_take(struct casemate *c, struct kept *k)
{
	const char *hint = kept_value(k, "hint");

	c->answer = k;
	if (k->words[0][0] == '+')
		return 0;
	snprintf(c->code, sizeof(c->code), "%s", k->words[0] + 1);
	snprintf(c->message, sizeof(c->message), "%s", k->count > 1 ? k->words[1] : "refused");
	snprintf(c->hint, sizeof(c->hint), "%s", hint ? hint : "");
	return CASEMATE_REFUSED;
}

static int answer_wait(struct casemate *c)
{
	for (;;) {
		struct kept *k;
		int r = line_next(c, &k, -1);

		if (r == 0)
			continue;
		if (r < 0)
			return r;
		switch (k->words[0][0]) {
		case '+':
		case '-':
			if (!strcmp(k->tag, c->tag) || (!k->tag[0] && k->words[0][0] == '-'))
				return answer_take(c, k);
			/* A refusal of stdin or credit: the end of what it was for says so. */
			free(k);
			break;
		case '*':
			r = client_item_add(c, k);
			if (r == 0)
				break;
			free(k);
			return client_broken(c, -r, "cannot hold what casemated says");
		case '!':
			r = stream_keep(c, k);
			if (r < 0)
				return r;
			break;
		default:
			free(k);
			return client_broken(c, 0, "casemated does not speak the protocol");
		}
	}
}

/* ---- Asking ---- */

/* A line and its chunk in one call where they fit, so that the daemon wakes up once. */
static int all_send(struct casemate *c, const void *text, size_t len, const void *chunk,
		    size_t chunk_len)
{
	struct iovec parts[2] = { { (void *)text, len }, { (void *)chunk, chunk_len } };
	struct msghdr m = { .msg_iov = parts, .msg_iovlen = 2 };

	while (parts[0].iov_len + parts[1].iov_len > 0) {
		ssize_t n = sendmsg(c->fd, &m, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return client_broken(c, errno, "the connection to casemated was lost");
		for (int i = 0; i < 2; i++) {
			size_t took = (size_t)n < parts[i].iov_len ? (size_t)n :
				      parts[i].iov_len;

			parts[i].iov_base = (uint8_t *)parts[i].iov_base + took;
			parts[i].iov_len -= took;
			n -= (ssize_t)took;
		}
	}
	return 0;
}

/* tag: "" for what is answered only when it fails. */
static int words_send(struct casemate *c, const char *tag, const char *const *words,
		      size_t count, const void *chunk, size_t chunk_len)
{
	size_t len;
	int r = 0;

	if (c->broken)
		return -EPIPE;
	len = (size_t)snprintf(c->text, LINE_BYTES_MAX, "@%s", tag[0] ? tag : UNASKED);
	for (size_t i = 0; i < count && r == 0; i++)
		r = line_word_add(c->text, LINE_BYTES_MAX - 32, &len, words[i]);
	if (r < 0) {
		snprintf(c->code, sizeof(c->code), "TOOBIG");
		snprintf(c->message, sizeof(c->message), "the request is longer than %u bytes",
			 LINE_BYTES_MAX);
		return CASEMATE_REFUSED;
	}
	if (chunk)
		len += (size_t)snprintf(c->text + len, 32, " #%zu", chunk_len);
	c->text[len++] = '\n';
	return all_send(c, c->text, len, chunk, chunk_len);
}

int client_say(struct casemate *c, const char *const *words, size_t count, const void *chunk,
	       size_t chunk_len)
{
	return words_send(c, "", words, count, chunk, chunk_len);
}

API int casemate_call_words(struct casemate *c, const char *const *words, size_t count)
{
	int r;

	client_answer_drop(c);
	if (c->broken)
		return client_broken(c, EPIPE, "the connection to casemated was lost");
	snprintf(c->tag, sizeof(c->tag), "c%llu", (unsigned long long)++c->calls);
	r = words_send(c, c->tag, words, count, NULL, 0);
	return r ? r : answer_wait(c);
}

API int casemate_call(struct casemate *c, const char *word, ...)
{
	const char *words[64] = { word };
	size_t count = 1;
	va_list args;

	va_start(args, word);
	while (count < 64 && (words[count] = va_arg(args, const char *)))
		count++;
	va_end(args);
	return casemate_call_words(c, words, count);
}

API const char *casemate_code(const struct casemate *c)
{
	return c->code;
}

API const char *casemate_message(const struct casemate *c)
{
	return c->message;
}

API const char *casemate_hint(const struct casemate *c)
{
	return c->hint;
}

API const char *casemate_value(const struct casemate *c, const char *name)
{
	return kept_value(c->answer, name);
}

API const char *casemate_word(const struct casemate *c, size_t n)
{
	return kept_word(c->answer, n);
}

API const void *casemate_chunk(const struct casemate *c, size_t *ret_len)
{
	*ret_len = c->answer ? c->answer->chunk_len : 0;
	return c->answer ? c->answer->chunk : NULL;
}

API size_t casemate_items(const struct casemate *c)
{
	return c->item_count;
}

static const struct kept *item_find(const struct casemate *c, size_t item)
{
	return item < c->item_count ? c->items[item] : NULL;
}

API const char *casemate_item_value(const struct casemate *c, size_t item, const char *name)
{
	return kept_value(item_find(c, item), name);
}

API const char *casemate_item_word(const struct casemate *c, size_t item, size_t n)
{
	return kept_word(item_find(c, item), n);
}

/* ---- Commands ---- */

size_t client_words_count(const char *const *words)
{
	size_t n = 0;

	while (words && words[n])
		n++;
	return n;
}

/* first, options, "--" and argv (each NULL: none). *ret: the answer's number `name`. */
static int command_call(struct casemate *c, const char *const *first,
			const char *const *options, const char *const *argv, const char *name,
			unsigned long long *ret)
{
	const char *const *const lists[] = { first, options,
					     argv ? (const char *const[]){ "--", NULL } : NULL,
					     argv };
	const char **words = calloc(client_words_count(first) + client_words_count(options) +
				    client_words_count(argv) + 1, sizeof(*words));
	const char *number;
	size_t count = 0;
	int r;

	if (!words)
		return -ENOMEM;
	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		for (const char *const *word = lists[i]; word && *word; word++)
			words[count++] = *word;
	}
	r = casemate_call_words(c, words, count);
	free(words);
	number = r == 0 ? casemate_value(c, name) : NULL;
	if (number)
		*ret = strtoull(number, NULL, 10);
	return r;
}

API int casemate_exec(struct casemate *c, const char *vm, const char *const *argv,
		      const char *const *options, unsigned long long *ret_exec)
{
	const char *const first[] = { "exec", vm, NULL };

	return command_call(c, first, options, argv, "exec", ret_exec);
}

API int casemate_connect(struct casemate *c, const char *vm, const char *target,
			 const char *const *options, unsigned long long *ret_exec)
{
	const char *const first[] = { "connect", vm, target, NULL };

	return command_call(c, first, options, NULL, "exec", ret_exec);
}

API int casemate_forward(struct casemate *c, const char *vm, const char *listen,
			 const char *target, const char *const *options,
			 unsigned long long *ret_forward)
{
	const char *const first[] = { "forward", vm, listen, target, NULL };

	return command_call(c, first, options, NULL, "forward", ret_forward);
}

API int casemate_stdin(struct casemate *c, unsigned long long exec, const void *data,
		       size_t len)
{
	char id[24];
	const char *words[] = { "stdin", id };

	if (len > LINE_CHUNK_MAX)
		return -EMSGSIZE;
	snprintf(id, sizeof(id), "%llu", exec);
	return words_send(c, "", words, 2, data ? data : "", len);
}

API int casemate_close_stdin(struct casemate *c, unsigned long long exec)
{
	char id[24];

	snprintf(id, sizeof(id), "%llu", exec);
	return casemate_call(c, "close-stdin", id, NULL);
}

API int casemate_credit(struct casemate *c, unsigned long long exec, size_t bytes)
{
	char id[24], text[24];
	const char *words[] = { "credit", id, text };

	snprintf(id, sizeof(id), "%llu", exec);
	snprintf(text, sizeof(text), "%zu", bytes);
	return words_send(c, "", words, 3, NULL, 0);
}

static unsigned long long kept_exec(const struct kept *k)
{
	const char *id = kept_value(k, "exec");

	return id ? strtoull(id, NULL, 10) : 0;
}

static int value_int(const struct kept *k, const char *name)
{
	const char *text = kept_value(k, name);

	return text ? atoi(text) : 0;
}

static void end_read(const struct kept *k, const char *what, struct casemate_event *e)
{
	e->kind = CASEMATE_END;
	e->end = !strcmp(what, "exit") ? CASEMATE_EXIT :
		 !strcmp(what, "failed") ? CASEMATE_FAILED : CASEMATE_LOST;
	e->code = value_int(k, "code");
	e->signal = value_int(k, "signal");
	e->error = value_int(k, "errno");
	e->timed_out = kept_value(k, "timeout") != NULL;
	e->truncated = kept_value(k, "truncated") != NULL;
	e->text = kept_value(k, e->end == CASEMATE_FAILED ? "step" : "reason");
	if (!e->text)
		e->text = "";
}

static bool is_end(const char *what)
{
	return !strcmp(what, "exit") || !strcmp(what, "failed") || !strcmp(what, "lost");
}

/* Returns 1, or 0 for what is not known here. */
static int exec_event_read(const struct kept *k, const char *what, struct casemate_event *e)
{
	const char *at = kept_value(k, "at");

	e->at = at ? strtoull(at, NULL, 10) : 0;
	if (!strcmp(what, "stdout"))
		e->kind = CASEMATE_STDOUT;
	else if (!strcmp(what, "stderr"))
		e->kind = CASEMATE_STDERR;
	else if (!strcmp(what, "stdout-end"))
		e->kind = CASEMATE_STDOUT_END;
	else if (!strcmp(what, "stdin-credit")) {
		e->kind = CASEMATE_STDIN_CREDIT;
		e->len = (size_t)value_int(k, "bytes");
	} else if (is_end(what)) {
		end_read(k, what, e);
	} else {
		return 0;
	}
	return 1;
}

static int forward_event_read(const struct kept *k, const char *what, struct casemate_event *e)
{
	const char *reason = kept_value(k, "reason");

	if (strcmp(what, "failed") && strcmp(what, "ended"))
		return 0;
	e->kind = what[0] == 'f' ? CASEMATE_FORWARD_FAILED : CASEMATE_FORWARD_ENDED;
	e->text = reason ? reason : "";
	return 1;
}

/* Returns 1, 0 for what is to be skipped, or -errno. */
static int event_read(struct casemate *c, const struct kept *k, struct casemate_event *e)
{
	const char *exec = kept_value(k, "exec"), *forward = kept_value(k, "forward");
	const char *what = k->count > 2 ? k->words[2] : "";

	*e = (struct casemate_event){ .kind = CASEMATE_EVENT, .data = k->chunk,
				      .len = k->chunk_len, .text = what };
	if (exec) {
		e->exec = strtoull(exec, NULL, 10);
		return exec_event_read(k, what, e);
	}
	if (forward) {
		e->forward = strtoull(forward, NULL, 10);
		return forward_event_read(k, what, e);
	}
	return kept_value(k, "event") ? 1 :
		client_broken(c, 0, "casemated does not speak the protocol");
}

/* Takes the first line out of the list that is of a command, or of any (0). */
static struct kept *stream_take(struct casemate *c, unsigned long long exec)
{
	struct kept **at = &c->stream, *k;

	while (*at && exec && kept_exec(*at) != exec)
		at = &(*at)->next;
	k = *at;
	if (!k)
		return NULL;
	*at = k->next;
	if (!*at)
		c->stream_end = at;
	c->kept_bytes -= k->size;
	k->next = NULL;
	return k;
}

/* Returns 1 with c->given, 0 or -errno. */
static int stream_next(struct casemate *c, unsigned long long exec, int timeout_ms)
{
	struct kept *k;
	int r;

	list_free(&c->given);
	k = stream_take(c, exec);
	while (!k) {
		r = line_next(c, &k, timeout_ms);
		if (r <= 0)
			return r;
		if (k->words[0][0] == '-' || !strcmp(k->tag, UNASKED)) {
			/* Nobody waits for it: the end of what it was for says enough. */
			free(k);
			k = NULL;
		} else if (k->words[0][0] != '!') {
			free(k);
			return client_broken(c, 0, "casemated does not speak the protocol");
		} else if (exec && kept_exec(k) != exec) {
			r = stream_keep(c, k);
			if (r < 0)
				return r;
			k = NULL;
		}
	}
	c->given = k;
	return 1;
}

static int next(struct casemate *c, unsigned long long exec, struct casemate_event *ret,
		int timeout_ms)
{
	int r;

	/* What is not known here is skipped. */
	do {
		r = stream_next(c, exec, timeout_ms);
		if (r <= 0)
			return r;
		r = event_read(c, c->given, ret);
	} while (r == 0);
	return r;
}

int client_next_of(struct casemate *c, unsigned long long exec, struct casemate_event *ret,
		   int timeout_ms)
{
	return next(c, exec, ret, timeout_ms);
}

API int casemate_next(struct casemate *c, struct casemate_event *ret, int timeout_ms)
{
	return next(c, 0, ret, timeout_ms);
}

API const char *casemate_event_value(const struct casemate *c, const char *name)
{
	return kept_value(c->given, name);
}

API const char *casemate_event_word(const struct casemate *c, size_t n)
{
	return kept_word(c->given, n);
}
