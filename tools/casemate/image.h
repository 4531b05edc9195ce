/* SPDX-License-Identifier: Apache-2.0 */
/* `casemate image`: building root images. See image.c. */
#ifndef CASEMATE_TOOLS_IMAGE_H
#define CASEMATE_TOOLS_IMAGE_H

/* argv[0] is "image". Returns the exit status: 0, 1 when it failed (one line was printed on
 * stderr), 2 for wrong usage, 128 + N when signal N stopped it. */
int cmd_image(int argc, char **argv);

#endif
