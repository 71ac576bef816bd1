/* NIXL transfers through its plain C API (libnixl_capi.so): post, then poll until done. */
#include "railwright.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef int (*post_f)(void *agent, void *request, void *options);
typedef int (*status_f)(void *agent, void *request);

static struct {
  post_f post;
  status_f status;
} nixl;

enum { IN_PROGRESS = 1, POLLS_BETWEEN_CLOCK_READS = 4096 };

int rw_nixl_bind(void *library) {
  nixl.post = (post_f)dlsym(library, "nixl_capi_post_xfer_req");
  nixl.status = (status_f)dlsym(library, "nixl_capi_get_xfer_status");
  return nixl.post && nixl.status ? RW_OK : RW_MISSING_SYMBOL;
}

/* Polls until the request is done. Returns RW_OK, NIXL's negative status, or RW_TIMED_OUT `patience` seconds after
 * `start`. */
static int finish(void *agent, void *request, double start, double patience) {
  int status;
  for (int polls = 1; (status = nixl.status(agent, request)) == IN_PROGRESS; polls++)
    if (polls % POLLS_BETWEEN_CLOCK_READS == 0 && rw_now() - start > patience) return RW_TIMED_OUT;
  return status < 0 ? status : RW_OK;
}

/* Posts the same request repeatedly. `seconds` gets the time from post to done, `posts` that of the post call alone.
 * A transfer that takes longer than `patience` seconds ends the loop: the peer or the transport hangs. */
int rw_nixl_transfer(void *agent, void *request, int warm, int iterations, double patience, double *seconds,
                     double *posts) {
  for (int k = -warm; k < iterations; k++) {
    double start = rw_now();
    int status = nixl.post(agent, request, NULL);
    double posted = rw_now();
    if (status < 0) return status;
    status = finish(agent, request, start, patience);
    if (status < 0) return status;
    if (k >= 0) seconds[k] = rw_now() - start, posts[k] = posted - start;
  }
  return RW_OK;
}

/* The layout is also in `_Crew` in nixl_crew.py. */
struct rw_nixl_crew {
  void *agent;
  void **requests; /* threads x each */
  const int *cpus; /* one per thread; -1 leaves the thread unbound */
  int threads, each, depth, iterations;
  double patience;
  double *seconds; /* threads x iterations, post to done */
  double *posts;   /* threads x iterations, the post call alone */
  double elapsed;  /* from the first thread's start to the last one's end */
};

struct member {
  struct rw_nixl_crew *crew;
  atomic_int *ready, *go;
  int index, code;
  double start, end;
};

/* Waits for the request posted `depth` ago, so requests complete in the order of their posts. */
static int run_member(struct member *m) {
  struct rw_nixl_crew *c = m->crew;
  void **requests = c->requests + (size_t)m->index * c->each;
  double *seconds = c->seconds + (size_t)m->index * c->iterations;
  double *posts = c->posts + (size_t)m->index * c->iterations;
  for (int k = 0; k < c->iterations + c->depth; k++) {
    int oldest = k - c->depth;
    if (oldest >= 0 && oldest < c->iterations) {
      int code = finish(c->agent, requests[oldest % c->each], seconds[oldest], c->patience);
      if (code < 0) return code;
      seconds[oldest] = rw_now() - seconds[oldest];
    }
    if (k < c->iterations) {
      seconds[k] = rw_now(); /* the start, until it is done */
      int code = nixl.post(c->agent, requests[k % c->each], NULL);
      posts[k] = rw_now() - seconds[k];
      if (code < 0) return code;
    }
  }
  return RW_OK;
}

static void *member_main(void *argument) {
  struct member *m = argument;
  int cpu = m->crew->cpus[m->index];
  if (cpu >= 0) m->code = rw_pin(cpu);
  atomic_fetch_add(m->ready, 1);
  while (!atomic_load(m->go)) sched_yield();
  m->start = rw_now();
  if (m->code == RW_OK) m->code = run_member(m);
  m->end = rw_now();
  return NULL;
}

/* Runs `threads` initiators. Each cycles through its `each` requests, with `depth` (at most `each`) in flight. */
int rw_nixl_crew(struct rw_nixl_crew *crew) {
  struct member *members = calloc((size_t)crew->threads, sizeof *members);
  pthread_t *threads = calloc((size_t)crew->threads, sizeof *threads);
  atomic_int ready = 0, go = 0;
  int started = 0, code = members && threads ? RW_OK : RW_NO_MEMORY;
  for (; code == RW_OK && started < crew->threads; started++) {
    members[started] = (struct member){.crew = crew, .ready = &ready, .go = &go, .index = started};
    if (pthread_create(&threads[started], NULL, member_main, &members[started])) {
      code = RW_NO_THREAD;
      break;
    }
  }
  if (code != RW_OK) crew->iterations = 0; /* the started threads have nothing to do */
  while (atomic_load(&ready) < started) sched_yield();
  atomic_store(&go, 1);
  for (int k = 0; k < started; k++) pthread_join(threads[k], NULL);
  double first = started ? members[0].start : 0, last = started ? members[0].end : 0;
  for (int k = 0; k < started; k++) {
    if (code == RW_OK) code = members[k].code;
    if (members[k].start < first) first = members[k].start;
    if (members[k].end > last) last = members[k].end;
  }
  crew->elapsed = last - first;
  free(members);
  free(threads);
  return code;
}
