/* Stands in for libibverbs.so.1: devices with two ports whose data the kernel copies between processes.
 *
 * STANDIN_VERBS is a file that all processes map; without it a process reaches only itself. STANDIN_VERBS_DEVICES
 * (fake0) names the devices. STANDIN_VERBS_DOWN lists ports that are down, like fake0:2. STANDIN_VERBS_LINK=InfiniBand
 * has LIDs and no RoCE. STANDIN_VERBS_GIDS lists GIDs as INDEX:TYPE/ADDRESS, where TYPE is that of enum ibv_gid_type.
 * STANDIN_VERBS_NETDEVS lists devices with their interface, like fake0=net1: their ports are up while the interface of
 * this namespace is, and their GIDs are its IPv4 addresses. STANDIN_VERBS_RATE is the rate of each queue pair in bytes/s,
 * and STANDIN_VERBS_SLOW=HOST=RATE that of a host's.
 * STANDIN_VERBS_PEERMEM=1 registers GPU memory by its address, STANDIN_VERBS_NO_DMABUF=1 refuses DMA buffers.
 *
 * STANDIN_VERBS_FAULT lists faults as KIND:N[:VALUE], where N counts from 1: a call's name (post_send:3:12) fails with
 * that errno, `wc` completes with that status, `lost` loses a completion, `twice` reports it twice, `corrupt` changes a
 * byte of each transfer from then on, `short` moves nothing from then on, `vanish` makes the device fail from that call
 * on. STANDIN_VERBS_KILL=WHO:CALL kills that rank of MPI, or the ranks of that host, in a call. */
#define _GNU_SOURCE
#include "verbs_work.h"

static const char *const DEFAULT_GIDS = "0:1/fe80::1 1:2/fe80::1 2:1/::ffff:10.0.0.1 3:2/::ffff:10.0.0.1";

static struct rwv_device *devices[MOST_DEVICES + 1];

/* Returns the interface of a device, or an empty string. */
static const char *netdev_of(const struct rwv_context *context) {
  static __thread char found[16];
  const char *list = getenv("STANDIN_VERBS_NETDEVS");
  char *copy = strdup(list ? list : ""), *rest = copy;
  found[0] = 0;
  for (char *word, *name; (word = strtok_r(rest, " ", &rest)) && (name = strchr(word, '='));) {
    *name++ = 0;
    if (!strcmp(word, context->device->name)) snprintf(found, sizeof found, "%s", name);
  }
  free(copy);
  return found;
}

/* Returns the number of IPv4 addresses of an interface that is up, or -1 without one. Stores the GID of an address. */
static int read_addresses(const char *netdev, uint32_t index, struct rwv_gid *gid) {
  struct ifaddrs *list = NULL;
  int count = 0, is_up = 0;
  if (getifaddrs(&list)) return -1;
  for (struct ifaddrs *one = list; one; one = one->ifa_next) {
    if (strcmp(one->ifa_name, netdev) || !(one->ifa_flags & IFF_UP)) continue;
    is_up = 1;
    if (!one->ifa_addr || one->ifa_addr->sa_family != AF_INET || (uint32_t)count++ != index || !gid) continue;
    memset(gid->raw, 0, 10);
    memset(gid->raw + 10, 0xff, 2);
    memcpy(gid->raw + 12, &((struct sockaddr_in *)(void *)one->ifa_addr)->sin_addr, 4);
  }
  freeifaddrs(list);
  return is_up ? count : -1;
}

static int is_listed(const char *variable, const char *word) {
  const char *list = getenv(variable);
  size_t length = strlen(word);
  for (const char *at = list; at && (at = strstr(at, word)); at += length)
    if ((at == list || at[-1] == ' ') && (!at[length] || at[length] == ' ')) return 1;
  return 0;
}

struct rwv_device **ibv_get_device_list(int *count) {
  read_faults();
  *count = 0;
  if ((errno = fails("get_device_list"))) return NULL;
  const char *names = getenv("STANDIN_VERBS_DEVICES");
  char *copy = strdup(names ? names : "fake0"), *rest = copy;
  for (char *name; *count < MOST_DEVICES && (name = strtok_r(rest, " ", &rest));) {
    struct rwv_device *device = calloc(1, sizeof *device);
    snprintf(device->name, sizeof device->name, "%s", name);
    devices[(*count)++] = device;
  }
  free(copy);
  struct rwv_device **list = calloc((size_t)*count + 1, sizeof *list);
  memcpy(list, devices, (size_t)*count * sizeof *list);
  return list;
}

void ibv_free_device_list(struct rwv_device **list) { free(list); }

const char *ibv_get_device_name(struct rwv_device *device) { return device->name; }

struct rwv_context *ibv_open_device(struct rwv_device *device) {
  if ((errno = fails("open_device"))) return NULL;
  struct rwv_context *context = calloc(1, sizeof *context);
  context->device = device;
  context->ops.poll_cq = poll_cq;
  context->ops.post_send = post_send;
  context->ops.post_recv = post_recv;
  return context;
}

int ibv_close_device(struct rwv_context *context) {
  int error = fails("close_device");
  free(context);
  return error;
}

int ibv_query_device(struct rwv_context *context, struct rwv_device_attr *attr) {
  (void)context;
  *attr = (struct rwv_device_attr){.fw_ver = "1.2.3", .max_qp_wr = 8192, .max_cqe = CQ_ENTRIES, .max_qp_rd_atom = 16,
                                   .max_qp_init_rd_atom = 16};
  return fails("query_device");
}

int ibv_query_port(struct rwv_context *context, uint8_t port, struct rwv_port_attr *attr) {
  const char *link = getenv("STANDIN_VERBS_LINK");
  int is_infiniband = link && !strcmp(link, "InfiniBand");
  char name[96];
  if (port < 1 || port > 2) return EINVAL;
  snprintf(name, sizeof name, "%s:%d", context->device->name, port);
  const char *netdev = netdev_of(context);
  int is_down = is_listed("STANDIN_VERBS_DOWN", name) || (*netdev && read_addresses(netdev, 0, NULL) < 0);
  attr->state = is_down ? 1 : RWV_PORT_ACTIVE;
  attr->active_mtu = 5;
  attr->gid_tbl_len = 32;
  attr->max_msg_sz = 1u << 30;
  attr->lid = is_infiniband ? port : 0;
  attr->link_layer = is_infiniband ? RWV_LINK_INFINIBAND : RWV_LINK_ETHERNET;
  return fails("query_port");
}

int _ibv_query_gid_ex(struct rwv_context *context, uint32_t port, uint32_t index, struct rwv_gid_entry *entry,
                      uint32_t flags, size_t bytes) {
  if (bytes != sizeof *entry || flags) return EINVAL;
  int error = fails("query_gid_ex");
  if (error) return error;
  const char *netdev = netdev_of(context);
  if (*netdev) {
    *entry = (struct rwv_gid_entry){.gid_index = index, .port_num = port, .gid_type = RWV_GID_ROCE_V2};
    return (int)index < read_addresses(netdev, index, &entry->gid) ? 0 : ENODATA;
  }
  const char *link = getenv("STANDIN_VERBS_LINK"), *list = getenv("STANDIN_VERBS_GIDS");
  if (!list) list = link && !strcmp(link, "InfiniBand") ? "0:0/fe80::2" : DEFAULT_GIDS;
  char *copy = strdup(list), *rest = copy, text[64];
  error = ENODATA;
  for (char *word; (word = strtok_r(rest, " ", &rest));) {
    unsigned at, type;
    if (sscanf(word, "%u:%u/%63s", &at, &type, text) != 3 || at != index) continue;
    *entry = (struct rwv_gid_entry){.gid_index = index, .port_num = port, .gid_type = type};
    error = inet_pton(AF_INET6, text, entry->gid.raw) == 1 ? 0 : EINVAL;
  }
  free(copy);
  return error;
}

struct rwv_pd *ibv_alloc_pd(struct rwv_context *context) {
  if ((errno = fails("alloc_pd"))) return NULL;
  struct rwv_pd *pd = calloc(1, sizeof *pd);
  pd->context = context;
  return pd;
}

int ibv_dealloc_pd(struct rwv_pd *pd) {
  int error = fails("dealloc_pd");
  if (error) return error;
  free(pd);
  return 0;
}

static struct rwv_mr *add_region(struct rwv_pd *pd, void *address, size_t bytes) {
  struct rwv_mr *mr = calloc(1, sizeof *mr);
  *mr = (struct rwv_mr){.context = pd->context, .pd = pd, .addr = address, .length = bytes};
  lock_shared();
  for (int i = 0; i < MOST_REGIONS && !mr->lkey; i++) {
    struct region *region = &shared->regions[i];
    if (region->key && !(region->pid != getpid() && kill(region->pid, 0) && errno == ESRCH)) continue;
    *region = (struct region){getpid(), ++shared->last_key, (uint64_t)(uintptr_t)address, bytes};
    mr->lkey = mr->rkey = region->key;
  }
  unlock_shared();
  if (mr->lkey) return mr;
  free(mr);
  errno = ENOMEM;
  return NULL;
}

struct rwv_mr *ibv_reg_mr(struct rwv_pd *pd, void *address, size_t bytes, int access) {
  (void)access;
  if ((errno = fails("reg_mr"))) return NULL;
  /* Without nvidia-peermem the kernel finds no pages behind a GPU's address. */
  int (*is_gpu)(uint64_t) = (int (*)(uint64_t))(uintptr_t)dlsym(RTLD_DEFAULT, "standin_is_gpu_memory");
  if (is_gpu && is_gpu((uint64_t)(uintptr_t)address) && !getenv("STANDIN_VERBS_PEERMEM")) return errno = EFAULT, NULL;
  return add_region(pd, address, bytes);
}

struct rwv_mr *ibv_reg_mr_iova2(struct rwv_pd *pd, void *address, size_t bytes, uint64_t iova, unsigned access) {
  return iova == (uint64_t)(uintptr_t)address ? ibv_reg_mr(pd, address, bytes, (int)access) : (errno = EINVAL, NULL);
}

/* The stand-in of CUDA writes the address of the memory into its DMA buffers. */
struct rwv_mr *ibv_reg_dmabuf_mr(struct rwv_pd *pd, uint64_t offset, size_t bytes, uint64_t iova, int fd, int access) {
  (void)access;
  if ((errno = fails("reg_dmabuf_mr"))) return NULL;
  if (getenv("STANDIN_VERBS_NO_DMABUF")) return errno = EOPNOTSUPP, NULL;
  uint64_t address = 0;
  if (pread(fd, &address, sizeof address, 0) != sizeof address) return errno = EBADF, NULL;
  return address + offset == iova ? add_region(pd, (void *)(uintptr_t)iova, bytes) : (errno = EINVAL, NULL);
}

int ibv_dereg_mr(struct rwv_mr *mr) {
  int error = fails("dereg_mr");
  if (error) return error;
  lock_shared();
  struct region *region = find_region(mr->lkey);
  if (region) region->key = 0;
  unlock_shared();
  free(mr);
  return region ? 0 : EINVAL;
}

struct rwv_cq *ibv_create_cq(struct rwv_context *context, int entries, void *data, void *channel, int vector) {
  if ((errno = fails("create_cq"))) return NULL;
  if (entries < 1 || entries > CQ_ENTRIES || data || channel || vector) return errno = EINVAL, NULL;
  lock_shared();
  int place = 0;
  while (place < MOST_CQS && is_alive(shared->cqs[place].pid)) place++;
  if (place < MOST_CQS) shared->cqs[place].pid = getpid(), shared->cqs[place].head = shared->cqs[place].tail = 0;
  unlock_shared();
  if (place == MOST_CQS) return errno = ENOMEM, NULL;
  struct queue *queue = calloc(1, sizeof *queue);
  queue->base.context = context;
  queue->place = place;
  return &queue->base;
}

int ibv_destroy_cq(struct rwv_cq *cq) {
  int error = fails("destroy_cq");
  if (error) return error;
  shared->cqs[((struct queue *)cq)->place].pid = 0;
  free(cq);
  return 0;
}

struct rwv_qp *ibv_create_qp(struct rwv_pd *pd, struct rwv_qp_init_attr *init) {
  if ((errno = fails("create_qp"))) return NULL;
  if (init->cap.max_inline_data > 1024 || init->cap.max_send_wr > 8192) return errno = EINVAL, NULL;
  return add_pair(pd, init);
}

int ibv_modify_qp(struct rwv_qp *qp, struct rwv_qp_attr *attr, int mask) {
  int error = fails("modify_qp");
  if (error) return error;
  struct endpoint *end = endpoint_of(qp->qp_num);
  int order[] = {[RWV_QPS_INIT] = 0, [RWV_QPS_RTR] = RWV_QPS_INIT, [RWV_QPS_RTS] = RWV_QPS_RTR};
  if (!(mask & RWV_QP_STATE) || attr->qp_state < RWV_QPS_INIT || attr->qp_state > RWV_QPS_RTS) return EINVAL;
  if (end->state != order[attr->qp_state]) return EINVAL;
  if (attr->qp_state == RWV_QPS_RTR) {
    struct rwv_gid_entry entry;
    if (attr->ah_attr.is_global &&
        _ibv_query_gid_ex(qp->context, attr->ah_attr.port_num, attr->ah_attr.grh.sgid_index, &entry, 0, sizeof entry))
      return EINVAL;
    if (attr->path_mtu < 1 || attr->path_mtu > 5 || (!attr->ah_attr.is_global && !attr->ah_attr.dlid)) return EINVAL;
    end->peer = attr->dest_qp_num;
  }
  end->state = attr->qp_state;
  return 0;
}

int ibv_destroy_qp(struct rwv_qp *qp) {
  int error = fails("destroy_qp");
  return error ? error : remove_pair(qp);
}

const char *ibv_wc_status_str(int status) {
  static const char *const TEXTS[] = {[0] = "success", [5] = "Work Request Flushed Error",
                                      [10] = "remote access error", [12] = "transport retry counter exceeded"};
  return status >= 0 && status < 13 && TEXTS[status] ? TEXTS[status] : "unknown";
}

/* Forgets all queues and faults of an earlier run in this process. */
void standin_reset(void) {
  lock_shared();
  memset(shared->regions, 0, sizeof shared->regions);
  memset(shared->endpoints, 0, sizeof shared->endpoints);
  memset(shared->cqs, 0, sizeof shared->cqs);
  pairs = NULL;
  fired = 0;
  faults_read[0] = '-';
  faults_read[1] = 0;
  unlock_shared();
}

/* Whether a fault has been shown since the last reset. */
int standin_fired(void) { return fired; }

/* The number of regions that this process has not deregistered. */
int standin_regions(void) {
  int count = 0;
  lock_shared();
  for (int i = 0; i < MOST_REGIONS; i++) count += shared->regions[i].key && shared->regions[i].pid == getpid();
  unlock_shared();
  return count;
}
