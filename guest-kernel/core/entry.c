/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between entry.S and the rest: system calls in, and what is done before a program goes on.
 */
#include "guest-kernel/arch/cpu.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/drv/drv.h"
#include "guest-kernel/mm/patch.h"

void syscall_trapped(struct trapframe *tf);
void syscall_patched(struct trapframe *tf);

void syscall_trapped(struct trapframe *tf)
{
	cpu_stats.trapped_syscalls++;
	patch_site(tf);
	current->is_syscall = true;
	tf->rax = (uint64_t)syscall_dispatch(tf);
}

void syscall_patched(struct trapframe *tf)
{
	current->is_syscall = true;
	tf->rax = (uint64_t)syscall_dispatch(tf);
}

void irq_process(void)
{
	uint32_t irqs = arch_irq_take();

	if (irqs == 0)
		return;
	cpu_stats.interrupts++;
	if ((irqs & IRQ_TIMER) != 0) {
		timers_run();
		sched_tick();
	}
	for (unsigned n = 0; n < CM_VIRTIO_MAX; n++) {
		if ((irqs & IRQ_VIRTIO(n)) != 0)
			virtio_interrupt(n);
	}
}

void return_to_user_work(struct trapframe *tf)
{
	for (;;) {
		if (arch_irq_pending())
			irq_process();
		if (current->need_resched)
			schedule();
		else if (current->sig_check)
			signal_deliver(tf);
		else if (!arch_irq_pending())
			break;
	}
	current->is_syscall = false;
	/* Again, when the handler of that is no better. */
	while (unlikely(tf->rip >= CM_USER_TOP)) {
		signal_force(KSIGSEGV, KSI_KERNEL, 0, 13);
		tf->rip = 0;
		signal_deliver(tf);
	}
}
