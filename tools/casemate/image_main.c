/* SPDX-License-Identifier: Apache-2.0 */
/* `casemate image` as a program of its own, for tests and for scripts that run before the
 * whole of casemate is built. */
#include "tools/casemate/casemate.h"

int main(int argc, char **argv)
{
	return cmd_image(argc, argv);
}
