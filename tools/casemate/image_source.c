/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The three sources of an image: a directory as it is, a tar archive, Debian packages.
 * The last two become a directory of ours first; source_scan() then judges all three
 * alike.
 *
 * An archive is hostile. GNU tar itself strips leading slashes, refuses members with
 * "..", and holds back symbolic links that point out of the tree until everything else is
 * unpacked, so nothing can be written through them; it unpacks into an empty directory
 * that only we can enter. Whatever tar has to complain about fails the build. What it
 * leaves behind is removed with tools that cope with any depth, name and mode.
 *
 * Debian packages come from where the machine's apt is configured to get them: apt is
 * asked for its sources and for its proxy and validity settings, and mmdebstrap is given
 * those. Neither they nor the host's name and resolver, which mmdebstrap copies, stay in
 * the image.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "abi/layout.h"
#include "base/utf8.h"
#include "tools/casemate/image_child.h"
#include "tools/casemate/image_source.h"
#include "tools/casemate/progress.h"

#define BLOCK      4096u
#define PATH_LIMIT 3800 /* mkfs.erofs keeps paths in PATH_MAX bytes */

/* ---- Messages ---- */

void image_progress_child(void *arg, const char *last)
{
	progress_show("%s%s%s", (const char *)arg, *last ? ": " : "", last);
}

int image_fail(int error, const char *format, ...)
{
	char line[2 * PATH_MAX];
	va_list args;

	progress_show(NULL);
	/* Names of files, and what tools say of them, may be anything. */
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	fputs("casemate: image build: ", stderr);
	utf8_print_clean(stderr, line, strlen(line));
	fputc('\n', stderr);
	return error < 0 ? error : -error;
}

/* ---- Scan ---- */

static bool is_mount(const char *path, const struct stat *st, dev_t root)
{
	struct statx stx;

	/* Device numbers are not enough where filesystems give files numbers of their
	 * own. */
	if (!statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_TYPE,
		   &stx) &&
	    stx.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT)
		return stx.stx_attributes & STATX_ATTR_MOUNT_ROOT;
	return S_ISDIR(st->st_mode) && st->st_dev != root;
}

static int entry_check(const FTSENT *e, const char *path, dev_t root)
{
	const struct stat *st = e->fts_statp;
	uid_t me = geteuid();

	if (e->fts_pathlen > PATH_LIMIT)
		return image_fail(ENAMETOOLONG, "%.60s...: path longer than %d bytes",
				  path, PATH_LIMIT);
	if (e->fts_level > 0 && is_mount(path, st, root))
		return image_fail(EXDEV,
				  "%s: another filesystem is mounted there; unmount it "
				  "or build from a tar archive",
				  path);
	if (S_ISSOCK(st->st_mode))
		return image_fail(EINVAL,
				  "%s: a socket cannot be part of an image; remove it",
				  path);
	if (me && st->st_uid && st->st_uid != me)
		return image_fail(EPERM,
				  "%s: belongs to user %u, which only root can keep; "
				  "build as root",
				  path, st->st_uid);
	if (!S_ISREG(st->st_mode))
		return 0;
	if ((uint64_t)st->st_size > CM_IMAGE_MAX)
		return image_fail(EFBIG, "%s: larger than the largest image", path);
	if (faccessat(AT_FDCWD, path, R_OK, AT_EACCESS) < 0)
		return image_fail(errno, "%s: cannot be read: %s", path, strerror(errno));
	return 0;
}

static int entry_scan(const FTSENT *e, const char *path, struct source_summary *sum)
{
	static dev_t root;
	int error;

	switch (e->fts_info) {
	case FTS_DP:
		return 0;
	case FTS_DNR:
	case FTS_ERR:
	case FTS_NS:
		return image_fail(e->fts_errno, "%s: cannot be read: %s", path,
				  strerror(e->fts_errno));
	case FTS_DC:
		return image_fail(ELOOP, "%s: directory contains itself", path);
	default:
		break;
	}
	if (e->fts_level == 0) {
		root = e->fts_statp->st_dev;
		if (!S_ISDIR(e->fts_statp->st_mode))
			return image_fail(ENOTDIR, "%s: not a directory", path);
	}
	error = entry_check(e, path, root);
	if (error)
		return error;
	sum->entries++;
	if (S_ISREG(e->fts_statp->st_mode))
		sum->bytes +=
			((uint64_t)e->fts_statp->st_size + BLOCK - 1) / BLOCK * BLOCK;
	if (e->fts_statp->st_mtim.tv_sec > sum->newest)
		sum->newest = e->fts_statp->st_mtim.tv_sec;
	if (e->fts_namelen >= NAME_MAX)
		snprintf(sum->longest, sizeof(sum->longest), "%s", path);
	if (llistxattr(path, NULL, 0) > 0)
		sum->with_xattrs++;
	if (sum->entries % 1024 == 0)
		progress_show("looking at files: %llu",
			       (unsigned long long)sum->entries);
	return child_signal_caught() ? -EINTR : 0;
}

int source_scan(const char *dir, struct source_summary *ret)
{
	char *paths[] = {(char *)(uintptr_t)dir, NULL};
	struct source_summary sum = {.all_root = geteuid() != 0};
	FTS *fts = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	FTSENT *e;
	int error = 0;

	if (!fts)
		return image_fail(errno, "%s: %s", dir, strerror(errno));
	while (!error && (errno = 0, e = fts_read(fts)))
		error = entry_scan(e, e->fts_path, &sum);
	if (!error && errno)
		error = image_fail(errno, "%s: %s", dir, strerror(errno));
	fts_close(fts);
	if (!error)
		*ret = sum;
	return error;
}

/* ---- Children ---- */

/* Runs a tool that must succeed. `package` is where it comes from. */
static int tool_run(const char *const *argv, const struct child_options *options,
		    const char *package)
{
	struct child_result result;
	int error = child_run(argv, options, &result);

	if (error == -ENOENT)
		return image_fail(ENOENT, "%s is not installed: install the package %s",
				  argv[0], package);
	if (error == -EINTR)
		return error;
	if (error)
		return image_fail(error, "cannot run %s: %s", argv[0], strerror(-error));
	if (!child_succeeded(&result))
		return image_fail(EIO, "%s failed: %s", argv[0],
				  *result.last ? result.last : "it does not say why");
	return 0;
}

void source_remove_tree(const char *dir)
{
	/* Directories without write permission stop rm when it does not run as root. */
	const char *const chmod_argv[] = {"chmod", "-R", "u+rwX", "--", dir, NULL};
	/* Should a tool have left something mounted, it is not ours to remove. */
	const char *const rm_argv[] = {"rm", "-rf", "--one-file-system", "--", dir, NULL};
	const struct child_options options = {.cleanup = true};
	struct child_result result;

	if (geteuid())
		child_run(chmod_argv, &options, &result);
	child_run(rm_argv, &options, &result);
	if (!access(dir, F_OK))
		fprintf(stderr, "casemate: image build: %s could not be removed whole\n",
			dir);
}

/* ---- tar ---- */

/* A line of `tar --list --verbose --numeric-owner`: "drwxr-xr-x 0/0 ...". Without root
 * only root's files can be represented: tar gives all of them to the caller, and the
 * image gives what is the caller's to root. */
static bool tar_check_owner(void *arg, const char *line)
{
	unsigned int uid, gid;

	if (sscanf(line, "%*s %u/%u", &uid, &gid) == 2 && !uid && !gid)
		return true;
	snprintf(arg, 256, "%s", line);
	return false;
}

static int tar_check_owners(const char *file_option)
{
	const char *const argv[] = {
		"tar",           "--list",    "--verbose", "--numeric-owner",
		"--force-local", file_option, NULL};
	char member[256] = "";
	const struct child_options options = {.line = tar_check_owner, .arg = member};
	struct child_result result;
	int error = child_run(argv, &options, &result);

	if (error == -EINTR)
		return error;
	if (*member)
		return image_fail(EPERM,
				  "only root can keep the owner of this member; build as "
				  "root: %s",
				  member);
	return 0; /* what else is wrong, extraction will say */
}

int source_extract_tar(const char *tar, const char *dir)
{
	const char *argv[16] = {"tar",
				"--extract",
				"--numeric-owner",
				"--preserve-permissions",
				"--delay-directory-restore",
				"--force-local",
				"--no-acls",
				"--no-selinux",
				"--no-xattrs"};
	const struct child_options options = {.progress = image_progress_child,
					      .arg = (void *)(uintptr_t) "unpacking"};
	char *file_option = NULL, *dir_option = NULL;
	size_t n = 9;
	int error = -ENOMEM;

	if (access(tar, R_OK) < 0)
		return image_fail(errno, "%s: cannot be read: %s", tar, strerror(errno));
	if (asprintf(&file_option, "--file=%s", tar) < 0 ||
	    asprintf(&dir_option, "--directory=%s", dir) < 0)
		goto out;
	argv[n++] = geteuid() ? "--no-same-owner" : "--same-owner";
	argv[n++] = file_option;
	argv[n++] = dir_option;
	error = geteuid() ? tar_check_owners(file_option) : 0;
	if (!error)
		error = tool_run(argv, &options, "tar");
out:
	free(file_option);
	free(dir_option);
	return error;
}

/* ---- Debian ---- */

/* What apt and mmdebstrap leave behind, and what they copy from the host. A text replaces
 * the file, NULL removes it. */
static const struct trim {
	const char *path;
	const char *text;
} trims[] = {
	{"etc/apt/apt.conf.d/99mmdebstrap", NULL},
	{"etc/dpkg/dpkg.cfg.d/99mmdebstrap", NULL},
	{"etc/apt/sources.list", ""},
	{"etc/hostname", "casemate\n"},
	{"etc/hosts", "127.0.0.1\tlocalhost casemate\n::1\tlocalhost\n"},
	{"etc/resolv.conf", ""},
	{"etc/machine-id", NULL},
	{"var/cache/ldconfig/aux-cache", NULL},
	{"var/log/alternatives.log", NULL},
	{"var/log/apt", NULL},
	{"var/log/bootstrap.log", NULL},
	{"var/log/dpkg.log", NULL},
	{"var/cache/apt", NULL},
	{"var/cache/debconf", NULL},
	{"var/lib/apt/lists", NULL},
	{"dev", NULL}, /* initd mounts it; the empty directory is made again below */
};

static int trim_apply(const char *dir)
{
	char path[PATH_MAX];
	const struct trim *t;
	FILE *f;
	int fd;

	for (t = trims; t < trims + sizeof(trims) / sizeof(trims[0]); t++) {
		if (snprintf(path, sizeof(path), "%s/%s", dir, t->path) >=
		    (int)sizeof(path))
			return image_fail(ENAMETOOLONG, "%s: path too long", dir);
		if (unlink(path) < 0 && (errno == EISDIR || errno == EPERM))
			source_remove_tree(path);
		if (!t->text)
			continue;
		fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
		f = fd < 0 ? NULL : fdopen(fd, "w");
		if (!f || fputs(t->text, f) < 0 || fclose(f))
			return image_fail(errno, "%s: %s", path, strerror(errno));
	}
	snprintf(path, sizeof(path), "%s/dev", dir);
	if (mkdir(path, 0755) < 0)
		return image_fail(errno, "%s: %s", path, strerror(errno));
	return 0;
}

static int packages_check(const char *packages)
{
	size_t i;

	for (i = 0; packages[i]; i++)
		if (!isalnum((unsigned char)packages[i]) &&
		    !strchr(",+-.:=~", packages[i]))
			return image_fail(EINVAL,
					  "--debian %s: '%c' cannot be part of a package "
					  "name",
					  packages, packages[i]);
	if (!i)
		return image_fail(EINVAL, "--debian: no package named");
	return 0;
}

struct apt_file {
	FILE *f;
	unsigned int lines;
};

static bool apt_line(void *arg, const char *line)
{
	struct apt_file *file = arg;

	file->lines++;
	return fprintf(file->f, "%s\n", line) > 0;
}

/* Runs an apt tool and puts its lines into a file. */
static int apt_ask(const char *const *argv, const char *path, unsigned int *ret_lines)
{
	struct apt_file file = {.f = fopen(path, "we")};
	const struct child_options options = {.line = apt_line, .arg = &file};
	int error;

	if (!file.f)
		return image_fail(errno, "%s: %s", path, strerror(errno));
	error = tool_run(argv, &options, "apt");
	if (fclose(file.f) && !error)
		error = image_fail(errno, "%s: %s", path, strerror(errno));
	*ret_lines = file.lines;
	return error;
}

/* The release this machine runs: the one whose packages it can set up in a chroot. */
static int debian_codename(char *ret, size_t size)
{
	FILE *f = fopen("/etc/os-release", "re");
	char line[256];
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f)) {
		if (strncmp(line, "VERSION_CODENAME=", 17))
			continue;
		line[strcspn(line, "\n")] = 0;
		found = line[17] && strlen(line + 17) < size;
		if (found)
			strcpy(ret, line + 17);
	}
	if (f)
		fclose(f);
	return found ? 0
		     : image_fail(ENOENT, "--debian: /etc/os-release names no release");
}

static int debian_ask_apt(const char *codename, const char *sources, const char *settings)
{
	/* Release names of third parties' archives are left out: "Origin: Debian" alone.
	 */
	const char *const sources_argv[] = {"apt-get",
					    "indextargets",
					    "--format",
					    "deb $(REPO_URI) $(RELEASE) $(COMPONENT)",
					    "Created-By: Packages",
					    "Origin: Debian",
					    NULL};
	const char *const settings_argv[] = {"apt-config",
					     "dump",
					     "--format",
					     "%F \"%v\";%n",
					     "Acquire::http",
					     "Acquire::https",
					     "Acquire::Check-Valid-Until",
					     "Acquire::Check-Date",
					     NULL};
	unsigned int lines;
	int error = apt_ask(sources_argv, sources, &lines);

	if (!error && !lines)
		return image_fail(ENOENT,
				  "--debian: apt knows no archive of Debian %s; run "
				  "apt-get update",
				  codename);
	return error ? error : apt_ask(settings_argv, settings, &lines);
}

int source_install_debian(const char *packages, const char *dir, const char *work)
{
	const struct child_options options = {.progress = image_progress_child,
					      .arg = (void *)(uintptr_t) "installing"};
	char codename[64], sources[PATH_MAX], settings[PATH_MAX];
	char *aptopt = NULL, *include = NULL;
	int error = packages_check(packages);

	if (error)
		return error;
	if (geteuid())
		return image_fail(EPERM,
				  "--debian needs root: packages have files of several "
				  "owners");
	error = debian_codename(codename, sizeof(codename));
	if (error)
		return error;
	if (snprintf(sources, sizeof(sources), "%s/sources", work) >=
		    (int)sizeof(sources) ||
	    snprintf(settings, sizeof(settings), "%s/settings", work) >=
		    (int)sizeof(settings))
		return image_fail(ENAMETOOLONG, "%s: path too long", work);
	error = debian_ask_apt(codename, sources, settings);
	if (error)
		return error;
	if (asprintf(&aptopt, "--aptopt=%s", settings) < 0 ||
	    asprintf(&include, "--include=%s", packages) < 0) {
		error = image_fail(ENOMEM, "no memory");
	} else {
		const char *const argv[] = {
			"mmdebstrap",
			"--variant=essential",
			"--mode=root",
			"--format=directory",
			aptopt,
			"--aptopt=Acquire::Languages \"none\"",
			"--dpkgopt=path-exclude=/usr/share/man/*",
			"--dpkgopt=path-exclude=/usr/share/locale/*",
			"--dpkgopt=path-exclude=/usr/share/doc/*",
			"--dpkgopt=path-include=/usr/share/doc/*/copyright",
			include,
			codename,
			dir,
			sources,
			NULL};

		error = tool_run(argv, &options, "mmdebstrap");
	}
	free(aptopt);
	free(include);
	return error ? error : trim_apply(dir);
}
