/* The compute phase of a training step without a framework: the matrix products of a model's layers by cuBLAS, or a
 * kernel that only multiplies and adds if there is no cuBLAS. No header of cuBLAS is needed. */
#include "train.h"

#include <dlfcn.h>
#include <string.h>

enum { NOT_TRANSPOSED = 0, TRANSPOSED = 1, COMPUTE_32F = 68, DEFAULT_ALGORITHM = -1 };

static struct {
  int (*create)(void **);
  int (*destroy)(void *);
  int (*version)(void *, int *);
  int (*set_stream)(void *, void *);
  int (*gemm)(void *, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int,
              const void *, void *, int, int, int, int);
} cublas;

static int checked(int status) { return status ? RW_CUBLAS_ERROR - status : RW_OK; }

/* Opens cuBLAS from a loaded library, for the current context. */
int rw_cublas_open(void *library, void **handle, int *version) {
  cublas.create = (int (*)(void **))dlsym(library, "cublasCreate_v2");
  cublas.destroy = (int (*)(void *))dlsym(library, "cublasDestroy_v2");
  cublas.version = (int (*)(void *, int *))dlsym(library, "cublasGetVersion_v2");
  cublas.set_stream = (int (*)(void *, void *))dlsym(library, "cublasSetStream_v2");
  void *gemm = dlsym(library, "cublasGemmEx");
  memcpy(&cublas.gemm, &gemm, sizeof gemm);
  if (!cublas.create || !cublas.destroy || !cublas.version || !cublas.set_stream || !gemm) return RW_MISSING_SYMBOL;
  int status = checked(cublas.create(handle));
  return status ? status : checked(cublas.version(*handle, version));
}

int rw_cublas_close(void *handle) { return checked(cublas.destroy(handle)); }

int rw_cublas_stream(void *handle, void *stream) { return checked(cublas.set_stream(handle, stream)); }

/* C (m x n) = op(A) op(B) with inner dimension k, all column-major and without gaps. */
static int multiply(const struct rw_load *l, int a_is, int b_is, int64_t m, int64_t n, int64_t k, uint64_t a,
                    uint64_t b, uint64_t c) {
  static const float one = 1, zero = 0;
  int lda = (int)(a_is == TRANSPOSED ? k : m), ldb = (int)(b_is == TRANSPOSED ? n : k);
  int status = 0;
  for (int64_t i = 0; i < l->repeats && !status; i++)
    status = cublas.gemm(l->cublas, a_is, b_is, (int)m, (int)n, (int)k, &one, (const void *)(uintptr_t)a, l->type, lda,
                         (const void *)(uintptr_t)b, l->type, ldb, &zero, (void *)(uintptr_t)c, l->type, (int)m,
                         COMPUTE_32F, DEFAULT_ALGORITHM);
  return checked(status);
}

static int burn(const struct rw_load *l, int64_t loops, void *stream) {
  uint64_t out = l->output;
  float a = 0.999f, b = 0.001f; /* the result stays finite and is never -1, so the kernel never stores it */
  void *arguments[] = {&out, &loops, &a, &b};
  return rw_cuda.launch(l->burn, l->grid, 1, 1, l->block, 1, 1, 0, stream, arguments, NULL);
}

int rw_load_forward(const struct rw_load *l, void *stream) {
  int status = RW_OK;
  if (l->kind == LOAD_NONE) return status;
  for (int i = l->layer_count - 1; i >= 0 && !status; i--) {
    const struct rw_layer *layer = &l->layers[i];
    status = l->kind == LOAD_BURN ? burn(l, l->repeats, stream)
                                  : multiply(l, NOT_TRANSPOSED, NOT_TRANSPOSED, layer->rows, l->tokens, layer->columns,
                                             l->weights, l->input, l->output);
  }
  return status;
}

int rw_load_backward(const struct rw_load *l, int number, uint64_t gradients, void *stream) {
  const struct rw_layer *layer = &l->layers[number];
  if (l->kind == LOAD_NONE) return RW_OK;
  if (l->kind == LOAD_BURN) return burn(l, 2 * l->repeats, stream); /* as the two products of a backward pass */
  int status = multiply(l, TRANSPOSED, NOT_TRANSPOSED, layer->columns, l->tokens, layer->rows, l->weights,
                        l->output_gradient, l->output);
  if (status) return status;
  uint64_t gradient = gradients + (uint64_t)(layer->first * l->element_bytes);
  return multiply(l, NOT_TRANSPOSED, TRANSPOSED, layer->rows, layer->columns, l->tokens, l->output_gradient, l->input,
                  gradient);
}

/* Writes the seconds of each of `samples` forward and backward passes by the GPU's clock, after an untimed one. */
int rw_load_time(const struct rw_load *l, uint64_t gradients, void *stream, int samples, double *seconds) {
  void *begin = NULL, *end = NULL;
  int status = rw_cuda.event_create(&begin, 0);
  if (!status) status = rw_cuda.event_create(&end, 0);
  for (int k = -1; k < samples && !status; k++) {
    float milliseconds = 0;
    status = rw_cuda.event_record(begin, stream);
    if (!status) status = rw_load_forward(l, stream);
    for (int i = 0; i < l->layer_count && !status; i++) status = rw_load_backward(l, i, gradients, stream);
    if (!status) status = rw_cuda.event_record(end, stream);
    if (!status) status = rw_cuda.event_synchronize(end);
    if (!status) status = rw_cuda.elapsed_ms(&milliseconds, begin, end);
    if (k >= 0) seconds[k] = 1e-3 * milliseconds;
  }
  if (status) rw_cuda.stream_synchronize(stream); /* enqueued work may still use the events */
  if (begin) rw_cuda.event_destroy(begin);
  if (end) rw_cuda.event_destroy(end);
  return status;
}

static uint64_t scrambled(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ z >> 31;
}

/* Writes numbers from -1/16 to 15/256 in steps of 1/256, which each of the types holds exactly. `type` is
 * cudaDataType_t: 0 float, 2 half, 14 bfloat16. `bytes` is a multiple of the element's size. */
int rw_load_numbers(void *to, int64_t bytes, int type, uint64_t seed) {
  int wide = type == 0;
  for (int64_t i = 0, count = bytes / (wide ? 4 : 2); i < count; i++) {
    int step = (int)(scrambled((seed + 1) * 0x9e3779b97f4a7c15ULL + (uint64_t)i * 0xd1342543de82ef95ULL) & 31) - 16;
    float value = (float)step / 256;
    if (wide) {
      ((float *)to)[i] = value;
      continue;
    }
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000), brain = (uint16_t)(bits >> 16);
    /* A half's exponent is 112 less than a float's, and its 10 bits of fraction suffice for 5 significant bits. */
    uint16_t half = (uint16_t)(sign | ((bits & 0x7fffffff) ? ((bits & 0x7fffffff) - (112u << 23)) >> 13 : 0));
    ((uint16_t *)to)[i] = type == 2 ? half : brain;
  }
  return RW_OK;
}
