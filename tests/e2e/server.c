/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listens at a Unix socket in the guest and serves each connection in a process of its own:
 * server MODE PATH. It says "up" when it listens.
 *
 *   echo     sends back what comes, to its end
 *   banner   says "banner" and ends its way, then counts what comes
 *   flood    sends until nobody listens any more
 *   sum      reads to the end, then says how many bytes there were and a checksum
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static uint8_t bytes[65536];

static void send_all(int fd, const void *data, size_t len)
{
	const uint8_t *from = data;

	while (len > 0) {
		ssize_t n = send(fd, from, len, MSG_NOSIGNAL);

		if (n <= 0)
			_exit(1);
		from += n;
		len -= (size_t)n;
	}
}

static void say_sum(int fd)
{
	unsigned long long count = 0, sum = 0;
	char text[64];
	ssize_t n;

	while ((n = recv(fd, bytes, sizeof(bytes), 0)) > 0) {
		count += (unsigned long long)n;
		for (ssize_t i = 0; i < n; i++)
			sum = sum * 31 + bytes[i];
	}
	snprintf(text, sizeof(text), "%llu %llu\n", count, sum);
	send_all(fd, text, strlen(text));
}

static void serve(int fd, const char *mode)
{
	ssize_t n;

	if (!strcmp(mode, "echo")) {
		while ((n = recv(fd, bytes, sizeof(bytes), 0)) > 0)
			send_all(fd, bytes, (size_t)n);
	} else if (!strcmp(mode, "banner")) {
		send_all(fd, "banner\n", 7);
		shutdown(fd, SHUT_WR);
		while (recv(fd, bytes, sizeof(bytes), 0) > 0)
			;
	} else if (!strcmp(mode, "flood")) {
		for (;;)
			send_all(fd, bytes, sizeof(bytes));
	} else {
		say_sum(fd);
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	if (argc != 3 || fd < 0 || strlen(argv[2]) >= sizeof(a.sun_path))
		return 2;
	strcpy(a.sun_path, argv[2]);
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 64) < 0) {
		perror(argv[2]);
		return 1;
	}
	signal(SIGCHLD, SIG_IGN);
	puts("up");
	fflush(stdout);
	for (;;) {
		int peer = accept(fd, NULL, NULL);

		if (peer < 0)
			continue;
		if (fork() == 0) {
			close(fd);
			serve(peer, argv[1]);
			_exit(0);
		}
		close(peer);
	}
}
