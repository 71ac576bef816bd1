/* NIXL requests of one KV cache, one for each layer, posted in the order in which prefill finishes the layers. */
#include "railwright.h"

typedef int (*post_f)(void *agent, void *request, void *options);
typedef int (*status_f)(void *agent, void *request);

enum { IN_PROGRESS = 1, POLLS_BETWEEN_CLOCK_READS = 4096 };

/* Runs one pass. Each request is posted as soon as the previous one has been posted. The oldest that is not done is
 * polled between two posts, so that its end is seen while later layers are still in flight.
 * `seconds[k]` gets the time from the first post until layers 0 to k are all done: decode uses them in this order. */
static int one_pass(void *agent, void **requests, int count, post_f post, status_f status, double patience,
                    double *seconds) {
  double start = rw_now();
  for (int posted = 0, done = 0, polls = 1; done < count; polls++) {
    if (posted < count) {
      int code = post(agent, requests[posted], NULL);
      if (code < 0) return code;
      posted++;
    }
    int code = status(agent, requests[done]);
    if (code < 0) return code;
    if (code != IN_PROGRESS) seconds[done++] = rw_now() - start;
    if (polls % POLLS_BETWEEN_CLOCK_READS == 0 && rw_now() - start > patience) return RW_TIMED_OUT;
  }
  return RW_OK;
}

/* `seconds` has room for `iterations` x `count`. A pass that takes longer than `patience` seconds ends the loop. */
int rw_nixl_layers(void *agent, void **requests, int count, void *post, void *status, int warm, int iterations,
                   double patience, double *seconds) {
  for (int k = -warm; k < iterations; k++) {
    double *place = seconds + (k < 0 ? 0 : (size_t)k * (size_t)count);
    int code = one_pass(agent, requests, count, (post_f)post, (status_f)status, patience, place);
    if (code != RW_OK) return code;
  }
  return RW_OK;
}
