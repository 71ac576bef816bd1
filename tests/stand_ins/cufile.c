/* Stands in for libcufile.so.0: the memory of a stand-in GPU is host memory, so reads and writes are pread and pwrite.
 *
 * It reads the settings file that CUFILE_ENV_PATH_JSON names, as far as it knows its words, and counts what it did as
 * the library does. STANDIN_CUFILE_ROUTE is the best way that this machine has: posix (the default), nvfs or p2p.
 * Faults: STANDIN_CUFILE_OPEN=N the driver does not open, with error N; STANDIN_CUFILE_READ=N a read fails with N;
 * STANDIN_CUFILE_CORRUPT=1 a byte of each read and write is wrong; STANDIN_CUFILE_SHORT=1 half of it is moved;
 * STANDIN_CUFILE_UNCOUNTED=1 there are no statistics; STANDIN_CUFILE_OLD=1 they are laid out as in 1.15, which counts
 * each operation twice in the total; STANDIN_CUFILE_HOST=1 no GPU's memory is moved; STANDIN_CUFILE_SILENT=1 its log
 * does not tell the way; STANDIN_CUFILE_CRASH=N a read of N bytes crashes;
 * STANDIN_CUFILE_FALLS_BACK=1 it uses posix whatever it was told; STANDIN_CUFILE_NO_UDEV=vda files on that drive are
 * refused, as where udev's database does not tell its file system. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum { NOT_LOADED = 5001, INVALID = 5022, INTERNAL = 5030, NOT_REGISTERED = 5027, NOT_OPEN = 5001, DIO_NOT_SET = 5020 };
enum { P2P = 5, NVFS = 6, POSIX = 7, TOTAL = 4, WRITES = 13, PER_GPU = 29, LEVEL_2_OLD = 1024, LEVEL_2 = 1136 };
enum { BYTES_AT = 96, BATCHES_AT = 320, BATCH_BYTES_AT = 416, COMPLETE = 0x10, MOST_BATCH = 1024 };

struct outcome {
  int error, cuda;
};

struct description {
  int type;
  union {
    int fd;
    void *other;
  } file;
  const void *operations;
};

static int is_open, level, counts, has_stopped, route = POSIX;
static _Atomic uint64_t reads, writes, read_bytes, written_bytes, batched, batch_read_bytes, batch_written_bytes;

static int fault(const char *name) {
  const char *text = getenv(name);
  return text ? atoi(text) : 0;
}

static struct outcome outcome(int error) { return (struct outcome){error, 0}; }

static void settings(char *text, size_t room) {
  const char *path = getenv("CUFILE_ENV_PATH_JSON");
  FILE *file = path ? fopen(path, "r") : NULL;
  size_t got = file ? fread(text, 1, room - 1, file) : 0;
  text[got] = '\0';
  if (file) fclose(file);
}

/* Its log's name has the process and the time in it, since 1.14. */
static void write_log(const char *text, const char *line) {
  char path[4096], *start = strstr(text, "\"dir\": \"");
  if (!start) return;
  start += strlen("\"dir\": \"");
  snprintf(path, sizeof path, "%.*s/cufile_%d_2026-11-22.04:45:01.log", (int)strcspn(start, "\""), start, getpid());
  FILE *file = fopen(path, "a");
  if (!file) return;
  if (line) fprintf(file, " 22-11-2026 04:45:01:123 [pid=1 tid=1] %s\n", line);
  fclose(file);
}

struct outcome cuFileDriverOpen(void) {
  char text[8192];
  const char *best = getenv("STANDIN_CUFILE_ROUTE");
  if (fault("STANDIN_CUFILE_OPEN")) return outcome(fault("STANDIN_CUFILE_OPEN"));
  settings(text, sizeof text);
  route = !best ? POSIX : !strcmp(best, "nvfs") ? NVFS : !strcmp(best, "p2p") ? P2P : POSIX;
  if (route == POSIX && strstr(text, "\"allow_compat_mode\": false")) return outcome(NOT_LOADED);
  if (strstr(text, "\"force_compat_mode\": true") || fault("STANDIN_CUFILE_FALLS_BACK")) route = POSIX;
  int says = route == POSIX && !fault("STANDIN_CUFILE_SILENT");
  write_log(text, says ? "INFO   cufio:318 using cuFile posix read/write with compat mode enabled" : NULL);
  is_open = 1;
  return outcome(0);
}

struct outcome cuFileDriverClose(void) { return is_open = 0, outcome(0); }

struct outcome cuFileDriverClose_v2(void) { return cuFileDriverClose(); }

struct outcome cuFileDriverGetProperties(unsigned *p) {
  p[0] = route == NVFS ? 2 : 0, p[1] = route == NVFS ? 26 : 0; /* the version of nvidia-fs */
  p[7] = route == POSIX ? 2 : 0;                               /* the control flags, behind two sizes */
  p[8] = 7 | (route == P2P ? 16 : 0);                          /* the features */
  return outcome(is_open ? 0 : NOT_OPEN);
}

struct outcome cuFileGetVersion(int *version) { return *version = 1200, outcome(0); }

struct outcome cuFileHandleRegister(void **handle, struct description *d) {
  if (!is_open) return outcome(NOT_OPEN);
  if (getenv("STANDIN_CUFILE_NO_UDEV")) {
    char text[8192], line[200];
    settings(text, sizeof text);
    snprintf(line, sizeof line, "ERROR  cufio-udev:67 udev property not found: ID_FS_USAGE %s",
             getenv("STANDIN_CUFILE_NO_UDEV"));
    write_log(text, line);
    write_log(text, "ERROR  cufio:370 cuFileHandleRegister error: file descriptor is not registered");
    return outcome(NOT_REGISTERED);
  }
  int *kept = malloc(sizeof *kept);
  *kept = d->file.fd;
  *handle = kept;
  return outcome(d->type == 1 ? 0 : INVALID);
}

void cuFileHandleDeregister(void *handle) { free(handle); }

struct outcome cuFileBufRegister(const void *base, size_t bytes, int flags) {
  return outcome(!is_open ? NOT_OPEN : base && bytes && !flags ? 0 : INVALID);
}

struct outcome cuFileBufDeregister(const void *base) { return outcome(base ? 0 : INVALID); }

ssize_t cuFileRead(void *handle, void *base, size_t bytes, off_t at, off_t in_memory) {
  char *to = (char *)base + in_memory;
  if (!handle) return -NOT_REGISTERED;
  if (fault("STANDIN_CUFILE_READ")) return -fault("STANDIN_CUFILE_READ");
  if (fault("STANDIN_CUFILE_CRASH") == (int)bytes) raise(SIGSEGV);
  if (fault("STANDIN_CUFILE_SHORT")) bytes /= 2;
  ssize_t got = pread(*(int *)handle, to, bytes, at);
  if (got > 0 && fault("STANDIN_CUFILE_CORRUPT")) to[got / 2] ^= 1;
  if (got >= 0 && counts) atomic_fetch_add(&reads, 1), atomic_fetch_add(&read_bytes, (uint64_t)got);
  return got;
}

ssize_t cuFileWrite(void *handle, const void *base, size_t bytes, off_t at, off_t in_memory) {
  if (!handle) return -NOT_REGISTERED;
  char *from = (char *)(uintptr_t)base + in_memory, flip = (char)fault("STANDIN_CUFILE_CORRUPT");
  *from ^= flip;
  ssize_t gone = pwrite(*(int *)handle, from, bytes, at);
  *from ^= flip;
  if (gone >= 0 && counts) atomic_fetch_add(&writes, 1), atomic_fetch_add(&written_bytes, (uint64_t)gone);
  return gone;
}

struct io { /* CUfileIOParams_t */
  int mode;
  void *base;
  off_t at, in_memory;
  size_t bytes;
  void *handle;
  int is_write;
  void *cookie;
};

struct event { /* CUfileIOEvents_t */
  void *cookie;
  int status;
  size_t moved;
};

struct batch {
  unsigned count;
  struct event events[MOST_BATCH];
};

struct outcome cuFileBatchIOSetUp(void **batch, unsigned most) {
  *batch = calloc(1, sizeof(struct batch));
  return outcome(*batch && most <= MOST_BATCH ? 0 : INVALID);
}

struct outcome cuFileBatchIOSubmit(struct batch *batch, unsigned count, struct io *ios, unsigned flags) {
  if (count > MOST_BATCH || flags) return outcome(INVALID);
  for (batch->count = 0; batch->count < count; batch->count++) {
    struct io *io = &ios[batch->count];
    int fd = *(int *)io->handle;
    char *place = (char *)io->base + io->in_memory;
    ssize_t moved = io->is_write ? pwrite(fd, place, io->bytes, io->at) : pread(fd, place, io->bytes, io->at);
    if (moved != (ssize_t)io->bytes) return outcome(INVALID);
    if (counts) atomic_fetch_add(io->is_write ? &batch_written_bytes : &batch_read_bytes, (uint64_t)moved);
    batch->events[batch->count] = (struct event){io->cookie, COMPLETE, (size_t)moved};
  }
  if (counts) atomic_fetch_add(&batched, count);
  return outcome(0);
}

struct outcome cuFileBatchIOGetStatus(struct batch *batch, unsigned least, unsigned *count, struct event *events,
                                      void *timeout) {
  (void)least, (void)timeout;
  if (*count > batch->count) *count = batch->count;
  memcpy(events, batch->events, *count * sizeof *events);
  batch->count = 0;
  return outcome(0);
}

struct outcome cuFileBatchIOCancel(struct batch *batch) { return batch->count = 0, outcome(0); }

void cuFileBatchIODestroy(struct batch *batch) { free(batch); }

struct outcome cuFileSetStatsLevel(int wanted) {
  if (fault("STANDIN_CUFILE_UNCOUNTED")) return outcome(INVALID);
  return level = wanted, outcome(0);
}

/* Where it is started once more, a thread of 1.15.1.6's own crashes some time later: here at once. */
struct outcome cuFileStatsStart(void) {
  if (!level) return outcome(INTERNAL);
  if (has_stopped) raise(SIGSEGV);
  return counts = 1, outcome(0);
}

struct outcome cuFileStatsStop(void) { return has_stopped = 1, counts = level = 0, outcome(0); }

struct outcome cuFileStatsReset(void) {
  reads = writes = read_bytes = written_bytes = batched = batch_read_bytes = batch_written_bytes = 0;
  return outcome(0);
}

/* One idle GPU and the one that works. */
struct outcome cuFileGetStatsL3(unsigned char *into) {
  int is_old = fault("STANDIN_CUFILE_OLD"), of_gpu = !fault("STANDIN_CUFILE_HOST");
  size_t at = is_old ? LEVEL_2_OLD : LEVEL_2;
  uint64_t counters[PER_GPU] = {0}, did[] = {reads, writes}, said[] = {reads << is_old, writes << is_old};
  uint64_t bytes[] = {read_bytes, written_bytes}, in_batches[] = {batch_read_bytes, batch_written_bytes};
  uint64_t ways[] = {route == NVFS ? batched : 0, 0, route == P2P ? batched : 0, 0, route == POSIX ? batched : 0, 0};
  uint64_t all = batched;
  if (level < 3) return outcome(INVALID);
  memset(into, 0, at + 8 + 16 * (16 + sizeof counters));
  memcpy(into, &said[0], sizeof said[0]);
  memcpy(into + 16, &said[1], sizeof said[1]);
  memcpy(into + BYTES_AT, bytes, sizeof bytes);
  memcpy(into + BATCHES_AT, ways, sizeof ways);
  memcpy(into + BATCHES_AT + 80, &all, sizeof all);
  memcpy(into + BATCH_BYTES_AT, in_batches, sizeof in_batches);
  into[at] = 2;
  if (!of_gpu) return outcome(0);
  counters[0] = bytes[0], counters[WRITES] = bytes[1];
  counters[TOTAL] = counters[route] = did[0];
  counters[WRITES + TOTAL] = counters[WRITES + route] = did[1];
  memcpy(into + at + 8 + 16 + sizeof counters + 16, counters, sizeof counters);
  return outcome(0);
}
