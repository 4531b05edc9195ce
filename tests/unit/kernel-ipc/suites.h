/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KERNEL_IPC_SUITES_H
#define KERNEL_IPC_SUITES_H

void suite_pipe(void);
void suite_tty(void);
void suite_unix(void);
void suite_proc(void);

#endif
