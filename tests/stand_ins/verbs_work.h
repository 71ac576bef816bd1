/* The work of the stand-in for libibverbs: state that all processes share, faults, queues and transfers. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "../../src/railwright/native/verbs.h"

enum {
  MOST_DEVICES = 8,
  MOST_REGIONS = 64,
  MOST_CQS = 16,
  MOST_ENDPOINTS = 256,
  CQ_ENTRIES = 1 << 16,
  CQ_KEPT = 1 << 13,
  RECEIVES = 1 << 10,
  INLINE = 1024,
  MOST_FAULTS = 8
};

struct rwv_device {
  char name[64];
};

struct rwv_pd {
  struct rwv_context *context;
};

struct region {
  int pid;
  uint32_t key;
  uint64_t address, bytes;
};

struct endpoint {
  int pid, state, cq;
  uint32_t peer;
  uint64_t receives_head, receives_tail;
  struct receive {
    uint64_t id, address;
    uint32_t bytes;
  } receives[RECEIVES];
};

static struct shared {
  pthread_mutex_t lock;
  int is_ready;
  uint32_t last_key;
  struct region regions[MOST_REGIONS];
  struct endpoint endpoints[MOST_ENDPOINTS]; /* a queue pair's number is its place + 1 */
  struct completions {
    int pid;
    uint64_t head, tail;
    struct rwv_wc kept[CQ_KEPT];
  } cqs[MOST_CQS];
} *shared;

struct queue {
  struct rwv_cq base;
  int place;
};

/* A request that was posted; inline data is copied at once. */
struct request {
  struct rwv_send_wr wr;
  struct rwv_sge part;
  char data[INLINE];
};

struct pair {
  struct rwv_qp base;
  struct pair *next;
  uint64_t head, tail, size;
  struct request *requests;
  double due; /* the time from which the next request may end */
};

static struct pair *pairs; /* those of this process */

__attribute__((constructor)) static void open_shared(void) {
  const char *path = getenv("STANDIN_VERBS");
  int file = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
  if (file >= 0) flock(file, LOCK_EX);
  if (file >= 0 && ftruncate(file, sizeof *shared)) abort();
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | (file < 0 ? MAP_ANONYMOUS : 0), file, 0);
  if (shared == MAP_FAILED) abort();
  if (!shared->is_ready) {
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&shared->lock, &kind);
    shared->is_ready = 1;
  }
  if (file >= 0) flock(file, LOCK_UN), close(file); /* the mapping keeps the file open, and with it the lock */
}

static void lock_shared(void) {
  if (pthread_mutex_lock(&shared->lock) == EOWNERDEAD) pthread_mutex_consistent(&shared->lock);
}

static void unlock_shared(void) { pthread_mutex_unlock(&shared->lock); }

static int is_alive(int pid) { return pid && (pid == getpid() || !kill(pid, 0) || errno != ESRCH); }

/* ---- faults ---- */

static struct fault {
  char kind[32];
  int at, value, seen;
} faults[MOST_FAULTS];

static int fault_count, has_vanished, fired;
static char faults_read[256] = "-";

/* Reads the faults again if they have changed, so that a test can change them between two runs in one process. */
static void read_faults(void) {
  const char *text = getenv("STANDIN_VERBS_FAULT");
  lock_shared();
  if (strcmp(faults_read, text ? text : "")) {
    snprintf(faults_read, sizeof faults_read, "%s", text ? text : "");
    memset(faults, 0, sizeof faults);
    fault_count = has_vanished = 0;
    char copy[256], *rest = copy;
    snprintf(copy, sizeof copy, "%s", faults_read);
    for (char *word; fault_count < MOST_FAULTS && (word = strtok_r(rest, " ", &rest)); fault_count++) {
      struct fault *fault = &faults[fault_count];
      sscanf(word, "%31[^:]:%d:%d", fault->kind, &fault->at, &fault->value);
    }
  }
  unlock_shared();
}

/* Returns the fault of a kind if this is its turn: once, or from then on for faults of the data. */
static struct fault *take_fault(const char *kind) {
  int stays = !strcmp(kind, "corrupt") || !strcmp(kind, "short");
  for (int i = 0; i < fault_count; i++) {
    if (strcmp(faults[i].kind, kind)) continue;
    int seen = __atomic_add_fetch(&faults[i].seen, 1, __ATOMIC_RELAXED);
    if (seen < faults[i].at || (seen > faults[i].at && !stays)) continue;
    fired = 1;
    return &faults[i];
  }
  return NULL;
}

static void kill_self(const char *call) {
  const char *wanted = getenv("STANDIN_VERBS_KILL"), *rank = getenv("OMPI_COMM_WORLD_RANK");
  char own[512], host[256] = "";
  if (!wanted) return;
  gethostname(host, sizeof host - 1);
  for (int i = 0; i < 2; i++) {
    snprintf(own, sizeof own, "%s:%s", i ? host : rank ? rank : getenv("PMI_RANK"), call);
    if (strcmp(own, wanted)) continue;
    const char *path = getenv("STANDIN_VERBS");
    snprintf(own, sizeof own, "%s.killed", path ? path : "/dev/null");
    FILE *told = path ? fopen(own, "w") : NULL;
    if (told) fclose(told);
    raise(SIGKILL);
  }
}

/* Returns the errno with which a call fails, or 0. A device that has vanished still lets go of what it held. */
static int fails(const char *call) {
  kill_self(call);
  struct fault *fault = take_fault(call);
  if (fault) return fault->value;
  if (take_fault("vanish")) has_vanished = 1;
  int releases = !strncmp(call, "de", 2) || !strncmp(call, "close", 5);
  return has_vanished && !releases ? EIO : 0;
}

/* ---- queues: the shared lock is held ---- */

static struct region *find_region(uint32_t key) {
  for (int i = 0; i < MOST_REGIONS; i++)
    if (key && shared->regions[i].key == key) return &shared->regions[i];
  return NULL;
}

static struct endpoint *endpoint_of(uint32_t number) {
  return number && number <= MOST_ENDPOINTS ? &shared->endpoints[number - 1] : NULL;
}

static void complete(int place, struct rwv_wc done) {
  struct fault *fault = take_fault("wc");
  if (fault) done.status = fault->value, done.vendor_err = 0x51;
  int times = take_fault("lost") ? 0 : take_fault("twice") ? 2 : 1;
  struct completions *cq = &shared->cqs[place];
  while (times-- && cq->tail - cq->head < CQ_KEPT) cq->kept[cq->tail++ % CQ_KEPT] = done;
}

static int holds(uint32_t key, int pid, uint64_t address, uint64_t bytes) {
  struct region *region = find_region(key);
  return region && region->pid == pid && address >= region->address &&
         address + bytes <= region->address + region->bytes;
}

/* Copies between this process and another. Returns a completion's status. */
static int copy(int pid, uint64_t here, uint64_t there, uint32_t bytes, int reads) {
  if (take_fault("short")) return RWV_WC_SUCCESS;
  struct iovec local = {(void *)(uintptr_t)here, bytes}, remote = {(void *)(uintptr_t)there, bytes};
  if (pid == getpid()) memmove((void *)(uintptr_t)(reads ? here : there), (void *)(uintptr_t)(reads ? there : here), bytes);
  else if ((reads ? process_vm_readv : process_vm_writev)(pid, &local, 1, &remote, 1, 0) != (ssize_t)bytes)
    return RWV_WC_RETRY_EXC_ERR;
  if (take_fault("corrupt")) {
    struct iovec last = {(char *)(uintptr_t)here + bytes / 2, 1}, target = {(char *)(uintptr_t)there + bytes / 2, 1};
    char changed = (char)~*(volatile char *)last.iov_base;
    struct iovec from = {&changed, 1};
    if (reads) *(char *)last.iov_base = changed;
    else if (pid == getpid()) *(char *)target.iov_base = changed;
    else if (process_vm_writev(pid, &from, 1, &target, 1, 0) != 1) return RWV_WC_RETRY_EXC_ERR;
  }
  return RWV_WC_SUCCESS;
}

enum { REMOTE_ACCESS_ERR = 10, REMOTE_INVALID_REQUEST = 9, LOCAL_PROTECTION = 4, NOT_READY = -1 };

static int deliver(struct endpoint *peer, const struct request *request, uint64_t from) {
  uint32_t bytes = request->part.length;
  if (peer->receives_head == peer->receives_tail) return NOT_READY;
  struct completions *cq = &shared->cqs[peer->cq];
  if (cq->tail - cq->head >= CQ_KEPT - 1) return NOT_READY;
  struct receive *receive = &peer->receives[peer->receives_head % RECEIVES];
  if (bytes > receive->bytes) return REMOTE_INVALID_REQUEST;
  int status = copy(peer->pid, from, receive->address, bytes, 0);
  if (status) return status;
  peer->receives_head++;
  complete(peer->cq, (struct rwv_wc){.wr_id = receive->id, .opcode = RWV_WC_RECV, .byte_len = bytes});
  return RWV_WC_SUCCESS;
}

/* Does the oldest request of a queue pair. Returns its status, or NOT_READY. */
static int transfer(const struct endpoint *end, const struct request *request) {
  const struct rwv_sge *part = &request->part;
  struct endpoint *peer = endpoint_of(end->peer);
  int is_inline = !!(request->wr.send_flags & RWV_SEND_INLINE);
  uint64_t from = is_inline ? (uint64_t)(uintptr_t)request->data : part->addr;
  if (!peer || !is_alive(peer->pid)) return RWV_WC_RETRY_EXC_ERR;
  if (peer->state < RWV_QPS_RTR) return NOT_READY;
  if (!is_inline && !holds(part->lkey, getpid(), part->addr, part->length)) return LOCAL_PROTECTION;
  if (request->wr.opcode == RWV_WR_SEND) return deliver(peer, request, from);
  if (!holds(request->wr.rdma.rkey, peer->pid, request->wr.rdma.remote_addr, part->length)) return REMOTE_ACCESS_ERR;
  return copy(peer->pid, from, request->wr.rdma.remote_addr, part->length, request->wr.opcode == RWV_WR_RDMA_READ);
}

/* Returns the rate of this host's queue pairs in bytes/s, or 0 without a limit. */
static double own_rate(void) {
  char host[256] = "";
  const char *usual = getenv("STANDIN_VERBS_RATE"), *slow = getenv("STANDIN_VERBS_SLOW");
  gethostname(host, sizeof host - 1);
  size_t length = strlen(host);
  if (slow && !strncmp(slow, host, length) && slow[length] == '=') return atof(slow + length + 1);
  return usual ? atof(usual) : 0;
}

enum { LATE_MS = 50 };

/* Whether the rate forbids the next request. A process that had no CPU for a moment catches up. */
static int is_early(struct pair *pair, uint32_t bytes) {
  static double rate = -1;
  struct timespec now;
  if (rate < 0) rate = own_rate();
  if (!rate) return 0;
  clock_gettime(CLOCK_MONOTONIC, &now);
  double time = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
  if (pair->due > time) return 1;
  if (pair->due < time - 1e-3 * LATE_MS) pair->due = time;
  pair->due += bytes / rate;
  return 0;
}

static void progress(struct pair *pair) {
  struct endpoint *end = endpoint_of(pair->base.qp_num);
  while (pair->head < pair->tail && end->state == RWV_QPS_RTS) {
    struct request *request = &pair->requests[pair->head % pair->size];
    if (is_early(pair, request->part.length)) return;
    int status = transfer(end, request);
    if (status == NOT_READY) return;
    pair->head++;
    if (status) end->state = RWV_QPS_ERR;
    if (status || request->wr.send_flags & RWV_SEND_SIGNALED)
      complete(((struct queue *)pair->base.send_cq)->place, (struct rwv_wc){.wr_id = request->wr.wr_id, .status = status});
  }
}

static int poll_cq(struct rwv_cq *cq, int most, struct rwv_wc *done) {
  int error = fails("poll_cq");
  if (error) return -error;
  struct completions *queue = &shared->cqs[((struct queue *)cq)->place];
  int found = 0;
  lock_shared();
  for (struct pair *pair = pairs; pair; pair = pair->next)
    if (pair->base.send_cq == cq) progress(pair);
  while (found < most && queue->head < queue->tail) done[found++] = queue->kept[queue->head++ % CQ_KEPT];
  unlock_shared();
  return found;
}

static int post_send(struct rwv_qp *qp, struct rwv_send_wr *wr, struct rwv_send_wr **bad) {
  struct pair *pair = (struct pair *)qp;
  *bad = wr;
  int error = fails("post_send");
  if (error) return error;
  int is_inline = !!(wr->send_flags & RWV_SEND_INLINE);
  if (wr->next || wr->num_sge != 1 || (is_inline && wr->sg_list->length > INLINE)) return EINVAL;
  lock_shared();
  int is_full = pair->tail - pair->head >= pair->size;
  if (!is_full) {
    struct request *request = &pair->requests[pair->tail++ % pair->size];
    request->wr = *wr;
    request->part = *wr->sg_list;
    if (is_inline) memcpy(request->data, (void *)(uintptr_t)wr->sg_list->addr, wr->sg_list->length);
  }
  unlock_shared();
  return is_full ? ENOMEM : 0;
}

static int post_recv(struct rwv_qp *qp, struct rwv_recv_wr *wr, struct rwv_recv_wr **bad) {
  *bad = wr;
  int error = fails("post_recv");
  if (error) return error;
  struct endpoint *end = endpoint_of(qp->qp_num);
  lock_shared();
  int is_full = end->receives_tail - end->receives_head >= RECEIVES;
  if (!holds(wr->sg_list->lkey, getpid(), wr->sg_list->addr, wr->sg_list->length)) is_full = 1;
  if (!is_full)
    end->receives[end->receives_tail++ % RECEIVES] =
        (struct receive){wr->wr_id, wr->sg_list->addr, wr->sg_list->length};
  unlock_shared();
  return is_full ? ENOMEM : 0;
}

static struct rwv_qp *add_pair(struct rwv_pd *pd, const struct rwv_qp_init_attr *init) {
  struct pair *pair = calloc(1, sizeof *pair);
  pair->size = init->cap.max_send_wr;
  pair->requests = calloc(pair->size, sizeof *pair->requests);
  pair->base = (struct rwv_qp){.context = pd->context, .pd = pd, .send_cq = init->send_cq, .recv_cq = init->recv_cq};
  lock_shared();
  uint32_t place = 0;
  while (place < MOST_ENDPOINTS && is_alive(shared->endpoints[place].pid)) place++;
  if (place < MOST_ENDPOINTS) {
    struct endpoint *end = &shared->endpoints[place];
    end->pid = getpid(), end->state = 0, end->peer = 0, end->receives_head = end->receives_tail = 0;
    end->cq = ((struct queue *)init->recv_cq)->place;
    pair->base.qp_num = place + 1;
    pair->next = pairs;
    pairs = pair;
  }
  unlock_shared();
  if (pair->base.qp_num) return &pair->base;
  free(pair->requests);
  free(pair);
  errno = ENOMEM;
  return NULL;
}

static int remove_pair(struct rwv_qp *qp) {
  lock_shared();
  for (struct pair **at = &pairs; *at; at = &(*at)->next)
    if (&(*at)->base == qp) {
      *at = (*at)->next;
      break;
    }
  endpoint_of(qp->qp_num)->pid = 0;
  unlock_shared();
  free(((struct pair *)qp)->requests);
  free(qp);
  return 0;
}
