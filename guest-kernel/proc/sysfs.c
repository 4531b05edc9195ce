/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sysfs: the few files that programs look for, on a machine with one processor and one node.
 * Everything else does not exist.
 */
#include "guest-kernel/mm/mm.h"
#include "guest-kernel/mm/page.h"
#include "guest-kernel/proc/proc.h"

#define SYSFS_MAGIC	0x62656572

#define TEXT_SHOW(fn, text) \
	static int fn(struct strbuf *sb, const struct pseudo_node *n) \
	{ \
		strbuf_printf(sb, "%s\n", text); \
		return 0; \
	}
TEXT_SHOW(zero, "0")
TEXT_SHOW(one, "1")
TEXT_SHOW(empty, "")
TEXT_SHOW(thp_enabled, "always madvise [never]")
TEXT_SHOW(hpage_size, "2097152")

static int node_meminfo(struct strbuf *sb, const struct pseudo_node *n)
{
	struct strbuf all = { 0 };
	char *line, *end;

	meminfo_show(&all);
	for (line = all.data; line != NULL && line < all.data + all.len; line = end + 1) {
		end = memchr(line, '\n', (size_t)(all.data + all.len - line));
		if (end == NULL)
			break;
		/* The node's list has no such lines. */
		if (strncmp(line, "MemAvailable", 12) == 0 || strncmp(line, "Swap", 4) == 0 ||
		    strncmp(line, "Commit", 6) == 0 || strncmp(line, "Vmalloc", 7) == 0)
			continue;
		strbuf_printf(sb, "Node 0 ");
		strbuf_write(sb, line, (size_t)(end - line) + 1);
	}
	strbuf_done(&all);
	return 0;
}

#define END { .name = NULL }
#define RO(n, fn) PSEUDO_FILE(n, 0444, fn)

static const struct pseudo_entry topology[] = {
	RO("physical_package_id", zero),
	RO("core_id", zero),
	RO("die_id", zero),
	RO("thread_siblings", one),
	RO("thread_siblings_list", zero),
	RO("core_siblings", one),
	RO("core_siblings_list", zero),
	RO("core_cpus", one),
	RO("core_cpus_list", zero),
	RO("package_cpus", one),
	RO("package_cpus_list", zero),
	END,
};
static const struct pseudo_entry cpu0[] = {
	PSEUDO_DIR("topology", topology),
	END,
};
static const struct pseudo_entry cpu[] = {
	RO("online", zero),
	RO("possible", zero),
	RO("present", zero),
	RO("offline", empty),
	RO("kernel_max", zero),
	PSEUDO_DIR("cpu0", cpu0),
	END,
};
static const struct pseudo_entry node0[] = {
	RO("meminfo", node_meminfo),
	RO("cpumap", one),
	RO("cpulist", zero),
	END,
};
static const struct pseudo_entry node[] = {
	RO("online", zero),
	RO("possible", zero),
	RO("has_memory", zero),
	RO("has_cpu", zero),
	PSEUDO_DIR("node0", node0),
	END,
};
static const struct pseudo_entry system_dir[] = {
	PSEUDO_DIR("cpu", cpu),
	PSEUDO_DIR("node", node),
	END,
};
static const struct pseudo_entry devices[] = {
	PSEUDO_DIR("system", system_dir),
	END,
};
static const struct pseudo_entry thp[] = {
	RO("enabled", thp_enabled),
	RO("hpage_pmd_size", hpage_size),
	END,
};
static const struct pseudo_entry kernel_mm[] = {
	PSEUDO_DIR("transparent_hugepage", thp),
	END,
};
static const struct pseudo_entry kernel[] = {
	PSEUDO_DIR("mm", kernel_mm),
	END,
};
static const struct pseudo_entry fs[] = {
	PSEUDO_DIR("cgroup", NULL),
	END,
};
static const struct pseudo_entry root_entries[] = {
	PSEUDO_DIR("devices", devices),
	PSEUDO_DIR("fs", fs),
	PSEUDO_DIR("kernel", kernel),
	END,
};
static const struct pseudo_entry root_dir = {
	.name = "", .mode = KS_IFDIR | 0555, .children = root_entries,
};

static int sysfs_mount(struct superblock *sb, const char *data)
{
	return pseudo_mount(sb, &root_dir);
}

const struct fs_type sysfs_type = {
	.name = "sysfs", .magic = SYSFS_MAGIC, .nodev = true, .mount = sysfs_mount,
};
