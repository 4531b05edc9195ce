/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one walker of virtqueues (virtio 1.1, section 2.6: split rings). Everything in the rings
 * is the guest's and may change at any moment: each field is read once, descriptors are copied
 * before they are looked at, and
 * - a chain has at most VIRTQUEUE_CHAIN_MAX descriptors, at most as many as the queue (so a
 *   loop cannot last), and VIRTQUEUE_BYTES_MAX bytes in all;
 * - each buffer lies in RAM, readable ones come before writable ones;
 * - indirect descriptors are refused: the feature is not offered.
 * What breaks a rule is nonsense (-EPROTO) and ends the guest. Needs no KVM.
 */
#ifndef CASEMATE_VMM_VIRTQUEUE_H
#define CASEMATE_VMM_VIRTQUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "vmm/memory.h"

#define VIRTQUEUE_SIZE_MAX	128u
#define VIRTQUEUE_CHAIN_MAX	128u
#define VIRTQUEUE_BYTES_MAX	(1u << 20)

struct virtqueue {
	/* Set by the driver through the transport while not ready. */
	uint32_t size;
	uint64_t desc_gpa, avail_gpa, used_gpa;
	bool ready;

	/* While ready. */
	const struct memory *memory;
	uint8_t *desc, *avail, *used;
	uint16_t next_avail;	/* the next entry of the available ring to be taken */
	uint16_t next_used;
	const char *why;	/* after -EPROTO: what was wrong, static text */
};

struct virtqueue_chain {
	uint16_t head;
	unsigned int readable;	/* iov[0 .. readable): the device reads them */
	unsigned int writable;	/* the next ones: the device writes them */
	size_t readable_bytes, writable_bytes;
	struct iovec iov[VIRTQUEUE_CHAIN_MAX];
};

/* Checks the driver's settings and makes the queue ready. Returns 0 or -EPROTO. */
int virtqueue_enable(struct virtqueue *vq, const struct memory *memory);
/* Back to the state before any setting. */
void virtqueue_reset(struct virtqueue *vq);

/* Takes the next chain. Returns 1 with it, 0 when there is none (or the queue is not ready),
 * -EPROTO. ret_chain is only whole after 1. */
int virtqueue_pop(struct virtqueue *vq, struct virtqueue_chain *ret_chain);

/* Copies the chain that begins at a descriptor: a chain that was taken before the VM was
 * saved. The queue is ready. Returns 0 or -EPROTO. */
int virtqueue_walk(struct virtqueue *vq, uint16_t head, struct virtqueue_chain *ret_chain);

/* Gives a chain back; written: bytes the device put into its writable buffers. */
void virtqueue_push(struct virtqueue *vq, const struct virtqueue_chain *chain,
		    uint32_t written);

/* Whether the driver wants an interrupt for what was pushed. */
bool virtqueue_wants_interrupt(const struct virtqueue *vq);

#endif
