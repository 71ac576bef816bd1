/* The part of libibverbs that the RDMA loops use, declared here so that no header and no library of RDMA is needed.
 *
 * The binary interface is that of rdma-core's libibverbs/verbs.h, which has been stable since 2008.
 * tests/native/verbs_layout.c holds every declaration against the header. Posting and polling are inline functions in
 * that header, which call through the context's operations; the library does not export them. */
#ifndef RAILWRIGHT_VERBS_H
#define RAILWRIGHT_VERBS_H

#include <stddef.h>
#include <stdint.h>

enum {
  RWV_ACCESS_LOCAL_WRITE = 1,
  RWV_ACCESS_REMOTE_WRITE = 2,
  RWV_ACCESS_REMOTE_READ = 4,
  RWV_ACCESS_RELAXED_ORDERING = 1 << 20
};
enum { RWV_PORT_ACTIVE = 4 };
enum { RWV_LINK_INFINIBAND = 1, RWV_LINK_ETHERNET = 2 };
enum { RWV_GID_IB = 0, RWV_GID_ROCE_V1 = 1, RWV_GID_ROCE_V2 = 2 };
enum { RWV_QPT_RC = 2 };
enum { RWV_QPS_INIT = 1, RWV_QPS_RTR = 2, RWV_QPS_RTS = 3, RWV_QPS_ERR = 6 };
enum { RWV_WR_RDMA_WRITE = 0, RWV_WR_SEND = 2, RWV_WR_RDMA_READ = 4 };
enum { RWV_SEND_SIGNALED = 2, RWV_SEND_INLINE = 8 };
enum { RWV_WC_SUCCESS = 0, RWV_WC_WR_FLUSH_ERR = 5, RWV_WC_RETRY_EXC_ERR = 12, RWV_WC_TM_RNDV_INCOMPLETE = 23 };
enum { RWV_WC_RECV = 128 };
enum {
  RWV_QP_STATE = 1 << 0,
  RWV_QP_ACCESS_FLAGS = 1 << 3,
  RWV_QP_PKEY_INDEX = 1 << 4,
  RWV_QP_PORT = 1 << 5,
  RWV_QP_AV = 1 << 7,
  RWV_QP_PATH_MTU = 1 << 8,
  RWV_QP_TIMEOUT = 1 << 9,
  RWV_QP_RETRY_CNT = 1 << 10,
  RWV_QP_RNR_RETRY = 1 << 11,
  RWV_QP_RQ_PSN = 1 << 12,
  RWV_QP_MAX_QP_RD_ATOMIC = 1 << 13,
  RWV_QP_MIN_RNR_TIMER = 1 << 15,
  RWV_QP_SQ_PSN = 1 << 16,
  RWV_QP_MAX_DEST_RD_ATOMIC = 1 << 17,
  RWV_QP_DEST_QPN = 1 << 20
};

struct rwv_device;
struct rwv_pd;
struct rwv_qp;
struct rwv_cq;
struct rwv_wc;
struct rwv_send_wr;
struct rwv_recv_wr;

typedef void (*rwv_unused)(void);

/* ibv_context_ops. The unused entries are kept for the places of the others. */
struct rwv_ops {
  rwv_unused before_poll[11];
  int (*poll_cq)(struct rwv_cq *, int entries, struct rwv_wc *);
  rwv_unused before_post[13];
  int (*post_send)(struct rwv_qp *, struct rwv_send_wr *, struct rwv_send_wr **bad);
  int (*post_recv)(struct rwv_qp *, struct rwv_recv_wr *, struct rwv_recv_wr **bad);
  rwv_unused after_post[5];
};

struct rwv_context {
  struct rwv_device *device;
  struct rwv_ops ops;
  int cmd_fd, async_fd;
};

struct rwv_mr {
  struct rwv_context *context;
  struct rwv_pd *pd;
  void *addr;
  size_t length;
  uint32_t handle, lkey, rkey;
};

struct rwv_cq {
  struct rwv_context *context;
};

struct rwv_qp {
  struct rwv_context *context;
  void *qp_context;
  struct rwv_pd *pd;
  struct rwv_cq *send_cq, *recv_cq;
  void *srq;
  uint32_t handle, qp_num;
};

struct rwv_gid {
  uint8_t raw[16];
} __attribute__((aligned(8)));

struct rwv_gid_entry {
  struct rwv_gid gid;
  uint32_t gid_index, port_num, gid_type, ndev_ifindex;
};

/* ibv_port_attr. The library's own ibv_query_port fills it up to `flags`. */
struct rwv_port_attr {
  int state, max_mtu, active_mtu, gid_tbl_len;
  uint32_t port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr;
  uint16_t pkey_tbl_len, lid, sm_lid;
  uint8_t lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width, active_speed, phys_state, link_layer;
  uint8_t flags;
  uint16_t port_cap_flags2;
  uint32_t active_speed_ex;
};

struct rwv_device_attr {
  char fw_ver[64];
  uint64_t node_guid, sys_image_guid, max_mr_size, page_size_cap;
  uint32_t vendor_id, vendor_part_id, hw_ver;
  int max_qp, max_qp_wr;
  unsigned device_cap_flags;
  int max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom, max_ee_rd_atom, max_res_rd_atom;
  int max_qp_init_rd_atom;
  uint8_t rest[160];
};

struct rwv_global_route {
  struct rwv_gid dgid;
  uint32_t flow_label;
  uint8_t sgid_index, hop_limit, traffic_class;
};

struct rwv_ah_attr {
  struct rwv_global_route grh;
  uint16_t dlid;
  uint8_t sl, src_path_bits, static_rate, is_global, port_num;
};

struct rwv_qp_cap {
  uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data;
};

struct rwv_qp_init_attr {
  void *qp_context;
  struct rwv_cq *send_cq, *recv_cq;
  void *srq;
  struct rwv_qp_cap cap;
  int qp_type, sq_sig_all;
};

struct rwv_qp_attr {
  int qp_state, cur_qp_state, path_mtu, path_mig_state;
  uint32_t qkey, rq_psn, sq_psn, dest_qp_num;
  unsigned qp_access_flags;
  struct rwv_qp_cap cap;
  struct rwv_ah_attr ah_attr, alt_ah_attr;
  uint16_t pkey_index, alt_pkey_index;
  uint8_t en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num, timeout;
  uint8_t retry_cnt, rnr_retry, alt_port_num, alt_timeout;
  uint32_t rate_limit;
};

struct rwv_sge {
  uint64_t addr;
  uint32_t length, lkey;
};

struct rwv_send_wr {
  uint64_t wr_id;
  struct rwv_send_wr *next;
  struct rwv_sge *sg_list;
  int num_sge, opcode;
  unsigned send_flags;
  uint32_t imm_data;
  struct {
    uint64_t remote_addr;
    uint32_t rkey;
    uint64_t rest[2]; /* the union's largest member, of atomic operations */
  } rdma;
  uint64_t xrc; /* the union qp_type, which holds a number of 32 bits */
  uint64_t bind_mw[6];
};

struct rwv_recv_wr {
  uint64_t wr_id;
  struct rwv_recv_wr *next;
  struct rwv_sge *sg_list;
  int num_sge;
};

struct rwv_wc {
  uint64_t wr_id;
  int status, opcode;
  uint32_t vendor_err, byte_len, imm_data, qp_num, src_qp;
  unsigned wc_flags;
  uint16_t pkey_index, slid;
  uint8_t sl, dlid_path_bits;
};

/* The functions that the library exports, in the order of NAMES in verbs.c. The last three are newer, and optional. */
struct rw_verbs {
  struct rwv_device **(*get_device_list)(int *count);
  void (*free_device_list)(struct rwv_device **);
  const char *(*get_device_name)(struct rwv_device *);
  struct rwv_context *(*open_device)(struct rwv_device *);
  int (*close_device)(struct rwv_context *);
  int (*query_device)(struct rwv_context *, struct rwv_device_attr *);
  int (*query_port)(struct rwv_context *, uint8_t port, struct rwv_port_attr *);
  struct rwv_pd *(*alloc_pd)(struct rwv_context *);
  int (*dealloc_pd)(struct rwv_pd *);
  struct rwv_mr *(*reg_mr)(struct rwv_pd *, void *, size_t, int access);
  int (*dereg_mr)(struct rwv_mr *);
  struct rwv_cq *(*create_cq)(struct rwv_context *, int entries, void *, void *channel, int vector);
  int (*destroy_cq)(struct rwv_cq *);
  struct rwv_qp *(*create_qp)(struct rwv_pd *, struct rwv_qp_init_attr *);
  int (*destroy_qp)(struct rwv_qp *);
  int (*modify_qp)(struct rwv_qp *, struct rwv_qp_attr *, int mask);
  const char *(*wc_status_str)(int status);
  int (*query_gid_ex)(struct rwv_context *, uint32_t port, uint32_t index, struct rwv_gid_entry *, uint32_t flags,
                      size_t entry_bytes);
  struct rwv_mr *(*reg_mr_iova2)(struct rwv_pd *, void *, size_t, uint64_t iova, unsigned access);
  struct rwv_mr *(*reg_dmabuf_mr)(struct rwv_pd *, uint64_t offset, size_t, uint64_t iova, int fd, int access);
};

extern struct rw_verbs rw_verbs;

#endif
