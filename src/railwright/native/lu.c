/* Linpack on GPUs: right-looking LU with partial pivoting of HPL's [A b] in blocks over a grid of GPUs, one for each
 * process, and back substitution. While the update of all columns by panel k runs on one stream, the
 * columns of panel k + 1, which were updated first, are factorized on another (look-ahead).
 *
 * cuBLAS multiplies and solves triangles, NCCL moves rows and panels, kernels of lu_kernels.h do the rest. NCCL moves
 * doubles as pairs of floats: it adds nothing up here. */
#include "cuda.h"
#include "lu_place.h"
#include "nccl_errors.h"

#include <dlfcn.h>
#include <string.h>

enum { FLOAT32 = 7, FLOATS = 2 };                              /* of nccl.h; floats in a double */
enum { LEFT = 0, LOWER = 0, UPPER = 1, PLAIN = 0, NON_UNIT = 0, UNIT = 1 }; /* of cublas_api.h */
enum { SEARCH, TELL, ELIMINATE, COPY, COLLECT, DISTRIBUTE, ASSEMBLE, SUM, KERNELS };
enum { ROW_THREADS = 256, MOST_ROWS = 64 };

/* The layout is also in `native/lu.py`. Addresses are the GPU's, unless they are pointers. */
struct rw_lu {
  struct rw_lu_place here;
  uint64_t place;                 /* a copy of `here` */
  uint64_t collected, top;        /* rows that change places in `chunk` columns, and those that come to the top */
  uint64_t lists[2];              /* of int32: 7 for each row of a block */
  uint64_t right_side, parts, x;  /* local rows, rows of a block from each GPU of a row, and all rows */
  int64_t chunk, leaf, panel_blocks, panel_threads, blocks;
  int64_t *pivots;                /* all, once they are known */
  int32_t *moved;                 /* all rows: the row that is there now */
  int32_t *host_lists[2];         /* pinned */
  double *host_pivots[2];         /* pinned */
  void *context, *panel_stream, *update_stream, *panel_blas, *update_blas;
  void *row_comm, *column_comm, *update_comm; /* NULL for a single GPU */
  void *kernels[KERNELS];
  void *ready[2], *updated[2], *columns_ready; /* events */
};

static struct {
  int (*gemm)(void *, int, int, int, int, int, const double *, uint64_t, int, uint64_t, int, const double *, uint64_t,
              int);
  int (*trsm)(void *, int, int, int, int, int, int, const double *, uint64_t, int, uint64_t, int);
  int (*gemv)(void *, int, int, int, const double *, uint64_t, int, uint64_t, int, const double *, uint64_t, int);
} blas;

static struct {
  int (*all_gather)(uint64_t, uint64_t, size_t, int, void *, void *);
  int (*broadcast)(uint64_t, uint64_t, size_t, int, int, void *, void *);
  int (*group_start)(void);
  int (*group_end)(void);
} nccl;

static const double ONE = 1, MINUS_ONE = -1;

static void bind(void *library, const char *name, void *to) {
  void *symbol = dlsym(library, name);
  memcpy(to, &symbol, sizeof symbol);
}

int rw_lu_bind(void *cublas, void *nccl_library) {
  bind(cublas, "cublasDgemm_v2", &blas.gemm);
  bind(cublas, "cublasDtrsm_v2", &blas.trsm);
  bind(cublas, "cublasDgemv_v2", &blas.gemv);
  bind(nccl_library, "ncclAllGather", &nccl.all_gather);
  bind(nccl_library, "ncclBroadcast", &nccl.broadcast);
  bind(nccl_library, "ncclGroupStart", &nccl.group_start);
  bind(nccl_library, "ncclGroupEnd", &nccl.group_end);
  int all = blas.gemm && blas.trsm && blas.gemv && nccl.all_gather && nccl.broadcast && nccl.group_start && nccl.group_end;
  return all ? RW_OK : RW_MISSING_SYMBOL;
}

#define TRY(call)                \
  do {                           \
    int status_ = (call);        \
    if (status_) return status_; \
  } while (0)

static int of_blas(int status) { return status ? RW_CUBLAS_ERROR - status : RW_OK; }
static int of_nccl(int status) { return status ? RW_NCCL_ERROR - status : RW_OK; }

static uint64_t at(double *a) { return (uint64_t)(uintptr_t)a; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t count_before(int64_t global, int64_t block, int64_t place, int64_t places) {
  int64_t whole = global / block, rounds = whole / places, over = whole % places;
  return rounds * block + (place < over ? block : place == over ? global % block : 0);
}

static int64_t rows_before(const struct rw_lu_place *h, int64_t global) {
  return count_before(global, h->block, h->row, h->rows);
}

static int64_t columns_before(const struct rw_lu_place *h, int64_t global) {
  return count_before(global, h->block, h->column, h->columns);
}

static int run(const struct rw_lu *l, int kernel, unsigned grid, unsigned threads, void *stream, void **arguments) {
  return rw_cuda.launch(l->kernels[kernel], grid, 1, 1, threads, 1, 1, 0, stream, arguments, NULL);
}

static int copy(const struct rw_lu *l, void *stream, uint64_t to, int64_t to_lead, uint64_t from, int64_t from_lead,
                int64_t rows, int64_t columns) {
  void *arguments[] = {&to, &to_lead, &from, &from_lead, &rows, &columns};
  return rows && columns ? run(l, COPY, (unsigned)l->blocks, ROW_THREADS, stream, arguments) : RW_OK;
}

/* ---- a panel ---- */

struct panel {
  int64_t number, begin, width; /* its first column and its columns */
  int64_t rows, below;          /* the first local row of it, and below its top block */
  int64_t column;               /* its first local column */
  uint64_t a;                   /* that column */
  uint64_t top, low;            /* in the buffer that all GPUs get */
};

static struct panel panel_of(const struct rw_lu *l, int64_t number) {
  const struct rw_lu_place *h = &l->here;
  int64_t begin = number * h->block, width = least(h->block, h->order - begin), column = columns_before(h, begin);
  uint64_t top = at(h->panels[number % 2]);
  return (struct panel){.number = number, .begin = begin, .width = width, .rows = rows_before(h, begin),
                        .below = rows_before(h, begin + width), .column = column, .a = at(h->a + column * h->lead),
                        .top = top, .low = top + 8 * (uint64_t)(h->block * h->block + h->block)};
}

/* Factorizes columns `first` to `end` of a panel one by one. */
static int eliminate(const struct rw_lu *l, const struct panel *p, int64_t first, int64_t end) {
  const struct rw_lu_place *h = &l->here;
  int64_t rows = h->local_rows - p->rows, threads = l->panel_threads;
  int64_t blocks = least(l->panel_blocks, 1 + rows / threads), number = p->number;
  uint64_t place = l->place;
  void *search[] = {&place, &number, &first};
  TRY(run(l, SEARCH, (unsigned)blocks, (unsigned)threads, l->panel_stream, search));
  for (int64_t j = first; j < end; j++) {
    void *tell[] = {&place, &number, &j, &blocks}, *step[] = {&place, &number, &j, &end};
    TRY(run(l, TELL, 1, (unsigned)threads, l->panel_stream, tell));
    if (l->column_comm)
      TRY(of_nccl(nccl.all_gather(at(h->message), at(h->messages), FLOATS * (size_t)(HEAD + 2 * h->block), FLOAT32,
                                  l->column_comm, l->panel_stream)));
    TRY(run(l, ELIMINATE, (unsigned)blocks, (unsigned)threads, l->panel_stream, step));
  }
  return RW_OK;
}

/* Factorizes columns `first` to `end` by halves: the right half is updated by the left one. The top block is held by
 * every GPU of the column, so only rows cross between GPUs. */
static int factorize(const struct rw_lu *l, const struct panel *p, int64_t first, int64_t end) {
  const struct rw_lu_place *h = &l->here;
  if (end - first <= l->leaf) return eliminate(l, p, first, end);
  int64_t middle = first + (end - first + l->leaf) / (2 * l->leaf) * l->leaf;
  TRY(factorize(l, p, first, middle));
  int64_t row = rows_before(h, p->begin + middle), rows = h->local_rows - row;
  uint64_t diagonal = p->top + 8 * (uint64_t)(first + first * h->block), right = p->top + 8 * (uint64_t)(first + middle * h->block);
  TRY(of_blas(blas.trsm(l->panel_blas, LEFT, LOWER, PLAIN, UNIT, (int)(middle - first), (int)(end - middle), &ONE,
                        diagonal, (int)h->block, right, (int)h->block)));
  if (rows)
    TRY(of_blas(blas.gemm(l->panel_blas, PLAIN, PLAIN, (int)rows, (int)(end - middle), (int)(middle - first), &MINUS_ONE,
                          p->a + 8 * (uint64_t)(row + first * h->lead), (int)h->lead, right, (int)h->block, &ONE,
                          p->a + 8 * (uint64_t)(row + middle * h->lead), (int)h->lead)));
  return factorize(l, p, middle, end);
}

/* Factorizes a panel if it lies here, and gives it to all GPUs of the row of the grid. */
static int make_panel(const struct rw_lu *l, int64_t number) {
  const struct rw_lu_place *h = &l->here;
  struct panel p = panel_of(l, number);
  int64_t rows = h->local_rows - p.below, owner = number % h->columns;
  if (h->column == owner) {
    TRY(factorize(l, &p, 0, p.width));
    if (h->row == number % h->rows)
      TRY(copy(l, l->panel_stream, p.a + 8 * (uint64_t)p.rows, h->lead, p.top, h->block, p.width, p.width));
    TRY(copy(l, l->panel_stream, p.low, rows, p.a + 8 * (uint64_t)p.below, h->lead, rows, p.width));
  }
  if (l->row_comm) {
    size_t doubles = (size_t)(h->block * h->block + h->block + rows * p.width);
    TRY(of_nccl(nccl.broadcast(p.top, p.top, FLOATS * doubles, FLOAT32, (int)owner, l->row_comm, l->panel_stream)));
  }
  uint64_t pivots = p.top + 8 * (uint64_t)(h->block * h->block);
  TRY(rw_cuda.to_host_async(l->host_pivots[number % 2], pivots, sizeof(double) * (size_t)p.width, l->panel_stream));
  return rw_cuda.event_record(l->ready[number % 2], l->panel_stream);
}

/* ---- the update ---- */

/* Rows that a panel's pivots exchange. Each GPU of a column gives those of its rows that come to the top. */
struct exchange {
  int64_t given[MOST_ROWS], first[MOST_ROWS]; /* by row of the grid: how many rows, and where they lie among the collected ones */
  int64_t displaced;            /* rows here to which a row of the top goes */
};

/* Writes the lists of a panel: rows of the top, rows given, pairs of displaced rows, and the places of the new top. */
static int list_rows(struct rw_lu *l, const struct panel *p, struct exchange *e) {
  const struct rw_lu_place *h = &l->here;
  int64_t end = p->begin + p->width;
  int32_t *top = l->host_lists[p->number % 2], *given = top + h->block, *pairs = given + h->block, *places = pairs + 2 * h->block;
  for (int64_t t = 0; t < p->width; t++) {
    int64_t pivot = (int64_t)l->host_pivots[p->number % 2][t], row = p->begin + t;
    if (pivot < row || pivot >= h->order) return RW_OTHER_RANK_FAILED;
    int32_t kept = l->moved[row];
    l->moved[row] = l->moved[pivot], l->moved[pivot] = kept, l->pivots[row] = pivot;
  }
  memset(e, 0, sizeof *e);
  for (int64_t t = 0; t < p->width; t++) { /* how many each gives */
    int64_t from = l->moved[p->begin + t];
    if (from >= end) e->given[from / h->block % h->rows]++;
  }
  for (int64_t r = 0, sum = p->width; r < h->rows; r++) e->first[r] = sum, sum += e->given[r];
  int64_t counted[MOST_ROWS] = {0};
  for (int64_t t = 0; t < p->width; t++) {
    int64_t from = l->moved[p->begin + t], owner = from / h->block % h->rows;
    top[t] = (int32_t)(p->rows + t);
    int outside = from >= end;
    places[3 * t] = outside ? (int32_t)e->first[owner] : 0;
    places[3 * t + 1] = outside ? (int32_t)e->given[owner] : (int32_t)p->width;
    places[3 * t + 2] = outside ? (int32_t)counted[owner]++ : (int32_t)(from - p->begin);
    if (outside && owner == h->row) given[counted[owner] - 1] = (int32_t)rows_before(h, from);
  }
  for (int64_t t = 0; t < p->width; t++) {
    int64_t row = l->pivots[p->begin + t];
    if (row >= end && l->moved[row] != row) {
      if (row / h->block % h->rows == h->row) {
        pairs[2 * e->displaced] = (int32_t)rows_before(h, row);
        pairs[2 * e->displaced++ + 1] = (int32_t)(l->moved[row] - p->begin);
      }
      l->moved[row] = (int32_t)row;
    }
    l->moved[p->begin + t] = (int32_t)(p->begin + t);
  }
  return RW_OK;
}

static int collect(const struct rw_lu *l, uint64_t a, uint64_t list, int64_t count, uint64_t to, int64_t columns) {
  int64_t lead = l->here.lead;
  void *arguments[] = {&a, &lead, &list, &count, &to, &columns};
  return count ? run(l, COLLECT, (unsigned)l->blocks, ROW_THREADS, l->update_stream, arguments) : RW_OK;
}

static int exchange(const struct rw_lu *l, const struct panel *p, const struct exchange *e, int64_t columns) {
  const struct rw_lu_place *h = &l->here;
  if (!l->update_comm) return RW_OK;
  TRY(of_nccl(nccl.group_start()));
  int status = nccl.broadcast(l->collected, l->collected, FLOATS * (size_t)(p->width * columns), FLOAT32,
                              (int)(p->number % h->rows), l->update_comm, l->update_stream);
  for (int64_t r = 0; r < h->rows && !status; r++) {
    uint64_t rows = l->collected + 8 * (uint64_t)(e->first[r] * columns);
    if (e->given[r])
      status = nccl.broadcast(rows, rows, FLOATS * (size_t)(e->given[r] * columns), FLOAT32, (int)r, l->update_comm,
                              l->update_stream);
  }
  int ended = nccl.group_end();
  return of_nccl(status ? status : ended);
}

/* Exchanges rows in `columns` local columns from `first` on, solves for the rows of U, and updates the rest. */
static int update(const struct rw_lu *l, const struct panel *p, const struct exchange *e, int64_t first, int64_t columns) {
  const struct rw_lu_place *h = &l->here;
  int64_t lead = h->lead, block = h->block, width = p->width, rows = h->local_rows - p->below;
  uint64_t a = at(h->a + first * lead), lists = l->lists[p->number % 2], top = l->top, collected = l->collected;
  uint64_t given = lists + 4 * (uint64_t)block, pairs = given + 4 * (uint64_t)block, places = pairs + 8 * (uint64_t)block;
  int is_owner = h->row == p->number % h->rows;
  if (is_owner) TRY(collect(l, a, lists, width, collected, columns));
  TRY(collect(l, a, given, e->given[h->row], collected + 8 * (uint64_t)(e->first[h->row] * columns), columns));
  TRY(exchange(l, p, e, columns));
  int64_t displaced = e->displaced;
  void *distribute[] = {&a, &lead, &pairs, &displaced, &collected, &width, &columns};
  if (displaced) TRY(run(l, DISTRIBUTE, (unsigned)l->blocks, ROW_THREADS, l->update_stream, distribute));
  void *assemble[] = {&top, &places, &width, &collected, &columns};
  TRY(run(l, ASSEMBLE, (unsigned)l->blocks, ROW_THREADS, l->update_stream, assemble));
  TRY(of_blas(blas.trsm(l->update_blas, LEFT, LOWER, PLAIN, UNIT, (int)width, (int)columns, &ONE, p->top, (int)block, top,
                        (int)width)));
  if (is_owner) TRY(copy(l, l->update_stream, a + 8 * (uint64_t)p->rows, lead, top, width, width, columns));
  if (!rows) return RW_OK;
  return of_blas(blas.gemm(l->update_blas, PLAIN, PLAIN, (int)rows, (int)columns, (int)width, &MINUS_ONE, p->low, (int)rows,
                           top, (int)width, &ONE, a + 8 * (uint64_t)p->below, (int)lead));
}

static int update_range(const struct rw_lu *l, const struct panel *p, const struct exchange *e, int64_t first, int64_t end) {
  for (; first < end; first += l->chunk) TRY(update(l, p, e, first, least(l->chunk, end - first)));
  return RW_OK;
}

/* Updates all columns by a panel, those of the next panel first, and makes the next panel beside the rest. */
static int advance(struct rw_lu *l, int64_t number, int64_t panels) {
  const struct rw_lu_place *h = &l->here;
  struct panel p = panel_of(l, number), next = panel_of(l, number + 1 < panels ? number + 1 : number);
  struct exchange e;
  int has_next = number + 1 < panels, is_mine = has_next && h->column == next.number % h->columns, parity = number % 2;
  TRY(rw_cuda.event_synchronize(l->ready[parity]));
  TRY(list_rows(l, &p, &e));
  TRY(rw_cuda.to_device_async(l->lists[parity], l->host_lists[parity], 7 * sizeof(int32_t) * (size_t)h->block, l->update_stream));
  TRY(rw_cuda.stream_wait(l->update_stream, l->ready[parity], 0));
  int64_t column = columns_before(h, p.begin + p.width), first = column + (is_mine ? next.width : 0);
  TRY(update_range(l, &p, &e, column, first));
  if (is_mine) TRY(rw_cuda.event_record(l->columns_ready, l->update_stream));
  TRY(update_range(l, &p, &e, first, h->local_columns));
  TRY(rw_cuda.event_record(l->updated[parity], l->update_stream));
  if (!has_next) return RW_OK;
  if (is_mine) TRY(rw_cuda.stream_wait(l->panel_stream, l->columns_ready, 0));
  if (number) TRY(rw_cuda.stream_wait(l->panel_stream, l->updated[!parity], 0)); /* its buffer is free */
  return make_panel(l, number + 1);
}

/* ---- back substitution ---- */

/* Solves for the unknowns of a block, and takes them out of the rows above. */
static int substitute(const struct rw_lu *l, int64_t number) {
  const struct rw_lu_place *h = &l->here;
  struct panel p = panel_of(l, number);
  int64_t row = number % h->rows, column = number % h->columns, parts = h->columns;
  uint64_t rest = l->right_side + 8 * (uint64_t)p.rows, all = l->parts, unknowns = l->x + 8 * (uint64_t)p.begin;
  if (h->row == row && l->row_comm)
    TRY(of_nccl(nccl.all_gather(rest, all, FLOATS * (size_t)p.width, FLOAT32, l->row_comm, l->update_stream)));
  if (h->column != column) return RW_OK;
  if (h->row == row) {
    uint64_t from = l->row_comm ? all : rest;
    void *sum[] = {&unknowns, &from, &p.width, &parts};
    TRY(run(l, SUM, 1, ROW_THREADS, l->update_stream, sum));
    TRY(of_blas(blas.trsm(l->update_blas, LEFT, UPPER, PLAIN, NON_UNIT, (int)p.width, 1, &ONE,
                          p.a + 8 * (uint64_t)p.rows, (int)h->lead, unknowns, (int)p.width)));
  }
  if (l->update_comm)
    TRY(of_nccl(nccl.broadcast(unknowns, unknowns, FLOATS * (size_t)p.width, FLOAT32, (int)row, l->update_comm,
                               l->update_stream)));
  if (!p.rows) return RW_OK;
  return of_blas(blas.gemv(l->update_blas, PLAIN, (int)p.rows, (int)p.width, &MINUS_ONE, p.a, (int)h->lead, unknowns, 1,
                           &ONE, l->right_side, 1));
}

static int substitute_all(const struct rw_lu *l, int64_t panels) {
  const struct rw_lu_place *h = &l->here;
  int has_right_side = h->column == h->order / h->block % h->columns;
  TRY(rw_cuda.stream_synchronize(l->panel_stream)); /* the communicator of the row goes on on the other stream */
  TRY(rw_cuda.set_async(l->x, 0, sizeof(double) * (size_t)h->order, l->update_stream));
  if (has_right_side)
    TRY(copy(l, l->update_stream, l->right_side, h->lead, at(h->a + (h->local_columns - 1) * h->lead), h->lead,
             h->local_rows, 1));
  else if (h->local_rows)
    TRY(rw_cuda.set_async(l->right_side, 0, sizeof(double) * (size_t)h->local_rows, l->update_stream));
  for (int64_t number = panels - 1; number >= 0; number--) TRY(substitute(l, number));
  return RW_OK;
}

/* Factorizes and solves. The unknowns of a block end up in `x` of every GPU of its column, among zeros. Returns when the GPU is done. */
int rw_lu_solve(struct rw_lu *l) {
  int64_t panels = (l->here.order + l->here.block - 1) / l->here.block;
  TRY(rw_cuda.use(l->context));
  for (int64_t row = 0; row < l->here.order; row++) l->moved[row] = (int32_t)row;
  TRY(make_panel(l, 0));
  for (int64_t number = 0; number < panels; number++) TRY(advance(l, number, panels));
  TRY(substitute_all(l, panels));
  return rw_cuda.stream_synchronize(l->update_stream);
}
