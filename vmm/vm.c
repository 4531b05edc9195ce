/* SPDX-License-Identifier: Apache-2.0 */
/* A VM's life; see vm.h. */
#include "vmm/vm.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "abi/layout.h"
#include "base/fd.h"
#include "base/time.h"
#include "snapshot/digest.h"
#include "vmm/boot.h"
#include "vmm/cpu.h"
#include "vmm/cpu_state.h"
#include "vmm/jail.h"
#include "vmm/symbols.h"

#define GENERATION_FIRST	1u
#define CONSOLE_DEVICE		0u
#define IMAGE_DIGEST_BYTES	4096u	/* EROFS's superblock is among them, with its UUID */
#define TSC_TOLERANCE_PPM	250u	/* as KVM's own */

void vm_wake(struct vm *vm)
{
	uint64_t one = 1;

	/* Cannot fail but when the count is full, and then the loop wakes anyway. */
	if (write(vm->wake_fd, &one, sizeof(one)) < 0)
		return;
}

void vm_end(struct vm *vm, enum cm_vm_end_reason reason, uint32_t detail,
	    const char *format, ...)
{
	va_list args;

	if (vm->end.set)
		return;
	vm->end.set = true;
	vm->end.reason = reason;
	vm->end.detail = detail;
	va_start(args, format);
	vsnprintf(vm->end.text, sizeof(vm->end.text), format, args);
	va_end(args);
	vm_wake(vm);
}

void vm_log(struct vm *vm, const char *format, ...)
{
	char line[256];
	va_list args;

	if (!vm->options->verbose)
		return;
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	relay_say(&vm->relay, CM_F_VM_LOG, line, strlen(line));
}

int vm_kernel_digest(const struct vm *vm, uint8_t digest[SNAPSHOT_DIGEST])
{
	size_t size = (size_t)vm->options->kernel_size;
	uint8_t *bytes = malloc(size);
	int r = bytes ? fd_pread_exact(vm->options->kernel_fd, bytes, size, 0) : -ENOMEM;

	if (r == 0)
		snapshot_digest(bytes, size, digest);
	free(bytes);
	return r;
}

static void console_interrupt(void *arg)
{
	struct vm *vm = arg;
	int r = kvm_signal_vector(&vm->kvm, CM_VEC_VIRTIO(CONSOLE_DEVICE));

	if (r < 0)
		vm_end(vm, CM_VM_HOST_ERROR, (uint32_t)-r, "KVM cannot raise an interrupt: %s",
		       strerror(-r));
}

static void on_booted(void *arg)
{
	struct vm *vm = arg;
	struct cm_vm_booted booted;

	vm->platform.stage_ns[0] = time_monotonic_ns() - vm->platform.start_ns;
	memcpy(booted.stage_ns, vm->platform.stage_ns, sizeof(booted.stage_ns));
	relay_send(&vm->relay, CM_F_VM_BOOTED, &booted, sizeof(booted));
	loop_cancel(&vm->loop, &vm->boot_timer);
}

static void on_boot_timeout(struct loop_op *op, int result)
{
	struct vm *vm = op->owner;

	if (result == -ETIME && vm->relay.state != RELAY_RUNNING)
		vm_end(vm, CM_VM_TIMEOUT, 0, "the guest did not come up within %" PRIu64
		       " s (%s)", vm->options->boot_timeout_ns / NS_PER_SEC,
		       vm->relay.state == RELAY_WAIT_HELLO ? "no HELLO" : "no RESUMED");
}

static void on_event(struct loop_op *op, int result)
{
	struct vm *vm = op->owner;
	int fd = vm->wake_fd;

	for (unsigned int i = 0; i < CONSOLE_QUEUES; i++) {
		if (op == &vm->bells[i])
			fd = vm->bell_fds[i];
	}
	/* What there is to do is found in vm_step(). */
	if ((result < 0 && result != -EINTR && result != -EAGAIN) ||
	    loop_read_event(&vm->loop, op, fd) < 0)
		vm_end(vm, CM_VM_HOST_ERROR, (uint32_t)-result, "the event loop failed");
}

static void console_pump_step(struct vm *vm)
{
	int r = vm->paused ? 0 : console_pump(&vm->console);

	if (r > 0)
		vm_wake(vm);
	else if (r == -EPROTO)
		vm_end(vm, CM_VM_GUEST_CRASH, 0, "nonsense in a ring of the console: %s",
		       vm->console.why);
	else if (r < 0)
		vm_end(vm, CM_VM_GUEST_PROTOCOL, 0, "bad frame on the channel: %s",
		       vm->console.why);
}

/* Console text to the client, as far as there is room. */
static void console_text_step(struct vm *vm, bool all)
{
	struct platform *p = &vm->platform;

	if (!p->flush && !all)
		return;
	while (p->console.len > 0) {
		size_t len;
		const uint8_t *text = buf_front(&p->console, &len);

		if (relay_say(&vm->relay, CM_F_VM_CONSOLE, text, len) < 0)
			return;
		buf_consume(&p->console, len);
	}
	p->flush = false;
	if (p->dropped) {
		vm_log(vm, "%" PRIu64 " bytes of console text dropped", p->dropped);
		p->dropped = 0;
	}
}

static void step_run(struct vm *vm)
{
	console_pump_step(vm);
	relay_step(&vm->relay);
	/* What came from the client may go on at once. */
	if (vm->console.to_guest.len > 0)
		console_pump_step(vm);
	console_text_step(vm, false);
	request_step(vm);
	relay_flush(&vm->relay);
	if (vm->relay.client_gone)
		vm_end(vm, CM_VM_CLIENT_GONE, 0, "the client went away%s%s",
		       vm->relay.why ? ": " : "", vm->relay.why ? vm->relay.why : "");
}

/* Whether everything the guest had sent before its end is queued for the client. */
static bool step_drain(struct vm *vm)
{
	int r;

	if (vm->end.reason == CM_VM_GUEST_PROTOCOL ||
	    (vm->end.reason == CM_VM_GUEST_CRASH && vm->end.detail == 0))
		return true;
	r = console_pump(&vm->console);
	if (r > 0) {
		vm_wake(vm);
		return false;
	}
	return r < 0 || !vm->console.tx_held;
}

/* The kernel's file, for names: a restored guest may run another kernel than the one at hand,
 * and then there are none. Reading it whole is for the end, not for the start. */
static int symbols_fd(const struct vm *vm)
{
	uint8_t digest[SNAPSHOT_DIGEST];

	if (!vm->relay.restored)
		return vm->options->kernel_fd;
	if (vm_kernel_digest(vm, digest) < 0 ||
	    memcmp(digest, vm->kernel_digest, sizeof(digest)))
		return -1;
	return vm->options->kernel_fd;
}

/* Queues the last frame. Returns whether there was room for it. */
static bool send_end(struct vm *vm)
{
	uint64_t kernel_size = vm->options->kernel_size;
	int kernel_fd;
	struct {
		struct cm_vm_end end;
		char text[VM_TEXT_MAX + 1024];
	} frame = { .end = { .reason = vm->end.reason, .detail = vm->end.detail } };
	char name[160];
	size_t n;

	if (buf_space(&vm->relay.to_client) < sizeof(struct cm_frame) + sizeof(frame))
		return false;
	kernel_fd = vm->end.reason == CM_VM_GUEST_PANIC || vm->end.rip ? symbols_fd(vm) : -1;
	symbols_annotate(kernel_fd, kernel_size, vm->end.text, frame.text, sizeof(frame.text));
	n = strlen(frame.text);
	if (vm->end.rip) {
		symbols_name(kernel_fd, kernel_size, vm->end.rip, name, sizeof(name));
		snprintf(frame.text + n, sizeof(frame.text) - n, " (rip 0x%" PRIx64 "%s%s)",
			 vm->end.rip, name[0] ? " " : "", name);
		n = strlen(frame.text);
	}
	relay_send(&vm->relay, CM_F_VM_END, &frame, sizeof(frame.end) + n);
	return true;
}

static void log_usage(struct vm *vm)
{
	int64_t bytes = vm->smaps_fd < 0 ? -1 : usage_beyond_guest(vm->smaps_fd, &vm->memory);

	if (bytes >= 0)
		vm_log(vm, "memory beyond guest RAM: %" PRId64 " KiB resident at the peak",
		       bytes >> 10);
}

/* Does what is due; called by the loop between batches of events, lock held. */
static void vm_step(void *arg)
{
	struct vm *vm = arg;

	if (vm->phase == VM_RUN) {
		step_run(vm);
		if (!vm->end.set)
			return;
		if (vm->vcpu.created)
			vcpu_kick(vm);
		vm->phase = VM_STOPPING;
	}
	if (vm->phase == VM_STOPPING) {
		if (vm->vcpu.created && !atomic_load(&vm->vcpu.exited))
			return;
		vm->phase = VM_DRAINING;
	}
	if (vm->end.reason == CM_VM_CLIENT_GONE || vm->relay.client_gone) {
		vm->loop.stop = true;
		return;
	}
	if (vm->phase == VM_DRAINING) {
		relay_flush(&vm->relay);
		if (!step_drain(vm))
			return;
		console_text_step(vm, true);
		if (vm->platform.console.len > 0)
			return;
		log_usage(vm);
		if (!send_end(vm))
			return;
		vm->phase = VM_FLUSHING;
	}
	if (relay_flush(&vm->relay))
		vm->loop.stop = true;
}

static int events_init(struct vm *vm, struct err *err)
{
	vm->wake_fd = eventfd(0, EFD_CLOEXEC);
	if (vm->wake_fd < 0)
		return err_set_errno(err, errno, "cannot make an eventfd");
	vm->wake = (struct loop_op){ .done = on_event, .owner = vm };
	for (unsigned int i = 0; i < CONSOLE_QUEUES && !vm->options->hold; i++) {
		int r;

		vm->bell_fds[i] = eventfd(0, EFD_CLOEXEC);
		if (vm->bell_fds[i] < 0)
			return err_set_errno(err, errno, "cannot make an eventfd");
		r = kvm_add_doorbell(&vm->kvm,
				     GPA(CM_VIRTIO_GPA(CONSOLE_DEVICE) + VIRTIO_MMIO_NOTIFY), i,
				     vm->bell_fds[i], err);
		if (r < 0)
			return r;
		vm->bells[i] = (struct loop_op){ .done = on_event, .owner = vm };
	}
	vm->boot_timer = (struct loop_op){ .done = on_boot_timeout, .owner = vm };
	return 0;
}

/* Memory and what lies in it but the clock page. */
static int guest_load(struct vm *vm, struct err *err)
{
	const struct vm_options *o = vm->options;
	struct boot_info info = { .bootargs = o->bootargs, .virtio_count = 1 };
	int r;

	r = elf_load(o->kernel_fd, &vm->kernel, &vm->memory, err);
	if (r == 0 && o->initd_fd >= 0)
		r = boot_load_initd(&vm->memory, &vm->kernel, o->initd_fd, o->initd_size,
				    &info, err);
	if (r == 0)
		r = boot_page_tables(&vm->memory, &vm->kernel, err);
	info.apic_timer_hz = vm->kvm.apic_timer_hz;
	info.tsc_hz = vm->kvm.tsc_khz * 1000;
	if (r == 0)
		r = boot_device_tree(&vm->memory, &info, err);
	return r;
}

static int devices_init(struct vm *vm, uint64_t generation, struct err *err)
{
	const struct vm_options *o = vm->options;
	int r;

	r = platform_init(&vm->platform, o->verbose, o->start_ns);
	if (r == 0)
		r = console_init(&vm->console, &vm->memory, console_interrupt, vm);
	if (r < 0)
		return err_set_errno(err, r, "cannot set up the devices");
	vm->clock.generation = generation;
	r = relay_init(&vm->relay, &vm->loop, &vm->console, o->channel_fd, generation, err);
	vm->console.room = relay_room;
	vm->console.frame = relay_guest_frame;
	vm->console.arg = &vm->relay;
	vm->relay.booted = on_booted;
	vm->relay.request = request_begin;
	vm->relay.arg = vm;
	return r;
}

/* SHA-256 of the first bytes of the image, IMAGE_DIGEST_BYTES of them at most; zeros where
 * there is none, or nobody will ask. */
static int image_digest_take(struct vm *vm, struct err *err)
{
	const struct vm_options *o = vm->options;
	uint8_t bytes[IMAGE_DIGEST_BYTES];
	ssize_t n;

	if (o->image_fd < 0 || (!o->snapshots && o->snapshot_count == 0))
		return 0;
	n = pread(o->image_fd, bytes, sizeof(bytes), 0);
	if (n < 0)
		return err_set_errno(err, errno, "cannot read the root image");
	snapshot_digest(bytes, (size_t)n, vm->image_digest);
	return 0;
}

static int init_boot(struct vm *vm, struct err *err)
{
	const struct vm_options *o = vm->options;
	int r;

	/* Files first: a bad one must not cost a VM. */
	r = elf_check(o->kernel_fd, o->kernel_size, &vm->kernel, err);
	if (r == 0)
		r = memory_init(&vm->memory, o->memory_size, err);
	if (r == 0 && o->image_fd >= 0)
		r = memory_add_image(&vm->memory, o->image_fd, err);
	if (r == 0)
		r = image_digest_take(vm, err);
	if (r == 0)
		r = kvm_open(&vm->kvm, o->kvm_fd, err);
	if (r == 0)
		r = kvm_create(&vm->kvm, &vm->memory, err);
	if (r == 0)
		r = guest_load(vm, err);
	if (r == 0)
		r = cpu_setup(&vm->kvm, &vm->kernel.note, err);
	if (r == 0)
		r = devices_init(vm, GENERATION_FIRST, err);
	return r == 0 ? events_init(vm, err) : r;
}

/* ---- From a snapshot ---- */

/* Whether this host, with the files it was given, is one the state can go on in. */
static int state_check(const struct vm *vm, const struct saved_machine *m, struct err *err)
{
	uint64_t khz = vm->kvm.tsc_khz, difference;

	if (m->image_size != vm->memory.image_size ||
	    memcmp(m->image_digest, vm->image_digest, SNAPSHOT_DIGEST))
		return err_set(err, EINVAL, "the root image is not the one that the snapshot "
			       "was made with%s%.*s", m->image_path.size ? ": " : "",
			       (int)m->image_path.size, (const char *)m->image_path.data);
	difference = khz > m->tsc_khz ? khz - m->tsc_khz : m->tsc_khz - khz;
	if (difference > m->tsc_khz / 1000000 * TSC_TOLERANCE_PPM + 1)
		return err_set(err, EOPNOTSUPP, "the snapshot's guest counts on a TSC of %"
			       PRIu64 " kHz, this host's has %" PRIu64, m->tsc_khz, khz);
	if (m->apic_timer_hz != vm->kvm.apic_timer_hz)
		return err_set(err, EOPNOTSUPP, "the snapshot's guest counts on a LAPIC timer "
			       "of %" PRIu64 " Hz, this host's KVM has %" PRIu64,
			       m->apic_timer_hz, vm->kvm.apic_timer_hz);
	return 0;
}

/* KVM objects and devices with the state in them; memory is there. */
static int init_from_state(struct vm *vm, const struct snapshot_state *state, struct err *err)
{
	uint64_t generation = 0;
	int r = kvm_create(&vm->kvm, &vm->memory, err);

	if (r == 0)
		r = state_check(vm, &state->machine, err);
	if (r == 0)
		r = cpu_load(&vm->kvm, &state->cpuid, &state->vcpu, state->machine.tsc, err);
	while (r == 0 && (generation == 0 || generation == state->machine.generation)) {
		/* Random: no two VMs with one past may have the same. */
		if (getrandom(&generation, sizeof(generation), 0) != sizeof(generation))
			r = err_set_errno(err, errno, "cannot get random bytes");
	}
	if (r == 0)
		r = devices_init(vm, generation, err);
	if (r == 0)
		r = console_load(&vm->console, &state->console, err);
	vm->clock.monotonic_ns = state->machine.monotonic_ns;
	vm->platform.free_map = state->machine.free_map;
	memcpy(vm->kernel_digest, state->machine.kernel_digest, sizeof(vm->kernel_digest));
	relay_set_restored(&vm->relay);
	return r == 0 ? events_init(vm, err) : r;
}

int vm_track(struct vm *vm, struct err *err)
{
	if (memory_track(&vm->memory) < 0)
		return err_set(err, ENOMEM, "no memory to note which pages change");
	vm->tracked = kvm_track_dirty(&vm->kvm, &vm->memory, err) == 0;
	return vm->tracked ? 0 : err->code;
}

/* Which 2 MiB of a held VM no file has anything of. */
static int fresh_note(struct vm *vm, const struct snapshot *const *chain, size_t count,
		      struct err *err)
{
	size_t chunks = (size_t)(memory_ram_size(&vm->memory) / SNAPSHOT_CHUNK);
	uint8_t *fresh = malloc(chunks);

	if (!fresh)
		return err_set(err, ENOMEM, "no memory for the held VM");
	memset(fresh, 1, chunks);
	for (size_t i = 0; i < count; i++)
		for (size_t chunk = 0; chunk < chunks; chunk++)
			if (snapshot_holds(chain[i], chunk))
				fresh[chunk] = 0;
	vm->memory.fresh = fresh;
	return 0;
}

/* The chain's memory and its last state. */
static int chain_load(struct vm *vm, struct snapshot_state *ret_state, struct err *err)
{
	const struct vm_options *o = vm->options;
	static struct snapshot files[SNAPSHOT_CHAIN_MAX];
	const struct snapshot *chain[SNAPSHOT_CHAIN_MAX];
	struct snapshot *last = &files[o->snapshot_count - 1];
	int r = 0;

	for (unsigned int i = 0; i < o->snapshot_count && r == 0; i++) {
		chain[i] = &files[i];
		r = snapshot_open(&files[i], o->snapshot_fds[i], err);
	}
	if (r == 0)
		r = memory_init(&vm->memory, last->state.machine.memory_size, err);
	if (r == 0)
		r = snapshot_map(chain, o->snapshot_count, vm->memory.ram.addr, err);
	if (r == 0 && o->hold)
		r = fresh_note(vm, chain, o->snapshot_count, err);
	vm->base = last->id;
	if (r == 0) {
		*ret_state = last->state;
		last->state = (struct snapshot_state){ 0 };
	}
	for (unsigned int i = 0; i < o->snapshot_count; i++)
		snapshot_close(&files[i]);
	return r;
}

static int init_restore(struct vm *vm, struct err *err)
{
	const struct vm_options *o = vm->options;
	int r = chain_load(vm, &vm->held, err);

	if (r == 0 && o->image_fd >= 0)
		r = memory_add_image(&vm->memory, o->image_fd, err);
	if (r == 0)
		r = image_digest_take(vm, err);
	if (r == 0)
		r = kvm_open(&vm->kvm, o->kvm_fd, err);
	if (r < 0)
		return r;
	if (o->hold)
		memory_copy_image(&vm->memory, o->image_fd);
	if (!o->hold) {
		r = init_from_state(vm, &vm->held, err);
		snapshot_state_done(&vm->held);
		if (r == 0 && o->track)
			r = vm_track(vm, err);
		vm->based = o->track;
		return r;
	}
	r = devices_init(vm, GENERATION_FIRST, err);
	relay_set_held(&vm->relay);
	if (r == 0)
		r = warm_init(&vm->warm, memory_ram_size(&vm->memory), err);
	return r == 0 ? events_init(vm, err) : r;
}

static void vm_zero(struct vm *vm, const struct vm_options *options)
{
	*vm = (struct vm){ .options = options, .kvm = KVM_INIT, .wake_fd = -1,
			   .bell_fds = { -1, -1 }, .smaps_fd = -1, .request.reports = -1,
			   .warm = WARM_INIT };
}

static void vm_loop_set(struct vm *vm)
{
	vm->loop.idle = vm_step;
	vm->loop.idle_arg = vm;
}

int vm_init(struct vm *vm, const struct vm_options *options, struct err *err)
{
	int r;

	vm_zero(vm, options);
	r = loop_init(&vm->loop, err);
	if (r < 0)
		return r;
	vm_loop_set(vm);
	return options->snapshot_count > 0 ? init_restore(vm, err) : init_boot(vm, err);
}

struct vm_options vm_child_options(const struct vm *from, int channel_fd)
{
	struct vm_options options = *from->options;

	options.channel_fd = channel_fd;
	options.initd_fd = options.image_fd = -1;
	options.snapshot_count = 0;
	options.hold = false;
	options.start_ns = time_monotonic_ns();
	return options;
}

int vm_init_child(struct vm *vm, const struct vm_options *options, const struct vm *from,
		  const struct snapshot_state *state, struct err *err)
{
	vm_zero(vm, options);
	vm->memory = from->memory;
	vm->memory.dirty = NULL;
	vm->kvm = from->kvm;
	kvm_forget(&vm->kvm);
	memcpy(vm->image_digest, from->image_digest, sizeof(vm->image_digest));
	loop_init_jailed(&vm->loop);
	vm_loop_set(vm);
	return init_from_state(vm, state, err);
}

static int clock_start(struct vm *vm, struct err *err)
{
	int r = kvm_read_tsc(&vm->kvm, &vm->clock.tsc, err);

	vm->clock.tsc_khz = vm->kvm.tsc_khz;
	vm->clock.realtime_ns = time_ns(CLOCK_REALTIME);
	return r < 0 ? r : clock_write(&vm->memory, &vm->clock, err);
}

/* The guest's clocks and perhaps its rings are not as it left them: it looks at both. */
static int restored_wake(const struct vm *vm)
{
	int r = kvm_signal_vector(&vm->kvm, CM_VEC_TIMER);

	return r < 0 ? r : kvm_signal_vector(&vm->kvm, CM_VEC_VIRTIO(CONSOLE_DEVICE));
}

int vm_clock_go_on(struct vm *vm, struct err *err)
{
	int r = clock_start(vm, err);

	if (r < 0)
		return r;
	r = restored_wake(vm);
	return r < 0 ? err_set_errno(err, r, "KVM cannot raise an interrupt") : 0;
}

static int events_start(struct vm *vm)
{
	int r = loop_read_event(&vm->loop, &vm->wake, vm->wake_fd);

	for (unsigned int i = 0; i < CONSOLE_QUEUES && r == 0 && !vm->options->hold; i++)
		r = loop_read_event(&vm->loop, &vm->bells[i], vm->bell_fds[i]);
	if (r == 0 && !vm->options->hold)
		r = loop_timeout(&vm->loop, &vm->boot_timer, vm->options->boot_timeout_ns);
	if (r == 0)
		r = relay_start(&vm->relay);
	return r;
}

int vm_start(struct vm *vm, bool jailed, struct err *err)
{
	const struct vm_options *o = vm->options;
	int r = 0;

	if (o->verbose && !jailed)
		vm->smaps_fd = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
	if (!o->hold)
		r = vcpu_start(vm, err);
	if (r == 0 && !jailed)
		r = jail_enter(o->snapshots, memory_ram_size(&vm->memory), err);
	if (r == 0 && !o->hold)
		r = clock_start(vm, err);
	if (r < 0)
		return r;
	r = events_start(vm);
	if (r == 0 && vm->relay.restored)
		r = restored_wake(vm);
	if (r < 0)
		return err_set_errno(err, r, "cannot start the VM");
	if (!o->hold)
		vcpu_go(vm);
	else if (!o->cold)
		warm_probe(vm);
	return 0;
}

int vm_serve(struct vm *vm, struct err *err)
{
	int r = loop_run(&vm->loop);

	return r < 0 ? err_set_errno(err, r, "the event loop failed") : 0;
}

int vm_run(struct vm *vm, struct err *err)
{
	int r = vm_start(vm, false, err);

	return r < 0 ? r : vm_serve(vm, err);
}

void vm_done(struct vm *vm)
{
	vcpu_join(vm);
	loop_done(&vm->loop);
	request_done(vm);
	snapshot_state_done(&vm->held);
	warm_done(&vm->warm);
	relay_done(&vm->relay);
	console_done(&vm->console);
	platform_done(&vm->platform);
	for (unsigned int i = 0; i < CONSOLE_QUEUES; i++)
		vm->bell_fds[i] = fd_close(vm->bell_fds[i]);
	vm->wake_fd = fd_close(vm->wake_fd);
	vm->smaps_fd = fd_close(vm->smaps_fd);
	kvm_done(&vm->kvm);
	memory_done(&vm->memory);
}
