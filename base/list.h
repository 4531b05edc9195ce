/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Circular doubly linked lists, the link inside the element. A head and a link that is in no
 * list point to themselves, so removing twice is harmless.
 */
#ifndef CASEMATE_BASE_LIST_H
#define CASEMATE_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *next, *prev;
};

static inline void list_init(struct list *list)
{
	list->next = list->prev = list;
}

static inline bool list_empty(const struct list *list)
{
	return list->next == list;
}

static inline void list_add_tail(struct list *head, struct list *link)
{
	link->prev = head->prev;
	link->next = head;
	head->prev->next = link;
	head->prev = link;
}

static inline void list_remove(struct list *link)
{
	link->prev->next = link->next;
	link->next->prev = link->prev;
	list_init(link);
}

#define list_entry(link, type, member) \
	((type *)(void *)((char *)(link) - offsetof(type, member)))

/* The element at hand may be removed, its neighbours may not. */
#define list_for_each(at, head, type, member)						\
	for (struct list *at##_link = (head)->next, *at##_next = at##_link->next;	\
	     at##_link != (head) && ((at) = list_entry(at##_link, type, member), true);	\
	     at##_link = at##_next, at##_next = at##_link->next)

#endif
