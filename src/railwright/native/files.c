/* Reads and writes of a file at a depth by one or more threads: io_uring (raw system calls), or pread and pwrite. */
#include "railwright.h"

#include <errno.h>
#include <linux/fs.h>
#include <linux/fiemap.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

int64_t rw_count_wrong(const unsigned char *buffer, size_t bytes, uint64_t seed, uint64_t position);

void rw_fill(unsigned char *buffer, size_t bytes, uint64_t seed, uint64_t position);

enum { CHECK_NONE, CHECK_PATTERN, CHECK_STAMPED };
enum { SECTOR = 512, WORD = 8 };
enum { RW_SHORT_WRITE = -1101 };

/* One pass over a list of blocks; the layout is also in `native/files.py`. Thread t has a ring (or a pool of `depth`
 * further threads), buffers and a part of the list of its own. */
struct rw_pass {
  int fd;
  int threads;
  int depth;              /* operations in flight per thread */
  int write;              /* write stamped blocks; otherwise read */
  int64_t count;          /* operations in this pass */
  int64_t bytes;          /* of one operation */
  const int64_t *at;      /* offset of each block in `fd` */
  const int64_t *means;   /* the position in the pattern that each block has */
  const int *cpus;        /* the CPU of each thread, or NULL */
  unsigned char *buffers; /* threads x depth x bytes, aligned for O_DIRECT */
  double *latencies;      /* one per operation; within a thread in the order of completion */
  uint64_t seed;
  int check;              /* compare every byte read; otherwise nothing is inspected while the clock runs */
  int sync;               /* fsync after the last operation, timed separately */
  int64_t wrong;          /* out: wrong bytes */
  double elapsed;         /* out: from the first start to the last end of the threads */
  double sync_elapsed;    /* out */
  double cpu;             /* out: CPU seconds of this whole process from the start to the end of the threads */
};

struct ring {
  int fd;
  unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
  struct io_uring_sqe *sqes;
  struct io_uring_cqe *cqes;
  void *sq_map, *cq_map;
  size_t sq_bytes, cq_bytes, sqe_bytes;
};

static int ring_open(struct ring *r, unsigned entries) {
  struct io_uring_params p = {0};
  memset(r, 0, sizeof *r);
  r->fd = (int)syscall(__NR_io_uring_setup, entries, &p);
  if (r->fd < 0) return -errno;
  r->sq_bytes = p.sq_off.array + p.sq_entries * sizeof(unsigned);
  r->cq_bytes = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
  r->sqe_bytes = p.sq_entries * sizeof(struct io_uring_sqe);
  r->sq_map = mmap(NULL, r->sq_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, IORING_OFF_SQ_RING);
  r->cq_map = mmap(NULL, r->cq_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, IORING_OFF_CQ_RING);
  r->sqes = mmap(NULL, r->sqe_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, IORING_OFF_SQES);
  if (r->sq_map == MAP_FAILED || r->cq_map == MAP_FAILED || (void *)r->sqes == MAP_FAILED) return RW_NO_MEMORY;
  char *sq = r->sq_map, *cq = r->cq_map;
  r->sq_tail = (unsigned *)(sq + p.sq_off.tail);
  r->sq_mask = (unsigned *)(sq + p.sq_off.ring_mask);
  r->sq_array = (unsigned *)(sq + p.sq_off.array);
  r->cq_head = (unsigned *)(cq + p.cq_off.head);
  r->cq_tail = (unsigned *)(cq + p.cq_off.tail);
  r->cq_mask = (unsigned *)(cq + p.cq_off.ring_mask);
  r->cqes = (struct io_uring_cqe *)(cq + p.cq_off.cqes);
  return RW_OK;
}

static void ring_close(struct ring *r) {
  if (r->sq_map && r->sq_map != MAP_FAILED) munmap(r->sq_map, r->sq_bytes);
  if (r->cq_map && r->cq_map != MAP_FAILED) munmap(r->cq_map, r->cq_bytes);
  if (r->sqes && (void *)r->sqes != MAP_FAILED) munmap(r->sqes, r->sqe_bytes);
  if (r->fd >= 0) close(r->fd);
}

/* A gate where the threads wait until all have set up. They then start at once, or leave if one of them failed. */
struct gate {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int waiting, open; /* open: 1 go, -1 leave */
};

/* The part of the list of one thread: `first` to `end`. */
struct part {
  struct rw_pass *pass;
  struct gate *gate;
  _Atomic int *failed; /* the first error of any thread */
  int64_t first, end;
  unsigned char *buffers;
  int cpu;
  _Atomic int64_t next, done; /* used by a pool, where several threads share the part */
};

struct worker {
  struct part *part;
  unsigned char *buffer; /* of one thread of a pool */
  pthread_t thread;
  int64_t wrong;
  double start, stop;
};

static int pass_gate(struct gate *g) {
  pthread_mutex_lock(&g->mutex);
  g->waiting++;
  pthread_cond_broadcast(&g->changed);
  while (!g->open) pthread_cond_wait(&g->changed, &g->mutex);
  int open = g->open;
  pthread_mutex_unlock(&g->mutex);
  return open > 0;
}

static void open_gate(struct gate *g, int expected, int open) {
  pthread_mutex_lock(&g->mutex);
  while (g->waiting < expected) pthread_cond_wait(&g->changed, &g->mutex);
  g->open = open;
  pthread_cond_broadcast(&g->changed);
  pthread_mutex_unlock(&g->mutex);
}

static void fail(struct part *p, int status) {
  int none = RW_OK;
  atomic_compare_exchange_strong(p->failed, &none, status);
}

/* A written block is the pattern of its seed from 0 on, with the pattern of its position in the first word of each
 * sector. No sector equals another, at the cost of fio's scrambling rather than of a full fill. */
static void stamp(const struct rw_pass *w, unsigned char *buffer, int64_t index) {
  for (int64_t o = 0; o < w->bytes; o += SECTOR) rw_fill(buffer + o, WORD, w->seed, (uint64_t)(w->means[index] + o));
}

static int64_t count_wrong(const struct rw_pass *w, const unsigned char *buffer, int64_t index) {
  uint64_t position = (uint64_t)w->means[index];
  int64_t wrong = 0;
  if (w->check == CHECK_PATTERN) return rw_count_wrong(buffer, (size_t)w->bytes, w->seed, position);
  for (uint64_t o = 0; o < (uint64_t)w->bytes; o += SECTOR) {
    wrong += rw_count_wrong(buffer + o, WORD, w->seed, position + o);
    wrong += rw_count_wrong(buffer + o + WORD, SECTOR - WORD, w->seed, o + WORD);
  }
  return wrong;
}

/* Returns the outcome of an operation: a negative errno, or 0. A short read is an error, because the file is
 * complete. */
static int settle(const struct rw_pass *w, int64_t result, int64_t index, const unsigned char *buffer, int64_t *wrong) {
  if (result < 0) return (int)result;
  if (result != w->bytes) return w->write ? RW_SHORT_WRITE : -ENODATA;
  if (w->check) *wrong += count_wrong(w, buffer, index);
  return RW_OK;
}

struct flight {
  struct ring ring;
  int64_t *index; /* slot -> its operation */
  double *started;
  int64_t next, done;
  int flying;
};

/* Submits operations one at a time, as fio does. A batch would reach the device only after its last operation was
 * prepared, and a virtual disk then works in lockstep with us (15 % fewer reads/s at a depth of 32). */
static int start_one(struct part *p, struct flight *f, int slot) {
  struct rw_pass *w = p->pass;
  struct ring *r = &f->ring;
  unsigned char *buffer = p->buffers + (int64_t)slot * w->bytes;
  int64_t index = f->next;
  if (w->write) stamp(w, buffer, index);
  f->index[slot] = index;
  f->started[slot] = rw_now();
  unsigned tail = *r->sq_tail, at = tail & *r->sq_mask;
  struct io_uring_sqe *sqe = &r->sqes[at];
  memset(sqe, 0, sizeof *sqe);
  sqe->opcode = w->write ? IORING_OP_WRITE : IORING_OP_READ;
  sqe->fd = w->fd;
  sqe->off = (uint64_t)w->at[index];
  sqe->addr = (uint64_t)(uintptr_t)buffer;
  sqe->len = (uint32_t)w->bytes;
  sqe->user_data = (uint64_t)slot;
  r->sq_array[at] = at;
  __atomic_store_n(r->sq_tail, tail + 1, __ATOMIC_RELEASE);
  for (;;) {
    long taken = syscall(__NR_io_uring_enter, r->fd, 1, 0, 0, NULL, 0);
    if (taken == 1) return f->next++, f->flying++, RW_OK;
    if (taken < 0 && errno != EINTR && errno != EAGAIN && errno != EBUSY) return -errno;
  }
}

/* Collects completions and starts an operation in each slot that became free. */
static int ring_turn(struct worker *me, struct flight *f) {
  struct part *p = me->part;
  struct rw_pass *w = p->pass;
  struct ring *r = &f->ring;
  int status = RW_OK;
  unsigned head = *r->cq_head, tail = __atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE);
  for (; head != tail; head++) {
    struct io_uring_cqe *cqe = &r->cqes[head & *r->cq_mask];
    int slot = (int)cqe->user_data, result = cqe->res;
    w->latencies[f->done++] = rw_now() - f->started[slot];
    f->flying--;
    __atomic_store_n(r->cq_head, head + 1, __ATOMIC_RELEASE);
    int one = settle(w, result, f->index[slot], p->buffers + (int64_t)slot * w->bytes, &me->wrong);
    if (one) status = status ? status : one;
    if (!status && f->next < p->end) status = start_one(p, f, slot);
  }
  return status;
}

static int ring_wait(struct ring *r) {
  if (*r->cq_head != __atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE)) return RW_OK;
  long entered = syscall(__NR_io_uring_enter, r->fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0);
  return entered < 0 && errno != EINTR ? -errno : RW_OK;
}

static int ring_work(struct worker *me, struct flight *f) {
  struct part *p = me->part;
  int status = RW_OK;
  for (int slot = 0; !status && slot < p->pass->depth && f->next < p->end; slot++) status = start_one(p, f, slot);
  while (!status && f->done < p->end && !atomic_load_explicit(p->failed, memory_order_relaxed)) {
    status = ring_wait(&f->ring);
    if (!status) status = ring_turn(me, f);
  }
  int64_t end = p->end;
  /* After an error, operations in flight still access the buffers: wait for them and start nothing new. */
  for (p->end = f->next; f->flying && !ring_wait(&f->ring);) ring_turn(me, f);
  p->end = end;
  return status;
}

static void *ring_thread(void *argument) {
  struct worker *me = argument;
  struct part *p = me->part;
  size_t depth = (size_t)p->pass->depth;
  struct flight f = {.index = calloc(depth, sizeof(int64_t)), .started = calloc(depth, sizeof(double)),
                     .next = p->first, .done = p->first};
  int status = p->cpu >= 0 ? rw_pin(p->cpu) : RW_OK, opened = ring_open(&f.ring, (unsigned)depth);
  if (!status) status = !f.index || !f.started ? RW_NO_MEMORY : opened;
  if (status) fail(p, status);
  if (pass_gate(p->gate) && !atomic_load(p->failed)) {
    me->start = rw_now();
    status = ring_work(me, &f);
    me->stop = rw_now();
    if (status) fail(p, status);
  }
  ring_close(&f.ring);
  free(f.index), free(f.started);
  return NULL;
}

static void *pool_thread(void *argument) {
  struct worker *me = argument;
  struct part *p = me->part;
  struct rw_pass *w = p->pass;
  int status = p->cpu >= 0 ? rw_pin(p->cpu) : RW_OK;
  if (status) fail(p, status);
  if (!pass_gate(p->gate)) return NULL;
  me->start = rw_now();
  for (int64_t index; !atomic_load(p->failed) && (index = atomic_fetch_add(&p->next, 1)) < p->end;) {
    if (w->write) stamp(w, me->buffer, index);
    double start = rw_now();
    int64_t got = w->write ? pwrite(w->fd, me->buffer, (size_t)w->bytes, w->at[index])
                           : pread(w->fd, me->buffer, (size_t)w->bytes, w->at[index]);
    w->latencies[atomic_fetch_add(&p->done, 1)] = rw_now() - start;
    status = settle(w, got < 0 ? -errno : got, index, me->buffer, &me->wrong);
    if (status) fail(p, status);
  }
  me->stop = rw_now();
  return NULL;
}

/* Returns user and system time together. Each alone is sampled by ticks, but their sum is exact. */
static double cpu_seconds(void) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* Starts the workers, releases them at once, and sums their results. CPU seconds are those of the whole process: the
 * kernel's io_uring workers are threads of the process that opened the ring (Linux 5.12), and all others only wait. */
static void run_workers(struct rw_pass *w, struct gate *gate, struct worker *workers, int count, int per_part,
                        void *(*work)(void *), struct part *parts, _Atomic int *failed) {
  int started = 0;
  for (; started < count; started++) {
    struct worker *one = &workers[started];
    one->part = &parts[started / per_part];
    one->buffer = one->part->buffers + (int64_t)(started % per_part) * w->bytes;
    if (pthread_create(&one->thread, NULL, work, one)) {
      fail(parts, RW_NO_THREAD);
      break;
    }
  }
  open_gate(gate, started, 0); /* all have set up */
  double cpu = cpu_seconds();
  open_gate(gate, started, atomic_load(failed) ? -1 : 1);
  double first = 0, last = 0;
  for (int t = 0; t < started; t++) {
    struct worker *one = &workers[t];
    pthread_join(one->thread, NULL);
    w->wrong += one->wrong;
    if (!first || one->start < first) first = one->start;
    if (one->stop > last) last = one->stop;
  }
  w->cpu = cpu_seconds() - cpu;
  w->elapsed = last - first;
}

/* Runs a pass. With `uring` each thread has a ring, otherwise a pool of `depth` threads that read or write one block
 * each. Returns RW_OK, a negative errno, or one of our own codes; the results of the pass are then invalid. */
int rw_file_pass(struct rw_pass *w, int uring) {
  int per_part = uring ? 1 : w->depth, count = w->threads * per_part;
  struct gate gate = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
  _Atomic int failed = RW_OK;
  struct part *parts = calloc((size_t)w->threads, sizeof *parts);
  struct worker *workers = calloc((size_t)count, sizeof *workers);
  w->wrong = 0, w->elapsed = w->sync_elapsed = w->cpu = 0;
  if (parts && workers) {
    for (int t = 0; t < w->threads; t++) {
      struct part *p = &parts[t];
      p->pass = w, p->gate = &gate, p->failed = &failed, p->cpu = w->cpus ? w->cpus[t] : -1;
      p->first = w->count * t / w->threads, p->end = w->count * (t + 1) / w->threads;
      p->buffers = w->buffers + (int64_t)t * w->depth * w->bytes;
      atomic_store(&p->next, p->first), atomic_store(&p->done, p->first);
      for (int slot = 0; w->write && slot < w->depth; slot++)
        rw_fill(p->buffers + (int64_t)slot * w->bytes, (size_t)w->bytes, w->seed, 0);
    }
    run_workers(w, &gate, workers, count, per_part, uring ? ring_thread : pool_thread, parts, &failed);
  } else {
    atomic_store(&failed, RW_NO_MEMORY);
  }
  if (w->sync && !atomic_load(&failed)) {
    double start = rw_now();
    if (fsync(w->fd)) atomic_store(&failed, -errno);
    w->sync_elapsed = rw_now() - start;
  }
  free(parts), free(workers);
  return atomic_load(&failed);
}

/* Finds the byte ranges of a file on its block device (FIEMAP): `extents` gets logical, physical, length, flags for
 * each. Returns their number, or a negative errno. */
int rw_file_extents(int fd, int limit, uint64_t *extents) {
  size_t bytes = sizeof(struct fiemap) + (size_t)limit * sizeof(struct fiemap_extent);
  struct fiemap *map = calloc(1, bytes);
  if (!map) return RW_NO_MEMORY;
  map->fm_length = FIEMAP_MAX_OFFSET;
  map->fm_flags = FIEMAP_FLAG_SYNC;
  map->fm_extent_count = (uint32_t)limit;
  int found = ioctl(fd, FS_IOC_FIEMAP, map) ? -errno : (int)map->fm_mapped_extents;
  for (int i = 0; i < found; i++) {
    const struct fiemap_extent *e = &map->fm_extents[i];
    uint64_t row[4] = {e->fe_logical, e->fe_physical, e->fe_length, e->fe_flags};
    memcpy(extents + 4 * (size_t)i, row, sizeof row);
  }
  free(map);
  return found;
}
