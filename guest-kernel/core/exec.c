/* SPDX-License-Identifier: Apache-2.0 */
/*
 * execve and execveat.
 *
 * First all that can fail with the caller unharmed: the file is found and checked, #! lines
 * are followed, arguments are copied into the kernel, a new address space is built beside the
 * old one (elf_load). Then the other threads are told to go (dethread), which a fatal signal
 * may still end. From exec_commit() on there is no way back.
 *
 * Argument strings lie in one buffer, argv's then envp's. Linux's limits hold: a quarter of
 * the stack limit in all (here never more than 2 MiB), 128 KiB for one string.
 */
#include <linux/capability.h>

#include "guest-kernel/arch/arch.h"
#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task_internal.h"
#include "guest-kernel/core/time.h"
#include "guest-kernel/fs/fs_internal.h"
#include "guest-kernel/mm/mm.h"
#include "guest-kernel/mm/page.h"
#include "guest-kernel/mm/uaccess.h"

#define ARG_STRING_MAX	131072ul
#define ARG_TOTAL_MAX	(2ul << 20)
#define ARG_TOTAL_MIN	131072ul
#define SCRIPT_DEPTH	5	/* #! files one after the other */
#define MS_NOSUID_	2u
#define MS_NOEXEC_	8u
#define PER_CLEAR_ON_SETID (0x0040000u | 0x0080000u | 0x0100000u | 0x0200000u | 0x0400000u)

struct exec_state {
	struct file *file;	/* what is loaded in the end */
	char *path;		/* as the caller gave it */
	char *filename;		/* for AT_EXECFN, comm and scripts: path or /dev/fd/... */
	char *interp;		/* what a script's interpreter is told: filename, or the
				 * script before */
	bool path_vanishes;	/* /dev/fd/N of a close-on-exec descriptor */
	char *strings;
	size_t used, cap, limit;
	unsigned argc, envc;
	bool must_die;		/* failed after its other threads were gone */
};

static void exec_state_done(struct exec_state *x)
{
	if (x->file != NULL)
		file_put(x->file);
	if (x->interp != x->filename)
		kfree(x->interp);
	if (x->filename != x->path)
		kfree(x->filename);
	kfree(x->path);
	kfree(x->strings);
}

/* ---- #! ---- */

static bool blank(char c)
{
	return c == ' ' || c == '\t';
}

int script_parse(char buf[SCRIPT_BUF + 1], size_t n, char **ret_interp, char **ret_arg)
{
	char *p, *end, *nl;

	buf[n] = '\0';
	if (n < 2 || buf[0] != '#' || buf[1] != '!')
		return -ENOEXEC;
	p = buf + 2;
	end = buf + n;
	nl = memchr(p, '\n', (size_t)(end - p));
	if (nl != NULL)
		end = nl;
	while (p < end && blank(*p))
		p++;
	if (nl == NULL && n == SCRIPT_BUF) {
		/* Cut off: the interpreter's name at least must be whole. */
		char *q = p;

		while (q < end && !blank(*q) && *q != '\0')
			q++;
		if (q == end)
			return -ENOEXEC;
	}
	while (end > p && blank(end[-1]))
		end--;
	*end = '\0';
	if (p == end || *p == '\0')
		return -ENOEXEC;
	*ret_interp = p;
	while (*p != '\0' && !blank(*p))
		p++;
	if (*p != '\0')
		*p++ = '\0';
	while (blank(*p))
		p++;
	*ret_arg = *p != '\0' ? p : NULL;
	return 0;
}

/* ---- arguments ---- */

static int strings_reserve(struct exec_state *x, size_t more)
{
	size_t cap = x->cap == 0 ? PAGE_SIZE : x->cap;
	char *p;

	if (more > ARG_TOTAL_MAX || x->used + more > ARG_TOTAL_MAX)
		return -E2BIG;
	while (cap < x->used + more)
		cap *= 2;
	if (cap == x->cap)
		return 0;
	p = krealloc(x->strings, cap);
	if (p == NULL)
		return -ENOMEM;
	x->strings = p;
	x->cap = cap;
	return 0;
}

static int count_pointers(const void __user *uvec, unsigned max, unsigned *ret)
{
	const char __user *const __user *v = uvec;
	const char __user *s;

	*ret = 0;
	if (v == NULL)
		return 0;
	for (;; v++, (*ret)++) {
		if (GET_USER(s, v) != 0)
			return -EFAULT;
		if (s == NULL)
			return 0;
		if (*ret >= max)
			return -E2BIG;
	}
}

static int copy_string(struct exec_state *x, const char __user *s)
{
	for (;;) {
		size_t room = MIN(x->cap - x->used, ARG_STRING_MAX);
		long n = strncpy_from_user(x->strings + x->used, s, room);

		if (n >= 0) {
			x->used += (size_t)n + 1;
			return x->used > x->limit ? -E2BIG : 0;
		}
		if (n != -ENAMETOOLONG)
			return (int)n;
		if (room == ARG_STRING_MAX || x->used + room > x->limit)
			return -E2BIG;
		n = strings_reserve(x, room + 1);
		if (n != 0)
			return (int)n;
	}
}

static int copy_strings(struct exec_state *x, const void __user *uvec, unsigned n)
{
	const char __user *const __user *v = uvec;
	const char __user *s;
	int r;

	for (unsigned i = 0; i < n; i++) {
		if (GET_USER(s, v + i) != 0)
			return -EFAULT;
		r = strings_reserve(x, 2);
		if (r == 0)
			r = copy_string(x, s);
		if (r != 0)
			return r;
	}
	return 0;
}

static int copy_arguments(struct exec_state *x, const void __user *uargv,
			  const void __user *uenvp)
{
	size_t limit = ARG_TOTAL_MAX, pointers;
	int r;

	if (rlimit_cur(RLIM_STACK) / 4 < limit)
		limit = rlimit_cur(RLIM_STACK) / 4;
	limit = MAX(limit, ARG_TOTAL_MIN);
	r = count_pointers(uargv, (unsigned)(limit / 8), &x->argc);
	if (r == 0)
		r = count_pointers(uenvp, (unsigned)(limit / 8), &x->envc);
	if (r != 0)
		return r;
	pointers = 8ul * (MAX(x->argc, 1u) + x->envc);
	if (pointers >= limit)
		return -E2BIG;
	x->limit = limit - pointers;
	r = strings_reserve(x, 1);
	if (r != 0)
		return r;
	if (x->argc == 0) {	/* a program always has an argv[0] */
		x->strings[x->used++] = '\0';
		x->argc = 1;
	} else {
		r = copy_strings(x, uargv, x->argc);
	}
	if (r == 0)
		r = copy_strings(x, uenvp, x->envc);
	return r;
}

/* argv[0] becomes: interpreter, its argument if any, the script. */
static int replace_argv0(struct exec_state *x, const char *interp, const char *arg)
{
	size_t old = strlen(x->strings) + 1;
	size_t ni = strlen(interp) + 1, na = arg != NULL ? strlen(arg) + 1 : 0;
	size_t ns = strlen(x->interp) + 1, new = ni + na + ns;
	char *p;
	int r;

	r = strings_reserve(x, new);
	if (r != 0)
		return r;
	p = x->strings;
	memmove(p + new, p + old, x->used - old);
	memcpy(p, interp, ni);
	if (arg != NULL)
		memcpy(p + ni, arg, na);
	memcpy(p + ni + na, x->interp, ns);
	x->used = x->used - old + new;
	x->argc += arg != NULL ? 2 : 1;
	return 0;
}

/* ---- the file ---- */

static int exec_check(struct dentry *d)
{
	struct inode *i = d->inode;
	int r;

	if (KS_ISLNK(i->mode))
		return -ELOOP;
	if (!KS_ISREG(i->mode))
		return -EACCES;
	if (i->sb != NULL && (i->sb->flags & MS_NOEXEC_) != 0)
		return -EACCES;
	/* Root, too, runs only what somebody may run. */
	if ((i->mode & 0111) == 0)
		return -EACCES;
	r = inode_permission(i, 1);
	if (r != 0)
		return r;
	return i->writers > 0 ? -ETXTBSY : 0;
}

static struct file *exec_open(int dirfd, const char *path, unsigned lookup)
{
	struct dentry *d = path_lookup(dirfd, path, lookup);
	int r;

	if (IS_ERR(d))
		return (struct file *)d;
	r = exec_check(d);
	if (r != 0) {
		dentry_put(d);
		return ERR_PTR(r);
	}
	/* A program need not be readable to be run: no check of that. */
	return open_dentry_checked(d, KO_RDONLY, true);
}

/* Follows #! lines until the file is something else. */
static int follow_scripts(struct exec_state *x)
{
	char buf[SCRIPT_BUF + 1], *interp, *arg, *name;
	struct file *f;
	long n;
	int r;

	for (unsigned depth = 0;; depth++) {
		n = file_read_kernel(x->file, buf, SCRIPT_BUF, 0);
		if (n < 0)
			return (int)n;
		if (n < 2 || buf[0] != '#' || buf[1] != '!')
			return 0;
		if (depth == SCRIPT_DEPTH)
			return -ELOOP;
		r = script_parse(buf, (size_t)n, &interp, &arg);
		if (r != 0)
			return r;
		if (x->path_vanishes)
			return -ENOENT;
		r = replace_argv0(x, interp, arg);
		if (r != 0)
			return r;
		f = exec_open(KAT_FDCWD, interp, LOOKUP_FOLLOW);
		if (IS_ERR(f))
			return PTR_ERR(f);
		file_put(x->file);
		x->file = f;
		name = kstrdup(interp);
		if (name == NULL)
			return -ENOMEM;
		if (x->interp != x->filename)
			kfree(x->interp);
		x->interp = name;
	}
}

/* ---- credentials ---- */

/* Who the program runs as: set-id bits and the rules for capabilities (capabilities(7)). */
static struct cred *exec_cred(struct inode *i, bool *ret_secure)
{
	struct process *p = current->proc;
	const struct cred *old = p->cred;
	struct cred *c = cred_copy(old);
	bool effective = false, setid, nosuid;

	if (c == NULL)
		return NULL;
	nosuid = p->no_new_privs || (i->sb != NULL && (i->sb->flags & MS_NOSUID_) != 0);
	if (!nosuid && (i->mode & KS_ISUID) != 0)
		c->euid = i->uid;
	if (!nosuid && (i->mode & (KS_ISGID | 0010)) == (KS_ISGID | 0010))
		c->egid = i->gid;
	setid = c->euid != old->uid || c->egid != old->gid;
	c->cap_perm = 0;
	if ((c->securebits & SECBIT_NOROOT) == 0 && (c->euid == 0 || c->uid == 0)) {
		c->cap_perm = c->cap_bset | c->cap_inh;
		effective = c->euid == 0;
	}
	if (p->no_new_privs)
		c->cap_perm &= old->cap_perm;
	c->suid = c->fsuid = c->euid;
	c->sgid = c->fsgid = c->egid;
	if (setid)
		c->cap_ambient = 0;
	c->cap_perm |= c->cap_ambient;
	c->cap_eff = effective ? c->cap_perm : c->cap_ambient;
	c->securebits &= ~SECBIT_KEEP_CAPS;
	*ret_secure = setid || (c->uid != 0 && (effective ||
						(c->cap_perm & ~c->cap_ambient) != 0));
	return c;
}

/* ---- threads ---- */

/* All threads but this one end; then it is the leader and has the process's pid. */
static int dethread(void)
{
	struct process *p = current->proc;
	struct task *t;

	if (p->group_exit || p->exec_task != NULL)
		return -EAGAIN;
	if (p->nthreads > 1) {
		p->exec_task = current;
		TAILQ_FOREACH(t, &p->threads, thread_link)
			if (t != current)
				signal_zap_task(t);
		while (p->nthreads > 1)
			if (sleep_killable() != 0) {
				p->exec_task = NULL;
				return -EAGAIN;
			}
		p->exec_task = NULL;
	}
	if (current->tid != p->pid)
		task_rehash(current, p->pid);
	p->leader = current;
	return 0;
}

/* ---- the point of no return ---- */

static int unshare_for_exec(struct process *p)
{
	struct sighand *s = NULL;
	struct files *f = NULL;

	if (p->sighand->refs > 1) {
		s = sighand_copy(p->sighand);
		if (s == NULL)
			return -ENOMEM;
	}
	if (files_is_shared(p->files)) {
		f = files_copy(p->files);
		if (f == NULL) {
			sighand_put(s);
			return -ENOMEM;
		}
		files_put(p->files);
		p->files = f;
	}
	if (s != NULL) {
		sighand_put(p->sighand);
		p->sighand = s;
	}
	return 0;
}

static void set_comm(struct task *t, const char *filename)
{
	const char *base = strrchr(filename, '/');
	size_t n;

	base = base != NULL ? base + 1 : filename;
	n = MIN(strlen(base), sizeof(t->comm) - 1);
	memset(t->comm, 0, sizeof(t->comm));
	memcpy(t->comm, base, n);
	memcpy(t->proc->comm, t->comm, sizeof(t->comm));
}

static void switch_mm(struct task *t, struct mm *mm)
{
	struct mm *old = t->mm;

	process_account_mm(t->proc);
	t->mm = t->proc->mm = mm;
	mm_activate(mm);
	if (old != NULL)
		mm_put(old);
}

static void reset_signals(struct task *t)
{
	sighand_reset_on_exec(t->proc->sighand);
	timers_process_exec(t->proc);
	t->altstack_sp = t->altstack_size = 0;
	t->altstack_flags = 2;	/* SS_DISABLE */
	t->restart_fn = NULL;
}

static void exec_commit(struct exec_state *x, struct mm *mm, const struct exec_image *image,
			struct cred *c, bool secure)
{
	struct task *t = current;
	struct process *p = t->proc;
	const struct cred *old = p->cred;

	task_leave_mm(t);
	switch_mm(t, mm);
	reset_signals(t);
	files_close_on_exec(p->files);
	set_comm(t, x->filename);
	p->dumpable = c->euid == c->uid && c->egid == c->gid;
	if (secure || c->euid != old->euid || c->egid != old->egid ||
	    (c->cap_perm & ~old->cap_perm) != 0)
		t->pdeath_signal = 0;
	if (secure) {
		p->personality &= ~PER_CLEAR_ON_SETID;
		if (p->rlim[RLIM_STACK].cur > 8UL << 20)
			p->rlim[RLIM_STACK].cur = 8UL << 20;
	}
	cred_commit(c);
	p->did_exec = true;
	p->exit_signal = p->pid == 1 ? 0 : KSIGCHLD;
	p->membarrier = 0;
	t->set_child_tid = NULL;
	t->rseq = NULL;
	t->rseq_len = t->rseq_sig = 0;
	task_counts.execs++;

	task_frame_start(task_frame(t), image->entry, image->sp);
	arch_set_fsbase(0);
	arch_set_gsbase(0);
	fpu_init_state(t->xstate);
	fpu_restore(t->xstate);
}

static int exec_load(struct exec_state *x)
{
	struct exec_args args = {
		.argc = x->argc, .envc = x->envc, .strings = x->strings, .bytes = x->used,
		.execfn = x->filename,
	};
	bool threads = current->proc->nthreads > 1;
	struct exec_image image;
	struct cred *c;
	struct mm *mm;
	int r;

	c = exec_cred(x->file->inode, &args.secure);
	mm = mm_new();
	r = -ENOMEM;
	if (c == NULL || mm == NULL)
		goto out;
	args.uid = c->uid;
	args.euid = c->euid;
	args.gid = c->gid;
	args.egid = c->egid;
	r = elf_load(mm, x->file, &args, &image);
	if (r != 0)
		goto out;
	r = dethread();
	if (r != 0)
		goto out;
	r = unshare_for_exec(current->proc);
	if (r != 0) {
		x->must_die = threads;
		goto out;
	}
	exec_commit(x, mm, &image, c, args.secure);
	return 0;
out:
	if (c != NULL)
		cred_put(c);
	if (mm != NULL)
		mm_put(mm);
	return r;
}

/* ---- the calls ---- */

/* What the program is told it was started as. */
static int make_filename(struct exec_state *x, int dirfd)
{
	size_t size = strlen(x->path) + 32;

	x->filename = x->interp = x->path;
	if (dirfd == KAT_FDCWD || x->path[0] == '/')
		return 0;
	x->filename = kmalloc(size);
	if (x->filename == NULL) {
		x->filename = x->path;
		return -ENOMEM;
	}
	x->interp = x->filename;
	if (x->path[0] == '\0')
		ksnprintf(x->filename, size, "/dev/fd/%d", dirfd);
	else
		ksnprintf(x->filename, size, "/dev/fd/%d/%s", dirfd, x->path);
	return 0;
}

static long do_execveat(int dirfd, const char __user *upath, const void __user *uargv,
			const void __user *uenvp, unsigned flags)
{
	struct exec_state x = {.file = NULL};
	unsigned lookup = (flags & KAT_SYMLINK_NOFOLLOW) != 0 ? 0 : LOOKUP_FOLLOW;
	struct file *f;
	char *path;
	int r;

	if ((flags & ~(KAT_SYMLINK_NOFOLLOW | KAT_EMPTY_PATH)) != 0)
		return -EINVAL;
	if ((flags & KAT_EMPTY_PATH) != 0)
		lookup |= LOOKUP_EMPTY;
	path = path_get_user(upath);
	if (IS_ERR(path))
		return PTR_ERR(path);
	x.path = path;
	r = make_filename(&x, dirfd);
	if (r != 0)
		goto out;
	f = exec_open(dirfd, path, lookup);
	if (IS_ERR(f)) {
		r = PTR_ERR(f);
		goto out;
	}
	x.file = f;
	x.path_vanishes = x.filename != x.path &&
			  files_cloexec(current->proc->files, dirfd);
	r = copy_arguments(&x, uargv, uenvp);
	if (r == 0)
		r = follow_scripts(&x);
	if (r == 0)
		r = exec_load(&x);
out:
	exec_state_done(&x);
	if (x.must_die)
		process_exit_group(KSIGKILL);
	return r;
}

SYSCALL(execve, const char __user *path, const void __user *argv, const void __user *envp)
{
	return do_execveat(KAT_FDCWD, path, argv, envp, 0);
}

SYSCALL(execveat, int dirfd, const char __user *path, const void __user *argv,
	const void __user *envp, int flags)
{
	return do_execveat(dirfd, path, argv, envp, (unsigned)flags);
}
