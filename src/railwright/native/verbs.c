/* Ports, memory regions and queue pairs of RDMA devices, through libibverbs, which dlsym binds at run time.
 *
 * Everything that a port has opened is kept with it, so that closing the port releases all of it, whatever failed. */
#include "rdma.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_QUEUE_PAIRS = 64, MOST_REGIONS = 16, REQUIRED = 18, CLOSE_TRIES = 3 };
/* perftest's defaults: 4.096 us x 2^14 before a retry, 7 retries, no end of retries while the receiver is not ready. */
enum { TIMEOUT = 14, RETRIES = 7, RNR_RETRIES = 7, RNR_TIMER = 12, HOP_LIMIT = 64 };

struct rw_verbs rw_verbs;
__thread struct rw_failure rw_failure;

static const char *const NAMES[] = {
    "ibv_get_device_list", "ibv_free_device_list", "ibv_get_device_name", "ibv_open_device", "ibv_close_device",
    "ibv_query_device",    "ibv_query_port",       "ibv_alloc_pd",        "ibv_dealloc_pd",  "ibv_reg_mr",
    "ibv_dereg_mr",        "ibv_create_cq",        "ibv_destroy_cq",      "ibv_create_qp",   "ibv_destroy_qp",
    "ibv_modify_qp",       "ibv_wc_status_str",    "_ibv_query_gid_ex",   "ibv_reg_mr_iova2", "ibv_reg_dmabuf_mr",
};
_Static_assert(sizeof NAMES / sizeof NAMES[0] == sizeof rw_verbs / sizeof(void *), "every function must have its name");

/* Binds a loaded libibverbs. The names that only newer versions have may be absent. */
int rw_verbs_bind(void *library) {
  for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
    void *symbol = dlsym(library, NAMES[i]);
    if (!symbol && i < REQUIRED) return rw_failed(NAMES[i], 0), RW_MISSING_SYMBOL;
    memcpy((char *)&rw_verbs + i * sizeof symbol, &symbol, sizeof symbol);
  }
  return RW_OK;
}

int rw_failed(const char *call, int error) {
  rw_failure = (struct rw_failure){.call = call, .lane = -1};
  return error > 0 ? -error : error < 0 ? error : -EIO;
}

struct rw_failure rw_verbs_failure(void) { return rw_failure; }

const char *rw_verbs_status_text(int status) { return rw_verbs.wc_status_str ? rw_verbs.wc_status_str(status) : NULL; }

int rw_verbs_has_dmabuf(void) { return rw_verbs.reg_dmabuf_mr != NULL; }

/* Writes the names of all devices, each followed by a newline. */
int rw_verbs_devices(char *names, size_t bytes) {
  int count = 0;
  size_t used = 0;
  errno = 0;
  struct rwv_device **list = rw_verbs.get_device_list(&count);
  names[0] = 0;
  if (!list) return errno == ENOSYS ? RW_OK : rw_failed("ibv_get_device_list", errno);
  for (int i = 0; i < count; i++) {
    const char *name = rw_verbs.get_device_name(list[i]);
    size_t length = strlen(name);
    if (used + length + 2 > bytes) break;
    memcpy(names + used, name, length);
    memcpy(names + used + length, "\n", 2);
    used += length + 1;
  }
  rw_verbs.free_device_list(list);
  return RW_OK;
}

struct rw_port {
  struct rwv_context *context;
  struct rwv_pd *pd;
  struct rwv_cq *cq;
  struct rwv_qp *qps[MOST_QUEUE_PAIRS];
  struct rwv_mr *mrs[MOST_REGIONS];
  uint8_t number;
};

/* The layout is also in `native/verbs.py`. */
struct rw_port_facts {
  int state, active_mtu, link_layer, lid, gids, reads, responder_reads, most_requests, most_completions;
  uint32_t most_message_bytes;
  char firmware[64];
};

static struct rwv_context *open_named(const char *device) {
  int count = 0;
  errno = 0;
  struct rwv_device **list = rw_verbs.get_device_list(&count);
  if (!list) return rw_failed("ibv_get_device_list", errno), NULL;
  struct rwv_context *context = NULL;
  rw_failed(NULL, RW_NO_DEVICE);
  errno = 0;
  for (int i = 0; i < count && !context; i++) {
    if (strcmp(rw_verbs.get_device_name(list[i]), device)) continue;
    context = rw_verbs.open_device(list[i]);
    if (!context) rw_failed("ibv_open_device", errno);
    break;
  }
  int error = errno;
  rw_verbs.free_device_list(list);
  errno = error;
  return context;
}

static int read_facts(struct rw_port *p, struct rw_port_facts *facts) {
  struct rwv_device_attr device = {0};
  struct rwv_port_attr port = {0};
  int error = rw_verbs.query_device(p->context, &device);
  if (error) return rw_failed("ibv_query_device", error);
  error = rw_verbs.query_port(p->context, p->number, &port);
  if (error) return rw_failed("ibv_query_port", error);
  *facts = (struct rw_port_facts){
      .state = port.state, .active_mtu = port.active_mtu, .link_layer = port.link_layer, .lid = port.lid,
      .gids = port.gid_tbl_len, .reads = device.max_qp_init_rd_atom, .responder_reads = device.max_qp_rd_atom,
      .most_requests = device.max_qp_wr, .most_completions = device.max_cqe, .most_message_bytes = port.max_msg_sz};
  memcpy(facts->firmware, device.fw_ver, sizeof facts->firmware - 1);
  return RW_OK;
}

/* Releases everything of a port. A region is tried again, because one that stays registered pins its memory. */
int rw_port_close(struct rw_port *p) {
  int status = RW_OK;
  for (int i = 0; i < MOST_QUEUE_PAIRS; i++) {
    int error = p->qps[i] ? rw_verbs.destroy_qp(p->qps[i]) : 0;
    if (error) status = rw_failed("ibv_destroy_qp", error);
  }
  for (int i = 0; i < MOST_REGIONS; i++) {
    int error = p->mrs[i] != NULL;
    for (int tries = 0; error && tries < CLOSE_TRIES; tries++) error = rw_verbs.dereg_mr(p->mrs[i]);
    if (error) status = rw_failed("ibv_dereg_mr", error);
  }
  int error = p->cq ? rw_verbs.destroy_cq(p->cq) : 0;
  if (error) status = rw_failed("ibv_destroy_cq", error);
  error = p->pd ? rw_verbs.dealloc_pd(p->pd) : 0;
  if (error) status = rw_failed("ibv_dealloc_pd", error);
  error = p->context ? rw_verbs.close_device(p->context) : 0;
  if (error) status = rw_failed("ibv_close_device", error);
  free(p);
  return status;
}

static int fill_port(struct rw_port *p, const char *device, struct rw_port_facts *facts) {
  p->context = open_named(device);
  if (!p->context) return rw_failure.call ? rw_failed(rw_failure.call, errno) : RW_NO_DEVICE;
  int status = read_facts(p, facts);
  if (status) return status;
  errno = 0;
  p->pd = rw_verbs.alloc_pd(p->context);
  return p->pd ? RW_OK : rw_failed("ibv_alloc_pd", errno);
}

/* Opens a port of a device with its protection domain. On failure nothing stays open. */
int rw_port_open(const char *device, int number, struct rw_port_facts *facts, struct rw_port **out) {
  struct rw_port *p = calloc(1, sizeof *p);
  if (!p) return RW_NO_MEMORY;
  p->number = (uint8_t)number;
  int status = fill_port(p, device, facts);
  if (status) {
    struct rw_failure cause = rw_failure;
    rw_port_close(p);
    rw_failure = cause;
    return status;
  }
  *out = p;
  return RW_OK;
}

/* Reads an entry of the GID table. An empty entry is -ENODATA. */
int rw_port_gid(struct rw_port *p, uint32_t index, struct rwv_gid_entry *entry) {
  int error = rw_verbs.query_gid_ex(p->context, p->number, index, entry, 0, sizeof *entry);
  return error ? rw_failed("ibv_query_gid_ex", error) : RW_OK;
}

/* Creates the completion queue of all queue pairs. */
int rw_port_completions(struct rw_port *p, int entries) {
  errno = 0;
  p->cq = rw_verbs.create_cq(p->context, entries, NULL, NULL, 0);
  return p->cq ? RW_OK : rw_failed("ibv_create_cq", errno);
}

/* Registers memory for reads and writes by both sides: that of a DMA buffer if `dmabuf` is not -1. */
int rw_port_register(struct rw_port *p, void *address, size_t bytes, int dmabuf, int relaxed, struct rwv_mr **out) {
  int access = RWV_ACCESS_LOCAL_WRITE | RWV_ACCESS_REMOTE_WRITE | RWV_ACCESS_REMOTE_READ;
  int place = 0;
  while (place < MOST_REGIONS && p->mrs[place]) place++;
  if (place == MOST_REGIONS) return RW_NO_MEMORY;
  const char *call = dmabuf >= 0 ? "ibv_reg_dmabuf_mr" : relaxed ? "ibv_reg_mr_iova2" : "ibv_reg_mr";
  if ((dmabuf >= 0 && !rw_verbs.reg_dmabuf_mr) || (dmabuf < 0 && relaxed && !rw_verbs.reg_mr_iova2))
    return rw_failed(call, 0), RW_MISSING_SYMBOL;
  if (relaxed) access |= RWV_ACCESS_RELAXED_ORDERING;
  errno = 0;
  uint64_t iova = (uint64_t)(uintptr_t)address;
  struct rwv_mr *mr = dmabuf >= 0 ? rw_verbs.reg_dmabuf_mr(p->pd, 0, bytes, iova, dmabuf, access)
                      : relaxed   ? rw_verbs.reg_mr_iova2(p->pd, address, bytes, iova, (unsigned)access)
                                  : rw_verbs.reg_mr(p->pd, address, bytes, access);
  if (!mr) return rw_failed(call, errno);
  *out = p->mrs[place] = mr;
  return RW_OK;
}

void rw_region_keys(const struct rwv_mr *mr, uint32_t keys[2]) { keys[0] = mr->lkey, keys[1] = mr->rkey; }

uint32_t rw_queue_pair_number(const struct rwv_qp *qp) { return qp->qp_num; }

/* Creates a reliable queue pair and brings it to INIT. */
int rw_port_queue_pair(struct rw_port *p, int sends, int receives, int inline_bytes, struct rwv_qp **out) {
  int place = 0;
  while (place < MOST_QUEUE_PAIRS && p->qps[place]) place++;
  if (place == MOST_QUEUE_PAIRS) return RW_NO_MEMORY;
  struct rwv_qp_init_attr init = {.send_cq = p->cq,
                                  .recv_cq = p->cq,
                                  .qp_type = RWV_QPT_RC,
                                  .cap = {.max_send_wr = (uint32_t)sends,
                                          .max_recv_wr = (uint32_t)receives,
                                          .max_send_sge = 1,
                                          .max_recv_sge = 1,
                                          .max_inline_data = (uint32_t)inline_bytes}};
  errno = 0;
  struct rwv_qp *qp = rw_verbs.create_qp(p->pd, &init);
  if (!qp) return rw_failed("ibv_create_qp", errno);
  *out = p->qps[place] = qp;
  struct rwv_qp_attr attr = {.qp_state = RWV_QPS_INIT,
                             .port_num = p->number,
                             .qp_access_flags = RWV_ACCESS_LOCAL_WRITE | RWV_ACCESS_REMOTE_WRITE | RWV_ACCESS_REMOTE_READ};
  int error = rw_verbs.modify_qp(qp, &attr, RWV_QP_STATE | RWV_QP_PKEY_INDEX | RWV_QP_PORT | RWV_QP_ACCESS_FLAGS);
  return error ? rw_failed("ibv_modify_qp to INIT", error) : RW_OK;
}

/* The other end of a queue pair, and the way to it. The layout is also in `native/verbs.py`. */
struct rw_peer {
  uint32_t number, psn, own_psn;
  int lid, gid_index; /* gid_index: this side's GID; -1 without a global route */
  uint8_t gid[16];
  int mtu, traffic_class, service_level, reads, responder_reads;
};

/* Connects a queue pair and brings it to RTS. */
int rw_port_connect(struct rw_port *p, struct rwv_qp *qp, const struct rw_peer *to) {
  struct rwv_qp_attr attr = {.qp_state = RWV_QPS_RTR,
                             .path_mtu = to->mtu,
                             .dest_qp_num = to->number,
                             .rq_psn = to->psn,
                             .max_dest_rd_atomic = (uint8_t)to->responder_reads,
                             .min_rnr_timer = RNR_TIMER,
                             .ah_attr = {.dlid = (uint16_t)to->lid,
                                         .sl = (uint8_t)to->service_level,
                                         .port_num = p->number,
                                         .is_global = to->gid_index >= 0}};
  if (to->gid_index >= 0) {
    attr.ah_attr.grh.sgid_index = (uint8_t)to->gid_index;
    attr.ah_attr.grh.hop_limit = HOP_LIMIT;
    attr.ah_attr.grh.traffic_class = (uint8_t)to->traffic_class;
    memcpy(attr.ah_attr.grh.dgid.raw, to->gid, sizeof to->gid);
  }
  int error = rw_verbs.modify_qp(qp, &attr,
                                 RWV_QP_STATE | RWV_QP_AV | RWV_QP_PATH_MTU | RWV_QP_DEST_QPN | RWV_QP_RQ_PSN |
                                     RWV_QP_MAX_DEST_RD_ATOMIC | RWV_QP_MIN_RNR_TIMER);
  if (error) return rw_failed("ibv_modify_qp to RTR", error);
  attr = (struct rwv_qp_attr){.qp_state = RWV_QPS_RTS,
                              .timeout = TIMEOUT,
                              .retry_cnt = RETRIES,
                              .rnr_retry = RNR_RETRIES,
                              .sq_psn = to->own_psn,
                              .max_rd_atomic = (uint8_t)to->reads};
  error = rw_verbs.modify_qp(qp, &attr,
                             RWV_QP_STATE | RWV_QP_TIMEOUT | RWV_QP_RETRY_CNT | RWV_QP_RNR_RETRY | RWV_QP_SQ_PSN |
                                 RWV_QP_MAX_QP_RD_ATOMIC);
  return error ? rw_failed("ibv_modify_qp to RTS", error) : RW_OK;
}
