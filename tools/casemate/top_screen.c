/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `casemate top` on a terminal, by ncurses: it knows terminals, keys and sizes.
 *
 * Waiting is poll(2) on stdin, so that a key or a new size counts at once. While the daemon is
 * asked nothing else is looked at; should it not answer, ^C still ends us: signals put the
 * terminal back by themselves, with what was learnt of it before, and leave.
 */
#include <curses.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <term.h>
#include <termios.h>
#include <unistd.h>

#include "base/time.h"
#include "tools/casemate/casemate.h"
#include "tools/casemate/session.h"
#include "tools/casemate/top.h"

static struct termios before;
static char leave[128];
static size_t leave_len;

static void on_signal(int number)
{
	tcsetattr(0, TCSANOW, &before);
	(void)!write(1, leave, leave_len);
	_exit(128 + number);
}

static void leave_add(const char *capability)
{
	const char *text = tigetstr(capability);
	size_t n = text && text != (char *)-1 ? strlen(text) : 0;

	/* Those with delays in them are of terminals that are no more. */
	if (n == 0 || strstr(text, "$<") || leave_len + n > sizeof(leave))
		return;
	memcpy(leave + leave_len, text, n);
	leave_len += n;
}

static SCREEN *screen_open(void)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
	struct sigaction action = { .sa_handler = on_signal };
	SCREEN *screen;
	int result;

	/* A terminal whose cursor cannot be moved gets the one table. */
	if (tcgetattr(0, &before) < 0 || setupterm(NULL, 1, &result) != OK ||
	    !tigetstr("cup") || tigetstr("cup") == (char *)-1)
		return NULL;
	screen = newterm(NULL, stdout, stdin);
	if (!screen)
		return NULL;
	leave_add("sgr0");
	leave_add("cnorm");
	leave_add("rmkx");
	leave_add("rmcup");
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		sigaction(numbers[i], &action, NULL);
	cbreak();
	noecho();
	keypad(stdscr, TRUE);
	nodelay(stdscr, TRUE);
	set_escdelay(25);
	curs_set(0);
	return screen;
}

static void draw(const struct top *top, size_t first, bool help)
{
	int rows = LINES - (int)TOP_HEAD - 1;

	erase();
	for (size_t i = 0; i < TOP_HEAD; i++) {
		if (i == TOP_HEAD - 1)
			attron(A_REVERSE);
		mvaddnstr((int)i, 0, top->line[i], COLS);
		if (i == TOP_HEAD - 1) {
			for (int x = (int)strlen(top->line[i]); x < COLS; x++)
				addch(' ');
			attroff(A_REVERSE);
		}
	}
	for (int i = 0; i < rows && first + (size_t)i < top->row_count; i++)
		mvaddnstr(i + (int)TOP_HEAD, 0, top->line[TOP_HEAD + first + (size_t)i], COLS);
	move(LINES - 1, 0);
	if (help) {
		addnstr("sort:", COLS);
		for (size_t i = 0; i < TOP_KEYS; i++)
			printw(" %c %s", top_keys[i].key, top_keys[i].name);
		addstr("; again: turn round; arrows: scroll; q: end");
	} else {
		printw("by %s%s; h: keys, q: end", top_keys[top->sort].name,
		       top->reverse ? ", turned round" : "");
		if (rows > 0 && top->row_count > (size_t)rows)
			printw("; VMs %zu to %zu of %zu", first + 1,
			       first + (size_t)rows < top->row_count ? first + (size_t)rows :
			       top->row_count, top->row_count);
	}
	refresh();
}

static void sort_choose(struct top *top, int key)
{
	for (unsigned int i = 0; i < TOP_KEYS; i++) {
		if (key != top_keys[i].key)
			continue;
		top->reverse = top->sort == i && !top->reverse;
		top->sort = i;
	}
}

/* Returns whether to go on; *ret_now: without waiting for the next look. */
static bool keys_take(struct top *top, size_t *first, bool *help, bool *ret_now)
{
	size_t page = LINES > (int)TOP_HEAD + 2 ? (size_t)LINES - TOP_HEAD - 1 : 1;
	int key;

	while ((key = getch()) != ERR) {
		switch (key) {
		case 'q':
		case 'Q':
			return false;
		case 'h':
		case '?':
			*help = !*help;
			break;
		case ' ':
			*ret_now = true;
			break;
		case KEY_DOWN:
			++*first;
			break;
		case KEY_UP:
			*first -= *first > 0;
			break;
		case KEY_NPAGE:
			*first += page;
			break;
		case KEY_PPAGE:
			*first -= *first < page ? *first : page;
			break;
		case KEY_HOME:
			*first = 0;
			break;
		default:
			sort_choose(top, key);
			break;
		}
	}
	if (*first + page > top->row_count)
		*first = top->row_count > page ? top->row_count - page : 0;
	return true;
}

int top_screen(struct top *top)
{
	SCREEN *screen = screen_open();
	bool on = true, help = false, now;
	size_t first = 0;
	int status = 0;

	if (!screen)
		return -1;
	while (on && status == 0) {
		uint64_t next = time_monotonic_ns() + top->interval_ns;

		status = top_ask(top);
		now = false;
		while (on && status == 0 && !now) {
			uint64_t at = time_monotonic_ns();
			struct pollfd p = { 0, POLLIN, 0 };

			top_lines(top);
			draw(top, first, help);
			if (at >= next)
				break;
			/* Also ended by the signal of a new size, which getch() tells. */
			poll(&p, 1, (int)((next - at) / 1000000 + 1));
			on = !(p.revents & (POLLHUP | POLLERR)) &&
			     keys_take(top, &first, &help, &now);
		}
	}
	endwin();
	delscreen(screen);
	return status ? top_fail(top, status) : 0;
}
