/* The yardstick of kv_transfer: the NIXL C API called directly from C, two processes, one WRITE descriptor.
 * nixl_direct LIBNIXL_CAPI SIZE ITERATIONS WARM [...]; prints `SIZE p50-seconds` lines (post to done). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { POOL = 64 << 20 };

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

struct side {
  void *agent, *options;
  char *pool, *peer;
  uint64_t remote;
};

static void all(ssize_t (*op)(), int fd, void *data, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    ssize_t n = op(fd, (char *)data + done, bytes - done);
    if (n <= 0) _exit(1);
    done += (size_t)n;
  }
}

/* An agent with registered memory that has exchanged metadata over a pair of pipes. */
static struct side join(const char *path, const char *name, bool progress, int in, int out) {
  struct side s;
  struct config config = {.progress = progress, .workers = 1};
  void *memories, *parameters, *backend, *list, *metadata;
  size_t size, theirs;
  library = dlopen(path, RTLD_NOW);
  if (!library) fprintf(stderr, "%s\n", dlerror()), _exit(1);
  s.pool = mmap(NULL, POOL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  madvise(s.pool, POOL, MADV_HUGEPAGE);
  memset(s.pool, 1, POOL);
  CALL(create_configured_agent, name, &config, &s.agent);
  CALL(get_plugin_params, s.agent, "UCX", &memories, &parameters);
  CALL(create_backend, s.agent, "UCX", parameters, &backend);
  CALL(create_opt_args, &s.options);
  CALL(opt_args_add_backend, s.options, backend);
  CALL(create_reg_dlist, 0, &list);
  CALL(reg_dlist_add_desc, list, (uintptr_t)s.pool, (size_t)POOL, (uint64_t)0, NULL, (size_t)0);
  CALL(register_mem, s.agent, list, s.options);
  CALL(get_local_md, s.agent, &metadata, &size);
  uint64_t address = (uintptr_t)s.pool;
  all((ssize_t(*)())write, out, &size, sizeof size);
  all((ssize_t(*)())write, out, metadata, size);
  all((ssize_t(*)())write, out, &address, sizeof address);
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

static void *descriptors(uintptr_t address, size_t bytes) {
  void *list;
  CALL(create_xfer_dlist, 0, &list);
  CALL(xfer_dlist_add_desc, list, address, bytes, (uint64_t)0);
  return list;
}

static void measure(struct side *s, size_t bytes, int iterations, int warm) {
  void *request;
  CALL(create_xfer_req, s->agent, 1, descriptors((uintptr_t)s->pool, bytes), descriptors(s->remote, bytes), s->peer, &request,
       s->options);
  int (*post)(void *, void *, void *) = (int (*)(void *, void *, void *))symbol("post_xfer_req");
  int (*status)(void *, void *) = (int (*)(void *, void *))symbol("get_xfer_status");
  double *seconds = malloc((size_t)iterations * sizeof *seconds);
  for (int k = -warm; k < iterations; k++) {
    double start = now();
    if (post(s->agent, request, NULL) < 0) _exit(1);
    while (status(s->agent, request) == 1) {}
    if (k >= 0) seconds[k] = now() - start;
  }
  qsort(seconds, (size_t)iterations, sizeof *seconds, by_value);
  printf("%zu %.9g\n", bytes, seconds[iterations / 2]);
  free(seconds);
}

int main(int argc, char **argv) {
  int there[2], back[2];
  setenv("UCX_MODULES", "^efa", 0);
  if (argc < 5 || pipe(there) || pipe(back)) return 1;
  pid_t target = fork();
  if (target == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    bind_to(1);
    join(argv[1], "rank1", true, there[0], back[1]);
    pause();
  }
  bind_to(0);
  struct side s = join(argv[1], "rank0", false, back[0], there[1]);
  for (int a = 2; a + 2 < argc; a += 3) measure(&s, (size_t)atol(argv[a]), atoi(argv[a + 1]), atoi(argv[a + 2]));
  fflush(stdout);
  kill(target, SIGKILL);
  waitpid(target, NULL, 0);
  _exit(0);
}
