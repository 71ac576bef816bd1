/* Stands in for libnccl.so.2 (2.28.9): real data moves between threads and processes, through a file that all ranks
 * map and nobody finds any more once all are there. Every operation is a host function on the stand-in's stream.
 *
 * Faults: STANDIN_NCCL_DAMAGE=1 the first byte of what is received is wrong; STANDIN_NCCL_CORRUPT=1 the last float of
 * rank 1 is wrong in results of more than 1,000 floats; STANDIN_NCCL_KILL=N rank 1 is killed at its N-th operation;
 * STANDIN_NCCL_REFUSE=N rank 1 alone is told that its N-th operation cannot be; STANDIN_NCCL_OTHER=1 another algorithm
 * runs than NCCL_ALGO says; STANDIN_NCCL_NO_WINDOW=1 no symmetric window can be had; STANDIN_NCCL_COUNT=FILE says at the
 * end how many operations rank 0 was given, and of how many of them a line of the log was written;
 * STANDIN_NCCL_VERSION.
 * Built with OLD, it is NCCL 2.18: without ncclAlltoAll, windows, ncclMemAlloc and the log that can be switched. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sched.h>
#include <unistd.h>

enum { SUCCESS = 0, CUDA_FAILED = 1, INVALID_ARGUMENT = 4, INVALID_USAGE = 5 };
enum { MOST_RANKS = 16, SLOT_FLOATS = 1 << 16, FLOAT16 = 6, FLOAT32 = 7, BFLOAT16 = 9 };
enum kind { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, BROADCAST, SENDS };

struct id {
  char internal[128];
};

struct shared {
  atomic_int attached, waiting, round;
  size_t wanted[MOST_RANKS][MOST_RANKS]; /* floats from a rank to a rank, of one group of sends */
  float slots[MOST_RANKS][SLOT_FLOATS];
};

struct comm {
  struct shared *shared;
  int rank, ranks;
  long operations, logged;
  char file[512];
};

struct transfer {
  float *at;
  size_t count;
  int other, sends;
};

struct work {
  enum kind kind;
  struct comm *comm;
  void *stream;
  const float *out;
  float *in;
  size_t count;
  int root, type, transfers, corrupt;
  struct transfer transfer[2 * MOST_RANKS];
};

static char last_error[300];
static FILE *log_file;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static __thread int depth;
static __thread struct work *sends; /* the sends and receives of the open group */

static long setting(const char *name) {
  const char *text = getenv(name);
  return text ? atol(text) : 0;
}

static int cuda(const char *name, void *a, void *b, void *c) {
  int (*call)(void *, void *, void *) = (int (*)(void *, void *, void *))dlsym(RTLD_DEFAULT, name);
  return call ? call(a, b, c) : -1;
}

/* ---- what moves ---- */

static void barrier(struct comm *c) {
  struct shared *s = c->shared;
  int round = atomic_load(&s->round);
  if (atomic_fetch_add(&s->waiting, 1) + 1 == c->ranks) {
    atomic_store(&s->waiting, 0);
    atomic_fetch_add(&s->round, 1);
  } else {
    while (atomic_load(&s->round) == round) sched_yield();
  }
}

static void take(const struct work *w, size_t at, size_t floats) {
  struct shared *s = w->comm->shared;
  int sums = w->kind == ALL_REDUCE || w->kind == REDUCE_SCATTER;
  for (int from = 0; from < w->comm->ranks; from++) {
    if (w->kind == BROADCAST && from != w->root) continue;
    float *to = w->kind == ALL_GATHER || w->kind == ALL_TO_ALL ? w->in + (size_t)from * w->count + at : w->in + at;
    for (size_t i = 0; i < floats; i++) to[i] = sums && from ? to[i] + s->slots[from][i] : s->slots[from][i];
  }
}

static float widened(uint16_t bits, int type) {
  union { uint32_t bits; float value; } wide = {(uint32_t)bits << 16};
  union { uint16_t bits; _Float16 value; } half = {bits};
  return type == BFLOAT16 ? wide.value : (float)half.value;
}

static uint16_t narrowed(float value, int type) {
  union { float value; uint32_t bits; } wide = {value};
  union { _Float16 value; uint16_t bits; } half = {(_Float16)value};
  return type == BFLOAT16 ? (uint16_t)((wide.bits + 0x7fff + (wide.bits >> 16 & 1)) >> 16) : half.bits;
}

/* A sum of 16-bit reals, rounded once: the same on every rank. */
static void all_reduce_halves(const struct work *w) {
  struct comm *c = w->comm;
  const uint16_t *out = (const uint16_t *)w->out;
  uint16_t *in = (uint16_t *)w->in;
  for (size_t at = 0; at < w->count; at += SLOT_FLOATS) {
    size_t some = w->count - at < SLOT_FLOATS ? w->count - at : SLOT_FLOATS;
    memcpy(c->shared->slots[c->rank], out + at, some * sizeof *out);
    barrier(c);
    for (size_t i = 0; i < some; i++) {
      float sum = 0;
      for (int from = 0; from < c->ranks; from++) sum += widened(((uint16_t *)c->shared->slots[from])[i], w->type);
      in[at + i] = narrowed(sum, w->type);
    }
    barrier(c);
  }
}

static void collective(const struct work *w) {
  struct comm *c = w->comm;
  int parts = w->kind == REDUCE_SCATTER || w->kind == ALL_TO_ALL ? c->ranks : 1;
  for (int part = 0; part < parts; part++)
    for (size_t at = 0; at < w->count; at += SLOT_FLOATS) {
      size_t floats = w->count - at < SLOT_FLOATS ? w->count - at : SLOT_FLOATS;
      memcpy(c->shared->slots[c->rank], w->out + (size_t)part * w->count + at, floats * sizeof(float));
      barrier(c);
      if (parts == 1 || part == c->rank) take(w, at, floats);
      barrier(c);
    }
}

static struct transfer *transfer_of(struct work *w, int other, int is_send) {
  for (int i = 0; i < w->transfers; i++)
    if (w->transfer[i].other == other && w->transfer[i].sends == is_send) return &w->transfer[i];
  return NULL;
}

static void exchange(struct work *w) {
  struct comm *c = w->comm;
  memset(c->shared->wanted[c->rank], 0, sizeof c->shared->wanted[c->rank]);
  for (int i = 0; i < w->transfers; i++)
    if (w->transfer[i].sends) c->shared->wanted[c->rank][w->transfer[i].other] = w->transfer[i].count;
  barrier(c);
  for (int from = 0; from < c->ranks; from++)
    for (int to = 0; to < c->ranks; to++)
      for (size_t at = 0, all = c->shared->wanted[from][to]; at < all; at += SLOT_FLOATS) {
        size_t bytes = (all - at < SLOT_FLOATS ? all - at : SLOT_FLOATS) * sizeof(float);
        if (from == c->rank) memcpy(c->shared->slots[from], transfer_of(w, to, 1)->at + at, bytes);
        barrier(c);
        struct transfer *mine = to == c->rank ? transfer_of(w, from, 0) : NULL;
        if (mine) memcpy(mine->at + at, c->shared->slots[from], bytes);
        if (mine && !at && setting("STANDIN_NCCL_DAMAGE")) *(char *)mine->at ^= 1;
        barrier(c);
      }
  barrier(c);
}

static void perform(void *data) {
  struct work *w = data;
  if (w->kind == SENDS) exchange(w);
  else if (w->type == FLOAT32) collective(w);
  else all_reduce_halves(w);
  if (w->corrupt && w->type == FLOAT32) w->in[w->count - 1] += 1;
  else if (w->corrupt) ((uint16_t *)w->in)[w->count - 1] ^= 1;
}

/* ---- the log, and what it says was chosen ---- */

static int logs(void) {
  const char *level = getenv("NCCL_DEBUG"), *parts = getenv("NCCL_DEBUG_SUBSYS"), *name = getenv("NCCL_DEBUG_FILE");
  if (!level || strcmp(level, "INFO") || !parts || !strstr(parts, "TUNING")) return 0;
  pthread_mutex_lock(&log_lock);
  if (!log_file && name) log_file = fopen(name, "w");
  pthread_mutex_unlock(&log_lock);
  return log_file != NULL;
}

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
  if (!logs()) return SUCCESS;
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
  if (type != FLOAT32 && !halves) return INVALID_ARGUMENT;
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

int ncclGroupStart(void) {
  depth++;
  return SUCCESS;
}

int ncclGroupEnd(void) {
  if (--depth || !sends) return SUCCESS;
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
  return SUCCESS;
}

struct config {
  size_t size;
  unsigned magic, version;
};

int ncclCommInitRankConfig(struct comm **made, int ranks, struct id id, int rank, const struct config *config) {
  const char *folder = getenv("TMPDIR");
  if (config->magic != 0xcafebeef || config->size < 24 || ranks > MOST_RANKS) return INVALID_ARGUMENT;
  struct comm *c = calloc(1, sizeof *c);
  c->rank = rank, c->ranks = ranks;
  snprintf(c->file, sizeof c->file, "%s/nccl-stand-in-%.32s", folder ? folder : "/dev/shm", id.internal);
  int file = open(c->file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ftruncate(file, sizeof *c->shared)) return CUDA_FAILED;
  c->shared = mmap(NULL, sizeof *c->shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (c->shared == MAP_FAILED) return CUDA_FAILED;
  if (atomic_fetch_add(&c->shared->attached, 1) + 1 == ranks) unlink(c->file);
  *made = c;
  return SUCCESS;
}

int ncclCommDestroy(struct comm *c) {
  const char *name = getenv("STANDIN_NCCL_COUNT");
  FILE *file = name && !c->rank ? fopen(name, "a") : NULL;
  if (file) {
    fprintf(file, "%ld %ld\n", c->operations, c->logged);
    fclose(file);
  }
  munmap(c->shared, sizeof *c->shared);
  free(c);
  return SUCCESS;
}

int ncclCommGetAsyncError(struct comm *c, int *error) {
  (void)c;
  *error = SUCCESS;
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
