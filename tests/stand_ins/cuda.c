/* Stands in for libcuda.so.1: GPUs made of host memory and threads.
 *
 * STANDIN_GPUS (2) devices at the PCI addresses of STANDIN_GPU_ADDRESSES. A stream is a thread that does what was put
 * on it in order, so copies and kernels run beside the host as on a GPU, and a spin kernel really holds its stream back.
 * Kernels are found by name and done in C. Memory knows its bounds: a copy beyond them fails with error 1.
 *
 * Faults: STANDIN_CUDA_INIT=N cuInit fails with N; STANDIN_CUDA_CORRUPT=1 every copy of more than 8 bytes by a copy
 * engine flips a bit; STANDIN_CUDA_COPY_US=M,N every such copy by the first GPU takes M us more, by the second N;
 * STANDIN_CUDA_NO_PEER=1 no GPU reaches another; STANDIN_CUDA_NO_ENABLE=1 cuCtxEnablePeerAccess fails;
 * STANDIN_CUDA_NO_MEMORY=1 cuMemAlloc fails; STANDIN_CUDA_NO_PIN=1 cuMemHostRegister fails; STANDIN_CUDA_NO_DMABUF=1
 * memory cannot be exported; STANDIN_CUDA_BAD_PTX=1 the compiler refuses the kernels. */
#include "cuda_device.h"

#include <unistd.h>

/* ---- the driver's functions: what each does is in NVIDIA's "CUDA Driver API" ---- */

int cuInit(unsigned flags) {
  int failure = fault("STANDIN_CUDA_INIT");
  if (flags || failure) return failure ? failure : INVALID;
  pthread_mutex_lock(&lock);
  if (!ready) {
    const char *text = getenv("STANDIN_GPUS"), *addresses = getenv("STANDIN_GPU_ADDRESSES");
    device_count = text ? atoi(text) : 2;
    if (device_count > MOST_DEVICES) device_count = MOST_DEVICES;
    for (int i = 0; i < device_count; i++) {
      struct device *d = &devices[i];
      d->ordinal = i;
      snprintf(d->address, sizeof d->address, "0000:00:%02x.0", i + 6);
      if (addresses && *addresses) {
        size_t length = strcspn(addresses, ",");
        snprintf(d->address, sizeof d->address, "%.*s", (int)length, addresses);
        addresses += length + (addresses[length] == ',');
      }
    }
    ready = 1;
  }
  pthread_mutex_unlock(&lock);
  return device_count ? OK : NO_DEVICE;
}

int cuDriverGetVersion(int *version) {
  *version = 13000;
  return OK;
}

int cuGetErrorString(int code, const char **text) {
  static const struct {
    int code;
    const char *text;
  } TEXTS[] = {{OK, "no error"}, {INVALID, "invalid argument"}, {NO_MEMORY, "out of memory"},
               {NO_DEVICE, "no CUDA-capable device is detected"}, {BAD_DEVICE, "invalid device ordinal"},
               {BAD_CONTEXT, "invalid device context"}, {BAD_PTX, "a PTX JIT compilation failed"},
               {BAD_HANDLE, "invalid resource handle"}, {NOT_FOUND, "named symbol not found"},
               {NOT_READY, "device not ready"}, {PEER_ALREADY, "peer access is already enabled"},
               {803, "system has unsupported display driver / cuda driver combination"}};
  for (size_t i = 0; i < sizeof TEXTS / sizeof TEXTS[0]; i++)
    if (TEXTS[i].code == code) return *text = TEXTS[i].text, OK;
  return *text = NULL, INVALID;
}

int cuDeviceGetCount(int *count) { return *count = device_count, OK; }

int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, ordinal < device_count ? OK : BAD_DEVICE; }

int cuDeviceGetByPCIBusId(int *device, const char *address) {
  for (int i = 0; i < device_count; i++)
    if (!strcmp(devices[i].address, address)) return *device = i, OK;
  return BAD_DEVICE;
}

int cuDeviceGetPCIBusId(char *text, int bytes, int device) {
  return snprintf(text, (size_t)bytes, "%s", devices[device].address), OK;
}

int cuDeviceGetName(char *name, int bytes, int device) {
  return snprintf(name, (size_t)bytes, "Stand-in GPU %d", device), OK;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
  (void)device;
  switch (attribute) {
    case 16: return *value = 4, OK;  /* multiprocessors */
    case 40: return *value = 3, OK;  /* copy engines */
    case 75: return *value = 9, OK;  /* compute capability 9.0 */
    case 110: case 116: case 124: return *value = 1, OK; /* VMM, GPUDirect RDMA, dma-buf */
    default: return *value = 0, OK;
  }
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
  (void)device;
  return *bytes = (size_t)1 << 30, OK;
}

int cuMemGetInfo_v2(size_t *available, size_t *total) { return *available = *total = (size_t)1 << 30, OK; }

int cuDevicePrimaryCtxRetain(void **context, int ordinal) {
  struct device *d = &devices[ordinal];
  pthread_mutex_lock(&lock);
  int first = !d->retained++;
  pthread_mutex_unlock(&lock);
  if (first && !d->standard) d->standard = stream_new(d);
  *context = d;
  return OK;
}

int cuDevicePrimaryCtxRelease_v2(int ordinal) { return devices[ordinal].retained-- > 0 ? OK : BAD_CONTEXT; }

int cuCtxSetCurrent(void *context) { return current = context, OK; }

int cuCtxGetCurrent(void **context) { return *context = current, OK; }

int cuCtxGetDevice(int *device) { return *device = current ? current->ordinal : 0, current ? OK : BAD_CONTEXT; }

int cuCtxSynchronize(void) {
  if (!current) return BAD_CONTEXT;
  for (struct stream *s = streams; s; s = s->next)
    if (s->device == current) wait_for(s);
  return OK;
}

int cuDeviceCanAccessPeer(int *can, int device, int other) {
  return *can = device != other && !fault("STANDIN_CUDA_NO_PEER"), OK;
}

int cuCtxEnablePeerAccess(void *other, unsigned flags) {
  int *already = &current->peers[((struct device *)other)->ordinal];
  if (flags || other == (void *)current || fault("STANDIN_CUDA_NO_ENABLE")) return INVALID;
  return (*already)++ ? PEER_ALREADY : OK;
}

int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
  if (!current) return BAD_CONTEXT;
  return fault("STANDIN_CUDA_NO_MEMORY") ? NO_MEMORY : map(address, bytes, current);
}

int cuMemFree_v2(uint64_t address) { return cuCtxSynchronize(), forget(address, 1); }

int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) {
  (void)flags;
  return map((uint64_t *)memory, bytes, NULL);
}

int cuMemFreeHost(void *memory) { return forget((uint64_t)memory, 1); }

int cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags) {
  (void)flags;
  if (fault("STANDIN_CUDA_NO_PIN")) return NO_MEMORY;
  pthread_mutex_lock(&lock);
  int already = range_of((uint64_t)memory) != NULL;
  if (!already) remember((uint64_t)memory, bytes, NULL, 0);
  pthread_mutex_unlock(&lock);
  return already ? ALREADY_PINNED : OK;
}

int cuMemHostUnregister(void *memory) { return forget((uint64_t)memory, 0) ? NOT_PINNED : OK; }

int cuMemHostGetDevicePointer_v2(uint64_t *address, void *memory, unsigned flags) {
  return *address = (uint64_t)memory, flags || bad(*address, 1) ? INVALID : OK;
}

static int known(uint64_t address) {
  pthread_mutex_lock(&lock);
  int found = range_of(address) != NULL;
  pthread_mutex_unlock(&lock);
  return found;
}

/* Whether an address is in a GPU's memory. The stand-in for libibverbs asks. */
int standin_is_gpu_memory(uint64_t address) {
  pthread_mutex_lock(&lock);
  struct range *range = range_of(address);
  int is_gpu = range && range->device;
  pthread_mutex_unlock(&lock);
  return is_gpu;
}

/* A DMA buffer is a file that holds the address. */
int cuMemGetHandleForAddressRange(void *handle, uint64_t address, size_t bytes, int kind, unsigned long long flags) {
  if (kind != 1 || flags || bad(address, bytes)) return INVALID;
  if (fault("STANDIN_CUDA_NO_DMABUF")) return 801;
  int file = memfd_create("dmabuf", MFD_CLOEXEC);
  if (file < 0 || pwrite(file, &address, sizeof address, 0) != sizeof address) return INVALID;
  *(int *)handle = file;
  return OK;
}

/* From and to memory that is not pinned the driver stages: the call comes back when the host's part is done. */
int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void *stream) {
  if (bad(to, bytes) || bad(from, bytes)) return INVALID;
  int status = enqueue(stream, (struct work){.kind = COPY, .to = to, .from = from, .bytes = bytes});
  return status || (known(to) && known(from)) ? status : wait_for(stream_of(stream));
}

int cuMemcpy(uint64_t to, uint64_t from, size_t bytes) {
  int status = cuMemcpyAsync(to, from, bytes, NULL);
  return status ? status : wait_for(stream_of(NULL));
}

/* Between GPUs that do not reach each other the driver stages as well. */
int cuMemcpyPeerAsync(uint64_t to, void *to_context, uint64_t from, void *from_context, size_t bytes, void *stream) {
  int status = to_context && from_context ? cuMemcpyAsync(to, from, bytes, stream) : BAD_CONTEXT;
  return status || !fault("STANDIN_CUDA_NO_PEER") ? status : wait_for(stream_of(stream));
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) {
  return cuMemcpyAsync(to, (uint64_t)from, bytes, stream);
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
  return cuMemcpyAsync((uint64_t)to, from, bytes, stream);
}

int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) { return cuMemcpy(to, (uint64_t)from, bytes); }

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) { return cuMemcpy((uint64_t)to, from, bytes); }

int cuMemsetD8Async(uint64_t to, unsigned char byte, size_t bytes, void *stream) {
  if (bad(to, bytes)) return INVALID;
  return enqueue(stream, (struct work){.kind = SET, .to = to, .byte = byte, .bytes = bytes});
}

int cuStreamCreate(void **stream, unsigned flags) {
  (void)flags;
  if (!current) return BAD_CONTEXT;
  return *stream = stream_new(current), OK;
}

int cuStreamDestroy_v2(void *handle) { /* the thread ends when its work is done; the stream itself stays known */
  struct stream *s = handle;
  pthread_mutex_lock(&s->lock);
  s->ends = 1;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
  pthread_join(s->thread, NULL);
  return OK;
}

int cuStreamSynchronize(void *stream) { return wait_for(stream_of(stream)); }

int cuStreamQuery(void *handle) {
  struct stream *s = stream_of(handle);
  if (!s) return BAD_CONTEXT;
  pthread_mutex_lock(&s->lock);
  int works = s->first || s->busy;
  pthread_mutex_unlock(&s->lock);
  return works ? NOT_READY : OK;
}

int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
  return flags ? INVALID : enqueue(stream, (struct work){.kind = WAIT, .event = event});
}

int cuLaunchHostFunc(void *stream, void (*call)(void *), void *data) {
  return enqueue(stream, (struct work){.kind = CALL, .call = call, .data = data});
}

int cuEventCreate(void **event, unsigned flags) {
  struct event *e = calloc(1, sizeof *e);
  (void)flags;
  pthread_mutex_init(&e->lock, NULL);
  pthread_cond_init(&e->changed, NULL);
  e->device = current;
  return *event = e, current ? OK : BAD_CONTEXT;
}

int cuEventDestroy_v2(void *event) { return free(event), OK; }

int cuEventRecord(void *handle, void *stream) {
  struct event *e = handle;
  if (e->device != stream_of(stream)->device) return BAD_HANDLE;
  return enqueue(stream, (struct work){.kind = RECORD, .event = e});
}

int cuEventQuery(void *handle) {
  struct event *e = handle;
  pthread_mutex_lock(&e->lock);
  int pending = e->done < e->recorded;
  pthread_mutex_unlock(&e->lock);
  return pending ? NOT_READY : OK;
}

int cuEventSynchronize(void *handle) {
  struct event *e = handle;
  pthread_mutex_lock(&e->lock);
  while (e->done < e->recorded) pthread_cond_wait(&e->changed, &e->lock);
  pthread_mutex_unlock(&e->lock);
  return OK;
}

int cuEventElapsedTime(float *ms, void *from, void *to) {
  struct event *a = from, *b = to;
  if (a->device != b->device || !a->done || !b->done) return BAD_HANDLE;
  if (cuEventQuery(from) || cuEventQuery(to)) return NOT_READY;
  return *ms = (float)(1e3 * (b->time_s - a->time_s)), OK;
}

int cuModuleLoadDataEx(void **module, const void *image, unsigned options, int *names, void **values) {
  int refuse = fault("STANDIN_CUDA_BAD_PTX") || !strstr(image, ".version");
  for (unsigned i = 0; refuse && i < options; i++)
    if (names[i] == 5) strcpy(values[i], "ptxas application ptx input, line 1; fatal   : refused by the stand-in");
  return *module = (void *)strdup(image), refuse ? BAD_PTX : OK;
}

int cuModuleUnload(void *module) { return free(module), OK; }

/* Only what the PTX has and we can emulate. */
int cuModuleGetFunction(void **function, void *module, const char *name) {
  char entry[80];
  snprintf(entry, sizeof entry, ".entry %s(", name);
  for (size_t i = 0; strstr(module, entry) && i < sizeof KERNELS / sizeof KERNELS[0]; i++)
    if (!strcmp(KERNELS[i].name, name)) return *function = (void *)(uintptr_t)&KERNELS[i], OK;
  return NOT_FOUND;
}

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **extra) {
  if (!gx || !gy || !gz || !bx || !by || !bz || bx > 1024 || shared || extra) return INVALID;
  struct work work = {.kind = WORK_KERNEL, .kernel = function, .grid = gx};
  for (int i = 0; i < work.kernel->arguments; i++) memcpy(&work.arguments[i], arguments[i], 8);
  return enqueue(stream, work);
}

/* ---- graphs: a list of work, put on a stream again at every launch ---- */

int cuStreamBeginCapture_v2(void *stream, int mode) {
  (void)mode;
  return stream_of(stream)->capture = calloc(1, sizeof(struct graph)), OK;
}

int cuStreamEndCapture(void *stream, void **graph) {
  struct graph *captured = stream_of(stream)->capture;
  if (!captured) return INVALID;
  for (struct stream *s = streams; s; s = s->next)
    if (s->capture == captured) s->capture = NULL;
  return *graph = captured, OK;
}

int cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags) {
  return *executable = graph, flags ? INVALID : OK;
}

int cuGraphLaunch(void *executable, void *stream) {
  int status = OK;
  for (struct work *w = ((struct graph *)executable)->first; w && !status; w = w->next) status = enqueue(stream, *w);
  return status;
}

int cuGraphExecDestroy(void *executable) { return executable ? OK : INVALID; }

int cuGraphDestroy(void *graph) { return graph ? OK : INVALID; }
