/* Timed loops over connected queue pairs, by perftest's method.
 *
 * A lane is a queue pair with its part of both memory regions. In a stream every lane keeps up to `depth` requests in
 * flight, and the clock runs from the first request to the last completion. A ping-pong uses the first lane alone. */
#include "rdma.h"

#include <errno.h>
#include <sched.h>

enum { BATCH = 16, TRIES_BETWEEN_CLOCK_READS = 4096, LANE_BITS = 16 };

/* The layouts are also in `native/rdma.py`. */
struct rw_lane {
  struct rwv_qp *qp;
  uint64_t local, remote, into; /* the first slots: of requests here and there, and of received messages */
  uint32_t lkey, rkey, into_lkey;
  int64_t posted, completed, receives_posted, received;
};

struct rw_flow {
  struct rw_lane *lanes;
  int count, opcode;
  uint32_t bytes, stride, slots;
  int depth, receive_depth, signal_every, is_inline, is_ping;
  int64_t receives; /* of each lane */
  double patience;  /* seconds without a completion after which the other side counts as dead */
};

/* The id of the n-th request of a lane, from 1: a completion that is lost or reported twice breaks the sequence. */
static uint64_t id_of(int lane, int64_t number) { return (uint64_t)number << LANE_BITS | (uint64_t)lane; }

static int post(const struct rw_flow *f, int index, int is_signaled) {
  struct rw_lane *lane = &f->lanes[index];
  uint64_t at = (uint64_t)(lane->posted % f->slots) * f->stride;
  struct rwv_sge part = {.addr = lane->local + at, .length = f->bytes, .lkey = lane->lkey};
  struct rwv_send_wr request = {.wr_id = id_of(index, lane->posted + 1),
                                .sg_list = &part,
                                .num_sge = 1,
                                .opcode = f->opcode,
                                .send_flags = (is_signaled ? RWV_SEND_SIGNALED : 0u) | (f->is_inline ? RWV_SEND_INLINE : 0u),
                                .rdma = {.remote_addr = lane->remote + at, .rkey = lane->rkey}};
  struct rwv_send_wr *bad = NULL;
  int error = lane->qp->context->ops.post_send(lane->qp, &request, &bad);
  if (error) return rw_failed("ibv_post_send", error);
  lane->posted++;
  return RW_OK;
}

static int post_receive(const struct rw_flow *f, int index) {
  struct rw_lane *lane = &f->lanes[index];
  uint64_t at = (uint64_t)(lane->receives_posted % f->slots) * f->stride;
  struct rwv_sge part = {.addr = lane->into + at, .length = f->bytes, .lkey = lane->into_lkey};
  struct rwv_recv_wr request = {.wr_id = id_of(index, lane->receives_posted + 1), .sg_list = &part, .num_sge = 1};
  struct rwv_recv_wr *bad = NULL;
  int error = lane->qp->context->ops.post_recv(lane->qp, &request, &bad);
  if (error) return rw_failed("ibv_post_recv", error);
  lane->receives_posted++;
  return RW_OK;
}

/* The last byte of a written message, which counts the iterations of a ping-pong from 1. */
static volatile uint8_t *last_byte(const struct rw_flow *f, uint64_t place) {
  return (volatile uint8_t *)(uintptr_t)(place + f->bytes - 1);
}

/* Posts the first receives of each lane. Call it before the other side may send. */
int rw_rdma_prepare(const struct rw_flow *f) {
  for (int i = 0; i < f->count; i++) {
    struct rw_lane *lane = &f->lanes[i];
    lane->posted = lane->completed = lane->receives_posted = lane->received = 0;
    if (f->is_ping && f->opcode == RWV_WR_RDMA_WRITE) *last_byte(f, lane->into) = 0;
    while (lane->receives_posted < f->receives && lane->receives_posted < f->receive_depth) {
      int status = post_receive(f, i);
      if (status) return status;
    }
  }
  return RW_OK;
}

/* Counts a completion for its lane. A signaled request also completes the unsignaled ones before it. */
static int count(const struct rw_flow *f, const struct rwv_wc *done) {
  int index = (int)(done->wr_id & ((1 << LANE_BITS) - 1));
  int64_t number = (int64_t)(done->wr_id >> LANE_BITS);
  if (done->status != RWV_WC_SUCCESS) {
    rw_failure = (struct rw_failure){.call = "completion", .lane = index, .vendor = done->vendor_err};
    return done->status > 0 ? done->status : RW_STRAY_COMPLETION;
  }
  if (index >= f->count) return RW_STRAY_COMPLETION;
  struct rw_lane *lane = &f->lanes[index];
  if (!(done->opcode & RWV_WC_RECV)) {
    int64_t open = lane->posted - lane->completed;
    int64_t next = lane->completed + (open < f->signal_every ? open : f->signal_every);
    if (open < 1 || number != next) return RW_STRAY_COMPLETION;
    lane->completed = next;
    return RW_OK;
  }
  if (lane->received >= lane->receives_posted || number != lane->received + 1) return RW_STRAY_COMPLETION;
  if (done->byte_len != f->bytes) return RW_SHORT_MESSAGE;
  lane->received++;
  return lane->receives_posted < f->receives ? post_receive(f, index) : RW_OK;
}

/* Polls the completion queue of each port once. Returns the number of completions, or stores a failure. */
static int poll_ports(const struct rw_flow *f, int *status) {
  struct rwv_wc done[BATCH];
  int found = 0;
  for (int i = 0; i < f->count; i++) {
    struct rwv_cq *cq = f->lanes[i].qp->send_cq;
    if (i && cq == f->lanes[i - 1].qp->send_cq) continue;
    int entries = cq->context->ops.poll_cq(cq, BATCH, done);
    if (entries < 0) return *status = rw_failed("ibv_poll_cq", entries == -1 ? EIO : -entries), found;
    if (entries > BATCH) return *status = RW_STRAY_COMPLETION, found;
    for (int k = 0; k < entries; k++)
      if ((*status = count(f, &done[k]))) return found;
    found += entries;
  }
  return found;
}

/* A watch over the silence of the other side. */
struct watch {
  double heard;
  unsigned tries;
};

static int is_silent(const struct rw_flow *f, struct watch *w, int heard) {
  if (heard) w->tries = 0;
  else if (++w->tries % TRIES_BETWEEN_CLOCK_READS == 0) {
    if (w->tries == TRIES_BETWEEN_CLOCK_READS) w->heard = rw_now();
    sched_yield(); /* both sides may share a CPU; after so many tries a microsecond does not matter */
    return rw_now() - w->heard > f->patience;
  }
  return 0;
}

static int is_complete(const struct rw_flow *f, int64_t sends, int64_t receives) {
  for (int i = 0; i < f->count; i++)
    if (f->lanes[i].completed < sends || f->lanes[i].received < receives) return 0;
  return 1;
}

/* Sends `sends` requests on each lane, and receives the prepared messages. The time is that of the requests, or of the
 * receives if this side sends nothing. Call `rw_rdma_prepare` first. */
int rw_rdma_stream(const struct rw_flow *f, int64_t sends, double *seconds) {
  struct watch watch = {0};
  double start = rw_now();
  *seconds = 0;
  while (!is_complete(f, sends, f->receives)) {
    for (int i = 0; i < f->count; i++) {
      struct rw_lane *lane = &f->lanes[i];
      while (lane->posted < sends && lane->posted - lane->completed < f->depth) {
        int status = post(f, i, (lane->posted + 1) % f->signal_every == 0 || lane->posted + 1 == sends);
        if (status) return status;
      }
    }
    int status = RW_OK, found = poll_ports(f, &status);
    if (status) return status;
    if (sends && !*seconds && is_complete(f, sends, 0)) *seconds = rw_now() - start;
    if (is_silent(f, &watch, found)) return RW_TIMED_OUT;
  }
  if (!*seconds) *seconds = rw_now() - start;
  return RW_OK;
}

static int wait_for(const struct rw_flow *f, const int64_t *counter, int64_t least) {
  struct watch watch = {0};
  while (*counter < least) {
    int status = RW_OK, found = poll_ports(f, &status);
    if (status) return status;
    if (is_silent(f, &watch, found)) return RW_TIMED_OUT;
  }
  return RW_OK;
}

static int wait_for_byte(const struct rw_flow *f, const volatile uint8_t *place, uint8_t value) {
  struct watch watch = {0};
  while (*place != value)
    if (is_silent(f, &watch, 0)) return RW_TIMED_OUT;
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  return RW_OK;
}

/* Waits for the k-th message of the other side: by its receive, or by the last byte that it writes. */
static int take(const struct rw_flow *f, int64_t k) {
  struct rw_lane *lane = &f->lanes[0];
  if (f->opcode == RWV_WR_SEND) return wait_for(f, &lane->received, k + 1);
  return wait_for_byte(f, last_byte(f, lane->into), (uint8_t)(k + 1));
}

static int give(const struct rw_flow *f, int64_t k) {
  struct rw_lane *lane = &f->lanes[0];
  if (f->opcode == RWV_WR_RDMA_WRITE) *last_byte(f, lane->local) = (uint8_t)(k + 1);
  int status = post(f, 0, 1);
  return status ? status : wait_for(f, &lane->completed, lane->posted);
}

/* Ping-pongs: half of each round trip, on the side that starts. A read is one sided, and its time is that of the whole
 * request. Call `rw_rdma_prepare` first. */
int rw_rdma_latency(const struct rw_flow *f, int starts, int iterations, double *seconds) {
  int status = RW_OK, reads = f->opcode == RWV_WR_RDMA_READ;
  if (reads && !starts) return RW_OK;
  for (int64_t k = 0; k < iterations && !status; k++) {
    double start = rw_now();
    status = starts ? give(f, k) : take(f, k);
    if (!status && !reads) status = starts ? take(f, k) : give(f, k);
    seconds[k] = (rw_now() - start) / (reads ? 1 : 2);
  }
  return status;
}
