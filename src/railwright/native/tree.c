/* Operations on many files of one folder, one after the other: create, stat, read, verify and remove. */
#include "railwright.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void rw_fill(void *memory, size_t bytes, uint64_t seed, uint64_t position);

enum { WRITE, STAT, READ, CHECK, DELETE };
enum { SECTOR = 512, NAME = 32, SHORT = -1201 };

struct rw_tree {
  int folder, operation, direct, sync;
  int64_t files, bytes, block; /* per file, and per read or write of it */
  uint64_t seed;
  double *ends;         /* end of each operation, in seconds since `start`: per block, or per file */
  double start;         /* on the monotonic clock */
  int64_t wrong, at;    /* wrong bytes; the number of files begun */
};

/* Writes the file and block number to the first word of each sector. */
static void stamp(unsigned char *buffer, int64_t bytes, int64_t file, int64_t block) {
  for (int64_t at = 0; at + (int64_t)sizeof(uint64_t) <= bytes; at += SECTOR) {
    uint64_t word = ((uint64_t)file << 32) ^ (uint64_t)block ^ ((uint64_t)at << 20);
    memcpy(buffer + at, &word, sizeof word);
  }
}

static int64_t differences(const unsigned char *a, const unsigned char *b, int64_t bytes) {
  int64_t wrong = 0;
  if (memcmp(a, b, (size_t)bytes) == 0) return 0;
  for (int64_t i = 0; i < bytes; i++) wrong += a[i] != b[i];
  return wrong;
}

static int flags_of(const struct rw_tree *t) {
  int flags = O_CLOEXEC | O_NOFOLLOW | (t->direct ? O_DIRECT : 0);
  return t->operation == WRITE ? flags | O_CREAT | O_EXCL | O_WRONLY : flags | O_RDONLY;
}

/* Moves one block completely; SHORT if the file ends too early. */
static int move(const struct rw_tree *t, int fd, unsigned char *buffer, int64_t bytes, int64_t place) {
  for (int64_t done = 0; done < bytes;) {
    size_t left = (size_t)(bytes - done);
    ssize_t n = t->operation == WRITE ? pwrite(fd, buffer + done, left, place + done)
                                      : pread(fd, buffer + done, left, place + done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -errno;
    if (n == 0) return SHORT;
    done += n;
  }
  return RW_OK;
}

static int blocks_of(struct rw_tree *t, int fd, int64_t file, unsigned char *buffer, unsigned char *right,
                     int64_t *done) {
  int64_t number = 0;
  for (int64_t place = 0; place < t->bytes; place += t->block, number++) {
    int64_t bytes = t->bytes - place < t->block ? t->bytes - place : t->block;
    if (t->operation == WRITE) stamp(buffer, bytes, file, number);
    int code = move(t, fd, buffer, bytes, place);
    if (code) return code;
    if (t->operation == CHECK) {
      stamp(right, bytes, file, number);
      t->wrong += differences(buffer, right, bytes);
    }
    if (t->bytes > t->block) t->ends[(*done)++] = rw_now() - t->start;
  }
  if (t->operation == WRITE && t->sync && fsync(fd)) return -errno;
  return RW_OK;
}

static int open_and_move(struct rw_tree *t, const char *name, int64_t file, unsigned char *buffer,
                         unsigned char *right, int64_t *done) {
  int fd = openat(t->folder, name, flags_of(t), 0600);
  if (fd < 0) return -errno;
  int code = blocks_of(t, fd, file, buffer, right, done);
  if (close(fd) && !code) code = -errno; /* a network file system may report a full disk only now */
  return code;
}

static int one_file(struct rw_tree *t, int64_t file, unsigned char *buffer, unsigned char *right, int64_t *done) {
  char name[NAME];
  snprintf(name, sizeof name, "f%lld", (long long)file);
  struct stat seen;
  int code = RW_OK;
  if (t->operation == STAT) {
    if (fstatat(t->folder, name, &seen, AT_SYMLINK_NOFOLLOW)) return -errno;
    if (seen.st_size != t->bytes) t->wrong += llabs((long long)(seen.st_size - t->bytes));
  } else if (t->operation == DELETE) {
    if (unlinkat(t->folder, name, 0)) return -errno;
  } else {
    code = open_and_move(t, name, file, buffer, right, done);
  }
  int by_block = t->operation != STAT && t->operation != DELETE && t->bytes > t->block;
  if (!code && !by_block) t->ends[(*done)++] = rw_now() - t->start;
  return code;
}

/* Returns RW_OK, -errno, or SHORT if a file ends too early: the last file begun, number `at` - 1. */
int rw_tree(struct rw_tree *t) {
  unsigned char *buffer = NULL, *right = NULL;
  size_t room = (size_t)(t->block > SECTOR ? t->block : SECTOR);
  if (posix_memalign((void **)&buffer, 4096, room)) return RW_NO_MEMORY;
  if (posix_memalign((void **)&right, 4096, room)) {
    free(buffer);
    return RW_NO_MEMORY;
  }
  rw_fill(buffer, room & ~(size_t)7, t->seed, 0);
  memcpy(right, buffer, room & ~(size_t)7);
  if (t->operation == READ || t->operation == CHECK) memset(buffer, 0xA5, room);
  int code = RW_OK;
  int64_t done = 0;
  t->start = rw_now();
  for (t->at = 0; t->at < t->files && !code; t->at++) code = one_file(t, t->at, buffer, right, &done);
  free(buffer);
  free(right);
  return code;
}
