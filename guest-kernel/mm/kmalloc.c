/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kmalloc: small objects from pages cut into equal pieces, larger ones as page blocks.
 *
 * A slab is one page of one size class. All it needs to know is in its struct page: the class
 * (order), the number of objects in use (refs), the first free object (slab_free, in units of
 * 16 bytes; the free objects are chained through their first two bytes) and the links of the
 * class's list of slabs with free objects. A full slab is on no list. One empty slab a class
 * is kept, further ones go back to the page allocator.
 *
 * kfree() finds the class, or the order of a block, in the struct page of the address.
 */
#include "guest-kernel/mm/page.h"

#include "guest-kernel/mm/mm_internal.h"

#define UNIT		16u
#define SMALL_MAX	2048u
#define KMALLOC_MAX	(2UL << 20)
#define SLAB_END	0xffffu

static const uint16_t class_size[] = {
	16, 32, 48, 64, 80, 96, 128, 160, 192, 256, 320, 384, 512, 672, 816, 1024, 1360, 2048,
};
#define NCLASSES ARRAY_SIZE(class_size)

static uint8_t class_of[SMALL_MAX / UNIT + 1];	/* by size in units, rounded up */
static uint32_t partial[NCLASSES];		/* first slab with a free object */
static uint32_t spare[NCLASSES];		/* number of empty slabs on that list */

void kmalloc_init(void)
{
	unsigned c = 0;

	for (unsigned u = 0; u < ARRAY_SIZE(class_of); u++) {
		while (u * UNIT > class_size[c])
			c++;
		class_of[u] = (uint8_t)c;
	}
	memset(partial, 0, sizeof(partial));
	memset(spare, 0, sizeof(spare));
}

static void partial_add(struct page *p, unsigned c)
{
	p->prev = 0;
	p->next = partial[c];
	if (p->next != 0)
		pfn_to_page(p->next)->prev = page_to_pfn(p);
	partial[c] = page_to_pfn(p);
}

static void partial_del(struct page *p, unsigned c)
{
	if (p->prev != 0)
		pfn_to_page(p->prev)->next = p->next;
	else
		partial[c] = p->next;
	if (p->next != 0)
		pfn_to_page(p->next)->prev = p->prev;
	p->next = p->prev = 0;
}

static struct page *slab_new(unsigned c)
{
	struct page *p = page_alloc(0, 0);
	unsigned size = class_size[c], n = PAGE_SIZE / size;
	uint8_t *base;

	if (p == NULL)
		return NULL;
	base = page_to_virt(p);
	for (unsigned i = 0; i < n; i++) {
		uint16_t next = i + 1 < n ? (uint16_t)((i + 1) * size / UNIT) : SLAB_END;

		memcpy(base + i * size, &next, sizeof(next));
	}
	p->flags |= PAGE_SLAB;
	p->order = (uint8_t)c;
	p->refs = 0;
	p->slab_free = 0;
	partial_add(p, c);
	spare[c]++;
	mem_stats.slab_pages++;
	return p;
}

static void slab_release(struct page *p, unsigned c)
{
	partial_del(p, c);
	mem_stats.slab_pages--;
	p->flags = PAGE_USED;
	p->order = 0;
	p->refs = 1;
	page_put(p);
}

void *kmalloc(size_t size)
{
	struct page *p;
	unsigned c;
	uint8_t *obj;

	if (unlikely(size > SMALL_MAX)) {
		unsigned order = 0;

		if (size > KMALLOC_MAX)
			return NULL;
		while ((PAGE_SIZE << order) < size)
			order++;
		p = page_alloc(order, 0);
		if (p == NULL)
			return NULL;
		p->flags |= PAGE_KMALLOC;
		mem_stats.slab_pages += 1UL << order;
		return page_to_virt(p);
	}
	c = class_of[(size + UNIT - 1) / UNIT];
	p = pfn_to_page(partial[c]);
	if (p == NULL) {
		p = slab_new(c);
		if (p == NULL)
			return NULL;
	}
	obj = (uint8_t *)page_to_virt(p) + p->slab_free * UNIT;
	memcpy(&p->slab_free, obj, sizeof(p->slab_free));
	if (p->refs++ == 0)
		spare[c]--;
	if (p->slab_free == SLAB_END)
		partial_del(p, c);
	return obj;
}

static size_t kmalloc_size(const void *ptr)
{
	struct page *p = phys_to_page(virt_to_phys(ptr));

	if (p != NULL && (p->flags & PAGE_SLAB))
		return class_size[p->order];
	ASSERT(p != NULL && (p->flags & PAGE_KMALLOC));
	return PAGE_SIZE << p->order;
}

void kfree(const void *ptr)
{
	struct page *p;
	unsigned c;
	size_t off;

	if (ptr == NULL)
		return;
	p = phys_to_page(virt_to_phys(ptr));
	off = (uintptr_t)ptr & (PAGE_SIZE - 1);
	if (unlikely(p == NULL || !(p->flags & PAGE_SLAB))) {
		if (p == NULL || !(p->flags & PAGE_KMALLOC) || off != 0)
			panic("kfree: %p is no allocation", ptr);
		p->flags &= (uint8_t)~PAGE_KMALLOC;
		mem_stats.slab_pages -= 1UL << p->order;
		page_put(p);
		return;
	}
	c = p->order;
	if (off % class_size[c] != 0 || p->refs == 0)
		panic("kfree: %p is no object of %u bytes", ptr, class_size[c]);
	if (p->slab_free == SLAB_END)
		partial_add(p, c);
	memcpy((void *)(uintptr_t)ptr, &p->slab_free, sizeof(p->slab_free));
	p->slab_free = (uint16_t)(off / UNIT);
	if (--p->refs == 0) {
		if (spare[c] != 0)
			slab_release(p, c);
		else
			spare[c]++;
	}
}

void *kzalloc(size_t size)
{
	void *p = kmalloc(size);

	if (p != NULL)
		memset(p, 0, size);
	return p;
}

void *kcalloc(size_t n, size_t size)
{
	size_t total;

	if (__builtin_mul_overflow(n, size, &total))
		return NULL;
	return kzalloc(total);
}

void *krealloc(void *old, size_t size)
{
	size_t have;
	void *p;

	if (old == NULL)
		return kmalloc(size);
	have = kmalloc_size(old);
	if (size <= have && size >= have / 4)
		return old;
	p = kmalloc(size);
	if (p == NULL)
		return NULL;
	memcpy(p, old, MIN(size, have));
	kfree(old);
	return p;
}

void *kmemdup(const void *src, size_t n)
{
	void *p = kmalloc(n);

	if (p != NULL)
		memcpy(p, src, n);
	return p;
}

char *kstrdup(const char *s)
{
	return kmemdup(s, strlen(s) + 1);
}
