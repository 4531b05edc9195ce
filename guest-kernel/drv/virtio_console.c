/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-mmio console (virtio 1.2, sections 4.2 and 5.3; no multiport), and on it the device
 * /dev/casemate-channel: a byte stream between host and initd.
 *
 * Receive: RX_BUFFERS pages are with the device; a filled one waits in the used ring until the
 * reader has emptied it and is then given back, so the host can be ahead by no more than that.
 * Transmit: TX_BUFFERS pages; a writer that finds none free sleeps until the device is done
 * with one. Interrupts are edges: the status register need not be read.
 *
 * All that the driver knows about the device is the used index up to which it has looked, and
 * an interrupt only makes it look: one without a cause does nothing, and one that was lost with
 * a stopped VM is made good by the one that the VMM raises when it restores it. The VMM in its
 * turn looks at both available rings then, since a notification may have been lost likewise.
 */
#include <linux/virtio_config.h>
#include <linux/virtio_ids.h>
#include <linux/virtio_mmio.h>
#include <linux/virtio_ring.h>

#include "abi/clock.h"
#include "abi/guestctl.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/drv/drv.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/mm/page.h"

#define QUEUE_SIZE	32
#define RX_BUFFERS	16
#define TX_BUFFERS	16

struct queue {
	struct vring_desc *desc;
	struct vring_avail *avail;
	volatile struct vring_used *used;
	uint16_t last_used;
	uint8_t *buffer[QUEUE_SIZE];
};

static struct console {
	volatile uint32_t *regs;
	unsigned index;			/* place in machine.virtio */
	struct queue rx, tx;
	/* receive: the filled buffer being read */
	uint8_t *rx_data;
	uint32_t rx_len, rx_off;
	uint16_t rx_id;
	/* transmit: free buffers, a bit each */
	uint32_t tx_free;
	struct waitq rx_wait, tx_wait;
	struct mutex tx_lock;		/* keeps one write(2) together */
	bool open;
	uint64_t generation;		/* that initd was told last; 0: none yet */
} console;

static uint32_t reg_read(unsigned off)
{
	return console.regs[off / 4];
}

static void reg_write(unsigned off, uint32_t v)
{
	console.regs[off / 4] = v;
}

static void reg_write64(unsigned low, paddr_t v)
{
	reg_write(low, (uint32_t)v);
	reg_write(low + 4, (uint32_t)(v >> 32));
}

static int queue_setup(struct queue *q, unsigned n, unsigned nbuffers, bool receive)
{
	struct page *ring = page_alloc(0, PA_ZERO);
	uint8_t *base;

	if (ring == NULL)
		return -ENOMEM;
	base = page_to_virt(ring);
	q->desc = (struct vring_desc *)base;
	q->avail = (struct vring_avail *)(base + 1024);
	q->used = (volatile struct vring_used *)(base + 2048);
	for (unsigned i = 0; i < nbuffers; i++) {
		struct page *p = page_alloc(0, 0);

		if (p == NULL)
			return -ENOMEM;
		q->buffer[i] = page_to_virt(p);
		q->desc[i].addr = page_to_phys(p);
		if (receive) {
			q->desc[i].len = PAGE_SIZE;
			q->desc[i].flags = VRING_DESC_F_WRITE;
			q->avail->ring[i] = (uint16_t)i;
		}
	}
	if (receive)
		q->avail->idx = (uint16_t)nbuffers;
	reg_write(VIRTIO_MMIO_QUEUE_SEL, n);
	if (reg_read(VIRTIO_MMIO_QUEUE_NUM_MAX) < QUEUE_SIZE)
		return -ENODEV;
	reg_write(VIRTIO_MMIO_QUEUE_NUM, QUEUE_SIZE);
	reg_write64(VIRTIO_MMIO_QUEUE_DESC_LOW, page_to_phys(ring));
	reg_write64(VIRTIO_MMIO_QUEUE_AVAIL_LOW, page_to_phys(ring) + 1024);
	reg_write64(VIRTIO_MMIO_QUEUE_USED_LOW, page_to_phys(ring) + 2048);
	reg_write(VIRTIO_MMIO_QUEUE_READY, 1);
	return 0;
}

static void queue_push(struct queue *q, unsigned n, uint16_t id)
{
	q->avail->ring[q->avail->idx % QUEUE_SIZE] = id;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	q->avail->idx++;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if ((q->used->flags & VRING_USED_F_NO_NOTIFY) == 0)
		reg_write(VIRTIO_MMIO_QUEUE_NOTIFY, n);
}

static int console_setup(struct console *c)
{
	int r;

	if (reg_read(VIRTIO_MMIO_MAGIC_VALUE) != 0x74726976 ||
	    reg_read(VIRTIO_MMIO_VERSION) != 2 ||
	    reg_read(VIRTIO_MMIO_DEVICE_ID) != VIRTIO_ID_CONSOLE)
		return -ENODEV;
	waitq_init(&c->rx_wait);
	waitq_init(&c->tx_wait);
	mutex_init(&c->tx_lock);
	reg_write(VIRTIO_MMIO_STATUS, 0);
	reg_write(VIRTIO_MMIO_STATUS, VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER);
	reg_write(VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1);
	reg_write(VIRTIO_MMIO_DRIVER_FEATURES, 1u << (VIRTIO_F_VERSION_1 - 32));
	reg_write(VIRTIO_MMIO_DRIVER_FEATURES_SEL, 0);
	reg_write(VIRTIO_MMIO_DRIVER_FEATURES, 0);
	reg_write(VIRTIO_MMIO_STATUS, VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER |
				      VIRTIO_CONFIG_S_FEATURES_OK);
	r = queue_setup(&c->rx, 0, RX_BUFFERS, true);
	if (r == 0)
		r = queue_setup(&c->tx, 1, TX_BUFFERS, false);
	if (r != 0)
		return r;
	c->tx_free = (1u << TX_BUFFERS) - 1;
	reg_write(VIRTIO_MMIO_STATUS, VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER |
				      VIRTIO_CONFIG_S_FEATURES_OK |
				      VIRTIO_CONFIG_S_DRIVER_OK);
	reg_write(VIRTIO_MMIO_QUEUE_NOTIFY, 0);
	return 0;
}

int virtio_console_probe(unsigned n)
{
	struct console *c = &console;
	int r;

	c->regs = phys_to_virt(machine.virtio[n]);
	c->index = n;
	r = console_setup(c);
	if (r != 0)
		c->regs = NULL;		/* an interrupt must not find half a queue */
	return r;
}

static bool rx_ready(struct console *c)
{
	return c->rx_data != NULL || c->rx.used->idx != c->rx.last_used;
}

/* Takes the next filled buffer, if there is one. */
static bool rx_next(struct console *c)
{
	struct queue *q = &c->rx;
	volatile struct vring_used_elem *e;

	if (c->rx_data != NULL)
		return true;
	if (q->used->idx == q->last_used)
		return false;
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	e = &q->used->ring[q->last_used++ % QUEUE_SIZE];
	c->rx_id = (uint16_t)(e->id % RX_BUFFERS);
	c->rx_len = MIN(e->len, (uint32_t)PAGE_SIZE);
	c->rx_off = 0;
	c->rx_data = q->buffer[c->rx_id];
	return true;
}

static void tx_reap(struct console *c)
{
	struct queue *q = &c->tx;

	while (q->used->idx != q->last_used) {
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		c->tx_free |= 1u << (q->used->ring[q->last_used++ % QUEUE_SIZE].id % TX_BUFFERS);
	}
}

/* Is there a free transmit buffer? If not, the device is asked to interrupt when there is. */
static bool tx_ready(struct console *c)
{
	tx_reap(c);
	if (c->tx_free == 0) {
		c->tx.avail->flags = 0;
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		tx_reap(c);
	}
	if (c->tx_free == 0)
		return false;
	c->tx.avail->flags = VRING_AVAIL_F_NO_INTERRUPT;
	return true;
}

void virtio_interrupt(unsigned n)
{
	struct console *c = &console;

	if (c->regs == NULL || n != c->index)
		return;
	if (tx_ready(c))
		waitq_wake(&c->tx_wait, KPOLLOUT | KPOLLWRNORM);
	if (rx_ready(c))
		waitq_wake(&c->rx_wait, KPOLLIN | KPOLLRDNORM);
}

static long channel_read(struct file *f, struct uio *u, uint64_t *pos)
{
	struct console *c = &console;
	size_t total = 0;
	int r;

	if (u->resid == 0)
		return 0;
	if (!rx_ready(c)) {
		if ((f->flags & KO_NONBLOCK) != 0)
			return -EAGAIN;
		r = WAIT_EVENT(&c->rx_wait, rx_ready(c));
		if (r != 0)
			return r;
	}
	while (u->resid > 0 && rx_next(c)) {
		size_t n = MIN(u->resid, (size_t)(c->rx_len - c->rx_off));
		size_t done = uio_put(u, c->rx_data + c->rx_off, n);

		total += done;
		c->rx_off += (uint32_t)done;
		if (c->rx_off == c->rx_len) {
			c->rx_data = NULL;
			queue_push(&c->rx, 0, c->rx_id);
		}
		if (done < n)
			return total > 0 ? (long)total : -EFAULT;
	}
	return (long)total;
}

static long channel_write(struct file *f, struct uio *u, uint64_t *pos)
{
	struct console *c = &console;
	size_t total = 0;
	long r = 0;

	mutex_lock(&c->tx_lock);
	while (u->resid > 0) {
		size_t n = MIN(u->resid, PAGE_SIZE), done;
		unsigned id;

		if (!tx_ready(c)) {
			if ((f->flags & KO_NONBLOCK) != 0)
				r = -EAGAIN;
			else
				r = WAIT_EVENT(&c->tx_wait, tx_ready(c));
			if (r != 0)
				break;
		}
		id = (unsigned)__builtin_ctz(c->tx_free);
		done = uio_get(u, c->tx.buffer[id], n);
		if (done == 0) {
			r = -EFAULT;
			break;
		}
		c->tx_free &= ~(1u << id);
		c->tx.desc[id].len = (uint32_t)done;
		queue_push(&c->tx, 1, (uint16_t)id);
		total += done;
	}
	mutex_unlock(&c->tx_lock);
	return total > 0 ? (long)total : r;
}

static unsigned channel_poll(struct file *f, struct poll_table *pt)
{
	struct console *c = &console;
	unsigned mask = 0;

	poll_wait(pt, &c->rx_wait);
	poll_wait(pt, &c->tx_wait);
	if (rx_ready(c))
		mask |= KPOLLIN | KPOLLRDNORM;
	if (tx_ready(c))
		mask |= KPOLLOUT | KPOLLWRNORM;
	return mask;
}

static long channel_ioctl(struct file *f, unsigned cmd, unsigned long arg)
{
	struct cm_resumed r;
	uint8_t b;

	if (cmd != CM_IOC_RESUMED)
		return -ENOTTY;
	random_bytes(&b, 1);		/* notices a new generation and mixes its entropy */
	r.generation = clock_generation();
	r.realtime_ns = clock_realtime_ns();
	if (console.generation != 0 && console.generation != r.generation)
		page_scattered_last();
	console.generation = r.generation;
	return copy_to_user((void __user *)arg, &r, sizeof(r));
}

static void channel_release(struct file *f)
{
	console.open = false;
}

static const struct file_ops channel_ops = {
	.release = channel_release,
	.read = channel_read,
	.write = channel_write,
	.poll = channel_poll,
	.ioctl = channel_ioctl,
};

int channel_open(struct inode *i, struct file *f)
{
	if (console.regs == NULL)
		return -ENXIO;
	if (current->proc->pid != 1)
		return -EPERM;
	if (console.open)
		return -EBUSY;
	console.open = true;
	f->ops = &channel_ops;
	return 0;
}
