/* What verbs.c, which opens ports and queue pairs, and rdma.c, which times them, share. */
#ifndef RAILWRIGHT_RDMA_H
#define RAILWRIGHT_RDMA_H

#include "railwright.h"
#include "verbs.h"

enum { RW_SHORT_MESSAGE = -1010, RW_STRAY_COMPLETION = -1011, RW_NO_DEVICE = -1012, RW_NO_WAY = -1013 };

/* The call or completion that failed last in this thread. The layout is also in `native/verbs.py`. */
struct rw_failure {
  const char *call;
  int lane; /* the queue pair of a failed completion; -1 for a call */
  uint32_t vendor;
};

extern __thread struct rw_failure rw_failure;

/* Records a failed call, and returns its negative errno. */
int rw_failed(const char *call, int error);

#endif
