/* The reference for mpi_latency: a plain C ping-pong, compiled with mpicc, with the method of osu_latency.
 * mpirun -n 2 mpi_pingpong SIZE ITERATIONS WARM [SIZE ITERATIONS WARM ...]; prints `SIZE p50-seconds` lines. */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The same kind of pages as our benchmark uses: their placement affects times more than the program does. */
static char *pages(size_t bytes) {
  char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) exit(1);
  madvise(p, bytes, MADV_HUGEPAGE);
  memset(p, 1, bytes);
  return p;
}

int main(int argc, char **argv) {
  int rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(rank, &set);
  sched_setaffinity(0, sizeof set, &set);
  for (int a = 1; a + 2 < argc; a += 3) {
    int bytes = atoi(argv[a]), iterations = atoi(argv[a + 1]), warm = atoi(argv[a + 2]);
    char *out = pages((size_t)bytes), *in = pages((size_t)bytes);
    double *seconds = malloc((size_t)iterations * sizeof *seconds);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int k = -warm; k < iterations; k++) {
      if (rank == 0) {
        double start = now();
        MPI_Send(out, bytes, MPI_BYTE, 1, 7, MPI_COMM_WORLD);
        MPI_Recv(in, bytes, MPI_BYTE, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (k >= 0) seconds[k] = (now() - start) / 2;
      } else {
        MPI_Recv(in, bytes, MPI_BYTE, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(out, bytes, MPI_BYTE, 0, 7, MPI_COMM_WORLD);
      }
    }
    if (rank == 0) {
      qsort(seconds, (size_t)iterations, sizeof *seconds, by_value);
      printf("%d %.9g\n", bytes, seconds[iterations / 2]);
    }
    munmap(out, (size_t)bytes), munmap(in, (size_t)bytes), free(seconds);
  }
  MPI_Finalize();
  return 0;
}
