/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device tree at CM_FDT_GPA, by path and property. #address-cells and #size-cells of the
 * root are 2. Kernel and VMM take every name from here.
 *
 *   /                      compatible = "casemate"
 *   /memory@0              device_type = "memory"; reg = <low RAM>, <high RAM, if any>
 *   /chosen                bootargs = "word word ..."; rng-seed = 64 bytes;
 *                          linux,initrd-start, linux,initrd-end = u64 gpa: initd's ELF file in
 *                          RAM, page aligned, end exclusive
 *   /cpus/cpu@0            reg = LAPIC id; casemate,apic-timer-hz = u64; casemate,tsc-hz = u64
 *   /pmem@<gpa>            compatible = "pmem-region"; reg = <gpa, slot size>;
 *                          casemate,image-size = u64: bytes of the EROFS file; read-only slot
 *   /virtio_mmio@<gpa>     compatible = "virtio,mmio"; reg; interrupts = <vector>: edge, MSI
 *   /clock@1000            compatible = "casemate,clock"; reg
 *   /platform@d0000000     compatible = "casemate,platform"; reg
 *
 * bootargs: "verbose" (kernel messages to the serial register), "trace" (each system call
 * too).
 */
#ifndef CASEMATE_ABI_DEVICETREE_H
#define CASEMATE_ABI_DEVICETREE_H

#define CM_DT_COMPATIBLE	"casemate"
#define CM_DT_APIC_HZ		"casemate,apic-timer-hz"
#define CM_DT_TSC_HZ		"casemate,tsc-hz"
#define CM_DT_IMAGE_SIZE	"casemate,image-size"
#define CM_DT_INITRD_START	"linux,initrd-start"
#define CM_DT_INITRD_END	"linux,initrd-end"
#define CM_DT_PMEM		"pmem-region"
#define CM_DT_VIRTIO_MMIO	"virtio,mmio"
#define CM_DT_CLOCK		"casemate,clock"
#define CM_DT_PLATFORM		"casemate,platform"

#endif
