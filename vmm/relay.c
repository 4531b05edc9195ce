/* SPDX-License-Identifier: Apache-2.0 */
/* The relay of channel frames; see relay.h. */
#include "vmm/relay.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define TO_CLIENT_CAP	(3 * FRAME_BYTES_MAX)
#define RECEIVE_SIZE	32768u

static void on_recv(struct loop_op *op, int result)
{
	struct relay *relay = op->owner;

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
}

int relay_start(struct relay *relay)
{
	return loop_poll(relay->loop, &relay->hangup, relay->fd, POLLRDHUP | POLLHUP | POLLERR);
}

int relay_send(struct relay *relay, uint16_t type, const void *payload, size_t len)
{
	struct cm_frame head = frame_head(type, 0, 0, (uint32_t)len);

	if (buf_space(&relay->to_client) < sizeof(head) + len)
		return -ENOBUFS;
	buf_append(&relay->to_client, &head, sizeof(head));
	return buf_append(&relay->to_client, payload, len);
}

bool relay_room(void *arg)
{
	struct relay *relay = arg;

	/* A frame, and VM_BOOTED that a RESUMED turns into. */
	return buf_space(&relay->to_client) >= FRAME_BYTES_MAX;
}

static int guest_hello(struct relay *relay, const struct frame *frame, const char **ret_why)
{
	struct cm_frame head = frame_head(CM_F_RESUME, 0, 0, sizeof(struct cm_resume));
	struct cm_resume resume = { .generation = relay->generation };
	struct cm_hello hello;

	memcpy(&hello, frame->payload, sizeof(hello));
	if (hello.version != CM_CHANNEL_VERSION) {
		*ret_why = "HELLO with another version of the channel";
		return -EBADMSG;
	}
	/* The queue is empty: nothing is sent to the guest before this. */
	console_send(relay->console, &head, &resume);
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
	    (relay->state == RELAY_WAIT_RESUMED && !free_text)) {
		*ret_why = "frame out of turn";
		return -EBADMSG;
	}
	/* console.c asked relay_room() before. */
	return buf_append(&relay->to_client, frame->bytes, frame->size) < 0 ? -EBADMSG : 0;
}

/* Hands received frames to the port while it has room. */
static void client_frames(struct relay *relay)
{
	while (relay->received_at < relay->received_len && console_room(relay->console)) {
		struct frame frame;
		size_t used;
		int r = frame_decoder_feed(&relay->decoder,
					   relay->received + relay->received_at,
					   relay->received_len - relay->received_at, &used,
					   &frame);

		relay->received_at += used;
		if (r < 0) {
			relay->client_gone = true;
			relay->why = relay->decoder.why;
			return;
		}
		if (r > 0)
			console_send(relay->console, &frame.head, frame.payload);
	}
}

void relay_step(struct relay *relay)
{
	if (relay->client_gone)
		return;
	client_frames(relay);
	if (relay->state == RELAY_RUNNING && !relay->recv.busy &&
	    relay->received_at == relay->received_len &&
	    loop_recv(relay->loop, &relay->recv, relay->fd, relay->received,
		      RECEIVE_SIZE) < 0)
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
