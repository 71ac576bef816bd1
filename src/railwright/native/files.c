/* File reads at a depth, by io_uring (raw system calls) or by a pool of pread threads. */
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
#include <sys/syscall.h>
#include <unistd.h>

int64_t rw_count_wrong(const unsigned char *buffer, size_t bytes, uint64_t seed, uint64_t position);

/* One pass of reads; laid out alike in `native/files.py`. */
struct rw_reads {
  int fd;
  int depth;            /* reads in flight, or threads */
  int64_t count;        /* reads in this pass */
  int64_t bytes;        /* of one read */
  const int64_t *from;  /* offset of each read in what `fd` is */
  const int64_t *means; /* the position in the pattern that each read should return */
  unsigned char *buffers; /* depth x bytes, aligned for O_DIRECT */
  double *latencies;    /* one per read, in the order of completion */
  uint64_t seed;
  int check;            /* compare every byte; else nothing is looked at while the clock runs */
  int64_t wrong;        /* out: wrong bytes */
  double elapsed;       /* out */
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

static void ring_put(struct ring *r, const struct rw_reads *w, int slot, int64_t index) {
  unsigned tail = *r->sq_tail, at = tail & *r->sq_mask;
  struct io_uring_sqe *sqe = &r->sqes[at];
  memset(sqe, 0, sizeof *sqe);
  sqe->opcode = IORING_OP_READ;
  sqe->fd = w->fd;
  sqe->off = (uint64_t)w->from[index];
  sqe->addr = (uint64_t)(uintptr_t)(w->buffers + (int64_t)slot * w->bytes);
  sqe->len = (uint32_t)w->bytes;
  sqe->user_data = (uint64_t)slot;
  r->sq_array[at] = at;
  __atomic_store_n(r->sq_tail, tail + 1, __ATOMIC_RELEASE);
}

/* The outcome of one read: a negative errno, or 0. A short read is an error: the file is whole. */
static int settle(struct rw_reads *w, int64_t result, int64_t index, const unsigned char *buffer, int64_t *wrong) {
  if (result < 0) return (int)result;
  if (result != w->bytes) return -ENODATA;
  if (w->check) *wrong += rw_count_wrong(buffer, (size_t)w->bytes, w->seed, (uint64_t)w->means[index]);
  return RW_OK;
}

/* Hands the kernel one read at a time, as fio does: a batch would reach the device only when its last read has been
 * prepared, and a virtual disk then works in lockstep with us (15 % fewer reads/s at a depth of 32). */
static int ring_submit(struct ring *r, struct rw_reads *w, int slot, int64_t index) {
  ring_put(r, w, slot, index);
  for (;;) {
    long taken = syscall(__NR_io_uring_enter, r->fd, 1, 0, 0, NULL, 0);
    if (taken == 1) return RW_OK;
    if (taken < 0 && errno != EINTR && errno != EAGAIN && errno != EBUSY) return -errno;
  }
}

struct flight {
  int64_t *reading; /* slot -> index of its read */
  double *started;
  int64_t next, done;
};

static int start_read(struct ring *r, struct rw_reads *w, struct flight *f, int slot) {
  f->reading[slot] = f->next;
  f->started[slot] = rw_now();
  return ring_submit(r, w, slot, f->next++);
}

/* Takes what has completed and starts a read in each slot that became free. */
static int ring_turn(struct ring *r, struct rw_reads *w, struct flight *f) {
  unsigned head = *r->cq_head, tail = __atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE);
  for (; head != tail; head++) {
    struct io_uring_cqe *cqe = &r->cqes[head & *r->cq_mask];
    int slot = (int)cqe->user_data, result = cqe->res;
    w->latencies[f->done++] = rw_now() - f->started[slot];
    __atomic_store_n(r->cq_head, head + 1, __ATOMIC_RELEASE);
    int status = settle(w, result, f->reading[slot], w->buffers + (int64_t)slot * w->bytes, &w->wrong);
    if (!status && f->next < w->count) status = start_read(r, w, f, slot);
    if (status) return status;
  }
  return RW_OK;
}

int rw_read_uring(struct rw_reads *w) {
  struct ring ring;
  struct flight flight = {.reading = calloc((size_t)w->depth, sizeof(int64_t)),
                          .started = calloc((size_t)w->depth, sizeof(double))};
  int status = ring_open(&ring, (unsigned)w->depth);
  if (!status && (!flight.reading || !flight.started)) status = RW_NO_MEMORY;
  w->wrong = 0;
  double start = rw_now();
  for (int slot = 0; !status && slot < w->depth && flight.next < w->count; slot++)
    status = start_read(&ring, w, &flight, slot);
  while (!status && flight.done < w->count) {
    if (*ring.cq_head == __atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE)) {
      long entered = syscall(__NR_io_uring_enter, ring.fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0);
      if (entered < 0 && errno != EINTR) status = -errno;
    }
    if (!status) status = ring_turn(&ring, w, &flight);
  }
  w->elapsed = rw_now() - start;
  /* After an error reads may still be in flight into the buffers: closing the ring waits for or cancels them. */
  ring_close(&ring);
  free(flight.reading), free(flight.started);
  return status;
}

struct reader {
  struct rw_reads *work;
  _Atomic int64_t *next, *done;
  _Atomic int *failed;
  unsigned char *buffer;
  int64_t wrong;
  pthread_t thread;
};

static void *read_thread(void *argument) {
  struct reader *r = argument;
  struct rw_reads *w = r->work;
  for (int64_t index; (index = atomic_fetch_add(r->next, 1)) < w->count && !atomic_load(r->failed);) {
    double start = rw_now();
    int64_t got = pread(w->fd, r->buffer, (size_t)w->bytes, w->from[index]);
    w->latencies[atomic_fetch_add(r->done, 1)] = rw_now() - start;
    int status = settle(w, got < 0 ? -errno : got, index, r->buffer, &r->wrong);
    if (status) atomic_store(r->failed, status);
  }
  return NULL;
}

int rw_read_threads(struct rw_reads *w) {
  _Atomic int64_t next = 0, done = 0;
  _Atomic int failed = 0;
  struct reader *readers = calloc((size_t)w->depth, sizeof *readers);
  if (!readers) return RW_NO_MEMORY;
  w->wrong = 0;
  double start = rw_now();
  int started = 0;
  for (; started < w->depth; started++) {
    readers[started] = (struct reader){.work = w, .next = &next, .done = &done, .failed = &failed,
                                       .buffer = w->buffers + (int64_t)started * w->bytes};
    if (pthread_create(&readers[started].thread, NULL, read_thread, &readers[started])) {
      atomic_store(&failed, RW_NO_THREAD);
      break;
    }
  }
  for (int t = 0; t < started; t++) {
    pthread_join(readers[t].thread, NULL);
    w->wrong += readers[t].wrong;
  }
  w->elapsed = rw_now() - start;
  free(readers);
  return atomic_load(&failed);
}

/* Where on its block device a file's byte ranges lie (FIEMAP): `extents` gets logical, physical, length, flags for
 * each. Returns how many, or a negative errno. */
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
