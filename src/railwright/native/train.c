/* A simulated training step over all ranks: the compute phase, the reduction of gradients bucket by bucket by NCCL, the
 * wait for both, and a barrier. The host's clock times all of it, as comm_bench does. */
#include "train.h"

#include <dlfcn.h>

enum { SUM = 0 }; /* ncclRedOp_t */

static int (*mpi_barrier)(intptr_t);

int rw_train_bind(void *library) {
  mpi_barrier = (int (*)(intptr_t))dlsym(library, "MPI_Barrier");
  return mpi_barrier ? RW_OK : RW_MISSING_SYMBOL;
}

int rw_train_open(struct rw_train *t) {
  int status = rw_cuda.use(t->context);
  if (!status) status = rw_cuda.event_create(&t->ready, CUDA_EVENT_DISABLE_TIMING);
  if (!status) status = rw_cuda.event_create(&t->done, CUDA_EVENT_DISABLE_TIMING);
  if (!status) status = rw_cuda.event_create(&t->begin, 0);
  return status ? status : rw_cuda.event_create(&t->end, 0);
}

int rw_train_close(struct rw_train *t) {
  void *events[] = {t->ready, t->done, t->begin, t->end};
  int status = rw_cuda.use(t->context);
  for (int i = 0; i < 4; i++)
    if (events[i]) rw_cuda.event_destroy(events[i]);
  return status;
}

/* Enqueues the all-reduces of some buckets after the current work of `after`. Thread-safe. */
int rw_train_reduce(const struct rw_train *t, int first, int count, void *after) {
  int status = rw_cuda.use(t->context);
  if (!status) status = rw_cuda.event_record(t->ready, after);
  if (!status) status = rw_cuda.stream_wait(t->communication, t->ready, 0);
  for (int i = first; i < first + count && !status; i++) {
    void *gradients = (void *)(uintptr_t)(t->gradients + (uint64_t)(t->buckets[i].first * t->element_bytes));
    int said = t->all_reduce(gradients, gradients, (size_t)t->buckets[i].count, t->type, SUM, t->nccl_comm,
                             t->communication);
    if (said) status = RW_NCCL_ERROR - said;
  }
  return status;
}

/* Waits for the compute stream, for the communication stream if `communicates`, and for all ranks. */
int rw_train_finish(const struct rw_train *t, int communicates, double *now) {
  int status = RW_OK;
  if (communicates) {
    status = rw_cuda.event_record(t->done, t->communication);
    if (!status) status = rw_cuda.stream_wait(t->compute, t->done, 0);
  }
  if (!status) status = rw_cuda.stream_synchronize(t->compute);
  if (!status && mpi_barrier(t->mpi_comm)) status = RW_MPI_ERROR;
  *now = rw_now();
  return status;
}

enum mode { ITERATION, COMPUTE, COMMUNICATION };

/* Zeroes the gradients, as every step does, then runs forward and backward passes. With overlap, each bucket is reduced
 * as soon as its gradients are complete. */
static int compute(const struct rw_train *t, enum mode mode) {
  int status = rw_cuda.set_async(t->gradients, 0, (size_t)(t->count * t->element_bytes), t->compute);
  if (!status) status = rw_load_forward(t->load, t->compute);
  int next = 0;
  for (int layer = 0; layer < t->load->layer_count && !status; layer++) {
    status = rw_load_backward(t->load, layer, t->gradients, t->compute);
    int last = next;
    while (last < t->bucket_count && t->buckets[last].ready_after <= layer) last++;
    if (mode == ITERATION && t->overlap && last > next && !status)
      status = rw_train_reduce(t, next, last - next, t->compute);
    next = last;
  }
  return status;
}

static int iterate(const struct rw_train *t, enum mode mode, double *seconds) {
  int status = RW_OK;
  double start = rw_now(), end = start;
  if (mode == COMPUTE) status = rw_cuda.event_record(t->begin, t->compute);
  if (!status && mode != COMMUNICATION) status = compute(t, mode);
  if (!status && mode == COMPUTE) status = rw_cuda.event_record(t->end, t->compute);
  if (!status && (mode == COMMUNICATION || (mode == ITERATION && !t->overlap)))
    status = rw_train_reduce(t, 0, t->bucket_count, t->compute);
  if (!status) status = rw_train_finish(t, mode != COMPUTE, &end);
  *seconds = end - start;
  return status;
}

/* Runs an untimed iteration. */
int rw_train_once(const struct rw_train *t) {
  double seconds;
  int status = rw_cuda.use(t->context);
  return status ? status : iterate(t, ITERATION, &seconds);
}

/* Marks the begin or end of a compute phase that others enqueue. */
int rw_train_mark(const struct rw_train *t, int end) { return rw_cuda.event_record(end ? t->end : t->begin, t->compute); }

int rw_train_elapsed(const struct rw_train *t, double *seconds) {
  float milliseconds = 0;
  int status = rw_cuda.elapsed_ms(&milliseconds, t->begin, t->end);
  *seconds = 1e-3 * milliseconds;
  return status;
}

/* Runs `warm` rounds and then `samples`. A round is an iteration, one without communication and the communication
 * alone, one after the other, so that a drifting GPU clock affects all three alike. A NULL `iterations` or `computes`
 * leaves that part out. `device` gets the GPU's own time of each compute phase. */
int rw_train_run(const struct rw_train *t, int warm, int samples, double *iterations, double *computes, double *device,
                 double *communications) {
  double thrown_away;
  int status = rw_cuda.use(t->context);
  if (!status && mpi_barrier(t->mpi_comm)) status = RW_MPI_ERROR;
  for (int k = -warm; k < samples && !status; k++) {
    int kept = k >= 0;
    if (iterations) status = iterate(t, ITERATION, kept ? &iterations[k] : &thrown_away);
    if (!status && computes) {
      status = iterate(t, COMPUTE, kept ? &computes[k] : &thrown_away);
      if (!status) status = rw_train_elapsed(t, kept ? &device[k] : &thrown_away);
    }
    if (!status) status = iterate(t, COMMUNICATION, kept ? &communications[k] : &thrown_away);
  }
  return status;
}
