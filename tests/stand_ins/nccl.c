/* Stands in for libnccl.so.2 (2.28.9): real data moves between threads and processes, through a file that all ranks
 * map and nobody finds any more once all are there. Every operation is a host function on the stand-in's stream.
 *
 * Ranks of several hosts (NCCL_HOSTID, or the host's name) move it over TCP instead: see nccl_hosts.h.
 *
 * Faults: STANDIN_NCCL_DAMAGE=1 the first byte of what is received is wrong; STANDIN_NCCL_CORRUPT=1 the last float of
 * rank 1 is wrong in results of more than 1,000 floats; STANDIN_NCCL_KILL=N rank 1 is killed at its N-th operation;
 * STANDIN_NCCL_REFUSE=N rank 1 alone is told that its N-th operation cannot be; STANDIN_NCCL_OTHER=1 another algorithm
 * runs than NCCL_ALGO says; STANDIN_NCCL_NO_WINDOW=1 no symmetric window can be had; STANDIN_NCCL_COUNT=FILE says at the
 * end how many operations rank 0 was given, and of how many of them a line of the log was written;
 * STANDIN_NCCL_IB=1 the log lists an RDMA device that nothing uses; STANDIN_NCCL_VERSION.
 * Built with OLD, it is NCCL 2.18: without ncclAlltoAll, windows, ncclMemAlloc and the log that can be switched. */
#include "nccl_log.h"

#include <dlfcn.h>
#include <signal.h>
#include <strings.h>
#include <sys/random.h>

static char last_error[300];
static __thread int depth;
static __thread struct work *sends; /* the sends and receives of the open group */

static int cuda(const char *name, void *a, void *b, void *c) {
  int (*call)(void *, void *, void *) = (int (*)(void *, void *, void *))dlsym(RTLD_DEFAULT, name);
  return call ? call(a, b, c) : -1;
}

static void perform(void *data) {
  struct work *w = data;
  if (w->comm->hosts && w->kind == SENDS) exchange_between_hosts(w);
  else if (w->comm->hosts) collective_between_hosts(w);
  else if (w->kind == SENDS) exchange(w);
  else if (w->type == FLOAT32) collective(w);
  else all_reduce_halves(w);
  if (w->corrupt && w->type == FLOAT32) w->in[w->count - 1] += 1;
  else if (w->corrupt) ((uint16_t *)w->in)[w->count - 1] ^= 1;
}

/* ---- the choices, which the log names ---- */

#ifndef OLD
void ncclResetDebugInit(void) {
  if (log_file) fclose(log_file);
  log_file = NULL;
}
#endif

static int choose(struct comm *c, enum kind kind, size_t bytes) {
  static const char *const NAMES[] = {"AllReduce", "AllGather", "ReduceScatter", "AlltoAll", "Broadcast"};
  const char *asked = getenv("NCCL_ALGO"), *protocol = getenv("NCCL_PROTO"), *algorithm = asked ? asked : "Ring";
  int tree = kind == ALL_REDUCE && !strcasecmp(algorithm, "Tree");
  if (strcasecmp(algorithm, "Ring") && !tree) {
    snprintf(last_error, sizeof last_error, "Error : no algorithm/protocol available for function %s with datatype "
             "ncclFloat32. NCCL_ALGO was set to %s.", NAMES[kind], algorithm);
    return INVALID_USAGE;
  }
  if (setting("STANDIN_NCCL_OTHER")) tree = !tree;
  if (!protocol) protocol = bytes < 65536 ? "LL" : "SIMPLE";
  if (!logs("TUNING")) return SUCCESS;
  c->logged++;
  fprintf(log_file, "stand-in:%d:%d [%d] NCCL INFO %s: %zu Bytes -> Algo %s proto %s channel{Lo..Hi}={0..3}\n", getpid(),
          getpid(), c->rank, NAMES[kind], bytes, tree ? "TREE" : "RING", protocol);
  fflush(log_file);
  return SUCCESS;
}

/* ---- NCCL's functions ---- */

static int enqueue(struct work work) {
  struct comm *c = work.comm;
  c->operations++;
  say_connections(c);
  if (c->rank == 1 && setting("STANDIN_NCCL_KILL") && c->operations >= setting("STANDIN_NCCL_KILL")) raise(SIGKILL);
  work.corrupt = c->rank == 1 && work.kind != SENDS && work.count > 1000 && setting("STANDIN_NCCL_CORRUPT");
  struct work *kept = malloc(sizeof *kept); /* a graph may play it again: it stays */
  *kept = work;
  int refused = c->rank == 1 && c->operations == setting("STANDIN_NCCL_REFUSE");
  int status = cuda("cuLaunchHostFunc", work.stream, (void *)perform, kept) ? CUDA_FAILED : SUCCESS;
  return status || !refused ? status : INVALID_USAGE;
}

static int begin(struct comm *c, enum kind kind, const void *out, void *in, size_t count, int type, int root,
                 void *stream) {
  int halves = kind == ALL_REDUCE && (type == FLOAT16 || type == BFLOAT16);
  if (type != FLOAT32 && (!halves || c->hosts)) return INVALID_ARGUMENT;
  int status = kind == ALL_TO_ALL ? SUCCESS : choose(c, kind, count * (halves ? 2 : 4));
  if (status) return status;
  return enqueue((struct work){.kind = kind, .comm = c, .stream = stream, .out = out, .in = in, .count = count,
                               .root = root, .type = type});
}

int ncclAllReduce(const void *out, void *in, size_t count, int type, int op, struct comm *c, void *stream) {
  return op ? INVALID_ARGUMENT : begin(c, ALL_REDUCE, out, in, count, type, 0, stream);
}

int ncclReduceScatter(const void *out, void *in, size_t count, int type, int op, struct comm *c, void *stream) {
  return op ? INVALID_ARGUMENT : begin(c, REDUCE_SCATTER, out, in, count, type, 0, stream);
}

int ncclAllGather(const void *out, void *in, size_t count, int type, struct comm *c, void *stream) {
  return begin(c, ALL_GATHER, out, in, count, type, 0, stream);
}

int ncclBroadcast(const void *out, void *in, size_t count, int type, int root, struct comm *c, void *stream) {
  return begin(c, BROADCAST, out, in, count, type, root, stream);
}

static int transfer(struct comm *c, void *at, size_t count, int other, int is_send, void *stream) {
  if (!depth) return INVALID_USAGE; /* a lone send is never made by what is tested here */
  if (!sends) sends = calloc(1, sizeof *sends);
  if (sends->transfers == 2 * MOST_RANKS) return INVALID_USAGE;
  sends->kind = SENDS, sends->type = FLOAT32, sends->comm = c, sends->stream = stream;
  sends->transfer[sends->transfers++] = (struct transfer){at, count, other, is_send};
  return SUCCESS;
}

int ncclSend(const void *out, size_t count, int type, int to, struct comm *c, void *stream) {
  return type != FLOAT32 ? INVALID_ARGUMENT : transfer(c, (void *)(uintptr_t)out, count, to, 1, stream);
}

int ncclRecv(void *in, size_t count, int type, int from, struct comm *c, void *stream) {
  return type != FLOAT32 ? INVALID_ARGUMENT : transfer(c, in, count, from, 0, stream);
}

/* A rank joins on a thread of its own: the ranks of a process join one communicator after the other. */
struct joining {
  pthread_t thread;
  struct comm *comm;
  struct id id;
  struct joining *next;
};

static __thread struct joining *joins;

static int share(struct comm *c) {
  int file = open(c->file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (c->ranks > MOST_RANKS || file < 0 || ftruncate(file, sizeof *c->shared)) return CUDA_FAILED;
  c->shared = mmap(NULL, sizeof *c->shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (c->shared == MAP_FAILED) return CUDA_FAILED;
  if (atomic_fetch_add(&c->shared->attached, 1) + 1 == c->ranks) unlink(c->file);
  return SUCCESS;
}

static void *join(void *argument) {
  struct joining *j = argument;
  struct comm *c = j->comm;
  say_network();
  say_begin(c, j->id.internal, "START");
  c->hosts = meet(j->id.internal, c->rank, c->ranks);
  if (!c->hosts) return (void *)REMOTE_ERROR;
  if (!spans_hosts(c->hosts)) {
    leave(c->hosts), c->hosts = NULL;
    if (share(c)) return (void *)CUDA_FAILED;
  }
  say("INIT", "1 coll channels, 0 collnet channels, 0 nvls channels, 1 p2p channels, 1 p2p channels per peer");
  say_begin(c, j->id.internal, "COMPLETE");
  return NULL;
}

static int finish_joins(void) {
  int status = SUCCESS;
  while (joins) {
    struct joining *one = joins;
    void *ended = NULL;
    pthread_join(one->thread, &ended);
    if (ended) status = (int)(intptr_t)ended;
    joins = one->next;
    free(one);
  }
  return status;
}

int ncclGroupStart(void) {
  depth++;
  return SUCCESS;
}

int ncclGroupEnd(void) {
  if (--depth) return SUCCESS;
  int joined = finish_joins();
  if (joined || !sends) return joined;
  int status = enqueue(*sends);
  free(sends);
  sends = NULL;
  return status;
}

int ncclGetVersion(int *version) {
#ifdef OLD
  *version = 21805;
#else
  *version = setting("STANDIN_NCCL_VERSION") ? (int)setting("STANDIN_NCCL_VERSION") : 22809;
#endif
  return SUCCESS;
}

const char *ncclGetErrorString(int result) {
  return result == INVALID_USAGE ? "invalid usage (run with NCCL_DEBUG=WARN for details)" : "an error of the stand-in";
}

const char *ncclGetLastError(struct comm *c) {
  (void)c;
  return last_error;
}

int ncclGetUniqueId(struct id *id) {
  unsigned char bytes[16];
  memset(id, 0, sizeof *id);
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) return CUDA_FAILED;
  for (size_t i = 0; i < sizeof bytes; i++) snprintf(id->internal + 2 * i, 3, "%02x", bytes[i]);
  return begin_root(id->internal) ? CUDA_FAILED : SUCCESS;
}

struct config {
  size_t size;
  unsigned magic, version;
};

int ncclCommInitRankConfig(struct comm **made, int ranks, struct id id, int rank, const struct config *config) {
  if (config->magic != 0xcafebeef || config->size < 24 || ranks > MOST_HOST_RANKS || !made) return INVALID_ARGUMENT;
  struct comm *c = calloc(1, sizeof *c);
  struct joining *one = calloc(1, sizeof *one);
  c->rank = rank, c->ranks = ranks;
  /* Not in TMPDIR: over ssh each rank has its own. */
  snprintf(c->file, sizeof c->file, "/dev/shm/nccl-stand-in-%.32s", id.internal);
  *one = (struct joining){.comm = c, .id = id, .next = joins};
  if (pthread_create(&one->thread, NULL, join, one)) return CUDA_FAILED;
  joins = one, *made = c;
  return depth ? SUCCESS : finish_joins();
}

int ncclCommDestroy(struct comm *c) {
  const char *name = getenv("STANDIN_NCCL_COUNT");
  FILE *file = name && !c->rank ? fopen(name, "a") : NULL;
  if (file) {
    fprintf(file, "%ld %ld\n", c->operations, c->logged);
    fclose(file);
  }
  if (c->hosts) leave(c->hosts);
  else munmap(c->shared, sizeof *c->shared);
  free(c);
  return SUCCESS;
}

int ncclCommGetAsyncError(struct comm *c, int *error) {
  *error = c->hosts ? atomic_load(&c->hosts->broken) : SUCCESS;
  return SUCCESS;
}

#ifndef OLD
int ncclAlltoAll(const void *out, void *in, size_t count, int type, struct comm *c, void *stream) {
  return begin(c, ALL_TO_ALL, out, in, count, type, 0, stream);
}

int ncclMemAlloc(void **memory, size_t bytes) {
  return cuda("cuMemAlloc_v2", memory, (void *)bytes, NULL) ? CUDA_FAILED : SUCCESS;
}

int ncclCommRegister(struct comm *c, void *memory, size_t bytes, void **handle) {
  (void)c, (void)bytes;
  *handle = memory;
  return SUCCESS;
}

int ncclCommWindowRegister(struct comm *c, void *memory, size_t bytes, void **window, int flags) {
  (void)c, (void)bytes;
  *window = setting("STANDIN_NCCL_NO_WINDOW") ? NULL : memory;
  return flags == 1 ? SUCCESS : INVALID_ARGUMENT;
}
#endif
