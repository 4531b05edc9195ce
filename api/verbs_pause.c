/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs that make VMs stand still: pause, resume, suspend. */
#include "api/server.h"

#include <errno.h>

static int stand(const struct request *q,
		 int (*how)(struct vm *vm, struct waiter *waiter, struct err *err))
{
	struct vm *vm = request_vm(q, q->line->words[1]);
	struct err err = ERR_INIT;
	struct pending *p;
	int r;

	if (!vm)
		return -ENOENT;
	r = options_known(q, 2, "");
	if (r < 0)
		return r;
	p = pending_new(q, sizeof(*p), pending_done);
	if (!p)
		return -ENOMEM;
	r = how(vm, &p->waiter, &err);
	if (r < 0) {
		reply_err(q->client, q->line->tag, &err);
		pending_end(p);
	}
	return r;
}

static int verb_pause(const struct request *q)
{
	return stand(q, vm_pause);
}

static int verb_resume(const struct request *q)
{
	return stand(q, vm_resume);
}

static int verb_suspend(const struct request *q)
{
	return stand(q, vm_suspend);
}

const struct verb verbs_pause[] = {
	{ "pause", verb_pause, 2, "pause VM", false },
	{ "resume", verb_resume, 2, "resume VM", false },
	{ "suspend", verb_suspend, 2, "suspend VM", false },
	{ NULL, NULL, 0, NULL, false },
};
