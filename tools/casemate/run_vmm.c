/* SPDX-License-Identifier: Apache-2.0 */
/* Opens what a `casemate run` needs, and starts its VMM (pool/spawn.h). */
#include "tools/casemate/run.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "pool/chain.h"
#include "pool/spawn.h"

/* The image: the one named, the saved VM's, or the default one. A saved VM may have none. */
static int image_choose(const struct run_options *o, const struct chain *chain,
			const struct spawn_programs *programs, const char **ret_path,
			struct err *err)
{
	*ret_path = o->image;
	if (o->image)
		return 0;
	if (!o->from) {
		*ret_path = programs->image;
		return programs->image[0] ? 0 :
			err_set(err, ENOENT, "the default root image is missing: there is no "
				"images/default.erofs beside casemate or in %s (tools/try.sh "
				"makes it, --image names another)", CASEMATE_LIBEXECDIR);
	}
	if (chain->image_size > 0 && !chain->image[0])
		return err_set(err, EINVAL, "the snapshot does not say where its root image "
			       "is: name it with --image");
	*ret_path = chain->image;
	return 0;
}

int run_vmm_start(const struct run_options *o, pid_t *ret_pid, int *ret_channel,
		  struct err *err)
{
	static struct spawn_programs programs;
	static struct chain chain;
	struct spawn_files files = SPAWN_FILES_INIT;
	struct spawn_options s = { .files = &files, .image_fd = -1,
				   .memory = o->memory, .verbose = o->verbose,
				   .bootargs = o->trace ? "trace" : "verbose",
				   .snapshots = o->save != NULL,
				   .track = o->incremental };
	FD_CLEANUP int image = -1, ours = -1, theirs = -1;
	const char *path = NULL;
	int r = o->from ? chain_open(&chain, o->from, err) : 0;

	if (r == 0)
		r = spawn_programs_find(&programs, NULL, o->kernel, o->initd, NULL,
					CASEMATE_LIBEXECDIR, err);
	if (r == 0)
		r = image_choose(o, &chain, &programs, &path, err);
	if (r == 0 && path[0])
		r = spawn_image_open(path, &image, err);
	if (r == 0)
		r = spawn_files_open(&files, &programs, err);
	if (r == 0)
		r = spawn_channel_make(&ours, &theirs, err);
	if (r == 0) {
		s.image_fd = image;
		s.snapshot_fds = chain.fds;
		s.snapshot_count = chain.count;
		r = spawn_vmm(&s, theirs, ret_pid, err);
	}
	if (r == 0)
		*ret_channel = fd_take(&ours);
	spawn_files_close(&files);
	chain_close(&chain);
	return r;
}
