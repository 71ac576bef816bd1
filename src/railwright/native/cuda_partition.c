/* Two streams on parts of a GPU: a few multiprocessors for many short kernels, which would else wait for each other's
 * place among the long ones of a matrix product, and all others (CUDA 12.4's green contexts). */
#include "cuda.h"

#include <dlfcn.h>
#include <string.h>

enum { RESOURCE_BYTES = 256, TYPE_SM = 1, SM_COUNT_AT = 96, DEFAULT_STREAM = 1 }; /* CUdevResource has 144 bytes */

static struct {
  int (*resource)(int, void *, int);
  int (*split)(void *, unsigned *, const void *, void *, unsigned, unsigned);
  int (*describe)(void **, void *, unsigned);
  int (*create)(void **, void *, int, unsigned);
  int (*destroy)(void *);
  int (*stream)(void **, void *, unsigned, int);
} green;

static int bind(void) {
  const char *names[] = {"cuDeviceGetDevResource", "cuDevSmResourceSplitByCount", "cuDevResourceGenerateDesc",
                         "cuGreenCtxCreate", "cuGreenCtxDestroy", "cuGreenCtxStreamCreate"};
  void *symbols[6];
  for (int i = 0; i < 6; i++)
    if (!(symbols[i] = dlsym(RTLD_DEFAULT, names[i]))) return RW_MISSING_SYMBOL;
  memcpy(&green, symbols, sizeof symbols);
  return RW_OK;
}

/* The layout is also in `native/cuda_partition.py`. */
struct rw_partition {
  void *contexts[2], *streams[2];
  unsigned multiprocessors[2];
};

static unsigned count(const char *resource) {
  unsigned multiprocessors;
  memcpy(&multiprocessors, resource + SM_COUNT_AT, sizeof multiprocessors);
  return multiprocessors;
}

int rw_partition_close(struct rw_partition *p) {
  for (int i = 0; i < 2; i++) {
    if (p->streams[i]) rw_cuda.stream_destroy(p->streams[i]);
    if (p->contexts[i]) green.destroy(p->contexts[i]);
  }
  memset(p, 0, sizeof *p);
  return RW_OK;
}

/* Makes a stream on about `few` multiprocessors, which the driver rounds up, and one on all others. */
int rw_partition_open(void *context, int ordinal, unsigned few, struct rw_partition *p) {
  char all[RESOURCE_BYTES] = {0}, parts[2][RESOURCE_BYTES] = {{0}, {0}};
  unsigned groups = 1;
  memset(p, 0, sizeof *p);
  int status = bind();
  if (!status) status = rw_cuda.use(context);
  if (!status) status = green.resource(ordinal, all, TYPE_SM);
  if (!status) status = green.split(parts[0], &groups, all, parts[1], 0, few);
  for (int i = 0; i < 2 && !status; i++) {
    void *description = NULL;
    p->multiprocessors[i] = count(parts[i]);
    status = green.describe(&description, parts[i], 1);
    if (!status) status = green.create(&p->contexts[i], description, ordinal, DEFAULT_STREAM);
    if (!status) status = green.stream(&p->streams[i], p->contexts[i], CUDA_STREAM_NON_BLOCKING, 0);
  }
  if (status) rw_partition_close(p);
  return status;
}
