/* The reference for mpi_message_rate: a plain C loop, compiled with mpicc, with the method of osu_mbw_mr for one pair.
 * mpirun -n 2 mpi_rate SIZE WINDOWS WARM [SIZE WINDOWS WARM ...]; prints `SIZE p50-messages-per-second` lines. */
#include "mpi_pages.h"

enum { WINDOW = 64, TAG = 7 };

int main(int argc, char **argv) {
  MPI_Request requests[WINDOW];
  int rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  bind_to(rank);
  for (int a = 1; a + 2 < argc; a += 3) {
    int bytes = atoi(argv[a]), windows = atoi(argv[a + 1]), warm = atoi(argv[a + 2]);
    char *out = pages((size_t)bytes), *in = pages((size_t)bytes), answer = 0;
    double *rates = malloc((size_t)windows * sizeof *rates);
    memset(out, 1, (size_t)bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int k = -warm; k < windows; k++) {
      double start = now();
      for (int i = 0; i < WINDOW; i++) {
        if (rank == 0) MPI_Isend(out, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &requests[i]);
        else MPI_Irecv(in, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &requests[i]);
      }
      MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
      if (rank == 0) MPI_Recv(&answer, 1, MPI_BYTE, 1, TAG + 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      else MPI_Send(&answer, 1, MPI_BYTE, 0, TAG + 1, MPI_COMM_WORLD);
      if (k >= 0) rates[k] = WINDOW / (now() - start);
    }
    if (rank == 0) printf("%d %.9g\n", bytes, median(rates, windows));
    munmap(out, (size_t)bytes), munmap(in, (size_t)bytes), free(rates);
  }
  MPI_Finalize();
  return 0;
}
