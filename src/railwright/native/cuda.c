/* GPUs through the CUDA driver: contexts, memory, streams, and the kernels, which are shipped as PTX text.
 *
 * The loader finds libcuda at run time, so LD_LIBRARY_PATH can select another one. It is never linked. */
#include "cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

struct rw_cuda rw_cuda;

#define AT(field) offsetof(struct rw_cuda, field)

static const struct {
  const char *name;
  size_t at;
} FUNCTIONS[] = {
    {"cuInit", AT(init)},
    {"cuDriverGetVersion", AT(driver_version)},
    {"cuGetErrorString", AT(error_text)},
    {"cuDeviceGetCount", AT(device_count)},
    {"cuDeviceGetByPCIBusId", AT(device_by_address)},
    {"cuDeviceGetPCIBusId", AT(device_address)},
    {"cuDeviceGetName", AT(device_name)},
    {"cuDeviceGetAttribute", AT(attribute)},
    {"cuDevicePrimaryCtxRetain", AT(retain)},
    {"cuDevicePrimaryCtxRelease_v2", AT(release)},
    {"cuCtxSetCurrent", AT(use)},
    {"cuCtxGetCurrent", AT(current)},
    {"cuCtxSynchronize", AT(synchronize)},
    {"cuDeviceCanAccessPeer", AT(can_access)},
    {"cuCtxEnablePeerAccess", AT(enable_peer)},
    {"cuMemAlloc_v2", AT(alloc)},
    {"cuMemFree_v2", AT(free)},
    {"cuMemGetInfo_v2", AT(memory)},
    {"cuMemHostAlloc", AT(host_alloc)},
    {"cuMemFreeHost", AT(host_free)},
    {"cuMemHostRegister_v2", AT(host_register)},
    {"cuMemHostUnregister", AT(host_unregister)},
    {"cuMemHostGetDevicePointer_v2", AT(host_device_pointer)},
    {"cuMemcpy", AT(copy)},
    {"cuMemcpyAsync", AT(copy_async)},
    {"cuMemcpyPeerAsync", AT(copy_peer_async)},
    {"cuMemcpyHtoDAsync_v2", AT(to_device_async)},
    {"cuMemcpyDtoHAsync_v2", AT(to_host_async)},
    {"cuMemsetD8Async", AT(set_async)},
    {"cuStreamCreate", AT(stream_create)},
    {"cuStreamDestroy_v2", AT(stream_destroy)},
    {"cuStreamSynchronize", AT(stream_synchronize)},
    {"cuStreamQuery", AT(stream_query)},
    {"cuStreamWaitEvent", AT(stream_wait)},
    {"cuEventCreate", AT(event_create)},
    {"cuEventDestroy_v2", AT(event_destroy)},
    {"cuEventRecord", AT(event_record)},
    {"cuEventSynchronize", AT(event_synchronize)},
    {"cuEventQuery", AT(event_query)},
    {"cuEventElapsedTime", AT(elapsed_ms)},
    {"cuModuleLoadDataEx", AT(module_load)},
    {"cuModuleUnload", AT(module_unload)},
    {"cuModuleGetFunction", AT(module_function)},
    {"cuLaunchKernel", AT(launch)},
    {"cuStreamBeginCapture_v2", AT(begin_capture)},
    {"cuStreamEndCapture", AT(end_capture)},
    {"cuGraphInstantiateWithFlags", AT(graph_instantiate)},
    {"cuGraphLaunch", AT(graph_launch)},
    {"cuGraphExecDestroy", AT(graph_exec_destroy)},
    {"cuGraphDestroy", AT(graph_destroy)},
};

enum { FUNCTION_COUNT = sizeof FUNCTIONS / sizeof FUNCTIONS[0] };
_Static_assert(sizeof(struct rw_cuda) == FUNCTION_COUNT * sizeof(void *), "every function must have its name");

static int bound = RW_NO_CUDA;
static const char *missing = "";

static void bind_once(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (!library) return;
  for (int i = 0; i < FUNCTION_COUNT; i++) {
    void *symbol = dlsym(library, FUNCTIONS[i].name);
    if (!symbol) {
      missing = FUNCTIONS[i].name;
      bound = RW_MISSING_SYMBOL;
      return;
    }
    memcpy((char *)&rw_cuda + FUNCTIONS[i].at, &symbol, sizeof symbol);
  }
  bound = rw_cuda.init(0);
}

int rw_cuda_bind(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, bind_once);
  return bound;
}

/* Returns the function that the driver lacks, after RW_MISSING_SYMBOL. */
const char *rw_cuda_missing(void) { return missing; }

/* Returns the driver's text for one of its errors, or NULL. */
const char *rw_cuda_error_text(int code) {
  const char *text = NULL;
  return rw_cuda.error_text && rw_cuda.error_text(code, &text) == CUDA_OK ? text : NULL;
}

int rw_cuda_driver_version(int *version) { return rw_cuda.driver_version(version); }

int rw_cuda_device_count(int *count) { return rw_cuda.device_count(count); }

int rw_cuda_device_address(int ordinal, char *text, int bytes) { return rw_cuda.device_address(text, bytes, ordinal); }

/* The layout is also in `native/cuda.py`. */
struct rw_cuda_device {
  void *context;
  int ordinal, multiprocessors, copy_engines, capability_major, capability_minor;
  char name[100];
};

/* Opens the device at a PCI address and makes its primary context current. NCCL, UCX and every runtime program share
 * it. */
int rw_cuda_open(const char *address, struct rw_cuda_device *d) {
  int status = rw_cuda.device_by_address(&d->ordinal, address);
  if (!status) status = rw_cuda.device_name(d->name, sizeof d->name, d->ordinal);
  if (!status) status = rw_cuda.attribute(&d->multiprocessors, CUDA_MULTIPROCESSORS, d->ordinal);
  if (!status) status = rw_cuda.attribute(&d->copy_engines, CUDA_COPY_ENGINES, d->ordinal);
  if (!status) status = rw_cuda.attribute(&d->capability_major, CUDA_CAPABILITY_MAJOR, d->ordinal);
  if (!status) status = rw_cuda.attribute(&d->capability_minor, CUDA_CAPABILITY_MINOR, d->ordinal);
  if (!status) status = rw_cuda.retain(&d->context, d->ordinal);
  return status ? status : rw_cuda.use(d->context);
}

int rw_cuda_close(int ordinal) { return rw_cuda.release(ordinal); }

int rw_cuda_use(void *context) { return rw_cuda.use(context); }

int rw_cuda_synchronize(void *context) {
  int status = rw_cuda.use(context);
  return status ? status : rw_cuda.synchronize();
}

int rw_cuda_can_access(int ordinal, int other, int *can) { return rw_cuda.can_access(can, ordinal, other); }

/* Lets `context` access the other context's memory; returns RW_OK also if it already has access. */
int rw_cuda_enable_peer(void *context, void *other) {
  int status = rw_cuda.use(context);
  if (!status) status = rw_cuda.enable_peer(other, 0);
  return status == CUDA_PEER_ALREADY_ENABLED ? RW_OK : status;
}

int rw_cuda_alloc(void *context, size_t bytes, uint64_t *address) {
  int status = rw_cuda.use(context);
  return status ? status : rw_cuda.alloc(address, bytes);
}

int rw_cuda_free(void *context, uint64_t address) {
  int status = rw_cuda.use(context);
  return status ? status : rw_cuda.free(address);
}

int rw_cuda_memory(void *context, size_t *available, size_t *total) {
  int status = rw_cuda.use(context);
  return status ? status : rw_cuda.memory(available, total);
}

/* Pins existing memory for every context; `mapped` gets its address on GPUs. */
int rw_cuda_register(void *context, void *memory, size_t bytes, uint64_t *mapped) {
  int status = rw_cuda.use(context);
  if (!status) status = rw_cuda.host_register(memory, bytes, CUDA_HOST_PORTABLE | CUDA_HOST_MAPPED);
  if (status) return status;
  status = rw_cuda.host_device_pointer(mapped, memory, 0);
  if (status) rw_cuda.host_unregister(memory);
  return status;
}

int rw_cuda_unregister(void *context, void *memory) {
  int status = rw_cuda.use(context);
  return status ? status : rw_cuda.host_unregister(memory);
}

int rw_cuda_stream_open(void *context, void **stream) {
  int status = rw_cuda.use(context);
  return status ? status : rw_cuda.stream_create(stream, CUDA_STREAM_NON_BLOCKING);
}

int rw_cuda_stream_close(void *context, void *stream) {
  int status = rw_cuda.use(context);
  return status ? status : rw_cuda.stream_destroy(stream);
}

/* An event that orders streams and has no time. */
int rw_cuda_event_open(void *context, void **event) {
  int status = rw_cuda.use(context);
  return status ? status : rw_cuda.event_create(event, CUDA_EVENT_DISABLE_TIMING);
}

int rw_cuda_event_close(void *event) { return rw_cuda.event_destroy(event); }

int rw_cuda_stream_synchronize(void *stream) { return rw_cuda.stream_synchronize(stream); }

/* Copies between any two addresses, known to the driver or in plain host memory, and waits. */
int rw_cuda_copy(void *context, uint64_t to, uint64_t from, size_t bytes) {
  int status = rw_cuda.use(context);
  if (!status) status = rw_cuda.copy(to, from, bytes);
  return status ? status : rw_cuda.synchronize();
}

/* Sets every byte and waits. */
int rw_cuda_set(void *context, uint64_t address, int byte, size_t bytes) {
  int status = rw_cuda.use(context);
  if (!status) status = rw_cuda.set_async(address, (unsigned char)byte, bytes, NULL);
  return status ? status : rw_cuda.synchronize();
}

enum { JIT_ERROR_LOG_BUFFER = 5, JIT_ERROR_LOG_BYTES = 6 }; /* CUjit_option */

/* Compiles NUL-terminated PTX text for the context's device; `log` gets the compiler's messages on failure. */
int rw_cuda_load(void *context, const char *ptx, char *log, size_t log_bytes, void **module) {
  int options[] = {JIT_ERROR_LOG_BUFFER, JIT_ERROR_LOG_BYTES};
  void *values[] = {log, (void *)(uintptr_t)log_bytes};
  int status = rw_cuda.use(context);
  return status ? status : rw_cuda.module_load(module, ptx, 2, options, values);
}

int rw_cuda_unload(void *context, void *module) {
  int status = rw_cuda.use(context);
  return status ? status : rw_cuda.module_unload(module);
}

int rw_cuda_function(void *module, const char *name, void **function) {
  return rw_cuda.module_function(function, module, name);
}

/* `arguments` point to the values; a NULL stream is the context's default stream. */
int rw_cuda_launch(void *context, void *function, unsigned grid, unsigned block, void *stream, void **arguments) {
  int status = rw_cuda.use(context);
  return status ? status : rw_cuda.launch(function, grid, 1, 1, block, 1, 1, 0, stream, arguments, NULL);
}

/* Exports a range of whole pages of GPU memory as the descriptor of a DMA buffer, which the caller closes. Drivers
 * before CUDA 11.7 lack the function. */
int rw_cuda_export(void *context, uint64_t address, size_t bytes, int *descriptor) {
  enum { DMA_BUF_FD = 1 }; /* CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD */
  int (*handle_of)(void *handle, uint64_t address, size_t bytes, int kind, unsigned long long flags);
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  void *symbol = library ? dlsym(library, "cuMemGetHandleForAddressRange") : NULL;
  if (library) dlclose(library);
  if (!symbol) return RW_MISSING_SYMBOL;
  memcpy(&handle_of, &symbol, sizeof symbol);
  int status = rw_cuda.use(context);
  return status ? status : handle_of(descriptor, address, bytes, DMA_BUF_FD, 0);
}
