/* SPDX-License-Identifier: Apache-2.0 */
/* Backtrace symbols; see symbols.h. */
#include "vmm/symbols.h"

#include <elf.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"

#define SECTIONS_MAX	256u
#define SYMBOLS_MAX	65536u
#define SYMBOLS_A_READ	64u
#define NAME_MAX_LEN	96u
#define PREFIX		"bt: 0x"

struct symtab {
	int fd;
	uint64_t offset;	/* of the symbols */
	uint64_t count;
	uint64_t names_offset;
	uint64_t names_size;
};

static bool range_ok(uint64_t offset, uint64_t len, uint64_t file_size)
{
	return len <= file_size && offset <= file_size - len;
}

static bool section_read(int fd, const Elf64_Ehdr *eh, uint64_t file_size, unsigned int i,
			 Elf64_Shdr *sh)
{
	uint64_t at;

	if (__builtin_add_overflow(eh->e_shoff, (uint64_t)i * sizeof(*sh), &at))
		return false;
	return range_ok(at, sizeof(*sh), file_size) &&
	       fd_pread_exact(fd, sh, sizeof(*sh), at) == 0 &&
	       range_ok(sh->sh_offset, sh->sh_type == SHT_NOBITS ? 0 : sh->sh_size, file_size);
}

static bool symtab_find(int fd, uint64_t file_size, struct symtab *ret)
{
	Elf64_Ehdr eh;
	Elf64_Shdr sh, names;

	if (file_size < sizeof(eh) || fd_pread_exact(fd, &eh, sizeof(eh), 0) < 0)
		return false;
	if (memcmp(eh.e_ident, ELFMAG, SELFMAG) || eh.e_shentsize != sizeof(sh) ||
	    eh.e_shnum > SECTIONS_MAX)
		return false;
	for (unsigned int i = 0; i < eh.e_shnum; i++) {
		if (!section_read(fd, &eh, file_size, i, &sh))
			return false;
		if (sh.sh_type != SHT_SYMTAB)
			continue;
		if (sh.sh_link >= eh.e_shnum || sh.sh_entsize != sizeof(Elf64_Sym) ||
		    !section_read(fd, &eh, file_size, sh.sh_link, &names) ||
		    names.sh_type != SHT_STRTAB)
			return false;
		*ret = (struct symtab){
			.fd = fd,
			.offset = sh.sh_offset,
			.count = sh.sh_size / sizeof(Elf64_Sym),
			.names_offset = names.sh_offset,
			.names_size = names.sh_size,
		};
		if (ret->count > SYMBOLS_MAX)
			ret->count = SYMBOLS_MAX;
		return true;
	}
	return false;
}

/* The symbol with the highest value at or below address whose size holds it (size 0, as
 * assembly has them, holds everything up to the next). */
static bool symbol_find(const struct symtab *tab, uint64_t address, Elf64_Sym *ret)
{
	Elf64_Sym symbols[SYMBOLS_A_READ];
	bool found = false;

	for (uint64_t at = 0; at < tab->count; at += SYMBOLS_A_READ) {
		size_t n = tab->count - at < SYMBOLS_A_READ ? tab->count - at : SYMBOLS_A_READ;

		if (fd_pread_exact(tab->fd, symbols, n * sizeof(symbols[0]),
				   tab->offset + at * sizeof(symbols[0])) < 0)
			return false;
		for (size_t i = 0; i < n; i++) {
			const Elf64_Sym *s = &symbols[i];
			unsigned int type = ELF64_ST_TYPE(s->st_info);

			if ((type != STT_FUNC && type != STT_NOTYPE) || s->st_shndx == 0 ||
			    s->st_name == 0 || s->st_value > address ||
			    (s->st_size && address - s->st_value >= s->st_size))
				continue;
			if (!found || s->st_value > ret->st_value ||
			    (s->st_value == ret->st_value && type == STT_FUNC)) {
				*ret = *s;
				found = true;
			}
		}
	}
	return found;
}

static void name_from(const struct symtab *tab, uint64_t address, char *out, size_t size)
{
	char name[NAME_MAX_LEN];
	Elf64_Sym symbol;
	size_t n;

	out[0] = '\0';
	/* A return address: the call before it may have been the function's last byte. */
	if ((!symbol_find(tab, address - 1, &symbol) && !symbol_find(tab, address, &symbol)) ||
	    symbol.st_name >= tab->names_size)
		return;
	n = tab->names_size - symbol.st_name;
	if (n > sizeof(name) - 1)
		n = sizeof(name) - 1;
	if (fd_pread_exact(tab->fd, name, n, tab->names_offset + symbol.st_name) < 0)
		return;
	name[n] = '\0';
	for (char *c = name; *c; c++) {
		if (*c < 33 || *c > 126)
			*c = '.';
	}
	snprintf(out, size, "%s+0x%" PRIx64, name, address - symbol.st_value);
}

void symbols_name(int fd, uint64_t file_size, uint64_t address, char *out, size_t size)
{
	struct symtab tab;

	out[0] = '\0';
	if (symtab_find(fd, file_size, &tab))
		name_from(&tab, address, out, size);
}

void symbols_annotate(int fd, uint64_t file_size, const char *text, char *out, size_t size)
{
	struct symtab tab;
	bool have = symtab_find(fd, file_size, &tab);
	size_t used = 0;

	out[0] = '\0';
	while (*text && used + 1 < size) {
		size_t line = strcspn(text, "\n");
		char name[NAME_MAX_LEN + 20] = "";
		const char *bt = memmem(text, line, PREFIX, strlen(PREFIX));
		int n;

		if (bt && have)
			name_from(&tab, strtoull(bt + strlen(PREFIX), NULL, 16), name,
				  sizeof(name));
		n = snprintf(out + used, size - used, "%.*s%s%s%s", (int)line, text,
			     name[0] ? " " : "", name, text[line] ? "\n" : "");
		used += n > 0 ? (size_t)n : 0;
		text += line + (text[line] != '\0');
	}
}
