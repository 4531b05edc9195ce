# SPDX-License-Identifier: Apache-2.0
# gcc and make: programs with threads, a library, parallel make, and errors.
cat >hello.c <<'E'
#include <stdio.h>
int main(int c, char **v)
{
	printf("hello %d %s\n", c, v[c - 1]);
	return c;
}
E
gcc -o hello hello.c && ./hello a b; echo $?
gcc -static -O2 -o hs hello.c && ./hs; echo $?
cat >thr.c <<'E'
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdatomic.h>
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static long sum;
static atomic_long asum;
static int turn;
static __thread int local;
static pthread_barrier_t b;
static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static pthread_key_t key;
static atomic_int destroyed;
static void gone(void *p)
{
	destroyed++;
	free(p);
}
static void *work(void *p)
{
	long id = (long)p;
	pthread_setspecific(key, malloc(1));
	pthread_barrier_wait(&b);
	for (int i = 0; i < 2000; i++) {
		pthread_mutex_lock(&m);
		sum += id;
		pthread_mutex_unlock(&m);
		asum += id;
		local++;
		pthread_rwlock_rdlock(&rw);
		pthread_rwlock_unlock(&rw);
	}
	pthread_mutex_lock(&m);
	while (turn != id)
		pthread_cond_wait(&c, &m);
	printf("turn %ld local %d\n", id, local);
	turn++;
	pthread_cond_broadcast(&c);
	pthread_mutex_unlock(&m);
	return (void *)(id * id);
}
int main(void)
{
	pthread_t t[8];
	void *r;
	long s = 0;
	pthread_key_create(&key, gone);
	pthread_barrier_init(&b, NULL, 8);
	for (long i = 0; i < 8; i++)
		pthread_create(&t[i], NULL, work, (void *)i);
	for (int i = 0; i < 8; i++) {
		pthread_join(t[i], &r);
		s += (long)r;
	}
	printf("%ld %ld %ld %d\n", sum, asum, s, destroyed);
	for (int i = 0; i < 500; i++) {
		pthread_create(&t[0], NULL, (void *(*)(void *))(void *)pthread_self,
			       NULL);
		pthread_join(t[0], NULL);
	}
	return 0;
}
E
gcc -O2 -pthread -Wall -o thr thr.c && ./thr; echo $?
mkdir p
cd p
for i in $(seq ${US_OBJECTS:-12}); do
	cat >f$i.c <<-E
	int f$i(int x) { int s = 0; for (int i = 0; i < x; i++) s += i * $i; return s; }
	E
done
{
	echo '#include <stdio.h>'
	for i in $(seq ${US_OBJECTS:-12}); do echo "int f$i(int);"; done
	echo 'int main(void) { long s = 0;'
	for i in $(seq ${US_OBJECTS:-12}); do echo "s += f$i($i);"; done
	echo 'printf("%ld\n", s); return 0; }'
} >main.c
cat >Makefile <<'E'
OBJ := $(patsubst %.c,%.o,$(wildcard *.c))
prog: libf.so main.o
	@$(CC) -o $@ main.o -L. -lf -Wl,-rpath,'$$ORIGIN'
libf.so: $(filter-out main.o,$(OBJ))
	@$(CC) -shared -o $@ $^
%.o: %.c
	@$(CC) -O2 -fPIC -c -o $@ $<
clean:
	rm -f *.o libf.so prog
bad:
	false
.PHONY: clean bad
E
make -s -j4 && ./prog
make -j4
make bad 2>&1
echo $?
touch f1.c
make -n -j4 | head -2
make -s clean
ls *.o 2>/dev/null | wc -l
cd ..
echo 'int main(void) { retrun 0; }' >bad.c; gcc bad.c 2>&1; echo $?
echo 'int undefined(void); int main(void) { return undefined(); }' >und.c
gcc und.c 2>/dev/null
echo $?
gcc -E -dM - </dev/null | grep -c __
gcc -S -O2 -o - hello.c | grep -c call
gcc -pipe -g -fsanitize=undefined hello.c -o hu 2>/dev/null && ./hu x
ar rcs l.a p/*.o 2>/dev/null
nm hello | grep -c ' T main'
strip hello
./hello
size hello >/dev/null
echo $?
objdump -d hs | wc -l | head -c 0
readelf -h hello | grep Type
ldd hello | wc -l
cat >sig.c <<'E'
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/wait.h>
static sigjmp_buf jb;
static volatile sig_atomic_t got;
static void *volatile addr;
static volatile int code;
static void h(int s, siginfo_t *i, void *c)
{
	(void)c;
	got = s;
	addr = i->si_addr;
	code = i->si_code;
	siglongjmp(jb, 1);
}
static void try(int which)
{
	if (sigsetjmp(jb, 1)) {
		printf("%d: signal %d code %d addr %d\n", which, got, code,
		       got == SIGSEGV && addr == (void *)16);
		return;
	}
	switch (which) {
	case 0:
		*(volatile int *)16 = 1;
		break;
	case 1:
		__asm__ volatile("xor %%ecx, %%ecx; idivl %%ecx"
				 :
				 :
				 : "eax", "ecx", "edx");
		break;
	case 2:
		__builtin_trap();
		break;
	case 3: {
		FILE *f = tmpfile();
		char *p = mmap(0, 4096, 3, MAP_SHARED, fileno(f), 0);
		*(volatile char *)p = 1;
		break;
	}
	case 4: {
		char *p = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		*(volatile char *)p = 1;
		break;
	}
	case 5:
		((void (*)(void))mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1,
				      0))();
		break;
	case 6:
		__asm__ volatile("int3");
		break;
	case 7:
		__asm__ volatile("hlt");
		break;
	case 8:
		*(volatile int *)0x8000000000000000 = 1;
		break;
	case 9:
		raise(SIGBUS);
		break;
	}
}
int main(void)
{
	struct sigaction a = {.sa_sigaction = h, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	stack_t st = {.ss_sp = malloc(65536), .ss_size = 65536};
	sigaltstack(&st, NULL);
	int s[] = {SIGSEGV, SIGFPE, SIGILL, SIGBUS, SIGTRAP};
	for (int i = 0; i < 5; i++)
		sigaction(s[i], &a, NULL);
	for (int i = 0; i < 10; i++)
		try(i);
	fflush(stdout);
	for (int i = 0; i < 3; i++)
		if (!fork()) {
			for (int k = 0; k < 5; k++)
				signal(s[k], SIG_DFL);
			try(i);
			_exit(0);
		} else {
			int w;
			wait(&w);
			printf("%x\n", w & 0x7f);
			fflush(stdout);
		}
	return 0;
}
E
gcc -O1 -w -o sig sig.c && ./sig; echo $?
