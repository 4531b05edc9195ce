/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filesystems whose files are functions: procfs and sysfs. A directory is a static table of
 * entries; inodes and dentries are made on lookup. See pseudo.c.
 */
#ifndef PROC_PSEUDO_H
#define PROC_PSEUDO_H

#include "guest-kernel/lib/kernel.h"

struct dentry;
struct file;
struct inode;
struct process;
struct pseudo_entry;
struct readdir_ctx;
struct superblock;
struct task;

/* What an inode stands for. proc is referenced; tid 0: the process, not one thread. */
struct pseudo_node {
	const struct pseudo_entry *e;
	struct process *proc;
	int tid;
	int fd;
};

struct pseudo_entry {
	const char *name;		/* NULL ends a table */
	uint32_t mode;			/* with type */
	/* Contents; 0 or negative errno. */
	int (*show)(struct strbuf *sb, const struct pseudo_node *n);
	/* buf is zero-ended; bytes taken (as a rule len) or negative errno. */
	long (*store)(const struct pseudo_node *n, char *buf, size_t len);
	const struct pseudo_entry *children;
	/* Directories with more than the table: tried after it. */
	struct dentry *(*lookup)(struct dentry *dir, const char *name, size_t len);
	/* Entries behind the table; positions from PSEUDO_DYNAMIC on. */
	int (*readdir)(struct file *f, struct readdir_ctx *ctx);
	/* Symbolic links: text, and the target itself for magic ones. */
	int (*readlink)(const struct pseudo_node *n, char *buf, size_t size);
	struct dentry *(*follow)(const struct pseudo_node *n);
	/* May the caller open, list or follow it? 0 or negative errno. NULL: by mode alone. */
	int (*allow)(const struct pseudo_node *n);
	/* Owner is the process's user, not root. */
	bool owned;
};
#define PSEUDO_DYNAMIC	256u

#define PSEUDO_FILE(n, m, s)	{ .name = (n), .mode = KS_IFREG | (m), .show = (s) }
#define PSEUDO_DIR(n, c)	{ .name = (n), .mode = KS_IFDIR | 0555, .children = (c) }

/* Makes the dentry of an entry; takes a process reference of its own. ERR_PTR on failure. */
struct dentry *pseudo_make(struct dentry *dir, const char *name, size_t len,
			   const struct pseudo_node *n);
int pseudo_mount(struct superblock *sb, const struct pseudo_entry *root);
uint64_t pseudo_ino(const struct pseudo_node *n);
const struct pseudo_node *pseudo_node_of(const struct inode *i);

/* Used by other directories too. False: the reader's buffer is full. */
bool pseudo_emit_dots(struct file *f, struct readdir_ctx *ctx);
long pseudo_dir_lseek(struct file *f, int64_t off, int whence);

#endif
