/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The texts of /proc/PID that are more than a line: stat, statm, status, limits, smaps_rollup.
 * Formats as Linux 6.1 writes them; see proc(5).
 *
 * A process without living threads is a zombie: it has times and identity, but no memory.
 */
#include <linux/capability.h>
#include <linux/mman.h>

#include "guest-kernel/ipc/tty.h"
#include "guest-kernel/mm/mm.h"
#include "guest-kernel/mm/page.h"
#include "guest-kernel/proc/proc.h"

struct task *proc_node_task(const struct pseudo_node *n)
{
	struct task *t;

	if (n->tid != 0) {
		t = task_find(n->tid);
		return t != NULL && t->proc == n->proc ? t : NULL;
	}
	if (n->proc->leader != NULL)
		return n->proc->leader;
	return TAILQ_FIRST(&n->proc->threads);
}

char proc_task_state(const struct pseudo_node *n)
{
	struct task *t = proc_node_task(n);

	if (t == NULL || n->proc->zombie || (n->tid == 0 && n->proc->leader == NULL))
		return 'Z';
	switch (t->state) {
	case TASK_RUNNABLE:
		return 'R';
	case TASK_UNINTERRUPTIBLE:
		return 'D';
	case TASK_STOPPED:
		return 'T';
	case TASK_DEAD:
		return 'X';
	default:
		return 'S';
	}
}

int proc_allow_ptrace(const struct pseudo_node *n)
{
	const struct cred *me = current->proc->cred, *c = n->proc->cred;

	if (current->proc == n->proc || capable(CAP_SYS_PTRACE))
		return 0;
	if (c == NULL || !n->proc->dumpable)
		return -EACCES;
	if (me->fsuid != c->uid || me->fsuid != c->euid || me->fsuid != c->suid ||
	    me->fsgid != c->gid || me->fsgid != c->egid || me->fsgid != c->sgid)
		return -EACCES;
	return (c->cap_perm & ~me->cap_perm) != 0 ? -EACCES : 0;
}

static const char *node_comm(const struct pseudo_node *n)
{
	struct task *t = proc_node_task(n);

	return t != NULL ? t->comm : n->proc->comm;
}

static void signal_sets(const struct process *p, uint64_t *ret_ign, uint64_t *ret_cgt)
{
	uint64_t ign = 0, cgt = 0;

	for (int s = 1; p->sighand != NULL && s <= KSIGMAX; s++) {
		uint64_t h = p->sighand->action[s - 1].handler;

		if (h == 1)
			ign |= SIG_BIT(s);
		else if (h != 0)
			cgt |= SIG_BIT(s);
	}
	*ret_ign = ign;
	*ret_cgt = cgt;
}

static uint64_t start_ticks(uint64_t start_ns)
{
	return (start_ns + clock_boot_ns() - clock_monotonic_ns()) / CLOCK_TICK_NS;
}

struct stat_numbers {
	uint64_t minflt, majflt, utime, stime;
	uint64_t start_ns;
	int nice;
};

static void count_process(const struct process *p, struct stat_numbers *s)
{
	const struct task *t;

	process_times(p, &s->utime, &s->stime);
	s->minflt = p->minflt;
	s->majflt = p->majflt;
	TAILQ_FOREACH(t, &p->threads, thread_link) {
		s->minflt += t->minflt;
		s->majflt += t->majflt;
	}
	s->start_ns = p->start_ns;
}

static void count_task(const struct task *t, struct stat_numbers *s)
{
	task_times(t, &s->utime, &s->stime);
	s->minflt = t->minflt;
	s->majflt = t->majflt;
	s->start_ns = t->start_ns;
}

int proc_stat_show(struct strbuf *sb, const struct pseudo_node *n)
{
	const struct process *p = n->proc;
	struct task *t = proc_node_task(n);
	const struct mm *mm = t != NULL ? t->mm : NULL;
	bool permitted = mm != NULL && proc_allow_ptrace(n) == 0;
	struct stat_numbers s = { 0 };
	uint64_t ign, cgt;

	if (n->tid != 0 && t != NULL)
		count_task(t, &s);
	else
		count_process(p, &s);
	s.nice = t != NULL ? t->nice : 0;
	signal_sets(p, &ign, &cgt);
	strbuf_printf(sb, "%d (%s) %c %d %d %d %d %d %u %lu %lu %lu %lu %lu %lu %ld %ld ",
		      n->tid != 0 ? n->tid : p->pid, node_comm(n), proc_task_state(n),
		      p->parent != NULL ? p->parent->pid : 0, p->pgid, p->sid,
		      p->ctty != NULL ? (int)tty_device(p->ctty) : 0,
		      p->ctty != NULL ? tty_foreground(p->ctty) : -1, 0x400000u, s.minflt,
		      p->cminflt, s.majflt, p->cmajflt, (uint64_t)(s.utime / CLOCK_TICK_NS),
		      (uint64_t)(s.stime / CLOCK_TICK_NS), (long)(p->cutime_ns / CLOCK_TICK_NS),
		      (long)(p->cstime_ns / CLOCK_TICK_NS));
	strbuf_printf(sb, "%d %d %u 0 %lu %lu %lu %lu ", 20 + s.nice, s.nice,
		      t != NULL ? p->nthreads : 0, start_ticks(s.start_ns),
		      mm != NULL ? mm->total_pages * PAGE_SIZE : 0,
		      mm != NULL ? mm->rss_anon + mm->rss_file : 0, p->rlim[5].cur);
	strbuf_printf(sb, "%lu %lu %lu 0 0 ",
		      permitted ? mm->code_start : mm != NULL,
		      permitted ? mm->code_end : mm != NULL, permitted ? mm->stack_top : 0);
	strbuf_printf(sb, "%lu %lu %lu %lu %d 0 0 %d 0 %d %d 0 0 0 ",
		      t != NULL ? t->pending.set & 0x7fffffff : 0,
		      t != NULL ? t->sig_mask & 0x7fffffff : 0, ign & 0x7fffffff,
		      cgt & 0x7fffffff, t != NULL && t->state == TASK_SLEEPING,
		      p->exit_signal, t != NULL ? t->rt_priority : 0,
		      t != NULL ? t->policy : 0);
	if (permitted)
		strbuf_printf(sb, "%lu %lu %lu %lu %lu %lu %lu %d\n", mm->data_start,
			      mm->data_end, mm->brk_start, mm->arg_start, mm->arg_end,
			      mm->env_start, mm->env_end, p->exit_code);
	else
		strbuf_printf(sb, "0 0 0 0 0 0 0 0\n");
	return 0;
}

/* Pages by kind, from the VMAs. */
struct mm_sizes {
	uint64_t data, stack, text, lib, shared;
};

static void mm_measure(const struct mm *mm, struct mm_sizes *s)
{
	uint64_t exec = 0;
	struct vma *v;

	memset(s, 0, sizeof(*s));
	for (v = mm_find((struct mm *)mm, 0); v != NULL; v = mm_find((struct mm *)mm, v->end)) {
		uint64_t pages = (v->end - v->start) >> PAGE_SHIFT;

		if ((v->flags & MAP_GROWSDOWN) ||
		    (v->name != NULL && strcmp(v->name, "[stack]") == 0))
			s->stack += pages;
		else if ((v->prot & PROT_WRITE) && !(v->flags & MAP_SHARED))
			s->data += pages;
		else if ((v->prot & PROT_EXEC) && v->file != NULL)
			exec += pages;
	}
	s->text = (ALIGN_UP(mm->code_end, PAGE_SIZE) - ALIGN_DOWN(mm->code_start, PAGE_SIZE)) >>
		  PAGE_SHIFT;
	s->lib = exec > s->text ? exec - s->text : 0;
	s->shared = mm->rss_file;
}

int proc_statm_show(struct strbuf *sb, const struct pseudo_node *n)
{
	struct task *t = proc_node_task(n);
	struct mm_sizes s;

	if (t == NULL || t->mm == NULL) {
		strbuf_printf(sb, "0 0 0 0 0 0 0\n");
		return 0;
	}
	mm_measure(t->mm, &s);
	strbuf_printf(sb, "%lu %lu %lu %lu 0 %lu 0\n", t->mm->total_pages,
		      t->mm->rss_anon + t->mm->rss_file, s.shared, s.text, s.data + s.stack);
	return 0;
}

static void show_escaped(struct strbuf *sb, const char *s)
{
	for (; *s != 0; s++) {
		if (*s == '\n')
			strbuf_write(sb, "\\n", 2);
		else if (*s == '\\')
			strbuf_write(sb, "\\\\", 2);
		else
			strbuf_write(sb, s, 1);
	}
}

static const char *state_name(char c)
{
	switch (c) {
	case 'R':
		return "R (running)";
	case 'D':
		return "D (disk sleep)";
	case 'T':
		return "T (stopped)";
	case 'Z':
		return "Z (zombie)";
	case 'X':
		return "X (dead)";
	default:
		return "S (sleeping)";
	}
}

static void status_memory(struct strbuf *sb, const struct mm *mm)
{
	struct mm_sizes s;
	uint64_t rss = mm->rss_anon + mm->rss_file;

	mm_measure(mm, &s);
#define KB(name, pages) strbuf_printf(sb, "%s:\t%8lu kB\n", name, (uint64_t)(pages) * 4)
	KB("VmPeak", mm->total_pages);
	KB("VmSize", mm->total_pages);
	KB("VmLck", mm->locked_pages);
	KB("VmPin", 0);
	KB("VmHWM", MAX(mm->rss_peak, rss));
	KB("VmRSS", rss);
	KB("RssAnon", mm->rss_anon);
	KB("RssFile", mm->rss_file);
	KB("RssShmem", 0);
	KB("VmData", s.data);
	KB("VmStk", s.stack);
	KB("VmExe", s.text);
	KB("VmLib", s.lib);
	KB("VmPTE", 0);
	KB("VmSwap", 0);
	KB("HugetlbPages", 0);
#undef KB
	strbuf_printf(sb, "CoreDumping:\t0\nTHP_enabled:\t0\n");
}

static unsigned fd_table_size(struct files *fs)
{
	unsigned size = 64;
	int top = -1;

	for (int fd = files_next(fs, 0); fd >= 0; fd = files_next(fs, fd + 1))
		top = fd;
	while ((int)size <= top)
		size *= 2;
	return size;
}

static void status_ids(struct strbuf *sb, const struct pseudo_node *n)
{
	const struct process *p = n->proc;
	const struct cred *c = p->cred;

	strbuf_printf(sb, "Uid:\t%u\t%u\t%u\t%u\nGid:\t%u\t%u\t%u\t%u\n", c->uid, c->euid,
		      c->suid, c->fsuid, c->gid, c->egid, c->sgid, c->fsgid);
	strbuf_printf(sb, "FDSize:\t%u\nGroups:\t",
		      p->files != NULL ? fd_table_size(p->files) : 0);
	for (unsigned i = 0; i < c->ngroups; i++)
		strbuf_printf(sb, "%u ", c->groups[i]);
	strbuf_printf(sb, "%s\nNStgid:\t%d\nNSpid:\t%d\nNSpgid:\t%d\nNSsid:\t%d\n",
		      c->ngroups == 0 ? " " : "", p->pid, n->tid != 0 ? n->tid : p->pid,
		      p->pgid, p->sid);
}

static void status_signals(struct strbuf *sb, const struct process *p, const struct task *t)
{
	const struct cred *c = p->cred;
	uint64_t ign, cgt;

	signal_sets(p, &ign, &cgt);
	strbuf_printf(sb, "Threads:\t%u\nSigQ:\t%u/%lu\n", t != NULL ? p->nthreads : 1,
		      p->sigqueued, p->rlim[11].cur);
	strbuf_printf(sb, "SigPnd:\t%016lx\nShdPnd:\t%016lx\nSigBlk:\t%016lx\n",
		      t != NULL ? t->pending.set : 0, p->pending.set,
		      t != NULL ? t->sig_mask : 0);
	strbuf_printf(sb, "SigIgn:\t%016lx\nSigCgt:\t%016lx\n", ign, cgt);
	strbuf_printf(sb, "CapInh:\t%016lx\nCapPrm:\t%016lx\nCapEff:\t%016lx\nCapBnd:\t%016lx\n"
		      "CapAmb:\t%016lx\n", c->cap_inh, c->cap_perm, c->cap_eff, c->cap_bset,
		      c->cap_ambient);
	strbuf_printf(sb, "NoNewPrivs:\t%d\nSeccomp:\t0\nSeccomp_filters:\t0\n"
		      "Speculation_Store_Bypass:\tvulnerable\n"
		      "SpeculationIndirectBranch:\talways enabled\n", p->no_new_privs);
}

int proc_status_show(struct strbuf *sb, const struct pseudo_node *n)
{
	const struct process *p = n->proc;
	struct task *t = proc_node_task(n);
	char state = proc_task_state(n);

	if (p->cred == NULL)
		return -ESRCH;
	strbuf_printf(sb, "Name:\t");
	show_escaped(sb, node_comm(n));
	strbuf_printf(sb, "\n");
	if (p->fs != NULL)
		strbuf_printf(sb, "Umask:\t%04o\n", p->fs->umask);
	strbuf_printf(sb, "State:\t%s\nTgid:\t%d\nNgid:\t0\nPid:\t%d\nPPid:\t%d\n"
		      "TracerPid:\t0\n", state_name(state), p->pid,
		      n->tid != 0 ? n->tid : p->pid, p->parent != NULL ? p->parent->pid : 0);
	status_ids(sb, n);
	if (t != NULL && t->mm != NULL && state != 'Z')
		status_memory(sb, t->mm);
	status_signals(sb, p, t);
	strbuf_printf(sb, "Cpus_allowed:\t1\nCpus_allowed_list:\t0\nMems_allowed:\t1\n"
		      "Mems_allowed_list:\t0\n");
	strbuf_printf(sb, "voluntary_ctxt_switches:\t%lu\nnonvoluntary_ctxt_switches:\t%lu\n",
		      t != NULL ? t->nvcsw : p->nvcsw, t != NULL ? t->nivcsw : p->nivcsw);
	return 0;
}

int proc_limits_show(struct strbuf *sb, const struct pseudo_node *n)
{
	static const struct {
		const char *name, *unit;
	} names[KRLIM_NLIMITS] = {
		{ "Max cpu time", "seconds" }, { "Max file size", "bytes" },
		{ "Max data size", "bytes" }, { "Max stack size", "bytes" },
		{ "Max core file size", "bytes" }, { "Max resident set", "bytes" },
		{ "Max processes", "processes" }, { "Max open files", "files" },
		{ "Max locked memory", "bytes" }, { "Max address space", "bytes" },
		{ "Max file locks", "locks" }, { "Max pending signals", "signals" },
		{ "Max msgqueue size", "bytes" }, { "Max nice priority", "" },
		{ "Max realtime priority", "" }, { "Max realtime timeout", "us" },
	};

	strbuf_printf(sb, "%-25s %-20s %-20s %-10s\n", "Limit", "Soft Limit", "Hard Limit",
		      "Units");
	for (unsigned i = 0; i < KRLIM_NLIMITS; i++) {
		uint64_t v[2] = { n->proc->rlim[i].cur, n->proc->rlim[i].max };

		strbuf_printf(sb, "%-25s ", names[i].name);
		for (unsigned k = 0; k < 2; k++) {
			if (v[k] == KRLIM_INFINITY)
				strbuf_printf(sb, "%-20s ", "unlimited");
			else
				strbuf_printf(sb, "%-20lu ", v[k]);
		}
		if (names[i].unit[0] != 0)
			strbuf_printf(sb, "%-10s\n", names[i].unit);
		else
			strbuf_printf(sb, "\n");
	}
	return 0;
}

/* ---- smaps_rollup: the sums of smaps ---- */

#define SUM_MAX	24u

struct sums {
	char name[SUM_MAX][24];
	uint64_t kb[SUM_MAX];
	unsigned n;
};

static void sum_line(struct sums *s, const char *line, size_t len)
{
	const char *colon = memchr(line, ':', len);
	uint64_t v = 0;
	size_t name, k;
	unsigned i;

	if (colon == NULL || len < 4 || memcmp(line + len - 3, " kB", 3) != 0)
		return;
	name = (size_t)(colon - line);
	if (name >= sizeof(s->name[0]))
		return;
	for (k = name + 1; k < len; k++) {
		if (line[k] >= '0' && line[k] <= '9')
			v = v * 10 + (uint64_t)(line[k] - '0');
	}
	for (i = 0; i < s->n; i++) {
		if (strlen(s->name[i]) == name && memcmp(s->name[i], line, name) == 0)
			break;
	}
	if (i == SUM_MAX)
		return;
	if (i == s->n) {
		memcpy(s->name[i], line, name);
		s->name[i][name] = 0;
		s->kb[i] = 0;
		s->n++;
	}
	s->kb[i] += v;
}

int proc_smaps_rollup_show(struct strbuf *sb, const struct pseudo_node *n)
{
	struct task *t = proc_node_task(n);
	struct strbuf all = { 0 };
	struct sums *s;
	struct vma *first;
	char *line, *end;
	char label[32];

	if (t == NULL || t->mm == NULL)
		return -ESRCH;
	s = kzalloc(sizeof(*s));
	if (s == NULL)
		return -ENOMEM;
	mm_maps_show(t->mm, &all, true);
	for (line = all.data; line != NULL && line < all.data + all.len; line = end + 1) {
		end = memchr(line, '\n', (size_t)(all.data + all.len - line));
		if (end == NULL)
			break;
		sum_line(s, line, (size_t)(end - line));
	}
	first = mm_find(t->mm, 0);
	strbuf_printf(sb, "%08lx-%08lx ---p 00000000 00:00 0                          [rollup]\n",
		      first != NULL ? first->start : 0, t->mm->stack_top);
	for (unsigned i = 0; i < s->n; i++) {
		if (strcmp(s->name[i], "Size") == 0 || strstr(s->name[i], "PageSize") != NULL)
			continue;
		ksnprintf(label, sizeof(label), "%s:", s->name[i]);
		strbuf_printf(sb, "%-15s %8lu kB\n", label, s->kb[i]);
	}
	kfree(s);
	strbuf_done(&all);
	return 0;
}
