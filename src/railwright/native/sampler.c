/* Samples counters in files repeatedly in its own thread, and keeps rows until they are fetched.
 *
 * A file stays open and is read from its start. A number is found by the first word of its line and its place in the
 * line. Numbers of other programs (`gpu_counters.c`) are read from shared memory. Ticks are spread within their
 * interval, so that fast changes do not look slow (`diagnosis/iterations/aliases.py`). A late tick is skipped, never
 * made up for. */
#include "railwright.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_BYTES = 16384, KEY_BYTES = 64, MOST_FILES = 512, MOST_VALUES = 1024, ROWS = 1024 };

static const uint64_t NO_VALUE = UINT64_MAX;

/* CPU that a tick may take, waking up included; what its reads may take even where waking up alone is dearer; and what
 * a read takes at most unless somebody else had the CPU. */
static const double TICK_BUDGET = 45e-6, READS_BUDGET = 20e-6, LONGEST_READ = 200e-6;
enum { LOOK_EVERY = 128, MOST_EVERY = 100 };

struct file {
  int fd;
  _Atomic uint64_t *numbers; /* shared memory of another program, instead of a file */
  int once;                  /* whether a number counts until it is read, so that none counts twice */
  unsigned every; /* ticks */
  unsigned reads; /* since the last check of their cost */
  double spent;
};

struct value {
  int file, field;
  char key[KEY_BYTES];
};

struct rw_sampler {
  struct file files[MOST_FILES];
  struct value values[MOST_VALUES];
  int file_count, value_count;
  double interval, spread;
  uint64_t random;
  pthread_t thread;
  int runs;
  atomic_int stops;
  _Atomic uint64_t written, fetched; /* rows; the thread writes the first, the reader the second */
  _Atomic uint64_t lost, late;
  _Atomic double cpu;
  double *times;
  uint64_t *rows;
};

struct rw_sampler *rw_sampler_new(void) { return calloc(1, sizeof(struct rw_sampler)); }

/* Returns the number of the file, or -errno. */
int rw_sampler_file(struct rw_sampler *s, const char *path) {
  if (s->runs || s->file_count == MOST_FILES) return -ENFILE;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return -errno;
  s->files[s->file_count] = (struct file){.fd = fd, .every = 1};
  return s->file_count++;
}

/* Adds memory that another program shares, with 64-bit integers, NO_VALUE for an unknown one. With `once`, reading a
 * number replaces it by NO_VALUE. Returns its number, or -ENFILE. */
int rw_sampler_memory(struct rw_sampler *s, void *numbers, int once) {
  if (s->runs || s->file_count == MOST_FILES) return -ENFILE;
  s->files[s->file_count] = (struct file){.fd = -1, .every = 1, .numbers = numbers, .once = once};
  return s->file_count++;
}

/* Sets the number of ticks between two reads of a file. */
void rw_sampler_every(struct rw_sampler *s, int file, unsigned ticks) { s->files[file].every = ticks ? ticks : 1; }

/* Adds a value. `key` is the begin of its line after spaces; an empty key stands for the first line, and `)` for the
 * text after the last parenthesis of the file, because a process may have any name. `field` counts the words after the
 * key from 0. Returns the value's number, or -ENFILE. */
int rw_sampler_value(struct rw_sampler *s, int file, const char *key, int field) {
  if (s->runs || s->value_count == MOST_VALUES || strlen(key) >= KEY_BYTES) return -ENFILE;
  struct value *v = &s->values[s->value_count];
  v->file = file, v->field = field;
  strcpy(v->key, key);
  return s->value_count++;
}

static const char *after_key(const char *text, const char *key) {
  if (!*key) return text;
  if (!strcmp(key, ")")) {
    const char *last = strrchr(text, ')');
    return last ? last + 1 : NULL;
  }
  size_t length = strlen(key);
  for (const char *line = text; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
    while (*line == ' ') line++;
    if (!strncmp(line, key, length)) return line + length;
  }
  return NULL;
}

static uint64_t number_in(const char *text, const char *key, int field) {
  const char *at = after_key(text, key);
  for (int skip = 0; at; skip++) {
    while (*at == ' ' || *at == '\t') at++;
    if (!*at || *at == '\n') return NO_VALUE;
    if (skip == field) break;
    while (*at && !isspace((unsigned char)*at)) at++;
  }
  if (!at || !isdigit((unsigned char)*at)) return NO_VALUE;
  char *end;
  errno = 0;
  unsigned long long found = strtoull(at, &end, 10);
  return errno ? NO_VALUE : found;
}

/* One row; values of files that are not read at this tick, or cannot be, are NO_VALUE. */
static void read_row(struct rw_sampler *s, uint64_t tick, uint64_t *row) {
  static _Thread_local char text[TEXT_BYTES];
  int last = -1;
  ssize_t length = -1;
  for (int number = 0; number < s->value_count; number++) {
    const struct value *v = &s->values[number];
    struct file *f = &s->files[v->file];
    row[number] = NO_VALUE;
    if (tick % f->every) continue;
    if (f->numbers) {
      _Atomic uint64_t *at = &f->numbers[v->field];
      row[number] = f->once ? atomic_exchange_explicit(at, NO_VALUE, memory_order_relaxed)
                            : atomic_load_explicit(at, memory_order_relaxed);
      continue;
    }
    if (v->file != last) {
      double start = rw_now();
      last = v->file;
      length = pread(f->fd, text, TEXT_BYTES - 1, 0);
      if (length >= 0) text[length] = 0;
      double seconds = rw_now() - start;
      f->spent += seconds < LONGEST_READ ? seconds : LONGEST_READ;
      f->reads++;
    }
    if (length > 0) row[number] = number_in(text, v->key, v->field);
  }
}

/* Reads the most expensive files less often, until a tick is within its CPU budget, as far as reads can help. */
static void keep_to_budget(struct rw_sampler *s, double tick_cpu) {
  double reads = 0;
  for (int number = 0; number < s->file_count; number++) {
    const struct file *f = &s->files[number];
    if (f->reads) reads += f->spent / f->reads / f->every;
  }
  double over = tick_cpu - TICK_BUDGET < reads - READS_BUDGET ? tick_cpu - TICK_BUDGET : reads - READS_BUDGET;
  while (over > 0) {
    double most = 0;
    struct file *dearest = NULL;
    for (int number = 0; number < s->file_count; number++) {
      struct file *f = &s->files[number];
      double part = f->reads ? f->spent / f->reads / f->every : 0;
      if (part > most && f->every < MOST_EVERY) most = part, dearest = f;
    }
    if (!dearest) break;
    dearest->every = dearest->every * 2 < MOST_EVERY ? dearest->every * 2 : MOST_EVERY;
    over -= most / 2;
    dearest->reads = 0; /* one step per file and check, so that the next check shows its effect */
  }
  for (int number = 0; number < s->file_count; number++) s->files[number].spent = 0, s->files[number].reads = 0;
}

/* Returns the seconds of reading a file, the median of `times` (at most 64); negative if it is unreadable. */
double rw_sampler_cost(struct rw_sampler *s, int file, int times) {
  char text[TEXT_BYTES];
  double taken[64];
  if (times < 1 || times > 64) return -1;
  if (s->files[file].numbers) return 0;
  for (int number = 0; number < times; number++) {
    double start = rw_now();
    if (pread(s->files[file].fd, text, TEXT_BYTES - 1, 0) < 0) return -1;
    double seconds = rw_now() - start;
    int at = number;
    for (; at > 0 && taken[at - 1] > seconds; at--) taken[at] = taken[at - 1];
    taken[at] = seconds;
  }
  return taken[times / 2];
}

/* Returns a number from 0 to below 1 (Marsaglia 2003, xorshift). */
static double chance(struct rw_sampler *s) {
  s->random ^= s->random << 13, s->random ^= s->random >> 7, s->random ^= s->random << 17;
  return (double)(s->random >> 11) * 0x1p-53;
}

static void sleep_until(double at) {
  struct timespec t = {.tv_sec = (time_t)at, .tv_nsec = (long)((at - (double)(time_t)at) * 1e9)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) continue;
}

static double thread_cpu(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *sample(void *given) {
  struct rw_sampler *s = given;
  double begin = rw_now(), cpu_before = 0;
  for (uint64_t tick = 0; !atomic_load(&s->stops); tick++) {
    double at = begin + ((double)tick + s->spread * (chance(s) - 0.5) + 1) * s->interval;
    double now = rw_now();
    if (now > at + s->interval) { /* more than one late: the ticks between were skipped */
      uint64_t missed = (uint64_t)((now - at) / s->interval);
      atomic_fetch_add(&s->late, missed);
      tick += missed;
      at += (double)missed * s->interval;
    }
    sleep_until(at);
    uint64_t written = atomic_load(&s->written);
    if (written - atomic_load(&s->fetched) >= ROWS) {
      atomic_fetch_add(&s->lost, 1);
      continue;
    }
    uint64_t place = written % ROWS;
    double before = rw_now();
    read_row(s, tick, s->rows + place * (size_t)s->value_count);
    s->times[place] = (before + rw_now()) / 2;
    atomic_store(&s->written, written + 1);
    double cpu = thread_cpu();
    atomic_store(&s->cpu, cpu);
    if (written % LOOK_EVERY == LOOK_EVERY - 1) {
      keep_to_budget(s, (cpu - cpu_before) / LOOK_EVERY);
      cpu_before = cpu;
    }
  }
  return NULL;
}

/* Starts the thread. `spread` is the share of the interval within which a tick lies. */
int rw_sampler_start(struct rw_sampler *s, double interval, double spread) {
  if (s->runs || !s->value_count || !(interval > 0)) return -EINVAL;
  s->interval = interval, s->spread = spread;
  s->random = (uint64_t)(rw_now() * 1e9) | 1;
  s->times = calloc(ROWS, sizeof *s->times);
  s->rows = calloc((size_t)ROWS * (size_t)s->value_count, sizeof *s->rows);
  if (!s->times || !s->rows) return RW_NO_MEMORY;
  if (pthread_create(&s->thread, NULL, sample, s)) return RW_NO_THREAD;
  s->runs = 1;
  return RW_OK;
}

/* Copies at most `most` rows and returns their number. */
int rw_sampler_fetch(struct rw_sampler *s, double *times, uint64_t *rows, int most) {
  uint64_t fetched = atomic_load(&s->fetched), written = atomic_load(&s->written);
  int count = 0;
  for (; count < most && fetched < written; count++, fetched++) {
    uint64_t place = fetched % ROWS;
    times[count] = s->times[place];
    memcpy(rows + (size_t)count * (size_t)s->value_count, s->rows + place * (size_t)s->value_count,
           (size_t)s->value_count * sizeof *rows);
  }
  atomic_store(&s->fetched, fetched);
  return count;
}

/* Reports rows written, rows lost because none fetched them, and ticks skipped because they were late; and CPU
 * seconds. */
void rw_sampler_told(struct rw_sampler *s, uint64_t counts[3], double *cpu) {
  counts[0] = atomic_load(&s->written), counts[1] = atomic_load(&s->lost), counts[2] = atomic_load(&s->late);
  *cpu = atomic_load(&s->cpu);
}

/* Ends the thread, after its tick, and frees everything. */
void rw_sampler_end(struct rw_sampler *s) {
  atomic_store(&s->stops, 1);
  if (s->runs) pthread_join(s->thread, NULL);
  for (int number = 0; number < s->file_count; number++)
    if (s->files[number].fd >= 0) close(s->files[number].fd);
  free(s->times), free(s->rows), free(s);
}
