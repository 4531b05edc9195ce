/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System V shared memory: shmget, shmat, shmdt, shmctl.
 *
 * A segment is a nameless memory file. Each shmat() maps it through a struct file of its
 * own, whose priv is the segment; VMAs hold that file, across fork and splits, and its release
 * is how a segment learns that it is attached no more. A segment is in the table until it was
 * removed (IPC_RMID) and its last file is gone: seg->refs counts the files, and one for not
 * being removed yet.
 *
 * How often it is attached is the number of VMAs that show its inode, which is what Linux
 * counts, too. Semaphores and message queues of System V are not offered (ENOSYS).
 */
#include <linux/capability.h>
#include <linux/mman.h>

#include "abi/layout.h"
#include "guest-kernel/core/syscall.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/core/time.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/mm/mm.h"
#include "guest-kernel/mm/page.h"
#include "guest-kernel/mm/uaccess.h"

/* As in <linux/ipc.h> and <linux/shm.h>, which do not stand alone. */
#define IPC_PRIVATE	0
#define IPC_CREAT	001000
#define IPC_EXCL	002000
#define SHM_HUGETLB	004000
#define IPC_RMID	0
#define IPC_SET		1
#define IPC_STAT	2
#define IPC_INFO	3
#define SHM_LOCK	11
#define SHM_UNLOCK	12
#define SHM_STAT	13
#define SHM_INFO	14
#define SHM_STAT_ANY	15
#define SHM_DEST	01000u
#define SHM_LOCKED	02000u
#define SHM_RDONLY	010000
#define SHM_RND		020000
#define SHM_REMAP	040000
#define SHM_EXEC	0100000

#define SHM_MNI		4096u			/* segments */
#define SHM_MAX		(UINT64_MAX - (1UL << 24))
#define SHM_SEQ		32768u			/* an ID is its index and a multiple of this */

struct kipc_perm {			/* struct ipc64_perm */
	int32_t key;
	uint32_t uid, gid, cuid, cgid, mode;
	uint16_t seq, pad;
	uint64_t unused[2];
};

struct kshmid_ds {			/* struct shmid64_ds */
	struct kipc_perm perm;
	uint64_t size;
	int64_t atime, dtime, ctime;
	int32_t cpid, lpid;
	uint64_t nattch, unused[2];
};
_Static_assert(sizeof(struct kshmid_ds) == 112, "struct shmid64_ds");

struct shm_segment {
	uint32_t refs;
	unsigned index;
	struct kshmid_ds ds;		/* nattch is counted when it is asked for */
	struct dentry *dentry;		/* reference held */
};

static struct shm_segment *segments[SHM_MNI];
static unsigned segments_used, segments_seq;

static int64_t now_seconds(void)
{
	return (int64_t)(clock_realtime_ns() / NSEC_PER_SEC);
}

static int segment_id(const struct shm_segment *s)
{
	return (int)(s->ds.perm.seq * SHM_SEQ + s->index);
}

static uint64_t segment_attached(const struct shm_segment *s)
{
	uint64_t n = 0;
	struct vma *v;

	TAILQ_FOREACH(v, &s->dentry->inode->mappings, file_link)
		n++;
	return n;
}

static void segment_put(struct shm_segment *s)
{
	if (--s->refs != 0)
		return;
	segments[s->index] = NULL;
	segments_used--;
	dentry_put(s->dentry);
	kfree(s);
}

/* Also for a program that has ended, by whoever runs after it: lpid stays as it is. */
static void shm_release(struct file *f)
{
	struct shm_segment *s = f->priv;

	s->ds.dtime = now_seconds();
	segment_put(s);
}

static const struct file_ops shm_fops = { .release = shm_release };

static struct shm_segment *segment_find(int id)
{
	struct shm_segment *s;

	if (id < 0)
		return NULL;
	s = segments[(unsigned)id % SHM_SEQ % SHM_MNI];
	return s != NULL && segment_id(s) == id ? s : NULL;
}

/* May current do what the permission bits in want (of any triple) stand for? */
static bool segment_permits(const struct shm_segment *s, unsigned want)
{
	const struct cred *c = current->proc->cred;
	const struct kipc_perm *p = &s->ds.perm;
	unsigned granted = p->mode;

	want |= want >> 3 | want >> 6;
	if (c->euid == p->cuid || c->euid == p->uid)
		granted >>= 6;
	else if (in_group(c, p->cgid) || in_group(c, p->gid))
		granted >>= 3;
	return (want & ~granted & 7) == 0 || capable(CAP_IPC_OWNER);
}

static bool segment_owned(const struct shm_segment *s)
{
	uint32_t euid = current->proc->cred->euid;

	return euid == s->ds.perm.uid || euid == s->ds.perm.cuid || capable(CAP_SYS_ADMIN);
}

/* ---- shmget ---- */

static long segment_new(int key, size_t size, unsigned flags)
{
	const struct cred *c = current->proc->cred;
	struct shm_segment *s;
	struct inode *i;
	char name[20];
	unsigned at;

	if (size == 0 || size > SHM_MAX)
		return -EINVAL;
	if ((flags & SHM_HUGETLB) != 0)
		return syscall_partial("shmget", "SHM_HUGETLB", -ENOMEM);
	if (segments_used == SHM_MNI)
		return -ENOSPC;
	if (size > mem_stats.total_pages << PAGE_SHIFT)
		return -ENOMEM;
	for (at = 0; segments[at] != NULL;)
		at++;
	s = kzalloc(sizeof(*s));
	i = s != NULL ? shmem_inode(ALIGN_UP(size, PAGE_SIZE)) : NULL;
	if (i == NULL) {
		kfree(s);
		return -ENOMEM;
	}
	ksnprintf(name, sizeof(name), "SYSV%08x", (unsigned)key);
	s->dentry = dentry_anon(i, name);
	if (s->dentry == NULL) {
		kfree(s);
		return -ENOMEM;
	}
	s->refs = 1;
	s->index = at;
	s->ds.perm = (struct kipc_perm){
		.key = key, .uid = c->euid, .cuid = c->euid, .gid = c->egid, .cgid = c->egid,
		.mode = flags & 0777, .seq = (uint16_t)segments_seq,
	};
	segments_seq = (segments_seq + 1) % (0x80000000u / SHM_SEQ);
	s->ds.size = size;
	s->ds.ctime = now_seconds();
	s->ds.cpid = current->proc->pid;
	segments[at] = s;
	segments_used++;
	return segment_id(s);
}

SYSCALL(shmget, int key, size_t size, int flags)
{
	struct shm_segment *s = NULL;

	for (unsigned i = 0; key != IPC_PRIVATE && i < SHM_MNI && s == NULL; i++)
		if (segments[i] != NULL && segments[i]->ds.perm.key == key)
			s = segments[i];
	if (s == NULL) {
		if (key != IPC_PRIVATE && (flags & IPC_CREAT) == 0)
			return -ENOENT;
		return segment_new(key, size, (unsigned)flags);
	}
	if ((flags & IPC_CREAT) != 0 && (flags & IPC_EXCL) != 0)
		return -EEXIST;
	if (size > s->ds.size)
		return -EINVAL;
	return segment_permits(s, (unsigned)flags & 0777) ? segment_id(s) : -EACCES;
}

/* ---- shmat, shmdt ---- */

static struct file *segment_file(struct shm_segment *s, bool write)
{
	struct file *f;

	dentry_get(s->dentry);
	f = file_new(s->dentry, &shm_fops, write ? KO_RDWR : KO_RDONLY);
	if (f == NULL)
		return NULL;
	f->priv = s;
	s->refs++;
	return f;
}

SYSCALL(shmat, int id, uintptr_t addr, int flags)
{
	struct shm_segment *s = segment_find(id);
	bool write = (flags & SHM_RDONLY) == 0, exec = (flags & SHM_EXEC) != 0;
	unsigned prot = PROT_READ | (write ? PROT_WRITE : 0) | (exec ? PROT_EXEC : 0);
	unsigned how = MAP_SHARED;
	struct file *f;
	long r;

	if (s == NULL)
		return -EINVAL;
	if ((addr & (PAGE_SIZE - 1)) != 0) {
		if ((flags & SHM_RND) == 0)
			return -EINVAL;
		addr &= ~(uintptr_t)(PAGE_SIZE - 1);
	}
	if (addr == 0 && (flags & SHM_REMAP) != 0)
		return -EINVAL;
	if (!segment_permits(s, 4u | (write ? 2u : 0) | (exec ? 1u : 0)))
		return -EACCES;
	if (addr != 0)
		how |= (flags & SHM_REMAP) != 0 ? MAP_FIXED : MAP_FIXED_NOREPLACE;
	f = segment_file(s, write);
	if (f == NULL)
		return -ENOMEM;
	r = mm_map(current->mm, addr, s->ds.size, prot, how, f, 0);
	if (r >= 0) {
		s->ds.atime = now_seconds();
		s->ds.lpid = current->proc->pid;
	}
	file_put(f);
	return r == -EEXIST ? -EINVAL : r;
}

SYSCALL(shmdt, uintptr_t addr)
{
	struct mm *mm = current->mm;
	struct shm_segment *s;
	struct file *f = NULL;
	uintptr_t at = addr;
	struct vma *v;
	uint64_t size;

	if ((addr & (PAGE_SIZE - 1)) != 0)
		return -EINVAL;
	/* Its beginning may have been unmapped: what is left says where it was. */
	for (v = mm_find(mm, addr); v != NULL && f == NULL; v = mm_find(mm, at)) {
		if (v->file != NULL && v->file->ops == &shm_fops && v->start >= addr &&
		    v->start - addr == v->pgoff << PAGE_SHIFT)
			f = v->file;
		at = v->end;
	}
	if (f == NULL)
		return -EINVAL;
	file_get(f);
	s = f->priv;
	size = ALIGN_UP(s->ds.size, PAGE_SIZE);
	for (v = mm_find(mm, addr); v != NULL && v->start < addr + size; v = mm_find(mm, at)) {
		at = v->end;
		if (v->file == f && v->start - addr == v->pgoff << PAGE_SHIFT)
			(void)mm_unmap(mm, v->start, v->end - v->start);
	}
	s->ds.dtime = now_seconds();
	s->ds.lpid = current->proc->pid;
	file_put(f);
	return 0;
}

/* ---- shmctl ---- */

static long shm_info_put(int cmd, void __user *buf)
{
	struct {
		uint64_t max, min, mni, seg, all, unused[4];
	} limits = { .max = SHM_MAX, .min = 1, .mni = SHM_MNI, .seg = SHM_MNI, .all = SHM_MAX };
	struct {
		int32_t used, pad;
		uint64_t total, resident, swapped, attempts, successes;
	} usage = { .used = (int32_t)segments_used };
	long last = 0;

	for (unsigned i = 0; i < SHM_MNI; i++) {
		if (segments[i] == NULL)
			continue;
		last = i;
		usage.total += ALIGN_UP(segments[i]->ds.size, PAGE_SIZE) >> PAGE_SHIFT;
		usage.resident += segments[i]->dentry->inode->blocks / (PAGE_SIZE / 512);
	}
	if ((cmd == IPC_INFO ? PUT_USER(limits, buf) : PUT_USER(usage, buf)) != 0)
		return -EFAULT;
	return last;
}

static long shm_stat_put(int cmd, int id, void __user *buf)
{
	struct shm_segment *s;
	struct kshmid_ds ds;

	if (cmd == IPC_STAT)
		s = segment_find(id);
	else
		s = (unsigned)id < SHM_MNI ? segments[id] : NULL;
	if (s == NULL)
		return -EINVAL;
	if (cmd != SHM_STAT_ANY && !segment_permits(s, 4))
		return -EACCES;
	ds = s->ds;
	ds.nattch = segment_attached(s);
	if (PUT_USER(ds, buf) != 0)
		return -EFAULT;
	return cmd == IPC_STAT ? 0 : segment_id(s);
}

static long shm_set(struct shm_segment *s, const void __user *buf)
{
	struct kshmid_ds ds;

	if (GET_USER(ds, buf) != 0)
		return -EFAULT;
	if (!segment_owned(s))
		return -EPERM;
	s->ds.perm.uid = ds.perm.uid;
	s->ds.perm.gid = ds.perm.gid;
	s->ds.perm.mode = (s->ds.perm.mode & ~0777u) | (ds.perm.mode & 0777);
	s->ds.ctime = now_seconds();
	return 0;
}

SYSCALL(shmctl, int id, int cmd, void __user *buf)
{
	struct shm_segment *s;

	if (id < 0 || cmd < 0)
		return -EINVAL;
	switch (cmd) {
	case IPC_INFO:
	case SHM_INFO:
		return shm_info_put(cmd, buf);
	case IPC_STAT:
	case SHM_STAT:
	case SHM_STAT_ANY:
		return shm_stat_put(cmd, id, buf);
	case IPC_RMID:
	case IPC_SET:
	case SHM_LOCK:
	case SHM_UNLOCK:
		break;
	default:
		return -EINVAL;
	}
	s = segment_find(id);
	if (s == NULL)
		return -EINVAL;
	if (cmd == IPC_SET)
		return shm_set(s, buf);
	if (!segment_owned(s) && (cmd == IPC_RMID || !capable(CAP_IPC_LOCK)))
		return -EPERM;
	if (cmd == SHM_LOCK) {		/* nothing is ever swapped */
		s->ds.perm.mode |= SHM_LOCKED;
	} else if (cmd == SHM_UNLOCK) {
		s->ds.perm.mode &= ~SHM_LOCKED;
	} else if ((s->ds.perm.mode & SHM_DEST) == 0) {
		s->ds.perm.mode |= SHM_DEST;
		s->ds.perm.key = IPC_PRIVATE;
		segment_put(s);
	}
	return 0;
}
