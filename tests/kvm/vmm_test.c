/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs casemate-vmm with the tiny guests of tests/guests and compares how each VM ends.
 *   vmm_test CASEMATE-VMM GUEST-DIRECTORY [case...]
 * Exit status 77 with the reason where KVM cannot be used, unless CASEMATE_REQUIRE_KVM=1.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/frame.h"

#define PATIENCE_MS	60000

struct vm_case {
	const char *name;
	const char *guest;
	const char *mem;
	const char *extra[4];		/* more arguments for the VMM */
	uint32_t reason;		/* enum cm_vm_end_reason */
	const char *text;		/* must be in VM_END's text */
	const char *console;		/* must be in the console text */
	bool image;			/* give it a root image */
	bool hang_up;			/* close the socket instead of waiting */
};

static const struct vm_case cases[] = {
	{ .name = "hello", .guest = "guest-hello", .mem = "16777216",
	  .extra = { "--verbose" },
	  .reason = CM_VM_POWEROFF, .text = "powered off",
	  .console = "hello from ring 3\n" },
	{ .name = "nucleus", .guest = "guest-nucleus", .mem = "16777216",
	  .extra = { "--verbose" },
	  .reason = CM_VM_POWEROFF, .text = "powered off",
	  .console = "nucleus: ok\n" },
	{ .name = "large", .guest = "guest-hello", .mem = "4294967296",
	  .extra = { "--verbose" },
	  .reason = CM_VM_POWEROFF, .text = "powered off",
	  .console = "hello from ring 3\n", .image = true },
	{ .name = "panic", .guest = "guest-panic", .mem = "16777216",
	  .reason = CM_VM_GUEST_PANIC, .text = " guest_main+0x" },
	{ .name = "triple fault", .guest = "guest-misbehave", .mem = "16777216",
	  .extra = { "--bootargs", "do=fault" },
	  .reason = CM_VM_GUEST_CRASH, .text = "triple fault" },
	{ .name = "stray MMIO", .guest = "guest-misbehave", .mem = "16777216",
	  .extra = { "--bootargs", "do=mmio" },
	  .reason = CM_VM_GUEST_CRASH, .text = "nothing is there" },
	{ .name = "unknown register", .guest = "guest-misbehave", .mem = "16777216",
	  .extra = { "--bootargs", "do=register" },
	  .reason = CM_VM_GUEST_CRASH, .text = "register that is none" },
	{ .name = "stray notify", .guest = "guest-misbehave", .mem = "16777216",
	  .extra = { "--bootargs", "do=notify" },
	  .reason = CM_VM_GUEST_CRASH, .text = "queue that is none" },
	{ .name = "ring outside RAM", .guest = "guest-misbehave", .mem = "16777216",
	  .extra = { "--bootargs", "do=queue" },
	  .reason = CM_VM_GUEST_CRASH, .text = "ring outside RAM" },
	{ .name = "platform register", .guest = "guest-misbehave", .mem = "16777216",
	  .extra = { "--bootargs", "do=platform" },
	  .reason = CM_VM_GUEST_CRASH, .text = "platform page" },
	{ .name = "write to the image", .guest = "guest-misbehave", .mem = "16777216",
	  .extra = { "--bootargs", "do=image" },
	  .reason = CM_VM_GUEST_CRASH, .text = "root image is read-only", .image = true },
	{ .name = "endless chain", .guest = "guest-misbehave", .mem = "16777216",
	  .extra = { "--bootargs", "do=ring" },
	  .reason = CM_VM_GUEST_CRASH, .text = "chain too long" },
	{ .name = "bad frame", .guest = "guest-misbehave", .mem = "16777216",
	  .extra = { "--bootargs", "do=frame" },
	  .reason = CM_VM_GUEST_PROTOCOL, .text = "bad frame" },
	{ .name = "bad page tables", .guest = "guest-misbehave", .mem = "16777216",
	  .extra = { "--bootargs", "do=tables",
	  "--boot-timeout", "3" },
	  .reason = CM_VM_GUEST_CRASH, .text = "" },
	{ .name = "unknown end", .guest = "guest-misbehave", .mem = "16777216",
	  .extra = { "--bootargs", "do=endcode" },
	  .reason = CM_VM_GUEST_CRASH, .text = "unknown code 99" },
	{ .name = "spin", .guest = "guest-misbehave", .mem = "16777216",
	  .extra = { "--bootargs", "do=spin", "--boot-timeout",
	  "2" },
	  .reason = CM_VM_TIMEOUT, .text = "no HELLO" },
	{ .name = "client goes", .guest = "guest-misbehave", .mem = "16777216",
	  .extra = { "--bootargs", "do=spin" },
	  .reason = CM_VM_CLIENT_GONE, .text = "", .hang_up = true },
	{ .name = "odd memory", .guest = "guest-hello", .mem = "16777217",
	  .reason = CM_VM_HOST_ERROR, .text = "multiple of 2 MiB" },
	{ .name = "tiny memory", .guest = "guest-hello", .mem = "4194304",
	  .reason = CM_VM_HOST_ERROR, .text = "too small" },
	{ .name = "huge memory", .guest = "guest-hello", .mem = "67108864000000",
	  .reason = CM_VM_HOST_ERROR, .text = "memory size" },
	{ .name = "no kernel", .guest = "guest-none", .mem = "16777216",
	  .reason = CM_VM_HOST_ERROR, .text = "cannot open the kernel" },
};

struct outcome {
	bool ended, booted;
	uint32_t reason;
	char text[4096];
	char console[8192];
	char log[8192];
};

static void text_add(char *to, size_t size, const struct frame *frame, size_t skip)
{
	size_t used = strlen(to), n = frame->head.length - skip;

	if (n > size - 1 - used)
		n = size - 1 - used;
	memcpy(to + used, frame->payload + skip, n);
	to[used + n] = '\0';
}

static void frame_note(struct outcome *out, const struct frame *frame)
{
	switch (frame->head.type) {
	case CM_F_VM_BOOTED:
		out->booted = true;
		break;
	case CM_F_VM_CONSOLE:
		text_add(out->console, sizeof(out->console), frame, 0);
		break;
	case CM_F_VM_LOG:
		text_add(out->log, sizeof(out->log), frame, 0);
		strncat(out->log, "\n", sizeof(out->log) - strlen(out->log) - 1);
		break;
	case CM_F_VM_END:
		memcpy(&out->reason, frame->payload, sizeof(out->reason));
		text_add(out->text, sizeof(out->text), frame, sizeof(struct cm_vm_end));
		out->ended = true;
		break;
	default:
		break;
	}
}

/* Reads frames to the end of the stream. Returns 0, or -1 with a message. */
static int frames_read(int fd, struct outcome *out)
{
	static uint8_t bytes[65536];
	struct frame_decoder decoder;

	frame_decoder_init(&decoder, FRAME_VMM_TO_CLIENT);
	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		ssize_t n, at = 0;

		if (poll(&p, 1, PATIENCE_MS) <= 0) {
			printf("# nothing comes from the VMM\n");
			break;
		}
		n = read(fd, bytes, sizeof(bytes));
		if (n <= 0) {
			frame_decoder_done(&decoder);
			return 0;
		}
		while (at < n) {
			struct frame frame;
			size_t used;
			int r = frame_decoder_feed(&decoder, bytes + at, (size_t)(n - at),
						   &used, &frame);

			at += (ssize_t)used;
			if (r < 0) {
				printf("# bad frame from the VMM: %s\n", decoder.why);
				frame_decoder_done(&decoder);
				return -1;
			}
			if (r > 0)
				frame_note(out, &frame);
		}
	}
	frame_decoder_done(&decoder);
	return -1;
}

static int image_make(void)
{
	int fd = memfd_create("image", 0);

	/* Not a multiple of 2 MiB, so that there is a tail. */
	if (fd < 0 || ftruncate(fd, 3 << 20 | 4096) < 0)
		return -1;
	return fd;
}

static pid_t vmm_start(const struct vm_case *c, const char *vmm, const char *kernel, int channel,
		       int image)
{
	const char *argv[20] = { vmm, "--kernel", kernel, "--mem", c->mem };
	char channel_text[16], image_text[16];
	int n = 5;
	pid_t pid;

	snprintf(channel_text, sizeof(channel_text), "%d", channel);
	argv[n++] = "--channel-fd";
	argv[n++] = channel_text;
	if (image >= 0) {
		snprintf(image_text, sizeof(image_text), "%d", image);
		argv[n++] = "--image-fd";
		argv[n++] = image_text;
	}
	for (int i = 0; i < 4 && c->extra[i]; i++)
		argv[n++] = c->extra[i];
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		execv(vmm, (char *const *)argv);
		_exit(127);
	}
	return pid;
}

static bool outcome_check(const struct vm_case *c, const struct outcome *out, int status)
{
	bool ok = true;

	if (c->hang_up)
		return WIFEXITED(status) && WEXITSTATUS(status) == 0;
	if (!out->ended || out->reason != c->reason || !strstr(out->text, c->text))
		ok = false;
	if (c->console && !strstr(out->console, c->console))
		ok = false;
	if (WIFSIGNALED(status))
		ok = false;
	if (!ok)
		printf("# ended %d reason %u status 0x%x\n# text: %s\n# console: %s\n# log: %s\n",
		       out->ended, out->reason, (unsigned int)status, out->text, out->console,
		       out->log);
	return ok;
}

static bool case_run(const struct vm_case *c, const char *vmm, const char *directory)
{
	static struct outcome out;
	char kernel[4096];
	int pair[2], status = 0, image = c->image ? image_make() : -1;
	pid_t pid;

	memset(&out, 0, sizeof(out));
	snprintf(kernel, sizeof(kernel), "%s/%s", directory, c->guest);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
		return false;
	fcntl(pair[0], F_SETFD, FD_CLOEXEC);
	pid = vmm_start(c, vmm, kernel, pair[1], image);
	close(pair[1]);
	if (c->hang_up)
		usleep(300000);
	else if (frames_read(pair[0], &out) < 0)
		kill(pid, SIGKILL);
	close(pair[0]);
	fd_close(image);
	waitpid(pid, &status, 0);
	return outcome_check(c, &out, status);
}

static bool host_fits(const struct vm_case *c)
{
	struct sysinfo info;

	return c->reason != CM_VM_POWEROFF || sysinfo(&info) < 0 ||
	       strtoull(c->mem, NULL, 10) < (uint64_t)info.totalram * info.mem_unit;
}

static int kvm_missing(void)
{
	const char *require = getenv("CASEMATE_REQUIRE_KVM");
	int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);

	if (fd >= 0) {
		close(fd);
		return 0;
	}
	printf("1..0 # SKIP /dev/kvm: %s\n", strerror(errno));
	return require && !strcmp(require, "1") ? 1 : 77;
}

int main(int argc, char **argv)
{
	int failed = 0, n = 0, r;

	if (argc < 3) {
		fprintf(stderr, "usage: vmm_test CASEMATE-VMM GUEST-DIRECTORY [case...]\n");
		return 2;
	}
	r = kvm_missing();
	if (r)
		return r;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		bool chosen = argc == 3, ok;

		for (int a = 3; a < argc; a++)
			chosen |= !strcmp(argv[a], cases[i].name);
		if (!chosen)
			continue;
		if (!host_fits(&cases[i])) {
			printf("ok %d - %s # SKIP this host has too little memory\n", ++n,
			       cases[i].name);
			continue;
		}
		ok = case_run(&cases[i], argv[1], argv[2]);
		failed += !ok;
		printf("%sok %d - %s\n", ok ? "" : "not ", ++n, cases[i].name);
		fflush(stdout);
	}
	printf("1..%d\n", n);
	return failed ? 1 : 0;
}
