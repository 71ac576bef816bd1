/* Asks NVML for the counters of GPUs again and again, and puts the numbers where another program reads them.
 *
 * NVML's functions are bound by the caller. A program of its own does this, as a driver may hang in any of them. */
#include "railwright.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

enum { FIELDS, ONE, TWO }; /* nvmlDeviceGetFieldValues; f(gpu, argument, &number); f(gpu, numbers) */
enum { DOUBLE, UNSIGNED, UNSIGNED_LONG, UNSIGNED_LONG_LONG, SIGNED_LONG_LONG, SIGNED, UNSIGNED_SHORT }; /* nvml.h */

static const uint64_t NO_VALUE = UINT64_MAX;

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
  struct rw_gpu_field *fields; /* of FIELDS */
  int32_t count;               /* of its numbers */
  uint32_t every;              /* passes */
  int32_t place;               /* of its first number */
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

static void ask(struct rw_gpu_question *q, _Atomic uint64_t *numbers) {
  uint32_t told[2] = {0, 0};
  int status;
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

/* CPU seconds that a question takes, the least of `times`: its first answers may be dear. */
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

/* Asks each question at every so many passes, `passes` times, 0: for ever. The first two numbers are the passes and the
 * nanoseconds of CPU until now. Never makes up for a pass that came too late. */
void rw_gpu_publish(struct rw_gpu_question *questions, int count, uint64_t *shared, double interval, uint64_t passes) {
  _Atomic uint64_t *numbers = (_Atomic uint64_t *)shared;
  double next = rw_now(), begin = cpu_now();
  for (uint64_t pass = 0; !passes || pass < passes; pass++) {
    for (int at = 0; at < count; at++)
      if (pass % questions[at].every == 0) ask(&questions[at], numbers);
    atomic_store_explicit(&numbers[0], pass + 1, memory_order_relaxed);
    atomic_store_explicit(&numbers[1], (uint64_t)((cpu_now() - begin) * 1e9), memory_order_relaxed);
    next += interval;
    double now = rw_now();
    if (next < now) next = now;
    struct timespec t = {.tv_sec = (time_t)next, .tv_nsec = (long)((next - (double)(time_t)next) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) continue;
  }
}
