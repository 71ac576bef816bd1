/* A tight load on all cores that reveals disturbances: each thread factorises a small matrix repeatedly, and all
 * meet after each, as ranks of an MPI program do. So a delay of one thread delays all. */
#include "railwright.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

enum { N = 96, MOST_THREADS = 1024 };

enum { WAITS, BEGINS, LEAVES };

struct crew {
  pthread_barrier_t barrier;
  long rounds;
  atomic_int gate; /* all start once all are ready, or leave if one could not be started */
};

/* LU without pivoting of a matrix whose diagonal outweighs its rows, in place. */
static void factorise(double a[N][N]) {
  for (int k = 0; k < N; k++)
    for (int i = k + 1; i < N; i++) {
      double factor = a[i][k] /= a[k][k];
      for (int j = k + 1; j < N; j++) a[i][j] -= factor * a[k][j];
    }
}

static void *work(void *given) {
  struct crew *crew = given;
  static _Thread_local double whole[N][N], a[N][N];
  for (int i = 0; i < N; i++)
    for (int j = 0; j < N; j++) whole[i][j] = i == j ? 2.0 * N : 1.0 / (1 + i + j);
  while (atomic_load(&crew->gate) == WAITS) sched_yield();
  if (atomic_load(&crew->gate) == LEAVES) return NULL;
  for (long round = 0; round < crew->rounds; round++) {
    memcpy(a, whole, sizeof a);
    factorise(a);
    RW_KEEP(a);
    pthread_barrier_wait(&crew->barrier);
  }
  return NULL;
}

/* Returns the seconds that `threads` threads take for `rounds` rounds, or a negative error code. */
double rw_load(int threads, long rounds) {
  if (threads < 1 || threads > MOST_THREADS) return RW_NO_THREAD;
  pthread_t started[MOST_THREADS];
  struct crew crew = {.rounds = rounds};
  if (pthread_barrier_init(&crew.barrier, NULL, (unsigned)threads + 1)) return RW_NO_MEMORY;
  int count = 0;
  for (; count < threads; count++)
    if (pthread_create(&started[count], NULL, work, &crew)) break;
  atomic_store(&crew.gate, count < threads ? LEAVES : BEGINS);
  double start = rw_now();
  for (long round = 0; count == threads && round < rounds; round++) pthread_barrier_wait(&crew.barrier);
  double seconds = rw_now() - start;
  for (int number = 0; number < count; number++) pthread_join(started[number], NULL);
  pthread_barrier_destroy(&crew.barrier);
  return count < threads ? RW_NO_THREAD : seconds;
}
