/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoding of host-to-guest frames: pure functions over a buffer, no state, no system
 * calls, so that unit tests and the fuzzer run them as they are. One table says for each
 * type which lengths, ids and flags it allows; what depends on the state of an exec (an
 * id in use, a credit left) is checked by exec.c before it acts.
 */
#include <string.h>
#include "initd/frame.h"

enum id_rule { ID_ZERO, ID_EXEC };

static const struct rule {
	uint16_t type;
	uint16_t flags; /* those allowed */
	enum id_rule id;
	uint32_t min, max; /* payload bytes */
} rules[] = {
	{CM_F_RESUME, 0, ID_ZERO, sizeof(struct cm_resume), sizeof(struct cm_resume)},
	/* At least one argument and the directory: two zero bytes. */
	{CM_F_EXEC, CM_EXEC_TTY | CM_EXEC_STDIN | CM_EXEC_BUILTIN, ID_EXEC,
	 sizeof(struct cm_exec) + 2, CM_FRAME_MAX},
	{CM_F_STDIN, 0, ID_EXEC, 0, CM_FRAME_MAX},
	{CM_F_SIGNAL, 0, ID_EXEC, 4, 4},
	{CM_F_RESIZE, 0, ID_EXEC, 4, 4},
	{CM_F_SHUTDOWN, 0, ID_ZERO, 0, 0},
	{CM_F_REPORT_GET, 0, ID_ZERO, 0, 0},
	{CM_F_CREDIT, 0, ID_EXEC, sizeof(struct cm_credit), sizeof(struct cm_credit)},
};

uint32_t frame_u32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
	       (uint32_t)p[3] << 24;
}

uint16_t frame_u16(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

static const struct rule *rule_find(uint16_t type)
{
	size_t i;

	for (i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
		if (rules[i].type == type)
			return &rules[i];
	return NULL;
}

static const char *head_check(const struct frame *f, uint32_t reserved)
{
	const struct rule *rule = rule_find(f->type);

	if (!rule)
		return "unknown frame type";
	if (reserved)
		return "reserved field is not 0";
	if (f->flags & ~rule->flags)
		return "unknown flags";
	if (rule->id == ID_ZERO && f->id)
		return "id must be 0 for this type";
	if (rule->id == ID_EXEC && !f->id)
		return "id must not be 0 for this type";
	if (f->length < rule->min || f->length > rule->max)
		return "wrong length for this type";
	return NULL;
}

enum frame_result frame_decode(const uint8_t *buf, size_t size, struct frame *ret,
			       size_t *ret_used, const char **ret_why)
{
	if (size < sizeof(struct cm_frame))
		return FRAME_MORE;
	ret->length = frame_u32(buf);
	ret->type = frame_u16(buf + 4);
	ret->flags = frame_u16(buf + 6);
	ret->id = frame_u32(buf + 8);
	ret->payload = buf + sizeof(struct cm_frame);
	if (ret->length > CM_FRAME_MAX) {
		*ret_why = "frame longer than CM_FRAME_MAX: framing is lost";
		return FRAME_LOST;
	}
	if (size - sizeof(struct cm_frame) < ret->length)
		return FRAME_MORE;
	*ret_used = sizeof(struct cm_frame) + ret->length;
	*ret_why = head_check(ret, frame_u32(buf + 12));
	return *ret_why ? FRAME_BAD : FRAME_OK;
}

/* The next zero-terminated string of [*p, end), NULL when no zero byte is left. */
static char *string_take(const uint8_t **p, const uint8_t *end)
{
	const uint8_t *start = *p;
	const uint8_t *zero = memchr(start, 0, (size_t)(end - start));

	if (!zero)
		return NULL;
	*p = zero + 1;
	return (char *)(uintptr_t)start; /* execve() wants char *; nobody writes to it */
}

const char *frame_parse_exec(const struct frame *frame, struct frame_exec *ret)
{
	const uint8_t *p = frame->payload + sizeof(struct cm_exec);
	const uint8_t *end = frame->payload + frame->length;
	struct cm_exec *head = &ret->head;
	const char *equals;
	uint32_t i;

	memcpy(head, frame->payload, sizeof(*head));
	if (head->argc < 1 || head->argc > CM_EXEC_STRINGS)
		return "argc out of range";
	if (head->envc > CM_EXEC_STRINGS)
		return "envc out of range";
	if (head->reserved)
		return "reserved field of exec is not 0";
	if (!(frame->flags & CM_EXEC_TTY) && (head->rows || head->columns))
		return "terminal size without a terminal";
	if ((frame->flags & CM_EXEC_TTY) && (frame->flags & CM_EXEC_BUILTIN))
		return "a builtin has no terminal";
	for (i = 0; i < head->argc; i++)
		if (!(ret->argv[i] = string_take(&p, end)))
			return "arguments end early";
	ret->argv[i] = NULL;
	for (i = 0; i < head->envc; i++) {
		if (!(ret->envp[i] = string_take(&p, end)))
			return "environment ends early";
		equals = strchr(ret->envp[i], '=');
		if (!equals || equals == ret->envp[i])
			return "environment entry is not NAME=value";
	}
	ret->envp[i] = NULL;
	ret->cwd = string_take(&p, end);
	if (!ret->cwd)
		return "working directory missing";
	if (p != end)
		return "bytes after the working directory";
	if (!*ret->cwd)
		ret->cwd = "/";
	return NULL;
}
