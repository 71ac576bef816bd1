/* Buffers, the data check, memory copies, and the noise of the machine itself. */
#include "railwright.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SMALL_PAGE = 4096, HUGE_PAGE = 2 << 20, MOST_NODES = 1024, ANY_NODE = -1, PAGES_AT_ONCE = 512 };
enum { BIND = 2 }; /* MPOL_BIND of linux/mempolicy.h; libnuma, which has it too, is on few machines */

/* Binds untouched pages of a mapping to one NUMA node. */
static int bind_to_node(void *pages, size_t bytes, int node) {
  enum { WORD_BITS = 8 * sizeof(unsigned long) };
  unsigned long nodes[MOST_NODES / WORD_BITS] = {0};
  if (node < 0 || node >= MOST_NODES) return -EINVAL;
  nodes[node / WORD_BITS] = 1UL << node % WORD_BITS;
  /* The kernel reads one bit less than the given number. */
  return syscall(SYS_mbind, pages, bytes, BIND, nodes, (unsigned long)MOST_NODES + 1, 0U) ? -errno : RW_OK;
}

/* Allocates a buffer. The place of pages decides the result (1.7x at 1 MiB between two runs of one program with
 * malloc), so every buffer has its own mapping, with huge or small pages as requested, touched before use.
 * It is on one NUMA node if `node` is not ANY_NODE. Returns NULL on failure, with RW_NO_MEMORY or a negative errno in
 * `status`. */
void *rw_alloc_on(size_t bytes, int huge, int node, int *status) {
  /* Extra room, so that the buffer can begin at a huge page's border; the rest is unmapped. */
  size_t whole = bytes + (huge ? HUGE_PAGE : 0);
  char *room = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *status = RW_NO_MEMORY;
  if (room == (char *)MAP_FAILED) return NULL;
  size_t before = huge ? (HUGE_PAGE - (uintptr_t)room % HUGE_PAGE) % HUGE_PAGE : 0;
  size_t end = (before + bytes + SMALL_PAGE - 1) / SMALL_PAGE * SMALL_PAGE;
  char *buffer = room + before;
  if (before) munmap(room, before);
  if (end < whole) munmap(room + end, whole - end);
  madvise(buffer, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  *status = node == ANY_NODE ? RW_OK : bind_to_node(buffer, bytes, node);
  if (*status) {
    munmap(buffer, bytes);
    return NULL;
  }
  memset(buffer, 0, bytes);
  return buffer;
}

void *rw_alloc(size_t bytes, int huge) {
  int status;
  return rw_alloc_on(bytes, huge, ANY_NODE, &status);
}

int rw_free(void *buffer, size_t bytes) { return munmap(buffer, bytes); }

/* Counts a buffer's small pages on a NUMA node; a negative errno if the kernel does not report them. */
int64_t rw_pages_on(const void *buffer, size_t bytes, int node) {
  int64_t there = 0;
  for (size_t at = 0; at < bytes;) {
    const void *pages[PAGES_AT_ONCE];
    int nodes[PAGES_AT_ONCE];
    size_t count = 0;
    for (; count < PAGES_AT_ONCE && at < bytes; at += SMALL_PAGE) pages[count++] = (const char *)buffer + at;
    /* Without target nodes, the kernel reports the current ones. */
    if (syscall(SYS_move_pages, 0, count, pages, NULL, nodes, 0)) return -errno;
    for (size_t i = 0; i < count; i++) there += nodes[i] == node;
  }
  return there;
}

int rw_pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return sched_setaffinity(0, sizeof set, &set) ? -errno : RW_OK;
}

/* Returns the word at an index: splitmix64 (Steele, Lea and Flood 2014), so that a shifted, repeated, stale or zero
 * block cannot pass. */
static inline uint64_t word_at(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

static inline unsigned char byte_at(uint64_t seed, uint64_t position) {
  return (unsigned char)(word_at(seed, position / 8) >> (8 * (position % 8)));
}

/* Fills with the pattern of `seed` that starts at byte `position`, a multiple of 8. */
void rw_fill(unsigned char *buffer, size_t bytes, uint64_t seed, uint64_t position) {
  size_t i = 0;
  for (; i + 8 <= bytes; i += 8) {
    uint64_t word = word_at(seed, (position + i) / 8);
    memcpy(buffer + i, &word, 8);
  }
  for (; i < bytes; i++) buffer[i] = byte_at(seed, position + i);
}

/* Counts the bytes that differ from the pattern. */
int64_t rw_count_wrong(const unsigned char *buffer, size_t bytes, uint64_t seed, uint64_t position) {
  int64_t wrong = 0;
  size_t i = 0;
  for (; i + 8 <= bytes; i += 8) {
    uint64_t word, right = word_at(seed, (position + i) / 8);
    memcpy(&word, buffer + i, 8);
    if (word == right) continue;
    for (size_t j = 0; j < 8; j++) wrong += buffer[i + j] != byte_at(seed, position + i + j);
  }
  for (; i < bytes; i++) wrong += buffer[i] != byte_at(seed, position + i);
  return wrong;
}

/* Writes the mean time of `inner` copies for each sample, because small copies are shorter than a clock call. */
int rw_copy(char *to, const char *from, size_t bytes, int inner, int warm, int samples, double *seconds) {
  for (int k = -warm; k < samples; k++) {
    double start = rw_now();
    for (int i = 0; i < inner; i++) {
      memcpy(to, from, bytes);
      RW_KEEP(to);
    }
    if (k >= 0) seconds[k] = (rw_now() - start) / inner;
  }
  return RW_OK;
}

struct copier {
  pthread_barrier_t *barrier;
  pthread_t thread;
  int cpu, samples, inner, status;
  size_t bytes;
  uint64_t seed;
  double *start, *stop;
  int64_t wrong;
};

static void *copy_thread(void *argument) {
  struct copier *c = argument;
  c->status = rw_pin(c->cpu);
  unsigned char *from = rw_alloc(c->bytes, 1), *to = rw_alloc(c->bytes, 1);
  if (!from || !to) c->status = RW_NO_MEMORY;
  else rw_fill(from, c->bytes, c->seed, 0);
  for (int k = -1; k < c->samples; k++) {
    pthread_barrier_wait(c->barrier);
    double start = rw_now();
    if (c->status != RW_NO_MEMORY)
      for (int i = 0; i < c->inner; i++) {
        memcpy(to, from, c->bytes);
        RW_KEEP(to);
      }
    if (k >= 0) c->start[k] = start, c->stop[k] = rw_now();
  }
  c->wrong = c->status == RW_NO_MEMORY ? (int64_t)c->bytes : rw_count_wrong(to, c->bytes, c->seed, 0);
  if (from) rw_free(from, c->bytes);
  if (to) rw_free(to, c->bytes);
  return NULL;
}

/* Copies by `threads` pinned threads at once, each `bytes` between its own buffers (which it touches itself, so that
 * they are on its own NUMA node). A sample is the time from the first start to the last end, divided by `inner`, the
 * copies per thread. */
int rw_copy_threads(int threads, const int *cpus, size_t bytes, int inner, int samples, double *seconds, int64_t *wrong) {
  pthread_barrier_t barrier;
  struct copier *copiers = calloc((size_t)threads, sizeof *copiers);
  double *times = calloc((size_t)threads * (size_t)samples * 2, sizeof *times);
  int status = RW_OK, started = 0;
  if (!copiers || !times) {
    free(copiers), free(times);
    return RW_NO_MEMORY;
  }
  pthread_barrier_init(&barrier, NULL, (unsigned)threads);
  for (; started < threads; started++) {
    struct copier *c = &copiers[started];
    *c = (struct copier){.barrier = &barrier, .cpu = cpus[started], .samples = samples, .inner = inner, .bytes = bytes,
                         .seed = (uint64_t)started + 1, .start = times + (size_t)started * 2 * (size_t)samples,
                         .stop = times + ((size_t)started * 2 + 1) * (size_t)samples};
    if (pthread_create(&c->thread, NULL, copy_thread, c)) break;
  }
  if (started < threads) return RW_NO_THREAD; /* the started threads wait at the barrier; the rank reports and exits */
  *wrong = 0;
  for (int t = 0; t < threads; t++) {
    pthread_join(copiers[t].thread, NULL);
    if (copiers[t].status) status = copiers[t].status;
    *wrong += copiers[t].wrong;
  }
  for (int k = 0; k < samples; k++) {
    double first = copiers[0].start[k], last = copiers[0].stop[k];
    for (int t = 1; t < threads; t++) {
      if (copiers[t].start[k] < first) first = copiers[t].start[k];
      if (copiers[t].stop[k] > last) last = copiers[t].stop[k];
    }
    seconds[k] = (last - first) / inner;
  }
  pthread_barrier_destroy(&barrier);
  free(copiers), free(times);
  return status;
}

struct partner {
  _Atomic int *ball;
  int cpu, rounds, status;
};

static void *return_ball(void *argument) {
  struct partner *p = argument;
  p->status = rw_pin(p->cpu);
  for (int k = 0; k < p->rounds; k++) {
    while (atomic_load_explicit(p->ball, memory_order_acquire) != 2 * k + 1) {}
    atomic_store_explicit(p->ball, 2 * k + 2, memory_order_release);
  }
  return NULL;
}

/* Bounces a cache line between two cores; a sample is half the mean round trip of `inner` trips. It is the minimum
 * time in which any message can pass between the cores. */
int rw_core_latency(int cpu, int partner_cpu, int inner, int samples, double *seconds) {
  _Alignas(128) _Atomic int ball = 0;
  struct partner partner = {.ball = &ball, .cpu = partner_cpu, .rounds = inner * (samples + 1)};
  pthread_t thread;
  int status = rw_pin(cpu), sent = 0;
  if (status) return status;
  if (pthread_create(&thread, NULL, return_ball, &partner)) return RW_NO_THREAD;
  for (int k = -1; k < samples; k++) {
    double start = rw_now();
    for (int i = 0; i < inner; i++, sent++) {
      atomic_store_explicit(&ball, 2 * sent + 1, memory_order_release);
      while (atomic_load_explicit(&ball, memory_order_acquire) != 2 * sent + 2) {}
    }
    if (k >= 0) seconds[k] = (rw_now() - start) / inner / 2;
  }
  pthread_join(thread, NULL);
  return partner.status;
}

/* Times a fixed piece of work `quanta` times without a gap: the machine varies, not the work. */
int rw_noise(int work, int quanta, double *seconds) {
  uint64_t x = 88172645463325252ULL;
  double last = rw_now();
  for (int k = 0; k < quanta; k++) {
    for (int i = 0; i < work; i++) x ^= x << 13, x ^= x >> 7, x ^= x << 17; /* xorshift64: a dependent chain */
    RW_KEEP(x);
    double now = rw_now();
    seconds[k] = now - last;
    last = now;
  }
  return RW_OK;
}
