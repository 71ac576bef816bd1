/* STREAM's four kernels (McCalpin 1995) on pinned threads, each with its own part of three arrays. */
#include "railwright.h"

#include <pthread.h>
#include <stdlib.h>

void *rw_alloc(size_t bytes, int huge);
int rw_free(void *buffer, size_t bytes);

enum { COPY, SCALE, ADD, TRIAD, KERNELS };

static const double SCALAR = 3.0;

struct streamer {
  pthread_barrier_t *barrier;
  pthread_t thread;
  int cpu, passes, status;
  size_t words;
  double *start, *stop; /* passes x KERNELS each */
  double wrong;
};

/* The compiler may use wide stores but not turn a loop into memcpy: the kernels are what is measured. */
#ifdef __clang__
#define KERNEL __attribute__((noinline, no_builtin("memcpy", "memmove")))
#else
#define KERNEL __attribute__((noinline, optimize("O3", "no-tree-loop-distribute-patterns")))
#endif

KERNEL static void run_kernel(int kernel, double *restrict a, double *restrict b, double *restrict c, size_t n) {
  switch (kernel) {
    case COPY:
      for (size_t i = 0; i < n; i++) c[i] = a[i];
      break;
    case SCALE:
      for (size_t i = 0; i < n; i++) b[i] = SCALAR * c[i];
      break;
    case ADD:
      for (size_t i = 0; i < n; i++) c[i] = a[i] + b[i];
      break;
    default:
      for (size_t i = 0; i < n; i++) a[i] = b[i] + SCALAR * c[i];
  }
}

/* Counts the words that differ from their value after `passes` passes from a = 1, b = 2, c = 0. */
static double count_wrong(const double *a, const double *b, const double *c, size_t n, int passes) {
  double x = 1, y = 2, z = 0, wrong = 0;
  for (int k = 0; k < passes; k++) z = x, y = SCALAR * z, z = x + y, x = y + SCALAR * z;
  for (size_t i = 0; i < n; i++) wrong += (a[i] != x) + (b[i] != y) + (c[i] != z);
  return wrong;
}

static void *stream_thread(void *argument) {
  struct streamer *s = argument;
  size_t bytes = s->words * sizeof(double);
  s->status = rw_pin(s->cpu);
  double *a = rw_alloc(bytes, 1), *b = rw_alloc(bytes, 1), *c = rw_alloc(bytes, 1);
  if (!a || !b || !c) s->status = RW_NO_MEMORY;
  for (size_t i = 0; s->status != RW_NO_MEMORY && i < s->words; i++) a[i] = 1, b[i] = 2;
  for (int k = 0; k < s->passes; k++)
    for (int kernel = 0; kernel < KERNELS; kernel++) {
      pthread_barrier_wait(s->barrier);
      s->start[k * KERNELS + kernel] = rw_now();
      if (s->status != RW_NO_MEMORY) run_kernel(kernel, a, b, c, s->words);
      s->stop[k * KERNELS + kernel] = rw_now();
    }
  s->wrong = s->status == RW_NO_MEMORY ? 3.0 * (double)s->words : count_wrong(a, b, c, s->words, s->passes);
  if (a) rw_free(a, bytes);
  if (b) rw_free(b, bytes);
  if (c) rw_free(c, bytes);
  return NULL;
}

/* `seconds` gets passes x 4 (copy, scale, add, triad): from the first thread's start to the last one's end.
 * The first pass warms up and is written too. */
int rw_stream(int threads, const int *cpus, size_t words, int passes, double *seconds, double *wrong) {
  pthread_barrier_t barrier;
  size_t marks = (size_t)passes * KERNELS;
  struct streamer *all = calloc((size_t)threads, sizeof *all);
  double *times = calloc((size_t)threads * marks * 2, sizeof *times);
  int status = RW_OK;
  if (!all || !times) {
    free(all), free(times);
    return RW_NO_MEMORY;
  }
  pthread_barrier_init(&barrier, NULL, (unsigned)threads);
  for (int t = 0; t < threads; t++) {
    all[t] = (struct streamer){.barrier = &barrier, .cpu = cpus[t], .passes = passes, .words = words,
                               .start = times + (size_t)t * marks * 2, .stop = times + ((size_t)t * 2 + 1) * marks};
    /* the started threads wait at the barrier forever; the rank reports and exits */
    if (pthread_create(&all[t].thread, NULL, stream_thread, &all[t])) return RW_NO_THREAD;
  }
  *wrong = 0;
  for (int t = 0; t < threads; t++) {
    pthread_join(all[t].thread, NULL);
    if (all[t].status) status = all[t].status;
    *wrong += all[t].wrong;
  }
  for (size_t k = 0; k < marks; k++) {
    double first = all[0].start[k], last = all[0].stop[k];
    for (int t = 1; t < threads; t++) {
      if (all[t].start[k] < first) first = all[t].start[k];
      if (all[t].stop[k] > last) last = all[t].stop[k];
    }
    seconds[k] = last - first;
  }
  pthread_barrier_destroy(&barrier);
  free(all), free(times);
  return status;
}
