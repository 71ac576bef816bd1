/* Operations of the stand-in for NCCL, and how data moves between ranks of one host: through memory that all map.
 * Included by nccl_hosts.h alone. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SUCCESS = 0, CUDA_FAILED = 1, INVALID_ARGUMENT = 4, INVALID_USAGE = 5 };
enum { MOST_RANKS = 16, SLOT_FLOATS = 1 << 16, FLOAT16 = 6, FLOAT32 = 7, BFLOAT16 = 9 };
enum kind { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, BROADCAST, SENDS };

struct id {
  char internal[128];
};

struct shared {
  atomic_int attached, waiting, round;
  size_t wanted[MOST_RANKS][MOST_RANKS]; /* floats from a rank to a rank, of one group of sends */
  float slots[MOST_RANKS][SLOT_FLOATS];
};

struct hosts;

struct comm {
  struct shared *shared;
  struct hosts *hosts; /* NULL unless the ranks are on several hosts */
  int rank, ranks, connected;
  long operations, logged;
  char file[512];
};

struct transfer {
  float *at;
  size_t count;
  int other, sends;
};

struct work {
  enum kind kind;
  struct comm *comm;
  void *stream;
  const float *out;
  float *in;
  size_t count;
  int root, type, transfers, corrupt;
  struct transfer transfer[2 * MOST_RANKS];
};

static long setting(const char *name) {
  const char *text = getenv(name);
  return text ? atol(text) : 0;
}

/* ---- what moves ---- */

static void barrier(struct comm *c) {
  struct shared *s = c->shared;
  int round = atomic_load(&s->round);
  if (atomic_fetch_add(&s->waiting, 1) + 1 == c->ranks) {
    atomic_store(&s->waiting, 0);
    atomic_fetch_add(&s->round, 1);
  } else {
    while (atomic_load(&s->round) == round) sched_yield();
  }
}

static void take(const struct work *w, size_t at, size_t floats) {
  struct shared *s = w->comm->shared;
  int sums = w->kind == ALL_REDUCE || w->kind == REDUCE_SCATTER;
  for (int from = 0; from < w->comm->ranks; from++) {
    if (w->kind == BROADCAST && from != w->root) continue;
    float *to = w->kind == ALL_GATHER || w->kind == ALL_TO_ALL ? w->in + (size_t)from * w->count + at : w->in + at;
    for (size_t i = 0; i < floats; i++) to[i] = sums && from ? to[i] + s->slots[from][i] : s->slots[from][i];
  }
}

static float widened(uint16_t bits, int type) {
  union { uint32_t bits; float value; } wide = {(uint32_t)bits << 16};
  union { uint16_t bits; _Float16 value; } half = {bits};
  return type == BFLOAT16 ? wide.value : (float)half.value;
}

static uint16_t narrowed(float value, int type) {
  union { float value; uint32_t bits; } wide = {value};
  union { _Float16 value; uint16_t bits; } half = {(_Float16)value};
  return type == BFLOAT16 ? (uint16_t)((wide.bits + 0x7fff + (wide.bits >> 16 & 1)) >> 16) : half.bits;
}

/* A sum of 16-bit reals, rounded once: the same on every rank. */
static void all_reduce_halves(const struct work *w) {
  struct comm *c = w->comm;
  const uint16_t *out = (const uint16_t *)w->out;
  uint16_t *in = (uint16_t *)w->in;
  for (size_t at = 0; at < w->count; at += SLOT_FLOATS) {
    size_t some = w->count - at < SLOT_FLOATS ? w->count - at : SLOT_FLOATS;
    memcpy(c->shared->slots[c->rank], out + at, some * sizeof *out);
    barrier(c);
    for (size_t i = 0; i < some; i++) {
      float sum = 0;
      for (int from = 0; from < c->ranks; from++) sum += widened(((uint16_t *)c->shared->slots[from])[i], w->type);
      in[at + i] = narrowed(sum, w->type);
    }
    barrier(c);
  }
}

static void collective(const struct work *w) {
  struct comm *c = w->comm;
  int parts = w->kind == REDUCE_SCATTER || w->kind == ALL_TO_ALL ? c->ranks : 1;
  for (int part = 0; part < parts; part++)
    for (size_t at = 0; at < w->count; at += SLOT_FLOATS) {
      size_t floats = w->count - at < SLOT_FLOATS ? w->count - at : SLOT_FLOATS;
      memcpy(c->shared->slots[c->rank], w->out + (size_t)part * w->count + at, floats * sizeof(float));
      barrier(c);
      if (parts == 1 || part == c->rank) take(w, at, floats);
      barrier(c);
    }
}

static struct transfer *transfer_of(struct work *w, int other, int is_send) {
  for (int i = 0; i < w->transfers; i++)
    if (w->transfer[i].other == other && w->transfer[i].sends == is_send) return &w->transfer[i];
  return NULL;
}

static void exchange(struct work *w) {
  struct comm *c = w->comm;
  memset(c->shared->wanted[c->rank], 0, sizeof c->shared->wanted[c->rank]);
  for (int i = 0; i < w->transfers; i++)
    if (w->transfer[i].sends) c->shared->wanted[c->rank][w->transfer[i].other] = w->transfer[i].count;
  barrier(c);
  for (int from = 0; from < c->ranks; from++)
    for (int to = 0; to < c->ranks; to++)
      for (size_t at = 0, all = c->shared->wanted[from][to]; at < all; at += SLOT_FLOATS) {
        size_t bytes = (all - at < SLOT_FLOATS ? all - at : SLOT_FLOATS) * sizeof(float);
        if (from == c->rank) memcpy(c->shared->slots[from], transfer_of(w, to, 1)->at + at, bytes);
        barrier(c);
        struct transfer *mine = to == c->rank ? transfer_of(w, from, 0) : NULL;
        if (mine) memcpy(mine->at + at, c->shared->slots[from], bytes);
        if (mine && !at && setting("STANDIN_NCCL_DAMAGE")) *(char *)mine->at ^= 1;
        barrier(c);
      }
  barrier(c);
}
