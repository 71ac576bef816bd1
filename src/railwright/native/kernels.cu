/* What runs on the GPU. kernels.ptx is made from this file by scripts/write-ptx and travels with the package, so that
 * no CUDA compiler is needed where it is used: the driver compiles the PTX for the GPU that is there.
 *
 * Plain CUDA C++ that clang and nvcc both take, with no header of CUDA's. Every integer argument is 64 bits wide,
 * every real one is a float: `cuda.launch` relies on it. Every kernel works with any grid and block. */

typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;

#define KERNEL extern "C" __attribute__((global)) void
#define INSIDE static __attribute__((device)) inline
#define SHARED static __attribute__((shared))

struct __attribute__((aligned(16))) Vector {
  u32 a, b, c, d;
};

INSIDE u32 special_thread() { u32 x; asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x)); return x; }
INSIDE u32 special_block() { u32 x; asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(x)); return x; }
INSIDE u32 special_threads() { u32 x; asm volatile("mov.u32 %0, %%ntid.x;" : "=r"(x)); return x; }
INSIDE u32 special_blocks() { u32 x; asm volatile("mov.u32 %0, %%nctaid.x;" : "=r"(x)); return x; }
INSIDE void synchronize() { asm volatile("bar.sync 0;" : : : "memory"); }
INSIDE u64 nanoseconds() { u64 x; asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(x)); return x; }

/* Sixteen bytes in one access, in the order in which they are written here. */
INSIDE Vector load(const Vector *from) {
  Vector v;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.a), "=r"(v.b), "=r"(v.c), "=r"(v.d) : "l"(from));
  return v;
}
INSIDE void store(Vector *to, Vector v) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" : : "l"(to), "r"(v.a), "r"(v.b), "r"(v.c), "r"(v.d) : "memory");
}

INSIDE u64 first_index() { return (u64)special_block() * special_threads() + special_thread(); }
INSIDE u64 all_threads() { return (u64)special_blocks() * special_threads(); }

INSIDE void add(u64 *counter, u64 wrong) {
  if (wrong) asm volatile("red.add.u64 [%0], %1;" : : "l"(counter), "l"(wrong) : "memory");
}

/* The word that belongs at an index: splitmix64 (Steele, Lea and Flood 2014), as in memory.c. */
INSIDE u64 splitmix(u64 seed, u64 index) {
  u64 z = seed + (index + 1) * 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

INSIDE unsigned char byte_at(u64 seed, u64 position) {
  return (unsigned char)(splitmix(seed, position / 8) >> (8 * (position % 8)));
}

/* rw_fill of memory.c: `to` is aligned to 8 bytes and `position` a multiple of 8. */
KERNEL fill(u64 *to, u64 bytes, u64 seed, u64 position) {
  u64 words = bytes / 8, step = all_threads();
  for (u64 i = first_index(); i < words; i += step) to[i] = splitmix(seed, position / 8 + i);
  unsigned char *end = (unsigned char *)to;
  for (u64 i = words * 8 + first_index(); i < bytes; i += step) end[i] = byte_at(seed, position + i);
}

/* rw_count_wrong of memory.c: adds the number of wrong bytes to `counter`. */
KERNEL count_wrong(const u64 *from, u64 bytes, u64 seed, u64 position, u64 *counter) {
  u64 words = bytes / 8, step = all_threads(), wrong = 0;
  for (u64 i = first_index(); i < words; i += step) {
    u64 differs = from[i] ^ splitmix(seed, position / 8 + i);
    for (; differs; differs >>= 8) wrong += (differs & 255) != 0;
  }
  const unsigned char *end = (const unsigned char *)from;
  for (u64 i = words * 8 + first_index(); i < bytes; i += step) wrong += end[i] != byte_at(seed, position + i);
  add(counter, wrong);
}

/* Copies `bytes` `loops` times. Both addresses are aligned to 16 bytes; the few bytes after the last vector go one by
 * one. Eight loads are in flight before the first store, so that a thread waits once for eight of them. */
KERNEL copy(Vector *to, const Vector *from, u64 bytes, u64 loops) {
  u64 vectors = bytes / 16, step = all_threads();
  for (u64 loop = 0; loop < loops; loop++) {
    u64 i = first_index();
    for (; i + 7 * step < vectors; i += 8 * step) {
      Vector v0 = load(from + i), v1 = load(from + i + step);
      Vector v2 = load(from + i + 2 * step), v3 = load(from + i + 3 * step);
      Vector v4 = load(from + i + 4 * step), v5 = load(from + i + 5 * step);
      Vector v6 = load(from + i + 6 * step), v7 = load(from + i + 7 * step);
      store(to + i, v0), store(to + i + step, v1), store(to + i + 2 * step, v2), store(to + i + 3 * step, v3);
      store(to + i + 4 * step, v4), store(to + i + 5 * step, v5);
      store(to + i + 6 * step, v6), store(to + i + 7 * step, v7);
    }
    for (; i < vectors; i += step) store(to + i, load(from + i));
    const unsigned char *tail = (const unsigned char *)from;
    for (u64 j = vectors * 16 + first_index(); j < bytes; j += step) ((unsigned char *)to)[j] = tail[j];
  }
}

/* Holds its stream back until flag[0] is not 0, or until `limit_ns` have passed: then flag[1] is set to 1, so that a
 * host that died or waits for this stream cannot hang the GPU. One thread. */
KERNEL spin(volatile u32 *flag, u64 limit_ns) {
  u64 start = nanoseconds();
  while (!flag[0])
    if (nanoseconds() - start > limit_ns) {
      flag[1] = 1;
      return;
    }
}

/* Follows `loads` pointers, each of which must arrive before the next can be asked for. One thread. `end` gets the
 * last one. The loads are volatile: none is answered by this GPU's first-level cache. */
KERNEL chase(const u64 *start, u64 loads, u64 *end) {
  u64 at = (u64)start;
  for (u64 i = 0; i < loads; i++) asm volatile("ld.volatile.global.u64 %0, [%0];" : "+l"(at) : : "memory");
  *end = at;
}

/* The floats that collectives are checked with, as in mpi_collectives.c, where it is said why they are what they are. */
enum { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, SEND_RECV, BROADCAST };

INSIDE float given(u64 from, u64 index) {
  u64 z = splitmix(0, index);
  return (float)(i64)(1 + (z & 255) + from * (1 + (z >> 8 & 15)));
}

INSIDE float sum_of_all(u64 ranks, u64 index) {
  u64 z = splitmix(0, index);
  return (float)(i64)(ranks * (1 + (z & 255)) + ranks * (ranks - 1) / 2 * (1 + (z >> 8 & 15)));
}

/* `rank`'s pattern, of `floats` floats, the first of which has the index `first`. */
KERNEL collective_fill(float *out, u64 floats, u64 rank, u64 first) {
  for (u64 i = first_index(), step = all_threads(); i < floats; i += step) out[i] = given(rank, first + i);
}

/* Adds the number of wrong floats in the result of a collective on this rank to `counter`. `count` is all floats for
 * ALL_REDUCE, SEND_RECV and BROADCAST, one rank's share of them for the others. SEND_RECV is a ring: from rank - 1.
 * BROADCAST is from rank 0. */
KERNEL collective_wrong(const float *in, u64 kind, u64 count, u64 rank, u64 ranks, u64 *counter) {
  bool shares = kind == ALL_GATHER || kind == ALL_TO_ALL, sums = kind == ALL_REDUCE || kind == REDUCE_SCATTER;
  u64 floats = shares ? count * ranks : count, step = all_threads(), wrong = 0;
  u64 first = kind == REDUCE_SCATTER || kind == ALL_TO_ALL ? rank * count : 0;
  u64 sender = kind == SEND_RECV ? (rank + ranks - 1) % ranks : 0;
  for (u64 i = first_index(); i < floats; i += step) {
    u64 from = shares ? i / count : sender, index = first + (shares ? i % count : i);
    wrong += in[i] != (sums ? sum_of_all(ranks, index) : given(from, index));
  }
  add(counter, wrong);
}

/* The same for a result that lies in floats [`from`, `from` + `floats`) of what every rank gives. `by` < 0 is the sum
 * over `ranks`, else the pattern of rank `by`. For buffers that are checked piece by piece. */
KERNEL pattern_wrong(const float *in, u64 floats, u64 from, i64 by, u64 ranks, u64 *counter) {
  u64 wrong = 0;
  for (u64 i = first_index(), step = all_threads(); i < floats; i += step)
    wrong += in[i] != (by < 0 ? sum_of_all(ranks, from + i) : given((u64)by, from + i));
  add(counter, wrong);
}

/* Keeps the arithmetic units busy: `loops` times eight dependent fused multiply-adds in each thread, which are
 * 16 x loops x threads floating-point operations. What comes out is written if it is something that cannot be. */
KERNEL burn(float *out, u64 loops, float a, float b) {
  float x0 = a, x1 = a + 1, x2 = a + 2, x3 = a + 3, x4 = a + 4, x5 = a + 5, x6 = a + 6, x7 = a + 7;
  for (u64 i = 0; i < loops; i++) {
    x0 = __builtin_fmaf(x0, a, b), x1 = __builtin_fmaf(x1, a, b), x2 = __builtin_fmaf(x2, a, b);
    x3 = __builtin_fmaf(x3, a, b), x4 = __builtin_fmaf(x4, a, b), x5 = __builtin_fmaf(x5, a, b);
    x6 = __builtin_fmaf(x6, a, b), x7 = __builtin_fmaf(x7, a, b);
  }
  float sum = ((x0 + x1) + (x2 + x3)) + ((x4 + x5) + (x6 + x7));
  if (sum == -1.0f) *out = sum;
}

#include "lu_kernels.h"
