/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of proc/, and what they ask of other folders beyond their headers. */
#ifndef PROC_PROC_H
#define PROC_PROC_H

#include "guest-kernel/core/task.h"
#include "guest-kernel/fs/vfs.h"
#include "guest-kernel/lib/kernel.h"
#include "guest-kernel/proc/pseudo.h"

extern const struct fs_type proc_type, sysfs_type;

#define CLOCK_TICK_NS	10000000ULL	/* USER_HZ = 100 */

/* pid.c */
extern const struct pseudo_entry proc_pid_dir;	/* made for each process */
struct dentry *proc_root_lookup(struct dentry *dir, const char *name, size_t len);
int proc_root_readdir(struct file *f, struct readdir_ctx *ctx);
int proc_parse_int(const char *s, long *ret);	/* whole string but blanks; 0 or -EINVAL */

/* For pidfd_send_signal(2), which takes an open /proc/PID too: its process, with a reference,
 * or NULL when f is something else. */
struct process *proc_file_process(const struct file *f);

/* pidtext.c */
struct task *proc_node_task(const struct pseudo_node *n);	/* NULL: none lives */
char proc_task_state(const struct pseudo_node *n);
int proc_stat_show(struct strbuf *sb, const struct pseudo_node *n);
int proc_statm_show(struct strbuf *sb, const struct pseudo_node *n);
int proc_status_show(struct strbuf *sb, const struct pseudo_node *n);
int proc_limits_show(struct strbuf *sb, const struct pseudo_node *n);
int proc_smaps_rollup_show(struct strbuf *sb, const struct pseudo_node *n);
int proc_allow_ptrace(const struct pseudo_node *n);	/* 0 or -EACCES */

/* pidfiles.c */
struct dentry *proc_fd_lookup(struct dentry *dir, const char *name, size_t len);
int proc_fd_readdir(struct file *f, struct readdir_ctx *ctx);

/* sysctl.c, cpuinfo.c */
extern const struct pseudo_entry proc_sys_entries[];
int proc_cpuinfo_show(struct strbuf *sb, const struct pseudo_node *n);

/* ---- of others ---- */
/* fs/ */
void mounts_show(struct strbuf *sb);
void mountinfo_show(struct strbuf *sb);
void filesystems_show(struct strbuf *sb);
void locks_show(struct strbuf *sb);
/* arch/, boot */
extern const char *kernel_cmdline;	/* the boot arguments: drv/fdt.c */

#endif
