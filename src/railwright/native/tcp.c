/* Plain TCP between two processes: a ping-pong, and windows of messages that are answered by one byte.
 *
 * Sockets are blocking, with TCP_NODELAY. With `spins` a loop calls the kernel repeatedly (MSG_DONTWAIT); otherwise it
 * sleeps in the kernel. A spinning receiver has the minimum latency, and needs a CPU of its own. */
#include "railwright.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

enum { CLOSED = -1010, TRIES_BETWEEN_CLOCK_READS = 4096 };

/* The state of both loops. The layout is also in `native/tcp.py`. */
struct rw_tcp {
  int fd, spins, starts; /* `starts`: this side sends first and takes the times */
  double patience;       /* seconds without a byte after which the other side counts as dead */
};

static int wait_for(const struct rw_tcp *t, short events) {
  struct pollfd one = {.fd = t->fd, .events = events};
  int ready = poll(&one, 1, (int)(t->patience * 1e3));
  return ready > 0 ? RW_OK : ready == 0 ? RW_TIMED_OUT : errno == EINTR ? RW_OK : -errno;
}

/* Moves all bytes; `move` is send or recv behind one signature. */
static int all(const struct rw_tcp *t, char *place, size_t bytes, int sends) {
  double since = 0;
  for (unsigned tries = 1; bytes; tries++) {
    ssize_t moved = sends ? send(t->fd, place, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) : recv(t->fd, place, bytes, MSG_DONTWAIT);
    if (moved > 0) {
      place += moved, bytes -= (size_t)moved, since = 0;
      continue;
    }
    if (moved == 0) return CLOSED;
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return -errno;
    if (!t->spins) {
      int status = wait_for(t, sends ? POLLOUT : POLLIN);
      if (status != RW_OK) return status;
    } else if (tries % TRIES_BETWEEN_CLOCK_READS == 0) {
      if (since == 0) since = rw_now();
      if (rw_now() - since > t->patience) return RW_TIMED_OUT;
    }
  }
  return RW_OK;
}

static int give(const struct rw_tcp *t, const char *out, size_t bytes) { return all(t, (char *)out, bytes, 1); }
static int take(const struct rw_tcp *t, char *into, size_t bytes) { return all(t, into, bytes, 0); }

/* Measures half the round trip of each timed iteration, on the side that starts. */
int rw_tcp_latency(const struct rw_tcp *t, const char *out, char *into, size_t bytes, int warm, int iterations,
                   double *seconds) {
  int status = RW_OK;
  for (int k = -warm; k < iterations && status == RW_OK; k++) {
    double start = rw_now();
    status = t->starts ? give(t, out, bytes) : take(t, into, bytes);
    if (status == RW_OK) status = t->starts ? take(t, into, bytes) : give(t, out, bytes);
    if (k >= 0) seconds[k] = (rw_now() - start) / 2;
  }
  return status;
}

/* Sends windows of messages from one buffer; the receiver answers each window with a byte. */
int rw_tcp_windows(const struct rw_tcp *t, const char *out, char *into, size_t bytes, int window, int warm,
                   int iterations, double *seconds) {
  int status = RW_OK;
  char answer = 0;
  for (int k = -warm; k < iterations && status == RW_OK; k++) {
    double start = rw_now();
    for (int message = 0; message < window && status == RW_OK; message++)
      status = t->starts ? give(t, out, bytes) : take(t, into, bytes);
    if (status == RW_OK) status = t->starts ? take(t, &answer, 1) : give(t, &answer, 1);
    if (k >= 0) seconds[k] = rw_now() - start;
  }
  return status;
}
