/* SPDX-License-Identifier: Apache-2.0 */
/* The command `casemate`: its verbs and what they share. */
#ifndef CASEMATE_TOOLS_CASEMATE_H
#define CASEMATE_TOOLS_CASEMATE_H

/* Exit statuses of Casemate itself, as env(1), timeout(1) and shells have them. */
#define EXIT_TIMEOUT	124
#define EXIT_CASEMATE	125	/* Casemate failed, with one line on stderr */
#define EXIT_CANNOT_RUN	126
#define EXIT_NOT_FOUND	127

/* One line on stderr: "casemate: <text>". Returns EXIT_CASEMATE. */
int casemate_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The verb that runs, for messages. */
extern const char *casemate_verb;

/* A verb; argv[0] is its name. Returns the exit status. */
int cmd_run(int argc, char **argv);
int cmd_image(int argc, char **argv);
int cmd_snapshot(int argc, char **argv);	/* of files */
int cmd_vm_snapshot(int argc, char **argv);	/* of a VM */
int cmd_exec(int argc, char **argv);
int cmd_connect(int argc, char **argv);
int cmd_forward(int argc, char **argv);
int cmd_forwards(int argc, char **argv);
int cmd_unforward(int argc, char **argv);
int cmd_ls(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_cp(int argc, char **argv);
int cmd_cat(int argc, char **argv);
int cmd_stat(int argc, char **argv);
int cmd_mkdir(int argc, char **argv);
int cmd_mv(int argc, char **argv);
int cmd_rm(int argc, char **argv);
int cmd_chmod(int argc, char **argv);
int cmd_watch(int argc, char **argv);
int cmd_kill(int argc, char **argv);
int cmd_pause(int argc, char **argv);
int cmd_resume(int argc, char **argv);
int cmd_suspend(int argc, char **argv);
int cmd_fork(int argc, char **argv);
int cmd_restore(int argc, char **argv);
int cmd_template(int argc, char **argv);
int cmd_pool(int argc, char **argv);
int cmd_events(int argc, char **argv);
int cmd_metrics(int argc, char **argv);
int cmd_stop(int argc, char **argv);
int cmd_doctor(int argc, char **argv);

#endif
