/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `casemate image build -o F (--from-dir D | --from-tar T | --debian P[,P...])` makes a
 * root image: an EROFS file in which every regular file is one run of whole, uncompressed
 * blocks, so that the guest can map it in place, and which is padded to whole 2 MiB
 * pages.
 *
 * The work goes through these steps, each of which leaves nothing behind when it fails or
 * is stopped: get a directory (image_source.c), scan it, let mkfs.erofs write a temporary
 * file beside the output, check what it wrote (image_erofs.c), pad, sync, rename. The
 * temporary files of sources lie in $TMPDIR, /var/tmp without one.
 *
 * The same tree gives the same image, bit for bit: fixed UUID, modification times of the
 * files, one second after the newest of them for the image itself.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "abi/layout.h"
#include "base/utf8.h"
#include "tools/casemate/casemate.h"
#include "tools/casemate/image_child.h"
#include "tools/casemate/image_erofs.h"
#include "tools/casemate/image_source.h"
#include "tools/casemate/progress.h"

#define IMAGE_PAD (2u << 20)

static const char usage[] =
	"usage: casemate image build [options] -o FILE SOURCE\n"
	"  --from-dir DIR        a directory, as it is\n"
	"  --from-tar FILE       a tar archive, compressed or not\n"
	"  --debian PKG[,PKG]    Debian packages and what they depend on\n"
	"  -o FILE               the image, which is replaced when the new one is whole\n"
	"  --quiet               no progress, and no line about what was made\n";

struct build {
	const char *output;
	const char *dir, *tar, *debian;
	char source[PATH_MAX];    /* the directory the image is made of */
	char work[PATH_MAX];      /* our temporary directory, "" for none */
	char temporary[PATH_MAX]; /* the image before it has its name, "" for none */
	int fd;                   /* of it */
	bool quiet;
	struct source_summary summary;
};

/* ---- Steps ---- */

static int work_make(struct build *b)
{
	const char *base = getenv("TMPDIR");

	if (!base || !*base)
		base = "/var/tmp";
	if (snprintf(b->work, sizeof(b->work), "%s/casemate-image.XXXXXX", base) >=
	    (int)sizeof(b->work) - 64) {
		b->work[0] = 0;
		return image_fail(ENAMETOOLONG, "%s: path too long", base);
	}
	if (!mkdtemp(b->work)) {
		b->work[0] = 0;
		return image_fail(errno, "cannot make a temporary directory in %s: %s",
				  base, strerror(errno));
	}
	return 0;
}

static int source_prepare(struct build *b)
{
	int error;

	if (b->dir) {
		if (!realpath(b->dir, b->source))
			return image_fail(errno, "%s: %s", b->dir, strerror(errno));
		return 0;
	}
	error = work_make(b);
	if (error)
		return error;
	strcpy(b->source, b->work);
	strcat(b->source, "/root");
	if (b->debian)
		return source_install_debian(b->debian, b->source, b->work);
	if (mkdir(b->source, 0755) < 0)
		return image_fail(errno, "%s: %s", b->source, strerror(errno));
	return source_extract_tar(b->tar, b->source);
}

static int output_prepare(struct build *b)
{
	char dir[PATH_MAX], real[PATH_MAX], *slash;
	size_t length;
	struct stat st;

	if (snprintf(dir, sizeof(dir), "%s", b->output) >= (int)sizeof(dir) - 32)
		return image_fail(ENAMETOOLONG, "%s: path too long", b->output);
	if (!stat(b->output, &st) && !S_ISREG(st.st_mode))
		return image_fail(EINVAL, "%s: exists and is no regular file", b->output);
	slash = strrchr(dir, '/');
	strcpy(slash ? slash + 1 : dir, slash ? "" : ".");
	if (!realpath(dir, real))
		return image_fail(errno, "%s: %s", dir, strerror(errno));
	length = strlen(b->source);
	if (!strncmp(real, b->source, length) &&
	    (!real[length] || real[length] == '/' || length == 1))
		return image_fail(EINVAL,
				  "%s: lies in the directory that the image is made of",
				  b->output);
	if (snprintf(b->temporary, sizeof(b->temporary), "%s/.casemate-image.XXXXXX",
		     real) >= (int)sizeof(b->temporary)) {
		b->temporary[0] = 0;
		return image_fail(ENAMETOOLONG, "%s: path too long", b->output);
	}
	b->fd = mkostemp(b->temporary, O_CLOEXEC);
	if (b->fd < 0) {
		b->temporary[0] = 0;
		return image_fail(errno, "cannot write to %s: %s", real, strerror(errno));
	}
	return 0;
}

static void mkfs_progress(void *arg, const char *last)
{
	const struct build *b = arg;
	struct stat st;

	(void)last;
	if (!fstat(b->fd, &st) && b->summary.bytes)
		progress_show("writing the image: %llu of %llu MiB",
			       (unsigned long long)st.st_size >> 20,
			       (unsigned long long)b->summary.bytes >> 20);
}

static int image_write(struct build *b)
{
	const char *argv[12] = {
		"mkfs.erofs", "--quiet",
		"-x-1", /* the guest does not read extended attributes of the image */
		/* Files in blocks of their own; inodes that hold a modification time. */
		"-Enoinline_data,force-inode-extended",
		"-U00000000-0000-0000-0000-000000000000"};
	char epoch[64];
	const struct child_options options = {
		.env = {epoch, NULL}, .progress = mkfs_progress, .arg = b};
	struct child_result result;
	size_t n = 5;
	int error;

	/* mkfs.erofs cuts later times down to this one, so it is that of the image only.
	 */
	snprintf(epoch, sizeof(epoch), "SOURCE_DATE_EPOCH=%lld",
		 (long long)b->summary.newest + 1);
	if (b->summary.all_root)
		argv[n++] = "--all-root";
	argv[n++] = b->temporary;
	argv[n++] = b->source;
	error = child_run(argv, &options, &result);
	if (error == -ENOENT)
		return image_fail(ENOENT,
				  "mkfs.erofs is not installed: install the package "
				  "erofs-utils");
	if (error == -EINTR)
		return error;
	if (error)
		return image_fail(error, "cannot run mkfs.erofs: %s", strerror(-error));
	/* mkfs.erofs 1.5 fails on such names without saying so; later ones do not. */
	if (!child_succeeded(&result) && b->summary.longest[0])
		return image_fail(ENAMETOOLONG,
				  "%s: this mkfs.erofs cannot hold names of 255 "
				  "bytes; shorten it",
				  b->summary.longest);
	if (!child_succeeded(&result))
		return image_fail(EIO, "mkfs.erofs failed: %s",
				  *result.last ? result.last : "it does not say why");
	return 0;
}

static const char *entry_check(void *arg, const struct erofs_entry *e)
{
	uint64_t *count = arg;

	(*count)++;
	if (S_ISREG(e->mode) && e->layout != 0)
		return "not stored as one run of blocks";
	return NULL;
}

/* Versions of mkfs.erofs differ: the promise is checked, not assumed. */
static int image_check(struct build *b)
{
	uint64_t count = 0;
	char why[512];
	struct stat st;
	void *map;
	int error;

	if (fstat(b->fd, &st) < 0)
		return image_fail(errno, "%s: %s", b->temporary, strerror(errno));
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, b->fd, 0);
	if (map == MAP_FAILED)
		return image_fail(errno, "cannot map the image: %s", strerror(errno));
	progress_show("checking the image");
	error = erofs_walk(map, (size_t)st.st_size, entry_check, &count, why,
			   sizeof(why));
	munmap(map, (size_t)st.st_size);
	if (error)
		return image_fail(error,
				  "mkfs.erofs made an image that guests cannot use: %s; "
				  "another version may do better",
				  error == -ENOMEM ? "no memory to check it" : why);
	if (count != b->summary.entries)
		return image_fail(EIO, "%s changed while the image was made; build again",
				  b->source);
	return 0;
}

static int image_finish(struct build *b)
{
	mode_t mask = umask(0);
	uint64_t size;
	struct stat st;
	char *slash;
	int dir;

	umask(mask);
	if (fstat(b->fd, &st) < 0)
		return image_fail(errno, "%s: %s", b->temporary, strerror(errno));
	size = ((uint64_t)st.st_size + IMAGE_PAD - 1) / IMAGE_PAD * IMAGE_PAD;
	if (size > CM_IMAGE_MAX)
		return image_fail(EFBIG, "the image has %llu MiB, the largest is %llu",
				  (unsigned long long)size >> 20,
				  (unsigned long long)CM_IMAGE_MAX >> 20);
	progress_show("putting the image on the disk");
	if (ftruncate(b->fd, (off_t)size) < 0 || fchmod(b->fd, 0666 & ~mask) < 0 ||
	    fsync(b->fd) < 0 || rename(b->temporary, b->output) < 0)
		return image_fail(errno, "%s: %s", b->output, strerror(errno));
	slash = strrchr(b->temporary, '/');
	*slash = 0;
	dir = open(*b->temporary ? b->temporary : "/",
		   O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	b->temporary[0] = 0;
	/* The image has its name; a filesystem that cannot sync directories is no
	 * failure. */
	if (dir >= 0) {
		fsync(dir);
		close(dir);
	}
	progress_show(NULL);
	if (!b->quiet)
		printf("%s: %llu entries, %llu MiB\n", b->output,
		       (unsigned long long)b->summary.entries,
		       (unsigned long long)size >> 20);
	if (b->summary.with_xattrs)
		fprintf(stderr,
			"casemate: image build: extended attributes (ACLs, "
			"capabilities) of %llu entries were left out\n",
			(unsigned long long)b->summary.with_xattrs);
	return 0;
}

static int build_run(struct build *b)
{
	int error = source_prepare(b);

	if (!error)
		error = output_prepare(b);
	if (!error)
		error = source_scan(b->source, &b->summary);
	if (!error && b->summary.bytes > CM_IMAGE_MAX)
		error = image_fail(EFBIG,
				   "%s: %llu MiB of files, more than the largest image",
				   b->source, (unsigned long long)b->summary.bytes >> 20);
	if (!error)
		error = image_write(b);
	if (!error)
		error = image_check(b);
	return error ? error : image_finish(b);
}

/* ---- Command line ---- */

static int usage_fail(const char *why, const char *what)
{
	fputs("casemate: image: ", stderr);
	utf8_print_clean(stderr, why, strlen(why));
	utf8_print_clean(stderr, what, strlen(what));
	fputs("; see casemate image --help\n", stderr);
	return EXIT_CASEMATE;
}

static int build_parse(int argc, char **argv, struct build *b)
{
	static const struct option options[] = {
		{"output", required_argument, NULL, 'o'},
		{"from-dir", required_argument, NULL, 'd'},
		{"from-tar", required_argument, NULL, 't'},
		{"debian", required_argument, NULL, 'p'},
		{"quiet", no_argument, NULL, 'q'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int c;

	optind = 0; /* the caller may have used getopt before */
	while ((c = getopt_long(argc, argv, "+:o:h", options, NULL)) != -1) {
		switch (c) {
		case 'o':
			b->output = optarg;
			break;
		case 'd':
			b->dir = optarg;
			break;
		case 't':
			b->tar = optarg;
			break;
		case 'p':
			b->debian = optarg;
			break;
		case 'q':
			b->quiet = true;
			progress_quiet();
			break;
		case 'h':
			fputs(usage, stdout);
			return -1;
		case ':':
			return usage_fail("a value is missing behind ", argv[optind - 1]);
		default:
			return usage_fail("unknown option ", argv[optind - 1]);
		}
	}
	if (optind < argc)
		return usage_fail("one word too many: ", argv[optind]);
	if (!b->output || !*b->output)
		return usage_fail("no -o FILE", "");
	if (!!b->dir + !!b->tar + !!b->debian != 1)
		return usage_fail("give one of --from-dir, --from-tar and --debian", "");
	return 0;
}

/* 0; EXIT_CASEMATE when it failed or was used wrongly (one line was printed on stderr);
 * 128 + N when signal N stopped it. */
int cmd_image(int argc, char **argv)
{
	static struct build b;
	int error, status;

	if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		fputs(usage, stdout);
		return 0;
	}
	if (argc < 2 || strcmp(argv[1], "build"))
		return usage_fail("the only thing to do with images is to build them", "");
	b = (struct build){.fd = -1};
	status = build_parse(argc - 1, argv + 1, &b);
	if (status)
		return status < 0 ? 0 : status;
	child_signals_catch();
	error = build_run(&b);
	progress_show(NULL);
	if (b.fd >= 0)
		close(b.fd);
	if (b.temporary[0])
		unlink(b.temporary);
	if (b.work[0])
		source_remove_tree(b.work);
	if (!error)
		return 0;
	return child_signal_caught() ? 128 + child_signal_caught() : EXIT_CASEMATE;
}
