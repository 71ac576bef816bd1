/* The parts of a simulated training step: `train_load.c` is its compute phase, `train.c` the rest. */
#ifndef RAILWRIGHT_TRAIN_H
#define RAILWRIGHT_TRAIN_H

#include "cuda.h"
#include "nccl_errors.h"

enum rw_load_kind { LOAD_NONE, LOAD_GEMM, LOAD_BURN };

/* A layer: a matrix of weights, whose gradient begins at element `first` of the gradients. */
struct rw_layer {
  int64_t first;
  int64_t rows, columns;
};

/* The layout is also in `native/train_load.py`. */
struct rw_load {
  int kind;
  int layer_count; /* in the order of the backward pass */
  const struct rw_layer *layers;
  int64_t repeats; /* of each matrix product, or of the burn kernel's loop */
  int64_t tokens;  /* the third dimension of every product */
  int64_t element_bytes;
  void *cublas;
  int type; /* cudaDataType_t */
  unsigned grid, block;
  void *burn;
  uint64_t weights, input, output_gradient, output; /* each as large as the largest layer needs */
};

int rw_load_forward(const struct rw_load *load, void *stream);
/* The backward pass of one layer, which writes the layer's gradient. */
int rw_load_backward(const struct rw_load *load, int layer, uint64_t gradients, void *stream);

/* A range of gradient elements that one all-reduce sums, complete after the backward pass of a layer. */
struct rw_bucket {
  int64_t first, count;
  int64_t ready_after;
};

/* The layout is also in `native/train.py`. */
struct rw_train {
  const struct rw_load *load;
  const struct rw_bucket *buckets;
  int bucket_count;
  int overlap;
  uint64_t gradients;
  int64_t count, element_bytes;
  int type; /* ncclDataType_t */
  int rank, ranks;
  intptr_t mpi_comm;
  void *nccl_comm;
  int (*all_reduce)(const void *, void *, size_t, int, int, void *, void *);
  void *context;
  void *compute, *communication;   /* streams */
  void *ready, *done, *begin, *end; /* events */
};

#endif
