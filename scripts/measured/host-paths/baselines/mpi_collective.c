/* The reference for collectives: a plain C loop, compiled with mpicc, of operations on floats between barriers.
 * mpirun -n N mpi_collective OPERATION SIZE WARM OPERATIONS SAMPLES [SIZE ...]; prints `SIZE p50-seconds` lines. SIZE is
 * defined as in nccl-tests, and a sample is the mean over ranks of the time of an operation. */
#include "mpi_pages.h"

static int rank, ranks, kind;
static float *out, *in;

static void operations(int how_many, int count) {
  for (int k = 0; k < how_many; k++) {
    if (kind == 'r') MPI_Allreduce(out, in, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (kind == 's') MPI_Reduce_scatter_block(out, in, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (kind == 'g') MPI_Allgather(out, count, MPI_FLOAT, in, count, MPI_FLOAT, MPI_COMM_WORLD);
    if (kind == 'a') MPI_Alltoall(out, count, MPI_FLOAT, in, count, MPI_FLOAT, MPI_COMM_WORLD);
  }
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  bind_to(rank);
  if (argc < 2) return 1;
  kind = !strcmp(argv[1], "all_reduce") ? 'r' : !strcmp(argv[1], "reduce_scatter") ? 's'
       : !strcmp(argv[1], "all_gather") ? 'g' : 'a';
  for (int a = 2; a + 3 < argc; a += 4) {
    int bytes = atoi(argv[a]), warm = atoi(argv[a + 1]), inner = atoi(argv[a + 2]), samples = atoi(argv[a + 3]);
    int count = bytes / (int)sizeof(float) / (kind == 'r' ? 1 : ranks);
    size_t sent = (size_t)bytes / (kind == 'g' ? (size_t)ranks : 1), got = (size_t)bytes / (kind == 's' ? (size_t)ranks : 1);
    double *seconds = malloc((size_t)samples * sizeof *seconds), *sums = malloc((size_t)samples * sizeof *sums);
    out = (float *)pages(sent), in = (float *)pages(got);
    operations(warm, count);
    for (int k = 0; k < samples; k++) {
      MPI_Barrier(MPI_COMM_WORLD);
      double start = now();
      operations(inner, count);
      seconds[k] = (now() - start) / inner;
    }
    MPI_Reduce(seconds, sums, samples, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%d %.9g\n", bytes, median(sums, samples) / ranks);
    munmap(out, sent), munmap(in, got), free(seconds), free(sums);
  }
  MPI_Finalize();
  return 0;
}
