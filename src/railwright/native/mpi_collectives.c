/* MPI collectives on floats: back-to-back operations between barriers, as nccl-tests times NCCL's operations.
 *
 * Each operation has its own loop, so that nothing else runs between two MPI calls. Handles are passed as in mpi.c. */
#include "railwright.h"

#include <dlfcn.h>

typedef int (*reduce_f)(const void *, void *, int, intptr_t, intptr_t, intptr_t);
typedef int (*exchange_f)(const void *, int, intptr_t, void *, int, intptr_t, intptr_t);
typedef int (*barrier_f)(intptr_t);

static struct {
  reduce_f all_reduce, reduce_scatter; /* MPI_Reduce_scatter_block has MPI_Allreduce's arguments */
  exchange_f all_gather, all_to_all;   /* MPI_Alltoall has MPI_Allgather's arguments */
  barrier_f barrier;
} mpi;

enum { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, KINDS };

/* The layout is also in `native/mpi_collectives.py`. */
struct rw_collective {
  intptr_t comm, type, sum;
  int kind;
  int count; /* floats: all of them for ALL_REDUCE, one rank's share of them for the others */
  int rank, ranks;
};

int rw_collectives_bind(void *library) {
  mpi.all_reduce = (reduce_f)dlsym(library, "MPI_Allreduce");
  mpi.reduce_scatter = (reduce_f)dlsym(library, "MPI_Reduce_scatter_block");
  mpi.all_gather = (exchange_f)dlsym(library, "MPI_Allgather");
  mpi.all_to_all = (exchange_f)dlsym(library, "MPI_Alltoall");
  mpi.barrier = (barrier_f)dlsym(library, "MPI_Barrier");
  return mpi.all_reduce && mpi.reduce_scatter && mpi.all_gather && mpi.all_to_all && mpi.barrier ? RW_OK
                                                                                               : RW_MISSING_SYMBOL;
}

typedef int (*loop_f)(const struct rw_collective *, const float *, float *, int);

static int all_reduce(const struct rw_collective *c, const float *out, float *in, int operations) {
  int status = RW_OK;
  for (int k = 0; k < operations && !status; k++) status = mpi.all_reduce(out, in, c->count, c->type, c->sum, c->comm);
  return status;
}

static int reduce_scatter(const struct rw_collective *c, const float *out, float *in, int operations) {
  int status = RW_OK;
  for (int k = 0; k < operations && !status; k++)
    status = mpi.reduce_scatter(out, in, c->count, c->type, c->sum, c->comm);
  return status;
}

static int all_gather(const struct rw_collective *c, const float *out, float *in, int operations) {
  int status = RW_OK;
  for (int k = 0; k < operations && !status; k++)
    status = mpi.all_gather(out, c->count, c->type, in, c->count, c->type, c->comm);
  return status;
}

static int all_to_all(const struct rw_collective *c, const float *out, float *in, int operations) {
  int status = RW_OK;
  for (int k = 0; k < operations && !status; k++)
    status = mpi.all_to_all(out, c->count, c->type, in, c->count, c->type, c->comm);
  return status;
}

static const loop_f LOOPS[KINDS] = {all_reduce, all_gather, reduce_scatter, all_to_all};

/* Runs `warm` operations, then `samples` times a barrier and `operations` operations. Every rank writes its own seconds
 * per operation for each sample; the caller averages over ranks. The last barrier is not timed. */
int rw_collective(const struct rw_collective *c, const float *out, float *in, int warm, int operations, int samples,
                  double *seconds) {
  loop_f loop = LOOPS[c->kind];
  int status = loop(c, out, in, warm);
  for (int k = 0; k < samples && !status; k++) {
    status = mpi.barrier(c->comm);
    double start = rw_now();
    if (!status) status = loop(c, out, in, operations);
    seconds[k] = (rw_now() - start) / operations;
  }
  return status ? status : mpi.barrier(c->comm);
}

/* The value at an index: `base` + rank x `step`, both from splitmix64 (Steele, Lea and Flood 2014) of the index.
 * A sum over ranks then has a closed form, and differs if a rank is missing, counted twice or at another index.
 * They are integers: up to 1,024 ranks every partial sum is below 2^24, so a float holds it exactly in any order. */
struct word {
  int64_t base, step;
};

static inline struct word word_at(int64_t index) {
  uint64_t z = ((uint64_t)index + 1) * 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  z ^= z >> 31;
  return (struct word){1 + (int64_t)(z & 255), 1 + (int64_t)(z >> 8 & 15)};
}

static inline float given(int64_t from, int64_t index) {
  struct word word = word_at(index);
  return (float)(word.base + from * word.step);
}

static inline float sum_of_all(int64_t ranks, int64_t index) {
  struct word word = word_at(index);
  return (float)(ranks * word.base + ranks * (ranks - 1) / 2 * word.step);
}

static int64_t sent_floats(const struct rw_collective *c) {
  return c->kind == ALL_REDUCE || c->kind == ALL_GATHER ? c->count : (int64_t)c->count * c->ranks;
}

static int64_t received_floats(const struct rw_collective *c) {
  return c->kind == ALL_REDUCE || c->kind == REDUCE_SCATTER ? c->count : (int64_t)c->count * c->ranks;
}

/* Writes this rank's pattern to `out`, and -1, which is never right, to `in`. */
void rw_collective_fill(const struct rw_collective *c, float *out, float *in) {
  for (int64_t i = 0, floats = sent_floats(c); i < floats; i++) out[i] = given(c->rank, i);
  for (int64_t i = 0, floats = received_floats(c); i < floats; i++) in[i] = -1;
}

/* Counts the wrong floats of this rank's result. */
int64_t rw_collective_wrong(const struct rw_collective *c, const float *in) {
  int64_t wrong = 0, mine = (int64_t)c->rank * c->count;
  if (c->kind == ALL_REDUCE || c->kind == REDUCE_SCATTER) {
    int64_t first = c->kind == ALL_REDUCE ? 0 : mine;
    for (int64_t i = 0; i < c->count; i++) wrong += in[i] != sum_of_all(c->ranks, first + i);
    return wrong;
  }
  int64_t first = c->kind == ALL_GATHER ? 0 : mine;
  for (int from = 0; from < c->ranks; from++)
    for (int64_t i = 0; i < c->count; i++) wrong += in[(int64_t)from * c->count + i] != given(from, first + i);
  return wrong;
}
