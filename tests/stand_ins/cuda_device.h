/* What a stand-in GPU is made of: its kernels, streams and memory. Included by cuda.c alone. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { OK = 0, INVALID = 1, NO_MEMORY = 2, NO_DEVICE = 100, BAD_DEVICE = 101, BAD_CONTEXT = 201, BAD_PTX = 218,
       PEER_ALREADY = 704, BAD_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, ALREADY_PINNED = 712, NOT_PINNED = 713 };
enum { MOST_DEVICES = 16, MOST_ARGUMENTS = 8 };

struct stream;
struct device {
  int ordinal, retained, peers[MOST_DEVICES];
  char address[32];
  struct stream *standard; /* the NULL stream */
};

struct event {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  long recorded, done; /* how often it was put on a stream, and how often a stream came to it */
  double time_s;
  struct device *device;
  struct graph *captured; /* the capture in which it was recorded last */
};

struct work {
  enum { COPY, SET, WORK_KERNEL, RECORD, WAIT, CALL } kind;
  uint64_t to, from, bytes, arguments[MOST_ARGUMENTS];
  const struct kernel *kernel;
  unsigned grid;
  unsigned char byte;
  struct event *event;
  long ticket;
  void (*call)(void *);
  void *data;
  struct work *next;
};

struct graph {
  struct work *first, *last;
};

struct stream {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  struct work *first, *last;
  int busy, ends, error;
  struct graph *capture;
  struct device *device;
  struct stream *next;
};

struct range {
  uint64_t address;
  size_t bytes;
  struct device *device; /* NULL: pinned host memory */
  int mapped;            /* by us, not only registered */
  struct range *next;
};

static struct device devices[MOST_DEVICES];
static int device_count, ready;
static __thread struct device *current;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct range *ranges;
static struct stream *streams;

static int fault(const char *name) {
  const char *text = getenv(name);
  return text ? atoi(text) : 0;
}

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#include "lu_on_host.h"

/* ---- kernels: each as in kernels.cu, by one thread ---- */

static uint64_t splitmix(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

static unsigned char byte_at(uint64_t seed, uint64_t position) {
  return (unsigned char)(splitmix(seed, position / 8) >> (8 * (position % 8)));
}

static void fill(const uint64_t *a) {
  unsigned char *to = (unsigned char *)a[0];
  for (uint64_t i = 0; i < a[1] / 8; i++) ((uint64_t *)to)[i] = splitmix(a[2], a[3] / 8 + i);
  for (uint64_t i = a[1] / 8 * 8; i < a[1]; i++) to[i] = byte_at(a[2], a[3] + i);
}

static void count_wrong(const uint64_t *a) {
  const unsigned char *from = (const unsigned char *)a[0];
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < a[1]; i++) wrong += from[i] != byte_at(a[2], a[3] + i);
  *(uint64_t *)a[4] += wrong;
}

static void copy(const uint64_t *a) {
  for (uint64_t i = 0; i < a[3]; i++) memmove((void *)a[0], (const void *)a[1], a[2]);
}

static void spin(const uint64_t *a) {
  volatile uint32_t *flag = (uint32_t *)a[0];
  double start = now_s();
  while (!flag[0]) {
    if ((now_s() - start) * 1e9 > (double)a[1]) {
      flag[1] = 1;
      return;
    }
    nanosleep(&(struct timespec){0, 20000}, NULL);
  }
}

static void chase(const uint64_t *a) {
  uint64_t at = a[0];
  for (uint64_t i = 0; i < a[1]; i++) at = *(volatile uint64_t *)at;
  *(uint64_t *)a[2] = at;
}

static float given(uint64_t from, uint64_t index) {
  uint64_t z = splitmix(0, index);
  return (float)(int64_t)(1 + (z & 255) + from * (1 + (z >> 8 & 15)));
}

static float sum_of_all(uint64_t ranks, uint64_t index) {
  uint64_t z = splitmix(0, index);
  return (float)(int64_t)(ranks * (1 + (z & 255)) + ranks * (ranks - 1) / 2 * (1 + (z >> 8 & 15)));
}

static void collective_fill(const uint64_t *a) {
  for (uint64_t i = 0; i < a[1]; i++) ((float *)a[0])[i] = given(a[2], a[3] + i);
}

static void collective_wrong(const uint64_t *a) {
  enum { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, SEND_RECV, BROADCAST };
  uint64_t kind = a[1], count = a[2], rank = a[3], ranks = a[4], wrong = 0;
  int shares = kind == ALL_GATHER || kind == ALL_TO_ALL, sums = kind == ALL_REDUCE || kind == REDUCE_SCATTER;
  uint64_t first = kind == REDUCE_SCATTER || kind == ALL_TO_ALL ? rank * count : 0;
  for (uint64_t i = 0; i < (shares ? count * ranks : count); i++) {
    uint64_t from = shares ? i / count : kind == SEND_RECV ? (rank + ranks - 1) % ranks : 0;
    uint64_t index = first + (shares ? i % count : i);
    wrong += ((float *)a[0])[i] != (sums ? sum_of_all(ranks, index) : given(from, index));
  }
  *(uint64_t *)a[5] += wrong;
}

static void pattern_wrong(const uint64_t *a) {
  for (uint64_t i = 0; i < a[1]; i++)
    *(uint64_t *)a[5] +=
        ((float *)a[0])[i] != ((int64_t)a[3] < 0 ? sum_of_all(a[4], a[2] + i) : given(a[3], a[2] + i));
}

static void burn(const uint64_t *a) {
  volatile float x = 1;
  for (uint64_t i = 0; i < a[1]; i++) x = x * 0.5f + 1;
}

static const struct kernel {
  const char *name;
  void (*run)(const uint64_t *);
  int arguments;
} KERNELS[] = {
    {"fill", fill, 4}, {"count_wrong", count_wrong, 5}, {"copy", copy, 4}, {"spin", spin, 2}, {"chase", chase, 3},
    {"collective_fill", collective_fill, 4}, {"collective_wrong", collective_wrong, 6},
    {"pattern_wrong", pattern_wrong, 6}, {"burn", burn, 4},
    {"lu_generate", lu_generate_on_host, 4}, {"lu_multiply", lu_multiply_on_host, 7},
    {"lu_search", lu_search_on_host, 3}, {"lu_tell", lu_tell_on_host, 4}, {"lu_eliminate", lu_eliminate_on_host, 4},
    {"lu_copy", lu_copy_on_host, 6}, {"lu_collect", lu_collect_on_host, 6},
    {"lu_distribute", lu_distribute_on_host, 7}, {"lu_assemble", lu_assemble_on_host, 5}, {"lu_sum", lu_sum_on_host, 4},
};

/* ---- streams ---- */

/* What each copy of a device takes besides, from STANDIN_CUDA_COPY_US: one number for each device. */
static void linger(const struct device *d, uint64_t copies) {
  const char *text = getenv("STANDIN_CUDA_COPY_US");
  for (int i = 0; text && *text && i < d->ordinal; i++) text += strcspn(text, ",") + (strchr(text, ',') != NULL);
  uint64_t ns = 1000 * copies * (uint64_t)(text ? atol(text) : 0);
  if (ns) nanosleep(&(struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)}, NULL);
}

static void run(struct work *w, const struct device *d) {
  switch (w->kind) {
    case COPY:
      linger(d, w->bytes > 8);
      memmove((void *)w->to, (const void *)w->from, w->bytes);
      if (w->bytes > 8 && fault("STANDIN_CUDA_CORRUPT")) *((unsigned char *)w->to + w->bytes / 2) ^= 1;
      break;
    case SET: memset((void *)w->to, w->byte, w->bytes); break;
    case WORK_KERNEL:
      if (w->kernel->run == copy) linger(d, w->arguments[3]);
      blocks_now = w->grid;
      w->kernel->run(w->arguments);
      break;
    case CALL: w->call(w->data); break;
    case RECORD:
      pthread_mutex_lock(&w->event->lock);
      w->event->done = w->ticket;
      w->event->time_s = now_s();
      pthread_cond_broadcast(&w->event->changed);
      pthread_mutex_unlock(&w->event->lock);
      break;
    case WAIT:
      pthread_mutex_lock(&w->event->lock);
      while (w->event->done < w->ticket) pthread_cond_wait(&w->event->changed, &w->event->lock);
      pthread_mutex_unlock(&w->event->lock);
      break;
  }
}

static void *stream_thread(void *argument) {
  struct stream *s = argument;
  pthread_mutex_lock(&s->lock);
  for (;;) {
    while (!s->first && !s->ends) pthread_cond_wait(&s->changed, &s->lock);
    if (!s->first) break;
    struct work *w = s->first;
    s->first = w->next;
    s->busy = 1;
    pthread_mutex_unlock(&s->lock);
    run(w, s->device);
    free(w);
    pthread_mutex_lock(&s->lock);
    s->busy = 0;
    pthread_cond_broadcast(&s->changed);
  }
  pthread_mutex_unlock(&s->lock);
  return NULL;
}

static struct stream *stream_new(struct device *device) {
  struct stream *s = calloc(1, sizeof *s);
  s->device = device;
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->changed, NULL);
  pthread_create(&s->thread, NULL, stream_thread, s);
  pthread_mutex_lock(&lock);
  s->next = streams;
  streams = s;
  pthread_mutex_unlock(&lock);
  return s;
}

static struct stream *stream_of(void *handle) { return handle ? handle : current ? current->standard : NULL; }

static int enqueue(void *handle, struct work work) {
  struct stream *s = stream_of(handle);
  if (!s) return BAD_CONTEXT;
  struct work *w = malloc(sizeof *w);
  *w = work;
  w->next = NULL;
  pthread_mutex_lock(&s->lock);
  struct graph *capture = s->capture;
  if (w->kind == RECORD) w->event->captured = capture;
  if (w->kind == WAIT && w->event->captured) capture = s->capture = w->event->captured;
  if (capture && (w->kind == RECORD || w->kind == WAIT)) {
    pthread_mutex_unlock(&s->lock);
    free(w); /* a graph keeps the order in which it was captured, which these only make a part of */
    return OK;
  }
  struct work **first = s->capture ? &s->capture->first : &s->first, **last = s->capture ? &s->capture->last : &s->last;
  if (w->kind == RECORD) w->ticket = ++w->event->recorded;
  if (w->kind == WAIT) w->ticket = w->event->recorded;
  if (*first) (*last)->next = w;
  else *first = w;
  *last = w;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
  return OK;
}

static int wait_for(struct stream *s) {
  if (!s) return BAD_CONTEXT;
  pthread_mutex_lock(&s->lock);
  while (s->first || s->busy) pthread_cond_wait(&s->changed, &s->lock);
  pthread_mutex_unlock(&s->lock);
  return OK;
}

/* ---- memory ---- */

static void remember(uint64_t address, size_t bytes, struct device *device, int mapped) {
  struct range *r = malloc(sizeof *r);
  *r = (struct range){address, bytes, device, mapped, ranges};
  ranges = r;
}

static struct range *range_of(uint64_t address) {
  for (struct range *r = ranges; r; r = r->next)
    if (address - r->address < r->bytes) return r;
  return NULL;
}

/* Whether the whole of it lies inside what the range allows; unknown memory is plain host memory. */
static int bad(uint64_t address, size_t bytes) {
  pthread_mutex_lock(&lock);
  struct range *r = range_of(address);
  int wrong = !address || (r && address + bytes > r->address + r->bytes);
  pthread_mutex_unlock(&lock);
  return wrong;
}

static int forget(uint64_t address, int mapped) {
  int status = INVALID;
  pthread_mutex_lock(&lock);
  for (struct range **r = &ranges; *r; r = &(*r)->next)
    if ((*r)->address == address && (*r)->mapped == mapped) {
      struct range *gone = *r;
      *r = gone->next;
      if (mapped) munmap((void *)address, gone->bytes);
      free(gone);
      status = OK;
      break;
    }
  pthread_mutex_unlock(&lock);
  return status;
}

static int map(uint64_t *address, size_t bytes, struct device *device) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (!bytes || memory == MAP_FAILED) return NO_MEMORY;
  *address = (uint64_t)memory;
  pthread_mutex_lock(&lock);
  remember(*address, bytes, device, 1);
  pthread_mutex_unlock(&lock);
  return OK;
}
