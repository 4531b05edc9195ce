/* SPDX-License-Identifier: Apache-2.0 */
/*
 * procfs and sysfs: texts compared by structure with those of the Linux that runs the test
 * (numbers and unknown words are made equal first), lookup, listing, writing, permissions and
 * what happens when the process goes away.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <CUnit/Basic.h>
#include <CUnit/CUnit.h>

#include "guest-kernel/mm/mm.h"
#include "guest-kernel/proc/proc.h"
#include "tests/unit/kernel-ipc/env.h"
#include "tests/unit/kernel-ipc/suites.h"

/* ---- what proc/ asks of others ---- */

static struct vma vmas[3];
static struct mm the_mm;

struct vma *mm_find(struct mm *mm, uintptr_t addr)
{
	for (unsigned k = 0; k < ARRAY_SIZE(vmas); k++) {
		if (vmas[k].end > addr)
			return &vmas[k];
	}
	return NULL;
}

void mm_maps_show(struct mm *mm, struct strbuf *sb, bool smaps)
{
	for (unsigned k = 0; k < 2; k++) {
		strbuf_printf(sb, "00400000-00401000 r--p 00000000 00:01 5    /bin/x\n");
		if (smaps)
			strbuf_printf(sb, "Size:                  4 kB\nRss:                   "
				      "4 kB\nPss:                   2 kB\nVmFlags: rd mr\n");
	}
}

static const char memory[] = "prog\0arg one\0\0A=1\0B=2";

size_t mm_peek(struct mm *mm, uintptr_t addr, void *buf, size_t len)
{
	memcpy(buf, memory + addr - 0x1000, len);
	return len;
}

void meminfo_show(struct strbuf *sb)
{
	strbuf_printf(sb, "MemTotal:       1 kB\nMemFree:        1 kB\nMemAvailable:   1 kB\n");
}

void task_times(const struct task *t, uint64_t *u, uint64_t *s)
{
	*u = 120000000;
	*s = 30000000;
}

void process_times(const struct process *p, uint64_t *u, uint64_t *s)
{
	task_times(NULL, u, s);
}

void task_report(struct strbuf *sb)
{
}

void cpu_report(struct strbuf *sb)
{
}

uint64_t sched_idle_ns(void)
{
	return 5000000000;
}

uint64_t sched_switches(void)
{
	return 7;
}

unsigned sched_nr_runnable(void)
{
	return 1;
}

void sched_loadavg(uint64_t ret[3])
{
	ret[0] = 0x18000;
	ret[1] = ret[2] = 0;
}

void mounts_show(struct strbuf *sb)
{
}
void mountinfo_show(struct strbuf *sb)
{
}
void filesystems_show(struct strbuf *sb)
{
}
void locks_show(struct strbuf *sb)
{
}
void syscall_report(struct strbuf *sb);
void syscall_report(struct strbuf *sb)
{
	strbuf_printf(sb, "system calls 1\n");
}

/* ---- a mounted tree ---- */

static struct superblock sb;

static struct dentry *walk(const char *path)
{
	struct dentry *d = sb.root, *next;

	dentry_get(d);
	while (*path != 0) {
		size_t n = strcspn(path, "/");

		next = d->inode->ops->lookup != NULL ? d->inode->ops->lookup(d, path, n)
						     : ERR_PTR(-ENOTDIR);
		dentry_put(d);
		if (IS_ERR(next))
			return next;
		d = next;
		path += n + (path[n] == '/');
	}
	return d;
}

static struct file *open_at(const char *path, uint32_t flags)
{
	struct dentry *d = walk(path);
	struct file *f;

	if (IS_ERR(d))
		return (struct file *)d;
	f = file_open_dentry(d, flags);
	dentry_put(d);
	return f;
}

static char text[65536];

static long slurp(const char *path)
{
	struct file *f = open_at(path, KO_RDONLY);
	long total = 0, n;

	text[0] = 0;
	if (IS_ERR(f))
		return PTR_ERR(f);
	do {
		struct uiovec one;
		struct uio u;

		uio_init_user(&u, &one, text + total, 100);	/* in small pieces */
		n = f->ops->read(f, &u, &f->pos);
		total += n > 0 ? n : 0;
	} while (n > 0);
	text[total] = 0;
	file_put(f);
	return n < 0 ? n : total;
}

static long put(const char *path, const char *s)
{
	struct file *f = open_at(path, KO_WRONLY);
	struct uiovec one;
	struct uio u;
	long n;

	if (IS_ERR(f))
		return PTR_ERR(f);
	uio_init_user(&u, &one, (void *)s, strlen(s));
	n = f->ops->write(f, &u, &f->pos);
	file_put(f);
	return n;
}

static char listing[65536];

static bool list_emit(struct readdir_ctx *ctx, const char *name, size_t len, uint64_t ino,
		      uint32_t mode, uint64_t next)
{
	static int credit;

	/* Stops now and then, as a full buffer does. */
	if (++credit % 3 == 0)
		return false;
	ctx->pos = next;
	strcat(listing, " ");
	strncat(listing, name, len);
	return true;
}

static long list(const char *path)
{
	struct file *f = open_at(path, KO_RDONLY);
	struct readdir_ctx ctx = { .emit = list_emit };
	int quiet = 0, ret = 0;
	size_t before;

	listing[0] = 0;
	if (IS_ERR(f))
		return PTR_ERR(f);
	while (quiet < 4 && ret == 0) {
		before = strlen(listing);
		ret = f->ops->readdir(f, &ctx);
		quiet = strlen(listing) == before ? quiet + 1 : 0;
	}
	strcat(listing, " ");
	file_put(f);
	return ret;
}

static void tree_up(const struct fs_type *type)
{
	struct process *p = process_find(1);

	env_reset();
	memset(&sb, 0, sizeof(sb));
	CU_ASSERT_EQUAL_FATAL(type->mount(&sb, NULL), 0);
	memset(&the_mm, 0, sizeof(the_mm));
	the_mm.arg_start = 0x1000;
	the_mm.arg_end = 0x1000 + 14;
	the_mm.env_start = 0x1000 + 14;
	the_mm.env_end = 0x1000 + sizeof(memory);
	the_mm.total_pages = 100;
	the_mm.rss_anon = 10;
	vmas[0] = (struct vma){ .start = 0x400000, .end = 0x402000, .prot = 5 };
	vmas[1] = (struct vma){ .start = 0x500000, .end = 0x503000, .prot = 3 };
	vmas[2] = (struct vma){ .start = 0x600000, .end = 0x601000, .prot = 3,
				.name = "[stack]" };
	p->leader->mm = &the_mm;
	p->files = (struct files *)p;	/* env's one table */
}

static void tree_down(void)
{
	process_find(1)->leader->mm = NULL;
	process_find(1)->cred->cap_eff = ~0ULL;
	process_find(1)->files = NULL;
	env_close_all();
	dentry_put(sb.root);
	CU_ASSERT_EQUAL(env_live, 0);
	CU_ASSERT_EQUAL(process_find(1)->refs, 1);
}

/* ---- comparison with Linux ---- */

static char host[65536];

static void host_read(const char *path)
{
	FILE *f = fopen(path, "r");
	size_t n = 0;

	if (f != NULL) {
		n = fread(host, 1, sizeof(host) - 1, f);
		fclose(f);
	}
	host[n] = 0;
}

/* Every line "Key:..." of ours exists in Linux's file, in the same order, and its value has
 * the same shape: digits N, blanks between fields one each. */
static void shape(const char *line, size_t n, char *out_s)
{
	size_t k = 0, o = 0;

	while (k < n && o < 120) {
		char c = line[k];

		if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f' && k > 0 &&
					       out_s[o > 0 ? o - 1 : 0] == 'N')) {
			if (o == 0 || out_s[o - 1] != 'N')
				out_s[o++] = 'N';
		} else if (c == ' ' || c == '\t') {
			if (o == 0 || out_s[o - 1] != ' ')
				out_s[o++] = ' ';
		} else {
			out_s[o++] = c;
		}
		k++;
	}
	out_s[o] = 0;
}

static void compare_lines(const char *free_form)
{
	const char *h = host, *line = text, *end, *colon;
	char key[64], a[128], b[128];

	for (; *line != 0; line = end + 1) {
		end = strchr(line, '\n');
		CU_ASSERT_PTR_NOT_NULL_FATAL(end);
		colon = memchr(line, ':', (size_t)(end - line));
		if (colon == NULL || colon - line > 50)
			continue;
		snprintf(key, sizeof(key), "\n%.*s:", (int)(colon - line), line);
		if (h == host && strncmp(h, key + 1, strlen(key) - 1) == 0) {
			h = host;
		} else {
			const char *found = strstr(h, key);

			if (found == NULL) {
				printf("\nnot in Linux's file, or elsewhere:%s\n", key);
				CU_FAIL("key");
				continue;
			}
			h = found + 1;
		}
		if (strstr(free_form, key + 1) != NULL)
			continue;
		shape(line, (size_t)(end - line), a);
		shape(h, strcspn(h, "\n"), b);
		if (strcmp(a, b) != 0) {
			printf("\nours \"%s\" Linux \"%s\"\n", a, b);
			CU_FAIL("shape");
		}
	}
}

static unsigned fields(const char *s)
{
	unsigned n = 0;

	for (; *s != 0; s++)
		n += *s == ' ';
	return n + 1;
}

static void test_formats(void)
{
	tree_up(&proc_type);
	host_read("/proc/self/stat");
	CU_ASSERT(slurp("1/stat") > 0);
	CU_ASSERT_EQUAL(fields(text), fields(host));
	CU_ASSERT_EQUAL(strncmp(text, "1 (test) R 0 1 1 0 -1 4194304 0 0 0 0 12 3 0 0 20 0 1 0 ",
				56), 0);
	host_read("/proc/self/statm");
	slurp("1/statm");
	CU_ASSERT_EQUAL(fields(text), fields(host));
	host_read("/proc/self/status");
	process_find(1)->cred->cap_eff = 0x1ffffffffffULL;
	slurp("1/status");
	compare_lines("State: Groups: Cpus_allowed: Cpus_allowed_list: Mems_allowed: SigQ: "
		      "Name: Speculation_Store_Bypass: SpeculationIndirectBranch: ");
	host_read("/proc/self/io");
	slurp("1/io");
	compare_lines("");
	host_read("/proc/self/limits");
	slurp("1/limits");
	CU_ASSERT_EQUAL(strncmp(text, host, strcspn(host, "\n")), 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "Max open files            1024                 "
				      "unlimited            files     \n"));
	host_read("/proc/uptime");
	slurp("uptime");
	CU_ASSERT_EQUAL(fields(text), fields(host));
	host_read("/proc/loadavg");
	slurp("loadavg");
	CU_ASSERT_EQUAL(fields(text), fields(host));
	CU_ASSERT_EQUAL(strncmp(text, "1.50 0.00 0.00 1/", 17), 0);
	host_read("/proc/swaps");
	slurp("swaps");
	CU_ASSERT_EQUAL(strncmp(text, host, strlen(text)), 0);
	host_read("/proc/sys/kernel/random/uuid");
	slurp("sys/kernel/random/uuid");
	CU_ASSERT_EQUAL(strlen(text), strlen(host));
	tree_down();
}

/* One number for a VM's life, another one in each restored VM. */
static void test_boot_id(void)
{
	static char first[64];

	tree_up(&proc_type);
	CU_ASSERT_EQUAL(slurp("sys/kernel/random/boot_id"), 37);
	strcpy(first, text);
	slurp("sys/kernel/random/boot_id");
	CU_ASSERT_STRING_EQUAL(text, first);
	env_generation = 2;
	slurp("sys/kernel/random/boot_id");
	CU_ASSERT_STRING_NOT_EQUAL(text, first);
	/* Stopped while it was made: it is the one of the VM that goes on. */
	env_generation = 3;
	env_restore_in_random = true;
	slurp("sys/kernel/random/boot_id");
	CU_ASSERT_EQUAL(strncmp(text, "a9a9a9a9-a9a9-4", 15), 0);
	env_generation = 1;
	tree_down();
}

static void test_cpuinfo(void)
{
	tree_up(&proc_type);
	host_read("/proc/cpuinfo");
	CU_ASSERT(slurp("cpuinfo") > 0);
	/* Keys are padded with tabs: compare them up to the colon, in Linux's order. */
	for (const char *line = text, *h = host; *line != '\n' && *line != 0;
	     line = strchr(line, '\n') + 1) {
		char key[32];
		size_t n = strcspn(line, ":");
		const char *found;

		memcpy(key, line, n);
		key[n] = 0;
		found = strstr(h, key);
		if (found == NULL) {
			printf("\nnot in Linux's file, or elsewhere: %s\n", key);
			CU_FAIL("key");
		} else {
			h = found;
		}
	}
	tree_down();
}

static void test_memory_texts(void)
{
	tree_up(&proc_type);
	CU_ASSERT_EQUAL(slurp("self"), -ELOOP);
	CU_ASSERT_EQUAL(slurp("1/cmdline"), 14);
	CU_ASSERT_EQUAL(memcmp(text, "prog\0arg one\0", 14), 0);
	CU_ASSERT_EQUAL(slurp("1/environ"), (long)sizeof(memory) - 14);
	the_mm.arg_end = 0x1000 + 3;	/* overwritten: no zero at the end */
	the_mm.env_start = 0x1000 + 3;
	CU_ASSERT_EQUAL(slurp("1/cmdline"), 5);
	slurp("1/smaps_rollup");
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "Rss:                   8 kB\n"));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "Pss:                   4 kB\n"));
	CU_ASSERT_PTR_NULL(strstr(text, "Size:"));
	tree_down();
}

static void test_names(void)
{
	struct process *p = process_find(1);

	tree_up(&proc_type);
	strcpy(p->leader->comm, "a) R\n\\b");
	slurp("1/status");
	CU_ASSERT_EQUAL(strncmp(text, "Name:\ta) R\\n\\\\b\n", 16), 0);
	slurp("1/stat");
	CU_ASSERT_EQUAL(strncmp(text, "1 (a) R\n\\b) R ", 14), 0);
	CU_ASSERT_EQUAL(put("1/comm", "a name that is too long\n"), 24);
	CU_ASSERT_STRING_EQUAL(p->leader->comm, "a name that is ");
	put("1/comm", "test\n");
	CU_ASSERT_STRING_EQUAL(p->comm, "test");
	CU_ASSERT_EQUAL(put("sys/kernel/hostname", "box\nrest"), 8);
	slurp("sys/kernel/hostname");
	CU_ASSERT_STRING_EQUAL(text, "box\n");
	CU_ASSERT_EQUAL(put("1/oom_score_adj", "1001"), -EINVAL);
	CU_ASSERT_EQUAL(put("1/oom_score_adj", "x"), -EINVAL);
	CU_ASSERT_EQUAL(put("1/oom_score_adj", "500\n"), 4);
	slurp("1/oom_score_adj");
	CU_ASSERT_STRING_EQUAL(text, "500\n");
	env_signals[0] = '\0';
	CU_ASSERT_EQUAL(put("casemate/kill", "0"), -EINVAL);
	CU_ASSERT_EQUAL(put("casemate/kill", "all"), -EINVAL);
	CU_ASSERT_EQUAL(put("casemate/kill", "17"), 2);
	CU_ASSERT_STRING_EQUAL(env_signals, "9>j17 ");
	p->cred->cap_eff = 0;
	CU_ASSERT_EQUAL(put("casemate/kill", "17"), -EPERM);
	CU_ASSERT_EQUAL(put("1/oom_score_adj", "400\n"), -EACCES);
	CU_ASSERT_EQUAL(put("sys/kernel/hostname", "no"), -EPERM);
	p->cred->cap_eff = ~0ULL;
	put("1/oom_score_adj", "0");
	CU_ASSERT_EQUAL(put("version", "x"), -EIO);
	tree_down();
}

static void test_lists(void)
{
	struct process *p = process_find(1);
	struct dentry *d;
	char buf[64];

	tree_up(&proc_type);
	CU_ASSERT_EQUAL(list(""), 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(listing, " . .. self "));
	CU_ASSERT_PTR_NOT_NULL(strstr(listing, " 1 "));
	CU_ASSERT_EQUAL(list("1/task"), 0);
	CU_ASSERT_STRING_EQUAL(listing, " . .. 1 ");
	env_open_chr(KMKDEV(1, 3), KO_RDONLY);
	env_open_chr(KMKDEV(1, 5), KO_WRONLY);
	/* The listing itself is no descriptor here. */
	CU_ASSERT_EQUAL(list("1/fd"), 0);
	CU_ASSERT_STRING_EQUAL(listing, " . .. 0 1 ");
	d = walk("1/fd/0");
	CU_ASSERT_EQUAL(d->inode->mode, KS_IFLNK | 0500);
	CU_ASSERT_EQUAL(d->inode->ops->readlink(d, buf, sizeof(buf)), 1);
	fd_close(0);
	CU_ASSERT_EQUAL(d->inode->ops->readlink(d, buf, sizeof(buf)), -ENOENT);
	dentry_put(d);
	CU_ASSERT(slurp("1/fdinfo/1") > 0);
	CU_ASSERT_EQUAL(strncmp(text, "pos:\t0\nflags:\t0100001\nmnt_id:\t", 30), 0);
	CU_ASSERT_EQUAL(PTR_ERR(walk("1/fd/0")), -ENOENT);
	CU_ASSERT_EQUAL(PTR_ERR(walk("1/fd/01")), -ENOENT);
	CU_ASSERT_EQUAL(PTR_ERR(walk("01")), -ENOENT);
	CU_ASSERT_EQUAL(PTR_ERR(walk("99999999999")), -ENOENT);
	CU_ASSERT_EQUAL(PTR_ERR(walk("1/ns")), -ENOENT);
	d = walk("self");
	CU_ASSERT_EQUAL(d->inode->ops->readlink(d, buf, sizeof(buf)), 1);
	CU_ASSERT_PTR_NULL(d->inode->ops->follow);
	dentry_put(d);
	(void)p;
	tree_down();
}

static void test_death(void)
{
	struct process *p = env_process(77, 77, 1, process_find(1));
	struct dentry *dir, *gone;
	struct file *f;
	struct uiovec one;
	struct uio u;
	char buf[16];

	tree_up(&proc_type);
	dir = walk("77");
	f = open_at("77/stat", KO_RDONLY);
	TAILQ_REMOVE(&all_processes, p, all_link);
	uio_init_user(&u, &one, buf, sizeof(buf));
	CU_ASSERT_EQUAL(f->ops->read(f, &u, &f->pos), -ESRCH);
	gone = dir->inode->ops->lookup(dir, "stat", 4);
	CU_ASSERT_EQUAL(PTR_ERR(gone), -ENOENT);
	CU_ASSERT_EQUAL(PTR_ERR(walk("77")), -ENOENT);
	file_put(f);
	dentry_put(dir);
	CU_ASSERT_EQUAL(p->refs, 1);
	/* A zombie has identity and times, no memory. */
	TAILQ_INSERT_TAIL(&all_processes, p, all_link);
	TAILQ_REMOVE(&p->threads, p->leader, thread_link);
	free(p->leader);
	p->leader = NULL;
	p->nthreads = 0;
	p->zombie = true;
	free(p->fs);
	p->fs = NULL;
	CU_ASSERT(slurp("77/stat") > 0);
	CU_ASSERT_EQUAL(strncmp(text, "77 (test) Z 1 ", 14), 0);
	CU_ASSERT(slurp("77/status") > 0);
	CU_ASSERT_PTR_NULL(strstr(text, "VmSize"));
	CU_ASSERT_EQUAL(slurp("77/cmdline"), 0);
	CU_ASSERT_EQUAL(slurp("77/maps"), 0);
	CU_ASSERT_EQUAL(list("77/fd"), 0);
	CU_ASSERT_EQUAL(list("77/task"), 0);
	TAILQ_REMOVE(&all_processes, p, all_link);
	free(p->cred);
	free(p);
	tree_down();
}

static void test_permission(void)
{
	struct process *me = process_find(1), *p = env_process(88, 88, 1, me);
	struct dentry *d;

	tree_up(&proc_type);
	p->cred->uid = p->cred->euid = p->cred->suid = 1000;
	d = walk("88/fd");
	CU_ASSERT_EQUAL(d->inode->uid, 1000);
	dentry_put(d);
	p->dumpable = false;
	d = walk("88/fd");
	CU_ASSERT_EQUAL(d->inode->uid, 0);
	dentry_put(d);
	me->cred->cap_eff = 0;
	CU_ASSERT_EQUAL(slurp("88/environ"), -EACCES);
	CU_ASSERT_EQUAL(slurp("88/maps"), -EACCES);
	CU_ASSERT_EQUAL(list("88/fd"), -EACCES);
	CU_ASSERT(slurp("88/stat") > 0);
	me->cred->cap_eff = ~0ULL;
	TAILQ_REMOVE(&all_processes, p, all_link);
	free(p->leader);
	free(p->fs);
	free(p->cred);
	free(p);
	tree_down();
}

/* Every file of both trees can be read, and every directory listed, without memory too. */
static void visit(const char *path, unsigned *count)
{
	char child[256], *name, *save, *copy;

	if (list(path) != 0)
		return;
	copy = strdup(listing);
	for (name = strtok_r(copy, " ", &save); name != NULL; name = strtok_r(NULL, " ", &save)) {
		struct dentry *d;

		if (name[0] == '.')
			continue;
		snprintf(child, sizeof(child), "%s%s%s", path, *path != 0 ? "/" : "", name);
		d = walk(child);
		CU_ASSERT_FALSE_FATAL(IS_ERR(d));
		if (KS_ISDIR(d->inode->mode)) {
			dentry_put(d);
			visit(child, count);
			continue;
		}
		if (KS_ISREG(d->inode->mode)) {
			/* Processes without memory have no sums, as on Linux; casemate/kill is
			 * only written. */
			if (slurp(child) < 0 && strstr(child, "smaps_rollup") == NULL &&
			    (d->inode->mode & 0444) != 0) {
				printf("\n%s cannot be read\n", child);
				CU_FAIL("read");
			}
			for (unsigned k = 1; k < 8; k++) {
				env_fail_at = k;
				slurp(child);
				env_fail_at = 0;
			}
		}
		dentry_put(d);
		(*count)++;
	}
	free(copy);
}

static void test_all(void)
{
	unsigned n = 0;

	tree_up(&proc_type);
	visit("", &n);
	CU_ASSERT(n > 100);
	tree_down();
	n = 0;
	tree_up(&sysfs_type);
	visit("", &n);
	CU_ASSERT(n > 20);
	slurp("devices/system/cpu/online");
	CU_ASSERT_STRING_EQUAL(text, "0\n");
	CU_ASSERT_EQUAL(PTR_ERR(walk("class")), -ENOENT);
	CU_ASSERT_EQUAL(list("fs/cgroup"), 0);
	CU_ASSERT_STRING_EQUAL(listing, " . .. ");
	tree_down();
}

void suite_proc(void)
{
	CU_pSuite s = CU_add_suite("proc", NULL, NULL);

	CU_add_test(s, "formats", test_formats);
	CU_add_test(s, "boot_id", test_boot_id);
	CU_add_test(s, "cpuinfo", test_cpuinfo);
	CU_add_test(s, "memory", test_memory_texts);
	CU_add_test(s, "names", test_names);
	CU_add_test(s, "lists", test_lists);
	CU_add_test(s, "death", test_death);
	CU_add_test(s, "permission", test_permission);
	CU_add_test(s, "all files", test_all);
}
