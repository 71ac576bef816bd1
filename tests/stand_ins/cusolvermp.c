/* Stands in for libcusolverMp.so.0 (0.8.0): the stand-in for ScaLAPACK behind cuSOLVERMp's functions. Memory of the
   stand-in libcuda is the host's. Arguments are checked as their documents say; what must be pinned is refused otherwise.
   Faults: those of scalapack.c; STANDIN_CUSOLVERMP_VERSION; STANDIN_CUSOLVERMP_MODE, the math mode that it says it has;
   STANDIN_CUSOLVERMP_REFUSES=1, no grid can be made. */
#include "scalapack.c"

#include <stdint.h>

enum { SUCCESS = 0, INVALID = 3, FAILED = 6, DOUBLE = 1, WORK_BYTES = 1 << 16, HOST_BYTES = 64 };

struct matrix {
  int64_t order, columns, block, lead;
};

static int math_mode = -1, made;

static int setting(const char *name, int otherwise) {
  const char *text = getenv(name);
  return text && *text ? atoi(text) : otherwise;
}

int cusolverMpCreate(void **handle, int device, void *stream) {
  made++;
  return *handle = &math_mode, stream && device >= 0 ? SUCCESS : INVALID;
}

int cusolverMpDestroy(void *handle) { return handle == &math_mode && !--made ? SUCCESS : INVALID; }

int cusolverMpGetVersion(void *handle, int *version) {
  return *version = setting("STANDIN_CUSOLVERMP_VERSION", 800), handle ? SUCCESS : INVALID;
}

int cusolverMpSetMathMode(void *handle, int mode) { return math_mode = mode, handle ? SUCCESS : INVALID; }

int cusolverMpGetMathMode(void *handle, int *mode) {
  return *mode = setting("STANDIN_CUSOLVERMP_MODE", math_mode), handle ? SUCCESS : INVALID;
}

int cusolverMpCreateDeviceGrid(void *handle, void **grid, void *comm, int32_t p, int32_t q, int mapping) {
  int context;
  if (!handle || !comm || mapping != 1) return INVALID;
  if (setting("STANDIN_CUSOLVERMP_REFUSES", 0)) return FAILED;
  blacs_gridinit_(&context, "R", &p, &q);
  return *grid = &made, SUCCESS;
}

int cusolverMpDestroyGrid(void *grid) { return grid ? SUCCESS : INVALID; }

int cusolverMpCreateMatrixDesc(struct matrix **matrix, void *grid, int type, int64_t rows_, int64_t columns_,
                               int64_t block_rows, int64_t block_columns, uint32_t row, uint32_t column, int64_t lead) {
  if (!grid || type != DOUBLE || block_rows != block_columns || row || column || lead < 1) return INVALID;
  *matrix = malloc(sizeof **matrix);
  **matrix = (struct matrix){rows_, columns_, block_rows, lead};
  return SUCCESS;
}

int cusolverMpDestroyMatrixDesc(struct matrix *matrix) { return free(matrix), SUCCESS; }

static int sizes(size_t *device, size_t *host) { return *device = WORK_BYTES, *host = HOST_BYTES, SUCCESS; }

int cusolverMpGetrf_bufferSize(void *handle, int64_t m, int64_t n, void *a, int64_t ia, int64_t ja,
                               struct matrix *matrix, int64_t *pivots, int type, size_t *device, size_t *host) {
  if (!handle || m != n || !a || ia != 1 || ja != 1 || matrix->order != n || !pivots || type != DOUBLE) return INVALID;
  return sizes(device, host);
}

int cusolverMpGetrs_bufferSize(void *handle, int transposed, int64_t n, int64_t sides, const void *a, int64_t ia,
                               int64_t ja, struct matrix *matrix, const int64_t *pivots, void *b, int64_t ib, int64_t jb,
                               struct matrix *of_b, int type, size_t *device, size_t *host) {
  if (!handle || transposed || sides != 1 || !a || !b || ia * ja * ib * jb != 1 || !pivots) return INVALID;
  if (matrix->order != n || of_b->order != n || of_b->columns != 1 || type != DOUBLE) return INVALID;
  return sizes(device, host);
}

static void describe(const struct matrix *matrix, int *description) {
  int values[] = {1, 7, (int)matrix->order, (int)matrix->columns, (int)matrix->block, (int)matrix->block, 0, 0,
                  (int)matrix->lead};
  memcpy(description, values, sizeof values);
}

static int *ours; /* pivots of the stand-in for ScaLAPACK are ints, and only it reads them */

int cusolverMpGetrf(void *handle, int64_t m, int64_t n, double *a, int64_t ia, int64_t ja, struct matrix *matrix,
                    int64_t *pivots, int type, void *work, size_t device, void *host_work, size_t host, int *info) {
  int order = (int)n, one = 1, description[9];
  if (cusolverMpGetrf_bufferSize(handle, m, n, a, ia, ja, matrix, pivots, type, &(size_t){0}, &(size_t){0})) return INVALID;
  if (!work || device < WORK_BYTES || !host_work || host < HOST_BYTES || !info || math_mode != 1) return INVALID;
  memset(work, 0, device);
  describe(matrix, description);
  ours = realloc(ours, sizeof *ours * (size_t)(n + matrix->block));
  pdgetrf_(&order, &order, a, &one, &one, description, ours, info);
  return SUCCESS;
}

int cusolverMpGetrs(void *handle, int transposed, int64_t n, int64_t sides, double *a, int64_t ia, int64_t ja,
                    struct matrix *matrix, const int64_t *pivots, double *b, int64_t ib, int64_t jb, struct matrix *of_b,
                    int type, void *work, size_t device, void *host_work, size_t host, int *info) {
  int order = (int)n, one = 1, description[9], description_b[9];
  if (cusolverMpGetrs_bufferSize(handle, transposed, n, sides, a, ia, ja, matrix, pivots, b, ib, jb, of_b, type,
                                 &(size_t){0}, &(size_t){0}))
    return INVALID;
  if (!work || device < WORK_BYTES || !host_work || host < HOST_BYTES || !info) return INVALID;
  describe(matrix, description);
  describe(of_b, description_b);
  pdgetrs_("N", &order, &one, a, &one, &one, description, ours, b, &one, &one, description_b, info);
  return SUCCESS;
}
