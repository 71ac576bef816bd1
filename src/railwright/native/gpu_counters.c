/* Queries NVML counters of GPUs repeatedly, and writes the numbers where another program reads them.
 *
 * The caller binds NVML's functions. This runs in a separate program, because a driver may hang in any of them. */
#include "railwright.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

/* nvmlDeviceGetFieldValues; f(gpu, argument, &number); f(gpu, numbers); nvmlDeviceGetSamples */
enum { FIELDS, ONE, TWO, SAMPLES };
enum { DOUBLE, UNSIGNED, UNSIGNED_LONG, UNSIGNED_LONG_LONG, SIGNED_LONG_LONG, SIGNED, UNSIGNED_SHORT }; /* nvml.h */

static const uint64_t NO_VALUE = UINT64_MAX;
enum { RING = 256, MOST_SAMPLES = 1024 };

/* nvmlFieldValue_t */
struct rw_gpu_field {
  uint32_t id, scope;
  int64_t timestamp, latency_us;
  int32_t type, status;
  union {
    double floating;
    uint32_t number;
    uint64_t wide;
    uint16_t narrow;
  } value;
};

struct rw_gpu_question {
  int32_t kind;
  uint32_t argument;
  void *call, *gpu;
  struct rw_gpu_field *fields; /* for FIELDS */
  int32_t count;               /* the number of values it gives */
  uint32_t every;              /* ask at every n-th pass */
  int32_t place;               /* of its first value in the shared numbers */
  uint64_t last;               /* the time of the last of SAMPLES in microseconds */
};

/* nvmlSample_t */
struct sample {
  uint64_t at_us;
  union {
    uint32_t number;
    uint64_t wide;
  } value;
};

static uint64_t number_of(const struct rw_gpu_field *f) {
  if (f->status) return NO_VALUE;
  switch (f->type) {
  case DOUBLE: return f->value.floating < 0 ? NO_VALUE : (uint64_t)f->value.floating;
  case UNSIGNED: return f->value.number;
  case UNSIGNED_SHORT: return f->value.narrow;
  case SIGNED: return (int32_t)f->value.number < 0 ? NO_VALUE : f->value.number;
  case SIGNED_LONG_LONG: return (int64_t)f->value.wide < 0 ? NO_VALUE : f->value.wide;
  default: return f->value.wide;
  }
}

/* Copies NVML's own samples, with their own times, to a ring: their number, then pairs of time and value. An error
 * for the lack of new samples changes nothing. */
static void take_samples(struct rw_gpu_question *q, _Atomic uint64_t *ring) {
  static struct sample taken[MOST_SAMPLES];
  uint32_t count = MOST_SAMPLES;
  int type = UNSIGNED;
  int status = ((int (*)(void *, uint32_t, uint64_t, int *, uint32_t *, struct sample *))q->call)(
      q->gpu, q->argument, q->last, &type, &count, taken);
  uint64_t written = atomic_load_explicit(&ring[0], memory_order_relaxed);
  for (uint32_t at = 0; !status && at < count && at < MOST_SAMPLES; at++) {
    if (taken[at].at_us <= q->last) continue;
    q->last = taken[at].at_us;
    uint64_t slot = 1 + 2 * (written++ % RING);
    atomic_store_explicit(&ring[slot], taken[at].at_us, memory_order_relaxed);
    atomic_store_explicit(&ring[slot + 1], type == UNSIGNED ? taken[at].value.number : taken[at].value.wide,
                          memory_order_relaxed);
  }
  atomic_store_explicit(&ring[0], written, memory_order_release);
}

static void ask(struct rw_gpu_question *q, _Atomic uint64_t *numbers) {
  uint32_t told[2] = {0, 0};
  int status;
  if (q->kind == SAMPLES) {
    take_samples(q, numbers + q->place);
    return;
  }
  if (q->kind == FIELDS)
    status = ((int (*)(void *, int, struct rw_gpu_field *))q->call)(q->gpu, q->count, q->fields);
  else if (q->kind == ONE)
    status = ((int (*)(void *, uint32_t, uint32_t *))q->call)(q->gpu, q->argument, told);
  else
    status = ((int (*)(void *, uint32_t *))q->call)(q->gpu, told);
  for (int at = 0; at < q->count; at++) {
    uint64_t found = status ? NO_VALUE : q->kind == FIELDS ? number_of(&q->fields[at]) : told[at];
    atomic_store_explicit(&numbers[q->place + at], found, memory_order_relaxed);
  }
}

static double cpu_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Returns the CPU seconds of a query, the minimum of `times`, because the first queries may be slow. */
double rw_gpu_cost(struct rw_gpu_question *q, uint64_t *numbers, int times) {
  double least = 1e9;
  for (int number = 0; number < times; number++) {
    double before = cpu_now();
    ask(q, (_Atomic uint64_t *)numbers);
    double took = cpu_now() - before;
    if (took < least) least = took;
  }
  return least;
}

/* Makes each query at every n-th pass, for `passes` passes or forever (0). The first two numbers are the passes and
 * the nanoseconds of CPU so far. A late pass is never made up for. The wait is longer if passes would exceed `share`
 * of a core, because calls are slower while GPUs work. */
void rw_gpu_publish(struct rw_gpu_question *questions, int count, uint64_t *shared, double interval, double share,
                    uint64_t passes) {
  _Atomic uint64_t *numbers = (_Atomic uint64_t *)shared;
  double begin = rw_now(), next = begin, before = cpu_now();
  for (uint64_t pass = 0; !passes || pass < passes; pass++) {
    for (int at = 0; at < count; at++)
      if (pass % questions[at].every == 0) ask(&questions[at], numbers);
    atomic_store_explicit(&numbers[0], pass + 1, memory_order_relaxed);
    double cpu = cpu_now() - before, now = rw_now();
    atomic_store_explicit(&numbers[1], (uint64_t)(cpu * 1e9), memory_order_relaxed);
    next += interval;
    if (next < now) next = now;
    if (next < begin + cpu / share) next = begin + cpu / share;
    struct timespec t = {.tv_sec = (time_t)next, .tv_nsec = (long)((next - (double)(time_t)next) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) continue;
  }
}
