/* Both ends of a stream by the loops of native/rdma.c, for machines without Python, such as an emulated one.
 *
 *     rdma_ends DEVICE GID_INDEX write|read|send SIZE QUEUE_PAIRS ITERATIONS [ADDRESS]
 *
 * The end without an address waits for the other on TCP port 18600 and is the target, or the source of reads. It checks
 * what it received; the reader checks what it read. */
#include "verbs.c"

#include "rdma.c"

#include <arpa/inet.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PORT = 18600, DEPTH = 128, RECEIVE_DEPTH = 512, PATIENCE_S = 60 };

struct end {
  uint32_t numbers[MOST_QUEUE_PAIRS], psns[MOST_QUEUE_PAIRS], out_key, into_key;
  uint64_t out, into;
  int lid, mtu;
  uint8_t gid[16];
};

static void need(int status, const char *step) {
  if (!status) return;
  fprintf(stderr, "%s: %d, %s: %s\n", step, status, rw_failure.call ? rw_failure.call : "",
          status < 0 ? strerror(-status) : rw_verbs_status_text(status));
  exit(1);
}

static int meet(const char *address) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(PORT)};
  int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (!address) {
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 1)) need(-errno, "listen");
    return accept(listener, NULL, NULL);
  }
  inet_pton(AF_INET, address, &at.sin_addr);
  for (int tries = 0; connect(listener, (struct sockaddr *)&at, sizeof at); tries++) {
    if (tries > 300) need(-errno, "connect");
    usleep(100000);
    close(listener);
    listener = socket(AF_INET, SOCK_STREAM, 0);
  }
  return listener;
}

static void swap(int to, const void *mine, void *theirs, size_t bytes) {
  if (send(to, mine, bytes, 0) != (ssize_t)bytes) need(-EPIPE, "send");
  if (recv(to, theirs, bytes, MSG_WAITALL) != (ssize_t)bytes) need(-EPIPE, "receive");
}

static void sync_ends(int to) {
  char here = 1, there;
  swap(to, &here, &there, 1);
}

static uint8_t pattern(size_t at) { return (uint8_t)(at * 167 + at / 251 + 1); }

int main(int count, char **words) {
  if (count < 7) return 2;
  const char *operation = words[3], *address = count > 7 ? words[7] : NULL;
  int gid_index = atoi(words[2]), pairs = atoi(words[5]), starts = address != NULL;
  size_t size = (size_t)atol(words[4]);
  int64_t iterations = atol(words[6]);
  int reads = !strcmp(operation, "read"), sends = !strcmp(operation, "send");
  void *library = dlopen("libibverbs.so.1", RTLD_NOW);
  if (!library) need(-ENOENT, dlerror());
  need(rw_verbs_bind(library), "bind");

  struct rw_port_facts facts;
  struct rw_port *port;
  need(rw_port_open(words[1], 1, &facts, &port), "open");
  need(rw_port_completions(port, pairs * (DEPTH + RECEIVE_DEPTH)), "completions");
  size_t stride = (size + 63) / 64 * 64, slots = stride < 4096 ? 4096 / stride : 1, area = slots * stride;
  uint8_t *out = aligned_alloc(4096, (area * (size_t)pairs + 4095) / 4096 * 4096);
  uint8_t *into = aligned_alloc(4096, (area * (size_t)pairs + 4095) / 4096 * 4096);
  for (size_t at = 0; at < area * (size_t)pairs; at++) out[at] = pattern(at), into[at] = (uint8_t)~pattern(at);
  struct rwv_mr *out_mr, *into_mr;
  need(rw_port_register(port, out, area * (size_t)pairs, -1, 0, &out_mr), "register");
  need(rw_port_register(port, into, area * (size_t)pairs, -1, 0, &into_mr), "register");

  struct end mine = {.out = (uint64_t)(uintptr_t)out, .into = (uint64_t)(uintptr_t)into, .out_key = out_mr->rkey,
                     .into_key = into_mr->rkey, .lid = facts.lid, .mtu = facts.active_mtu}, theirs;
  struct rwv_gid_entry gid;
  need(rw_port_gid(port, (uint32_t)gid_index, &gid), "gid");
  memcpy(mine.gid, gid.gid.raw, sizeof mine.gid);
  struct rwv_qp *qps[MOST_QUEUE_PAIRS];
  for (int i = 0; i < pairs; i++) {
    need(rw_port_queue_pair(port, DEPTH, RECEIVE_DEPTH, 0, &qps[i]), "queue pair");
    mine.numbers[i] = qps[i]->qp_num, mine.psns[i] = 1000 * (uint32_t)(i + 1);
  }
  int other = meet(address);
  swap(other, &mine, &theirs, sizeof mine);
  struct rw_lane lanes[MOST_QUEUE_PAIRS] = {0};
  for (int i = 0; i < pairs; i++) {
    struct rw_peer peer = {.number = theirs.numbers[i], .psn = theirs.psns[i], .own_psn = mine.psns[i], .lid = theirs.lid,
                           .gid_index = gid_index, .mtu = mine.mtu < theirs.mtu ? mine.mtu : theirs.mtu, .reads = 16,
                           .responder_reads = 16};
    memcpy(peer.gid, theirs.gid, sizeof peer.gid);
    need(rw_port_connect(port, qps[i], &peer), "connect");
    uint64_t at = area * (uint64_t)i;
    lanes[i] = (struct rw_lane){.qp = qps[i], .local = (reads ? mine.into : mine.out) + at, .into = mine.into + at,
                                .remote = (reads ? theirs.out : theirs.into) + at,
                                .lkey = reads ? into_mr->lkey : out_mr->lkey,
                                .rkey = reads ? theirs.out_key : theirs.into_key, .into_lkey = into_mr->lkey};
  }
  struct rw_flow flow = {.lanes = lanes, .count = pairs, .opcode = reads ? RWV_WR_RDMA_READ : sends ? RWV_WR_SEND : 0,
                         .bytes = (uint32_t)size, .stride = (uint32_t)stride, .slots = (uint32_t)slots, .depth = DEPTH,
                         .receive_depth = RECEIVE_DEPTH, .signal_every = size > 8192 ? 1 : 100,
                         .receives = sends && !starts ? iterations : 0, .patience = PATIENCE_S};
  sync_ends(other);
  need(rw_rdma_prepare(&flow), "prepare");
  sync_ends(other);
  double seconds;
  need(rw_rdma_stream(&flow, starts ? iterations : 0, &seconds), "stream");
  sync_ends(other);
  size_t wrong = 0, checked = 0, used = (size_t)iterations < slots ? (size_t)iterations : slots;
  int is_target = reads ? starts : !starts;
  for (size_t lane = 0; is_target && lane < (size_t)pairs; lane++)
    for (size_t slot = 0; slot < used; slot++)
      for (size_t byte = 0; byte < size; byte++, checked++)
        wrong += into[lane * area + slot * stride + byte] != pattern(lane * area + slot * stride + byte);
  printf("%s requests %lld checked %zu wrong %zu\n", starts ? "client" : "server",
         (long long)(starts ? iterations * pairs : 0), checked, wrong);
  need(rw_port_close(port), "close");
  return wrong != 0;
}
