/* SPDX-License-Identifier: Apache-2.0 */
/* The virtio-mmio transport; see virtio_mmio.h. */
#include "vmm/virtio_mmio.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define MAGIC	0x74726976u	/* "virt" */
#define VENDOR	0x74736163u	/* "cast" */

enum {
	REG_MAGIC = 0x000,
	REG_VERSION = 0x004,
	REG_DEVICE_ID = 0x008,
	REG_VENDOR = 0x00c,
	REG_FEATURES = 0x010,
	REG_FEATURES_SELECT = 0x014,
	REG_DRIVER_FEATURES = 0x020,
	REG_DRIVER_SELECT = 0x024,
	REG_QUEUE_SELECT = 0x030,
	REG_QUEUE_MAX = 0x034,
	REG_QUEUE_SIZE = 0x038,
	REG_QUEUE_READY = 0x044,
	REG_INTERRUPT = 0x060,
	REG_INTERRUPT_ACK = 0x064,
	REG_STATUS = 0x070,
	REG_DESC_LOW = 0x080,
	REG_DESC_HIGH = 0x084,
	REG_AVAIL_LOW = 0x090,
	REG_AVAIL_HIGH = 0x094,
	REG_USED_LOW = 0x0a0,
	REG_USED_HIGH = 0x0a4,
	REG_GENERATION = 0x0fc,
	REG_CONFIG = 0x100,
};

enum {
	STATUS_ACKNOWLEDGE = 1,
	STATUS_DRIVER = 2,
	STATUS_DRIVER_OK = 4,
	STATUS_FEATURES_OK = 8,
	STATUS_FAILED = 128,
};
#define STATUS_ALL	(STATUS_ACKNOWLEDGE | STATUS_DRIVER | STATUS_DRIVER_OK | \
			 STATUS_FEATURES_OK | STATUS_FAILED)

#define INTERRUPT_USED	1u

static int nonsense(struct virtio_mmio *dev, const char *why)
{
	dev->why = why;
	return -EPROTO;
}

bool virtio_mmio_running(const struct virtio_mmio *dev)
{
	return (dev->status & (STATUS_DRIVER_OK | STATUS_FAILED)) == STATUS_DRIVER_OK;
}

void virtio_mmio_used(struct virtio_mmio *dev, unsigned int queue)
{
	if (!virtqueue_wants_interrupt(&dev->queues[queue]))
		return;
	dev->interrupt_status |= INTERRUPT_USED;
	dev->interrupt(dev->interrupt_arg);
}

static uint64_t features_offered(const struct virtio_mmio *dev)
{
	return dev->features | VIRTIO_F_VERSION_1;
}

static int config_read(struct virtio_mmio *dev, uint64_t offset, unsigned int len,
		       uint32_t *value)
{
	if ((len != 1 && len != 2 && len != 4) || offset % len ||
	    offset > dev->config_size || len > dev->config_size - offset)
		return nonsense(dev, "read outside the device's configuration");
	*value = 0;
	memcpy(value, dev->config + offset, len);
	return 0;
}

static int register_read(struct virtio_mmio *dev, uint64_t offset, uint32_t *value)
{
	bool queue = dev->queue_select < dev->queue_count;

	switch (offset) {
	case REG_MAGIC:
		*value = MAGIC;
		break;
	case REG_VERSION:
		*value = 2;
		break;
	case REG_DEVICE_ID:
		*value = dev->device_id;
		break;
	case REG_VENDOR:
		*value = VENDOR;
		break;
	case REG_FEATURES:
		*value = dev->features_select > 1 ? 0 :
			 (uint32_t)(features_offered(dev) >> (32 * dev->features_select));
		break;
	case REG_QUEUE_MAX:
		*value = queue ? VIRTQUEUE_SIZE_MAX : 0;
		break;
	case REG_QUEUE_READY:
		*value = queue && dev->queues[dev->queue_select].ready;
		break;
	case REG_INTERRUPT:
		*value = dev->interrupt_status;
		break;
	case REG_STATUS:
		*value = dev->status;
		break;
	case REG_GENERATION:
		*value = 0;
		break;
	default:
		return nonsense(dev, "read of a register that is none");
	}
	return 0;
}

static void queue_reset(struct virtio_mmio *dev, unsigned int queue)
{
	virtqueue_reset(&dev->queues[queue]);
	if (dev->reset)
		dev->reset(dev->reset_arg, queue);
}

static void device_reset(struct virtio_mmio *dev)
{
	dev->status = 0;
	dev->features_select = dev->driver_select = dev->queue_select = 0;
	dev->driver_features = 0;
	dev->interrupt_status = 0;
	for (unsigned int i = 0; i < dev->queue_count; i++)
		queue_reset(dev, i);
}

static int status_write(struct virtio_mmio *dev, uint32_t value)
{
	if (value == 0) {
		device_reset(dev);
		return 0;
	}
	if (value & ~(uint32_t)STATUS_ALL)
		return nonsense(dev, "status bits that are none");
	if (dev->status & ~value)
		return nonsense(dev, "status bits taken back");
	/* Features the driver must not have, or must have: the bit does not stick. */
	if ((value & STATUS_FEATURES_OK) && !(dev->status & STATUS_FEATURES_OK) &&
	    (dev->driver_features & ~features_offered(dev) ||
	     !(dev->driver_features & VIRTIO_F_VERSION_1)))
		value &= ~(uint32_t)STATUS_FEATURES_OK;
	if ((value & STATUS_DRIVER_OK) && !(value & STATUS_FEATURES_OK))
		return nonsense(dev, "driver ready before its features were");
	dev->status = value;
	return 0;
}

static int features_write(struct virtio_mmio *dev, uint32_t value)
{
	unsigned int shift = 32 * dev->driver_select;

	if (dev->status & STATUS_FEATURES_OK)
		return nonsense(dev, "features changed after they were agreed on");
	if (dev->driver_select > 1)
		return value ? nonsense(dev, "features beyond bit 63") : 0;
	dev->driver_features &= ~(0xffffffffull << shift);
	dev->driver_features |= (uint64_t)value << shift;
	return 0;
}

static void half_write(uint64_t *address, uint32_t value, bool high)
{
	unsigned int shift = high ? 32 : 0;

	*address = (*address & ~(0xffffffffull << shift)) | (uint64_t)value << shift;
}

static int queue_write(struct virtio_mmio *dev, uint64_t offset, uint32_t value)
{
	struct virtqueue *vq;

	if (dev->queue_select >= dev->queue_count)
		return nonsense(dev, "write to a queue that is none");
	vq = &dev->queues[dev->queue_select];
	if (offset == REG_QUEUE_READY) {
		if (value == 0) {
			queue_reset(dev, dev->queue_select);
			return 0;
		}
		if (value != 1 || vq->ready || !(dev->status & STATUS_FEATURES_OK))
			return nonsense(dev, "queue made ready out of turn");
		return virtqueue_enable(vq, dev->memory) < 0 ? nonsense(dev, vq->why) : 0;
	}
	if (vq->ready)
		return nonsense(dev, "ready queue changed");
	switch (offset) {
	case REG_QUEUE_SIZE:
		vq->size = value;
		break;
	case REG_DESC_LOW: case REG_DESC_HIGH:
		half_write(&vq->desc_gpa, value, offset == REG_DESC_HIGH);
		break;
	case REG_AVAIL_LOW: case REG_AVAIL_HIGH:
		half_write(&vq->avail_gpa, value, offset == REG_AVAIL_HIGH);
		break;
	default:
		half_write(&vq->used_gpa, value, offset == REG_USED_HIGH);
		break;
	}
	return 0;
}

static int register_write(struct virtio_mmio *dev, uint64_t offset, uint32_t value)
{
	switch (offset) {
	case REG_FEATURES_SELECT:
		dev->features_select = value;
		return 0;
	case REG_DRIVER_SELECT:
		dev->driver_select = value;
		return 0;
	case REG_DRIVER_FEATURES:
		return features_write(dev, value);
	case REG_QUEUE_SELECT:
		dev->queue_select = value;
		return 0;
	case REG_INTERRUPT_ACK:
		dev->interrupt_status &= ~value;
		return 0;
	case REG_STATUS:
		return status_write(dev, value);
	case VIRTIO_MMIO_NOTIFY:
		/* Valid ones do not come here. */
		return nonsense(dev, "notify of a queue that is none");
	case REG_QUEUE_SIZE: case REG_QUEUE_READY:
	case REG_DESC_LOW: case REG_DESC_HIGH:
	case REG_AVAIL_LOW: case REG_AVAIL_HIGH:
	case REG_USED_LOW: case REG_USED_HIGH:
		return queue_write(dev, offset, value);
	default:
		return nonsense(dev, "write to a register that is none");
	}
}

int virtio_mmio_access(struct virtio_mmio *dev, uint64_t offset, unsigned int len, bool write,
		       uint32_t *value)
{
	if (offset >= REG_CONFIG) {
		if (write)
			return nonsense(dev, "write to the device's configuration");
		return config_read(dev, offset - REG_CONFIG, len, value);
	}
	if (len != 4 || offset % 4)
		return nonsense(dev, "register access that is not 32 bits wide");
	return write ? register_write(dev, offset, *value) :
		       register_read(dev, offset, value);
}

/* ---- Snapshots ---- */

_Static_assert(VIRTIO_QUEUES_MAX <= SNAPSHOT_QUEUES_MAX, "queues");

void virtio_mmio_save(const struct virtio_mmio *dev, struct saved_virtio *saved)
{
	*saved = (struct saved_virtio){
		.device_id = dev->device_id,
		.status = dev->status,
		.features_select = dev->features_select,
		.driver_select = dev->driver_select,
		.queue_select = dev->queue_select,
		.driver_features = dev->driver_features,
		.interrupt_status = dev->interrupt_status,
		.queue_count = dev->queue_count,
	};
	for (unsigned int i = 0; i < dev->queue_count; i++) {
		const struct virtqueue *vq = &dev->queues[i];

		saved->queues[i] = (struct saved_queue){
			.size = vq->size, .ready = vq->ready, .desc_gpa = vq->desc_gpa,
			.avail_gpa = vq->avail_gpa, .used_gpa = vq->used_gpa,
			.next_avail = vq->next_avail, .next_used = vq->next_used };
	}
}

int virtio_mmio_load(struct virtio_mmio *dev, const struct saved_virtio *saved,
		     struct err *err)
{
	if (saved->device_id != dev->device_id || saved->queue_count != dev->queue_count)
		return err_set(err, EINVAL, "the snapshot has another device (%u with %u "
			       "queues) where %u with %u belongs", saved->device_id,
			       saved->queue_count, dev->device_id, dev->queue_count);
	if (saved->status & ~(uint32_t)STATUS_ALL ||
	    saved->driver_features & ~features_offered(dev))
		return err_set(err, EINVAL, "the snapshot's device %u has status 0x%x and "
			       "features 0x%" PRIx64 ", which no driver can set",
			       saved->device_id, saved->status, saved->driver_features);
	for (unsigned int i = 0; i < dev->queue_count; i++) {
		const struct saved_queue *from = &saved->queues[i];
		struct virtqueue *vq = &dev->queues[i];

		*vq = (struct virtqueue){ .size = from->size, .desc_gpa = from->desc_gpa,
					  .avail_gpa = from->avail_gpa,
					  .used_gpa = from->used_gpa };
		if (from->ready && virtqueue_enable(vq, dev->memory) < 0)
			return err_set(err, EINVAL, "queue %u of the snapshot's device %u: %s",
				       i, saved->device_id, vq->why);
		vq->next_avail = from->next_avail;
		vq->next_used = from->next_used;
	}
	dev->status = saved->status;
	dev->features_select = saved->features_select;
	dev->driver_select = saved->driver_select;
	dev->queue_select = saved->queue_select;
	dev->driver_features = saved->driver_features;
	dev->interrupt_status = saved->interrupt_status;
	return 0;
}
