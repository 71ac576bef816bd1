/* Holds native/verbs.h against rdma-core's own header. It only has to compile. */
#include <infiniband/verbs.h>

#include "verbs.h"

#define SIZE(ours, theirs) _Static_assert(sizeof(struct ours) == sizeof(struct theirs), #theirs)
#define AT(ours, our_field, theirs, their_field)                                                     \
  _Static_assert(offsetof(struct ours, our_field) == offsetof(struct theirs, their_field), #theirs "." #their_field); \
  _Static_assert(sizeof(((struct ours *)0)->our_field) == sizeof(((struct theirs *)0)->their_field), \
                 #theirs "." #their_field " size")
#define SAME(ours, theirs, field) AT(ours, field, theirs, field)
#define VALUE(name) _Static_assert((int)RWV_##name == (int)IBV_##name, #name)

VALUE(ACCESS_LOCAL_WRITE);
VALUE(ACCESS_REMOTE_WRITE);
VALUE(ACCESS_REMOTE_READ);
VALUE(ACCESS_RELAXED_ORDERING);
VALUE(PORT_ACTIVE);
VALUE(QPT_RC);
VALUE(QPS_INIT);
VALUE(QPS_RTR);
VALUE(QPS_RTS);
VALUE(QPS_ERR);
VALUE(WR_RDMA_WRITE);
VALUE(WR_SEND);
VALUE(WR_RDMA_READ);
VALUE(SEND_SIGNALED);
VALUE(SEND_INLINE);
VALUE(WC_SUCCESS);
VALUE(WC_WR_FLUSH_ERR);
VALUE(WC_RETRY_EXC_ERR);
VALUE(WC_TM_RNDV_INCOMPLETE);
VALUE(WC_RECV);
VALUE(QP_STATE);
VALUE(QP_ACCESS_FLAGS);
VALUE(QP_PKEY_INDEX);
VALUE(QP_PORT);
VALUE(QP_AV);
VALUE(QP_PATH_MTU);
VALUE(QP_TIMEOUT);
VALUE(QP_RETRY_CNT);
VALUE(QP_RNR_RETRY);
VALUE(QP_RQ_PSN);
VALUE(QP_MAX_QP_RD_ATOMIC);
VALUE(QP_MIN_RNR_TIMER);
VALUE(QP_SQ_PSN);
VALUE(QP_MAX_DEST_RD_ATOMIC);
VALUE(QP_DEST_QPN);
_Static_assert(RWV_LINK_INFINIBAND == IBV_LINK_LAYER_INFINIBAND, "InfiniBand");
_Static_assert(RWV_LINK_ETHERNET == IBV_LINK_LAYER_ETHERNET, "Ethernet");
_Static_assert((int)RWV_GID_IB == (int)IBV_GID_TYPE_IB, "GID of InfiniBand");
_Static_assert((int)RWV_GID_ROCE_V1 == (int)IBV_GID_TYPE_ROCE_V1, "GID of RoCE v1");
_Static_assert((int)RWV_GID_ROCE_V2 == (int)IBV_GID_TYPE_ROCE_V2, "GID of RoCE v2");

SIZE(rwv_ops, ibv_context_ops);
SAME(rwv_ops, ibv_context_ops, poll_cq);
SAME(rwv_ops, ibv_context_ops, post_send);
SAME(rwv_ops, ibv_context_ops, post_recv);
SAME(rwv_context, ibv_context, device);
SAME(rwv_context, ibv_context, ops);
SAME(rwv_context, ibv_context, async_fd);
SIZE(rwv_mr, ibv_mr);
SAME(rwv_mr, ibv_mr, lkey);
SAME(rwv_mr, ibv_mr, rkey);
SAME(rwv_cq, ibv_cq, context);
SAME(rwv_qp, ibv_qp, context);
SAME(rwv_qp, ibv_qp, send_cq);
SAME(rwv_qp, ibv_qp, qp_num);
_Static_assert(sizeof(struct rwv_gid) == sizeof(union ibv_gid), "ibv_gid");
SIZE(rwv_gid_entry, ibv_gid_entry);
SAME(rwv_gid_entry, ibv_gid_entry, gid);
SAME(rwv_gid_entry, ibv_gid_entry, gid_type);
SAME(rwv_gid_entry, ibv_gid_entry, ndev_ifindex);
_Static_assert(sizeof(struct rwv_port_attr) >= sizeof(struct ibv_port_attr), "ibv_port_attr");
SAME(rwv_port_attr, ibv_port_attr, state);
SAME(rwv_port_attr, ibv_port_attr, active_mtu);
SAME(rwv_port_attr, ibv_port_attr, gid_tbl_len);
SAME(rwv_port_attr, ibv_port_attr, max_msg_sz);
SAME(rwv_port_attr, ibv_port_attr, lid);
SAME(rwv_port_attr, ibv_port_attr, link_layer);
SAME(rwv_port_attr, ibv_port_attr, flags);
_Static_assert(sizeof(struct rwv_device_attr) >= sizeof(struct ibv_device_attr), "ibv_device_attr");
SAME(rwv_device_attr, ibv_device_attr, fw_ver);
SAME(rwv_device_attr, ibv_device_attr, max_qp_wr);
SAME(rwv_device_attr, ibv_device_attr, max_cqe);
SAME(rwv_device_attr, ibv_device_attr, max_qp_rd_atom);
SAME(rwv_device_attr, ibv_device_attr, max_qp_init_rd_atom);
SIZE(rwv_global_route, ibv_global_route);
SAME(rwv_global_route, ibv_global_route, sgid_index);
SAME(rwv_global_route, ibv_global_route, hop_limit);
SAME(rwv_global_route, ibv_global_route, traffic_class);
SIZE(rwv_ah_attr, ibv_ah_attr);
SAME(rwv_ah_attr, ibv_ah_attr, dlid);
SAME(rwv_ah_attr, ibv_ah_attr, sl);
SAME(rwv_ah_attr, ibv_ah_attr, is_global);
SAME(rwv_ah_attr, ibv_ah_attr, port_num);
SIZE(rwv_qp_cap, ibv_qp_cap);
SIZE(rwv_qp_init_attr, ibv_qp_init_attr);
SAME(rwv_qp_init_attr, ibv_qp_init_attr, send_cq);
SAME(rwv_qp_init_attr, ibv_qp_init_attr, cap);
SAME(rwv_qp_init_attr, ibv_qp_init_attr, qp_type);
SIZE(rwv_qp_attr, ibv_qp_attr);
SAME(rwv_qp_attr, ibv_qp_attr, path_mtu);
SAME(rwv_qp_attr, ibv_qp_attr, rq_psn);
SAME(rwv_qp_attr, ibv_qp_attr, sq_psn);
SAME(rwv_qp_attr, ibv_qp_attr, dest_qp_num);
SAME(rwv_qp_attr, ibv_qp_attr, qp_access_flags);
SAME(rwv_qp_attr, ibv_qp_attr, ah_attr);
SAME(rwv_qp_attr, ibv_qp_attr, max_rd_atomic);
SAME(rwv_qp_attr, ibv_qp_attr, min_rnr_timer);
SAME(rwv_qp_attr, ibv_qp_attr, port_num);
SAME(rwv_qp_attr, ibv_qp_attr, timeout);
SAME(rwv_qp_attr, ibv_qp_attr, retry_cnt);
SAME(rwv_qp_attr, ibv_qp_attr, rnr_retry);
SIZE(rwv_sge, ibv_sge);
SIZE(rwv_send_wr, ibv_send_wr);
SAME(rwv_send_wr, ibv_send_wr, sg_list);
SAME(rwv_send_wr, ibv_send_wr, opcode);
SAME(rwv_send_wr, ibv_send_wr, send_flags);
AT(rwv_send_wr, rdma.remote_addr, ibv_send_wr, wr.rdma.remote_addr);
AT(rwv_send_wr, rdma.rkey, ibv_send_wr, wr.rdma.rkey);
SIZE(rwv_recv_wr, ibv_recv_wr);
SAME(rwv_recv_wr, ibv_recv_wr, sg_list);
SAME(rwv_recv_wr, ibv_recv_wr, num_sge);
SIZE(rwv_wc, ibv_wc);
SAME(rwv_wc, ibv_wc, status);
SAME(rwv_wc, ibv_wc, opcode);
SAME(rwv_wc, ibv_wc, vendor_err);
SAME(rwv_wc, ibv_wc, byte_len);
SAME(rwv_wc, ibv_wc, qp_num);
