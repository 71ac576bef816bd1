/* Stands in for ScaLAPACK, so that Linpack's ranks are tested without the mkl package: a plain LU by every rank of the
   whole matrix, which ranks hand to each other in files of the launch's own $TMPDIR. It knows nothing of how A was made.
   $STANDIN_SCALAPACK_FAULT: wrong (one element of x), singular, dies (rank 1), product (one element of dgemm).
   $STANDIN_SCALAPACK_FLOP_PER_S: as if each rank had this rate, and handed its part of A to all others by MPI. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rows, columns, my_row, my_column, calls;
static double *lu;
static int *swaps;

static int is_fault(const char *name) {
  const char *asked = getenv("STANDIN_SCALAPACK_FAULT");
  return asked && !strcmp(asked, name);
}

static int rank(void) {
  const char *names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK"};
  for (int k = 0; k < 2; k++)
    if (getenv(names[k])) return atoi(getenv(names[k]));
  return 0;
}

void blacs_get_(const int *context, const int *what, int *value) {
  (void)context, (void)what;
  *value = 0;
}

void blacs_gridinit_(int *context, const char *order, const int *p, const int *q) {
  if (*order != 'R') abort();
  rows = *p, columns = *q, my_row = rank() / columns, my_column = rank() % columns;
  *context = 7;
}

void blacs_gridexit_(const int *context) {
  if (*context != 7) abort();
}

static void name_of(char *name, size_t size, int call, int row, int column, const char *end) {
  snprintf(name, size, "%s/%d.%d.%d%s", getenv("TMPDIR"), call, row, column, end);
}

static int held(int order, int block, int place, int places) {
  int count = 0;
  for (int k = 0; k < order; k++) count += k / block % places == place;
  return count;
}

/* The whole of what all ranks hold, n x m; `mine` is this rank's part, whose columns are `lead` apart. */
static double *gathered(const double *mine, int n, int m, int block, int lead) {
  char name[4096], ready[4096];
  int width = held(m, block, my_column, columns), height = held(n, block, my_row, rows);
  calls++;
  name_of(name, sizeof name, calls, my_row, my_column, ".part");
  name_of(ready, sizeof ready, calls, my_row, my_column, "");
  FILE *file = fopen(name, "wb");
  for (int j = 0; j < width; j++) fwrite(mine + (size_t)j * lead, sizeof *mine, height, file);
  fclose(file);
  rename(name, ready);
  double *all = malloc(sizeof *all * n * m);
  for (int r = 0; r < rows; r++)
    for (int c = 0; c < columns; c++) {
      name_of(name, sizeof name, calls, r, c, "");
      while (!(file = fopen(name, "rb"))) usleep(1000);
      for (int j = 0; j < m; j++)
        for (int i = 0; i < n; i++)
          if (i / block % rows == r && j / block % columns == c)
            if (fread(all + (size_t)j * n + i, sizeof *all, 1, file) != 1) abort();
      fclose(file);
    }
  return all;
}

static void factor(int n) {
  for (int k = 0; k < n; k++) {
    int best = k;
    for (int i = k + 1; i < n; i++)
      if (fabs(lu[k * n + i]) > fabs(lu[k * n + best])) best = i;
    swaps[k] = best;
    for (int j = 0; j < n; j++) {
      double kept = lu[j * n + k];
      lu[j * n + k] = lu[j * n + best], lu[j * n + best] = kept;
    }
    for (int i = k + 1; i < n; i++) lu[k * n + i] /= lu[k * n + k];
    for (int j = k + 1; j < n; j++)
      for (int i = k + 1; i < n; i++) lu[j * n + i] -= lu[k * n + i] * lu[j * n + k];
  }
}

/* Asleep, so that ranks that share a machine take nothing from each other; twice the part, as panels go both ways. */
static void take_its_time(int n) {
  const char *rate = getenv("STANDIN_SCALAPACK_FLOP_PER_S");
  if (!rate) return;
  usleep((useconds_t)(2.0 / 3 * n * n * n / rows / columns / atof(rate) * 1e6));
  int (*broadcast)(void *, int, void *, int, void *) = dlsym(RTLD_DEFAULT, "MPI_Bcast");
  void *world = dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world"), *number = dlsym(RTLD_DEFAULT, "ompi_mpi_double");
  if (!broadcast || !world || !number) abort();
  int part = 2 * (n / rows) * (n / columns);
  double *passed = calloc(part, sizeof *passed);
  for (int root = 0; root < rows * columns; root++) broadcast(passed, part, number, root, world);
  free(passed);
}

void pdgetrf_(const int *m, const int *n, double *a, const int *ia, const int *ja, const int *desc, int *ipiv,
              int *info) {
  if (*m != *n || *ia != 1 || *ja != 1 || desc[0] != 1 || desc[1] != 7 || desc[2] != *n || desc[4] != desc[5]) abort();
  if (is_fault("dies") && rank() == 1) raise(SIGKILL);
  free(lu), free(swaps);
  lu = gathered(a, *n, *n, desc[4], desc[8]);
  take_its_time(*n);
  swaps = malloc(sizeof *swaps * *n);
  factor(*n);
  memset(ipiv, 0, sizeof *ipiv * (held(*n, desc[4], my_row, rows) + desc[4]));
  *info = is_fault("singular") ? 3 : 0;
}

static void substitute(double *x, int n) {
  for (int k = 0; k < n; k++) {
    double kept = x[k];
    x[k] = x[swaps[k]], x[swaps[k]] = kept;
  }
  for (int k = 0; k < n; k++)
    for (int i = k + 1; i < n; i++) x[i] -= lu[k * n + i] * x[k];
  for (int k = n - 1; k >= 0; k--) {
    x[k] /= lu[k * n + k];
    for (int i = 0; i < k; i++) x[i] -= lu[k * n + i] * x[k];
  }
  if (is_fault("wrong")) x[n - 1] *= 1.0001;
}

void pdgetrs_(const char *trans, const int *n, const int *nrhs, double *a, const int *ia, const int *ja,
              const int *desc, const int *ipiv, double *b, const int *ib, const int *jb, const int *descb, int *info) {
  (void)a, (void)ia, (void)ja, (void)ipiv, (void)ib, (void)jb;
  if (*trans != 'N' || *nrhs != 1 || descb[3] != 1 || descb[8] != desc[8]) abort();
  double *x = gathered(b, *n, 1, desc[4], desc[8]);
  substitute(x, *n);
  if (my_column == 0)
    for (int i = 0, li = 0; i < *n; i++)
      if (i / desc[4] % rows == my_row) b[li++] = x[i];
  free(x);
  *info = 0;
}

/* LAPACK's, of one process alone: in place, as its callers expect. */
void dgetrf_(const int *m, const int *n, double *a, const int *lda, int *ipiv, int *info) {
  if (*m != *n || *lda != *n || rows) abort();
  lu = a, swaps = ipiv;
  factor(*n);
  *info = is_fault("singular") ? 3 : 0;
}

void dgetrs_(const char *trans, const int *n, const int *nrhs, const double *a, const int *lda, const int *ipiv,
             double *b, const int *ldb, int *info) {
  if (*trans != 'N' || *nrhs != 1 || a != lu || *lda != *n || ipiv != swaps || *ldb != *n) abort();
  substitute(b, *n);
  *info = 0;
}

void dgemm_(const char *transa, const char *transb, const int *m, const int *n, const int *k, const double *alpha,
            const double *a, const int *lda, const double *b, const int *ldb, const double *beta, double *c,
            const int *ldc) {
  if (*transa != 'N' || *transb != 'N' || *alpha != 1 || *beta != 0) abort();
  for (int j = 0; j < *n; j++) {
    for (int i = 0; i < *m; i++) c[(size_t)j * *ldc + i] = 0;
    for (int l = 0; l < *k; l++)
      for (int i = 0; i < *m; i++) c[(size_t)j * *ldc + i] += a[(size_t)l * *lda + i] * b[(size_t)j * *ldb + l];
  }
  if (is_fault("product") && rank() == 1) c[5] += 1;
}
