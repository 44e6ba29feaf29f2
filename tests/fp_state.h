/* The arithmetic mode of the calling thread: the library must compute the same whatever it is, and leave it alone. */
#ifndef HETRAIN_TEST_FP_STATE_H
#define HETRAIN_TEST_FP_STATE_H

#if defined(__x86_64__) || defined(__i386__)

#include <xmmintrin.h>
typedef unsigned fp_state;
#define FP_HOSTILE_BITS (0x8000u /* results to 0 */ | 0x0040u /* operands to 0 */ | 0x4000u /* round up */)
static inline fp_state fp_get(void) { return _mm_getcsr() & 0xFFC0u; /* without the sticky flags */ }
static inline void fp_set(fp_state state) { _mm_setcsr(state); }

#elif defined(__aarch64__)

typedef unsigned long fp_state;
#define FP_HOSTILE_BITS ((1ul << 24) /* subnormals to 0 */ | (1ul << 22) /* round up */)
static inline fp_state fp_get(void)
{
    fp_state state;
    __asm__ volatile("mrs %0, fpcr" : "=r"(state));
    return state;
}
static inline void fp_set(fp_state state) { __asm__ volatile("msr fpcr, %0" : : "r"(state)); }

#else

typedef unsigned fp_state;
#define FP_HOSTILE_BITS 0u
static inline fp_state fp_get(void) { return 0; }
static inline void fp_set(fp_state state) { (void)state; }

#endif

/* Sets the mode that breaks the most, returns the one before. */
static inline fp_state fp_set_hostile(void)
{
    fp_state before = fp_get();
    fp_set(before | FP_HOSTILE_BITS);
    return before;
}

#endif
