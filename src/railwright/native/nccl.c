/* NCCL's collectives on floats, timed as by nccl-tests 2.19.6 (BenchTime, startColl and testStreamSynchronize in its
 * src/common.cu; doc/PERFORMANCE.md): after one untimed operation and a barrier, operations are enqueued on a
 * stream, and the host's clock runs from before the first until a query of the stream reports that all are done.
 *
 * Each rank of this process is a thread. Handles and NCCL's functions are set up in `native/nccl.py`. */
#include "cuda.h"
#include "nccl_errors.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { FLOAT32 = 7, SUM = 0, IN_PROGRESS = 7 }; /* of nccl.h, the same since 2.0 (IN_PROGRESS: 2.14) */
enum { CAPTURE_THREAD_LOCAL = 1 };              /* CUstreamCaptureMode */
enum { SPINS = 2000 };

enum { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, SEND_RECV, BROADCAST };
enum { WARM, TIME, ONCE };

static struct {
  int (*all_reduce)(const void *, void *, size_t, int, int, void *, void *);
  int (*reduce_scatter)(const void *, void *, size_t, int, int, void *, void *);
  int (*all_gather)(const void *, void *, size_t, int, void *, void *);
  int (*all_to_all)(const void *, void *, size_t, int, void *, void *); /* NULL before 2.28 */
  int (*broadcast)(const void *, void *, size_t, int, int, void *, void *);
  int (*send)(const void *, size_t, int, int, void *, void *);
  int (*recv)(void *, size_t, int, int, void *, void *);
  int (*group_start)(void);
  int (*group_end)(void);
  int (*async_error)(void *, int *);
} nccl;

static int (*mpi_barrier)(intptr_t);

/* A rank, which is a thread of this process. The layout is also in `native/nccl.py`. */
struct rw_nccl_rank {
  void *comm, *context, *stream;
  uint64_t out, in; /* device addresses; each buffer has `largest_bytes` */
  int rank;
};

/* An operation at one size. The layout is also in `native/nccl.py`. */
struct rw_nccl {
  intptr_t comm; /* of MPI, over all processes; 0 if this process holds all ranks */
  size_t count;  /* floats, as NCCL's function takes them */
  size_t sent_bytes, received_bytes, largest_bytes;
  int kind, ranks, here; /* `here`: the ranks of this process; 1 if there is an MPI communicator */
  int in_place, graph, operations;
};

struct team {
  const struct rw_nccl *what;
  const struct rw_nccl_rank *ranks;
  int task, samples;
  double *seconds;
  atomic_int waiting, round, status;
};

struct worker {
  struct team *team;
  int index;
};

int rw_nccl_bind(void *library) {
  nccl.all_reduce = (int (*)(const void *, void *, size_t, int, int, void *, void *))dlsym(library, "ncclAllReduce");
  nccl.reduce_scatter =
      (int (*)(const void *, void *, size_t, int, int, void *, void *))dlsym(library, "ncclReduceScatter");
  nccl.all_gather = (int (*)(const void *, void *, size_t, int, void *, void *))dlsym(library, "ncclAllGather");
  nccl.all_to_all = (int (*)(const void *, void *, size_t, int, void *, void *))dlsym(library, "ncclAlltoAll");
  nccl.broadcast = (int (*)(const void *, void *, size_t, int, int, void *, void *))dlsym(library, "ncclBroadcast");
  nccl.send = (int (*)(const void *, size_t, int, int, void *, void *))dlsym(library, "ncclSend");
  nccl.recv = (int (*)(void *, size_t, int, int, void *, void *))dlsym(library, "ncclRecv");
  nccl.group_start = (int (*)(void))dlsym(library, "ncclGroupStart");
  nccl.group_end = (int (*)(void))dlsym(library, "ncclGroupEnd");
  nccl.async_error = (int (*)(void *, int *))dlsym(library, "ncclCommGetAsyncError");
  int all = nccl.all_reduce && nccl.reduce_scatter && nccl.all_gather && nccl.broadcast && nccl.send && nccl.recv &&
            nccl.group_start && nccl.group_end && nccl.async_error;
  return all ? RW_OK : RW_MISSING_SYMBOL;
}

int rw_nccl_bind_mpi(void *library) {
  mpi_barrier = (int (*)(intptr_t))dlsym(library, "MPI_Barrier");
  return mpi_barrier ? RW_OK : RW_MISSING_SYMBOL;
}

static inline int of_nccl(int result) { return result ? RW_NCCL_ERROR - result : RW_OK; }

/* Sends and receives in one group, as nccl-tests composes an all-to-all for NCCL before 2.28. */
static int exchange_all(const struct rw_nccl *w, const struct rw_nccl_rank *r, char *out, char *in) {
  size_t share = w->count * sizeof(float);
  int status = nccl.group_start();
  for (int other = 0; other < w->ranks && !status; other++) {
    status = nccl.send(out + (size_t)other * share, w->count, FLOAT32, other, r->comm, r->stream);
    if (!status) status = nccl.recv(in + (size_t)other * share, w->count, FLOAT32, other, r->comm, r->stream);
  }
  int ended = nccl.group_end();
  return status ? status : ended;
}

static int exchange_ring(const struct rw_nccl *w, const struct rw_nccl_rank *r, char *out, char *in) {
  int next = (r->rank + 1) % w->ranks, previous = (r->rank - 1 + w->ranks) % w->ranks;
  int status = nccl.group_start();
  if (!status) status = nccl.send(out, w->count, FLOAT32, next, r->comm, r->stream);
  if (!status) status = nccl.recv(in, w->count, FLOAT32, previous, r->comm, r->stream);
  int ended = nccl.group_end();
  return status ? status : ended;
}

/* Enqueues one operation. Each turn takes the next part of the buffers if they have room for more than one, so that
 * small sizes are not hot in a cache. In place, both pointers are in the receive buffer. */
static int enqueue(const struct rw_nccl *w, const struct rw_nccl_rank *r, int turn) {
  size_t whole = w->sent_bytes > w->received_bytes ? w->sent_bytes : w->received_bytes;
  size_t shift = whole * ((size_t)turn % (w->largest_bytes / whole));
  char *in = (char *)(uintptr_t)r->in + shift, *out = w->in_place ? in : (char *)(uintptr_t)r->out + shift;
  switch (w->kind) {
  case ALL_REDUCE:
    return of_nccl(nccl.all_reduce(out, in, w->count, FLOAT32, SUM, r->comm, r->stream));
  case ALL_GATHER:
    if (w->in_place) out += (size_t)r->rank * w->sent_bytes;
    return of_nccl(nccl.all_gather(out, in, w->count, FLOAT32, r->comm, r->stream));
  case REDUCE_SCATTER:
    if (w->in_place) in += (size_t)r->rank * w->received_bytes;
    return of_nccl(nccl.reduce_scatter(out, in, w->count, FLOAT32, SUM, r->comm, r->stream));
  case ALL_TO_ALL:
    if (nccl.all_to_all) return of_nccl(nccl.all_to_all(out, in, w->count, FLOAT32, r->comm, r->stream));
    return of_nccl(exchange_all(w, r, out, in));
  case SEND_RECV:
    return of_nccl(exchange_ring(w, r, out, in));
  default:
    return of_nccl(nccl.broadcast(out, in, w->count, FLOAT32, 0, r->comm, r->stream));
  }
}

/* Polls until the stream is empty, as nccl-tests does. Without the checks for errors, a failed rank would leave the
 * others here forever. */
static int wait_for(struct team *t, const struct rw_nccl_rank *r) {
  for (;;) {
    int status = rw_cuda.stream_query(r->stream), broken = 0;
    if (status != CUDA_NOT_READY) return status;
    status = nccl.async_error(r->comm, &broken);
    if (status || (broken && broken != IN_PROGRESS)) return of_nccl(status ? status : broken);
    if (atomic_load_explicit(&t->status, memory_order_relaxed)) return RW_OTHER_RANK_FAILED;
    sched_yield();
  }
}

static int barrier(struct team *t) {
  if (t->what->comm) return mpi_barrier(t->what->comm) ? RW_MPI_ERROR : RW_OK;
  int round = atomic_load(&t->round);
  if (atomic_fetch_add(&t->waiting, 1) + 1 == t->what->here) {
    atomic_store(&t->waiting, 0);
    atomic_fetch_add(&t->round, 1);
    return RW_OK;
  }
  for (int spins = 0; atomic_load(&t->round) == round; spins++) {
    if (atomic_load(&t->status)) return RW_OTHER_RANK_FAILED;
    if (spins > SPINS) sched_yield();
  }
  return RW_OK;
}

static int enqueue_all(const struct rw_nccl *w, const struct rw_nccl_rank *r, int operations) {
  int status = RW_OK;
  for (int turn = 0; turn < operations && !status; turn++) status = enqueue(w, r, turn);
  return status;
}

/* Captures the operations as an executable graph. The capture always ends, so that the stream stays usable. */
static int capture(const struct rw_nccl *w, const struct rw_nccl_rank *r, int operations, void **ready) {
  void *graph = NULL;
  int status = rw_cuda.begin_capture(r->stream, CAPTURE_THREAD_LOCAL);
  if (status) return status;
  status = enqueue_all(w, r, operations);
  int ended = rw_cuda.end_capture(r->stream, &graph);
  if (!status) status = ended;
  if (!status) status = rw_cuda.graph_instantiate(ready, graph, 0);
  if (graph) rw_cuda.graph_destroy(graph);
  return status;
}

/* Runs `operations` and waits for their end. `seconds`, unless NULL, gets the time per operation; with `graph` it does
 * not include the capture. */
static int perform(struct team *t, const struct rw_nccl_rank *r, int operations, double *seconds) {
  void *graph = NULL;
  double start = rw_now();
  int status = RW_OK;
  if (t->what->graph) {
    status = capture(t->what, r, operations, &graph);
    if (!status) status = barrier(t);
    start = rw_now();
    if (!status) status = rw_cuda.graph_launch(graph, r->stream);
  } else {
    status = enqueue_all(t->what, r, operations);
  }
  if (!status) status = wait_for(t, r);
  if (seconds) *seconds = (rw_now() - start) / operations;
  if (graph) rw_cuda.graph_exec_destroy(graph);
  return status;
}

/* Takes a sample as nccl-tests does: an untimed operation, a barrier, the timed operations, a barrier. */
static int sample(struct team *t, const struct rw_nccl_rank *r, double *seconds) {
  int status = enqueue(t->what, r, 0);
  if (!status) status = wait_for(t, r);
  if (!status) status = barrier(t);
  if (!status) status = perform(t, r, t->what->operations, seconds);
  return status ? status : barrier(t);
}

static int work(struct team *t, int index) {
  const struct rw_nccl_rank *r = &t->ranks[index];
  int status = rw_cuda.use(r->context);
  if (t->task == ONCE) return status ? status : perform(t, r, 1, NULL);
  if (t->task == WARM) {
    if (!status) status = enqueue(t->what, r, 0);
    return status ? status : wait_for(t, r);
  }
  for (int k = 0; k < t->samples && !status; k++) status = sample(t, r, &t->seconds[index * t->samples + k]);
  return status;
}

static void *run(void *argument) {
  struct worker *worker = argument;
  struct team *t = worker->team;
  int status = work(t, worker->index), fine = RW_OK;
  if (status) atomic_compare_exchange_strong(&t->status, &fine, status);
  return NULL;
}

/* WARM runs one operation without a graph. ONCE runs one, by a graph if the timed operations use one. TIME takes
 * `samples` samples and writes their seconds per operation for each rank of this process in turn.
 * Returns RW_OK, or the first error of a rank of this process: one of ours, CUDA's, or RW_NCCL_ERROR minus NCCL's
 * result. */
int rw_nccl_run(const struct rw_nccl *what, const struct rw_nccl_rank *ranks, int task, int samples, double *seconds) {
  struct team team = {.what = what, .ranks = ranks, .task = task, .samples = samples, .seconds = seconds};
  struct worker *workers = calloc((size_t)what->here, sizeof *workers);
  pthread_t *threads = calloc((size_t)what->here, sizeof *threads);
  int started = 1;
  if (!workers || !threads) {
    free(workers), free(threads);
    return RW_NO_MEMORY;
  }
  for (int i = 0; i < what->here; i++) workers[i] = (struct worker){&team, i};
  for (; started < what->here; started++)
    if (pthread_create(&threads[started], NULL, run, &workers[started])) break;
  if (started < what->here)
    atomic_store(&team.status, RW_NO_THREAD); /* the others see it at their first wait */
  else
    run(&workers[0]);
  for (int i = 1; i < started; i++) pthread_join(threads[i], NULL);
  free(workers), free(threads);
  return atomic_load(&team.status);
}
