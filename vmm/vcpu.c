/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vCPU's thread: it runs KVM_RUN and dispatches what comes out, under the loop's lock.
 * Every exit reason that is no device access ends the guest, each with its own words. A kick
 * sets run->immediate_exit and sends SIGUSR1, so that a KVM_RUN under way or about to begin
 * returns at once. It is a timer of the thread's that sends it, since the jail has no call that
 * could send one to another process.
 *
 * A pause is a kick after which the thread waits. It does so only when KVM_RUN has come back
 * for the kick's sake: an access that was dispatched is completed by the next KVM_RUN, and
 * until then the registers are not those of any instruction's end.
 */
#include "vmm/vm.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "abi/layout.h"

#define KICK_SIGNAL	SIGUSR1
#define PAGE		4096u
#define STACK_SIZE	(256u << 10)

/* As sigevent(7) has it; the C library does not. */
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

/* In headers newer than Debian 12's. */
#ifndef KVM_EXIT_MEMORY_FAULT
#define KVM_EXIT_MEMORY_FAULT 39
#endif

static void on_kick(int signal_number)
{
}

static void log_registers(struct vm *vm)
{
	struct kvm_regs r;
	struct kvm_sregs s;

	if (!vm->options->verbose || ioctl(vm->kvm.vcpu, KVM_GET_REGS, &r) < 0 ||
	    ioctl(vm->kvm.vcpu, KVM_GET_SREGS, &s) < 0)
		return;
	vm_log(vm, "rip %016llx rflags %08llx cs %04x ss %04x", r.rip, r.rflags,
	       s.cs.selector, s.ss.selector);
	vm_log(vm, "rax %016llx rbx %016llx rcx %016llx rdx %016llx", r.rax, r.rbx, r.rcx,
	       r.rdx);
	vm_log(vm, "rsi %016llx rdi %016llx rbp %016llx rsp %016llx", r.rsi, r.rdi, r.rbp,
	       r.rsp);
	vm_log(vm, "r8  %016llx r9  %016llx r10 %016llx r11 %016llx", r.r8, r.r9, r.r10,
	       r.r11);
	vm_log(vm, "r12 %016llx r13 %016llx r14 %016llx r15 %016llx", r.r12, r.r13, r.r14,
	       r.r15);
	vm_log(vm, "cr0 %08llx cr2 %016llx cr3 %016llx cr4 %08llx efer %llx", s.cr0, s.cr2,
	       s.cr3, s.cr4, s.efer);
	vm_log(vm, "fs base %016llx gs base %016llx gdt %016llx idt %016llx tss %016llx",
	       s.fs.base, s.gs.base, s.gdt.base, s.idt.base, s.tr.base);
}

/* Where the guest is, for the end's text. After a shutdown KVM has reset the vCPU on AMD-V:
 * what it shows then (a 16-bit address) says nothing. */
static void note_rip(struct vm *vm)
{
	struct kvm_regs regs;

	if (!vm->end.set && ioctl(vm->kvm.vcpu, KVM_GET_REGS, &regs) == 0 && regs.rip > 0xffff)
		vm->end.rip = regs.rip;
}

/* Ends the guest for what it did, with the registers. */
#define crash(vm, detail, ...)							\
	do {									\
		note_rip(vm);							\
		vm_end((vm), CM_VM_GUEST_CRASH, (detail), __VA_ARGS__);		\
		log_registers(vm);						\
	} while (0)

/* The panic in the console's tail: from its last "panic: " at the start of a line on. */
static const char *panic_text(const char *tail)
{
	const char *text = tail, *at = tail;

	while ((at = strstr(at, "panic: "))) {
		if (at == tail || at[-1] == '\n')
			text = at;
		at++;
	}
	return text;
}

static void guest_ended(struct vm *vm)
{
	char tail[PLATFORM_TAIL + 1];
	uint32_t end = vm->platform.end;
	const char *name = platform_end_name(end);
	const char *text;

	platform_tail(&vm->platform, tail, sizeof(tail));
	text = panic_text(tail);
	if (!name)
		crash(vm, KVM_EXIT_MMIO, "the guest ended with an unknown code %" PRIu32, end);
	else if (end == CM_END_POWEROFF)
		vm_end(vm, CM_VM_POWEROFF, end, "%s", name);
	else if (text[0])
		vm_end(vm, CM_VM_GUEST_PANIC, end, "%s:\n%s", name, text);
	else
		vm_end(vm, CM_VM_GUEST_PANIC, end, "%s", name);
	if (end != CM_END_POWEROFF)
		log_registers(vm);
}

/* Returns 0, or -EPROTO with *why where the device does not take the access. */
static int mmio_dispatch(struct vm *vm, uint64_t gpa, unsigned int len, bool write,
			 uint32_t *value, const char **why)
{
	int r;

	if (gpa - CM_PLATFORM_GPA < PAGE) {
		*why = "the platform page has no such register";
		r = platform_access(&vm->platform, gpa - CM_PLATFORM_GPA, len, write, value);
		if (vm->platform.flush)
			vm_wake(vm);
		if (vm->platform.ended)
			guest_ended(vm);
		return r;
	}
	if (gpa - CM_VIRTIO_GPA(0) < PAGE) {
		r = virtio_mmio_access(&vm->console.dev, gpa - CM_VIRTIO_GPA(0), len, write,
				       value);
		*why = vm->console.dev.why;
		return r;
	}
	*why = memory_is_image(&vm->memory, GPA(gpa)) ? "the root image is read-only" :
							"nothing is there";
	return -EPROTO;
}

static void exit_mmio(struct vm *vm)
{
	struct kvm_run *run = vm->kvm.run;
	uint64_t gpa = run->mmio.phys_addr;
	unsigned int len = run->mmio.len;
	bool write = run->mmio.is_write;
	const char *why = "of its width";
	uint32_t value = 0;
	int r = -EPROTO;

	if (len <= sizeof(value)) {
		if (write)
			memcpy(&value, run->mmio.data, len);
		r = mmio_dispatch(vm, gpa, len, write, &value, &why);
	} else if (memory_is_image(&vm->memory, GPA(gpa))) {
		why = "the root image is read-only";
	}
	if (r < 0)
		crash(vm, KVM_EXIT_MMIO, "bad %s of %u bytes at guest address 0x%" PRIx64
		      ": %s", write ? "write" : "read", len, gpa, why);
	else if (!write)
		memcpy(run->mmio.data, &value, len);
}

static void exit_dispatch(struct vm *vm)
{
	const struct kvm_run *run = vm->kvm.run;

	switch (run->exit_reason) {
	case KVM_EXIT_MMIO:
		exit_mmio(vm);
		break;
	case KVM_EXIT_INTR:
		break;
	case KVM_EXIT_SHUTDOWN:
		crash(vm, run->exit_reason, "triple fault");
		break;
	case KVM_EXIT_IO:
		crash(vm, run->exit_reason, "port I/O at 0x%x: there are no ports",
		      run->io.port);
		break;
	case KVM_EXIT_INTERNAL_ERROR:
		crash(vm, run->exit_reason, "KVM cannot go on with what the guest did "
		      "(internal error %u)", run->internal.suberror);
		break;
	case KVM_EXIT_FAIL_ENTRY:
		vm_end(vm, CM_VM_HOST_ERROR, run->exit_reason, "the processor refused the "
		       "guest's state (reason 0x%llx)",
		       run->fail_entry.hardware_entry_failure_reason);
		log_registers(vm);
		break;
	default:
		crash(vm, run->exit_reason, "exit that is not known here: %s (%u)",
		      kvm_exit_name(run->exit_reason), run->exit_reason);
		break;
	}
}

static void run_failed(struct vm *vm, int error)
{
	if (error == EFAULT || vm->kvm.run->exit_reason == KVM_EXIT_MEMORY_FAULT)
		vm_end(vm, CM_VM_HOST_ERROR, (uint32_t)error, "the guest's memory cannot be "
		       "read: was the root image or the snapshot cut short, or is the host out "
		       "of memory?");
	else
		vm_end(vm, CM_VM_HOST_ERROR, (uint32_t)error, "KVM_RUN failed: %s",
		       strerror(error));
	log_registers(vm);
}

static void semaphore_wait(sem_t *semaphore)
{
	while (sem_wait(semaphore) < 0)
		;
}

static void pause_here(struct vm *vm)
{
	atomic_store(&vm->vcpu.paused, true);
	vm_wake(vm);
	semaphore_wait(&vm->vcpu.go);
}

/* Returns 0 or an errno. */
static int kick_prepare(struct vm *vm)
{
	struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = KICK_SIGNAL };

	event.sigev_notify_thread_id = gettid();
	return timer_create(CLOCK_MONOTONIC, &event, &vm->vcpu.kick) < 0 ? errno : 0;
}

static void *vcpu_main(void *arg)
{
	struct vm *vm = arg;
	bool ended = false;
	sigset_t kick;

	sigemptyset(&kick);
	sigaddset(&kick, KICK_SIGNAL);
	pthread_sigmask(SIG_UNBLOCK, &kick, NULL);
	vm->vcpu.error = kick_prepare(vm);
	sem_post(&vm->vcpu.ready);
	if (vm->vcpu.error)
		return NULL;
	semaphore_wait(&vm->vcpu.go);
	while (!ended && !atomic_load(&vm->vcpu.stop)) {
		int r = ioctl(vm->kvm.vcpu, KVM_RUN, 0);
		int error = errno;

		if (r < 0 && (error == EINTR || error == EAGAIN)) {
			if (atomic_load(&vm->vcpu.pause))
				pause_here(vm);
			continue;
		}
		pthread_mutex_lock(&vm->loop.lock);
		if (r < 0)
			run_failed(vm, error);
		else
			exit_dispatch(vm);
		ended = vm->end.set;
		pthread_mutex_unlock(&vm->loop.lock);
	}
	atomic_store(&vm->vcpu.exited, true);
	vm_wake(vm);
	return NULL;
}

int vcpu_start(struct vm *vm, struct err *err)
{
	struct sigaction action = { .sa_handler = on_kick };
	sigset_t all, before;
	pthread_attr_t attr;
	int r;

	sigaction(KICK_SIGNAL, &action, NULL);
	sem_init(&vm->vcpu.ready, 0, 0);
	sem_init(&vm->vcpu.go, 0, 0);
	/* Signals are the loop thread's, but for the kick. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	/* Small, so that the host cannot back it with a huge page: that would be a third of
	 * what a VM may cost beyond its RAM. */
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_SIZE);
	r = pthread_create(&vm->vcpu.thread, &attr, vcpu_main, vm);
	pthread_attr_destroy(&attr);
	sigaddset(&before, KICK_SIGNAL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r != 0)
		return err_set_errno(err, r, "cannot start the vCPU's thread");
	/* The C library's own first calls in a thread are not in the jail's list. */
	semaphore_wait(&vm->vcpu.ready);
	if (vm->vcpu.error) {
		pthread_join(vm->vcpu.thread, NULL);
		return err_set_errno(err, vm->vcpu.error, "cannot make the vCPU's timer");
	}
	vm->vcpu.created = true;
	return 0;
}

void vcpu_go(struct vm *vm)
{
	sem_post(&vm->vcpu.go);
}

static void kick(struct vm *vm)
{
	const struct itimerspec at_once = { .it_value.tv_nsec = 1 };

	__atomic_store_n(&vm->kvm.run->immediate_exit, 1, __ATOMIC_SEQ_CST);
	timer_settime(vm->vcpu.kick, 0, &at_once, NULL);
}

void vcpu_kick(struct vm *vm)
{
	atomic_store(&vm->vcpu.stop, true);
	kick(vm);
	if (atomic_load(&vm->vcpu.pause))
		vcpu_resume(vm);
}

void vcpu_pause(struct vm *vm)
{
	atomic_store(&vm->vcpu.paused, false);
	atomic_store(&vm->vcpu.pause, true);
	kick(vm);
}

/* Where it was not paused yet (the VM ends meanwhile), the post lets the wait go by. */
void vcpu_resume(struct vm *vm)
{
	atomic_store(&vm->vcpu.pause, false);
	if (!atomic_load(&vm->vcpu.stop))
		__atomic_store_n(&vm->kvm.run->immediate_exit, 0, __ATOMIC_SEQ_CST);
	sem_post(&vm->vcpu.go);
}

void vcpu_join(struct vm *vm)
{
	if (!vm->vcpu.created)
		return;
	vcpu_kick(vm);
	vcpu_go(vm);
	pthread_join(vm->vcpu.thread, NULL);
	timer_delete(vm->vcpu.kick);
	vm->vcpu.created = false;
}
