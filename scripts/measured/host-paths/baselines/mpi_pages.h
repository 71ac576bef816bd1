/* Common parts of the MPI references: the clock, one rank per CPU, the median, and the same kind of pages as our
 * benchmark uses, because their placement affects times more than the program does. */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { HUGE_PAGE = 2 << 20 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *values, int count) {
  qsort(values, (size_t)count, sizeof *values, by_value);
  return values[count / 2];
}

static char *pages(size_t bytes) {
  char *room = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) exit(1);
  size_t before = (HUGE_PAGE - (uintptr_t)room % HUGE_PAGE) % HUGE_PAGE, end = (before + bytes + 4095) / 4096 * 4096;
  if (before) munmap(room, before);
  if (end < bytes + HUGE_PAGE) munmap(room + end, bytes + HUGE_PAGE - end);
  madvise(room + before, bytes, MADV_HUGEPAGE);
  memset(room + before, 0, bytes);
  return room + before;
}

static void bind_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}
