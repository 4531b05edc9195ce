/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands in for mm/, fs/ and the scheduler under ipc/ and proc/: malloc behind kmalloc (so that
 * AddressSanitizer sees each mistake), user memory is the test's own memory with addresses
 * below one page bad, one flat directory for paths, and sleeping is a call back into the test.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest-kernel/arch/arch.h"
#include "guest-kernel/mm/page.h"
#include "tests/unit/kernel-ipc/env.h"

struct proc_list all_processes = TAILQ_HEAD_INITIALIZER(all_processes);
struct task *current;
bool (*env_sleep)(void);
unsigned env_sleeps;
char env_signals[512];
uint64_t env_signal_ignored, env_signal_blocked;
unsigned env_fail_at;
long env_live, env_files, env_inodes, env_dentries;
uint64_t env_now = 1000000000;
struct mem_stats mem_stats = { .total_pages = 65536, .free_pages = 60000 };
char sys_hostname[65] = "host", sys_domainname[65] = "(none)";

void printk(const char *fmt, ...)
{
}

void panic(const char *fmt, ...)
{
	fprintf(stderr, "panic: %s\n", fmt);
	abort();
}

/* ---- memory ---- */

static bool fails(void)
{
	return env_fail_at != 0 && --env_fail_at == 0;
}

void *kmalloc(size_t n)
{
	if (fails())
		return NULL;
	env_live++;
	return malloc(n);
}

void *kzalloc(size_t n)
{
	void *p = kmalloc(n);

	return p != NULL ? memset(p, 0, n) : NULL;
}

void *kcalloc(size_t n, size_t size)
{
	return kzalloc(n * size);
}

void *krealloc(void *p, size_t n)
{
	if (fails())
		return NULL;
	env_live += p == NULL;
	return realloc(p, n);
}

void *kmemdup(const void *p, size_t n)
{
	void *d = kmalloc(n);

	return d != NULL ? memcpy(d, p, n) : NULL;
}

void kfree(const void *p)
{
	env_live -= p != NULL;
	free((void *)p);
}

struct host_page {
	struct page p;
	void *data;
};

struct page *page_alloc(unsigned order, unsigned flags)
{
	struct host_page *h = kzalloc(sizeof(*h));

	if (h == NULL)
		return NULL;
	h->p.refs = 1;
	h->data = malloc(PAGE_SIZE);
	return &h->p;
}

void page_get(struct page *p)
{
	p->refs++;
}

void page_put(struct page *p)
{
	struct host_page *h = (struct host_page *)p;

	if (--p->refs != 0)
		return;
	free(h->data);
	kfree(h);
}

paddr_t page_to_phys(const struct page *p)
{
	return (paddr_t)((const struct host_page *)p)->data;
}

void *phys_to_virt(paddr_t pa)
{
	return (void *)pa;
}

/* ---- user memory ---- */

static bool bad(const void *p)
{
	return (uintptr_t)p < PAGE_SIZE;
}

int copy_from_user(void *dst, const void __user *src, size_t n)
{
	if (n != 0 && bad(src))
		return -EFAULT;
	memcpy(dst, src, n);
	return 0;
}

int copy_to_user(void __user *dst, const void *src, size_t n)
{
	if (n != 0 && bad(dst))
		return -EFAULT;
	memcpy(dst, src, n);
	return 0;
}

static size_t uio_move(struct uio *u, void *k, size_t n, int how)
{
	size_t done = 0;

	n = MIN(n, u->resid);
	while (done < n) {
		size_t left = u->iov[0].len - u->off, k_n = MIN(left, n - done);
		char *base = (char *)u->iov[0].base + u->off;

		if (left == 0) {
			u->iov++;
			u->off = 0;
			continue;
		}
		if (bad(base))
			break;
		if (how == 0)
			memcpy(base, (char *)k + done, k_n);
		else if (how == 1)
			memcpy((char *)k + done, base, k_n);
		else
			memset(base, 0, k_n);
		u->off += k_n;
		u->resid -= k_n;
		done += k_n;
	}
	return done;
}

size_t uio_put(struct uio *u, const void *src, size_t n)
{
	return uio_move(u, (void *)src, n, 0);
}

size_t uio_get(struct uio *u, void *dst, size_t n)
{
	return uio_move(u, dst, n, 1);
}

size_t uio_zero(struct uio *u, size_t n)
{
	return uio_move(u, NULL, n, 2);
}

void uio_init_user(struct uio *u, struct uiovec *one, void __user *base, size_t len)
{
	*one = (struct uiovec){ base, len };
	*u = (struct uio){ .iov = one, .niov = 1, .resid = len };
}

int uio_import(struct uio *u, const struct uiovec __user *uiov, unsigned long n,
	       struct uiovec **ret_iov)
{
	struct uiovec *iov = n != 0 ? kmemdup(uiov, n * sizeof(*iov)) : NULL;

	*ret_iov = iov;
	memset(u, 0, sizeof(*u));
	if (n != 0 && iov == NULL)
		return -ENOMEM;
	u->iov = iov;
	u->niov = (unsigned)n;
	for (unsigned long i = 0; i < n; i++)
		u->resid += iov[i].len;
	return 0;
}

/* ---- tasks, time, signals ---- */

struct process *env_process(int pid, int pgid, int sid, struct process *parent)
{
	struct process *p = calloc(1, sizeof(*p));
	struct task *t = calloc(1, sizeof(*t));

	p->refs = 1;
	p->pid = pid;
	p->pgid = pgid;
	p->sid = sid;
	p->parent = parent;
	p->dumpable = true;
	p->cred = calloc(1, sizeof(*p->cred));
	p->cred->cap_eff = ~0ULL;
	p->fs = calloc(1, sizeof(*p->fs));
	p->fs->umask = 022;
	p->exit_signal = KSIGCHLD;
	TAILQ_INIT(&p->threads);
	for (unsigned i = 0; i < KRLIM_NLIMITS; i++)
		p->rlim[i] = (struct krlimit){ 1024, KRLIM_INFINITY };
	strcpy(p->comm, "test");
	t->proc = p;
	t->tid = pid;
	strcpy(t->comm, "test");
	TAILQ_INSERT_TAIL(&p->threads, t, thread_link);
	p->leader = t;
	p->nthreads = 1;
	TAILQ_INSERT_TAIL(&all_processes, p, all_link);
	if (current == NULL)
		current = t;
	return p;
}

void env_switch(struct process *p)
{
	current = p->leader;
}

struct process *process_find(int pid)
{
	struct process *p;

	TAILQ_FOREACH(p, &all_processes, all_link) {
		if (p->pid == pid)
			return p;
	}
	return NULL;
}

struct task *task_find(int tid)
{
	struct process *p = process_find(tid);

	return p != NULL ? p->leader : NULL;
}

void process_get(struct process *p)
{
	p->refs++;
}

void process_put(struct process *p)
{
	p->refs--;
}

uint32_t file_flags_shown(const struct file *f)
{
	return f->flags | KO_LARGEFILE;
}

struct cred *cred_get(struct cred *c)
{
	c->refs++;
	return c;
}

void cred_put(struct cred *c)
{
	if (c->refs == 0)
		abort();
	c->refs--;
}

bool capable(int cap)
{
	return (current->proc->cred->cap_eff >> cap & 1) != 0;
}

void sched_wake(struct task *t)
{
	t->state = TASK_RUNNABLE;
}

int sleep_once(uint64_t deadline, bool intr)
{
	struct task *me = current;

	env_sleeps++;
	me->state = TASK_SLEEPING;
	if (env_sleep != NULL && env_sleep()) {
		current = me;
		me->state = TASK_RUNNABLE;
		return 0;
	}
	current = me;
	me->state = TASK_RUNNABLE;
	if (deadline != NO_DEADLINE) {
		env_now = MAX(env_now, deadline);
		return -ETIMEDOUT;
	}
	return -ERESTARTSYS;
}

static void note(int sig, const char *kind, int id)
{
	size_t n = strlen(env_signals);

	snprintf(env_signals + n, sizeof(env_signals) - n, "%d>%s%d ", sig, kind, id);
}

int signal_send_task(struct task *t, int sig, const struct ksiginfo *info)
{
	note(sig, "", t->tid);
	return 0;
}

int signal_send_process(struct process *p, int sig, const struct ksiginfo *info)
{
	note(sig, "", p->pid);
	return 0;
}

int signal_send_pgrp(int pgid, int sig, const struct ksiginfo *info)
{
	note(sig, "g", pgid);
	return 0;
}

int signal_kill_job(int job)
{
	note(KSIGKILL, "j", job);
	return 0;
}

bool signal_is_ignored(struct process *p, int sig)
{
	return (env_signal_ignored & SIG_BIT(sig)) != 0;
}

bool signal_is_blocked(const struct task *t, int sig)
{
	return (env_signal_blocked & SIG_BIT(sig)) != 0;
}

bool signal_pending(const struct task *t)
{
	return false;
}

uint64_t clock_monotonic_ns(void)
{
	return env_now;
}

uint64_t clock_boot_ns(void)
{
	return env_now;
}

uint64_t clock_realtime_ns(void)
{
	return env_now + 1700000000ULL * NSEC_PER_SEC;
}

uint64_t env_generation = 1;
bool env_restore_in_random;

uint64_t clock_generation(void)
{
	return env_generation;
}

int timespec_get_user(const struct ktimespec *uts, uint64_t *ret_ns)
{
	*ret_ns = (uint64_t)uts->sec * NSEC_PER_SEC + (uint64_t)uts->nsec;
	return 0;
}

int timespec_put_user(struct ktimespec *uts, uint64_t ns)
{
	uts->sec = (int64_t)(ns / NSEC_PER_SEC);
	uts->nsec = (int64_t)(ns % NSEC_PER_SEC);
	return 0;
}

void random_bytes(void *buf, size_t n)
{
	memset(buf, (int)(0xa5 + env_generation), n);
	if (env_restore_in_random)
		env_generation++;
	env_restore_in_random = false;
}

void random_mix(const void *buf, size_t n)
{
}

/* ---- inodes, dentries, files ---- */

struct inode *inode_new(struct superblock *sb, uint32_t mode)
{
	struct inode *i = kzalloc(sizeof(*i));

	if (i == NULL)
		return NULL;
	env_inodes++;
	i->refs = 1;
	i->mode = mode;
	i->nlink = 1;
	i->sb = sb;
	i->ino = ++sb->next_ino;
	return i;
}

void inode_get(struct inode *i)
{
	i->refs++;
}

void inode_put(struct inode *i)
{
	if (--i->refs != 0)
		return;
	if (i->ops != NULL && i->ops->free != NULL)
		i->ops->free(i);
	env_inodes--;
	kfree(i);
}

struct dentry *dentry_new(struct dentry *parent, const char *name, size_t len, struct inode *i)
{
	struct dentry *d = kzalloc(sizeof(*d) + len + 1);

	if (d == NULL) {
		inode_put(i);
		return NULL;
	}
	env_dentries++;
	d->refs = 1;
	d->inode = i;
	d->parent = parent != NULL ? parent : d;
	if (parent != NULL)
		dentry_get(parent);
	d->len = (uint16_t)len;
	d->name = d->store;
	memcpy(d->name, name, len);
	return d;
}

struct dentry *dentry_anon(struct inode *i, const char *name)
{
	return dentry_new(NULL, name, strlen(name), i);
}

void dentry_get(struct dentry *d)
{
	d->refs++;
}

void dentry_put(struct dentry *d)
{
	if (--d->refs != 0)
		return;
	if (d->parent != d)
		dentry_put(d->parent);
	inode_put(d->inode);
	env_dentries--;
	kfree(d);
}

char *dentry_path(struct dentry *d, struct dentry *root, char *buf, size_t size)
{
	snprintf(buf, size, "%s%s", d->parent != d ? "/" : "", d->name);
	return buf;
}

struct file *file_new(struct dentry *d, const struct file_ops *ops, uint32_t flags)
{
	struct file *f = kzalloc(sizeof(*f));
	unsigned acc = flags & KO_ACCMODE;

	if (f == NULL) {
		dentry_put(d);
		return NULL;
	}
	env_files++;
	f->refs = 1;
	f->flags = flags;
	f->ops = ops;
	f->dentry = d;
	f->inode = d->inode;
	f->can_read = acc == KO_RDONLY || acc == KO_RDWR;
	f->can_write = acc == KO_WRONLY || acc == KO_RDWR;
	return f;
}

void file_get(struct file *f)
{
	f->refs++;
}

void file_put(struct file *f)
{
	if (--f->refs != 0)
		return;
	if (f->ops != NULL && f->ops->release != NULL)
		f->ops->release(f);
	dentry_put(f->dentry);
	env_files--;
	kfree(f);
}

/* ---- descriptors ---- */

#define NFDS 2048
static struct file *fds[NFDS];
static bool cloexec[NFDS];

struct file *fd_get(int fd)
{
	if (fd < 0 || fd >= NFDS || fds[fd] == NULL)
		return NULL;
	file_get(fds[fd]);
	return fds[fd];
}

struct file *fd_get_path(int fd)
{
	return fd_get(fd);
}

int fd_install(struct file *f, int min, bool ce)
{
	for (int fd = min; fd < NFDS; fd++) {
		if (fds[fd] == NULL) {
			fds[fd] = f;
			cloexec[fd] = ce;
			return fd;
		}
	}
	file_put(f);
	return -EMFILE;
}

int fd_close(int fd)
{
	struct file *f = fd >= 0 && fd < NFDS ? fds[fd] : NULL;

	if (f == NULL)
		return -EBADF;
	fds[fd] = NULL;
	file_put(f);
	return 0;
}

struct file *files_file(struct files *fs, int fd)
{
	return fd_get(fd);
}

int files_next(struct files *fs, int fd)
{
	for (; fd < NFDS; fd++) {
		if (fds[fd] != NULL)
			return fd;
	}
	return -1;
}

bool files_cloexec(struct files *fs, int fd)
{
	return cloexec[fd];
}

void env_close_all(void)
{
	for (int fd = 0; fd < NFDS; fd++)
		fd_close(fd);
}

/* ---- one flat directory ---- */

static struct superblock test_sb = { .type = "test", .dev = 1 };
static struct dentry *names[64];
static struct dentry *root;

static struct dentry *flat_lookup(struct dentry *dir, const char *name, size_t len)
{
	for (unsigned k = 0; k < ARRAY_SIZE(names); k++) {
		if (names[k] != NULL && names[k]->len == len &&
		    memcmp(names[k]->name, name, len) == 0) {
			dentry_get(names[k]);
			return names[k];
		}
	}
	return ERR_PTR(-ENOENT);
}

static struct dentry *flat_create(struct dentry *dir, const char *name, size_t len,
				  uint32_t mode, uint64_t rdev)
{
	struct inode *i = inode_new(&test_sb, mode);

	if (i == NULL)
		return ERR_PTR(-ENOMEM);
	i->rdev = rdev;
	for (unsigned k = 0; k < ARRAY_SIZE(names); k++) {
		if (names[k] == NULL) {
			names[k] = dentry_new(NULL, name, len, i);
			if (names[k] == NULL)
				return ERR_PTR(-ENOMEM);
			dentry_get(names[k]);
			return names[k];
		}
	}
	inode_put(i);
	return ERR_PTR(-ENOSPC);
}

static const struct inode_ops flat_ops = { .lookup = flat_lookup, .create = flat_create };

struct dentry *path_lookup(int dirfd, const char *path, unsigned flags)
{
	const char *name = strrchr(path, '/');

	if (root == NULL) {
		struct inode *i = inode_new(&test_sb, KS_IFDIR | 0777);

		i->ops = &flat_ops;
		root = dentry_new(NULL, "", 0, i);
	}
	name = name != NULL ? name + 1 : path;
	if (*name == 0 || strcmp(name, ".") == 0) {
		dentry_get(root);
		return root;
	}
	return flat_lookup(root, name, strlen(name));
}

int inode_permission(struct inode *i, unsigned mask)
{
	return 0;
}

struct file *file_open_dentry(struct dentry *d, uint32_t flags)
{
	struct file *f;
	int ret;

	dentry_get(d);
	f = file_new(d, NULL, flags);
	if (f == NULL)
		return ERR_PTR(-ENOMEM);
	ret = d->inode->ops->open != NULL ? d->inode->ops->open(d->inode, f) : -ELOOP;
	if (ret != 0) {
		f->ops = NULL;
		file_put(f);
		return ERR_PTR(ret);
	}
	return f;
}

void fsnotify_dir(struct inode *dir, const char *name, size_t len, uint32_t mask,
		  uint32_t cookie)
{
}

struct inode *shmem_inode(uint64_t size)
{
	return inode_new(&test_sb, KS_IFREG);
}

const struct fs_type *const fs_types[] = { NULL };
const char *kernel_cmdline = "quiet";

uint64_t arch_tsc_khz(void)
{
	return 2096035;
}

int channel_open(struct inode *i, struct file *f);
int channel_open(struct inode *i, struct file *f)
{
	return -ENXIO;
}

void arch_serial_write(const char *s, size_t n)
{
}

/* ---- for tests ---- */

int env_open_inode(struct inode *i, uint32_t flags, int (*open)(struct inode *, struct file *))
{
	struct dentry *d;
	struct file *f;
	int ret;

	inode_get(i);
	d = dentry_new(NULL, "x", 1, i);
	f = file_new(d, NULL, flags);
	ret = open(i, f);
	if (ret != 0) {
		f->ops = NULL;
		file_put(f);
		return ret;
	}
	return fd_install(f, 0, false);
}

int env_open_chr(uint64_t rdev, uint32_t flags)
{
	struct inode *i = inode_new(&test_sb, KS_IFCHR | 0666);
	int fd;

	i->rdev = rdev;
	fd = env_open_inode(i, flags, chrdev_open);
	inode_put(i);
	return fd;
}

long env_read(int fd, void *buf, size_t n)
{
	struct file *f = fd_get(fd);
	struct uiovec one;
	struct uio u;
	long ret;

	if (f == NULL)
		return -EBADF;
	uio_init_user(&u, &one, buf, n);
	ret = f->ops->read(f, &u, &f->pos);
	file_put(f);
	return ret;
}

long env_write(int fd, const void *buf, size_t n)
{
	struct file *f = fd_get(fd);
	struct uiovec one;
	struct uio u;
	long ret;

	if (f == NULL)
		return -EBADF;
	uio_init_user(&u, &one, (void *)buf, n);
	ret = f->ops->write(f, &u, &f->pos);
	file_put(f);
	return ret;
}

unsigned env_poll(int fd)
{
	struct file *f = fd_get(fd);
	unsigned ev = f->ops->poll(f, NULL);

	file_put(f);
	return ev;
}

long env_ioctl(int fd, unsigned cmd, unsigned long arg)
{
	struct file *f = fd_get(fd);
	long ret = f->ops->ioctl(f, cmd, arg);

	file_put(f);
	return ret;
}

void env_reset(void)
{
	env_close_all();
	env_sleep = NULL;
	env_sleeps = 0;
	env_signals[0] = 0;
	env_signal_ignored = env_signal_blocked = 0;
	env_fail_at = 0;
	for (unsigned k = 0; k < ARRAY_SIZE(names); k++) {
		if (names[k] != NULL)
			dentry_put(names[k]);
		names[k] = NULL;
	}
	if (root != NULL)
		dentry_put(root);
	root = NULL;
}
