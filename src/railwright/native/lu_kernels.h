/* The kernels of Linpack on GPUs (`lu.c`): HPL's matrix and residual, the panel's columns, and the exchange of rows.
 *
 * Included by kernels.cu, and by the stand-in driver, which compiles the same text for the host: there a block has one
 * thread. Every kernel works with any grid, and with blocks of up to THREADS threads, a power of two.
 *
 * The matrix [A b] lies in blocks over a grid of GPUs, as in HPL. A GPU's part is column-major. Local indices are
 * 32 bits wide, offsets into the matrix 64. */
#include "lu_place.h"

enum { THREADS = 512, LEAF = 64 };

/* Returns how many of the first `global` rows or columns lie at a place. */
INSIDE i32 count_before(i32 global, i32 block, i32 place, i32 places) {
  i32 whole = global / block, rounds = whole / places, over = whole % places;
  return rounds * block + (place < over ? block : place == over ? global % block : 0);
}

INSIDE i32 global_of(i32 local, i32 block, i32 place, i32 places) {
  return (local / block * places + place) * block + local % block;
}

INSIDE i32 rows_before(const struct rw_lu_place *p, i32 global) {
  return count_before(global, (i32)p->block, (i32)p->row, (i32)p->rows);
}

INSIDE i32 least(i32 a, i32 b) { return a < b ? a : b; }

/* The numbers of HPL's generator: X(k+1) = MULTIPLIER X(k) + 1, as in linpack.c. */
#define MULTIPLIER 6364136223846793005ULL

INSIDE u64 element(u64 seed, u64 k) {
  u64 x = seed, factor = MULTIPLIER, more = 1;
  for (u64 steps = k + 1; steps; steps >>= 1) {
    if (steps & 1) x = factor * x + more;
    more = factor * more + more;
    factor *= factor;
  }
  return x;
}

INSIDE double value_of(u64 x) { return 0.5 - (double)x * 0x1p-64; }

/* Writes this GPU's part of [A b], whose order is the columns' length. `factor` and `more` lead from an element to the
 * next one in its row. Each thread writes rows. */
KERNEL lu_generate(const struct rw_lu_place *p, u64 seed, u64 factor, u64 more) {
  i32 block = (i32)p->block, columns = (i32)p->local_columns;
  for (i32 li = (i32)first_index(); li < p->local_rows; li += (i32)all_threads()) {
    u64 i = (u64)global_of(li, block, (i32)p->row, (i32)p->rows), x = 0;
    for (i32 lj = 0; lj < columns; lj++) {
      u64 j = (u64)global_of(lj, block, (i32)p->column, (i32)p->columns);
      x = lj % block ? factor * x + more : element(seed, j * (u64)p->order + i);
      p->a[li + lj * p->lead] = value_of(x);
    }
  }
}

/* Writes this GPU's part of A x to `product` and of the sums of |A| along the rows to `sums`, at the rows' global
 * indices. A is generated again. */
KERNEL lu_multiply(const struct rw_lu_place *p, u64 seed, u64 factor, u64 more, const double *x, double *product,
                   double *sums) {
  i32 block = (i32)p->block, order = (i32)p->order;
  i32 columns = count_before(order, block, (i32)p->column, (i32)p->columns);
  for (i32 li = (i32)first_index(); li < p->local_rows; li += (i32)all_threads()) {
    i32 i = global_of(li, block, (i32)p->row, (i32)p->rows);
    u64 state = 0;
    double of_product = 0, of_sums = 0;
    for (i32 lj = 0; lj < columns; lj++) {
      i32 j = global_of(lj, block, (i32)p->column, (i32)p->columns);
      state = lj % block ? factor * state + more : element(seed, (u64)j * (u64)order + (u64)i);
      double value = value_of(state);
      of_product += value * x[j];
      of_sums += value < 0 ? -value : value;
    }
    product[i] = of_product;
    sums[i] = of_sums;
  }
}

/* ---- the panel ---- */

INSIDE double size_of(double x) { return x < 0 ? -x : x; }

/* Leaves the largest value of the block's threads, and the lowest row that has it, with thread 0. No row is -1. */
INSIDE void find_largest(double *value, i32 *row) {
  SHARED double values[THREADS];
  SHARED i32 rows[THREADS];
  u32 me = special_thread();
  values[me] = *value, rows[me] = *row;
  synchronize();
  for (u32 half = special_threads() / 2; half; half /= 2) {
    if (me < half) {
      double other = values[me + half];
      i32 at = rows[me + half];
      if (at >= 0 && (rows[me] < 0 || other > values[me] || (other == values[me] && at < rows[me])))
        values[me] = other, rows[me] = at;
    }
    synchronize();
  }
  *value = values[0], *row = rows[0];
  synchronize();
}

INSIDE void leave_candidate(const struct rw_lu_place *p, double value, i32 row) {
  find_largest(&value, &row);
  if (special_thread()) return;
  p->candidates[2 * special_block()] = value;
  p->candidates[2 * special_block() + 1] = row;
}

/* Finds the largest element of column j of a panel in the rows that this block reads. */
KERNEL lu_search(const struct rw_lu_place *p, u64 panel, u64 j) {
  i32 begin = (i32)(panel * (u64)p->block), best = -1;
  const double *column =
      p->a + (count_before(begin, (i32)p->block, (i32)p->column, (i32)p->columns) + (i64)j) * p->lead;
  double largest = -1;
  for (i32 li = rows_before(p, begin + (i32)j) + (i32)first_index(); li < p->local_rows; li += (i32)all_threads())
    if (size_of(column[li]) > largest) largest = size_of(column[li]), best = li;
  leave_candidate(p, largest, best);
}

/* Writes this GPU's message about column j: the best of `blocks` candidates with its row of the panel, and row j if it
 * lies here. One block. */
KERNEL lu_tell(const struct rw_lu_place *p, u64 panel, u64 j, u64 blocks) {
  i32 block = (i32)p->block, begin = (i32)panel * block, width = least(block, (i32)p->order - begin), best = -1;
  i32 diagonal = begin + (i32)j, at = rows_before(p, diagonal), is_here = rows_before(p, diagonal + 1) > at;
  const double *first = p->a + count_before(begin, block, (i32)p->column, (i32)p->columns) * p->lead;
  double largest = -1, *message = p->message;
  for (u32 i = special_thread(); i < blocks; i += special_threads()) {
    double value = p->candidates[2 * i];
    i32 row = (i32)p->candidates[2 * i + 1];
    if (row >= 0 && (value > largest || (value == largest && row < best))) largest = value, best = row;
  }
  find_largest(&largest, &best);
  if (!special_thread()) {
    message[0] = largest;
    message[1] = best < 0 ? -1 : global_of(best, block, (i32)p->row, (i32)p->rows);
    message[2] = is_here;
  }
  for (i32 c = (i32)special_thread(); c < width; c += (i32)special_threads()) {
    if (best >= 0) message[HEAD + c] = first[best + c * p->lead];
    if (is_here) message[HEAD + block + c] = first[at + c * p->lead];
  }
}

/* Takes the pivot of column j from the messages of all GPUs of this column of the grid: exchanges the rows in the whole
 * panel, keeps the pivot's row in the top block, eliminates column j from the columns up to `end`, and finds candidates
 * for column j + 1. The columns from `end` on wait for a product of matrices. */
KERNEL lu_eliminate(const struct rw_lu_place *p, u64 panel, u64 j_, u64 end) {
  SHARED double leaf[LEAF];
  i32 j = (i32)j_, block = (i32)p->block, begin = (i32)panel * block, width = least(block, (i32)p->order - begin);
  i32 diagonal = begin + j, best = -1;
  i64 size = HEAD + 2 * block;
  double *first = p->a + count_before(begin, block, (i32)p->column, (i32)p->columns) * p->lead;
  const double *pivot = 0, *old = 0;
  double largest = -1;
  for (i32 from = 0; from < p->rows; from++) {
    const double *message = p->messages + from * size;
    if (message[2] != 0) old = message + HEAD + block;
    if (message[1] < 0 || !(message[0] > largest || (message[0] == largest && (i32)message[1] < best))) continue;
    largest = message[0], best = (i32)message[1], pivot = message + HEAD;
  }
  if (best < 0) best = diagonal, pivot = old; /* nothing but NaN */
  double divisor = pivot[j], *top = p->panels[panel % 2];
  i32 swapped = rows_before(p, best);
  if (best == diagonal || rows_before(p, best + 1) == swapped) swapped = -1; /* not here */
  for (i32 c = (i32)first_index(); c < width; c += (i32)all_threads()) {
    top[j + (i64)c * block] = pivot[c];
    if (swapped >= 0 && (c < j || c >= (i32)end)) first[swapped + c * p->lead] = old[c];
  }
  if (!first_index()) {
    top[(i64)block * block + j] = best;
    if (divisor == 0 && !*p->singular) *p->singular = diagonal + 1;
  }
  for (i32 c = j + (i32)special_thread(); c < (i32)end; c += (i32)special_threads()) leaf[c - j] = pivot[c];
  synchronize();
  i32 next = -1, more = (i32)end - j;
  i64 lead = p->lead;
  double most = -1, *column = first + j * lead;
  for (i32 li = rows_before(p, diagonal + 1) + (i32)first_index(); li < p->local_rows; li += (i32)all_threads()) {
    double *at = column + li;
    if (li == swapped)
      for (i32 c = 0; c < more; c++) at[c * lead] = old[j + c];
    double factor = divisor == 0 ? 0 : *at / divisor;
    *at = factor;
    i32 c = 1;
    for (; c + 3 < more; c += 4) { /* four loads are in flight at once */
      double *to = at + c * lead;
      double v0 = to[0], v1 = to[lead], v2 = to[2 * lead], v3 = to[3 * lead];
      to[0] = v0 - factor * leaf[c], to[lead] = v1 - factor * leaf[c + 1];
      to[2 * lead] = v2 - factor * leaf[c + 2], to[3 * lead] = v3 - factor * leaf[c + 3];
    }
    for (; c < more; c++) at[c * lead] -= factor * leaf[c];
    if (more > 1 && size_of(at[lead]) > most) most = size_of(at[lead]), next = li;
  }
  leave_candidate(p, most, next);
}

/* ---- rows and blocks ---- */

/* Copies a block of a matrix. */
KERNEL lu_copy(double *to, u64 to_lead, const double *from, u64 from_lead, u64 rows, u64 columns) {
  for (u64 i = first_index(), all = rows * columns; i < all; i += all_threads())
    to[i % rows + i / rows * to_lead] = from[i % rows + i / rows * from_lead];
}

/* Collects rows of a matrix: row i of the block `to` is row list[i]. */
KERNEL lu_collect(const double *a, u64 lead, const i32 *list, u64 count, double *to, u64 columns) {
  for (u64 i = first_index(), all = count * columns; i < all; i += all_threads())
    to[i] = a[(u64)list[i % count] + i / count * lead];
}

/* Distributes rows of a block: row list[2 i + 1] becomes row list[2 i] of the matrix. */
KERNEL lu_distribute(double *a, u64 lead, const i32 *list, u64 count, const double *from, u64 from_lead, u64 columns) {
  for (u64 i = first_index(), all = count * columns; i < all; i += all_threads()) {
    const i32 *pair = list + 2 * (i % count);
    a[(u64)pair[0] + i / count * lead] = from[(u64)pair[1] + i / count * from_lead];
  }
}

/* Puts together the rows that pivoting moved to the top. Row i lies in the collected block that begins list[3 i] rows
 * after `from`, is list[3 i + 1] rows high, and has it as row list[3 i + 2]. */
KERNEL lu_assemble(double *to, const i32 *list, u64 count, const double *from, u64 columns) {
  for (u64 i = first_index(), all = count * columns; i < all; i += all_threads()) {
    const i32 *place = list + 3 * (i % count);
    to[i] = from[(u64)place[0] * columns + i / count * (u64)place[1] + (u64)place[2]];
  }
}

/* Adds up `parts` vectors that lie one after another. */
KERNEL lu_sum(double *to, const double *from, u64 count, u64 parts) {
  for (u64 i = first_index(); i < count; i += all_threads()) {
    double sum = 0;
    for (u64 part = 0; part < parts; part++) sum += from[part * count + i];
    to[i] = sum;
  }
}
