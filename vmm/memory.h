/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guest memory. A guest-physical address is a type of its own (gpa_t), and memory.c is the
 * only file that turns one into a pointer, after checking its bounds.
 *
 * RAM is one anonymous private mapping (huge pages asked for), cut in two around the hole
 * below 4 GiB. The root image is a read-only region above RAM: an anonymous reservation with
 * the file mapped over its beginning, so that the tail of the last 2 MiB reads as zeros; or
 * a copy of it in huge pages.
 * Only RAM can be had as a pointer: no device reads or writes the image, so a file that is
 * cut short under us can hurt the guest only.
 *
 * Set up by the main thread before the vCPU runs, and constant from then on.
 */
#ifndef CASEMATE_VMM_MEMORY_H
#define CASEMATE_VMM_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/map.h"

typedef struct gpa {
	uint64_t v;
} gpa_t;

#define GPA(x) ((gpa_t){ (x) })

#define MEMORY_RAM_MIN		(16ull << 20)	/* smallest guest */
#define MEMORY_RAM_UNIT		(2ull << 20)	/* guests are a multiple of this */

/* One memory slot of the VM. size 0: not there. */
struct memory_region {
	gpa_t gpa;
	uint64_t size;
	uint8_t *host;
	bool read_only;
};

enum { MEMORY_LOW, MEMORY_HIGH, MEMORY_IMAGE, MEMORY_REGIONS };

struct memory {
	struct map ram;
	struct map image;
	struct memory_region regions[MEMORY_REGIONS];
	uint64_t image_size;	/* bytes of the file; 0: no image */
	uint64_t *dirty;	/* one bit a page of RAM that changed; NULL: not tracked */
	uint8_t *fresh;		/* of a held VM and its children: whether the snapshot holds
				 * nothing of each SNAPSHOT_CHUNK; else NULL */
};

/* Whether a guest may have this many bytes: err says why not. Returns 0 or -errno. */
int memory_check_size(uint64_t size, struct err *err);

/* RAM of `size` bytes, as memory_check_size() allows. Returns 0 or -errno with err set. */
int memory_init(struct memory *memory, uint64_t size, struct err *err);

/* Maps the file behind fd as the root image. fd is only used during the call. */
int memory_add_image(struct memory *memory, int fd, struct err *err);

/* Puts a copy of the image, from the same fd, in the mapping's place, in huge pages that this
 * process's children share: the guest then reaches it 2 MiB at a time. Leaves the file mapped
 * where huge pages are not to be had, or an eighth of the host's memory would be exceeded. */
void memory_copy_image(struct memory *memory, int fd);

void memory_done(struct memory *memory);

/* Pointer to RAM [gpa, gpa + len), or NULL where any byte of it is no RAM. Valid for the
 * memory's life. The guest may write there at any time: read each field once. */
void *memory_ram(const struct memory *memory, gpa_t gpa, uint64_t len);

/* Whether gpa is inside the image's slot. */
bool memory_is_image(const struct memory *memory, gpa_t gpa);

uint64_t memory_ram_size(const struct memory *memory);

/* ---- Tracking of changes, for incremental snapshots ---- */

#define MEMORY_PAGE	4096u

/* 64-bit words of a bitmap with one bit for each page of RAM. */
size_t memory_bitmap_words(const struct memory *memory);

/* Begins with no page changed. What the guest writes is added from KVM's log
 * (kvm_collect_dirty()); devices call memory_mark(). Returns 0 or -ENOMEM. */
int memory_track(struct memory *memory);

/* The guest's map of free pages (CM_PLAT_FREE_MAP) at that page frame, as such a bitmap of
 * RAM, to be freed. NULL: there is none there, or no memory. */
uint64_t *memory_free_map(const struct memory *memory, uint32_t frame);

/* len bytes at a pointer from memory_ram() were written. */
void memory_mark(const struct memory *memory, const void *host, size_t len);

#endif
