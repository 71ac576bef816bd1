/* The reference for kv_transfer and kv_vram: the NIXL C API called directly from C, two processes, one descriptor.
 * nixl_direct LIBNIXL_CAPI SIZE ITERATIONS WARM [...]; WRITE of host memory; prints `SIZE p50-seconds` (post to done).
 * nixl_direct LIBNIXL_CAPI gpus=A,B SIZE ITERATIONS WARM [...]; from CUDA GPU A to GPU B (`WRITE SIZE seconds`) and back
 * (`READ SIZE seconds`); each process has a context on its own GPU only. With netns=A,B after that each process is in
 * its own network namespace. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { POOL = 64 << 20, HOST = 0, GPU = 1, READ = 0, WRITE = 1 };

struct config {
  bool progress, listen;
  int port, sync;
  unsigned workers;
  uint64_t progress_delay, listen_delay;
  bool telemetry;
};

static void *library;

static void *symbol(const char *name) {
  char whole[128];
  snprintf(whole, sizeof whole, "nixl_capi_%s", name);
  void *found = dlsym(library, whole);
  if (!found) fprintf(stderr, "no %s\n", whole), exit(1);
  return found;
}

#define CALL(name, ...)                                                        \
  do {                                                                         \
    int status = ((int (*)())symbol(#name))(__VA_ARGS__);                      \
    if (status < 0) fprintf(stderr, #name " %d\n", status), _exit(1);         \
  } while (0)

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void bind_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

struct memory {
  int kind, gpu, peer_gpu; /* NIXL's kind and devices; the device of host memory is 0 */
  size_t bytes;
};

struct side {
  struct memory memory;
  void *agent, *options;
  char *peer;
  uint64_t pool, remote;
};

static uint64_t host_pool(size_t bytes) {
  char *pool = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  madvise(pool, bytes, MADV_HUGEPAGE);
  memset(pool, 1, bytes);
  return (uintptr_t)pool;
}

static void *cuda;

#define CUDA(name, ...)                                                        \
  do {                                                                         \
    int (*call)() = (int (*)())dlsym(cuda, #name);                             \
    int status = call ? call(__VA_ARGS__) : -1;                                \
    if (status) fprintf(stderr, #name " %d\n", status), _exit(1);              \
  } while (0)

static uint64_t gpu_pool(int ordinal, size_t bytes) {
  int device;
  void *context;
  uint64_t pool;
  cuda = dlopen("libcuda.so.1", RTLD_NOW);
  if (!cuda) fprintf(stderr, "%s\n", dlerror()), _exit(1);
  if (!dlopen("libcudart.so.13", RTLD_NOW | RTLD_GLOBAL)) dlopen("libcudart.so.12", RTLD_NOW | RTLD_GLOBAL); /* UCX's */
  CUDA(cuInit, 0);
  CUDA(cuDeviceGet, &device, ordinal);
  CUDA(cuDevicePrimaryCtxRetain, &context, device);
  CUDA(cuCtxSetCurrent, context);
  CUDA(cuMemAlloc_v2, &pool, bytes);
  CUDA(cuMemsetD8_v2, pool, (unsigned char)1, bytes);
  CUDA(cuCtxSynchronize);
  return pool;
}

static void all(ssize_t (*op)(), int fd, void *data, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    ssize_t n = op(fd, (char *)data + done, bytes - done);
    if (n <= 0) _exit(1);
    done += (size_t)n;
  }
}

/* An agent with registered memory that has exchanged metadata over a pair of pipes. */
static struct side join(const char *path, const char *name, bool progress, struct memory memory, int in, int out) {
  struct side s = {.memory = memory};
  struct config config = {.progress = progress, .workers = 1};
  void *memories, *parameters, *backend, *list, *metadata;
  size_t size, theirs;
  library = dlopen(path, RTLD_NOW);
  if (!library) fprintf(stderr, "%s\n", dlerror()), _exit(1);
  s.pool = memory.kind == GPU ? gpu_pool(memory.gpu, memory.bytes) : host_pool(memory.bytes);
  CALL(create_configured_agent, name, &config, &s.agent);
  CALL(get_plugin_params, s.agent, "UCX", &memories, &parameters);
  CALL(create_backend, s.agent, "UCX", parameters, &backend);
  CALL(create_opt_args, &s.options);
  CALL(opt_args_add_backend, s.options, backend);
  CALL(create_reg_dlist, memory.kind, &list);
  CALL(reg_dlist_add_desc, list, (uintptr_t)s.pool, memory.bytes, (uint64_t)memory.gpu, NULL, (size_t)0);
  CALL(register_mem, s.agent, list, s.options);
  CALL(get_local_md, s.agent, &metadata, &size);
  all((ssize_t(*)())write, out, &size, sizeof size);
  all((ssize_t(*)())write, out, metadata, size);
  all((ssize_t(*)())write, out, &s.pool, sizeof s.pool);
  all((ssize_t(*)())read, in, &theirs, sizeof theirs);
  char *peer_metadata = malloc(theirs);
  all((ssize_t(*)())read, in, peer_metadata, theirs);
  all((ssize_t(*)())read, in, &s.remote, sizeof s.remote);
  CALL(load_remote_md, s.agent, peer_metadata, theirs, &s.peer);
  CALL(agent_make_connection, s.agent, s.peer, s.options);
  char ready = 1;
  all((ssize_t(*)())write, out, &ready, 1);
  all((ssize_t(*)())read, in, &ready, 1);
  return s;
}

static void *descriptors(int kind, int gpu, uint64_t address, size_t bytes) {
  void *list;
  CALL(create_xfer_dlist, kind, &list);
  CALL(xfer_dlist_add_desc, list, (uintptr_t)address, bytes, (uint64_t)gpu);
  return list;
}

/* Returns the median time of a request in seconds, from its post until it is done. */
static double measure(struct side *s, int operation, size_t bytes, int iterations, int warm) {
  void *request;
  struct memory m = s->memory;
  CALL(create_xfer_req, s->agent, operation, descriptors(m.kind, m.gpu, s->pool, bytes),
       descriptors(m.kind, m.peer_gpu, s->remote, bytes), s->peer, &request, s->options);
  int (*post)(void *, void *, void *) = (int (*)(void *, void *, void *))symbol("post_xfer_req");
  int (*status)(void *, void *) = (int (*)(void *, void *))symbol("get_xfer_status");
  double *seconds = malloc((size_t)iterations * sizeof *seconds);
  for (int k = -warm; k < iterations; k++) {
    double start = now();
    if (post(s->agent, request, NULL) < 0) _exit(1);
    int now_is;
    while ((now_is = status(s->agent, request)) == 1) {}
    if (now_is < 0) fprintf(stderr, "a request of %zu bytes failed: %d\n", bytes, now_is), _exit(1);
    if (k >= 0) seconds[k] = now() - start;
  }
  qsort(seconds, (size_t)iterations, sizeof *seconds, by_value);
  double median = seconds[iterations / 2];
  free(seconds);
  return median;
}

static void enter(const char *namespace) {
  char path[PATH_MAX];
  snprintf(path, sizeof path, "/run/netns/%s", namespace);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0 || setns(file, CLONE_NEWNET)) perror(path), _exit(1);
  close(file);
  /* UCX lists the interfaces of /sys, which belongs to the namespace that mounted it. */
  if (unshare(CLONE_NEWNS) || mount("", "/", NULL, MS_SLAVE | MS_REC, NULL) || umount2("/sys", MNT_DETACH) ||
      mount("sysfs", "/sys", "sysfs", 0, NULL))
    perror("/sys"), _exit(1);
}

int main(int argc, char **argv) {
  int there[2], back[2], gpus[2], first = 2;
  char spaces[2][64] = {"", ""};
  struct memory memory = {.kind = HOST, .bytes = POOL};
  setenv("UCX_MODULES", "^efa", 0);
  if (argc < 5 || pipe(there) || pipe(back)) return 1;
  if (sscanf(argv[2], "gpus=%d,%d", &gpus[0], &gpus[1]) == 2) {
    memory = (struct memory){.kind = GPU, .gpu = gpus[0], .peer_gpu = gpus[1]};
    first = 3;
    if (argc > first && sscanf(argv[first], "netns=%63[^,],%63s", spaces[0], spaces[1]) == 2) first++;
    for (int a = first; a + 2 < argc; a += 3)
      if ((size_t)atol(argv[a]) > memory.bytes) memory.bytes = (size_t)atol(argv[a]);
  }
  pid_t target = fork();
  if (target == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    bind_to(1);
    if (*spaces[1]) enter(spaces[1]);
    struct memory other = {memory.kind, memory.peer_gpu, memory.gpu, memory.bytes};
    join(argv[1], "rank1", true, other, there[0], back[1]);
    pause();
  }
  bind_to(0);
  if (*spaces[0]) enter(spaces[0]);
  struct side s = join(argv[1], "rank0", false, memory, back[0], there[1]);
  for (int operation = WRITE; operation >= (memory.kind == GPU ? READ : WRITE); operation--)
    for (int a = first; a + 2 < argc; a += 3) {
      size_t bytes = (size_t)atol(argv[a]);
      double median = measure(&s, operation, bytes, atoi(argv[a + 1]), atoi(argv[a + 2]));
      printf("%s%zu %.9g\n", memory.kind == HOST ? "" : operation == WRITE ? "WRITE " : "READ ", bytes, median);
    }
  fflush(stdout);
  kill(target, SIGKILL);
  waitpid(target, NULL, 0);
  _exit(0);
}
