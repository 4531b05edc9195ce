/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target of the ring walker, alone and under the console. The input is the driver's
 * settings (32 bytes), then the guest's memory from RING_BASE on, over and over.
 * Every buffer of a chain that is given out is touched from end to end.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/console.h"
#include "vmm/virtqueue.h"

#define RING_BASE	0x100000u
#define RING_SPAN	0x8000u
#define POPS_MAX	300

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct memory memory;
static volatile unsigned int touched;

static void interrupt(void *arg)
{
}

static bool room(void *arg)
{
	unsigned int *left = arg;

	return *left > 0;
}

static int frame_take(void *arg, const struct frame *frame, const char **ret_why)
{
	unsigned int *left = arg;

	if (frame->head.length > CM_FRAME_MAX)
		abort();
	--*left;
	return 0;
}

static void guest_fill(const uint8_t *data, size_t size)
{
	uint8_t *ram = memory_ram(&memory, GPA(RING_BASE), RING_SPAN);

	if (!ram)
		abort();
	memset(ram, 0, RING_SPAN);
	for (size_t at = 0; size > 0 && at < RING_SPAN; at += size)
		memcpy(ram + at, data, size < RING_SPAN - at ? size : RING_SPAN - at);
}

static void settings_take(struct virtqueue *vq, const uint8_t *settings)
{
	uint64_t a[4];

	memcpy(a, settings, sizeof(a));
	/* Mostly inside the memory that is filled, sometimes anywhere. */
	vq->size = (uint32_t)(a[0] & 0x80 ? a[0] >> 8 : 1u << (a[0] & 7));
	vq->desc_gpa = a[1] & 1 ? a[1] : RING_BASE + (a[1] & 0x7ff0);
	vq->avail_gpa = a[2] & 1 ? a[2] & ~1ull : RING_BASE + (a[2] & 0x7ffe);
	vq->used_gpa = a[3] & 1 ? a[3] & ~3ull : RING_BASE + (a[3] & 0x7ffc);
}

static void chain_touch(const struct virtqueue *vq, const struct virtqueue_chain *chain)
{
	size_t sums[2] = { 0, 0 };

	if (chain->head >= vq->size || chain->readable + chain->writable > vq->size ||
	    chain->readable + chain->writable == 0)
		abort();
	for (unsigned int i = 0; i < chain->readable + chain->writable; i++) {
		uint8_t *at = chain->iov[i].iov_base;
		size_t len = chain->iov[i].iov_len;

		sums[i >= chain->readable] += len;
		if (len == 0)
			continue;
		touched += at[0] + at[len - 1];
		if (i >= chain->readable)
			at[len - 1] = at[0];
	}
	if (sums[0] != chain->readable_bytes || sums[1] != chain->writable_bytes ||
	    sums[0] + sums[1] > VIRTQUEUE_BYTES_MAX)
		abort();
}

static void walk(const uint8_t *settings)
{
	struct virtqueue vq = { .ready = false };
	struct virtqueue_chain chain;

	settings_take(&vq, settings);
	if (virtqueue_enable(&vq, &memory) < 0)
		return;
	for (int i = 0; i < POPS_MAX; i++) {
		int r = virtqueue_pop(&vq, &chain);

		if (r < 0 && (r != -EPROTO || !vq.why))
			abort();
		if (r <= 0)
			return;
		chain_touch(&vq, &chain);
		virtqueue_push(&vq, &chain, (uint32_t)chain.writable_bytes);
		touched += virtqueue_wants_interrupt(&vq);
	}
}

/* The console is made once (its buffers are large) and put back to its start each time. */
static void serve(const uint8_t *settings)
{
	static struct console console;
	struct cm_frame head = frame_head(CM_F_STDIN, 0, 1, 5);
	unsigned int left = 20;
	int r = 1;

	if (!console.to_guest.data && console_init(&console, &memory, interrupt, NULL) < 0)
		abort();
	console.dev.status = 0;
	console.tx_held = false;
	console.why = console.decoder.why = NULL;
	console.decoder.have = 0;
	console.decoder.whole = false;
	buf_consume(&console.to_guest, console.to_guest.len);
	console.room = room;
	console.frame = frame_take;
	console.arg = &left;
	console.dev.status = 15;
	for (unsigned int i = 0; i < CONSOLE_QUEUES; i++) {
		virtqueue_reset(&console.dev.queues[i]);
		settings_take(&console.dev.queues[i], settings);
		virtqueue_enable(&console.dev.queues[i], &memory);
	}
	for (int i = 0; i < 8 && r >= 0; i++) {
		console_send(&console, &head, "hello");
		r = console_pump(&console);
		if (r < 0 && !console.why)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err err = ERR_INIT;

	if (!memory.ram.addr && memory_init(&memory, MEMORY_RAM_MIN, &err) < 0)
		abort();
	if (size < 32)
		return 0;
	guest_fill(data + 32, size - 32);
	walk(data);
	guest_fill(data + 32, size - 32);
	serve(data);
	return 0;
}
