/* Copies to, from and between GPUs, timed on the GPU as nvbandwidth does it, and pointers followed through memory.
 *
 * A kernel that waits for a flag in host memory holds a stream until everything is enqueued, so the events time copies
 * back to back and no launch. Event times are used as the driver gives them, without rounding. */
#include "cuda.h"

#include <stdatomic.h>
#include <string.h>

/* The limit after which a held stream continues by itself, so that a crash of the host cannot hang a GPU. */
#define HELD_AT_MOST_NS 10000000000ULL

/* A copy in one direction. The layout is also in `native/cuda_copies.py`. */
struct rw_copy {
  void *context;                         /* of the GPU whose copy engine or multiprocessors perform it */
  void *kernel;                          /* the `copy` kernel; NULL for a copy engine */
  void *spin;                            /* the kernel that holds the stream; NULL if it must not be held */
  void *target_context, *source_context; /* for a copy between GPUs without peer access; NULL otherwise */
  uint64_t target, source, bytes;
  unsigned grid, block;
};

struct lane {
  const struct rw_copy *copy;
  void *stream, *begin, *end;
};

/* A flag in host memory that every GPU sees; [0] releases the streams, a stream that waited too long sets [1]. */
struct flag {
  _Atomic uint32_t *host;
  uint64_t device;
};

static int lane_open(struct lane *lane) {
  int status = rw_cuda.use(lane->copy->context);
  if (!status) status = rw_cuda.stream_create(&lane->stream, CUDA_STREAM_NON_BLOCKING);
  if (!status) status = rw_cuda.event_create(&lane->begin, 0);
  return status ? status : rw_cuda.event_create(&lane->end, 0);
}

static void lane_close(struct lane *lane) {
  rw_cuda.use(lane->copy->context);
  if (lane->stream) rw_cuda.stream_synchronize(lane->stream);
  if (lane->begin) rw_cuda.event_destroy(lane->begin);
  if (lane->end) rw_cuda.event_destroy(lane->end);
  if (lane->stream) rw_cuda.stream_destroy(lane->stream);
}

static int flag_open(struct flag *flag) {
  void *memory = NULL;
  int status = rw_cuda.host_alloc(&memory, 64, CUDA_HOST_PORTABLE | CUDA_HOST_MAPPED);
  flag->host = memory;
  if (status) return status;
  atomic_store(&flag->host[0], 1);
  atomic_store(&flag->host[1], 0);
  return rw_cuda.host_device_pointer(&flag->device, memory, 0);
}

static int hold(const struct lane *lane, const struct flag *flag) {
  uint64_t address = flag->device, limit = HELD_AT_MOST_NS;
  void *arguments[] = {&address, &limit};
  if (!lane->copy->spin) return RW_OK;
  int status = rw_cuda.use(lane->copy->context);
  return status ? status : rw_cuda.launch(lane->copy->spin, 1, 1, 1, 1, 1, 1, 0, lane->stream, arguments, NULL);
}

/* A kernel makes all `copies` in one launch, an engine gets one command for each, as in nvbandwidth. */
static int enqueue(const struct lane *lane, int copies) {
  const struct rw_copy *c = lane->copy;
  uint64_t target = c->target, source = c->source, bytes = c->bytes, loops = (uint64_t)copies;
  void *arguments[] = {&target, &source, &bytes, &loops};
  int status = rw_cuda.use(c->context);
  if (copies < 1 || status) return status;
  if (c->kernel) return rw_cuda.launch(c->kernel, c->grid, 1, 1, c->block, 1, 1, 0, lane->stream, arguments, NULL);
  for (int i = 0; i < copies && !status; i++)
    status = c->target_context ? rw_cuda.copy_peer_async(target, c->target_context, source, c->source_context, bytes,
                                                         lane->stream)
                               : rw_cuda.copy_async(target, source, bytes, lane->stream);
  return status;
}

static int enqueue_timed(const struct lane *lane, int warm, int copies) {
  int status = enqueue(lane, warm);
  if (!status) status = rw_cuda.event_record(lane->begin, lane->stream);
  if (!status) status = enqueue(lane, copies);
  return status ? status : rw_cuda.event_record(lane->end, lane->stream);
}

/* The opposite direction gets `others` copies, if any; `uncovered` counts the samples in which it ended first. */
static int one_sample(struct lane *lanes, int others, const struct flag *flag, int warm, int copies, double *seconds,
                      int *uncovered) {
  float ms = 0;
  int status = RW_OK, count = others ? 2 : 1;
  atomic_store(&flag->host[0], 0);
  atomic_store(&flag->host[1], 0);
  for (int i = 0; i < count && !status; i++) status = hold(&lanes[i], flag);
  if (!status && count > 1) status = enqueue(&lanes[1], others);
  if (!status) status = rw_cuda.use(lanes[0].copy->context);
  if (!status) status = enqueue_timed(&lanes[0], warm, copies);
  atomic_store(&flag->host[0], 1);
  if (status) return status;
  status = rw_cuda.stream_synchronize(lanes[0].stream);
  if (!status && count > 1) {
    *uncovered += rw_cuda.stream_query(lanes[1].stream) != CUDA_NOT_READY;
    status = rw_cuda.stream_synchronize(lanes[1].stream);
  }
  if (!status && atomic_load(&flag->host[1])) return RW_TIMED_OUT;
  if (!status) status = rw_cuda.use(lanes[0].copy->context);
  if (!status) status = rw_cuda.elapsed_ms(&ms, lanes[0].begin, lanes[0].end);
  *seconds = 1e-3 * (double)ms / copies;
  return status;
}

/* One-time work, such as loading a kernel at its first launch, must be done before a stream is held: the driver may
 * wait for the GPU to do it. */
static int first_copy(struct lane *lane, const struct flag *flag) {
  int status = lane_open(lane);
  if (!status) status = hold(lane, flag);
  if (!status) status = enqueue(lane, 1);
  return status ? status : rw_cuda.stream_synchronize(lane->stream);
}

/* Writes the seconds per copy of each sample: `warm` copies, then the mean of `copies` back to back, while `other` (may
 * be NULL) runs `others` times in the other direction. */
int rw_cuda_copies(const struct rw_copy *measured, const struct rw_copy *other, int warm, int copies, int others,
                   int samples, double *seconds, int *uncovered) {
  struct lane lanes[2] = {{.copy = measured}, {.copy = other}};
  struct flag flag = {0};
  int count = other ? 2 : 1, status = rw_cuda.use(measured->context);
  *uncovered = 0;
  if (!status) status = flag_open(&flag);
  for (int i = 0; i < count && !status; i++) status = first_copy(&lanes[i], &flag);
  for (int k = 0; k < samples && !status; k++)
    status = one_sample(lanes, other ? others : 0, &flag, warm, copies, &seconds[k], uncovered);
  for (int i = 0; i < count; i++) lane_close(&lanes[i]);
  if (flag.host) rw_cuda.host_free((void *)flag.host);
  return status;
}

/* Times a copy for each sample, from the call until the host sees its end. */
int rw_cuda_copy_and_wait(const struct rw_copy *copy, int warm, int samples, double *seconds) {
  struct lane lane = {.copy = copy};
  int status = lane_open(&lane);
  for (int k = -warm; k < samples && !status; k++) {
    double start = rw_now();
    status = enqueue(&lane, 1);
    if (!status) status = rw_cuda.stream_synchronize(lane.stream);
    if (k >= 0) seconds[k] = rw_now() - start;
  }
  lane_close(&lane);
  return status;
}

/* Returns the next number below `limit`, by splitmix64's step. */
static uint64_t below(uint64_t *state, uint64_t limit) {
  uint64_t z = *state += 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return (z ^ (z >> 31)) % limit;
}

/* Writes `slots` pointers, `stride` bytes apart, that form a cycle in random order (Sattolo 1986). They are valid
 * for a memory that begins at `base`. */
void rw_chain_write(char *memory, uint64_t base, uint64_t slots, uint64_t stride, uint64_t seed) {
  for (uint64_t i = 0; i < slots; i++) *(uint64_t *)(memory + i * stride) = base + i * stride;
  for (uint64_t i = slots - 1; i > 0; i--) {
    uint64_t *a = (uint64_t *)(memory + i * stride), *b = (uint64_t *)(memory + below(&seed, i) * stride), kept = *a;
    *a = *b;
    *b = kept;
  }
}

/* Returns the pointer reached from `base` after `loads` steps, in the copy of the chain at `memory`. */
uint64_t rw_chain_follow(const char *memory, uint64_t base, uint64_t loads) {
  uint64_t at = base;
  for (uint64_t i = 0; i < loads; i++) at = *(const uint64_t *)(memory + (at - base));
  return at;
}

/* Writes the seconds per load of each sample of `loads` dependent loads from `start` on. An untimed sample comes first.
 * `end`, 8 bytes on the GPU, gets the last pointer. The time includes the launch: choose `loads` large enough to make
 * its few microseconds negligible. */
int rw_cuda_chase(void *context, void *kernel, uint64_t start, uint64_t loads, uint64_t end, int samples,
                  double *seconds) {
  struct rw_copy none = {.context = context};
  struct lane lane = {.copy = &none};
  void *arguments[] = {&start, &loads, &end};
  int status = lane_open(&lane);
  for (int k = -1; k < samples && !status; k++) {
    float ms = 0;
    status = rw_cuda.event_record(lane.begin, lane.stream);
    if (!status) status = rw_cuda.launch(kernel, 1, 1, 1, 1, 1, 1, 0, lane.stream, arguments, NULL);
    if (!status) status = rw_cuda.event_record(lane.end, lane.stream);
    if (!status) status = rw_cuda.stream_synchronize(lane.stream);
    if (!status) status = rw_cuda.elapsed_ms(&ms, lane.begin, lane.end);
    if (k >= 0) seconds[k] = 1e-3 * (double)ms / (double)loads;
  }
  lane_close(&lane);
  return status;
}
