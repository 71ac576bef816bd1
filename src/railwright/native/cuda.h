/* CUDA's driver functions, bound at run time: no header and no library of NVIDIA's is needed to build.
 *
 * Handles are void *, device pointers uint64_t and results int, as they are in the driver's ABI. NVIDIA's
 * "CUDA Driver API" documents each function under the name that cuda.c binds it to. */
#ifndef RAILWRIGHT_CUDA_H
#define RAILWRIGHT_CUDA_H

#include "railwright.h"

enum { RW_NO_CUDA = -1010 }; /* no libcuda.so.1: the driver is missing, or the container has no access to it */

enum { /* results of the driver that count as success here */
  CUDA_OK = 0,
  CUDA_NOT_READY = 600,
  CUDA_PEER_ALREADY_ENABLED = 704,
};

enum { /* CUdevice_attribute */
  CUDA_MULTIPROCESSORS = 16,
  CUDA_COPY_ENGINES = 40,
  CUDA_CAPABILITY_MAJOR = 75,
  CUDA_CAPABILITY_MINOR = 76,
};

enum { CUDA_STREAM_NON_BLOCKING = 1, CUDA_EVENT_DISABLE_TIMING = 2, CUDA_HOST_PORTABLE = 1, CUDA_HOST_MAPPED = 2 };

struct rw_cuda {
  int (*init)(unsigned);
  int (*driver_version)(int *);
  int (*error_text)(int, const char **);
  int (*device_count)(int *);
  int (*device_by_address)(int *, const char *);
  int (*device_address)(char *, int, int);
  int (*device_name)(char *, int, int);
  int (*attribute)(int *, int, int);
  int (*retain)(void **, int);
  int (*release)(int);
  int (*use)(void *);
  int (*current)(void **);
  int (*synchronize)(void);
  int (*can_access)(int *, int, int);
  int (*enable_peer)(void *, unsigned);
  int (*alloc)(uint64_t *, size_t);
  int (*free)(uint64_t);
  int (*memory)(size_t *, size_t *);
  int (*host_alloc)(void **, size_t, unsigned);
  int (*host_free)(void *);
  int (*host_register)(void *, size_t, unsigned);
  int (*host_unregister)(void *);
  int (*host_device_pointer)(uint64_t *, void *, unsigned);
  int (*copy)(uint64_t, uint64_t, size_t);
  int (*copy_async)(uint64_t, uint64_t, size_t, void *);
  int (*copy_peer_async)(uint64_t, void *, uint64_t, void *, size_t, void *);
  int (*to_device_async)(uint64_t, const void *, size_t, void *);
  int (*to_host_async)(void *, uint64_t, size_t, void *);
  int (*set_async)(uint64_t, unsigned char, size_t, void *);
  int (*stream_create)(void **, unsigned);
  int (*stream_destroy)(void *);
  int (*stream_synchronize)(void *);
  int (*stream_query)(void *);
  int (*stream_wait)(void *, void *, unsigned);
  int (*event_create)(void **, unsigned);
  int (*event_destroy)(void *);
  int (*event_record)(void *, void *);
  int (*event_synchronize)(void *);
  int (*event_query)(void *);
  int (*elapsed_ms)(float *, void *, void *);
  int (*module_load)(void **, const void *, unsigned, int *, void **);
  int (*module_unload)(void *);
  int (*module_function)(void **, void *, const char *);
  int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
  int (*begin_capture)(void *, int);
  int (*end_capture)(void *, void **);
  int (*graph_instantiate)(void **, void *, unsigned long long);
  int (*graph_launch)(void *, void *);
  int (*graph_exec_destroy)(void *);
  int (*graph_destroy)(void *);
};

/* All members are NULL until rw_cuda_bind has returned RW_OK. */
extern struct rw_cuda rw_cuda;

/* Loads the driver's library and initialises it, once per process; any thread may call this again.
 * Returns RW_OK, RW_NO_CUDA, RW_MISSING_SYMBOL, or the driver's own positive error (100: no device is visible). */
int rw_cuda_bind(void);

#endif
