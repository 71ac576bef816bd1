/* Declarations shared by the timed loops. No vendor header is needed, because dlsym binds vendor functions at run
 * time. */
#ifndef RAILWRIGHT_H
#define RAILWRIGHT_H

#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Keeps a loop's work from being optimised away without touching memory. */
#define RW_KEEP(pointer) __asm__ volatile("" : : "r"(pointer) : "memory")

enum { RW_OK = 0, RW_MISSING_SYMBOL = -1001, RW_TIMED_OUT = -1002, RW_NO_MEMORY = -1003, RW_NO_THREAD = -1004 };

static inline double rw_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int rw_pin(int cpu);

#endif
