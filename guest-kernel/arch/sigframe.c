/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signal frames in exactly Linux's x86-64 layout (struct rt_sigframe, <asm/ucontext.h>,
 * <asm/sigcontext.h>), since programs, libc unwinders and JITs read and change them:
 *
 *   [fpstate: XSAVE area, 64-byte aligned, then FP_XSTATE_MAGIC2]  high addresses
 *   [siginfo 128][ucontext 304][pretcode 8]                        rsp at the handler's entry
 *
 * The floating-point registers are live while the kernel runs. They go to the program's stack
 * by way of current->xstate, which is free while current runs, and come back the same way
 * after the whole area was checked: XRSTOR must not fault on what a program wrote.
 */
#include <asm/sigcontext.h>

#include "abi/layout.h"
#include "guest-kernel/arch/arch.h"
#include "guest-kernel/core/signal_internal.h"
#include "guest-kernel/core/task.h"
#include "guest-kernel/mm/uaccess.h"

#define UC_FP_XSTATE		0x1u
#define UC_SIGCONTEXT_SS	0x2u
#define UC_STRICT_RESTORE_SS	0x4u

#define RED_ZONE		128u
#define FXSAVE_SIZE		512u
#define FX_SW_OFFSET		464u	/* software-reserved bytes of the FXSAVE image */
#define FX_MXCSR_OFFSET		24u
#define XHDR_OFFSET		512u	/* xstate_bv, xcomp_bv, 48 reserved bytes */
#define XHDR_SIZE		64u
#define XFEATURE_FPSSE		0x3u
#define MAGIC2_SIZE		4u

#define FLAG_TF			0x100u
#define FLAG_DF			0x400u
#define FLAG_RF			0x10000u
/* AC, OF, DF, TF, SF, ZF, AF, PF, CF, RF: what sigreturn may change. */
#define FLAGS_USER		0x50dd5u

struct kucontext {
	uint64_t flags, link;
	uint64_t ss_sp;
	uint32_t ss_flags, ss_pad;
	uint64_t ss_size;
	struct sigcontext_64 mc;
	uint64_t sigmask;
};
struct krt_sigframe {
	uint64_t pretcode;
	struct kucontext uc;
	uint8_t info[128];
};
_Static_assert(sizeof(struct sigcontext_64) == 256, "Linux ABI");
_Static_assert(offsetof(struct kucontext, mc) == 40, "Linux ABI");
_Static_assert(offsetof(struct kucontext, sigmask) == 296, "Linux ABI");
_Static_assert(sizeof(struct kucontext) == 304, "Linux ABI");
_Static_assert(sizeof(struct krt_sigframe) == 440, "Linux ABI");

/* ---- siginfo ---- */

static void put32(uint8_t *p, uint32_t v)
{
	memcpy(p, &v, 4);
}

static void put64(uint8_t *p, uint64_t v)
{
	memcpy(p, &v, 8);
}

enum layout {
	LAYOUT_KILL,
	LAYOUT_TIMER,
	LAYOUT_QUEUE,
	LAYOUT_CHLD,
	LAYOUT_FAULT,
	LAYOUT_POLL,
	LAYOUT_SYS,
};

/* As Linux's siginfo_layout(): by code, then by signal. */
static enum layout info_layout(const struct ksiginfo *si)
{
	if (si->code == KSI_TIMER)
		return LAYOUT_TIMER;
	if (si->code == -5)			/* SI_SIGIO */
		return LAYOUT_POLL;
	if (si->code < 0)
		return LAYOUT_QUEUE;
	if (si->code == KSI_USER || si->code >= KSI_KERNEL)
		return LAYOUT_KILL;
	switch (si->signo) {
	case KSIGCHLD:
		return LAYOUT_CHLD;
	case KSIGILL:
	case KSIGFPE:
	case KSIGSEGV:
	case KSIGBUS:
	case KSIGTRAP:
		return LAYOUT_FAULT;
	case KSIGSYS:
		return LAYOUT_SYS;
	default:
		return si->code <= 6 ? LAYOUT_POLL : LAYOUT_KILL;	/* NSIGPOLL */
	}
}

void siginfo_to_user(const struct ksiginfo *si, uint8_t out[128])
{
	memset(out, 0, 128);
	put32(out, (uint32_t)si->signo);
	put32(out + 4, (uint32_t)si->error);
	put32(out + 8, (uint32_t)si->code);
	switch (info_layout(si)) {
	case LAYOUT_TIMER:
		put32(out + 16, (uint32_t)si->timer_id);
		put32(out + 20, (uint32_t)si->overrun);
		put64(out + 24, si->value);
		break;
	case LAYOUT_QUEUE:
		put64(out + 24, si->value);
		/* fall through */
	case LAYOUT_KILL:
		put32(out + 16, (uint32_t)si->pid);
		put32(out + 20, si->uid);
		break;
	case LAYOUT_CHLD:
		put32(out + 16, (uint32_t)si->pid);
		put32(out + 20, si->uid);
		put32(out + 24, (uint32_t)si->status);
		put64(out + 32, si->utime);
		put64(out + 40, si->stime);
		break;
	case LAYOUT_FAULT:
		put64(out + 16, si->addr);
		break;
	case LAYOUT_POLL:
		put64(out + 16, (uint64_t)si->band);
		put32(out + 24, (uint32_t)si->fd);
		break;
	case LAYOUT_SYS:
		put64(out + 16, si->addr);
		put32(out + 24, (uint32_t)si->syscall);
		put32(out + 28, 0xc000003e);		/* AUDIT_ARCH_X86_64 */
		break;
	}
}

/* ---- floating point ---- */

static void fill_sw_bytes(uint8_t *area, size_t size)
{
	struct _fpx_sw_bytes sw = {
		.magic1 = FP_XSTATE_MAGIC1,
		.extended_size = (uint32_t)size + MAGIC2_SIZE,
		.xfeatures = fpu_xcr0(),
		.xstate_size = (uint32_t)size,
	};

	_Static_assert(sizeof(sw) == FXSAVE_SIZE - FX_SW_OFFSET, "Linux ABI");
	memcpy(area + FX_SW_OFFSET, &sw, sizeof(sw));
}

static int fpu_to_user(uint64_t uaddr)
{
	static const uint32_t magic2 = FP_XSTATE_MAGIC2;
	uint8_t *area = current->xstate;
	size_t size = fpu_size();
	uint64_t bv;
	int r;

	fpu_save(area);
	fill_sw_bytes(area, size);
	/* Legacy readers look at the FXSAVE part only: say that it holds something. */
	memcpy(&bv, area + XHDR_OFFSET, 8);
	bv |= XFEATURE_FPSSE;
	memcpy(area + XHDR_OFFSET, &bv, 8);
	r = copy_to_user((void __user *)uaddr, area, size);
	if (r == 0)
		r = copy_to_user((void __user *)(uaddr + size), &magic2, sizeof(magic2));
	return r;
}

/* Size of the XSAVE area that a program's frame holds; FXSAVE_SIZE when it is a plain one. */
static size_t user_fp_size(uint64_t uaddr, const uint8_t *area, uint64_t *ret_features)
{
	struct _fpx_sw_bytes sw;
	uint32_t magic2;

	memcpy(&sw, area + FX_SW_OFFSET, sizeof(sw));
	*ret_features = XFEATURE_FPSSE;
	if (sw.magic1 != FP_XSTATE_MAGIC1 || sw.xstate_size < XHDR_OFFSET + XHDR_SIZE ||
	    sw.xstate_size > fpu_size() || sw.xstate_size > sw.extended_size)
		return FXSAVE_SIZE;
	if (copy_from_user(&magic2, (const void __user *)(uaddr + sw.xstate_size), 4) != 0 ||
	    magic2 != FP_XSTATE_MAGIC2)
		return FXSAVE_SIZE;
	*ret_features = sw.xfeatures;
	return sw.xstate_size;
}

static int fpu_from_user(uint64_t uaddr)
{
	uint8_t *area = current->xstate;
	uint64_t features, bv;
	size_t size;

	if (uaddr == 0) {
		fpu_init_state(area);
		fpu_restore(area);
		return 0;
	}
	memset(area, 0, fpu_size());
	if (copy_from_user(area, (const void __user *)uaddr, FXSAVE_SIZE) != 0)
		return -EFAULT;
	size = user_fp_size(uaddr, area, &features);
	if (size > FXSAVE_SIZE &&
	    copy_from_user(area + FXSAVE_SIZE, (const void __user *)(uaddr + FXSAVE_SIZE),
			   size - FXSAVE_SIZE) != 0)
		return -EFAULT;
	if (size == FXSAVE_SIZE)
		bv = XFEATURE_FPSSE;
	else
		memcpy(&bv, area + XHDR_OFFSET, 8);
	bv &= features & fpu_xcr0();
	memcpy(area + XHDR_OFFSET, &bv, 8);
	if (!fpu_valid(area))
		return -EFAULT;
	fpu_restore(area);
	return 0;
}

/* ---- building ---- */

size_t sigframe_min_size(void)
{
	/* Frame, state and magic, and what aligning both can cost. */
	return sizeof(struct krt_sigframe) + fpu_size() + MAGIC2_SIZE + 64 + 16;
}

/* Where the frame goes; 0 when an alternative stack is too small for it. */
static uint64_t place_frame(const struct trapframe *tf, const struct ksigaction *sa,
			    uint64_t *ret_fp)
{
	bool nested = signal_on_altstack(current, tf->rsp), entering = false;
	uint64_t sp = tf->rsp - RED_ZONE;

	if ((sa->flags & KSA_ONSTACK) != 0 && current->altstack_size != 0 && !nested) {
		sp = current->altstack_sp + current->altstack_size;
		entering = true;
	}
	sp = ALIGN_DOWN(sp - fpu_size() - MAGIC2_SIZE, 64);
	*ret_fp = sp;
	sp = ALIGN_DOWN(sp - sizeof(struct krt_sigframe), 16) - 8;
	if ((nested || entering) &&
	    !(sp > current->altstack_sp && sp - current->altstack_sp <= current->altstack_size))
		return 0;
	/* An absurd rsp must not wrap into anything: the copy below checks the range itself. */
	return sp < CM_USER_TOP && *ret_fp < CM_USER_TOP ? sp : 0;
}

static void fill_context(struct kucontext *uc, const struct trapframe *tf, uint64_t fp,
			 uint64_t mask)
{
	uc->flags = UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS;
	uc->ss_sp = current->altstack_sp;
	uc->ss_flags = current->altstack_size == 0 && current->altstack_flags == 0 ?
			       KSS_DISABLE : current->altstack_flags;
	uc->ss_size = current->altstack_size;
	uc->mc = (struct sigcontext_64){
		.r8 = tf->r8, .r9 = tf->r9, .r10 = tf->r10, .r11 = tf->r11,
		.r12 = tf->r12, .r13 = tf->r13, .r14 = tf->r14, .r15 = tf->r15,
		.di = tf->rdi, .si = tf->rsi, .bp = tf->rbp, .bx = tf->rbx,
		.dx = tf->rdx, .ax = tf->rax, .cx = tf->rcx, .sp = tf->rsp,
		.ip = tf->rip, .flags = tf->rflags,
		.cs = CM_SEL_UCS, .ss = CM_SEL_USS,
		.err = current->trap_err, .trapno = current->trap_nr,
		.oldmask = mask, .cr2 = current->trap_cr2,
		.fpstate = fp,
	};
	uc->sigmask = mask;
}

int sigframe_build(struct trapframe *tf, const struct ksigaction *sa, const struct ksiginfo *si,
		   uint64_t old_mask)
{
	struct krt_sigframe frame = { .pretcode = sa->restorer };
	uint64_t fp, sp = place_frame(tf, sa, &fp);

	if (sp == 0 || (sa->flags & KSA_RESTORER) == 0)
		return -EFAULT;
	if (sa->handler >= CM_USER_TOP)
		return -EFAULT;
	if (fpu_to_user(fp) != 0)
		return -EFAULT;
	fill_context(&frame.uc, tf, fp, old_mask);
	siginfo_to_user(si, frame.info);
	if (copy_to_user((void __user *)sp, &frame, sizeof(frame)) != 0)
		return -EFAULT;

	tf->rdi = (uint64_t)si->signo;
	tf->rsi = sp + offsetof(struct krt_sigframe, info);
	tf->rdx = sp + offsetof(struct krt_sigframe, uc);
	tf->rax = 0;
	tf->rip = sa->handler;
	tf->rsp = sp;
	tf->cs = CM_SEL_UCS;
	tf->ss = CM_SEL_USS;
	tf->rflags &= ~(uint64_t)(FLAG_DF | FLAG_RF | FLAG_TF);
	tf->orig_rax = (uint64_t)-1;
	return 0;
}

/* ---- returning ---- */

static void restore_registers(struct trapframe *tf, const struct sigcontext_64 *mc)
{
	tf->r8 = mc->r8;
	tf->r9 = mc->r9;
	tf->r10 = mc->r10;
	tf->r11 = mc->r11;
	tf->r12 = mc->r12;
	tf->r13 = mc->r13;
	tf->r14 = mc->r14;
	tf->r15 = mc->r15;
	tf->rdi = mc->di;
	tf->rsi = mc->si;
	tf->rbp = mc->bp;
	tf->rbx = mc->bx;
	tf->rdx = mc->dx;
	tf->rax = mc->ax;
	tf->rcx = mc->cx;
	tf->rsp = mc->sp;
	tf->rip = mc->ip;
	tf->rflags = (tf->rflags & ~(uint64_t)FLAGS_USER) | (mc->flags & FLAGS_USER);
	tf->cs = CM_SEL_UCS;
	tf->ss = CM_SEL_USS;
	tf->orig_rax = (uint64_t)-1;
}

long sigframe_restore(struct trapframe *tf)
{
	uint64_t sp = tf->rsp - 8;	/* the handler's ret took pretcode */
	struct krt_sigframe frame;

	current->restart_fn = NULL;
	if (copy_from_user(&frame, (const void __user *)sp,
			   offsetof(struct krt_sigframe, info)) != 0)
		goto bad;
	if (frame.uc.mc.ip >= CM_USER_TOP)
		goto bad;
	signal_set_mask(frame.uc.sigmask);
	if (fpu_from_user(frame.uc.mc.fpstate) != 0)
		goto bad;
	restore_registers(tf, &frame.uc.mc);
	/* As Linux: a stack that cannot be set is no reason to fail. */
	signal_set_altstack(frame.uc.ss_sp, frame.uc.ss_flags, frame.uc.ss_size, tf->rsp);
	return (long)tf->rax;
bad:
	signal_force(KSIGSEGV, KSI_KERNEL, 0, (int)current->trap_nr);
	return 0;
}
