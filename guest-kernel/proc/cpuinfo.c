/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /proc/cpuinfo of the one processor, from CPUID as the VMM lets us see it. Flags have the
 * names and the order that Linux gives them; only bits that CPUID sets are shown.
 */
#include <cpuid.h>

#include "guest-kernel/arch/arch.h"
#include "guest-kernel/proc/proc.h"

enum reg { EAX, EBX, ECX, EDX };

struct flag {
	uint8_t bit;
	const char *name;
};
struct flag_word {
	uint32_t leaf, subleaf;
	enum reg reg;
	const struct flag *flags;
};
#define END { 255, NULL }

static const struct flag f_1_edx[] = {
	{ 0, "fpu" }, { 1, "vme" }, { 2, "de" }, { 3, "pse" }, { 4, "tsc" }, { 5, "msr" },
	{ 6, "pae" }, { 7, "mce" }, { 8, "cx8" }, { 9, "apic" }, { 11, "sep" }, { 12, "mtrr" },
	{ 13, "pge" }, { 14, "mca" }, { 15, "cmov" }, { 16, "pat" }, { 17, "pse36" },
	{ 18, "pn" }, { 19, "clflush" }, { 21, "dts" }, { 22, "acpi" }, { 23, "mmx" },
	{ 24, "fxsr" }, { 25, "sse" }, { 26, "sse2" }, { 27, "ss" }, { 28, "ht" }, { 29, "tm" },
	{ 31, "pbe" }, END,
};
static const struct flag f_ext_edx[] = {
	{ 11, "syscall" }, { 19, "mp" }, { 20, "nx" }, { 22, "mmxext" }, { 25, "fxsr_opt" },
	{ 26, "pdpe1gb" }, { 27, "rdtscp" }, { 29, "lm" }, { 30, "3dnowext" }, { 31, "3dnow" },
	END,
};
static const struct flag f_1_ecx[] = {
	{ 0, "pni" }, { 1, "pclmulqdq" }, { 2, "dtes64" }, { 3, "monitor" }, { 4, "ds_cpl" },
	{ 5, "vmx" }, { 6, "smx" }, { 7, "est" }, { 8, "tm2" }, { 9, "ssse3" }, { 10, "cid" },
	{ 11, "sdbg" }, { 12, "fma" }, { 13, "cx16" }, { 14, "xtpr" }, { 15, "pdcm" },
	{ 17, "pcid" }, { 18, "dca" }, { 19, "sse4_1" }, { 20, "sse4_2" }, { 21, "x2apic" },
	{ 22, "movbe" }, { 23, "popcnt" }, { 24, "tsc_deadline_timer" }, { 25, "aes" },
	{ 26, "xsave" }, { 28, "avx" }, { 29, "f16c" }, { 30, "rdrand" }, { 31, "hypervisor" },
	END,
};
static const struct flag f_ext_ecx[] = {
	{ 0, "lahf_lm" }, { 1, "cmp_legacy" }, { 2, "svm" }, { 3, "extapic" },
	{ 4, "cr8_legacy" }, { 5, "abm" }, { 6, "sse4a" }, { 7, "misalignsse" },
	{ 8, "3dnowprefetch" }, { 9, "osvw" }, { 10, "ibs" }, { 11, "xop" }, { 12, "skinit" },
	{ 13, "wdt" }, { 15, "lwp" }, { 16, "fma4" }, { 17, "tce" }, { 21, "tbm" },
	{ 22, "topoext" }, { 23, "perfctr_core" }, END,
};
static const struct flag f_7_ebx[] = {
	{ 0, "fsgsbase" }, { 1, "tsc_adjust" }, { 2, "sgx" }, { 3, "bmi1" }, { 4, "hle" },
	{ 5, "avx2" }, { 7, "smep" }, { 8, "bmi2" }, { 9, "erms" }, { 10, "invpcid" },
	{ 11, "rtm" }, { 12, "cqm" }, { 14, "mpx" }, { 15, "rdt_a" }, { 16, "avx512f" },
	{ 17, "avx512dq" }, { 18, "rdseed" }, { 19, "adx" }, { 20, "smap" },
	{ 21, "avx512ifma" }, { 23, "clflushopt" }, { 24, "clwb" }, { 25, "intel_pt" },
	{ 26, "avx512pf" }, { 27, "avx512er" }, { 28, "avx512cd" }, { 29, "sha_ni" },
	{ 30, "avx512bw" }, { 31, "avx512vl" }, END,
};
static const struct flag f_d1_eax[] = {
	{ 0, "xsaveopt" }, { 1, "xsavec" }, { 2, "xgetbv1" }, { 3, "xsaves" }, END,
};
static const struct flag f_71_eax[] = {
	{ 4, "avx_vnni" }, { 5, "avx512_bf16" }, END,
};
static const struct flag f_ext8_ebx[] = {
	{ 0, "clzero" }, { 1, "irperf" }, { 2, "xsaveerptr" }, { 4, "rdpru" },
	{ 9, "wbnoinvd" }, END,
};
static const struct flag f_7_ecx[] = {
	{ 1, "avx512vbmi" }, { 2, "umip" }, { 3, "pku" }, { 4, "ospke" }, { 5, "waitpkg" },
	{ 6, "avx512_vbmi2" }, { 8, "gfni" }, { 9, "vaes" }, { 10, "vpclmulqdq" },
	{ 11, "avx512_vnni" }, { 12, "avx512_bitalg" }, { 13, "tme" },
	{ 14, "avx512_vpopcntdq" }, { 16, "la57" }, { 22, "rdpid" }, { 24, "bus_lock_detect" },
	{ 25, "cldemote" }, { 27, "movdiri" }, { 28, "movdir64b" }, { 29, "enqcmd" }, END,
};
static const struct flag f_7_edx[] = {
	{ 2, "avx512_4vnniw" }, { 3, "avx512_4fmaps" }, { 4, "fsrm" },
	{ 8, "avx512_vp2intersect" }, { 10, "md_clear" }, { 14, "serialize" },
	{ 16, "tsxldtrk" }, { 18, "pconfig" }, { 20, "ibt" }, { 22, "amx_bf16" },
	{ 23, "avx512_fp16" }, { 24, "amx_tile" }, { 25, "amx_int8" }, { 28, "flush_l1d" },
	{ 29, "arch_capabilities" }, END,
};

static const struct flag_word words[] = {
	{ 1, 0, EDX, f_1_edx },
	{ 0x80000001, 0, EDX, f_ext_edx },
	{ 1, 0, ECX, f_1_ecx },
	{ 0x80000001, 0, ECX, f_ext_ecx },
	{ 7, 0, EBX, f_7_ebx },
	{ 0xd, 1, EAX, f_d1_eax },
	{ 7, 1, EAX, f_71_eax },
	{ 0x80000008, 0, EBX, f_ext8_ebx },
	{ 7, 0, ECX, f_7_ecx },
	{ 7, 0, EDX, f_7_edx },
};

static void cpuid(uint32_t leaf, uint32_t sub, uint32_t r[4])
{
	__cpuid_count(leaf, sub, r[EAX], r[EBX], r[ECX], r[EDX]);
}

static void flags_show(struct strbuf *sb, uint32_t max, uint32_t max_ext)
{
	bool first = true;
	uint32_t r[4];

	strbuf_printf(sb, "flags\t\t: ");
	for (unsigned w = 0; w < ARRAY_SIZE(words); w++) {
		if (words[w].leaf > ((words[w].leaf >> 31) ? max_ext : max))
			continue;
		cpuid(words[w].leaf, words[w].subleaf, r);
		for (const struct flag *f = words[w].flags; f->name != NULL; f++) {
			if ((r[words[w].reg] >> f->bit & 1) == 0)
				continue;
			strbuf_printf(sb, "%s%s", first ? "" : " ", f->name);
			first = false;
		}
		if (w == 1)	/* what Linux finds out by itself */
			strbuf_printf(sb, " constant_tsc rep_good nopl nonstop_tsc cpuid");
	}
	strbuf_printf(sb, "\n");
}

static void brand(char out[49], uint32_t max_ext)
{
	char raw[49] = { 0 };
	unsigned lead = 0;
	size_t n;

	for (uint32_t k = 0; k < 3 && max_ext >= 0x80000004; k++)
		cpuid(0x80000002 + k, 0, (uint32_t *)(void *)(raw + 16 * k));
	while (raw[lead] == ' ')
		lead++;
	n = strlen(raw + lead);
	while (n > 0 && raw[lead + n - 1] == ' ')
		n--;
	memcpy(out, raw + lead, n);
	out[n] = 0;
	if (n == 0)
		strcpy(out, "unknown");
}

static void address_sizes(struct strbuf *sb, uint32_t max_ext)
{
	uint32_t r[4] = { 36 | 48 << 8, 0, 0, 0 };

	if (max_ext >= 0x80000008)
		cpuid(0x80000008, 0, r);
	/* Four levels of page tables, whatever more the processor could do. */
	strbuf_printf(sb, "address sizes\t: %u bits physical, %u bits virtual\n"
		      "power management:\n\n", r[EAX] & 0xff, MIN(r[EAX] >> 8 & 0xff, 48u));
}

int proc_cpuinfo_show(struct strbuf *sb, const struct pseudo_node *n)
{
	uint32_t r[4], max, max_ext, sig, family, model, cache = 0, line;
	char vendor[13] = { 0 }, name[49];
	uint64_t khz;

	cpuid(0, 0, r);
	max = r[EAX];
	memcpy(vendor, &r[EBX], 4);
	memcpy(vendor + 4, &r[EDX], 4);
	memcpy(vendor + 8, &r[ECX], 4);
	cpuid(0x80000000, 0, r);
	max_ext = r[EAX] >= 0x80000000 ? r[EAX] : 0;
	brand(name, max_ext);
	if (max_ext >= 0x80000006) {
		cpuid(0x80000006, 0, r);
		cache = r[ECX] >> 16;
	}
	cpuid(1, 0, r);
	sig = r[EAX];
	line = (r[EBX] >> 8 & 0xff) * 8;
	family = sig >> 8 & 0xf;
	model = sig >> 4 & 0xf;
	if (family == 6 || family == 15)
		model |= (sig >> 16 & 0xf) << 4;
	if (family == 15)
		family += sig >> 20 & 0xff;
	khz = arch_tsc_khz();
	strbuf_printf(sb, "processor\t: 0\nvendor_id\t: %s\ncpu family\t: %u\nmodel\t\t: %u\n"
		      "model name\t: %s\nstepping\t: %u\n", vendor, family, model, name,
		      sig & 0xf);
	strbuf_printf(sb, "cpu MHz\t\t: %lu.%03lu\ncache size\t: %u KB\nphysical id\t: 0\n"
		      "siblings\t: 1\ncore id\t\t: 0\ncpu cores\t: 1\napicid\t\t: 0\n"
		      "initial apicid\t: 0\nfpu\t\t: yes\nfpu_exception\t: yes\n"
		      "cpuid level\t: %u\nwp\t\t: yes\n", khz / 1000, khz % 1000, cache, max);
	flags_show(sb, max, max_ext);
	strbuf_printf(sb, "bugs\t\t:\nbogomips\t: %lu.%02lu\nclflush size\t: %u\n"
		      "cache_alignment\t: %u\n", khz * 2 / 1000, khz * 2 % 1000 / 10, line, line);
	address_sizes(sb, max_ext);
	return 0;
}
