/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A casemate-vmm whose guest is initd as a program of the host: --initd-fd has it. It plays the
 * part of the VMM that relays (HELLO, RESUME, RESUMED, VM_BOOTED) and passes all other frames
 * on, so that the daemon, initd and what is between can be tested together where there is no
 * KVM. Each "VM" is a PID and a mount namespace with an empty /tmp of its own (which takes root),
 * of half its memory as in a guest; the rest is the host's. It knows neither snapshots nor forks.
 *
 * One thread each way: a full pipe one way must not stop the other.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/frame.h"

#define CLIENT_FD	3
#define INITD_FD	4	/* in the guest's process */
#define GENERATION	7

static int guest;
static const char *memory = "134217728";	/* bytes; of --mem */
static pthread_mutex_t client_lock = PTHREAD_MUTEX_INITIALIZER;

static void client_put(uint16_t type, const void *payload, size_t len)
{
	struct cm_frame head = frame_head(type, 0, 0, (uint32_t)len);

	pthread_mutex_lock(&client_lock);
	if (fd_write_all(CLIENT_FD, &head, sizeof(head)) < 0 ||
	    fd_write_all(CLIENT_FD, payload, len) < 0)
		_exit(0);
	pthread_mutex_unlock(&client_lock);
}

static _Noreturn void vm_end(uint32_t reason, const char *text)
{
	struct {
		struct cm_vm_end end;
		char text[200];
	} frame = { .end.reason = reason };

	snprintf(frame.text, sizeof(frame.text), "%s", text);
	client_put(CM_F_VM_END, &frame, sizeof(frame.end) + strlen(frame.text));
	_exit(0);
}

static void from_guest(const struct frame *f)
{
	struct cm_resume resume = { .generation = GENERATION };
	struct cm_frame head = frame_head(CM_F_RESUME, 0, 0, sizeof(resume));
	struct cm_vm_booted b = { .stage_ns = { 1 } };

	switch (f->head.type) {
	case CM_F_HELLO:
		if (fd_write_all(guest, &head, sizeof(head)) < 0 ||
		    fd_write_all(guest, &resume, sizeof(resume)) < 0)
			_exit(1);
		return;
	case CM_F_RESUMED:
		client_put(CM_F_VM_BOOTED, &b, sizeof(b));
		return;
	default:
		pthread_mutex_lock(&client_lock);
		if (fd_write_all(CLIENT_FD, f->bytes, f->size) < 0)
			_exit(0);
		pthread_mutex_unlock(&client_lock);
	}
}

static void from_client(const struct frame *f)
{
	if (f->head.type == CM_F_SHUTDOWN)
		vm_end(CM_VM_POWEROFF, "");
	if (f->head.type == CM_F_VM_SAVE || f->head.type == CM_F_VM_FORK)
		vm_end(CM_VM_HOST_ERROR, "this VMM has no VM to copy");
	if (fd_write_all(guest, f->bytes, f->size) < 0)
		vm_end(CM_VM_GUEST_CRASH, "initd does not read");
}

static void relay(int fd, enum frame_dir dir, void (*take)(const struct frame *f))
{
	struct frame_decoder decoder;
	uint8_t *bytes = malloc(FRAME_BYTES_MAX);
	size_t at, used;
	struct frame f;
	ssize_t n;
	int r;

	if (!bytes || frame_decoder_init(&decoder, dir) < 0)
		_exit(1);
	while ((n = read(fd, bytes, FRAME_BYTES_MAX)) > 0) {
		for (at = 0; at < (size_t)n; at += used) {
			r = frame_decoder_feed(&decoder, bytes + at, (size_t)n - at, &used, &f);
			if (r < 0)
				vm_end(CM_VM_GUEST_PROTOCOL, decoder.why);
			if (r > 0)
				take(&f);
		}
	}
}

static void *guest_thread(void *unused)
{
	relay(guest, FRAME_GUEST_TO_VMM, from_guest);
	vm_end(CM_VM_GUEST_PANIC, "initd has ended");
}

/* In the guest's process. */
static void surroundings_make(void)
{
	char size[32];

	snprintf(size, sizeof(size), "size=%llu", strtoull(memory, NULL, 10) / 2);
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("tmpfs", "/tmp", "tmpfs", 0, size) < 0)
		_exit(1);
}

static void guest_start(int initd)
{
	char *words[] = { (char *)"initd", (char *)"--no-mounts", (char *)"--channel-fd",
			  (char *)"3", NULL };
	int pair[2];
	long pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		_exit(1);
	pid = syscall(SYS_clone, CLONE_NEWPID | CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0);
	if (pid < 0)
		vm_end(CM_VM_HOST_ERROR, strerror(errno));
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		surroundings_make();
		if (dup2(initd, INITD_FD) < 0 || dup2(pair[1], CLIENT_FD) < 0 ||
		    close_range(INITD_FD + 1, ~0u, 0) < 0)
			_exit(1);
		fcntl(INITD_FD, F_SETFD, FD_CLOEXEC);
		fexecve(INITD_FD, words, environ);
		_exit(1);
	}
	close(pair[1]);
	guest = pair[0];
}

int main(int argc, char **argv)
{
	pthread_t thread;
	int initd = -1;

	for (int i = 1; i + 1 < argc; i++) {
		if (!strcmp(argv[i], "--initd-fd"))
			initd = atoi(argv[i + 1]);
		if (!strcmp(argv[i], "--mem"))
			memory = argv[i + 1];
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (initd < 0)
		return 1;
	guest_start(initd);
	if (pthread_create(&thread, NULL, guest_thread, NULL))
		return 1;
	relay(CLIENT_FD, FRAME_CLIENT_TO_VMM, from_client);
	return 0;
}
