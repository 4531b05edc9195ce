/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /proc/PID and /proc/PID/task/TID: the tables of entries, the short ones' texts, and finding
 * processes by name in /proc itself.
 */
#include <linux/capability.h>

#include "guest-kernel/mm/mm.h"
#include "guest-kernel/mm/page.h"
#include "guest-kernel/proc/proc.h"

#define PEEK_MAX	(1u << 20)	/* command line, environment */

int proc_parse_int(const char *s, long *ret)
{
	bool neg = false;
	long v = 0;

	while (*s == ' ' || *s == '\t' || *s == '\n')
		s++;
	if (*s == '-' || *s == '+')
		neg = *s++ == '-';
	if (*s < '0' || *s > '9')
		return -EINVAL;
	for (; *s >= '0' && *s <= '9'; s++) {
		if (v > 1000000000000L)
			return -EINVAL;
		v = v * 10 + (*s - '0');
	}
	while (*s == ' ' || *s == '\t' || *s == '\n')
		s++;
	*ret = neg ? -v : v;
	return *s == 0 ? 0 : -EINVAL;
}

/* ---- memory of the process as text ---- */

static struct mm *node_mm(const struct pseudo_node *n)
{
	struct task *t = proc_node_task(n);

	return t != NULL ? t->mm : NULL;
}

static void peek_range(struct strbuf *sb, struct mm *mm, uintptr_t start, uintptr_t end)
{
	char *page = kmalloc(PAGE_SIZE);

	if (page == NULL) {
		sb->error = -ENOMEM;
		return;
	}
	end = MIN(end, start + PEEK_MAX);
	while (start < end) {
		size_t want = MIN(end - start, PAGE_SIZE);
		size_t n = mm_peek(mm, start, page, want);

		strbuf_write(sb, page, n);
		if (n < want)
			break;
		start += n;
	}
	kfree(page);
}

/* A program that overwrote its arguments up to their end may go on into the environment; the
 * text then ends at the first zero. */
static int cmdline_show(struct strbuf *sb, const struct pseudo_node *n)
{
	struct mm *mm = node_mm(n);
	const char *zero;

	if (mm == NULL || mm->arg_start >= mm->arg_end)
		return 0;
	peek_range(sb, mm, mm->arg_start, mm->arg_end);
	if (sb->len == 0 || sb->data[sb->len - 1] == 0)
		return 0;
	if (mm->env_start == mm->arg_end)
		peek_range(sb, mm, mm->env_start, mm->env_end);
	if (sb->len != 0) {
		zero = memchr(sb->data, 0, sb->len);
		if (zero != NULL)
			sb->len = (size_t)(zero - sb->data) + 1;
	}
	return 0;
}

static int environ_show(struct strbuf *sb, const struct pseudo_node *n)
{
	struct mm *mm = node_mm(n);

	if (mm != NULL && mm->env_start < mm->env_end)
		peek_range(sb, mm, mm->env_start, mm->env_end);
	return 0;
}

static int auxv_show(struct strbuf *sb, const struct pseudo_node *n)
{
	struct mm *mm = node_mm(n);
	unsigned k = 0;

	if (mm == NULL)
		return 0;
	while (k + 2 < ARRAY_SIZE(mm->auxv) && mm->auxv[k] != 0)
		k += 2;
	strbuf_write(sb, mm->auxv, (k + 2) * sizeof(mm->auxv[0]));
	return 0;
}

static int maps_show(struct strbuf *sb, const struct pseudo_node *n)
{
	struct mm *mm = node_mm(n);

	if (mm != NULL)
		mm_maps_show(mm, sb, false);
	return 0;
}

static int smaps_show(struct strbuf *sb, const struct pseudo_node *n)
{
	struct mm *mm = node_mm(n);

	if (mm != NULL)
		mm_maps_show(mm, sb, true);
	return 0;
}

/* ---- names and numbers ---- */

static int comm_show(struct strbuf *sb, const struct pseudo_node *n)
{
	struct task *t = proc_node_task(n);

	strbuf_printf(sb, "%s\n", t != NULL ? t->comm : n->proc->comm);
	return 0;
}

static long comm_store(const struct pseudo_node *n, char *buf, size_t len)
{
	struct task *t = proc_node_task(n);

	if (t == NULL || current->proc != n->proc)
		return -EINVAL;
	if (len >= sizeof(t->comm))
		buf[sizeof(t->comm) - 1] = 0;
	if (len != 0 && len < sizeof(t->comm) && buf[len - 1] == '\n')
		buf[len - 1] = 0;
	memset(t->comm, 0, sizeof(t->comm));
	strcpy(t->comm, buf);
	if (t == n->proc->leader)
		memcpy(n->proc->comm, t->comm, sizeof(t->comm));
	return (long)len;
}

/* Used pages per thousand of memory, as the OOM killer would weigh them. */
static long badness(const struct process *p, const struct mm *mm)
{
	uint64_t total = MAX(mem_stats.total_pages, 1UL);
	uint64_t used = mm != NULL ? mm->rss_anon + mm->rss_file : 0;

	return (long)(used * 1000 / total) + p->oom_score_adj;
}

static int oom_score_show(struct strbuf *sb, const struct pseudo_node *n)
{
	long b = badness(n->proc, node_mm(n));

	if (n->proc->oom_score_adj == -1000)
		b = -1000;
	strbuf_printf(sb, "%ld\n", (1000 + b) * 2 / 3);
	return 0;
}

static int oom_score_adj_show(struct strbuf *sb, const struct pseudo_node *n)
{
	strbuf_printf(sb, "%d\n", n->proc->oom_score_adj);
	return 0;
}

static int oom_set(struct process *p, long v)
{
	if (v < p->oom_score_adj && !capable(CAP_SYS_RESOURCE))
		return -EACCES;
	p->oom_score_adj = (int)v;
	return 0;
}

static long oom_score_adj_store(const struct pseudo_node *n, char *buf, size_t len)
{
	long v;
	int ret = proc_parse_int(buf, &v);

	if (ret == 0 && (v < -1000 || v > 1000))
		ret = -EINVAL;
	if (ret == 0)
		ret = oom_set(n->proc, v);
	return ret != 0 ? ret : (long)len;
}

static int oom_adj_show(struct strbuf *sb, const struct pseudo_node *n)
{
	int v = n->proc->oom_score_adj;

	strbuf_printf(sb, "%d\n", v == 1000 ? 15 : v * 17 / 1000);
	return 0;
}

static long oom_adj_store(const struct pseudo_node *n, char *buf, size_t len)
{
	long v;
	int ret = proc_parse_int(buf, &v);

	if (ret == 0 && (v < -17 || v > 15))
		ret = -EINVAL;
	if (ret == 0)
		ret = oom_set(n->proc, v == 15 ? 1000 : v * 1000 / 17);
	return ret != 0 ? ret : (long)len;
}

static int io_show(struct strbuf *sb, const struct pseudo_node *n)
{
	strbuf_printf(sb, "rchar: 0\nwchar: 0\nsyscr: 0\nsyscw: 0\nread_bytes: 0\n"
		      "write_bytes: 0\ncancelled_write_bytes: 0\n");
	return 0;
}

static int personality_show(struct strbuf *sb, const struct pseudo_node *n)
{
	strbuf_printf(sb, "%08x\n", n->proc->personality);
	return 0;
}

#define TEXT_SHOW(fn, text) \
	static int fn(struct strbuf *sb, const struct pseudo_node *n) \
	{ \
		strbuf_printf(sb, "%s", text); \
		return 0; \
	}
TEXT_SHOW(cgroup_show, "0::/\n")
TEXT_SHOW(loginuid_show, "4294967295")
TEXT_SHOW(wchan_show, "0")
TEXT_SHOW(idmap_show, "         0          0 4294967295\n")
TEXT_SHOW(setgroups_show, "allow\n")

static int pid_mounts_show(struct strbuf *sb, const struct pseudo_node *n)
{
	mounts_show(sb);
	return 0;
}

static int pid_mountinfo_show(struct strbuf *sb, const struct pseudo_node *n)
{
	mountinfo_show(sb);
	return 0;
}

/* ---- magic links ---- */

static struct dentry *target_ref(struct dentry *d)
{
	if (d == NULL)
		return ERR_PTR(-ENOENT);
	dentry_get(d);
	return d;
}

static struct dentry *cwd_target(const struct pseudo_node *n)
{
	return target_ref(n->proc->fs != NULL ? n->proc->fs->cwd : NULL);
}

static struct dentry *root_target(const struct pseudo_node *n)
{
	return target_ref(n->proc->fs != NULL ? n->proc->fs->root : NULL);
}

static struct dentry *exe_target(const struct pseudo_node *n)
{
	struct mm *mm = node_mm(n);

	return target_ref(mm != NULL && mm->exe != NULL ? mm->exe->dentry : NULL);
}

/* Text of a magic link: the path of what it leads to. */
static int target_text(const struct pseudo_node *n, char *buf, size_t size)
{
	struct dentry *d = n->e->follow(n);
	char *page, *path;
	int ret = -ENOMEM;

	if (IS_ERR(d))
		return PTR_ERR(d);
	page = kmalloc(PATH_MAX_LEN);
	if (page != NULL) {
		path = dentry_path(d, current->proc->fs->root, page, PATH_MAX_LEN);
		ret = IS_ERR(path) ? PTR_ERR(path) : (int)MIN(strlen(path), size);
		if (ret > 0)
			memcpy(buf, path, (size_t)ret);
	}
	kfree(page);
	dentry_put(d);
	return ret;
}

/* ---- threads ---- */

static int parse_id(const char *name, size_t len)
{
	int n = 0;

	if (len == 0 || len > 7 || name[0] == '0')
		return -1;
	for (size_t k = 0; k < len; k++) {
		if (name[k] < '0' || name[k] > '9')
			return -1;
		n = n * 10 + (name[k] - '0');
	}
	return n;
}

static const struct pseudo_entry task_dir;

static struct dentry *task_lookup(struct dentry *dir, const char *name, size_t len)
{
	struct pseudo_node child = *pseudo_node_of(dir->inode);

	child.e = &task_dir;
	child.tid = parse_id(name, len);
	if (child.tid <= 0 || proc_node_task(&child) == NULL)
		return ERR_PTR(-ENOENT);
	return pseudo_make(dir, name, len, &child);
}

static int emit_id(struct readdir_ctx *ctx, const struct pseudo_node *n, int id)
{
	char name[12];
	int len = ksnprintf(name, sizeof(name), "%d", id);

	if (!ctx->emit(ctx, name, (size_t)len, pseudo_ino(n), KS_IFDIR | 0555,
		       PSEUDO_DYNAMIC + (uint64_t)id + 1))
		return 0;
	ctx->pos = PSEUDO_DYNAMIC + (uint64_t)id + 1;
	return 1;
}

static int task_readdir(struct file *f, struct readdir_ctx *ctx)
{
	struct pseudo_node child = *pseudo_node_of(f->inode);
	struct task *t;
	int best;

	child.e = &task_dir;
	do {
		best = 0;
		TAILQ_FOREACH(t, &child.proc->threads, thread_link) {
			if ((uint64_t)t->tid + PSEUDO_DYNAMIC >= ctx->pos &&
			    (best == 0 || t->tid < best))
				best = t->tid;
		}
		child.tid = best;
	} while (best != 0 && emit_id(ctx, &child, best));
	return 0;
}

/* ---- the tables ---- */

#define FILE_(n, m, fn)	{ .name = (n), .mode = KS_IFREG | (m), .show = (fn), .owned = true }
#define PRIV_(n, m, fn)	{ .name = (n), .mode = KS_IFREG | (m), .show = (fn), .owned = true, \
			  .allow = proc_allow_ptrace }
#define RW_(n, m, fn, st) { .name = (n), .mode = KS_IFREG | (m), .show = (fn), \
			    .store = (st), .owned = true }
#define LINK_(n, fn)	{ .name = (n), .mode = KS_IFLNK | 0777, .readlink = target_text, \
			  .follow = (fn), .owned = true, .allow = proc_allow_ptrace }

#define COMMON_ENTRIES \
	{ .name = "fd", .mode = KS_IFDIR | 0500, .lookup = proc_fd_lookup, \
	  .readdir = proc_fd_readdir, .allow = proc_allow_ptrace, .owned = true }, \
	{ .name = "fdinfo", .mode = KS_IFDIR | 0555, .lookup = proc_fd_lookup, \
	  .readdir = proc_fd_readdir, .allow = proc_allow_ptrace, .owned = true }, \
	PRIV_("environ", 0400, environ_show), \
	PRIV_("auxv", 0400, auxv_show), \
	FILE_("status", 0444, proc_status_show), \
	PRIV_("personality", 0400, personality_show), \
	FILE_("limits", 0644, proc_limits_show), \
	RW_("comm", 0644, comm_show, comm_store), \
	FILE_("cmdline", 0444, cmdline_show), \
	FILE_("stat", 0444, proc_stat_show), \
	FILE_("statm", 0444, proc_statm_show), \
	PRIV_("maps", 0444, maps_show), \
	LINK_("cwd", cwd_target), \
	LINK_("root", root_target), \
	LINK_("exe", exe_target), \
	FILE_("mounts", 0444, pid_mounts_show), \
	FILE_("mountinfo", 0444, pid_mountinfo_show), \
	PRIV_("smaps", 0444, smaps_show), \
	PRIV_("smaps_rollup", 0444, proc_smaps_rollup_show), \
	FILE_("wchan", 0444, wchan_show), \
	FILE_("cgroup", 0444, cgroup_show), \
	FILE_("oom_score", 0444, oom_score_show), \
	RW_("oom_adj", 0644, oom_adj_show, oom_adj_store), \
	RW_("oom_score_adj", 0644, oom_score_adj_show, oom_score_adj_store), \
	FILE_("loginuid", 0644, loginuid_show), \
	FILE_("sessionid", 0444, loginuid_show), \
	PRIV_("io", 0400, io_show), \
	FILE_("uid_map", 0644, idmap_show), \
	FILE_("gid_map", 0644, idmap_show), \
	FILE_("setgroups", 0644, setgroups_show)

static const struct pseudo_entry task_entries[] = {
	COMMON_ENTRIES,
	{ .name = NULL },
};

static const struct pseudo_entry pid_entries[] = {
	{ .name = "task", .mode = KS_IFDIR | 0555, .lookup = task_lookup,
	  .readdir = task_readdir, .owned = true },
	COMMON_ENTRIES,
	{ .name = NULL },
};

static const struct pseudo_entry task_dir = {
	.name = "", .mode = KS_IFDIR | 0555, .children = task_entries, .owned = true,
};
const struct pseudo_entry proc_pid_dir = {
	.name = "", .mode = KS_IFDIR | 0555, .children = pid_entries, .owned = true,
};

/* ---- processes in /proc ---- */

/* A thread's number works too, though it is not listed. */
struct dentry *proc_root_lookup(struct dentry *dir, const char *name, size_t len)
{
	struct pseudo_node n = { .e = &proc_pid_dir };
	int id = parse_id(name, len);
	struct task *t;

	if (id <= 0)
		return ERR_PTR(-ENOENT);
	n.proc = process_find(id);
	if (n.proc == NULL) {
		t = task_find(id);
		if (t == NULL || t->proc == NULL)
			return ERR_PTR(-ENOENT);
		n.proc = t->proc;
		n.tid = id;
	}
	return pseudo_make(dir, name, len, &n);
}

struct process *proc_file_process(const struct file *f)
{
	const struct pseudo_node *n;

	if (f->inode->sb == NULL || strcmp(f->inode->sb->type, "proc") != 0)
		return NULL;
	n = pseudo_node_of(f->inode);
	if (n->e != &proc_pid_dir || n->tid != 0)
		return NULL;
	process_get(n->proc);
	return n->proc;
}

int proc_root_readdir(struct file *f, struct readdir_ctx *ctx)
{
	struct pseudo_node n = { .e = &proc_pid_dir };
	struct process *p, *best;

	do {
		best = NULL;
		TAILQ_FOREACH(p, &all_processes, all_link) {
			if (p->pid > 0 && (uint64_t)p->pid + PSEUDO_DYNAMIC >= ctx->pos &&
			    (best == NULL || p->pid < best->pid))
				best = p;
		}
		n.proc = best;
	} while (best != NULL && emit_id(ctx, &n, best->pid));
	return 0;
}
