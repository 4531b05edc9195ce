/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forwards: a socket that listens on the host, whose connections go to a socket in a VM.
 *
 * Every connection is one command of the VM, initd's builtin `connect`: its stdin and stdout
 * are the two ways, with the credits, bounds and quotas that commands have. What the peer has
 * sent waits in the command's stdin, what it has not taken in the command's ring: a slow peer
 * stalls its own connection and nothing else. Ends of file are passed on each way by itself.
 * A connection that could not be made, or broke, is reset where the host's socket knows that.
 *
 * A forward belongs to a VM and ends with it. forward.c has the connections, listener.c what
 * listens.
 */
#ifndef CASEMATE_POOL_FORWARD_H
#define CASEMATE_POOL_FORWARD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "pool/pool.h"

#define FORWARD_CONNECTIONS	32u	/* at once; more wait in the socket's backlog */
#define FORWARD_TEXT_MAX	160u	/* of an address or a target */
#define POOL_VM_FORWARDS	16u

/* ---- What listens ---- */

struct listener {
	int fd;
	char address[FORWARD_TEXT_MAX];	/* unix:PATH or tcp:ADDRESS:PORT, as it came to be */
	int notes;			/* the directory of records; not owned */
	uint64_t record;		/* number of its record there, 0: none */
	dev_t dev;			/* of the socket at PATH */
	ino_t ino;
};

enum listen_kind { LISTEN_UNIX, LISTEN_LOOPBACK, LISTEN_ANY };

/* What `text` asks for: unix:PATH, tcp:PORT or tcp:ADDRESS:PORT ([ADDRESS]:PORT for IPv6), where
 * port 0 is any. *ret_port: of TCP. Returns an enum listen_kind, or -EINVAL with err set. */
int listener_parse(const char *text, uint16_t *ret_port, struct err *err);
/* Opens it. A socket in the file system has mode 0600, and takes no name that exists; it is
 * noted in the directory `notes` (-1: nowhere) under the number `record`. Returns 0 or -errno. */
int listener_open(struct listener *listener, const char *text, int notes, uint64_t record,
		  struct err *err);
void listener_close(struct listener *listener);
/* Removes the sockets that an earlier daemon has left. Returns how many. */
int listener_clean(int notes);

/* ---- Forwards ---- */

struct forward;

/* Told of a forward's life; the last thing told is FORWARD_ENDED. */
enum forward_news { FORWARD_FAILED, FORWARD_ENDED };
struct forward_watcher {
	void (*tell)(struct forward_watcher *watcher, const struct forward *forward,
		     enum forward_news news, const char *reason);
};

struct forward {
	struct list link;		/* of its VM */
	struct vm *vm;
	uint64_t id;			/* never used again */
	char target[FORWARD_TEXT_MAX];	/* in the guest: unix:PATH or tcp:PORT */
	uint32_t uid, gid;		/* who connects there */
	struct listener listener;
	struct watch watch;
	struct timer retry;		/* when there was no descriptor for a connection */
	struct list connections;
	uint32_t connection_count;
	uint64_t accepted, failed;
	char trouble[POOL_REASON_MAX];	/* of the last that failed */
	const void *bound;		/* ends with this (a client), or NULL */
	struct forward_watcher *watcher;
};

struct forward_options {
	const char *listen, *target;
	uint32_t uid, gid;
	const void *bound;
	struct forward_watcher *watcher;
};

/* Makes the options of a command that is a connection to a target in a guest: unix:PATH,
 * unix:@NAME or tcp:PORT. Its words are put into argv. Returns 0 or -EINVAL with err set. */
int forward_exec_options(const char *target, const char *argv[2], struct exec_options *o,
			 struct err *err);

/* Returns 0 with *ret_forward, or -errno with err set. */
int forward_new(struct vm *vm, const struct forward_options *options,
		struct forward **ret_forward, struct err *err);
/* Ends it and its connections. */
void forward_end(struct forward *forward, const char *reason);
void forward_end_all(struct vm *vm, const char *reason);
struct forward *pool_forward_find(struct pool *pool, uint64_t id);

#endif
