/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's side of the line protocol: clients on a Unix socket (docs/PROTOCOL.md).
 *
 * server.c has the connections: it reads lines and writes what is queued. verbs*.c do what the
 * lines say, by calls into pool/. All of it runs in the loop's one thread.
 *
 * What is held for a client is bounded: one line and chunk that is not whole (line.h), OUT_CAP
 * bytes to be sent, CLIENT_PENDING requests under way. While any of these is at its mark the
 * client is not read. One that does not take its answers for long, or whose answers do not fit
 * any more, is cut; its VMs and commands go on unless they are bound to it.
 *
 * A client's turn (client_turn) comes at the end of the loop's turn whenever something of it
 * changed: lines are read, streams moved, bytes written, in this order.
 */
#ifndef CASEMATE_API_SERVER_H
#define CASEMATE_API_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "api/line.h"
#include "pool/pool.h"

#define PROTOCOL_VERSION	1
#define CLIENTS_MAX		1024u
#define CLIENTS_OPERATOR	256u	/* of one operator */
#define CLIENT_PENDING		256u
#define CLIENT_ATTACHED		64u
#define OUT_CAP			(4u << 20)
#define OUT_HIGH		(1u << 20)	/* requests are not read beyond this */
#define STREAM_HIGH		(128u << 10)	/* streams are not moved beyond this */
#define STREAM_PIECE		(32u << 10)	/* moved of one at a time: all have a turn */
#define SOCKET_ROOM		(64u << 10)	/* asked for; see socket(7), SO_SNDBUF */

struct server {
	struct evloop *loop;
	struct pool *pool;
	int fd;
	struct watch listener;
	const char *user;		/* that this process runs as */
	bool has_group;
	gid_t group;			/* its members may use the daemon */
	bool forward_any;		/* admins may listen at any address */
	bool session;			/* ends when nothing is left to do */
	uint64_t session_idle_ns, busy_ns;
	struct list clients, stops;	/* stops: pending ones of `stop` */
	uint32_t client_count;
	struct timer tick;
	bool stopping;
	uint64_t drain_until_ns;
	uint64_t clients_total, clients_cut;
};

struct client {
	struct list link;
	struct server *server;
	struct watch watch;
	int fd;
	uid_t uid;
	bool admin;			/* the daemon's own user, or root */
	struct line_reader reader;
	struct buf out;
	struct deferred turn;
	struct list pending, attached;
	uint32_t pending_count, attached_count;
	bool blocked;			/* a request without a tag is under way */
	bool eof, cut;
	bool full;			/* the socket takes nothing until EPOLLOUT */
	uint64_t heard_ns, moved_ns;	/* the last bytes from it, and to it */
	bool events;
	uint64_t events_lost;
	char events_tag[LINE_TAG_MAX + 1];
	struct pool_observer observer;
};

/* A request that is answered later. The waiter's owner; lives until it was told. */
struct pending {
	struct waiter waiter;
	struct list link;		/* of the client, or of nothing when that is gone */
	struct client *client;		/* NULL: gone */
	char tag[LINE_TAG_MAX + 1];
	bool untagged;
	/* The client is gone; NULL: what was begun goes on. Ends what it does not go on with, and
	 * then the request (pending_end()). */
	void (*lost)(struct pending *pending);
};

/* A command whose streams go to a client. */
struct attachment {
	struct exec_reader reader;
	struct list link;
	struct client *client;
	struct exec *exec;
	char tag[LINE_TAG_MAX + 1];
	bool windowed, bound;
	bool end_told;			/* of stdout */
	uint64_t window;		/* bytes that may be sent */
};

struct request {
	struct client *client;
	const struct line *line;
};

/* Starts serving on fd, which is taken and listens. Returns 0 or -errno with err set. */
int server_init(struct server *server, struct evloop *loop, struct pool *pool, int fd,
		struct err *err);
void server_done(struct server *server);
/* Ends all VMs, those with commands after `drain_ns`, and then the loop. */
void server_stop(struct server *server, uint64_t drain_ns);

void client_turn_later(struct client *client);
void client_cut(struct client *client);
/* Whether nobody is there any more to take an answer, noticed yet or not. */
bool client_is_gone(const struct client *client);
/* Queues bytes; cuts the client when they do not fit. */
void client_put(struct client *client, const void *data, size_t len);

/* ---- Answers ---- */

struct answer {
	char text[8192];
	size_t len;
};

/* sign: "+", "*", "!" or "-CODE". */
void answer_begin(struct answer *answer, const char *sign, const char *tag);
void answer_word(struct answer *answer, const char *word);
void answer_pair(struct answer *answer, const char *name, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* With a chunk of that many bytes, which the caller puts behind it. */
void answer_send_chunk(struct answer *answer, struct client *client, size_t chunk);
void answer_send(struct answer *answer, struct client *client);

void reply_ok(const struct request *q);
/* -CODE from err->code, which also brings the hint. */
void reply_err(struct client *client, const char *tag, const struct err *err);
/* Likewise, saying when to try again; 0: not known. */
void reply_err_retry(struct client *client, const char *tag, const struct err *err,
		     uint64_t after_ns);
int fail(const struct request *q, int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* For a request that is answered later: `size` bytes, beginning with a struct pending. NULL:
 * the request was answered with an error. pending_end() frees it. */
void *pending_new(const struct request *q, size_t size,
		  void (*done)(struct waiter *, void *, const struct err *));
void pending_end(struct pending *pending);
/* A waiter's `done` that answers `+` and no more, or what failed. */
void pending_done(struct waiter *waiter, void *what, const struct err *err);

/* ---- Verbs ---- */

struct verb {
	const char *name;
	int (*run)(const struct request *q);	/* negative: the request was answered so */
	size_t words;				/* at least, the verb counted */
	const char *usage;
	bool chunk;				/* takes one */
};

/* name NULL: end */
extern const struct verb verbs_vm[], verbs_pause[], verbs_exec[], verbs_file[],
	verbs_forward[], verbs_pool[];

void verb_dispatch(struct client *client, const struct line *line);

/* The VM or command that a word names, if the client may know of it; else the request was
 * answered with NOTFOUND. */
struct vm *request_vm(const struct request *q, const char *name);
struct exec *request_exec(const struct request *q, const char *id);
/* NULL, or a value that is good; *bad is set when the request was answered. */
int option_size(const struct request *q, const char *name, uint64_t *ret);
int option_time(const struct request *q, const char *name, uint64_t *ret);
int option_number(const struct request *q, const char *name, uint64_t max, uint64_t *ret);
int option_bool(const struct request *q, const char *name, bool *ret);
/* Options are NAME=VALUE of the given names (one string, separated by blanks), up to "--". */
int options_known(const struct request *q, size_t from, const char *names);
const char *option(const struct request *q, const char *name);
/* A path: only for those who may read what the daemon may. */
int option_path(const struct request *q, const char *name, const char **ret);

/* user=UID[:GID] */
int option_user(const struct request *q, struct exec_options *o);

/* Starts a command and answers with its number; attaches it to the connection, with window=,
 * unless it is to be left alone. bound: it is killed when the connection ends. */
int exec_start(const struct request *q, struct vm *vm, const struct exec_options *o,
	       bool detach, bool bound);
bool client_may_see(const struct client *client, uid_t owner);

void streams_pump(struct client *client);
void attachments_drop(struct client *client);
void attachment_free(struct attachment *attachment);
void exec_end_describe(struct answer *answer, const struct exec *exec);

#endif
