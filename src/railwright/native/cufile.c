/* Files to and from GPU memory: by cuFile (GPUDirect Storage or its compatibility mode), or through pinned buffers of
 * our own. The caller passes libcufile's handle. NVIDIA's "cuFile API Reference Guide" documents its functions. */
#include "cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <unistd.h>

enum { RW_SHORT_WRITE = -1101, CUFILE_PLAIN_FD = 1 };

struct outcome { /* CUfileError_t: returned by value */
  int error;
  int cuda;
};

struct description { /* CUfileDescr_t */
  int type;
  union {
    int fd;
    void *other;
  } file;
  const void *operations;
};

struct properties { /* CUfileDrvProps_t, with room for what later versions add */
  unsigned major, minor;
  size_t poll_bytes, direct_bytes;
  unsigned status, control, features;
  unsigned rest[128];
};

static struct {
  struct outcome (*driver_open)(void);
  struct outcome (*driver_close)(void);
  struct outcome (*properties)(struct properties *);
  struct outcome (*handle_register)(void **, struct description *);
  void (*handle_deregister)(void *);
  struct outcome (*buffer_register)(const void *, size_t, int);
  struct outcome (*buffer_deregister)(const void *);
  ssize_t (*read)(void *, void *, size_t, off_t, off_t);
  ssize_t (*write)(void *, const void *, size_t, off_t, off_t);
  /* NULL in versions without them */
  struct outcome (*version)(int *);
  struct outcome (*statistics_level)(int);
  struct outcome (*statistics_start)(void);
  struct outcome (*statistics)(void *);
} cufile;

static void *needed(void *library, const char *name, int *missing) {
  void *symbol = dlsym(library, name);
  if (!symbol) *missing = 1;
  return symbol;
}

#define BIND(field, name) *(void **)&cufile.field = needed(library, name, &missing)
#define BIND_IF_THERE(field, name) *(void **)&cufile.field = dlsym(library, name)

int rw_cufile_bind(void *library) {
  int missing = 0;
  BIND(driver_open, "cuFileDriverOpen");
  BIND(driver_close, "cuFileDriverClose");
  BIND(properties, "cuFileDriverGetProperties");
  BIND(handle_register, "cuFileHandleRegister");
  BIND(handle_deregister, "cuFileHandleDeregister");
  BIND(buffer_register, "cuFileBufRegister");
  BIND(buffer_deregister, "cuFileBufDeregister");
  BIND(read, "cuFileRead");
  BIND(write, "cuFileWrite");
  BIND_IF_THERE(version, "cuFileGetVersion");
  BIND_IF_THERE(statistics_level, "cuFileSetStatsLevel");
  BIND_IF_THERE(statistics_start, "cuFileStatsStart");
  BIND_IF_THERE(statistics, "cuFileGetStatsL3");
  return missing ? RW_MISSING_SYMBOL : RW_OK;
}

/* Returns RW_OK or a negated error. cuFile's errors begin at 5000, and its reads and writes negate them too. */
static int code_of(struct outcome o) { return o.error ? -o.error : RW_OK; }

int rw_cufile_open(void) { return code_of(cufile.driver_open()); }

int rw_cufile_close(void) { return code_of(cufile.driver_close()); }

int rw_cufile_register(int fd, void **handle) {
  struct description d = {.type = CUFILE_PLAIN_FD, .file = {.fd = fd}};
  return code_of(cufile.handle_register(handle, &d));
}

void rw_cufile_deregister(void *handle) { cufile.handle_deregister(handle); }

int rw_cufile_register_buffer(void *context, uint64_t address, size_t bytes) {
  int status = rw_cuda.use(context);
  return status ? status : code_of(cufile.buffer_register((const void *)(uintptr_t)address, bytes, 0));
}

void rw_cufile_deregister_buffer(uint64_t address) { cufile.buffer_deregister((const void *)(uintptr_t)address); }

/* values: nvidia-fs' major and minor version, status flags, control flags, feature flags, libcufile's version. */
int rw_cufile_properties(unsigned *values) {
  struct properties p = {0};
  int version = 0, status = code_of(cufile.properties(&p));
  if (cufile.version) cufile.version(&version);
  unsigned found[] = {p.major, p.minor, p.status, p.control, p.features, (unsigned)version};
  memcpy(values, found, sizeof found);
  return status;
}

/* Starts the open driver's counts of each GPU's reads and writes, once per process.
 *
 * They are never stopped: if they are started again, a thread of libcufile 1.15.1.6 reads freed memory and the process
 * ends by SIGSEGV (scripts/measured/gpus/try-cufile-counters; docs/measured/2xh200).
 */
int rw_cufile_count(int level) {
  static int is_counting;
  if (is_counting) return RW_OK;
  if (!cufile.statistics_level || !cufile.statistics_start || !cufile.statistics) return RW_MISSING_SYMBOL;
  int status = code_of(cufile.statistics_level(level));
  if (!status) status = code_of(cufile.statistics_start());
  is_counting = !status;
  return status;
}

/* Reads the counters. `into` must have room for the CUfileStatsLevel3_t of any version. */
int rw_cufile_counted(void *into) { return cufile.statistics ? code_of(cufile.statistics(into)) : RW_MISSING_SYMBOL; }

/* A pass over a list of blocks. The layout is also in `native/cufile.py`. */
struct rw_gpu_pass {
  int files;
  int workers;             /* threads, each with one operation at a time, cycling through the files */
  int write;
  int count;               /* operations on each file */
  int64_t bytes;           /* of one operation */
  const int64_t *at;       /* offset of each block in its file */
  int64_t shift;           /* from a block's offset to its place in the GPU's memory */
  int64_t stride;          /* from one file's place in the GPU's memory to the next one's */
  const int *fds;          /* the descriptor of each file */
  const int *cpus;         /* the CPU of each worker */
  void *context;
  void *const *handles;    /* cuFile's handle of each file; NULL to go through `pinned` */
  uint64_t device;         /* where the GPU's memory begins */
  unsigned char *pinned;   /* workers x bytes */
  double *latencies;       /* of the first file's operations, then of the next one's */
  double elapsed, cpu;     /* out */
};

struct crew {
  struct rw_gpu_pass *pass;
  atomic_int ready, go, failed;
  _Atomic int64_t *next;   /* the next operation on each file */
};

struct hand {
  struct crew *crew;
  pthread_t thread;
  int index, file;
  int64_t shift;
  void *stream;
  double start, stop;
};

static int by_cufile(struct rw_gpu_pass *p, int64_t at, struct hand *me) {
  void *base = (void *)(uintptr_t)p->device, *handle = p->handles[me->file];
  ssize_t moved = p->write ? cufile.write(handle, base, (size_t)p->bytes, at, at + me->shift)
                           : cufile.read(handle, base, (size_t)p->bytes, at, at + me->shift);
  if (moved == -1) return errno ? -errno : -EIO;
  if (moved < 0) return (int)moved;
  return moved == p->bytes ? RW_OK : p->write ? RW_SHORT_WRITE : -ENODATA;
}

static int by_pinned(struct rw_gpu_pass *p, int64_t at, struct hand *me) {
  unsigned char *slot = p->pinned + (int64_t)me->index * p->bytes;
  uint64_t device = p->device + (uint64_t)(at + me->shift);
  int fd = p->fds[me->file];
  if (p->write) {
    int status = rw_cuda.to_host_async(slot, device, (size_t)p->bytes, me->stream);
    if (!status) status = rw_cuda.stream_synchronize(me->stream);
    if (status) return status;
    ssize_t moved = pwrite(fd, slot, (size_t)p->bytes, at);
    return moved < 0 ? -errno : moved == p->bytes ? RW_OK : RW_SHORT_WRITE;
  }
  ssize_t moved = pread(fd, slot, (size_t)p->bytes, at);
  if (moved != p->bytes) return moved < 0 ? -errno : -ENODATA;
  int status = rw_cuda.to_device_async(device, slot, (size_t)p->bytes, me->stream);
  return status ? status : rw_cuda.stream_synchronize(me->stream);
}

static void fail(struct crew *c, int status) {
  int none = RW_OK;
  atomic_compare_exchange_strong(&c->failed, &none, status);
}

static void *work(void *argument) {
  struct hand *me = argument;
  struct crew *c = me->crew;
  struct rw_gpu_pass *p = c->pass;
  int status = rw_pin(p->cpus[me->index]);
  if (!status) status = rw_cuda.use(p->context);
  if (!status && !p->handles) status = rw_cuda.stream_create(&me->stream, CUDA_STREAM_NON_BLOCKING);
  if (status) fail(c, status);
  atomic_fetch_add(&c->ready, 1);
  while (!atomic_load(&c->go)) sched_yield();
  me->start = rw_now();
  for (int64_t k; !atomic_load(&c->failed) && (k = atomic_fetch_add(&c->next[me->file], 1)) < p->count;) {
    double start = rw_now();
    status = p->handles ? by_cufile(p, p->at[k], me) : by_pinned(p, p->at[k], me);
    p->latencies[(int64_t)me->file * p->count + k] = rw_now() - start;
    if (status) fail(c, status);
  }
  me->stop = rw_now();
  if (me->stream) rw_cuda.stream_destroy(me->stream);
  return NULL;
}

static double cpu_seconds(void) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* Returns RW_OK, a negative errno, cuFile's negative error (below -5000), CUDA's positive error, or one of our own. */
int rw_gpu_file_pass(struct rw_gpu_pass *p) {
  struct crew c = {.pass = p, .next = calloc((size_t)p->files, sizeof *c.next)};
  struct hand *hands = calloc((size_t)p->workers, sizeof *hands);
  if (!hands || !c.next) {
    free(hands), free((void *)c.next);
    return RW_NO_MEMORY;
  }
  int started = 0;
  for (; started < p->workers; started++) {
    int file = started % p->files;
    hands[started] = (struct hand){
        .crew = &c, .index = started, .file = file, .shift = p->shift + (int64_t)file * p->stride};
    if (pthread_create(&hands[started].thread, NULL, work, &hands[started])) {
      fail(&c, RW_NO_THREAD);
      break;
    }
  }
  while (atomic_load(&c.ready) < started) sched_yield();
  double cpu = cpu_seconds(), first = 0, last = 0;
  atomic_store(&c.go, 1);
  for (int t = 0; t < started; t++) {
    pthread_join(hands[t].thread, NULL);
    if (!first || hands[t].start < first) first = hands[t].start;
    if (hands[t].stop > last) last = hands[t].stop;
  }
  p->cpu = cpu_seconds() - cpu;
  p->elapsed = last - first;
  free(hands);
  free((void *)c.next);
  return atomic_load(&c.failed);
}
