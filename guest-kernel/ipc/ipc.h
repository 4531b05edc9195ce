/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of ipc/. */
#ifndef IPC_IPC_H
#define IPC_IPC_H

#include "guest-kernel/lib/kernel.h"

struct attr;
struct fs_type;
struct inode;

/* setattr of inodes that live in no filesystem (pipes, sockets, terminals): owner, mode and
 * times are simply kept. */
int ipc_setattr(struct inode *i, const struct attr *a);

/* Rows of fs_types[] (fs/super.c). */
extern const struct fs_type devtmpfs_type, devpts_type;

#endif
