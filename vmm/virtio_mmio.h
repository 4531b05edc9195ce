/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The virtio-mmio transport (virtio 1.1, section 4.2.2: version 2 only), one page a device.
 * Registers are 32 bits wide; the configuration space may be read in 1, 2 or 4 bytes. A notify
 * never comes here: KVM turns it into an eventfd (the queue's doorbell). An access that the
 * specification does not allow a driver is nonsense (-EPROTO) and ends the guest.
 *
 * Interrupts are edges: each one is an MSI with the device's vector.
 * Everything here is guarded by the loop's lock; registers are accessed by the vCPU thread,
 * queues served by the loop thread.
 */
#ifndef CASEMATE_VMM_VIRTIO_MMIO_H
#define CASEMATE_VMM_VIRTIO_MMIO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "snapshot/state.h"
#include "vmm/memory.h"
#include "vmm/virtqueue.h"

#define VIRTIO_QUEUES_MAX	4u
#define VIRTIO_CONFIG_MAX	64u
#define VIRTIO_F_VERSION_1	(1ull << 32)

#define VIRTIO_MMIO_NOTIFY	0x50

struct virtio_mmio {
	/* Constant. */
	uint32_t device_id;
	unsigned int queue_count;
	uint64_t features;		/* offered, besides VERSION_1 */
	uint32_t config_size;
	uint8_t config[VIRTIO_CONFIG_MAX];
	const struct memory *memory;
	void (*interrupt)(void *arg);	/* raise the device's vector */
	void *interrupt_arg;
	/* The driver reset this queue, by itself or with the device; may be NULL. */
	void (*reset)(void *arg, unsigned int queue);
	void *reset_arg;

	/* The driver's. */
	uint32_t status;
	uint32_t features_select, driver_select, queue_select;
	uint64_t driver_features;
	uint32_t interrupt_status;
	struct virtqueue queues[VIRTIO_QUEUES_MAX];
	const char *why;		/* after -EPROTO */
};

/* One access of len bytes at offset in the device's page. value: what is written, or where
 * what is read goes. Returns 0 or -EPROTO. */
int virtio_mmio_access(struct virtio_mmio *dev, uint64_t offset, unsigned int len, bool write,
		       uint32_t *value);

/* Whether the driver has set everything up: its queues may be served. */
bool virtio_mmio_running(const struct virtio_mmio *dev);

void virtio_mmio_save(const struct virtio_mmio *dev, struct saved_virtio *saved);
/* Into a device just initialised. Returns 0 or -EINVAL with err set. */
int virtio_mmio_load(struct virtio_mmio *dev, const struct saved_virtio *saved,
		     struct err *err);

/* Tells the driver that buffers of the queue were used, if it wants to know. */
void virtio_mmio_used(struct virtio_mmio *dev, unsigned int queue);

#endif
