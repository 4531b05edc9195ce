/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of tasks and processes, their numbers, and their beginnings.
 *
 * A number (pid, tid) is in use while a living task, an unreaped process, or any process's
 * group or session carries it: pid_use[] counts these. task_find() knows living tasks only;
 * process_find() also zombies.
 *
 * References: the table holds one to each process until it is reaped; its tasks, pidfds and
 * /proc files hold more. Each task holds a reference to its mm; proc->mm is borrowed from
 * them. A dead task is freed, with its mm, on the stack of the next task that runs: its stack
 * and page tables are in use until then.
 *
 * The boot task is PID 1 from the start: task_init() makes it, without a program; init_start()
 * gives it one and leaves for it.
 */
#include "guest-kernel/core/task.h"

#include <linux/capability.h>

#include "abi/layout.h"
#include "abi/platform.h"
#include "guest-kernel/arch/arch.h"
#include "guest-kernel/core/task_internal.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/mm/mm.h"
#include "guest-kernel/mm/page.h"

#define HASH_SIZE	256u	/* power of two */
#define PID_RESERVED	300	/* where numbers begin again after PID_MAX */

_Static_assert(ARCH_KSTACK_SIZE == 16384, "task_frame()");

struct task *current;
struct proc_list all_processes = TAILQ_HEAD_INITIALIZER(all_processes);
struct task_counts task_counts;

static struct task_list task_hash[HASH_SIZE];
static struct proc_list process_hash[HASH_SIZE];
static uint32_t pid_use[PID_MAX];
static int last_pid;
static unsigned nprocesses;

/* ---- numbers ---- */

int pid_alloc(void)
{
	int pid = last_pid;

	for (unsigned i = 0; i < PID_MAX; i++) {
		if (++pid >= PID_MAX)
			pid = PID_RESERVED;
		if (pid_use[pid] == 0) {
			pid_use[pid] = 1;
			last_pid = pid;
			return pid;
		}
	}
	return -EAGAIN;
}

void pid_hold(int pid)
{
	pid_use[pid]++;
}

void pid_drop(int pid)
{
	ASSERT(pid_use[pid] > 0);
	pid_use[pid]--;
}

/* ---- lookup ---- */

struct task *task_find(int tid)
{
	struct task *t;

	if (tid <= 0)
		return NULL;
	TAILQ_FOREACH(t, &task_hash[(unsigned)tid % HASH_SIZE], hash_link)
		if (t->tid == tid)
			return t;
	return NULL;
}

struct process *process_find(int pid)
{
	struct process *p;

	if (pid <= 0)
		return NULL;
	TAILQ_FOREACH(p, &process_hash[(unsigned)pid % HASH_SIZE], hash_link)
		if (p->pid == pid)
			return p;
	return NULL;
}

unsigned process_count(void)
{
	return nprocesses;
}

bool process_alive(const struct process *p)
{
	return p->nthreads > 0 && !p->zombie;
}

void process_get(struct process *p)
{
	p->refs++;
}

void process_put(struct process *p)
{
	ASSERT(p->refs > 0);
	if (--p->refs > 0)
		return;
	ASSERT(p->nthreads == 0);
	sigpending_flush(&p->pending);
	if (p->sighand != NULL)
		sighand_put(p->sighand);
	if (p->cred != NULL)
		cred_put(p->cred);
	kfree(p);
}

/* ---- tasks ---- */

struct task *task_new(struct process *p, int tid)
{
	struct task *t;
	struct page *stack;

	if (task_counts.tasks >= TASK_MAX)
		return NULL;
	t = kzalloc(sizeof(*t));
	if (t == NULL)
		return NULL;
	t->xstate_alloc = kmalloc(fpu_size() + 63);
	stack = page_alloc(ARCH_KSTACK_ORDER, 0);
	if (t->xstate_alloc == NULL || stack == NULL) {
		if (stack != NULL)
			page_put(stack);
		kfree(t->xstate_alloc);
		kfree(t);
		return NULL;
	}
	t->xstate = (uint8_t *)ALIGN_UP((uintptr_t)t->xstate_alloc, 64UL);
	t->kstack = page_to_virt(stack);
	memset(task_frame(t), 0, sizeof(struct trapframe));
	process_get(p);
	t->proc = p;
	t->tid = tid;
	t->state = TASK_UNINTERRUPTIBLE;
	t->start_ns = clock_monotonic_ns();
	t->timer_slack_ns = t->default_timer_slack_ns = 50 * NSEC_PER_USEC;
	t->altstack_flags = 2;	/* SS_DISABLE */
	t->sig_check = true;	/* joins a group stop that is under way */
	sigpending_init(&t->pending);
	task_counts.tasks++;
	return t;
}

void task_free(struct task *t)
{
	ASSERT(t != current && !t->on_runq);
	sigpending_flush(&t->pending);
	if (t->mm != NULL)
		mm_put(t->mm);
	page_put(phys_to_page(virt_to_phys(t->kstack)));
	kfree(t->xstate_alloc);
	pid_drop(t->tid);
	process_put(t->proc);
	kfree(t);
	task_counts.tasks--;
}

void task_link(struct task *t)
{
	struct process *p = t->proc;

	TAILQ_INSERT_TAIL(&task_hash[(unsigned)t->tid % HASH_SIZE], t, hash_link);
	TAILQ_INSERT_TAIL(&p->threads, t, thread_link);
	p->nthreads++;
}

void task_unlink(struct task *t)
{
	struct process *p = t->proc;

	TAILQ_REMOVE(&task_hash[(unsigned)t->tid % HASH_SIZE], t, hash_link);
	TAILQ_REMOVE(&p->threads, t, thread_link);
	p->nthreads--;
	if (p->leader == t)
		p->leader = NULL;
}

void task_rehash(struct task *t, int tid)
{
	TAILQ_REMOVE(&task_hash[(unsigned)t->tid % HASH_SIZE], t, hash_link);
	pid_drop(t->tid);
	t->tid = tid;
	pid_hold(tid);
	TAILQ_INSERT_TAIL(&task_hash[(unsigned)tid % HASH_SIZE], t, hash_link);
}

/* ---- processes ---- */

struct process *process_new(int pid)
{
	struct process *p = kzalloc(sizeof(*p));

	if (p == NULL)
		return NULL;
	p->refs = 1;
	p->pid = pid;
	TAILQ_INIT(&p->children);
	TAILQ_INIT(&p->threads);
	sigpending_init(&p->pending);
	waitq_init(&p->wait_child);
	waitq_init(&p->wait_exit);
	p->start_ns = clock_monotonic_ns();
	timers_process_init(p);
	p->dumpable = true;
	p->exit_signal = KSIGCHLD;
	return p;
}

/* pid, pgid, sid and job are held from here on until process_unlink(). */
void process_link(struct process *p, struct process *parent)
{
	p->parent = parent;
	if (parent != NULL)
		TAILQ_INSERT_TAIL(&parent->children, p, sibling);
	TAILQ_INSERT_TAIL(&all_processes, p, all_link);
	TAILQ_INSERT_TAIL(&process_hash[(unsigned)p->pid % HASH_SIZE], p, hash_link);
	pid_hold(p->pid);
	pid_hold(p->pgid);
	pid_hold(p->sid);
	pid_hold(p->job);
	nprocesses++;
}

void process_unlink(struct process *p)
{
	ASSERT(TAILQ_EMPTY(&p->children));
	if (p->parent != NULL)
		TAILQ_REMOVE(&p->parent->children, p, sibling);
	p->parent = NULL;
	TAILQ_REMOVE(&all_processes, p, all_link);
	TAILQ_REMOVE(&process_hash[(unsigned)p->pid % HASH_SIZE], p, hash_link);
	pid_drop(p->pid);
	pid_drop(p->pgid);
	pid_drop(p->sid);
	pid_drop(p->job);
	nprocesses--;
	p->reaped = true;
	process_put(p);
}

/* ---- filesystem context ---- */

struct fs_context *fs_context_copy(const struct fs_context *fs)
{
	struct fs_context *n = kmalloc(sizeof(*n));

	if (n == NULL)
		return NULL;
	*n = *fs;
	n->refs = 1;
	if (n->root != NULL)
		dentry_get(n->root);
	if (n->cwd != NULL)
		dentry_get(n->cwd);
	return n;
}

void fs_context_get(struct fs_context *fs)
{
	fs->refs++;
}

void fs_context_put(struct fs_context *fs)
{
	if (--fs->refs > 0)
		return;
	if (fs->root != NULL)
		dentry_put(fs->root);
	if (fs->cwd != NULL)
		dentry_put(fs->cwd);
	kfree(fs);
}

/* ---- the boot task and PID 1 ---- */

void task_frame_start(struct trapframe *tf, uintptr_t entry, uintptr_t sp)
{
	memset(tf, 0, sizeof(*tf));
	tf->orig_rax = ~0ULL;
	tf->rip = entry;
	tf->rsp = sp;
	tf->cs = CM_SEL_UCS;
	tf->ss = CM_SEL_USS;
	tf->rflags = 0x202;
}

static void default_limits(struct krlimit *r)
{
	static const struct {
		uint8_t which;
		uint64_t cur, max;
	} limits[] = {
		{RLIM_STACK, 8UL << 20, KRLIM_INFINITY},
		{RLIM_CORE, 0, KRLIM_INFINITY},
		{RLIM_NPROC, TASK_MAX / 2, TASK_MAX / 2},
		{RLIM_NOFILE, 1024, 1048576},
		{RLIM_MEMLOCK, 8UL << 20, 8UL << 20},
		{RLIM_SIGPENDING, 16384, 16384},
		{RLIM_MSGQUEUE, 819200, 819200},
		{RLIM_NICE, 0, 0},
		{RLIM_RTPRIO, 0, 0},
	};

	for (unsigned i = 0; i < KRLIM_NLIMITS; i++)
		r[i] = (struct krlimit){KRLIM_INFINITY, KRLIM_INFINITY};
	for (unsigned i = 0; i < ARRAY_SIZE(limits); i++)
		r[limits[i].which] = (struct krlimit){limits[i].cur, limits[i].max};
}

void task_init(void)
{
	struct process *p;
	struct task *t;
	struct cred *c;

	for (unsigned i = 0; i < HASH_SIZE; i++) {
		TAILQ_INIT(&task_hash[i]);
		TAILQ_INIT(&process_hash[i]);
	}
	pid_use[0] = 1;		/* never given out */
	last_pid = 0;
	p = process_new(pid_alloc());
	c = cred_new(0);
	if (p == NULL || c == NULL)
		panic("no memory for the first process");
	c->cap_eff = c->cap_perm = c->cap_bset = CAP_ALL_MASK;
	p->cred = c;
	p->sighand = sighand_new();
	p->files = files_new();
	p->fs = kzalloc(sizeof(*p->fs));
	t = task_new(p, p->pid);
	if (p->sighand == NULL || p->files == NULL || p->fs == NULL || t == NULL)
		panic("no memory for the first process");
	p->fs->refs = 1;
	p->fs->umask = 022;
	p->pgid = p->sid = 0;	/* as Linux has it until init calls setsid */
	default_limits(p->rlim);
	process_link(p, NULL);
	task_link(t);
	p->leader = t;
	p->exit_signal = 0;
	strcpy(t->comm, "swapper");
	strcpy(p->comm, "swapper");
	t->state = TASK_RUNNABLE;
	t->vruntime = NSEC_PER_SEC;
	t->run_since = t->start_ns;
	current = t;
}

int init_set_root(struct dentry *root)
{
	struct fs_context *fs = current->proc->fs;

	if (fs->root != NULL)
		dentry_put(fs->root);
	if (fs->cwd != NULL)
		dentry_put(fs->cwd);
	dentry_get(root);
	dentry_get(root);
	fs->root = fs->cwd = root;
	return 0;
}

static void open_console(void)
{
	struct file *f = file_open(KAT_FDCWD, "/dev/console", KO_RDWR, 0, LOOKUP_FOLLOW);

	if (IS_ERR(f))
		return;
	file_get(f);
	file_get(f);
	for (int i = 0; i < 3; i++)
		fd_install(f, i, false);
}

int init_start(struct file *file)
{
	static const char strings[] = "initd\0HOME=/\0TERM=linux\0"
				      "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:"
				      "/usr/bin:/sbin:/bin";
	struct exec_args args = {
		.argc = 1, .envc = 3, .strings = (char *)strings, .bytes = sizeof(strings),
		.execfn = "/initd",
	};
	struct process *p = current->proc;
	struct exec_image image;
	struct trapframe *tf = task_frame(current);
	struct mm *mm;
	int r;

	if (p->fs->root == NULL && !TAILQ_EMPTY(&superblocks))
		init_set_root(TAILQ_FIRST(&superblocks)->root);
	mm = mm_new();
	if (mm == NULL)
		return -ENOMEM;
	r = elf_load(mm, file, &args, &image);
	if (r != 0) {
		mm_put(mm);
		return r;
	}
	open_console();
	strcpy(current->comm, "initd");
	strcpy(p->comm, "initd");
	current->mm = p->mm = mm;
	task_frame_start(tf, image.entry, image.sp);
	mm_activate(mm);
	arch_set_fsbase(0);
	arch_set_gsbase(0);
	fpu_init_state(current->xstate);
	fpu_restore(current->xstate);
	sched_account(true);
	arch_stage(CM_STAGE_INIT);
	arch_return_to_user();
}

void task_report(struct strbuf *sb)
{
	strbuf_printf(sb, "forks %lu\nvforks %lu\nthreads %lu\nexecs %lu\nexits %lu\n"
		      "context switches %lu\ntasks %u\nidle ms %llu\n",
		      task_counts.forks, task_counts.vforks, task_counts.threads,
		      task_counts.execs, task_counts.exits, sched_switches(),
		      task_counts.tasks, sched_idle_ns() / NSEC_PER_MSEC);
}
