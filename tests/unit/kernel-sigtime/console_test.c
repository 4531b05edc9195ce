/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The console's driver against a device that stops and starts: it works on the rings in silence,
 * its interrupts are lost, others come without a cause, and each restore brings one. Whatever
 * the order, both streams arrive whole and nobody sleeps on with something to do.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <linux/virtio_mmio.h>
#include <linux/virtio_ring.h>

#include "world.h"

#include "abi/guestctl.h"
#include "guest-kernel/drv/drv.h"
#include "tests/unit/cunit_run.h"

#define RING_PAGES 40
#define QUEUE_SIZE 32

struct machine machine;

/* ---- memory: physical addresses are the test's own ---- */

static uint8_t frames[RING_PAGES][4096] __attribute__((aligned(4096)));
static struct page pages[RING_PAGES];
static unsigned npages, set_aside;

struct page *page_alloc(unsigned order, unsigned flags)
{
	if (npages == RING_PAGES)
		return NULL;
	return &pages[npages++];
}

void page_scattered_last(void)
{
	set_aside++;
}

paddr_t page_to_phys(const struct page *p)
{
	return (paddr_t)(uintptr_t)frames[p - pages];
}

void *phys_to_virt(paddr_t pa)
{
	return (void *)(uintptr_t)pa;
}

/* ---- the device: queue 0's ring is the first page asked for, queue 1's the one behind the
 * 16 buffers ---- */

static uint32_t regs[1024] __attribute__((aligned(4096)));
static uint16_t seen[2];
static uint64_t to_guest, from_guest, got, put_total;

static uint8_t byte_of(uint64_t at)
{
	return (uint8_t)(at * 31 + at / 257);
}

static struct vring_desc *descs(unsigned q)
{
	return (struct vring_desc *)frames[q * 17];
}

static bool device_has(unsigned q)
{
	return ((struct vring_avail *)(frames[q * 17] + 1024))->idx != seen[q];
}

static void device_take(unsigned q)
{
	struct vring_avail *avail = (struct vring_avail *)(frames[q * 17] + 1024);
	struct vring_used *used = (struct vring_used *)(frames[q * 17] + 2048);
	uint16_t id = avail->ring[seen[q]++ % QUEUE_SIZE];
	uint8_t *data = (uint8_t *)(uintptr_t)descs(q)[id].addr;
	uint32_t len = descs(q)[id].len;

	if (q == 0) {
		len = (uint32_t)(rand() % 4096) + 1;
		for (uint32_t i = 0; i < len; i++)
			data[i] = byte_of(to_guest++);
	} else {
		for (uint32_t i = 0; i < len; i++)
			CU_ASSERT_EQUAL_FATAL(data[i], byte_of(from_guest++));
	}
	used->ring[used->idx % QUEUE_SIZE] = (struct vring_used_elem){ id, q == 0 ? len : 0 };
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	used->idx++;
}

static void device_works(void)
{
	for (int n = rand() % 5; n > 0; n--) {
		unsigned q = rand() & 1;

		if (device_has(q))
			device_take(q);
	}
}

/* Asleep: the device goes on, the VM is stopped with the interrupt not delivered, and restored
 * with one of the VMM's own. It may take several restores until there is something to do. */
static int sleep_restored(uint64_t deadline, bool interruptible)
{
	unsigned wakes = world_wakes;

	for (int n = 0; n < 1000 && world_wakes == wakes; n++) {
		current->state = TASK_SLEEPING;
		device_works();
		virtio_interrupt(0);
	}
	CU_ASSERT_NOT_EQUAL_FATAL(world_wakes, wakes);
	current->state = TASK_RUNNABLE;
	return 0;
}

static struct file channel;

static long transfer(bool out, uint8_t *buf, size_t n)
{
	struct uiovec iov = { buf, n };
	struct uio u = { .iov = &iov, .niov = 1, .resid = n };

	return out ? channel.ops->write(&channel, &u, NULL) : channel.ops->read(&channel, &u, NULL);
}

static void write_some(void)
{
	static uint8_t buf[20000];
	size_t n = (size_t)(rand() % (int)sizeof(buf)) + 1;
	long r;

	for (size_t i = 0; i < n; i++)
		buf[i] = byte_of(put_total + i);
	r = transfer(true, buf, n);
	if (r == -EAGAIN) {
		CU_ASSERT_TRUE((channel.flags & KO_NONBLOCK) != 0);
		return;
	}
	CU_ASSERT_TRUE_FATAL(r > 0);
	CU_ASSERT_TRUE(r == (long)n || (channel.flags & KO_NONBLOCK) != 0);
	put_total += (uint64_t)r;
}

static void read_some(void)
{
	static uint8_t buf[20000];
	long r = transfer(false, buf, (size_t)(rand() % (int)sizeof(buf)) + 1);

	if (r == -EAGAIN) {
		CU_ASSERT_EQUAL(channel.ops->poll(&channel, NULL) & KPOLLIN, 0);
		return;
	}
	CU_ASSERT_TRUE_FATAL(r > 0);
	for (long i = 0; i < r; i++)
		CU_ASSERT_EQUAL_FATAL(buf[i], byte_of(got++));
}

static void test_streams(void)
{
	world_reset();
	srand(7);
	world_sleep = sleep_restored;
	current = task_find(1);
	virtio_interrupt(0);	/* before there is a driver */
	regs[VIRTIO_MMIO_MAGIC_VALUE / 4] = 0x74726976;
	regs[VIRTIO_MMIO_VERSION / 4] = 2;
	regs[VIRTIO_MMIO_DEVICE_ID / 4] = 3;
	machine.virtio[0] = (paddr_t)(uintptr_t)regs;
	/* A device with small queues is none of ours, and is not interrupted. */
	CU_ASSERT_EQUAL(virtio_console_probe(0), -ENODEV);
	virtio_interrupt(0);
	CU_ASSERT_EQUAL(channel_open(NULL, &channel), -ENXIO);
	npages = 0;
	regs[VIRTIO_MMIO_QUEUE_NUM_MAX / 4] = QUEUE_SIZE;
	CU_ASSERT_EQUAL_FATAL(virtio_console_probe(0), 0);
	CU_ASSERT_EQUAL_FATAL(channel_open(NULL, &channel), 0);
	for (unsigned step = 0; step < 20000; step++) {
		channel.flags = rand() & 1 ? KO_NONBLOCK : 0;
		switch (rand() % 5) {
		case 0:
			write_some();
			break;
		case 1:
			read_some();
			break;
		case 2:
			virtio_interrupt((unsigned)(rand() & 1));	/* for nothing */
			break;
		default:
			device_works();
			break;
		}
	}
	while (device_has(1))
		device_take(1);
	CU_ASSERT_EQUAL(from_guest, put_total);
	channel.flags = KO_NONBLOCK;
	while (got < to_guest)
		read_some();
	CU_ASSERT_TRUE(got > 1000000 && put_total > 1000000);
	CU_ASSERT_EQUAL(channel.ops->poll(&channel, NULL) & (KPOLLIN | KPOLLOUT), KPOLLOUT);
}

/* What initd is told; memory is prepared once in each VM that is made from another. */
static void test_resumed(void)
{
	struct cm_resumed r;

	for (unsigned i = 0; i < 6; i++) {
		if (i % 2 == 0)
			world_clock.generation = 1 + i;
		CU_ASSERT_EQUAL(channel.ops->ioctl(&channel, CM_IOC_RESUMED, (unsigned long)&r),
				0);
		CU_ASSERT_EQUAL(r.generation, world_clock.generation);
		CU_ASSERT_EQUAL(set_aside, i / 2);
	}
}

int main(void)
{
	CU_pSuite s = cunit_suite("kernel console", NULL, NULL);

	CU_add_test(s, "streams over a device that stops and starts", test_streams);
	CU_add_test(s, "resumed", test_resumed);
	return cunit_run();
}
