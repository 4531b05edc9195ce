/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plays kernel and initd at once, as little as `casemate run` can be tested with: a polling
 * virtio-console driver, the start of the channel, and "programs" by the name in argv[0]:
 *   echo ARG...  its arguments, a line each, then exit 0
 *   env          its environment
 *   cat          stdin to stdout until its end, then exit 0
 *   exit N       exit N
 *   flood N      N times 1024 bytes on stdout, then exit 0
 *   both         a line on stdout, one on stderr, exit 3
 *   wait         until a signal N comes, then dies of it
 *   stubborn     ignores signals for ever
 *   panic        the guest ends with a panic
 *   early        powers off without EXIT
 *   lie          breaks the protocol
 * Anything else: FAILED, as initd has it for a program that is not there.
 */
#include "guest.h"
#include "abi/channel.h"
#include "abi/clock.h"

#define QUEUE		8u
#define RX_SIZE		4096u
#define TX_SIZE		(16u + 16384u)

struct desc {
	uint64_t addr;
	uint32_t len;
	uint16_t flags, next;
};

/* One page each, from 10 MiB on. */
#define RING(q)		(0xa00000 + (q) * 0x10000)
#define RX_BUFFER(i)	(0xb00000 + (i) * 0x1000)
#define TX_BUFFER	0xc00000
/* What of stdin is not yet passed on; credits bound it. */
#define STDIN_BUFFER	0xd00000
#define STDIN_SIZE	CM_CREDIT_INITIAL

#define VIRTIO(reg)	(*guest_reg(CM_VIRTIO_GPA(0) + (reg)))

static uint16_t rx_taken, tx_sent;
static uint32_t rx_at, rx_have, rx_buffer;
static uint32_t out_credit = CM_CREDIT_INITIAL;
static uint32_t exec_id;
static uint32_t stdin_at, stdin_have, stdin_end;
static uint8_t payload[CM_FRAME_MAX];

void *memcpy(void *to, const void *from, unsigned long n)
{
	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
	return to;
}

void *memset(void *to, int value, unsigned long n)
{
	void *at = to;

	__asm__ volatile("rep stosb" : "+D"(at), "+c"(n) : "a"(value) : "memory");
	return to;
}

static volatile uint16_t *avail(int q)
{
	return guest_ram(RING(q) + 0x1000);
}

static volatile uint16_t *used(int q)
{
	return guest_ram(RING(q) + 0x2000);
}

static struct desc *descs(int q)
{
	return guest_ram(RING(q));
}

static void queue_init(int q)
{
	VIRTIO(0x030) = (uint32_t)q;
	VIRTIO(0x038) = QUEUE;
	VIRTIO(0x080) = RING(q);
	VIRTIO(0x090) = RING(q) + 0x1000;
	VIRTIO(0x0a0) = RING(q) + 0x2000;
	VIRTIO(0x044) = 1;
	avail(q)[0] = 1;	/* no interrupts: this guest looks itself */
}

static void offer(int q, uint16_t index)
{
	avail(q)[2 + avail(q)[1] % QUEUE] = index;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	avail(q)[1] = (uint16_t)(avail(q)[1] + 1);
	VIRTIO(0x050) = (uint32_t)q;
}

static void console_init(void)
{
	VIRTIO(0x070) = 0;
	VIRTIO(0x070) = 3;
	VIRTIO(0x024) = 1;
	VIRTIO(0x020) = 1;
	VIRTIO(0x070) = 11;
	queue_init(0);
	queue_init(1);
	VIRTIO(0x070) = 15;
	for (uint16_t i = 0; i < QUEUE; i++) {
		descs(0)[i] = (struct desc){ RX_BUFFER(i), RX_SIZE, 2, 0 };
		offer(0, i);
	}
}

static void send(uint16_t type, uint16_t flags, uint32_t id, const void *data, uint32_t len)
{
	struct cm_frame head = { .length = len, .type = type, .flags = flags, .id = id };
	uint8_t *buffer = guest_ram(TX_BUFFER);

	memcpy(buffer, &head, sizeof(head));
	memcpy(buffer + sizeof(head), data, len);
	descs(1)[0] = (struct desc){ TX_BUFFER, (uint32_t)sizeof(head) + len, 0, 0 };
	offer(1, 0);
	tx_sent++;
	while (used(1)[1] != tx_sent)
		__asm__ volatile("pause");
}

/* Whether a byte has come; with it, when asked. */
static int receive_ready(void)
{
	if (rx_at < rx_have)
		return 1;
	if (rx_have) {
		rx_have = 0;
		offer(0, (uint16_t)rx_buffer);
	}
	if (used(0)[1] == rx_taken)
		return 0;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	rx_buffer = *(volatile uint32_t *)&used(0)[2 + 4 * (rx_taken % QUEUE)];
	rx_have = *(volatile uint32_t *)&used(0)[4 + 4 * (rx_taken % QUEUE)];
	rx_at = 0;
	rx_taken++;
	return 1;
}

static void receive(void *to, uint32_t n)
{
	uint8_t *at = to;

	while (n > 0) {
		uint32_t part;

		while (!receive_ready())
			__asm__ volatile("pause");
		part = rx_have - rx_at < n ? rx_have - rx_at : n;
		memcpy(at, (uint8_t *)guest_ram(RX_BUFFER(rx_buffer)) + rx_at, part);
		rx_at += part;
		at += part;
		n -= part;
	}
}

static void stdin_keep(uint32_t n)
{
	uint8_t *buffer = guest_ram(STDIN_BUFFER);

	if (n == 0)
		stdin_end = 1;
	for (uint32_t i = 0; i < n; i++)
		buffer[(stdin_at + stdin_have + i) % STDIN_SIZE] = payload[i];
	stdin_have += n;
}

static void receive_frame(struct cm_frame *head)
{
	struct cm_credit credit;

	receive(head, sizeof(*head));
	receive(payload, head->length);
	if (head->type == CM_F_CREDIT) {
		memcpy(&credit, payload, sizeof(credit));
		if (credit.stream == CM_F_STDOUT)
			out_credit += credit.bytes;
	}
	if (head->type == CM_F_STDIN)
		stdin_keep(head->length);
	if (head->type == CM_F_REPORT_GET)
		send(CM_F_REPORT, 1, 0, "the report", 10);
	if (head->type == CM_F_SHUTDOWN)
		guest_end(CM_END_POWEROFF);
}

static uint32_t length(const char *text)
{
	uint32_t n = 0;

	while (text[n])
		n++;
	return n;
}

static int equal(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

static uint32_t number(const char *text)
{
	uint32_t n = 0;

	while (*text >= '0' && *text <= '9')
		n = n * 10 + (uint32_t)(*text++ - '0');
	return n;
}

static void out(const void *data, uint32_t n)
{
	struct cm_frame head;

	while (out_credit < n)
		receive_frame(&head);
	out_credit -= n;
	send(CM_F_STDOUT, 0, exec_id, data, n);
}

static void task_exit(uint32_t status)
{
	struct cm_exit ended = { .status = status };

	send(CM_F_STDOUT, 0, exec_id, "", 0);
	send(CM_F_STDERR, 0, exec_id, "", 0);
	send(CM_F_EXIT, 0, exec_id, &ended, sizeof(ended));
}

static void strings_out(const char *at, uint32_t count)
{
	static char line[16384];

	while (count--) {
		uint32_t n = length(at);

		memcpy(line, at, n);
		line[n] = '\n';
		out(line, n + 1);
		at += n + 1;
	}
}

static void cat(void)
{
	struct cm_credit credit = { .stream = CM_F_STDIN };
	struct cm_frame head;

	for (;;) {
		uint32_t n = stdin_have < 16384 ? stdin_have : 16384;

		if (n > STDIN_SIZE - stdin_at)
			n = STDIN_SIZE - stdin_at;
		if (n == 0 && stdin_end)
			break;
		if (n == 0) {
			receive_frame(&head);
			continue;
		}
		out((uint8_t *)guest_ram(STDIN_BUFFER) + stdin_at, n);
		stdin_at = (stdin_at + n) % STDIN_SIZE;
		stdin_have -= n;
		credit.bytes = n;
		send(CM_F_CREDIT, 0, exec_id, &credit, sizeof(credit));
	}
	task_exit(0);
}

static void wait_signal(int stubborn)
{
	struct cm_frame head;
	uint32_t got;

	do {
		receive_frame(&head);
		memcpy(&got, payload, sizeof(got));
	} while (stubborn || head.type != CM_F_SIGNAL);
	task_exit(got);
}

static void flood(uint32_t kib)
{
	static uint8_t block[1024];

	memset(block, 'x', sizeof(block));
	block[1023] = '\n';
	while (kib--)
		out(block, sizeof(block));
	task_exit(0);
}

static void execute(const struct cm_frame *head)
{
	static uint8_t strings[CM_FRAME_MAX];
	const char *name = (const char *)strings, *next;
	struct cm_failed failed = { .error = 2, .step = CM_FAILED_EXEC };
	struct cm_exec exec;
	uint32_t pid = 2;

	exec_id = head->id;
	memcpy(&exec, payload, sizeof(exec));
	memcpy(strings, payload + sizeof(exec), head->length - (uint32_t)sizeof(exec));
	next = name + length(name) + 1;
	if (equal(name, "missing")) {
		send(CM_F_FAILED, 0, exec_id, &failed, sizeof(failed));
		return;
	}
	send(CM_F_STARTED, 0, exec_id, &pid, sizeof(pid));
	if (equal(name, "echo")) {
		strings_out(next, exec.argc - 1);
		task_exit(0);
	} else if (equal(name, "env")) {
		for (uint32_t i = 1; i < exec.argc; i++)
			next += length(next) + 1;
		strings_out(next, exec.envc);
		task_exit(0);
	} else if (equal(name, "cat")) {
		cat();
	} else if (equal(name, "exit")) {
		task_exit(number(next) << 8);
	} else if (equal(name, "flood")) {
		flood(number(next));
	} else if (equal(name, "both")) {
		send(CM_F_STDERR, 0, exec_id, "error\n", 6);
		out("output\n", 7);
		task_exit(3 << 8);
	} else if (equal(name, "wait")) {
		wait_signal(0);
	} else if (equal(name, "stubborn")) {
		wait_signal(1);
	} else if (equal(name, "panic")) {
		guest_puts("panic: asked for\n");
		guest_end(CM_END_PANIC);
	} else if (equal(name, "early")) {
		guest_end(CM_END_POWEROFF);
	} else {
		send(CM_F_EXEC, 0, 0, "", 0);
	}
}

void guest_main(const void *fdt)
{
	struct cm_hello hello = { .version = CM_CHANNEL_VERSION };
	struct cm_resumed resumed = { 0 };
	struct cm_frame head;

	console_init();
	send(CM_F_HELLO, 0, 0, &hello, sizeof(hello));
	for (;;) {
		receive_frame(&head);
		if (head.type == CM_F_RESUME) {
			memcpy(&resumed.generation, payload, sizeof(resumed.generation));
			if (resumed.generation !=
			    ((struct cm_clock *)guest_ram(CM_CLOCK_GPA))->generation)
				guest_end(CM_END_PANIC);
			send(CM_F_RESUMED, 0, 0, &resumed, sizeof(resumed));
		}
		if (head.type == CM_F_EXEC)
			execute(&head);
	}
}
