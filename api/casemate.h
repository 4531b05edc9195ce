/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcasemate: the client side of casemated's line protocol (docs/PROTOCOL.md).
 *
 * A connection is used by one thread at a time. Calls block until the daemon has answered.
 * What commands say meanwhile is kept, and given out by casemate_next(). Keep windows small
 * enough to hold: a connection keeps at most CASEMATE_KEPT_MAX bytes.
 *
 *	struct casemate *c;
 *	struct casemate_event e;
 *	unsigned long long id;
 *
 *	if (casemate_open(&c, NULL) < 0) ...
 *	if (casemate_call(c, "create", "name=box", NULL) != 0)
 *		puts(casemate_message(c));
 *	casemate_exec(c, "box", (const char *const[]){ "uname", "-a", NULL }, NULL, &id);
 *	while (casemate_next(c, &e, -1) == 1 && e.kind != CASEMATE_END)
 *		if (e.kind == CASEMATE_STDOUT)
 *			fwrite(e.data, 1, e.len, stdout);
 *	casemate_close(c);
 *
 * api/example.c is a whole program.
 *
 * Results: 0 done; CASEMATE_REFUSED: the daemon said no, casemate_code() and
 * casemate_message() say why, and the connection goes on; negative: -errno, the connection
 * is of no more use (casemate_message() says why).
 */
#ifndef CASEMATE_H
#define CASEMATE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CASEMATE_REFUSED	1
#define CASEMATE_KEPT_MAX	(8u << 20)
#define CASEMATE_LIST_MAX	(64u << 20)	/* bytes of an answer's items */

struct casemate;

/* path: the daemon's socket, NULL for $CASEMATE_SOCKET or the default place. In every case
 * *ret must be closed afterwards; it is NULL only when there is no memory. */
int casemate_open(struct casemate **ret, const char *path);
void casemate_close(struct casemate *c);

/* For poll(2): readable when casemate_next() may have something. */
int casemate_fd(const struct casemate *c);

/* One request, its words up to a NULL, and its answer. */
int casemate_call(struct casemate *c, const char *word, ...) __attribute__((sentinel));
int casemate_call_words(struct casemate *c, const char *const *words, size_t count);

/* Of the last answer, good until the next call: the code (such as "NOTFOUND") and message of a
 * refusal, with what to do next; the value of NAME=VALUE, or NULL. */
const char *casemate_code(const struct casemate *c);
const char *casemate_message(const struct casemate *c);
const char *casemate_hint(const struct casemate *c);
const char *casemate_value(const struct casemate *c, const char *name);
/* Word number n of the last answer as it is (NAME=VALUE), or NULL behind the last. */
const char *casemate_word(const struct casemate *c, size_t n);
/* The bytes that came with the answer (metrics). */
const void *casemate_chunk(const struct casemate *c, size_t *ret_len);

/* The lines of a list: count of them, and a value of one. */
size_t casemate_items(const struct casemate *c);
const char *casemate_item_value(const struct casemate *c, size_t item, const char *name);
/* Word number n of an item as it is (NAME=VALUE), or NULL behind the last. */
const char *casemate_item_word(const struct casemate *c, size_t item, size_t n);

/* A command in a VM. argv ends with NULL; options (NULL: none) are the protocol's, such as
 * "timeout=10s", "env=A=1", "stdin=yes", up to a NULL. */
int casemate_exec(struct casemate *c, const char *vm, const char *const *argv,
		  const char *const *options, unsigned long long *ret_exec);
/* At most 65536 bytes, and no more in all than 262144 plus what stdin-credit granted. */
int casemate_stdin(struct casemate *c, unsigned long long exec, const void *data, size_t len);
int casemate_close_stdin(struct casemate *c, unsigned long long exec);
/* Grants more of the window that the exec option window=N began with. */
int casemate_credit(struct casemate *c, unsigned long long exec, size_t bytes);

/* A connection to what listens in a VM ("unix:PATH", "unix:@NAME", "tcp:PORT"), as a command:
 * its stdin is the way there, its stdout the way back, whose end is told by itself
 * (CASEMATE_STDOUT_END). Ends with code 0, or the errno of what was wrong, with a line on
 * stderr that says so. options: "user=UID", "timeout=TIME", "window=N", up to a NULL. */
int casemate_connect(struct casemate *c, const char *vm, const char *target,
		     const char *const *options, unsigned long long *ret_exec);
/* A socket of the host ("unix:PATH", "tcp:PORT", "tcp:ADDRESS:PORT"; port 0 is any) whose
 * connections go to the target; casemate_value(c, "listen") is where it listens. options:
 * "user=UID", "bound=yes": it ends with this connection, and news of it come here. */
int casemate_forward(struct casemate *c, const char *vm, const char *listen,
		     const char *target, const char *const *options,
		     unsigned long long *ret_forward);

enum casemate_kind {
	CASEMATE_STDOUT,	/* data, len */
	CASEMATE_STDERR,
	CASEMATE_STDIN_CREDIT,	/* len: so many bytes more of stdin may be sent */
	CASEMATE_END,		/* of a command: end and so on */
	CASEMATE_EVENT,		/* of the daemon, after the verb `events` */
	CASEMATE_STDOUT_END,	/* of a connection: no more comes from the VM */
	CASEMATE_FORWARD_FAILED, /* a connection of a bound forward failed; text: why */
	CASEMATE_FORWARD_ENDED,	/* a bound forward is no more; text: why */
};

enum casemate_end {
	CASEMATE_EXIT,		/* code, or signal if that is not 0 */
	CASEMATE_FAILED,	/* did not start: error (errno), text: step */
	CASEMATE_LOST,		/* the VM is gone; text: why */
};

struct casemate_event {
	enum casemate_kind kind;
	unsigned long long exec;
	const void *data;	/* good until the next call */
	size_t len;
	unsigned long long at;	/* offset of data in its stream, for attach */
	enum casemate_end end;
	int code, signal, error;
	int timed_out, truncated;
	const char *text;
	unsigned long long forward;
};

/* Returns 1 with *ret set, 0 when timeout_ms (-1: none) is over, or -errno. Its values beyond
 * those in *ret: casemate_event_value(). */
int casemate_next(struct casemate *c, struct casemate_event *ret, int timeout_ms);
const char *casemate_event_value(const struct casemate *c, const char *name);
/* Word number n of what casemate_next() gave last, or NULL behind the last. */
const char *casemate_event_word(const struct casemate *c, size_t n);

/*
 * Files in a VM (docs/PROTOCOL.md, "Files"). options (NULL: none) are the protocol's, such as
 * "user=1000", up to a NULL. These calls block until all is done; what other commands say
 * meanwhile is kept. CASEMATE_REFUSED is also what the guest refuses: then casemate_error() is
 * its errno and casemate_code() that number's name, such as "ENOSPC". It is 0 for all else;
 * codes of ours are "LOCAL" (reading or writing fd failed), "TIMEOUT", "KILLED", "LOST".
 */
int casemate_error(const struct casemate *c);
/* ls, stat, mkdir, mv, rm, chmod: words begin with the verb and the VM, up to a NULL. The
 * lines that ls and stat say are then the items (casemate_item_value). */
int casemate_file(struct casemate *c, const char *const *words);
/* Sends all of fd, from where it stands to its end. The file appears when it is whole. */
int casemate_put(struct casemate *c, const char *vm, const char *path,
		 const char *const *options, int fd);
/* Writes the file to fd, which is not truncated before. */
int casemate_get(struct casemate *c, const char *vm, const char *path,
		 const char *const *options, int fd);
/* Begins to watch, with the option "tree=yes" all that is below, too; one watch a connection,
 * until its end has come. */
int casemate_watch(struct casemate *c, const char *vm, const char *path,
		   const char *const *options, unsigned long long *ret_exec);
/* Returns 1 with the next line as the only item, or with no item: that was the end, and
 * casemate_message() says why it came ("": what was watched has gone); 0 when timeout_ms (-1:
 * none) is over; or -errno. */
int casemate_watch_next(struct casemate *c, unsigned long long exec, int timeout_ms);

#ifdef __cplusplus
}
#endif

#endif
