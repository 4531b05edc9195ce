/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The channel's frames: one table of rules, a check of the header as soon as its 16 bytes are
 * there (so that a bad length costs nothing), a check of the payload when it is whole.
 */
#include "base/frame.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum id_rule { ID_VM, ID_EXEC, ID_ANY };

struct frame_rule {
	uint16_t type;
	uint8_t dirs;	/* set of enum frame_dir */
	uint8_t id;	/* enum id_rule */
	uint16_t flags;	/* those allowed */
	uint32_t min;	/* payload bytes */
	uint32_t max;
	const char *name;
};

#define GUEST_ONLY	FRAME_GUEST_TO_VMM
#define UP		(FRAME_GUEST_TO_VMM | FRAME_VMM_TO_CLIENT)
#define DOWN		(FRAME_CLIENT_TO_VMM | FRAME_VMM_TO_GUEST)
#define CLIENT_ONLY	FRAME_VMM_TO_CLIENT
#define EXACT(type)	sizeof(type), sizeof(type)
#define EXEC_FLAGS	(CM_EXEC_TTY | CM_EXEC_STDIN | CM_EXEC_BUILTIN)

static const struct frame_rule rules[] = {
	{ CM_F_HELLO, GUEST_ONLY, ID_VM, 0, EXACT(struct cm_hello), "HELLO" },
	{ CM_F_RESUMED, GUEST_ONLY, ID_VM, 0, EXACT(struct cm_resumed), "RESUMED" },
	{ CM_F_STARTED, UP, ID_EXEC, 0, EXACT(uint32_t), "STARTED" },
	{ CM_F_FAILED, UP, ID_EXEC, 0, EXACT(struct cm_failed), "FAILED" },
	{ CM_F_STDOUT, UP, ID_EXEC, 0, 0, CM_FRAME_MAX, "STDOUT" },
	{ CM_F_STDERR, UP, ID_EXEC, 0, 0, CM_FRAME_MAX, "STDERR" },
	{ CM_F_EXIT, UP, ID_EXEC, 0, EXACT(struct cm_exit), "EXIT" },
	{ CM_F_LOG, UP, ID_VM, 0, 0, CM_FRAME_MAX, "LOG" },
	{ CM_F_ERROR, UP, ID_ANY, 0, 0, CM_FRAME_MAX, "ERROR" },
	{ CM_F_REPORT, UP, ID_VM, 1, 0, CM_FRAME_MAX, "REPORT" },
	{ CM_F_RUNNING, UP, ID_EXEC, EXEC_FLAGS, EXACT(struct cm_running), "RUNNING" },
	{ CM_F_RESUME, FRAME_VMM_TO_GUEST, ID_VM, 0, EXACT(struct cm_resume), "RESUME" },
	{ CM_F_EXEC, DOWN, ID_EXEC, EXEC_FLAGS, sizeof(struct cm_exec) + 2, CM_FRAME_MAX,
	  "EXEC" },
	{ CM_F_STDIN, DOWN, ID_EXEC, 0, 0, CM_FRAME_MAX, "STDIN" },
	{ CM_F_SIGNAL, DOWN, ID_EXEC, 0, EXACT(uint32_t), "SIGNAL" },
	{ CM_F_RESIZE, DOWN, ID_EXEC, 0, EXACT(uint16_t[2]), "RESIZE" },
	{ CM_F_SHUTDOWN, DOWN, ID_VM, 0, 0, 0, "SHUTDOWN" },
	{ CM_F_REPORT_GET, DOWN, ID_VM, 0, 0, 0, "REPORT_GET" },
	{ CM_F_CREDIT, UP | DOWN, ID_EXEC, 0, EXACT(struct cm_credit), "CREDIT" },
	{ CM_F_VM_BOOTED, CLIENT_ONLY, ID_VM, 0, EXACT(struct cm_vm_booted), "VM_BOOTED" },
	{ CM_F_VM_END, CLIENT_ONLY, ID_VM, 0, sizeof(struct cm_vm_end), CM_FRAME_MAX,
	  "VM_END" },
	{ CM_F_VM_CONSOLE, CLIENT_ONLY, ID_VM, 0, 0, CM_FRAME_MAX, "VM_CONSOLE" },
	{ CM_F_VM_LOG, CLIENT_ONLY, ID_VM, 0, 0, CM_FRAME_MAX, "VM_LOG" },
	{ CM_F_VM_SAVED, CLIENT_ONLY, ID_VM, 0, sizeof(struct cm_vm_saved), CM_FRAME_MAX,
	  "VM_SAVED" },
	{ CM_F_VM_FORKED, CLIENT_ONLY, ID_VM, 0, sizeof(struct cm_vm_forked), CM_FRAME_MAX,
	  "VM_FORKED" },
	{ CM_F_VM_PAUSED, CLIENT_ONLY, ID_VM, 0, sizeof(struct cm_vm_paused), CM_FRAME_MAX,
	  "VM_PAUSED" },
	{ CM_F_VM_CONTINUED, CLIENT_ONLY, ID_VM, 0, sizeof(struct cm_vm_paused), CM_FRAME_MAX,
	  "VM_CONTINUED" },
	{ CM_F_VM_SAVE, FRAME_CLIENT_TO_VMM, ID_VM, CM_SAVE_TRACK | CM_SAVE_INCREMENTAL, 0, 0,
	  "VM_SAVE" },
	{ CM_F_VM_FORK, FRAME_CLIENT_TO_VMM, ID_VM, 0, EXACT(struct cm_vm_fork), "VM_FORK" },
	{ CM_F_VM_PAUSE, FRAME_CLIENT_TO_VMM, ID_VM, 0, 0, 0, "VM_PAUSE" },
	{ CM_F_VM_CONTINUE, FRAME_CLIENT_TO_VMM, ID_VM, 0, 0, 0, "VM_CONTINUE" },
};

static const struct frame_rule *rule_find(uint16_t type)
{
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		if (rules[i].type == type)
			return &rules[i];
	}
	return NULL;
}

const char *frame_type_name(uint16_t type)
{
	const struct frame_rule *rule = rule_find(type);

	return rule ? rule->name : "unknown";
}

const char *frame_check_head(enum frame_dir dir, const struct cm_frame *head)
{
	const struct frame_rule *rule = rule_find(head->type);

	if (!rule)
		return "unknown frame type";
	if (!(rule->dirs & dir))
		return "frame type of the wrong direction";
	if (head->reserved != 0)
		return "reserved header field not zero";
	if (head->flags & ~rule->flags)
		return "frame flags not allowed for its type";
	if (rule->id == ID_VM && head->id != 0)
		return "frame id not zero";
	if (rule->id == ID_EXEC && head->id == 0)
		return "frame id zero";
	if (head->length < rule->min || head->length > rule->max)
		return "frame length not allowed for its type";
	return NULL;
}

static const char *check_exec(const struct cm_frame *head, const uint8_t *payload)
{
	struct cm_exec exec;
	uint32_t strings, seen = 0;
	const uint8_t *at = payload + sizeof(exec);
	const uint8_t *end = payload + head->length;

	memcpy(&exec, payload, sizeof(exec));
	if (exec.argc < 1 || exec.argc > CM_EXEC_STRINGS || exec.envc > CM_EXEC_STRINGS)
		return "EXEC with a number of strings out of range";
	if (exec.reserved != 0)
		return "EXEC reserved field not zero";
	if (!(head->flags & CM_EXEC_TTY) && (exec.rows || exec.columns))
		return "EXEC with a terminal size but no terminal";
	if ((head->flags & CM_EXEC_TTY) && (head->flags & CM_EXEC_BUILTIN))
		return "EXEC of a builtin on a terminal";
	strings = exec.argc + exec.envc + 1;
	while (at < end) {
		const uint8_t *zero = memchr(at, 0, (size_t)(end - at));

		if (!zero)
			return "EXEC string without an end";
		if (seen >= exec.argc && seen < exec.argc + exec.envc &&
		    (*at == '=' || !memchr(at, '=', (size_t)(zero - at))))
			return "EXEC environment string without a name";
		at = zero + 1;
		seen++;
	}
	return seen == strings ? NULL : "EXEC with a wrong number of strings";
}

static const char *check_credit(const uint8_t *payload)
{
	struct cm_credit credit;

	memcpy(&credit, payload, sizeof(credit));
	if (credit.bytes < 1 || credit.bytes > CM_CREDIT_INITIAL)
		return "CREDIT out of range";
	if (credit.stream != CM_F_STDIN && credit.stream != CM_F_STDOUT &&
	    credit.stream != CM_F_STDERR)
		return "CREDIT for an unknown stream";
	return NULL;
}

static const char *check_running(const uint8_t *payload)
{
	struct cm_running running;

	memcpy(&running, payload, sizeof(running));
	return running.stdin_credit > CM_CREDIT_INITIAL ? "RUNNING credit out of range" : NULL;
}

static const char *check_fork(const uint8_t *payload)
{
	struct cm_vm_fork fork;

	memcpy(&fork, payload, sizeof(fork));
	if (fork.count < 1 || fork.count > CM_VM_FORK_MAX)
		return "VM_FORK with a number of children out of range";
	return fork.reserved ? "VM_FORK reserved field not zero" : NULL;
}

const char *frame_check_payload(const struct cm_frame *head, const uint8_t *payload)
{
	struct cm_hello hello;
	struct cm_exit status;
	uint32_t number;

	switch (head->type) {
	case CM_F_HELLO:
		memcpy(&hello, payload, sizeof(hello));
		return hello.reserved ? "HELLO reserved field not zero" : NULL;
	case CM_F_EXIT:
		memcpy(&status, payload, sizeof(status));
		return status.reserved ? "EXIT reserved field not zero" : NULL;
	case CM_F_SIGNAL:
		memcpy(&number, payload, sizeof(number));
		return number < 1 || number > 64 ? "SIGNAL number out of range" : NULL;
	case CM_F_EXEC:
		return check_exec(head, payload);
	case CM_F_CREDIT:
		return check_credit(payload);
	case CM_F_RUNNING:
		return check_running(payload);
	case CM_F_VM_FORK:
		return check_fork(payload);
	default:
		return NULL;
	}
}

static int string_add(uint8_t *payload, size_t *used, const char *text)
{
	size_t n = strlen(text) + 1;

	if (n > CM_FRAME_MAX - *used)
		return -E2BIG;
	memcpy(payload + *used, text, n);
	*used += n;
	return 0;
}

int frame_exec(uint8_t *payload, const struct cm_exec *head, const char *const *argv,
	       const char *const *env, const char *cwd, struct err *err)
{
	size_t used = sizeof(*head);
	int r = head->argc > CM_EXEC_STRINGS || head->envc > CM_EXEC_STRINGS ? -E2BIG : 0;

	memcpy(payload, head, sizeof(*head));
	for (uint32_t i = 0; i < head->argc && r == 0; i++)
		r = string_add(payload, &used, argv[i]);
	for (uint32_t i = 0; i < head->envc && r == 0; i++)
		r = string_add(payload, &used, env[i]);
	if (r == 0)
		r = string_add(payload, &used, cwd);
	if (r < 0)
		return err_set(err, E2BIG, "the command's arguments and environment are too "
			       "long: %u bytes are possible", CM_FRAME_MAX);
	return (int)used;
}

int frame_decoder_init(struct frame_decoder *decoder, enum frame_dir dir)
{
	*decoder = (struct frame_decoder){ .dir = dir, .bytes = malloc(FRAME_BYTES_MAX) };
	return decoder->bytes ? 0 : -ENOMEM;
}

void frame_decoder_done(struct frame_decoder *decoder)
{
	free(decoder->bytes);
	decoder->bytes = NULL;
}

/* Copies until the decoder holds `want` bytes. Returns whether it does. */
static bool decoder_fill(struct frame_decoder *decoder, size_t want, const uint8_t *data,
			 size_t len, size_t *used)
{
	size_t n = want - decoder->have;

	if (n > len - *used)
		n = len - *used;
	if (n > 0)
		memcpy(decoder->bytes + decoder->have, data + *used, n);
	decoder->have += n;
	*used += n;
	return decoder->have == want;
}

/* A stream a CREDIT may speak of depends on which way it goes: the receiver grants. */
static const char *check_credit_direction(const struct frame_decoder *decoder,
					  const uint8_t *payload)
{
	struct cm_credit credit;
	bool to_guest = decoder->dir & DOWN;

	memcpy(&credit, payload, sizeof(credit));
	if (to_guest != (credit.stream != CM_F_STDIN))
		return "CREDIT for a stream of the wrong direction";
	return NULL;
}

int frame_decoder_feed(struct frame_decoder *decoder, const uint8_t *data, size_t len,
		       size_t *ret_used, struct frame *ret_frame)
{
	struct cm_frame head;
	const uint8_t *payload = decoder->bytes + sizeof(head);
	bool fresh;

	*ret_used = 0;
	if (decoder->why)
		return -EPROTO;
	if (decoder->whole) {
		decoder->whole = false;
		decoder->have = 0;
	}
	fresh = decoder->have < sizeof(head);
	if (fresh && !decoder_fill(decoder, sizeof(head), data, len, ret_used))
		return 0;
	memcpy(&head, decoder->bytes, sizeof(head));
	if (fresh) {
		decoder->why = frame_check_head(decoder->dir, &head);
		if (decoder->why)
			return -EPROTO;
	}
	if (!decoder_fill(decoder, sizeof(head) + head.length, data, len, ret_used))
		return 0;
	decoder->why = frame_check_payload(&head, payload);
	if (!decoder->why && head.type == CM_F_CREDIT)
		decoder->why = check_credit_direction(decoder, payload);
	if (decoder->why)
		return -EPROTO;
	decoder->whole = true;
	*ret_frame = (struct frame){
		.head = head,
		.bytes = decoder->bytes,
		.size = sizeof(head) + head.length,
		.payload = payload,
	};
	return 1;
}

struct cm_frame frame_head(uint16_t type, uint16_t flags, uint32_t id, uint32_t length)
{
	return (struct cm_frame){ .length = length, .type = type, .flags = flags, .id = id };
}

void frame_text_clean(char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];

		if ((c < 32 && c != '\n' && c != '\t') || c > 126)
			text[i] = '.';
	}
}
