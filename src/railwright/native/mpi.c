/* MPI point to point, as the OSU micro-benchmarks do it: the timer inside the loop, around each iteration.
 *
 * Handles travel as intptr_t: MPICH's are ints, Open MPI's are pointers, and both are passed in the same register
 * on x86-64 and aarch64, so one build serves every MPI that is already loaded. */
#include "railwright.h"

#include <dlfcn.h>
#include <stdlib.h>

typedef int (*send_f)(const void *, int, intptr_t, int, int, intptr_t);
typedef int (*recv_f)(void *, int, intptr_t, int, int, intptr_t, void *);
typedef int (*isend_f)(const void *, int, intptr_t, int, int, intptr_t, void *);
typedef int (*irecv_f)(void *, int, intptr_t, int, int, intptr_t, void *);
typedef int (*waitall_f)(int, void *, void *);
typedef int (*barrier_f)(intptr_t);

static struct {
  send_f send;
  recv_f recv;
  isend_f isend;
  irecv_f irecv;
  waitall_f waitall;
  barrier_f barrier;
} mpi;

/* The MPI state that a loop needs. The layout is also in `native/mpi.py`. */
struct rw_mpi {
  intptr_t comm, byte;
  void *status_ignore; /* 0 in Open MPI, 1 in MPICH; MPI_STATUSES_IGNORE has the same value in both */
  int rank, request_bytes;
};

enum { TAG = 7 };

int rw_mpi_bind(void *library) {
  mpi.send = (send_f)dlsym(library, "MPI_Send");
  mpi.recv = (recv_f)dlsym(library, "MPI_Recv");
  mpi.isend = (isend_f)dlsym(library, "MPI_Isend");
  mpi.irecv = (irecv_f)dlsym(library, "MPI_Irecv");
  mpi.waitall = (waitall_f)dlsym(library, "MPI_Waitall");
  mpi.barrier = (barrier_f)dlsym(library, "MPI_Barrier");
  return mpi.send && mpi.recv && mpi.isend && mpi.irecv && mpi.waitall && mpi.barrier ? RW_OK : RW_MISSING_SYMBOL;
}

/* Ping-pong between ranks 0 and 1; rank 0 writes half the round trip of each timed iteration. */
int rw_mpi_latency(const struct rw_mpi *m, const char *out, char *in, int bytes, int warm, int iterations,
                   double *seconds) {
  int status = mpi.barrier(m->comm);
  for (int k = -warm; k < iterations && !status; k++) {
    if (m->rank == 0) {
      double start = rw_now();
      status = mpi.send(out, bytes, m->byte, 1, TAG, m->comm);
      if (!status) status = mpi.recv(in, bytes, m->byte, 1, TAG, m->comm, m->status_ignore);
      if (k >= 0) seconds[k] = (rw_now() - start) / 2;
    } else {
      status = mpi.recv(in, bytes, m->byte, 0, TAG, m->comm, m->status_ignore);
      if (!status) status = mpi.send(out, bytes, m->byte, 0, TAG, m->comm);
    }
  }
  return status;
}

/* A window of sends from rank 0 to rank 1, one buffer for all, then a one-byte answer; rank 0 writes the time of
 * each timed window. */
int rw_mpi_bandwidth(const struct rw_mpi *m, const char *out, char *in, int bytes, int window, int warm,
                     int iterations, double *seconds) {
  char *requests = malloc((size_t)window * (size_t)m->request_bytes);
  char answer = 0;
  if (!requests) return RW_NO_MEMORY;
  int status = mpi.barrier(m->comm);
  for (int k = -warm; k < iterations && !status; k++) {
    double start = rw_now();
    for (int i = 0; i < window && !status; i++) {
      void *request = requests + (size_t)i * (size_t)m->request_bytes;
      status = m->rank == 0 ? mpi.isend(out, bytes, m->byte, 1, TAG, m->comm, request)
                            : mpi.irecv(in, bytes, m->byte, 0, TAG, m->comm, request);
    }
    if (!status) status = mpi.waitall(window, requests, m->status_ignore);
    if (!status)
      status = m->rank == 0 ? mpi.recv(&answer, 1, m->byte, 1, TAG + 1, m->comm, m->status_ignore)
                            : mpi.send(&answer, 1, m->byte, 0, TAG + 1, m->comm);
    if (k >= 0 && m->rank == 0) seconds[k] = rw_now() - start;
  }
  free(requests);
  return status;
}

/* A window of sends and one of receives on both ranks at once, one buffer for all of each; no answer, because each
 * side's receives are the other's sends. Rank 0 writes the time of each timed pair of windows. */
int rw_mpi_bidirectional(const struct rw_mpi *m, const char *out, char *in, int bytes, int window, int warm,
                         int iterations, double *seconds) {
  size_t stride = (size_t)m->request_bytes;
  char *sends = malloc(2 * (size_t)window * stride);
  if (!sends) return RW_NO_MEMORY;
  char *receives = sends + (size_t)window * stride;
  int status = mpi.barrier(m->comm);
  for (int k = -warm; k < iterations && !status; k++) {
    double start = rw_now();
    for (int i = 0; i < window && !status; i++)
      status = mpi.irecv(in, bytes, m->byte, 1 - m->rank, TAG, m->comm, receives + (size_t)i * stride);
    for (int i = 0; i < window && !status; i++)
      status = mpi.isend(out, bytes, m->byte, 1 - m->rank, TAG, m->comm, sends + (size_t)i * stride);
    if (!status) status = mpi.waitall(window, sends, m->status_ignore);
    if (!status) status = mpi.waitall(window, receives, m->status_ignore);
    if (k >= 0 && m->rank == 0) seconds[k] = rw_now() - start;
  }
  free(sends);
  return status;
}
