/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A VM that stands still because its client said so (VM_PAUSE, VM_CONTINUE).
 *
 * The vCPU stops as for a save. Where the guest's clock was at that moment is noted in
 * vm->clock, from which the clock page is written when it goes on, as after a restore: for the
 * guest there was no pause but in the time of day. The TSC does not stop, and need not: the
 * page says what it means.
 *
 * While vm->paused, the rings are not served (console_pump_step()), so nothing changes the
 * guest's memory, and a save has exactly what the client has not: a VM can be saved and ended
 * without a byte lost or said twice.
 *
 * Loop thread only, under its lock.
 */
#include "vmm/vm.h"

#include "base/time.h"

int vm_pause(struct vm *vm, struct err *err)
{
	uint64_t tsc;

	if (vm->paused)
		return 0;
	if (kvm_read_tsc(&vm->kvm, &tsc, err) < 0) {
		vcpu_resume(vm);
		return err->code;
	}
	vm->clock.monotonic_ns = clock_monotonic(&vm->clock, tsc);
	vm->clock.tsc = tsc;
	vm->paused = true;
	vm->paused_ns = time_monotonic_ns();
	return 0;
}

int vm_continue(struct vm *vm, struct err *err)
{
	if (!vm->paused)
		return 0;
	if (vm_clock_go_on(vm, err) < 0) {
		/* Its clocks cannot be trusted. */
		vm_end(vm, CM_VM_HOST_ERROR, (uint32_t)-err->code, "the paused VM cannot go on: "
		       "%s", err->text);
		return err->code;
	}
	vm->paused = false;
	vcpu_resume(vm);
	/* What waited in the rings is looked at now. */
	vm_wake(vm);
	return 0;
}
