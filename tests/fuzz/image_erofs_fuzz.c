/* SPDX-License-Identifier: Apache-2.0 */
/* The EROFS reader of `casemate image build` on any bytes. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "tools/casemate/image_erofs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *entry_check(void *arg, const struct erofs_entry *e)
{
	size_t size = *(const size_t *)arg;

	if (e->path[0] != '/' || strlen(e->path) >= 4096)
		abort();
	if (S_ISREG(e->mode) && e->layout == 0 && e->size &&
	    (e->start > size || e->size > size - e->start))
		abort();
	return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char why[256];

	erofs_walk(data, size, entry_check, &size, why, sizeof(why));
	return 0;
}
