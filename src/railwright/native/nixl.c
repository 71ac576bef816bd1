/* NIXL transfers through its plain C API (libnixl_capi.so): post, then poll until done. */
#include "railwright.h"

#include <dlfcn.h>

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

/* The same request again and again. `seconds` gets post to done, `posts` the post call alone.
 * A transfer that takes longer than `patience` seconds ends the loop: the peer or the transport hangs. */
int rw_nixl_transfer(void *agent, void *request, int warm, int iterations, double patience, double *seconds,
                     double *posts) {
  for (int k = -warm; k < iterations; k++) {
    double start = rw_now();
    int status = nixl.post(agent, request, NULL);
    double posted = rw_now();
    if (status < 0) return status;
    for (int polls = 1; (status = nixl.status(agent, request)) == IN_PROGRESS; polls++)
      if (polls % POLLS_BETWEEN_CLOCK_READS == 0 && rw_now() - start > patience) return RW_TIMED_OUT;
    if (status < 0) return status;
    if (k >= 0) seconds[k] = rw_now() - start, posts[k] = posted - start;
  }
  return RW_OK;
}
