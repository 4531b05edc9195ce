/* SPDX-License-Identifier: Apache-2.0 */
/* Unit tests of what is saved of a VM and loaded again, as far as that needs no KVM. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/channel.h"
#include "vmm/clock.h"
#include "vmm/console.h"
#include "vmm/cpu_state.h"
#include "vmm/relay.h"
#include "tests/unit/cunit_run.h"

#define MIB	(1ull << 20)
#define RING	0x800000ull
#define DESC	(RING)
#define AVAIL	(RING + 0x1000)
#define USED	(RING + 0x2000)
#define BYTES	(RING + 0x4000)

static struct memory memory;

static int memory_setup(void)
{
	struct err err = ERR_INIT;

	return memory_init(&memory, 32 * MIB, &err);
}

static int memory_teardown(void)
{
	memory_done(&memory);
	return map_live() != 0;
}

/* ---- The console ---- */

static uint8_t given[2 * FRAME_BYTES_MAX];
static size_t given_size, frames_left;

static bool room(void *arg)
{
	return frames_left > 0;
}

static int take(void *arg, const struct frame *frame, const char **ret_why)
{
	memcpy(given + given_size, frame->bytes, frame->size);
	given_size += frame->size;
	frames_left--;
	return 0;
}

static void interrupt(void *arg)
{
}

static void console_new(struct console *c)
{
	CU_ASSERT_EQUAL_FATAL(console_init(c, &memory, interrupt, NULL), 0);
	c->room = room;
	c->frame = take;
}

static void reg(struct console *c, uint64_t offset, uint32_t value)
{
	CU_ASSERT_EQUAL_FATAL(virtio_mmio_access(&c->dev, offset, 4, true, &value), 0);
}

/* As a driver does; both queues of eight, the transmit queue's at RING. */
static void console_drive(struct console *c)
{
	reg(c, 0x70, 3);
	reg(c, 0x24, 1);
	reg(c, 0x20, 1);
	reg(c, 0x70, 11);
	for (uint32_t q = 0; q < 2; q++) {
		uint32_t at = q == CONSOLE_TX ? 0 : 0x100000;

		reg(c, 0x30, q);
		reg(c, 0x38, 8);
		reg(c, 0x80, (uint32_t)DESC + at);
		reg(c, 0x90, (uint32_t)AVAIL + at);
		reg(c, 0xa0, (uint32_t)USED + at);
		reg(c, 0x44, 1);
	}
	reg(c, 0x70, 15);
}

static void desc_put(unsigned int i, uint64_t addr, uint32_t len, uint16_t flags, uint16_t next)
{
	uint8_t *d = memory_ram(&memory, GPA(DESC + 16 * i), 16);

	memcpy(d, &addr, 8);
	memcpy(d + 8, &len, 4);
	memcpy(d + 12, &flags, 2);
	memcpy(d + 14, &next, 2);
}

/* Makes the chain that begins at descriptor `head` available. */
static void avail_put(uint16_t head)
{
	uint16_t *avail = memory_ram(&memory, GPA(AVAIL), 64);

	avail[2 + avail[1] % 8] = head;
	avail[1]++;
}

/* Two frames in a chain of three buffers whose borders fall into the frames. */
static size_t frames_put(void)
{
	uint8_t *bytes = memory_ram(&memory, GPA(BYTES), 4096);
	struct cm_frame head = { .type = CM_F_STDOUT, .id = 1, .length = 100 };
	size_t size = 0;

	memset(memory_ram(&memory, GPA(RING), 0x8000), 0, 0x8000);
	for (uint32_t i = 0; i < 2; i++) {
		head.id = 1 + i;
		memcpy(bytes + size, &head, sizeof(head));
		memset(bytes + size + sizeof(head), 'a' + (int)i, head.length);
		size += sizeof(head) + head.length;
	}
	desc_put(0, BYTES, 50, 1, 1);
	desc_put(1, BYTES + 50, 100, 1, 2);
	desc_put(2, BYTES + 150, (uint32_t)size - 150, 0, 0);
	avail_put(0);
	return size;
}

/* Saves at each point where the console can stand still, loads into a new one, and goes on:
 * the guest's bytes come out whole and in order. */
static void test_console_transmit(void)
{
	for (size_t first = 0; first <= 2; first++) {
		struct saved_console saved = { 0 };
		struct console a, b;
		struct err err = ERR_INIT;
		size_t size = frames_put();

		given_size = 0;
		frames_left = first;
		console_new(&a);
		console_drive(&a);
		CU_ASSERT(console_pump(&a) >= 0);
		CU_ASSERT_EQUAL_FATAL(console_save(&a, &saved), 0);
		CU_ASSERT_EQUAL(saved.tx_held, first < 2);
		console_new(&b);
		CU_ASSERT_EQUAL_FATAL(console_load(&b, &saved, &err), 0);
		frames_left = 9;
		CU_ASSERT(console_pump(&b) >= 0);
		CU_ASSERT_EQUAL(given_size, size);
		CU_ASSERT_EQUAL(memcmp(given, memory_ram(&memory, GPA(BYTES), size), size), 0);
		CU_ASSERT_EQUAL(b.dev.queues[CONSOLE_TX].next_used, 1);
		console_done(&a);
		console_done(&b);
		free(saved.to_guest.data);
		free(saved.partial.data);
	}
}

/* A queue that is reset while a buffer of its is half taken: nothing of that is saved, or given to
 * the queue that comes next. */
static void test_console_reset(void)
{
	struct saved_console saved = { 0 };
	struct console c, loaded;
	struct err err = ERR_INIT;

	frames_put();
	given_size = 0;
	frames_left = 1;
	console_new(&c);
	console_drive(&c);
	CU_ASSERT(console_pump(&c) >= 0);
	CU_ASSERT(c.tx_held);
	reg(&c, 0x30, CONSOLE_RX);
	reg(&c, 0x44, 0);
	CU_ASSERT(c.tx_held);
	reg(&c, 0x30, CONSOLE_TX);
	reg(&c, 0x44, 0);
	CU_ASSERT_FALSE(c.tx_held);
	CU_ASSERT_EQUAL_FATAL(console_save(&c, &saved), 0);
	console_new(&loaded);
	CU_ASSERT_EQUAL(console_load(&loaded, &saved, &err), 0);
	console_done(&c);
	console_done(&loaded);
	free(saved.to_guest.data);
	free(saved.partial.data);
}

/* What waits for the guest is kept, also when its oldest bytes lie at the queue's end. */
static void test_console_receive(void)
{
	struct cm_frame head = { .type = CM_F_STDIN, .id = 1, .length = 30000 };
	static uint8_t payload[30000], out[200000], want[200000];
	struct saved_console saved = { 0 };
	struct err err = ERR_INIT;
	struct console a, b;

	console_new(&a);
	for (int i = 0; i < 5; i++) {
		memset(payload, 'a' + i, sizeof(payload));
		CU_ASSERT_EQUAL(console_send(&a, &head, payload), 0);
		if (i == 1)
			buf_take(&a.to_guest, out, 50000);
	}
	buf_take(&a.to_guest, out, 60000);
	CU_ASSERT_EQUAL_FATAL(console_save(&a, &saved), 0);
	CU_ASSERT_EQUAL(saved.to_guest.size, a.to_guest.len);
	console_new(&b);
	CU_ASSERT_EQUAL_FATAL(console_load(&b, &saved, &err), 0);
	CU_ASSERT_EQUAL_FATAL(b.to_guest.len, a.to_guest.len);
	buf_take(&b.to_guest, out, saved.to_guest.size);
	buf_take(&a.to_guest, want, saved.to_guest.size);
	CU_ASSERT_EQUAL(memcmp(out, want, saved.to_guest.size), 0);
	console_done(&a);
	console_done(&b);
	free(saved.to_guest.data);
	free(saved.partial.data);
}

static void refused(const struct saved_console *saved, const char *words)
{
	struct err err = ERR_INIT;
	struct console c;

	console_new(&c);
	CU_ASSERT_EQUAL(console_load(&c, saved, &err), -EINVAL);
	CU_ASSERT(strstr(err.text, words) != NULL);
	console_done(&c);
}

static void test_console_refusals(void)
{
	static uint8_t noise[16] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };
	struct saved_console good = { 0 }, bad;
	struct console c;

	frames_put();
	frames_left = 0;
	console_new(&c);
	console_drive(&c);
	CU_ASSERT(console_pump(&c) >= 0);
	CU_ASSERT_EQUAL_FATAL(console_save(&c, &good), 0);
	bad = good;
	bad.virtio.device_id = 4;
	refused(&bad, "another device");
	bad = good;
	bad.virtio.queue_count = 3;
	refused(&bad, "another device");
	bad = good;
	bad.virtio.status = 0x40;
	refused(&bad, "no driver can set");
	bad = good;
	bad.virtio.driver_features = 1;
	refused(&bad, "no driver can set");
	bad = good;
	bad.virtio.queues[0].size = 3;
	refused(&bad, "queue size");
	bad = good;
	bad.virtio.queues[1].used_gpa = 32 * MIB - 4;
	refused(&bad, "outside RAM");
	bad = good;
	bad.tx_head = 8;
	refused(&bad, "transmit buffer");
	bad = good;
	bad.tx_index = 4;
	refused(&bad, "transmit buffer");
	bad = good;
	bad.tx_index = 0;
	bad.tx_offset = 51;
	refused(&bad, "transmit buffer");
	bad = good;
	bad.virtio.queues[1].ready = 0;
	refused(&bad, "transmit buffer");
	bad = good;
	bad.partial = (struct snapshot_bytes){ sizeof(noise), noise };
	refused(&bad, "valid frame");
	console_done(&c);
	free(good.to_guest.data);
	free(good.partial.data);
}

/* A guest that sends as much as it can while the client takes nothing. */
static void test_answers_have_room(void)
{
	static uint8_t bytes[FRAME_BYTES_MAX];
	struct cm_frame head = frame_head(CM_F_STDOUT, 0, 1, CM_FRAME_MAX);
	struct frame frame = { .head = head, .bytes = bytes, .size = sizeof(bytes),
			       .payload = bytes + sizeof(head) };
	struct {
		struct cm_vm_forked forked;
		char text[ERR_TEXT_MAX];
	} answer = { .forked = { .count = 1 } };
	struct err err = ERR_INIT;
	struct console c;
	struct relay relay;
	const char *why;

	console_new(&c);
	memcpy(bytes, &head, sizeof(head));
	CU_ASSERT_EQUAL_FATAL(relay_init(&relay, NULL, &c, -1, 1, &err), 0);
	relay.state = RELAY_RUNNING;
	while (relay_room(&relay))
		CU_ASSERT_EQUAL_FATAL(relay_guest_frame(&relay, &frame, &why), 0);
	CU_ASSERT_EQUAL(relay_say(&relay, CM_F_VM_LOG, "x", 1), -ENOBUFS);
	CU_ASSERT_EQUAL(relay_send(&relay, CM_F_VM_FORKED, &answer, sizeof(answer)), 0);
	CU_ASSERT_EQUAL(relay_send(&relay, CM_F_VM_SAVED, &answer, sizeof(answer)), 0);
	CU_ASSERT_FALSE(relay.client_gone);
	while (relay_send(&relay, CM_F_VM_SAVED, &answer, sizeof(answer)) == 0)
		;
	CU_ASSERT(relay.client_gone);
	relay_done(&relay);
	console_done(&c);
}

/* ---- CPUID, clock, tracking ---- */

static struct cpuid_table host = {
	.head.nent = 5,
	.entries = {
		{ .function = 1, .ecx = 1u << 20 | 1u << 30, .edx = 1u << 26 },
		{ .function = 7, .ebx = 1u << 5 | 1u << 16 },
		{ .function = 0xd, .eax = 0xe7 },
		{ .function = 0xd, .index = 2, .eax = 256, .ebx = 576 },
		{ .function = 0x80000001, .edx = 1u << 29 },
	},
};

static struct saved_cpuid saved_of(const struct cpuid_table *table)
{
	struct saved_cpuid saved = { .count = table->head.nent };

	for (uint32_t i = 0; i < saved.count; i++) {
		const struct kvm_cpuid_entry2 *e = &table->entries[i];

		saved.entries[i] = (struct saved_cpuid_entry){ e->function, e->index, e->flags,
			e->eax, e->ebx, e->ecx, e->edx };
	}
	return saved;
}

static void lacks(const struct saved_cpuid *saved, const char *feature)
{
	struct err err = ERR_INIT;

	CU_ASSERT_EQUAL(cpu_check_cpuid(saved, &host, &err), -EOPNOTSUPP);
	CU_ASSERT(strstr(err.text, feature) != NULL);
}

static void test_features(void)
{
	struct saved_cpuid saved = saved_of(&host);
	struct err err = ERR_INIT;

	CU_ASSERT_EQUAL(cpu_check_cpuid(&saved, &host, &err), 0);
	/* A host with more is fine, and so is what no program is promised. */
	saved.entries[1].ebx = 1u << 5;
	saved.entries[0].ecx |= 1u << 27 | 1u << 31;
	CU_ASSERT_EQUAL(cpu_check_cpuid(&saved, &host, &err), 0);
	saved = saved_of(&host);
	saved.entries[0].ecx |= 1u << 25;
	lacks(&saved, " aes,");
	saved = saved_of(&host);
	saved.entries[1].ebx |= 1u << 29;
	lacks(&saved, " sha_ni,");
	saved = saved_of(&host);
	saved.entries[4].edx |= 1u << 27;
	lacks(&saved, " rdtscp,");
	saved = saved_of(&host);
	saved.entries[2].eax |= 1u << 17;
	lacks(&saved, "extended state");
	saved = saved_of(&host);
	saved.entries[3].ebx = 640;
	lacks(&saved, "layout of extended state");
}

/* A file may say that its guest was shown anything. */
static void test_features_not_granted(void)
{
	static struct cpuid_table here = {
		.head.nent = 7,
		.entries = {
			{ .function = 0, .eax = 0x1f, .ebx = 1 },
			{ .function = 1, .eax = 0x806f8, .ecx = 1u << 20, .edx = 1u << 26 },
			{ .function = 7, .eax = 1, .ebx = 1u << 5, .flags = 1 },
			{ .function = 7, .index = 1, .eax = 1u << 4, .flags = 1 },
			{ .function = 0xa },
			{ .function = 0x40000001 },
			{ .function = 0x80000008, .eax = 0x302e, .ebx = 1 },
		},
	};
	static struct cpuid_table told;
	struct saved_cpuid saved = saved_of(&here);
	struct err err = ERR_INIT;

	cpu_narrow_cpuid(&saved, &here, &told);
	CU_ASSERT_EQUAL(memcmp(&told, &here, sizeof(told)), 0);
	saved.entries[0].ebx = 2;			/* a name is a name */
	saved.entries[1].eax = 0x50657;
	saved.entries[1].ecx |= 1u << 5 | 1u << 21;	/* VMX, x2APIC */
	saved.entries[2].eax = 2;
	saved.entries[3].eax |= 1u << 21;		/* AMX-FP16 */
	saved.entries[3].ebx = 3;
	saved.entries[4].eax = 0x08300805;		/* performance counters */
	saved.entries[5].eax = 0x01007efb;		/* KVM's paravirtual features */
	saved.entries[6].eax = 0x3934;
	saved.entries[6].ebx = 3;
	saved.entries[saved.count++] = (struct saved_cpuid_entry){ .function = 0x8000000a,
								   .eax = 1, .edx = ~0u };
	saved.entries[saved.count++] = (struct saved_cpuid_entry){ .function = 0x40000101,
								   .eax = ~0u };
	/* One that KVM would take for leaf 1, whatever its index. */
	saved.entries[saved.count++] = (struct saved_cpuid_entry){ .function = 1, .index = 9,
								   .ecx = ~0u };
	CU_ASSERT_EQUAL(cpu_check_cpuid(&saved, &here, &err), 0);
	cpu_narrow_cpuid(&saved, &here, &told);
	CU_ASSERT_EQUAL(told.head.nent, here.head.nent);
	CU_ASSERT_EQUAL(told.entries[0].ebx, 2);
	CU_ASSERT_EQUAL(told.entries[1].eax, 0x50657);
	CU_ASSERT_EQUAL(told.entries[1].ecx, 1u << 20);
	CU_ASSERT_EQUAL(told.entries[2].eax, 1);
	CU_ASSERT_EQUAL(told.entries[2].flags, 1);
	CU_ASSERT_EQUAL(told.entries[3].eax, 1u << 4);
	CU_ASSERT_EQUAL(told.entries[3].ebx, 0);
	CU_ASSERT_EQUAL(told.entries[4].eax, 0);
	CU_ASSERT_EQUAL(told.entries[5].eax, 0);
	CU_ASSERT_EQUAL(told.entries[6].eax, 0x302e);
	CU_ASSERT_EQUAL(told.entries[6].ebx, 1);
}

static void test_clock(void)
{
	struct clock_params p = { .tsc = 1000, .monotonic_ns = 5000, .tsc_khz = 2000000 };

	CU_ASSERT_EQUAL(clock_monotonic(&p, 1000), 5000);
	CU_ASSERT_EQUAL(clock_monotonic(&p, 900), 5000);
	CU_ASSERT_EQUAL(clock_monotonic(&p, 1000 + 2000000000), 1000005000);
}

static void test_tracking(void)
{
	uint8_t *ram = memory_ram(&memory, GPA(0), 32 * MIB);

	memory_mark(&memory, ram, 10);	/* not tracked: nothing to do */
	CU_ASSERT_EQUAL_FATAL(memory_track(&memory), 0);
	memory_mark(&memory, ram + 4095, 2);
	memory_mark(&memory, ram + 64 * 4096, 0);
	memory_mark(&memory, ram + 32 * MIB - 1, 1);
	CU_ASSERT_EQUAL(memory.dirty[0], 3);
	CU_ASSERT_EQUAL(memory.dirty[1], 0);
	CU_ASSERT_EQUAL(memory.dirty[memory_bitmap_words(&memory) - 1], 1ull << 63);
	CU_ASSERT_EQUAL_FATAL(memory_track(&memory), 0);
	CU_ASSERT_EQUAL(memory.dirty[0], 0);
}

int main(void)
{
	CU_pSuite suite = cunit_suite("saved", memory_setup, memory_teardown);

	CU_add_test(suite, "console: from the guest", test_console_transmit);
	CU_add_test(suite, "console reset", test_console_reset);
	CU_add_test(suite, "console: to the guest", test_console_receive);
	CU_add_test(suite, "console: refusals", test_console_refusals);
	CU_add_test(suite, "room for answers", test_answers_have_room);
	CU_add_test(suite, "CPU features", test_features);
	CU_add_test(suite, "CPU features not granted", test_features_not_granted);
	CU_add_test(suite, "clock", test_clock);
	CU_add_test(suite, "tracking", test_tracking);
	return cunit_run();
}
