/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The OOM killer: the process with the most memory of its own dies, never PID 1; of equals the
 * youngest, since what a child of a shell holds in pipes or sockets is not counted to it. The
 * victim frees its memory only when it runs, so nobody else is picked while one is on its way
 * out, unless that takes very many attempts.
 *
 * Meanwhile the others find no memory either. A program that faults tries again; a system call
 * that failed waits for the end of whoever is dying and is made once more (core/syscall.c), as
 * on Linux, where the allocator waits: else a shell could not fork because of what is over.
 */
#include <linux/capability.h>

#include "guest-kernel/core/signal.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/mm/mm_internal.h"
#include "guest-kernel/mm/page.h"

#define PATIENCE	100000u		/* requests until the next victim */
#define OOM_ADJ_NEVER	(-1000)
#define STEP_BACK_NS	(20 * NSEC_PER_MSEC)

static uint32_t waited;
static bool busy;

static bool dying(const struct process *p)
{
	return p->group_exit || p->exiting;
}

/* The victim must run to free anything: whoever asks lets it go first, on the way out to the
 * program. Until then the reserve has to do. */
static bool let_it_die(void)
{
	if (current != NULL && !dying(current->proc) && !current->need_resched) {
		current->need_resched = true;
		current->vruntime += STEP_BACK_NS;
	}
	return true;
}

/* Memory that its end would free, in pages, weighed with oom_score_adj as in Linux. */
static int64_t badness(const struct process *p)
{
	int64_t pages = (int64_t)(p->mm->rss_anon + p->mm->table_pages + p->mm->rss_file / 8 +
				  p->mm->nvmas * sizeof(struct vma) / PAGE_SIZE);

	return pages + p->oom_score_adj * (int64_t)mem_stats.total_pages / 1000;
}

bool oom_kill(void)
{
	struct process *p, *victim = NULL;
	int64_t worst = 0;

	if (busy)
		return false;
	TAILQ_FOREACH(p, &all_processes, all_link) {
		if (p->pid == 1 || p->zombie || p->mm == NULL ||
		    p->oom_score_adj == OOM_ADJ_NEVER)
			continue;
		if (dying(p) && waited < PATIENCE) {
			waited++;
			return let_it_die();
		}
		if (!dying(p) && (victim == NULL || badness(p) >= worst)) {
			victim = p;
			worst = badness(p);
		}
	}
	waited = 0;
	if (victim == NULL)
		return false;
	mem_stats.oom_kills++;
	busy = true;
	printk("out of memory: killing process %d (%s), %lu KiB\n", victim->pid, victim->comm,
	       victim->mm->rss_anon * (PAGE_SIZE / 1024));
	process_kill(victim, KSIGKILL);
	busy = false;
	return let_it_die();
}

struct process *oom_dying(void)
{
	struct process *p;

	if (!page_short())
		return NULL;
	TAILQ_FOREACH(p, &all_processes, all_link)
		if (dying(p) && !p->zombie && p != current->proc)
			break;
	return p;
}
