/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "world.h"	/* after libc's: kernel.h makes what follows hidden */

struct cm_clock world_clock;
bool world_capable;
long world_fail_alloc, world_live_allocs;
unsigned world_wakes;
int world_exit_status;
jmp_buf world_exit;
int (*world_sleep)(uint64_t deadline, bool interruptible);
void (*world_schedule)(void);

struct task *current;
struct proc_list all_processes;
struct mem_stats mem_stats;

/* ---- memory ---- */

static bool fail_now(void)
{
	return world_fail_alloc > 0 && --world_fail_alloc == 0;
}

void *kmalloc(size_t size)
{
	if (fail_now())
		return NULL;
	world_live_allocs++;
	return malloc(size);
}

void *kzalloc(size_t size)
{
	void *p = kmalloc(size);

	if (p != NULL)
		memset(p, 0, size);
	return p;
}

void *krealloc(void *p, size_t size)
{
	if (p == NULL)
		return kmalloc(size);
	return realloc(p, size);
}

void kfree(const void *p)
{
	if (p == NULL)
		return;
	world_live_allocs--;
	free((void *)(uintptr_t)p);
}

static bool bad(const void *p)
{
	return (uintptr_t)p < 4096;
}

int copy_from_user(void *dst, const void *src, size_t n)
{
	if (n != 0 && bad(src))
		return -EFAULT;
	memcpy(dst, src, n);
	return 0;
}

int copy_to_user(void *dst, const void *src, size_t n)
{
	if (n != 0 && bad(dst))
		return -EFAULT;
	memcpy(dst, src, n);
	return 0;
}

size_t uio_put(struct uio *u, const void *src, size_t n)
{
	n = MIN(n, u->resid);
	if (copy_to_user((void *)((uintptr_t)u->iov->base + u->off), src, n) != 0)
		return 0;
	u->off += n;
	u->resid -= n;
	return n;
}

size_t uio_get(struct uio *u, void *dst, size_t n)
{
	n = MIN(n, u->resid);
	if (copy_from_user(dst, (void *)((uintptr_t)u->iov->base + u->off), n) != 0)
		return 0;
	u->off += n;
	u->resid -= n;
	return n;
}

/* ---- tasks ---- */

static struct process *procs[8];
static struct task *tasks[16];
static unsigned nprocs, ntasks;

struct process *world_process(int pid, struct process *parent)
{
	struct process *p = calloc(1, sizeof(*p));

	p->refs = 1;
	p->pid = p->pgid = p->sid = pid;
	p->parent = parent;
	TAILQ_INIT(&p->threads);
	TAILQ_INIT(&p->children);
	p->sighand = calloc(1, sizeof(*p->sighand));
	p->sighand->refs = 1;
	p->cred = calloc(1, sizeof(*p->cred));
	sigpending_init(&p->pending);
	waitq_init(&p->wait_child);
	waitq_init(&p->wait_exit);
	for (unsigned i = 0; i < KRLIM_NLIMITS; i++)
		p->rlim[i] = (struct krlimit){ KRLIM_INFINITY, KRLIM_INFINITY };
	timers_process_init(p);
	TAILQ_INSERT_TAIL(&all_processes, p, all_link);
	procs[nprocs++] = p;
	p->leader = world_thread(p, pid);
	return p;
}

struct task *world_thread(struct process *p, int tid)
{
	struct task *t = calloc(1, sizeof(*t));

	t->proc = p;
	t->tid = tid;
	t->state = TASK_RUNNABLE;
	t->kstack = calloc(1, ARCH_KSTACK_SIZE);
	if (posix_memalign((void **)&t->xstate, 64, 4096) != 0)
		abort();
	memset(t->xstate, 0, 4096);
	sigpending_init(&t->pending);
	t->altstack_flags = KSS_DISABLE;
	TAILQ_INSERT_TAIL(&p->threads, t, thread_link);
	p->nthreads++;
	tasks[ntasks++] = t;
	return t;
}

static void world_fds_reset(void);

void world_reset(void)
{
	/* The kernel's monotonic clock never goes back, not even between tests. */
	uint64_t before = clock_page != NULL ? clock_monotonic_ns() : 0;

	world_fds_reset();
	for (unsigned i = 0; i < nprocs; i++) {
		timers_process_exit(procs[i]);
		sigpending_flush(&procs[i]->pending);
	}
	for (unsigned i = 0; i < ntasks; i++) {
		sigpending_flush(&tasks[i]->pending);
		free(tasks[i]->kstack);
		free(tasks[i]->xstate);
		free(tasks[i]);
	}
	for (unsigned i = 0; i < nprocs; i++) {
		free(procs[i]->sighand);
		free(procs[i]->cred);
		free(procs[i]);
	}
	nprocs = ntasks = 0;
	TAILQ_INIT(&all_processes);
	host_now_ns = 1000000000;
	host_tsc_hook = NULL;
	world_clock = (struct cm_clock){
		.mult = 1,
		.tsc_base = host_now_ns,
		.monotonic_ns = before + NSEC_PER_SEC,
		.realtime_ns = WORLD_REAL0,
		.generation = 1,
	};
	clock_page = &world_clock;
	world_capable = false;
	world_fail_alloc = 0;
	world_wakes = 0;
	world_sleep = NULL;
	world_schedule = NULL;
	world_exit_status = -1;
	world_process(1, NULL);
	current = world_process(100, procs[0])->leader;
	timers_run();
}

struct task *task_find(int tid)
{
	for (unsigned i = 0; i < ntasks; i++) {
		if (tasks[i]->tid == tid && tasks[i]->state != TASK_DEAD)
			return tasks[i];
	}
	return NULL;
}

struct process *process_find(int pid)
{
	for (unsigned i = 0; i < nprocs; i++) {
		if (procs[i]->pid == pid)
			return procs[i];
	}
	return NULL;
}

bool capable(int cap)
{
	return world_capable;
}

void sched_wake(struct task *t)
{
	world_wakes++;
	t->state = TASK_RUNNABLE;
}

void sched_arm_timer(void)
{
}

void sched_account_flush(void)
{
}

void schedule(void)
{
	if (world_schedule != NULL)
		world_schedule();
	else
		current->state = TASK_RUNNABLE;
}

int sleep_once(uint64_t deadline, bool interruptible)
{
	if (interruptible && signal_pending(current))
		return -ERESTARTSYS;
	if (world_sleep != NULL)
		return world_sleep(deadline, interruptible);
	if (deadline == NO_DEADLINE)
		return -EDEADLK;
	if (deadline > clock_monotonic_ns())
		world_advance(deadline - clock_monotonic_ns());
	return -ETIMEDOUT;
}

/* Only the clock that is looked at differs from sleep_once(): the timer is a real one. */
static bool real_due;

static void real_due_fn(struct ktimer *t)
{
	real_due = true;
}

int sleep_once_realtime(uint64_t real_ns)
{
	struct ktimer t;
	int r;

	if (signal_pending(current))
		return -ERESTARTSYS;
	if (clock_realtime_ns() >= real_ns)
		return -ETIMEDOUT;
	real_due = false;
	ktimer_init(&t, real_due_fn);
	ktimer_set_realtime(&t, real_ns);
	world_interrupt();	/* one that was pending comes before the sleep */
	if (!real_due && world_sleep != NULL) {
		r = world_sleep(t.deadline, true);
	} else {
		if (!real_due)
			world_advance(t.deadline - clock_monotonic_ns());
		r = 0;
	}
	ktimer_cancel(&t);
	return real_due ? -ETIMEDOUT : r;
}

void process_exit_group(int status)
{
	world_exit_status = status;
	longjmp(world_exit, 1);
}

void task_exit(int status)
{
	world_exit_status = status;
	longjmp(world_exit, 2);
}

void world_advance(uint64_t ns)
{
	host_now_ns += ns;
	timers_run();
}

void world_interrupt(void)
{
	timers_run();
}

void world_restore(uint64_t pause_ns, uint64_t tsc)
{
	struct cm_clock *c = &world_clock;
	uint64_t ran = (uint64_t)(((unsigned __int128)(host_now_ns - c->tsc_base) * c->mult) >>
				  c->shift);

	c->seq += 2;
	c->monotonic_ns += ran;
	c->realtime_ns += ran + pause_ns;
	c->tsc_base = host_now_ns = tsc;
	c->generation += 7;
	for (unsigned i = 0; i < sizeof(c->entropy); i++)
		c->entropy[i] = (uint8_t)(c->entropy[i] * 5 + c->generation + i);
}

long syscall_partial(const char *call, const char *what, int err)
{
	return err;
}

/* ---- floating point: 832 bytes, as with AVX ---- */

size_t fpu_size(void)
{
	return 832;
}

uint64_t fpu_xcr0(void)
{
	return 7;
}

static uint8_t live_fpu[832];

void fpu_save(void *buf)
{
	memcpy(buf, live_fpu, sizeof(live_fpu));
}

void fpu_restore(const void *buf)
{
	memcpy(live_fpu, buf, sizeof(live_fpu));
}

bool fpu_valid(const void *buf)
{
	const uint8_t *p = buf;
	uint64_t bv;
	uint32_t mxcsr;

	memcpy(&bv, p + 512, 8);
	memcpy(&mxcsr, p + 24, 4);
	for (unsigned i = 520; i < 576; i++) {
		if (p[i] != 0)
			return false;
	}
	return (bv & ~7ULL) == 0 && (mxcsr & ~0xffffu) == 0;
}

void fpu_init_state(void *buf)
{
	memset(buf, 0, 832);
}

/* ---- files ---- */

#define NFDS 64
static struct file *fds[NFDS];
static struct superblock fake_sb = { .type = "fake", .dev = 7 };

struct inode *inode_new(struct superblock *sb, uint32_t mode)
{
	static struct inode one;

	one.refs = 1;
	one.sb = sb;
	one.mode = mode;
	return &one;
}

void inode_get(struct inode *i)
{
	i->refs++;
}

struct dentry *dentry_anon(struct inode *inode, const char *name)
{
	static struct dentry one;

	one.inode = inode;
	return &one;
}

struct file *file_new(struct dentry *d, const struct file_ops *ops, uint32_t flags)
{
	struct file *f = kzalloc(sizeof(*f));

	if (f == NULL)
		return NULL;
	f->refs = 1;
	f->flags = flags;
	f->ops = ops;
	f->dentry = d;
	f->inode = d->inode;
	TAILQ_INIT(&f->epitems);
	return f;
}

void file_get(struct file *f)
{
	f->refs++;
}

void file_put(struct file *f)
{
	if (--f->refs > 0)
		return;
	if (!TAILQ_EMPTY(&f->epitems))
		epoll_file_release(f);
	if (f->ops->release != NULL)
		f->ops->release(f);
	kfree(f);
}

unsigned file_poll(struct file *f, struct poll_table *pt)
{
	if (f->ops->poll == NULL)
		return KPOLLIN | KPOLLOUT | KPOLLRDNORM | KPOLLWRNORM;
	return f->ops->poll(f, pt);
}

struct file *fd_get(int fd)
{
	if (fd < 0 || fd >= NFDS || fds[fd] == NULL)
		return NULL;
	file_get(fds[fd]);
	return fds[fd];
}

int fd_install(struct file *f, int min, bool cloexec)
{
	for (int i = min; i < NFDS; i++) {
		if (fds[i] == NULL) {
			fds[i] = f;
			return i;
		}
	}
	file_put(f);
	return -EMFILE;
}

int files_next(struct files *files, int fd)
{
	for (int i = fd; i < NFDS; i++) {
		if (fds[i] != NULL)
			return i;
	}
	return -1;
}

int world_dup(int fd)
{
	return fd_install(fd_get(fd), 0, false);
}

int world_close(int fd)
{
	struct file *f = fds[fd];

	fds[fd] = NULL;
	file_put(f);
	return 0;
}

static void world_fds_reset(void)
{
	for (int i = 0; i < NFDS; i++) {
		if (fds[i] != NULL)
			world_close(i);
	}
}

static unsigned fake_poll(struct file *f, struct poll_table *pt)
{
	struct fake_file *fake = f->priv;

	fake->polls++;
	poll_wait(pt, &fake->wq);
	return fake->ready;
}

static void fake_release(struct file *f)
{
	struct fake_file *fake = f->priv;

	if (!waitq_empty(&fake->wq)) {
		fprintf(stderr, "a waiter is left on a dead file\n");
		abort();
	}
	kfree(fake);
}

static const struct file_ops fake_ops = { .poll = fake_poll, .release = fake_release };
static const struct file_ops plain_ops;

int world_fake_fd(struct fake_file **ret)
{
	struct fake_file *fake = kzalloc(sizeof(*fake));
	struct file *f = file_new(dentry_anon(inode_new(&fake_sb, 0), "fake"), &fake_ops, 0);

	waitq_init(&fake->wq);
	f->priv = fake;
	*ret = fake;
	return fd_install(f, 0, false);
}

int world_plain_fd(void)
{
	return fd_install(file_new(dentry_anon(inode_new(&fake_sb, KS_IFREG), "plain"),
				   &plain_ops, 0), 0, false);
}

void fake_set(struct fake_file *f, unsigned ready)
{
	f->ready = ready;
	waitq_wake_all(&f->wq, ready);
}

long world_read(int fd, void *buf, size_t n)
{
	struct uiovec iov = { buf, n };
	struct uio u = { .iov = &iov, .niov = 1, .resid = n };
	struct file *f = fd_get(fd);
	long r = f->ops->read(f, &u, NULL);

	file_put(f);
	return r;
}

long world_write(int fd, const void *buf, size_t n)
{
	struct uiovec iov = { (void *)(uintptr_t)buf, n };
	struct uio u = { .iov = &iov, .niov = 1, .resid = n };
	struct file *f = fd_get(fd);
	long r = f->ops->write(f, &u, NULL);

	file_put(f);
	return r;
}
