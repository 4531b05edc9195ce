/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target of the messages between casemated's two processes. The first byte says whose
 * message it is, the second how many descriptors come along. What decodes must be the bytes
 * that came, within all bounds, and no other side's.
 */
#include <stdlib.h>
#include <string.h>

#include "abi/layout.h"
#include "pool/boundary.h"
#include "snapshot/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool true_one)
{
	if (!true_one)
		abort();
}

static void engine_check(const struct boundary_message *m, unsigned int fds)
{
	switch (m->kind) {
	case BOUNDARY_SPAWN:
		must(m->id > 0 && m->memory > 0 && m->memory <= CM_RAM_MAX);
		must(m->count <= SNAPSHOT_CHAIN_MAX && fds >= 1 + m->count);
		must(fds == 1 + m->count + (m->flags & BOUNDARY_IMAGE));
		must(m->pid == 0 && m->of == 0);
		break;
	case BOUNDARY_CHILD:
		must(m->id > 0 && m->of > 0 && m->of != m->id && m->pid > 1 && fds == 0);
		must(m->pid <= INT32_MAX && m->memory > 0 && m->memory <= CM_RAM_MAX);
		break;
	case BOUNDARY_KILL:
		must(m->id > 0 && fds == 0 && m->pid == 0);
		break;
	default:
		must(m->kind == BOUNDARY_READY && m->id == 0 && fds == 0);
		break;
	}
	must(m->text[0] == '\0');
}

static void parent_check(const struct boundary_message *m, unsigned int fds)
{
	must(fds == 0 && memchr(m->text, 0, sizeof(m->text)) && m->memory == 0);
	switch (m->kind) {
	case BOUNDARY_SPAWNED:
		must(m->id > 0 && (m->pid > 1 || m->error > 0) && !(m->pid && m->error));
		break;
	case BOUNDARY_EXITED:
		must(m->id > 0 && m->status >= -1 && m->pid == 0);
		break;
	default:
		must(m->kind == BOUNDARY_START || m->kind == BOUNDARY_STOP);
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct boundary_message m, untouched;
	const char *why = NULL;
	bool from_engine;
	unsigned int fds;

	if (size < 2)
		return 0;
	from_engine = data[0] & 1;
	fds = data[1] % (FD_SEND_MAX + 1);
	memset(&m, 0x5a, sizeof(m));
	untouched = m;
	if (boundary_decode(from_engine, data + 2, size - 2, fds, &m, &why) < 0) {
		must(why && why[0] && !memcmp(&m, &untouched, sizeof(m)));
		return 0;
	}
	must(size - 2 == sizeof(m) && !memcmp(&m, data + 2, sizeof(m)));
	if (from_engine)
		engine_check(&m, fds);
	else
		parent_check(&m, fds);
	/* What one side may say the other may not. */
	must(boundary_decode(!from_engine, data + 2, size - 2, fds, &m, &why) < 0);
	return 0;
}
