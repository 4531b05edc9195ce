/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The smallest proof that /dev/kvm runs guests: a real-mode guest adds two numbers, writes the
 * sum to a port and halts. Says what fails; exit 77 when there is no /dev/kvm to try.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

static const uint8_t guest[] = {
	0xba, 0xf8, 0x03,	/* mov $0x3f8,%dx */
	0x00, 0xd8,		/* add %bl,%al */
	0xee,			/* out %al,(%dx) */
	0xf4,			/* hlt */
};

static int fail(const char *what)
{
	printf("kvm_smoke: %s: %s\n", what, strerror(errno));
	return 1;
}

int main(void)
{
	int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	int vm, cpu, size;
	struct kvm_run *run;
	struct kvm_sregs sregs;
	uint8_t *ram;

	if (kvm < 0) {
		printf("kvm_smoke: /dev/kvm: %s\n", strerror(errno));
		return 77;
	}
	vm = ioctl(kvm, KVM_CREATE_VM, 0);
	if (vm < 0)
		return fail("KVM_CREATE_VM");
	ram = mmap(NULL, 0x1000, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (ram == MAP_FAILED)
		return fail("mmap");
	memcpy(ram, guest, sizeof(guest));
	struct kvm_userspace_memory_region slot = {
		.guest_phys_addr = 0x1000, .memory_size = 0x1000,
		.userspace_addr = (uintptr_t)ram };
	if (ioctl(vm, KVM_SET_USER_MEMORY_REGION, &slot) < 0)
		return fail("KVM_SET_USER_MEMORY_REGION");
	cpu = ioctl(vm, KVM_CREATE_VCPU, 0);
	if (cpu < 0)
		return fail("KVM_CREATE_VCPU");
	size = ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
	run = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, cpu, 0);
	if (run == MAP_FAILED)
		return fail("mmap of kvm_run");
	if (ioctl(cpu, KVM_GET_SREGS, &sregs) < 0)
		return fail("KVM_GET_SREGS");
	sregs.cs.base = 0;
	sregs.cs.selector = 0;
	if (ioctl(cpu, KVM_SET_SREGS, &sregs) < 0)
		return fail("KVM_SET_SREGS");
	struct kvm_regs regs = { .rip = 0x1000, .rax = 40, .rbx = 2, .rflags = 2 };
	if (ioctl(cpu, KVM_SET_REGS, &regs) < 0)
		return fail("KVM_SET_REGS");
	for (int sum = 0;;) {
		if (ioctl(cpu, KVM_RUN, 0) < 0)
			return fail("KVM_RUN");
		switch (run->exit_reason) {
		case KVM_EXIT_IO:
			sum = ((uint8_t *)run)[run->io.data_offset];
			break;
		case KVM_EXIT_HLT:
			printf("kvm_smoke: the guest says %d\n", sum);
			return sum != 42;
		default:
			printf("kvm_smoke: exit reason %u\n", run->exit_reason);
			return 1;
		}
	}
}
