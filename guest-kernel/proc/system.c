/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /proc itself: the files about the whole system, /proc/self, and the mount. Things this
 * machine does not have (block devices, swap, interrupts by line) show as empty tables.
 */
#include <linux/capability.h>

#include "guest-kernel/arch/arch.h"
#include "guest-kernel/core/syscall.h"
#include "guest-kernel/mm/mm.h"
#include "guest-kernel/mm/page.h"
#include "guest-kernel/proc/proc.h"

#define PROC_MAGIC	0x9fa0

static int meminfo_text(struct strbuf *sb, const struct pseudo_node *n)
{
	meminfo_show(sb);
	return 0;
}

/* User and system time of all that lives, and of what it waited for. */
static void cpu_totals(uint64_t *ret_user, uint64_t *ret_sys)
{
	uint64_t user = 0, sys = 0, u, s;
	struct process *p;

	TAILQ_FOREACH(p, &all_processes, all_link) {
		process_times(p, &u, &s);
		user += u + p->cutime_ns;
		sys += s + p->cstime_ns;
	}
	*ret_user = user / CLOCK_TICK_NS;
	*ret_sys = sys / CLOCK_TICK_NS;
}

static int stat_text(struct strbuf *sb, const struct pseudo_node *n)
{
	struct process *last = TAILQ_LAST(&all_processes, proc_list);
	uint64_t user, sys, idle = sched_idle_ns() / CLOCK_TICK_NS;

	cpu_totals(&user, &sys);
	strbuf_printf(sb, "cpu  %lu 0 %lu %lu 0 0 0 0 0 0\n", user, sys, idle);
	strbuf_printf(sb, "cpu0 %lu 0 %lu %lu 0 0 0 0 0 0\n", user, sys, idle);
	strbuf_printf(sb, "intr 0\nctxt %lu\nbtime %lu\nprocesses %d\n", sched_switches(),
		      (uint64_t)((clock_realtime_ns() - clock_boot_ns()) / NSEC_PER_SEC),
		      last != NULL ? last->pid : 0);
	strbuf_printf(sb, "procs_running %u\nprocs_blocked 0\n"
		      "softirq 0 0 0 0 0 0 0 0 0 0 0\n", MAX(sched_nr_runnable(), 1u));
	return 0;
}

static int loadavg_text(struct strbuf *sb, const struct pseudo_node *n)
{
	struct process *p, *last = TAILQ_LAST(&all_processes, proc_list);
	uint64_t load[3];
	unsigned tasks = 0;

	sched_loadavg(load);
	for (unsigned i = 0; i < 3; i++)
		strbuf_printf(sb, "%lu.%02lu ", load[i] >> 16, (load[i] & 0xffff) * 100 >> 16);
	TAILQ_FOREACH(p, &all_processes, all_link)
		tasks += p->nthreads;
	strbuf_printf(sb, "%u/%u %d\n", MAX(sched_nr_runnable(), 1u), tasks,
		      last != NULL ? last->pid : 0);
	return 0;
}

static void put_centis(struct strbuf *sb, uint64_t ns, char end)
{
	strbuf_printf(sb, "%lu.%02lu%c", (uint64_t)(ns / NSEC_PER_SEC),
		      (uint64_t)(ns % NSEC_PER_SEC / 10000000), end);
}

static int uptime_text(struct strbuf *sb, const struct pseudo_node *n)
{
	put_centis(sb, clock_boot_ns(), ' ');
	put_centis(sb, sched_idle_ns(), '\n');
	return 0;
}

static int version_text(struct strbuf *sb, const struct pseudo_node *n)
{
	strbuf_printf(sb, "Linux version %s (casemate@casemate) (gcc) %s\n", SYS_RELEASE,
		      SYS_VERSION);
	return 0;
}

static int cmdline_text(struct strbuf *sb, const struct pseudo_node *n)
{
	strbuf_printf(sb, "%s\n", kernel_cmdline);
	return 0;
}

static int filesystems_text(struct strbuf *sb, const struct pseudo_node *n)
{
	filesystems_show(sb);
	return 0;
}

static int locks_text(struct strbuf *sb, const struct pseudo_node *n)
{
	locks_show(sb);
	return 0;
}

static int vmstat_text(struct strbuf *sb, const struct pseudo_node *n)
{
	struct process *p;
	struct task *t;
	uint64_t flt = 0, maj = 0;

	TAILQ_FOREACH(p, &all_processes, all_link) {
		flt += p->minflt + p->cminflt;
		maj += p->majflt + p->cmajflt;
		TAILQ_FOREACH(t, &p->threads, thread_link) {
			flt += t->minflt;
			maj += t->majflt;
		}
	}
	strbuf_printf(sb, "nr_free_pages %lu\nnr_inactive_anon 0\nnr_active_anon %lu\n"
		      "nr_inactive_file 0\nnr_active_file 0\nnr_anon_pages %lu\n"
		      "nr_mapped 0\nnr_file_pages %lu\nnr_dirty 0\nnr_writeback 0\nnr_shmem %lu\n",
		      mem_available(), mem_stats.anon_pages + mem_stats.shmem_pages,
		      mem_stats.anon_pages, mem_stats.shmem_pages, mem_stats.shmem_pages);
	strbuf_printf(sb, "nr_page_table_pages %lu\nnr_slab_reclaimable 0\n"
		      "nr_slab_unreclaimable %lu\npgpgin 0\npgpgout 0\npswpin 0\npswpout 0\n"
		      "pgfault %lu\npgmajfault %lu\noom_kill %lu\n", mem_stats.table_pages,
		      mem_stats.slab_pages, flt + maj, maj, mem_stats.oom_kills);
	return 0;
}

#define TEXT_SHOW(fn, text) \
	static int fn(struct strbuf *sb, const struct pseudo_node *n) \
	{ \
		strbuf_printf(sb, "%s", text); \
		return 0; \
	}
TEXT_SHOW(devices_text, "Character devices:\n  1 mem\n  5 /dev/tty\n  5 /dev/console\n"
	  "  5 /dev/ptmx\n136 pts\n240 casemate-channel\n\nBlock devices:\n")
TEXT_SHOW(swaps_text, "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n")
TEXT_SHOW(partitions_text, "major minor  #blocks  name\n\n")
TEXT_SHOW(interrupts_text, "           CPU0       \n")
TEXT_SHOW(empty_text, "")

static int report_text(struct strbuf *sb, const struct pseudo_node *n)
{
	syscall_report(sb);
	task_report(sb);
	cpu_report(sb);
	strbuf_printf(sb, "pages total %lu free %lu tmpfs %lu anon %lu tables %lu slab %lu\n",
		      mem_stats.total_pages, mem_stats.free_pages, mem_stats.shmem_pages,
		      mem_stats.anon_pages, mem_stats.table_pages, mem_stats.slab_pages);
	return 0;
}

/* ---- self ---- */

static int self_link(const struct pseudo_node *n, char *buf, size_t size)
{
	char text[12];
	int len = ksnprintf(text, sizeof(text), "%d", current->proc->pid);

	len = MIN(len, (int)size);
	memcpy(buf, text, (size_t)len);
	return len;
}

static int thread_self_link(const struct pseudo_node *n, char *buf, size_t size)
{
	char text[32];
	int len = ksnprintf(text, sizeof(text), "%d/task/%d", current->proc->pid, current->tid);

	len = MIN(len, (int)size);
	memcpy(buf, text, (size_t)len);
	return len;
}

static int mounts_link(const struct pseudo_node *n, char *buf, size_t size)
{
	size_t len = MIN(strlen("self/mounts"), size);

	memcpy(buf, "self/mounts", len);
	return (int)len;
}

#define LINK_(n, fn) { .name = (n), .mode = KS_IFLNK | 0777, .readlink = (fn) }

static long kill_store(const struct pseudo_node *n, char *buf, size_t len)
{
	long job;
	int ret = proc_parse_int(buf, &job);

	if (ret == 0)
		ret = job <= 0 || job > INT32_MAX ? -EINVAL :
			capable(CAP_KILL) ? signal_kill_job((int)job) : -EPERM;
	return ret != 0 ? ret : (long)len;
}

static const struct pseudo_entry casemate_entries[] = {
	PSEUDO_FILE("report", 0400, report_text),
	{ .name = "kill", .mode = KS_IFREG | 0200, .store = kill_store },
	{ .name = NULL },
};

static const struct pseudo_entry root_entries[] = {
	LINK_("self", self_link),
	LINK_("thread-self", thread_self_link),
	LINK_("mounts", mounts_link),
	PSEUDO_FILE("cpuinfo", 0444, proc_cpuinfo_show),
	PSEUDO_FILE("meminfo", 0444, meminfo_text),
	PSEUDO_FILE("stat", 0444, stat_text),
	PSEUDO_FILE("loadavg", 0444, loadavg_text),
	PSEUDO_FILE("uptime", 0444, uptime_text),
	PSEUDO_FILE("version", 0444, version_text),
	PSEUDO_FILE("cmdline", 0444, cmdline_text),
	PSEUDO_FILE("filesystems", 0444, filesystems_text),
	PSEUDO_FILE("locks", 0444, locks_text),
	PSEUDO_FILE("devices", 0444, devices_text),
	PSEUDO_FILE("swaps", 0444, swaps_text),
	PSEUDO_FILE("vmstat", 0444, vmstat_text),
	PSEUDO_FILE("diskstats", 0444, empty_text),
	PSEUDO_FILE("partitions", 0444, partitions_text),
	PSEUDO_FILE("interrupts", 0444, interrupts_text),
	PSEUDO_DIR("sys", proc_sys_entries),
	PSEUDO_DIR("casemate", casemate_entries),
	{ .name = NULL },
};

static const struct pseudo_entry root_dir = {
	.name = "", .mode = KS_IFDIR | 0555, .children = root_entries,
	.lookup = proc_root_lookup, .readdir = proc_root_readdir,
};

static int proc_mount(struct superblock *sb, const char *data)
{
	return pseudo_mount(sb, &root_dir);
}

const struct fs_type proc_type = {
	.name = "proc", .magic = PROC_MAGIC, .nodev = true, .mount = proc_mount,
};
