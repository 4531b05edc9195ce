/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /proc/sys: constants as this kernel has them. Host and domain name can be written; the rest
 * is fixed and says so by its permissions.
 */
#include <linux/capability.h>

#include "guest-kernel/proc/proc.h"

#define TEXT_SHOW(fn, text) \
	static int fn(struct strbuf *sb, const struct pseudo_node *n) \
	{ \
		strbuf_printf(sb, "%s\n", text); \
		return 0; \
	}
TEXT_SHOW(ostype, "Linux")
TEXT_SHOW(osrelease, SYS_RELEASE)
TEXT_SHOW(version, SYS_VERSION)
TEXT_SHOW(pid_max, "32768")
TEXT_SHOW(threads_max, "32768")
TEXT_SHOW(ngroups_max, "65536")
TEXT_SHOW(cap_last_cap, "40")
TEXT_SHOW(overflowid, "65534")
TEXT_SHOW(core_pattern, "core")
TEXT_SHOW(msgmax, "8192")
TEXT_SHOW(shmmax, "18446744073692774399")
TEXT_SHOW(sem, "32000\t1024000000\t500\t32000")
TEXT_SHOW(zero, "0")
TEXT_SHOW(entropy, "256")
TEXT_SHOW(overcommit_ratio, "50")
TEXT_SHOW(max_map_count, "65530")
TEXT_SHOW(mmap_min_addr, "65536")
TEXT_SHOW(swappiness, "60")
TEXT_SHOW(file_max, "9223372036854775807")
TEXT_SHOW(file_nr, "0\t0\t9223372036854775807")
TEXT_SHOW(nr_open, "1048576")
TEXT_SHOW(pipe_max_size, "1048576")
TEXT_SHOW(max_queued_events, "16384")
TEXT_SHOW(max_user_instances, "128")
TEXT_SHOW(max_user_watches, "65536")
TEXT_SHOW(somaxconn, "4096")
TEXT_SHOW(max_dgram_qlen, "512")

/* ---- names ---- */

static int hostname_show(struct strbuf *sb, const struct pseudo_node *n)
{
	strbuf_printf(sb, "%s\n", sys_hostname);
	return 0;
}

static int domainname_show(struct strbuf *sb, const struct pseudo_node *n)
{
	strbuf_printf(sb, "%s\n", sys_domainname);
	return 0;
}

static long name_store(char name[65], char *buf, size_t len)
{
	size_t n = 0;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	while (n < len && n < 64 && buf[n] != '\n' && buf[n] != 0)
		n++;
	memcpy(name, buf, n);
	memset(name + n, 0, 65 - n);
	return (long)len;
}

static long hostname_store(const struct pseudo_node *n, char *buf, size_t len)
{
	return name_store(sys_hostname, buf, len);
}

static long domainname_store(const struct pseudo_node *n, char *buf, size_t len)
{
	return name_store(sys_domainname, buf, len);
}

/* ---- random ---- */

static void show_uuid(struct strbuf *sb, const uint8_t b[16])
{
	for (unsigned i = 0; i < 16; i++)
		strbuf_printf(sb, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
			      b[i]);
	strbuf_printf(sb, "\n");
}

static void new_uuid(uint8_t b[16])
{
	random_bytes(b, 16);
	b[6] = (b[6] & 0x0f) | 0x40;
	b[8] = (b[8] & 0x3f) | 0x80;
}

static int uuid_show(struct strbuf *sb, const struct pseudo_node *n)
{
	uint8_t b[16];

	new_uuid(b);
	show_uuid(sb, b);
	return 0;
}

/* A restored VM is a boot of its own: the number follows the generation. */
static int boot_id_show(struct strbuf *sb, const struct pseudo_node *n)
{
	static uint8_t id[16];
	static uint64_t made_in;	/* a generation; 0: not yet */

	/* Again when the VM was stopped and restored in between. */
	while (made_in != clock_generation()) {
		made_in = clock_generation();
		new_uuid(id);
	}
	show_uuid(sb, id);
	return 0;
}

/* ---- the tree ---- */

#define END { .name = NULL }
#define RO(n, fn) PSEUDO_FILE(n, 0444, fn)

static const struct pseudo_entry random_entries[] = {
	RO("uuid", uuid_show),
	RO("boot_id", boot_id_show),
	RO("entropy_avail", entropy),
	RO("poolsize", entropy),
	END,
};

static const struct pseudo_entry kernel_entries[] = {
	RO("ostype", ostype),
	RO("osrelease", osrelease),
	RO("version", version),
	{ .name = "hostname", .mode = KS_IFREG | 0644, .show = hostname_show,
	  .store = hostname_store },
	{ .name = "domainname", .mode = KS_IFREG | 0644, .show = domainname_show,
	  .store = domainname_store },
	RO("pid_max", pid_max),
	RO("threads-max", threads_max),
	RO("ngroups_max", ngroups_max),
	RO("cap_last_cap", cap_last_cap),
	RO("overflowuid", overflowid),
	RO("overflowgid", overflowid),
	RO("core_pattern", core_pattern),
	RO("msgmax", msgmax),
	RO("shmmax", shmmax),
	RO("sem", sem),
	PSEUDO_DIR("random", random_entries),
	END,
};

static const struct pseudo_entry vm_entries[] = {
	RO("overcommit_memory", zero),
	RO("overcommit_ratio", overcommit_ratio),
	RO("max_map_count", max_map_count),
	RO("mmap_min_addr", mmap_min_addr),
	RO("swappiness", swappiness),
	END,
};

static const struct pseudo_entry inotify_entries[] = {
	RO("max_queued_events", max_queued_events),
	RO("max_user_instances", max_user_instances),
	RO("max_user_watches", max_user_watches),
	END,
};

static const struct pseudo_entry fs_entries[] = {
	RO("file-max", file_max),
	RO("file-nr", file_nr),
	RO("nr_open", nr_open),
	RO("pipe-max-size", pipe_max_size),
	RO("overflowuid", overflowid),
	RO("overflowgid", overflowid),
	RO("protected_hardlinks", zero),
	RO("protected_symlinks", zero),
	RO("protected_fifos", zero),
	RO("protected_regular", zero),
	PSEUDO_DIR("inotify", inotify_entries),
	END,
};

static const struct pseudo_entry core_entries[] = {
	RO("somaxconn", somaxconn),
	END,
};

static const struct pseudo_entry unix_entries[] = {
	RO("max_dgram_qlen", max_dgram_qlen),
	END,
};

static const struct pseudo_entry net_entries[] = {
	PSEUDO_DIR("core", core_entries),
	PSEUDO_DIR("unix", unix_entries),
	END,
};

const struct pseudo_entry proc_sys_entries[] = {
	PSEUDO_DIR("kernel", kernel_entries),
	PSEUDO_DIR("vm", vm_entries),
	PSEUDO_DIR("fs", fs_entries),
	PSEUDO_DIR("net", net_entries),
	END,
};
