/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between the parent and the engine; see boundary.h. */
#include "pool/boundary.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "abi/layout.h"
#include "snapshot/file.h"

_Static_assert(sizeof(struct boundary_message) == 248, "no padding");
_Static_assert(SNAPSHOT_CHAIN_MAX + 2 <= FD_SEND_MAX, "descriptors of SPAWN");

/* ---- Decoding ---- */

enum { FLAGS = 1, ID = 2, OF = 4, MEMORY = 8, COUNT = 16, PID = 32, ERROR = 64, STATUS = 128,
       TEXT = 256 };

/* Which fields a kind may have; whatever is not named is zero. */
static const struct {
	bool known, engine;
	unsigned int fields;
} kinds[] = {
	[BOUNDARY_START] = { true, false, FLAGS | TEXT },
	[BOUNDARY_READY] = { true, true, 0 },
	[BOUNDARY_SPAWN] = { true, true, ID | FLAGS | MEMORY | COUNT },
	[BOUNDARY_CHILD] = { true, true, ID | OF | MEMORY | PID },
	[BOUNDARY_SPAWNED] = { true, false, ID | PID | ERROR | TEXT },
	[BOUNDARY_KILL] = { true, true, ID },
	[BOUNDARY_EXITED] = { true, false, ID | STATUS },
	[BOUNDARY_STOP] = { true, false, 0 },
};

static unsigned int fields_set(const struct boundary_message *m)
{
	return (m->flags ? FLAGS : 0) | (m->id ? ID : 0) | (m->of ? OF : 0) |
	       (m->memory ? MEMORY : 0) | (m->count ? COUNT : 0) | (m->pid ? PID : 0) |
	       (m->error ? ERROR : 0) | (m->status ? STATUS : 0) | (m->text[0] ? TEXT : 0);
}

static const char *text_check(const char text[BOUNDARY_TEXT])
{
	size_t n = strnlen(text, BOUNDARY_TEXT);

	if (n == BOUNDARY_TEXT)
		return "a text without an end";
	for (size_t i = 0; i < BOUNDARY_TEXT; i++) {
		unsigned char ch = (unsigned char)text[i];

		if (i < n ? ch < ' ' || ch == 127 : ch != 0)
			return "bytes in a text that are none";
	}
	return NULL;
}

static const char *spawn_check(const struct boundary_message *m, unsigned int fd_count)
{
	if (m->flags & ~(BOUNDARY_IMAGE | BOUNDARY_HOLD | BOUNDARY_TRACK))
		return "a flag that there is not";
	if (m->count > SNAPSHOT_CHAIN_MAX)
		return "too many snapshots";
	if (m->count == 0 && (m->flags & BOUNDARY_HOLD))
		return "a held VM of no snapshot";
	if (fd_count != 1 + (m->flags & BOUNDARY_IMAGE) + m->count)
		return "not the descriptors that it needs";
	return NULL;
}

static const char *message_check(bool from_engine, const struct boundary_message *m,
				 unsigned int fd_count)
{
	const char *why;
	unsigned int fields;

	if (m->kind >= sizeof(kinds) / sizeof(kinds[0]) || !kinds[m->kind].known)
		return "a kind that there is not";
	if (kinds[m->kind].engine != from_engine)
		return "not for this side to say";
	fields = kinds[m->kind].fields;
	if (fields_set(m) & ~fields)
		return "a field that this kind has not";
	if ((fields & ID) && m->id == 0)
		return "no VM";
	if ((fields & OF) && (m->of == 0 || m->of == m->id))
		return "no source";
	if ((fields & MEMORY) && (m->memory == 0 || m->memory > CM_RAM_MAX))
		return "a VM of impossible memory";
	if (m->pid > INT32_MAX || (m->kind == BOUNDARY_CHILD && m->pid <= 1))
		return "no process";
	if (m->error < 0 || (m->kind == BOUNDARY_SPAWNED && (m->error == 0) != (m->pid > 1)))
		return "neither an error nor a process";
	if (m->status < -1)
		return "no wait status";
	why = text_check(m->text);
	if (why)
		return why;
	if (m->kind == BOUNDARY_START && (m->flags & ~BOUNDARY_START_FLAGS))
		return "a flag that there is not";
	if (m->kind == BOUNDARY_SPAWN)
		return spawn_check(m, fd_count);
	return fd_count > 0 ? "descriptors that nobody wants" : NULL;
}

int boundary_decode(bool from_engine, const void *bytes, size_t len, unsigned int fd_count,
		    struct boundary_message *ret, const char **ret_why)
{
	struct boundary_message m;

	*ret_why = "a message of another size";
	if (len != sizeof(m))
		return -EBADMSG;
	memcpy(&m, bytes, sizeof(m));
	*ret_why = message_check(from_engine, &m, fd_count);
	if (*ret_why)
		return -EBADMSG;
	*ret = m;
	return 0;
}

void boundary_text_set(struct boundary_message *m, const char *text)
{
	size_t i = 0;

	memset(m->text, 0, sizeof(m->text));
	for (; text[i] && i < sizeof(m->text) - 1; i++)
		m->text[i] = text[i] < ' ' || text[i] == 127 ? '?' : text[i];
}

/* ---- The socket ---- */

struct queued {
	struct list link;
	struct boundary_message message;
	int fds[FD_SEND_MAX];
	unsigned int fd_count;
};

static void queued_free(struct boundary *b, struct queued *q)
{
	for (unsigned int i = 0; i < q->fd_count; i++)
		fd_close(q->fds[i]);
	list_remove(&q->link);
	b->queued--;
	free(q);
}

static int queue_add(struct boundary *b, const struct boundary_message *m, const int *fds,
		     unsigned int fd_count)
{
	struct queued *q = b->queued < BOUNDARY_QUEUE ? malloc(sizeof(*q)) : NULL;

	if (!q)
		return -ENOBUFS;
	q->message = *m;
	q->fd_count = 0;
	list_add_tail(&b->queue, &q->link);
	b->queued++;
	while (q->fd_count < fd_count) {
		int fd = fcntl(fds[q->fd_count], F_DUPFD_CLOEXEC, 0), error = errno;

		if (fd < 0) {
			queued_free(b, q);
			return -error;
		}
		q->fds[q->fd_count++] = fd;
	}
	watch_set(b->loop, &b->watch, EPOLLIN | EPOLLOUT);
	return 0;
}

int boundary_send(struct boundary *b, const struct boundary_message *m, const int *fds,
		  unsigned int fd_count)
{
	ssize_t n = -EAGAIN;

	if (b->socket < 0)
		return -EPIPE;
	if (list_empty(&b->queue))
		n = fd_send(b->socket, m, sizeof(*m), fds, fd_count);
	if (n == -EAGAIN || n == -EINTR || n == -ENOBUFS)
		return queue_add(b, m, fds, fd_count);
	return n < 0 ? (int)n : 0;
}

static void queue_send(struct boundary *b)
{
	while (!list_empty(&b->queue)) {
		struct queued *q = list_entry(b->queue.next, struct queued, link);
		ssize_t n = fd_send(b->socket, &q->message, sizeof(q->message), q->fds,
				    q->fd_count);

		if (n == -EAGAIN || n == -EINTR || n == -ENOBUFS)
			return;
		/* Any other failure is a lost socket, which is about to be noticed. */
		queued_free(b, q);
	}
	watch_set(b->loop, &b->watch, EPOLLIN);
}

static void end(struct boundary *b, const char *why)
{
	boundary_done(b);
	b->lost(b, why);
}

/* Returns whether there may be more. */
static bool receive(struct boundary *b)
{
	/* One byte more than a message: a longer one is seen to be. */
	uint8_t bytes[sizeof(struct boundary_message) + 1];
	struct boundary_message m;
	int fds[FD_SEND_MAX];
	unsigned int count = 0;
	const char *why = NULL;
	ssize_t n = fd_receive(b->socket, bytes, sizeof(bytes), fds, &count);
	int r = 0;

	if (n == -EAGAIN || n == -EINTR)
		return false;
	if (n == -EMSGSIZE)
		why = "a message too long, or more descriptors than there is room for";
	if (n > 0)
		r = boundary_decode(b->from_engine, bytes, (size_t)n, count, &m, &why);
	if (n > 0 && r == 0)
		b->message(b, &m, fds);
	for (unsigned int i = 0; i < count; i++)
		fd_close(fds[i]);
	if (n <= 0 || r < 0)
		end(b, why);
	return b->socket >= 0;
}

static void on_ready(struct watch *watch, uint32_t events)
{
	struct boundary *b = list_entry(watch, struct boundary, watch);

	if (events & EPOLLOUT)
		queue_send(b);
	/* A few at a time: others of the loop want their turn. */
	for (int i = 0; i < 16 && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)); i++) {
		if (!receive(b))
			return;
	}
}

int boundary_init(struct boundary *b, struct evloop *loop, int socket, bool from_engine)
{
	b->loop = loop;
	b->socket = socket;
	b->from_engine = from_engine;
	b->queued = 0;
	list_init(&b->queue);
	watch_init(&b->watch, on_ready);
	return watch_add(loop, &b->watch, socket, EPOLLIN);
}

void boundary_done(struct boundary *b)
{
	if (b->socket < 0)
		return;
	while (!list_empty(&b->queue))
		queued_free(b, list_entry(b->queue.next, struct queued, link));
	watch_remove(b->loop, &b->watch);
	b->socket = fd_close(b->socket);
}
