/* Stands in for libcublas: matrix products on the host, put on the stream of the stand-in libcuda.
 *
 * Small products of floats are really computed; of larger ones, and of 16-bit types, the first elements are set, so that
 * ranks with other inputs have other outputs. Arguments are checked as cuBLAS checks them.
 * Faults: STANDIN_CUBLAS_CREATE=N cublasCreate fails with N; STANDIN_CUBLAS_GEMM=N the N-th product fails with 13.
 * STANDIN_CUBLAS_NS=N each product lasts so many nanoseconds for every 1,000 multiplications and additions. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, INVALID = 7, FAILED = 13, FLOAT = 0, HALF = 2, BRAIN = 14, COMPUTE_32F = 68 };

struct handle {
  void *stream;
  long products;
};

struct product {
  int a_turned, b_turned, type;
  int64_t m, n, k, lda, ldb, ldc;
  const float *a, *b;
  float *c;
};

static long setting(const char *name) {
  const char *text = getenv(name);
  return text ? atol(text) : 0;
}

int cublasCreate_v2(void **handle) {
  int fault = (int)setting("STANDIN_CUBLAS_CREATE");
  *handle = calloc(1, sizeof(struct handle));
  return fault;
}

int cublasDestroy_v2(void *handle) { return free(handle), SUCCESS; }

int cublasGetVersion_v2(void *handle, int *version) { return *version = 130401, handle ? SUCCESS : 1; }

int cublasSetStream_v2(void *handle, void *stream) { return ((struct handle *)handle)->stream = stream, SUCCESS; }

static void wait(const struct product *p) {
  double ns = 1e-3 * 2.0 * (double)p->m * (double)p->n * (double)p->k * (double)setting("STANDIN_CUBLAS_NS");
  struct timespec t = {(time_t)(ns / 1e9), (long)(ns - 1e9 * (double)(long)(ns / 1e9))};
  if (ns > 0) nanosleep(&t, NULL);
}

static void multiply(void *data) {
  struct product *p = data;
  if (p->type == FLOAT && p->m * p->n * p->k <= 1 << 22) {
    for (int64_t j = 0; j < p->n; j++)
      for (int64_t i = 0; i < p->m; i++) {
        float sum = 0;
        for (int64_t l = 0; l < p->k; l++)
          sum += p->a[p->a_turned ? l + i * p->lda : i + l * p->lda] * p->b[p->b_turned ? j + l * p->ldb : l + j * p->ldb];
        p->c[i + j * p->ldc] = sum;
      }
  } else {
    size_t bytes = (size_t)(p->m < p->k ? p->m : p->k) * (p->type == FLOAT ? 4 : 2);
    memmove(p->c, p->a, bytes);
  }
  wait(p);
  free(p);
}

int cublasSetMathMode(void *handle, int mode) { return handle && mode == 0 ? SUCCESS : INVALID; }

/* ---- FP64: column-major, without transposition ---- */

struct doubles {
  enum { GEMM, TRSM, GEMV } kind;
  int m, n, k, lda, ldb, ldc, upper, unit;
  double alpha, beta;
  const double *a;
  double *b, *c;
};

static void run_doubles(void *data) {
  struct doubles *p = data;
  for (int64_t j = 0; j < p->n && p->kind != TRSM; j++)
    for (int64_t i = 0; i < p->m; i++) {
      double sum = 0, *c = &p->c[i + j * p->ldc];
      for (int64_t l = 0; l < p->k; l++) sum += p->a[i + l * p->lda] * p->b[l + j * p->ldb];
      *c = p->alpha * sum + (p->beta != 0 ? p->beta * *c : 0);
    }
  for (int64_t j = 0; j < p->n && p->kind == TRSM; j++)
    for (int64_t step = 0; step < p->m; step++) { /* a column of the triangle at a time */
      int64_t l = p->upper ? p->m - 1 - step : step, first = p->upper ? 0 : l + 1, end = p->upper ? l : p->m;
      double *b = p->b + j * p->ldb;
      if (!p->unit) b[l] /= p->a[l + l * p->lda];
      for (int64_t i = first; i < end; i++) b[i] -= p->a[i + l * p->lda] * b[l];
    }
  if (p->kind == GEMM && setting("STANDIN_CUBLAS_WRONG")) p->c[0] += 1;
  free(p);
}

static int put_doubles(void *handle, struct doubles work) {
  const char *emulates = getenv("CUBLAS_EMULATE_DOUBLE_PRECISION");
  if (!emulates || strcmp(emulates, "0")) return INVALID; /* FP64 proper must be asked for */
  int (*on_stream)(void *, void (*)(void *), void *) =
      (int (*)(void *, void (*)(void *), void *))dlsym(RTLD_DEFAULT, "cuLaunchHostFunc");
  struct doubles *p = malloc(sizeof *p);
  *p = work;
  return !on_stream || on_stream(((struct handle *)handle)->stream, run_doubles, p) ? FAILED : SUCCESS;
}

int cublasDgemm_v2(void *handle, int a_is, int b_is, int m, int n, int k, const double *alpha, const double *a, int lda,
                   double *b, int ldb, const double *beta, double *c, int ldc) {
  if (a_is || b_is || m < 1 || n < 1 || k < 1 || lda < m || ldb < k || ldc < m) return INVALID;
  return put_doubles(handle, (struct doubles){GEMM, m, n, k, lda, ldb, ldc, 0, 0, *alpha, *beta, a, b, c});
}

int cublasDtrsm_v2(void *handle, int side, int upper, int a_is, int unit, int m, int n, const double *alpha,
                   const double *a, int lda, double *b, int ldb) {
  if (side || a_is || m < 1 || n < 1 || *alpha != 1 || lda < m || ldb < m) return INVALID;
  return put_doubles(handle, (struct doubles){TRSM, m, n, 0, lda, ldb, 0, upper, unit, 1, 0, a, b, NULL});
}

int cublasDgemv_v2(void *handle, int a_is, int m, int n, const double *alpha, const double *a, int lda, double *x,
                   int x_step, const double *beta, double *y, int y_step) {
  if (a_is || m < 1 || n < 1 || lda < m || x_step != 1 || y_step != 1) return INVALID;
  return put_doubles(handle, (struct doubles){GEMV, m, 1, n, lda, n, m, 0, 0, *alpha, *beta, a, x, y});
}

int cublasGemmEx(void *handle, int a_is, int b_is, int m, int n, int k, const void *alpha, const void *a, int a_type,
                 int lda, const void *b, int b_type, int ldb, const void *beta, void *c, int c_type, int ldc,
                 int compute, int algorithm) {
  struct handle *h = handle;
  int types = a_type == b_type && b_type == c_type && (a_type == FLOAT || a_type == HALF || a_type == BRAIN);
  if (!types || compute != COMPUTE_32F || algorithm != -1 || m < 1 || n < 1 || k < 1) return INVALID;
  if (lda < (a_is ? k : m) || ldb < (b_is ? n : k) || ldc < m || !a || !b || !c) return INVALID;
  if (*(const float *)alpha != 1 || *(const float *)beta != 0) return INVALID;
  if (++h->products == setting("STANDIN_CUBLAS_GEMM")) return FAILED;
  int (*on_stream)(void *, void (*)(void *), void *) =
      (int (*)(void *, void (*)(void *), void *))dlsym(RTLD_DEFAULT, "cuLaunchHostFunc");
  if (!on_stream) return FAILED;
  struct product *p = malloc(sizeof *p);
  *p = (struct product){a_is, b_is, a_type, m, n, k, lda, ldb, ldc, a, b, c};
  return on_stream(h->stream, multiply, p) ? FAILED : SUCCESS;
}
