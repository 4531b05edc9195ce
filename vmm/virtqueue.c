/* SPDX-License-Identifier: Apache-2.0 */
/* Split virtqueues; see virtqueue.h. */
#include "vmm/virtqueue.h"

#include <errno.h>
#include <string.h>

#define DESC_F_NEXT	1u
#define DESC_F_WRITE	2u
#define DESC_F_INDIRECT	4u

#define AVAIL_F_NO_INTERRUPT	1u

struct vring_desc {
	uint64_t addr;
	uint32_t len;
	uint16_t flags;
	uint16_t next;
};
_Static_assert(sizeof(struct vring_desc) == 16, "descriptor layout");

/* Layout of the available and used rings, in bytes. */
#define RING_FLAGS	0
#define RING_IDX	2
#define RING_ENTRIES	4
#define AVAIL_BYTES(n)	(6 + 2 * (uint64_t)(n))
#define USED_BYTES(n)	(6 + 8 * (uint64_t)(n))

static uint16_t load16(const uint8_t *at)
{
	return __atomic_load_n((const uint16_t *)(const void *)at, __ATOMIC_ACQUIRE);
}

static int nonsense(struct virtqueue *vq, const char *why)
{
	vq->why = why;
	return -EPROTO;
}

int virtqueue_enable(struct virtqueue *vq, const struct memory *memory)
{
	if (vq->size == 0 || vq->size > VIRTQUEUE_SIZE_MAX || vq->size & (vq->size - 1))
		return nonsense(vq, "queue size out of range");
	if (vq->desc_gpa % 16 || vq->avail_gpa % 2 || vq->used_gpa % 4)
		return nonsense(vq, "ring not aligned");
	vq->desc = memory_ram(memory, GPA(vq->desc_gpa), 16 * (uint64_t)vq->size);
	vq->avail = memory_ram(memory, GPA(vq->avail_gpa), AVAIL_BYTES(vq->size));
	vq->used = memory_ram(memory, GPA(vq->used_gpa), USED_BYTES(vq->size));
	if (!vq->desc || !vq->avail || !vq->used)
		return nonsense(vq, "ring outside RAM");
	vq->memory = memory;
	vq->next_avail = 0;
	vq->next_used = 0;
	vq->ready = true;
	return 0;
}

void virtqueue_reset(struct virtqueue *vq)
{
	*vq = (struct virtqueue){ .ready = false };
}

/* Copies descriptor `index`, each field read once. */
static struct vring_desc desc_copy(const struct virtqueue *vq, uint16_t index)
{
	const struct vring_desc *from =
		(const struct vring_desc *)(const void *)(vq->desc + 16 * (size_t)index);

	return (struct vring_desc){
		.addr = __atomic_load_n(&from->addr, __ATOMIC_RELAXED),
		.len = __atomic_load_n(&from->len, __ATOMIC_RELAXED),
		.flags = __atomic_load_n(&from->flags, __ATOMIC_RELAXED),
		.next = __atomic_load_n(&from->next, __ATOMIC_RELAXED),
	};
}

static int chain_add(struct virtqueue *vq, struct virtqueue_chain *chain,
		     const struct vring_desc *desc)
{
	unsigned int n = chain->readable + chain->writable;
	void *host;

	if (n >= vq->size || n >= VIRTQUEUE_CHAIN_MAX)
		return nonsense(vq, "descriptor chain too long");
	if (desc->flags & ~(DESC_F_NEXT | DESC_F_WRITE))
		return nonsense(vq, "descriptor with flags that were not offered");
	if (desc->len > VIRTQUEUE_BYTES_MAX - chain->readable_bytes - chain->writable_bytes)
		return nonsense(vq, "descriptor chain of too many bytes");
	host = memory_ram(vq->memory, GPA(desc->addr), desc->len);
	if (!host)
		return nonsense(vq, "descriptor outside RAM");
	if (desc->flags & DESC_F_WRITE) {
		chain->writable++;
		chain->writable_bytes += desc->len;
	} else {
		if (chain->writable)
			return nonsense(vq, "readable descriptor behind a writable one");
		chain->readable++;
		chain->readable_bytes += desc->len;
	}
	chain->iov[n] = (struct iovec){ .iov_base = host, .iov_len = desc->len };
	return 0;
}

int virtqueue_walk(struct virtqueue *vq, uint16_t head, struct virtqueue_chain *ret_chain)
{
	struct vring_desc desc;
	uint16_t index = head;

	ret_chain->head = head;
	ret_chain->readable = ret_chain->writable = 0;
	ret_chain->readable_bytes = ret_chain->writable_bytes = 0;
	do {
		int r;

		if (index >= vq->size)
			return nonsense(vq, "descriptor index out of range");
		desc = desc_copy(vq, index);
		r = chain_add(vq, ret_chain, &desc);
		if (r < 0)
			return r;
		index = desc.next;
	} while (desc.flags & DESC_F_NEXT);
	return 0;
}

int virtqueue_pop(struct virtqueue *vq, struct virtqueue_chain *ret_chain)
{
	uint16_t waiting, index;
	int r;

	if (!vq->ready)
		return 0;
	waiting = (uint16_t)(load16(vq->avail + RING_IDX) - vq->next_avail);
	if (waiting == 0)
		return 0;
	if (waiting > vq->size)
		return nonsense(vq, "available index ahead of the ring");
	index = load16(vq->avail + RING_ENTRIES + 2 * (vq->next_avail & (vq->size - 1)));
	r = virtqueue_walk(vq, index, ret_chain);
	if (r < 0)
		return r;
	vq->next_avail++;
	return 1;
}

void virtqueue_push(struct virtqueue *vq, const struct virtqueue_chain *chain,
		    uint32_t written)
{
	uint32_t entry[2] = { chain->head, written };

	if (!vq->ready)
		return;
	memcpy(vq->used + RING_ENTRIES + 8 * (size_t)(vq->next_used & (vq->size - 1)), entry,
	       sizeof(entry));
	memory_mark(vq->memory, vq->used, USED_BYTES(vq->size));
	for (unsigned int i = chain->readable; i < chain->readable + chain->writable; i++)
		memory_mark(vq->memory, chain->iov[i].iov_base, chain->iov[i].iov_len);
	vq->next_used++;
	__atomic_store_n((uint16_t *)(void *)(vq->used + RING_IDX), vq->next_used,
			 __ATOMIC_RELEASE);
}

bool virtqueue_wants_interrupt(const struct virtqueue *vq)
{
	/* The index written above must be seen before the flag is read here. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return vq->ready && !(load16(vq->avail + RING_FLAGS) & AVAIL_F_NO_INTERRUPT);
}
