/* SPDX-License-Identifier: Apache-2.0 */
/* `casemate run --save`: when the VM is saved, and what comes of it; see run_state.h. */
#include "tools/casemate/run_state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "tools/casemate/casemate.h"
#include "tools/casemate/progress.h"

bool run_saving(const struct run *run)
{
	return run->save_due && !run->save_done && !run->stop;
}

void run_save_on_exit(struct run *run)
{
	const struct run_options *o = run->options;

	if (!o->save || run->save_due)
		return;
	if (o->ready_line)
		err_set(&run->err, ECHILD, "nothing was saved: the command ended before it "
			"said \"%s\"", o->ready_line);
	else if (run->status)
		err_set(&run->err, ECHILD, "nothing was saved: the command failed");
	else
		run->save_due = true;
	if (run->err.code && !run->status)
		run->status = EXIT_CASEMATE;
}

/* The request travels with a descriptor, so it goes out by itself and not through to_vmm. */
void run_save_step(struct run *run)
{
	if (!run_saving(run) || run->save_asked || run->to_vmm.len > 0)
		return;
	run->save_asked = true;
	if (save_request(&run->save, run->channel, run->options->incremental, &run->err) < 0) {
		run->exited = false;
		run_failed(run);
	}
}

void run_save_answered(struct run *run, const struct frame *frame)
{
	struct cm_vm_saved saved;
	const char *text = (const char *)frame->payload + sizeof(saved);
	struct snapshot_id id;

	memcpy(&saved, frame->payload, sizeof(saved));
	if (!run->save_asked || run->save_done) {
		run_protocol_error(run, "an answer to nothing");
		return;
	}
	run->save_done = true;
	progress_show(NULL);
	memcpy(id.digest, saved.id, sizeof(id.digest));
	if (saved.error)
		err_set(&run->err, (int)saved.error, "the snapshot was not saved: %.*s",
			(int)(frame->head.length - sizeof(saved)), text);
	if (saved.error || save_commit(&run->save, &id, &run->err) < 0) {
		run->exited = false;
		run_failed(run);
		return;
	}
	if (run->options->verbose)
		fprintf(stderr, "casemate: saved; the guest stood still for %.2f ms\n",
			(double)saved.pause_ns / 1e6);
	if (run->options->ready_line) {
		run->exited = false;
		run_stop(run, 0);
	}
}

void run_save_show(const struct run *run)
{
	uint64_t bytes;

	/* The line that the command left open is not ours to write over. */
	if (run->out[0].midline || run->out[1].midline)
		return;
	if (run->save_asked && !run->save_done && progress_wanted() &&
	    fd_disk_bytes(run->save.file.fd, &bytes) == 0)
		progress_bytes("saving the VM", bytes, 0);
}
