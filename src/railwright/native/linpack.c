/* HPL's random matrix, distributed over ranks in blocks, and the check of its solution. A is generated again for the
   check, so that no second matrix is held. HPL 2.3: testing/matgen and testing/pmatgen. */
#include "railwright.h"

#include <math.h>
#include <stdlib.h>

/* Rank (row, column) of a grid of rows x columns holds every rows-th block of rows and columns-th block of columns. */
struct rw_hpl {
  int64_t order, block, rows, columns, row, column;
  uint64_t seed;
};

/* X(k+1) = MULTIPLIER X(k) + 1 mod 2^64 with X(0) = seed: Knuth's MMIX, HPL_MULT and HPL_IADD. Elements are numbered
   down the columns of [A b] from 0, and element k is derived from X(k+1). */
static const uint64_t MULTIPLIER = 6364136223846793005u;

static inline uint64_t next(uint64_t x) { return MULTIPLIER * x + 1; }

/* Returns the value of a state, in (-0.5, 0.5] (HPL_rand). */
static inline double value(uint64_t x) { return 0.5 - (double)x * 0x1p-64; }

static uint64_t element(uint64_t seed, uint64_t k) {
  uint64_t x = seed, factor = MULTIPLIER, add = 1;
  for (uint64_t steps = k + 1; steps; steps >>= 1) {
    if (steps & 1) x = factor * x + add;
    add = factor * add + add;
    factor *= factor;
  }
  return x;
}

/* Writes this rank's columns from `first` up to `end` of its part of A, each `lead` apart. */
void rw_hpl_matrix(const struct rw_hpl *h, double *a, int64_t lead, int64_t first, int64_t end) {
  for (int64_t lj = first; lj < end; lj++) {
    int64_t j = (lj / h->block * h->columns + h->column) * h->block + lj % h->block;
    double *column = a + (lj - first) * lead;
    for (int64_t i = h->row * h->block; i < h->order; i += h->rows * h->block) {
      int64_t count = h->order - i < h->block ? h->order - i : h->block;
      uint64_t x = element(h->seed, (uint64_t)j * (uint64_t)h->order + (uint64_t)i);
      for (int64_t k = 0; k < count; k++, x = next(x)) *column++ = value(x);
    }
  }
}

/* Adds this rank's part of A y to `product`, and of the rows' sums of |A| to `sums`; both have all rows. */
void rw_hpl_multiply(const struct rw_hpl *h, const double *y, double *product, double *sums) {
  for (int64_t jb = h->column * h->block; jb < h->order; jb += h->columns * h->block)
    for (int64_t j = jb; j < jb + h->block && j < h->order; j++)
      for (int64_t i = h->row * h->block; i < h->order; i += h->rows * h->block) {
        int64_t count = h->order - i < h->block ? h->order - i : h->block;
        uint64_t x = element(h->seed, (uint64_t)j * (uint64_t)h->order + (uint64_t)i);
        for (int64_t k = 0; k < count; k++, x = next(x)) {
          product[i + k] += value(x) * y[j];
          sums[i + k] += fabs(value(x));
        }
      }
}

/* Writes this rank's rows of b, the column after A; with `back`, copies its part to the rows of `all`. */
void rw_hpl_right_side(const struct rw_hpl *h, double *b, double *all, int back) {
  int64_t li = 0;
  for (int64_t i = h->row * h->block; i < h->order; i += h->rows * h->block) {
    uint64_t x = element(h->seed, (uint64_t)h->order * (uint64_t)h->order + (uint64_t)i);
    for (int64_t k = i; k < i + h->block && k < h->order; k++, li++, x = next(x)) {
      if (back) all[k] = b[li];
      else b[li] = value(x);
    }
  }
}

/* Returns the larger value; a NaN persists. */
static double worse(double a, double b) { return isnan(a) || a >= b ? a : b; }

/* Computes the maximum norms of product - b, of A by its row sums, of y and of b. */
void rw_hpl_norms(const struct rw_hpl *h, const double *y, const double *product, const double *sums, double *norms) {
  for (int k = 0; k < 4; k++) norms[k] = 0;
  uint64_t x = element(h->seed, (uint64_t)h->order * (uint64_t)h->order);
  for (int64_t i = 0; i < h->order; i++, x = next(x)) {
    norms[0] = worse(norms[0], fabs(product[i] - value(x)));
    norms[1] = worse(norms[1], sums[i]);
    norms[2] = worse(norms[2], fabs(y[i]));
    norms[3] = worse(norms[3], fabs(value(x)));
  }
}

/* Writes integers of 20 bits. Their products, and sums of 2^13 of those, are exact in a double. */
void rw_hpl_integers(double *a, int64_t count, uint64_t seed) {
  uint64_t x = element(seed, 0);
  for (int64_t k = 0; k < count; k++, x = next(x)) a[k] = (double)((int64_t)(x >> 44) - (1 << 19));
}

/* Counts the rows of C, of order m, whose sum differs from that of the same row of A B, mod 2^64. */
int64_t rw_hpl_wrong_rows(int64_t m, const double *a, const double *b, const double *c) {
  uint64_t *of_b = calloc((size_t)m, sizeof *of_b), *left = calloc((size_t)m, sizeof *left);
  int64_t wrong = of_b && left ? 0 : RW_NO_MEMORY;
  if (!wrong) {
    for (int64_t j = 0; j < m; j++)
      for (int64_t k = 0; k < m; k++) of_b[k] += (uint64_t)(int64_t)b[j * m + k];
    for (int64_t j = 0; j < m; j++)
      for (int64_t i = 0; i < m; i++)
        left[i] += (uint64_t)(int64_t)a[j * m + i] * of_b[j] - (uint64_t)(int64_t)c[j * m + i];
    for (int64_t i = 0; i < m; i++) wrong += left[i] != 0;
  }
  free(of_b);
  free(left);
  return wrong;
}

/* The number of columns done. MKL calls rw_hpl_progress as its `mkl_progress` to report it. */
static volatile int columns_done;

int rw_hpl_progress(const int *process, const int *step, const char *stage, int length) {
  (void)process, (void)stage, (void)length;
  columns_done = *step;
  return 0; /* any other value would stop MKL */
}

int rw_hpl_columns_done(int reset) {
  int done = columns_done;
  if (reset) columns_done = 0;
  return done;
}
