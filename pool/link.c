/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine's side of the boundary (boundary.h): asks the parent for processes, and brings
 * VMs its answers. What the parent says of a VM that is not there any more is dropped.
 */
#include "pool/vm.h"

#include <errno.h>

int link_spawn(struct vm *vm, uint32_t flags, uint32_t snapshots, const int *fds,
	       unsigned int fd_count)
{
	const struct boundary_message m = { .kind = BOUNDARY_SPAWN, .id = vm->number,
					    .flags = flags, .memory = vm->memory,
					    .count = snapshots };
	int r = boundary_send(&vm->pool->parent, &m, fds, fd_count);

	if (r == 0)
		vm->process = VM_PROCESS_ASKED;
	return r;
}

int link_child(struct vm *vm, const struct vm *source, pid_t pid)
{
	const struct boundary_message m = { .kind = BOUNDARY_CHILD, .id = vm->number,
					    .of = source->number, .memory = vm->memory,
					    .pid = (uint32_t)pid };
	int r = boundary_send(&vm->pool->parent, &m, NULL, 0);

	if (r == 0)
		vm->process = VM_PROCESS_ASKED;
	return r;
}

void link_kill(struct vm *vm)
{
	const struct boundary_message m = { .kind = BOUNDARY_KILL, .id = vm->number };

	/* A parent that does not hear it is gone, and VMs and we with it. */
	if (vm->process != VM_PROCESS_NONE)
		boundary_send(&vm->pool->parent, &m, NULL, 0);
}

int pool_ready(struct pool *pool)
{
	const struct boundary_message m = { .kind = BOUNDARY_READY };

	return boundary_send(&pool->parent, &m, NULL, 0);
}

static struct vm *find(struct pool *pool, uint64_t number)
{
	struct vm *vm;

	list_for_each(vm, &pool->vms, struct vm, link) {
		if (vm->number == number)
			return vm;
	}
	return NULL;
}

static void on_message(struct boundary *b, const struct boundary_message *m, int *fds)
{
	struct pool *pool = list_entry(b, struct pool, parent);
	struct vm *vm = m->id ? find(pool, m->id) : NULL;

	switch (m->kind) {
	case BOUNDARY_START:
		pool->confined = m->flags;
		pool->start(pool, m->text);
		break;
	case BOUNDARY_STOP:
		pool->stop(pool);
		break;
	case BOUNDARY_SPAWNED:
		if (vm && vm->process == VM_PROCESS_ASKED)
			vm_process_known(vm, (pid_t)m->pid, m->error, m->text);
		break;
	case BOUNDARY_EXITED:
		if (vm && vm->process == VM_PROCESS_RUNS)
			vm_process_gone(vm, m->status);
		break;
	default:
		break;
	}
}

static void on_lost(struct boundary *b, const char *why)
{
	struct pool *pool = list_entry(b, struct pool, parent);

	pool->orphaned(pool, why ? why : "the parent is gone");
}

int link_open(struct pool *pool, int socket)
{
	pool->parent.message = on_message;
	pool->parent.lost = on_lost;
	return boundary_init(&pool->parent, pool->loop, socket, false);
}
