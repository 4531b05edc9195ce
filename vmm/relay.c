/* SPDX-License-Identifier: Apache-2.0 */
/* The relay of channel frames; see relay.h. */
#include "vmm/relay.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TO_CLIENT_CAP	(3 * FRAME_BYTES_MAX + RELAY_OWN)
#define RECEIVE_SIZE	32768u

static void client_broke(struct relay *relay, const char *why)
{
	relay->client_gone = true;
	relay->why = why;
}

/* Queues the descriptors of a message. Those that are too many are closed. */
static void fds_take(struct relay *relay)
{
	struct msghdr *m = &relay->message;

	if (m->msg_flags & MSG_CTRUNC)
		client_broke(relay, "too many descriptors in one message");
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
			if (relay->fd_count < CM_VM_FORK_MAX) {
				relay->fds[relay->fd_count++] = fd;
			} else {
				close(fd);
				client_broke(relay, "descriptors that no request takes");
			}
		}
	}
}

static void on_recv(struct loop_op *op, int result)
{
	struct relay *relay = op->owner;

	if (result >= 0)
		fds_take(relay);
	if (result <= 0) {
		relay->client_gone = true;
		return;
	}
	relay->received_at = 0;
	relay->received_len = (size_t)result;
}

static void on_send(struct loop_op *op, int result)
{
	struct relay *relay = op->owner;

	if (result < 0) {
		relay->client_gone = true;
		return;
	}
	buf_consume(&relay->to_client, (size_t)result);
}

static void on_hangup(struct loop_op *op, int result)
{
	struct relay *relay = op->owner;

	if (result != -ECANCELED)
		relay->client_gone = true;
}

int relay_init(struct relay *relay, struct loop *loop, struct console *console, int fd,
	       uint64_t generation, struct err *err)
{
	int r;

	*relay = (struct relay){
		.loop = loop,
		.console = console,
		.fd = fd,
		.generation = generation,
		.recv = { .done = on_recv, .owner = relay },
		.send = { .done = on_send, .owner = relay },
		.hangup = { .done = on_hangup, .owner = relay },
	};
	relay->received = malloc(RECEIVE_SIZE);
	r = relay->received ? 0 : -ENOMEM;
	if (r == 0)
		r = buf_init(&relay->to_client, TO_CLIENT_CAP);
	if (r == 0)
		r = frame_decoder_init(&relay->decoder, FRAME_CLIENT_TO_VMM);
	return r < 0 ? err_set_errno(err, r, "cannot set up the channel") : 0;
}

void relay_done(struct relay *relay)
{
	free(relay->received);
	relay->received = NULL;
	buf_done(&relay->to_client);
	frame_decoder_done(&relay->decoder);
	while (relay->fd_count > 0)
		close(relay->fds[--relay->fd_count]);
}

void relay_set_restored(struct relay *relay)
{
	relay->restored = true;
	relay->resume_due = true;
	relay->state = RELAY_WAIT_RESUMED;
}

void relay_set_held(struct relay *relay)
{
	relay->state = RELAY_HELD;
}

int relay_start(struct relay *relay)
{
	return loop_poll(relay->loop, &relay->hangup, relay->fd, POLLRDHUP | POLLHUP | POLLERR);
}

static int frame_put(struct relay *relay, uint16_t type, const void *payload, size_t len,
		     size_t leave)
{
	struct cm_frame head = frame_head(type, 0, 0, (uint32_t)len);

	if (buf_space(&relay->to_client) < sizeof(head) + len + leave)
		return -ENOBUFS;
	buf_append(&relay->to_client, &head, sizeof(head));
	return buf_append(&relay->to_client, payload, len);
}

int relay_send(struct relay *relay, uint16_t type, const void *payload, size_t len)
{
	int r = frame_put(relay, type, payload, len, 0);

	if (r < 0)
		client_broke(relay, "it asks and takes no answers");
	return r;
}

int relay_say(struct relay *relay, uint16_t type, const void *payload, size_t len)
{
	return frame_put(relay, type, payload, len, RELAY_OWN);
}

bool relay_room(void *arg)
{
	struct relay *relay = arg;

	return buf_space(&relay->to_client) >= FRAME_BYTES_MAX + RELAY_OWN;
}

static void resume_send(struct relay *relay)
{
	struct cm_frame head = frame_head(CM_F_RESUME, 0, 0, sizeof(struct cm_resume));
	struct cm_resume resume = { .generation = relay->generation };

	relay->resume_due = console_send(relay->console, &head, &resume) < 0;
}

static int guest_hello(struct relay *relay, const struct frame *frame, const char **ret_why)
{
	struct cm_hello hello;

	memcpy(&hello, frame->payload, sizeof(hello));
	if (hello.version != CM_CHANNEL_VERSION) {
		*ret_why = "HELLO with another version of the channel";
		return -EBADMSG;
	}
	resume_send(relay);
	relay->state = RELAY_WAIT_RESUMED;
	return 0;
}

static int guest_resumed(struct relay *relay, const struct frame *frame,
			 const char **ret_why)
{
	struct cm_resumed resumed;

	memcpy(&resumed, frame->payload, sizeof(resumed));
	if (resumed.generation != relay->generation) {
		*ret_why = "RESUMED with another generation";
		return -EBADMSG;
	}
	relay->state = RELAY_RUNNING;
	relay->booted(relay->arg);
	return 0;
}

int relay_guest_frame(void *arg, const struct frame *frame, const char **ret_why)
{
	struct relay *relay = arg;
	uint16_t type = frame->head.type;
	bool free_text = type == CM_F_LOG || type == CM_F_ERROR;

	if (type == CM_F_HELLO && relay->state == RELAY_WAIT_HELLO)
		return guest_hello(relay, frame, ret_why);
	if (type == CM_F_RESUMED && relay->state == RELAY_WAIT_RESUMED)
		return guest_resumed(relay, frame, ret_why);
	if (type == CM_F_HELLO || type == CM_F_RESUMED ||
	    relay->state == RELAY_WAIT_HELLO ||
	    (type == CM_F_RUNNING && relay->state != RELAY_WAIT_RESUMED) ||
	    (relay->state == RELAY_WAIT_RESUMED && !free_text && !relay->restored)) {
		*ret_why = "frame out of turn";
		return -EBADMSG;
	}
	/* console.c asked relay_room() before. */
	return buf_append(&relay->to_client, frame->bytes, frame->size) < 0 ? -EBADMSG : 0;
}

/* A frame for the VMM with its descriptors. */
static void client_request(struct relay *relay, const struct frame *frame)
{
	struct cm_vm_fork fork = { .count = frame->head.type == CM_F_VM_SAVE };
	int fds[CM_VM_FORK_MAX];

	if (frame->head.type == CM_F_VM_FORK)
		memcpy(&fork, frame->payload, sizeof(fork));
	if (relay->fd_count < fork.count) {
		client_broke(relay, "a request without its descriptors");
		return;
	}
	memcpy(fds, relay->fds, fork.count * sizeof(fds[0]));
	relay->fd_count -= fork.count;
	memmove(relay->fds, relay->fds + fork.count, relay->fd_count * sizeof(fds[0]));
	relay->request(relay->arg, frame, fds, fork.count);
}

static void client_frame(struct relay *relay, const struct frame *frame)
{
	if (frame->head.type >= CM_F_VM_SAVE && frame->head.type <= CM_F_VM_CONTINUE)
		client_request(relay, frame);
	else if (relay->state == RELAY_HELD)
		client_broke(relay, "a frame for a guest that does not run");
	else
		console_send(relay->console, &frame->head, frame->payload);
}

/* Hands received frames to the port while it has room. */
static void client_frames(struct relay *relay)
{
	while (relay->received_at < relay->received_len && !relay->client_gone &&
	       console_room(relay->console)) {
		struct frame frame;
		size_t used;
		int r = frame_decoder_feed(&relay->decoder,
					   relay->received + relay->received_at,
					   relay->received_len - relay->received_at, &used,
					   &frame);

		relay->received_at += used;
		if (r < 0)
			client_broke(relay, relay->decoder.why);
		if (r > 0)
			client_frame(relay, &frame);
	}
}

static int receive_start(struct relay *relay)
{
	relay->iov = (struct iovec){ relay->received, RECEIVE_SIZE };
	relay->message = (struct msghdr){ .msg_iov = &relay->iov, .msg_iovlen = 1,
					  .msg_control = relay->control.bytes,
					  .msg_controllen = sizeof(relay->control.bytes) };
	return loop_recvmsg(relay->loop, &relay->recv, relay->fd, &relay->message);
}

void relay_step(struct relay *relay)
{
	if (relay->client_gone)
		return;
	if (relay->resume_due)
		resume_send(relay);
	client_frames(relay);
	if (relay->state >= RELAY_RUNNING && !relay->recv.busy &&
	    relay->received_at == relay->received_len && receive_start(relay) < 0)
		relay->client_gone = true;
	relay_flush(relay);
}

bool relay_flush(struct relay *relay)
{
	size_t len;
	const uint8_t *from = buf_front(&relay->to_client, &len);

	if (relay->client_gone)
		return true;
	if (!relay->send.busy && len > 0 &&
	    loop_send(relay->loop, &relay->send, relay->fd, from, len) < 0)
		relay->client_gone = true;
	return relay->to_client.len == 0 && !relay->send.busy;
}
