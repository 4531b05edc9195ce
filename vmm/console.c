/* SPDX-License-Identifier: Apache-2.0 */
/* The channel's virtio-console; see console.h. */
#include "vmm/console.h"

#include <errno.h>
#include <stdlib.h>

#define DEVICE_ID	3u
#define TO_GUEST_CAP	(3 * FRAME_BYTES_MAX)
#define CHAINS_A_PASS	128

/* struct virtio_console_config: columns, rows, ports, emergency write; all zero here. */
#define CONFIG_SIZE	12u

/* A buffer that was half taken is the driver's again. */
static void console_reset(void *arg, unsigned int queue)
{
	struct console *console = arg;

	if (queue == CONSOLE_TX)
		console->tx_held = false;
}

int console_init(struct console *console, const struct memory *memory,
		 void (*interrupt)(void *arg), void *interrupt_arg)
{
	int r;

	*console = (struct console){
		.dev = {
			.device_id = DEVICE_ID,
			.queue_count = CONSOLE_QUEUES,
			.config_size = CONFIG_SIZE,
			.memory = memory,
			.interrupt = interrupt,
			.interrupt_arg = interrupt_arg,
			.reset = console_reset,
			.reset_arg = console,
		},
	};
	r = buf_init(&console->to_guest, TO_GUEST_CAP);
	if (r == 0)
		r = frame_decoder_init(&console->decoder, FRAME_GUEST_TO_VMM);
	if (r < 0)
		console_done(console);
	return r;
}

void console_done(struct console *console)
{
	buf_done(&console->to_guest);
	frame_decoder_done(&console->decoder);
}

bool console_room(const struct console *console)
{
	return buf_space(&console->to_guest) >= FRAME_BYTES_MAX;
}

int console_send(struct console *console, const struct cm_frame *head, const void *payload)
{
	if (buf_space(&console->to_guest) < sizeof(*head) + head->length)
		return -ENOBUFS;
	buf_append(&console->to_guest, head, sizeof(*head));
	return buf_append(&console->to_guest, payload, head->length);
}

static int nonsense(struct console *console, const char *why)
{
	console->why = why;
	return -EPROTO;
}

/* Fills receive buffers from to_guest. Returns as console_pump(). */
static int pump_rx(struct console *console)
{
	struct virtqueue *vq = &console->dev.queues[CONSOLE_RX];
	struct virtqueue_chain chain;
	bool used = false;
	int n, r = 0;

	for (n = 0; n < CHAINS_A_PASS && console->to_guest.len > 0; n++) {
		size_t written = 0;

		r = virtqueue_pop(vq, &chain);
		if (r <= 0)
			break;
		if (chain.readable || chain.writable_bytes == 0)
			return nonsense(console, "receive buffer that cannot be written");
		for (unsigned int i = 0; i < chain.writable; i++)
			written += buf_take(&console->to_guest, chain.iov[i].iov_base,
					    chain.iov[i].iov_len);
		virtqueue_push(vq, &chain, (uint32_t)written);
		used = true;
	}
	if (used)
		virtio_mmio_used(&console->dev, CONSOLE_RX);
	if (r < 0)
		return nonsense(console, vq->why);
	return n == CHAINS_A_PASS;
}

/* Takes the held chain's bytes. Returns 1 done, 0 no room, -EBADMSG. */
static int tx_take(struct console *console)
{
	while (console->tx_index < console->tx.readable) {
		const struct iovec *iov = &console->tx.iov[console->tx_index];
		struct frame frame;
		size_t used;
		int r;

		if (console->tx_offset == iov->iov_len) {
			console->tx_index++;
			console->tx_offset = 0;
			continue;
		}
		if (!console->room(console->arg))
			return 0;
		r = frame_decoder_feed(&console->decoder,
				       (const uint8_t *)iov->iov_base + console->tx_offset,
				       iov->iov_len - console->tx_offset, &used, &frame);
		console->tx_offset += used;
		if (r < 0) {
			console->why = console->decoder.why;
			return -EBADMSG;
		}
		if (r > 0) {
			r = console->frame(console->arg, &frame, &console->why);
			if (r < 0)
				return r;
		}
	}
	return 1;
}

static int pump_tx(struct console *console)
{
	struct virtqueue *vq = &console->dev.queues[CONSOLE_TX];
	bool used = false;
	int n, r = 0;

	for (n = 0; n < CHAINS_A_PASS; n++) {
		if (!console->tx_held) {
			r = virtqueue_pop(vq, &console->tx);
			if (r <= 0)
				break;
			if (console->tx.writable)
				return nonsense(console, "transmit buffer to be written");
			console->tx_held = true;
			console->tx_index = 0;
			console->tx_offset = 0;
		}
		r = tx_take(console);
		if (r <= 0)
			break;
		console->tx_held = false;
		virtqueue_push(vq, &console->tx, 0);
		used = true;
	}
	if (used)
		virtio_mmio_used(&console->dev, CONSOLE_TX);
	if (r == -EPROTO)
		return nonsense(console, vq->why);
	return r < 0 ? r : n == CHAINS_A_PASS;
}

int console_pump(struct console *console)
{
	int tx, rx;

	if (!virtio_mmio_running(&console->dev))
		return 0;
	tx = pump_tx(console);
	if (tx < 0)
		return tx;
	rx = pump_rx(console);
	return rx < 0 ? rx : tx | rx;
}

/* ---- Snapshots ---- */

_Static_assert(TO_GUEST_CAP <= SNAPSHOT_TO_GUEST_MAX, "queue to the guest");
_Static_assert(FRAME_BYTES_MAX <= SNAPSHOT_FRAME_MAX, "partial frame");

int console_save(const struct console *console, struct saved_console *saved)
{
	const struct buf *queue = &console->to_guest;
	const struct frame_decoder *decoder = &console->decoder;
	uint8_t *bytes = malloc(queue->len + 1);
	int r;

	if (!bytes)
		return -ENOMEM;
	virtio_mmio_save(&console->dev, &saved->virtio);
	saved->tx_held = console->tx_held;
	saved->tx_head = console->tx_held ? console->tx.head : 0;
	saved->tx_index = console->tx_held ? console->tx_index : 0;
	saved->tx_offset = console->tx_held ? (uint32_t)console->tx_offset : 0;
	for (size_t i = 0; i < queue->len; i++)
		bytes[i] = queue->data[(queue->head + i) % queue->cap];
	r = snapshot_bytes_set(&saved->to_guest, bytes, (uint32_t)queue->len);
	free(bytes);
	if (r == 0)
		r = snapshot_bytes_set(&saved->partial, decoder->bytes,
				       decoder->whole ? 0 : (uint32_t)decoder->have);
	return r;
}

/* The chain is read from the rings again, which are the guest's: it is checked again. */
static int held_load(struct console *console, const struct saved_console *saved,
		     struct err *err)
{
	struct virtqueue *vq = &console->dev.queues[CONSOLE_TX];

	if (!vq->ready || virtqueue_walk(vq, saved->tx_head, &console->tx) < 0 ||
	    console->tx.writable || saved->tx_index > console->tx.readable ||
	    (saved->tx_index < console->tx.readable &&
	     saved->tx_offset > console->tx.iov[saved->tx_index].iov_len))
		return err_set(err, EINVAL, "the snapshot's console holds a transmit buffer "
			       "that is none");
	console->tx_held = true;
	console->tx_index = saved->tx_index;
	console->tx_offset = saved->tx_offset;
	return 0;
}

int console_load(struct console *console, const struct saved_console *saved, struct err *err)
{
	struct frame frame;
	size_t used;
	int r = virtio_mmio_load(&console->dev, &saved->virtio, err);

	if (r == 0 && saved->tx_held)
		r = held_load(console, saved, err);
	if (r < 0)
		return r;
	if (saved->to_guest.size > 0 &&
	    buf_append(&console->to_guest, saved->to_guest.data, saved->to_guest.size) < 0)
		return err_set(err, EINVAL, "the snapshot's console has more for the guest "
			       "than is possible: %u bytes", saved->to_guest.size);
	if (saved->partial.size > 0 &&
	    frame_decoder_feed(&console->decoder, saved->partial.data, saved->partial.size,
			       &used, &frame) != 0)
		return err_set(err, EINVAL, "the snapshot's console holds no part of a valid "
			       "frame");
	return 0;
}
