/* The ranks of several hosts in the stand-in for NCCL: they find each other through the address in the unique id, as
 * NCCL's bootstrap does, and move data over TCP, by rings. Included by nccl_log.h alone.
 *
 * A peer that goes away is an asynchronous error, and the operation never ends, as with NCCL's sockets. */
#include "nccl_work.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

enum { REMOTE_ERROR = 6, MOST_HOST_RANKS = 1024, ADDRESS_AT = 32, CHUNK_BYTES = 1 << 18 };

struct member { /* what each rank tells the root, and the root tells all */
  int rank, ranks;
  uint64_t host;
  struct sockaddr_in at;
};

struct hosts {
  struct member *members;
  int listener, rank, ranks, *out, *in;
  atomic_int broken;
  float *spare; /* for what arrives and is then added */
  size_t spare_floats;
};

static uint64_t host_hash(void) {
  char name[256] = "";
  const char *given = getenv("NCCL_HOSTID");
  if (!given) gethostname(name, sizeof name - 1);
  uint64_t hash = 5381;
  for (const char *c = given ? given : name; *c; c++) hash = hash * 33 + (unsigned char)*c;
  return hash;
}

/* The address of the interface in NCCL_SOCKET_IFNAME, or of the first that is not the loopback, or of the loopback. */
static struct sockaddr_in own_address(char *interface) {
  struct sockaddr_in found = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  const char *wanted = getenv("NCCL_SOCKET_IFNAME");
  struct ifaddrs *every = NULL;
  strcpy(interface, "lo");
  if (wanted && *wanted == '=') wanted++;
  size_t length = wanted ? strcspn(wanted, ",") : 0;
  if (getifaddrs(&every)) return found;
  for (struct ifaddrs *one = every; one; one = one->ifa_next) {
    if (!one->ifa_addr || one->ifa_addr->sa_family != AF_INET || !(one->ifa_flags & IFF_UP)) continue;
    int fits = length ? !strncmp(one->ifa_name, wanted, length) && !one->ifa_name[length]
                      : !(one->ifa_flags & IFF_LOOPBACK);
    if (!fits) continue;
    found.sin_addr = ((struct sockaddr_in *)one->ifa_addr)->sin_addr;
    snprintf(interface, IF_NAMESIZE, "%s", one->ifa_name);
    break;
  }
  freeifaddrs(every);
  return found;
}

static int listen_on(struct sockaddr_in *at) {
  socklen_t size = sizeof *at;
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0 || bind(listener, (struct sockaddr *)at, size) || listen(listener, MOST_HOST_RANKS)) return -1;
  return getsockname(listener, (struct sockaddr *)at, &size) ? -1 : listener;
}

static int connect_to(const struct sockaddr_in *at) {
  int one = 1, made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (made < 0 || connect(made, (const struct sockaddr *)at, sizeof *at)) return -1;
  setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return made;
}

static int whole(int socket, void *data, size_t bytes, int sends) {
  for (char *at = data; bytes;) {
    ssize_t some = sends ? send(socket, at, bytes, MSG_NOSIGNAL) : recv(socket, at, bytes, 0);
    if (some < 0 && errno == EINTR) continue;
    if (some <= 0) return -1;
    at += some, bytes -= (size_t)some;
  }
  return 0;
}

/* ---- the bootstrap ---- */

static void *serve_root(void *argument) {
  int listener = (int)(intptr_t)argument, ranks = 1, came = 0;
  static const struct member NONE;
  struct member *members = calloc(MOST_HOST_RANKS, sizeof *members);
  int *sockets = calloc(MOST_HOST_RANKS, sizeof *sockets);
  for (; came < ranks; came++) {
    struct member one = NONE;
    int made = accept(listener, NULL, NULL);
    if (made < 0 || whole(made, &one, sizeof one, 0) || one.rank < 0 || one.rank >= MOST_HOST_RANKS) break;
    ranks = one.ranks, members[one.rank] = one, sockets[came] = made;
  }
  for (int i = 0; i < came; i++) {
    if (came == ranks) whole(sockets[i], members, (size_t)ranks * sizeof *members, 1);
    close(sockets[i]);
  }
  close(listener);
  free(members), free(sockets);
  return NULL;
}

/* Writes the address of a new root into the unique id, and serves it. */
static int begin_root(char *internal) {
  char interface[IF_NAMESIZE], text[INET_ADDRSTRLEN];
  struct sockaddr_in at = own_address(interface);
  int listener = listen_on(&at);
  pthread_t thread;
  if (listener < 0 || pthread_create(&thread, NULL, serve_root, (void *)(intptr_t)listener)) return -1;
  pthread_detach(thread);
  inet_ntop(AF_INET, &at.sin_addr, text, sizeof text);
  snprintf(internal + ADDRESS_AT, 64, "%s:%d", text, ntohs(at.sin_port));
  return 0;
}

/* Meets the other ranks at the root. Returns NULL if they cannot be met. */
static struct hosts *meet(const char *internal, int rank, int ranks) {
  struct hosts *h = calloc(1, sizeof *h);
  struct sockaddr_in root = {.sin_family = AF_INET};
  char text[64], interface[IF_NAMESIZE];
  snprintf(text, sizeof text, "%s", internal + ADDRESS_AT);
  char *colon = strchr(text, ':');
  if (!colon) return NULL;
  *colon = 0, root.sin_port = htons((uint16_t)atoi(colon + 1));
  inet_pton(AF_INET, text, &root.sin_addr);
  struct member own = {.rank = rank, .ranks = ranks, .host = host_hash(), .at = own_address(interface)};
  h->listener = listen_on(&own.at), h->rank = rank, h->ranks = ranks;
  h->members = calloc((size_t)ranks, sizeof *h->members);
  h->out = malloc((size_t)ranks * sizeof *h->out), h->in = malloc((size_t)ranks * sizeof *h->in);
  for (int i = 0; i < ranks; i++) h->out[i] = h->in[i] = -1;
  int made = h->listener < 0 ? -1 : connect_to(&root);
  if (made < 0 || whole(made, &own, sizeof own, 1)) return NULL;
  if (whole(made, h->members, (size_t)ranks * sizeof *h->members, 0)) return NULL;
  close(made);
  return h;
}

static int is_remote(const struct hosts *h, int other) { return h->members[other].host != h->members[h->rank].host; }

static int spans_hosts(const struct hosts *h) {
  for (int i = 0; i < h->ranks; i++)
    if (is_remote(h, i)) return 1;
  return 0;
}

static void leave(struct hosts *h) {
  for (int i = 0; i < h->ranks; i++) {
    if (h->out[i] >= 0) close(h->out[i]);
    if (h->in[i] >= 0) close(h->in[i]);
  }
  close(h->listener);
  free(h->members), free(h->out), free(h->in), free(h->spare), free(h);
}

/* ---- what moves ---- */

/* An operation whose peer is gone never ends. */
static void stay(struct hosts *h) {
  atomic_store(&h->broken, REMOTE_ERROR);
  for (;;) pause();
}

static int outgoing(struct hosts *h, int to) {
  if (h->out[to] < 0) {
    h->out[to] = connect_to(&h->members[to].at);
    if (h->out[to] < 0 || whole(h->out[to], &h->rank, sizeof h->rank, 1)) stay(h);
  }
  return h->out[to];
}

static int incoming(struct hosts *h, int from) {
  while (h->in[from] < 0) {
    int rank = -1, made = accept(h->listener, NULL, NULL);
    if (made < 0 || whole(made, &rank, sizeof rank, 0) || rank < 0 || rank >= h->ranks) stay(h);
    h->in[rank] = made;
  }
  return h->in[from];
}

struct flow { /* bytes to or from one rank */
  int socket, sends;
  char *at;
  size_t bytes;
};

static void advance(struct hosts *h, struct flow *f) {
  size_t most = f->bytes < CHUNK_BYTES ? f->bytes : CHUNK_BYTES;
  ssize_t some = f->sends ? send(f->socket, f->at, most, MSG_DONTWAIT | MSG_NOSIGNAL)
                          : recv(f->socket, f->at, most, MSG_DONTWAIT);
  if (some > 0) f->at += some, f->bytes -= (size_t)some;
  if (!some || (some < 0 && errno != EAGAIN && errno != EINTR)) stay(h);
}

/* Moves all flows at once. */
static void run_flows(struct hosts *h, struct flow *flows, int count) {
  struct pollfd *waits = calloc((size_t)count + 1, sizeof *waits);
  for (;;) {
    int left = 0;
    for (int i = 0; i < count; i++) {
      waits[i] = (struct pollfd){flows[i].bytes ? flows[i].socket : -1, flows[i].sends ? POLLOUT : POLLIN, 0};
      left += flows[i].bytes > 0;
    }
    if (!left) break;
    if (poll(waits, (nfds_t)count, -1) < 0 && errno != EINTR) stay(h);
    for (int i = 0; i < count; i++)
      if (flows[i].bytes && waits[i].revents) advance(h, &flows[i]);
  }
  free(waits);
}

static void swap(struct hosts *h, int to, const void *out, size_t out_bytes, int from, void *in, size_t in_bytes) {
  struct flow flows[2] = {{out_bytes ? outgoing(h, to) : -1, 1, (char *)(uintptr_t)out, out_bytes},
                          {in_bytes ? incoming(h, from) : -1, 0, in, in_bytes}};
  run_flows(h, flows, 2);
}

static int turned(const struct hosts *h, int steps) { return ((h->rank + steps) % h->ranks + h->ranks) % h->ranks; }

static size_t part_at(size_t count, int ranks, int part) { return count * (size_t)part / (size_t)ranks; }

/* Adds all ranks' parts on a ring: the rank's own part of `data` is then the sum. */
static void ring_reduce(struct hosts *h, float *data, size_t count) {
  size_t most = count / (size_t)h->ranks + 1;
  if (h->spare_floats < most) h->spare = realloc(h->spare, (h->spare_floats = most) * sizeof *h->spare);
  for (int step = 1; step < h->ranks; step++) {
    int gives = turned(h, -step), takes = turned(h, -step - 1);
    size_t out = part_at(count, h->ranks, gives), in = part_at(count, h->ranks, takes);
    size_t in_count = part_at(count, h->ranks, takes + 1) - in;
    swap(h, turned(h, 1), data + out, (part_at(count, h->ranks, gives + 1) - out) * sizeof *data, turned(h, -1),
         h->spare, in_count * sizeof *data);
    for (size_t i = 0; i < in_count; i++) data[in + i] += h->spare[i];
  }
}

static void ring_gather(struct hosts *h, float *data, size_t count) {
  for (int step = 0; step < h->ranks - 1; step++) {
    int gives = turned(h, -step), takes = turned(h, -step - 1);
    size_t out = part_at(count, h->ranks, gives), in = part_at(count, h->ranks, takes);
    swap(h, turned(h, 1), data + out, (part_at(count, h->ranks, gives + 1) - out) * sizeof *data, turned(h, -1),
         data + in, (part_at(count, h->ranks, takes + 1) - in) * sizeof *data);
  }
}

static void chain_broadcast(struct hosts *h, float *data, size_t count, int root) {
  int place = turned(h, -root);
  for (size_t at = 0, step = CHUNK_BYTES / sizeof *data; at < count; at += step) {
    size_t bytes = (count - at < step ? count - at : step) * sizeof *data;
    if (place) swap(h, 0, NULL, 0, turned(h, -1), data + at, bytes);
    if (place < h->ranks - 1) swap(h, turned(h, 1), data + at, bytes, 0, NULL, 0);
  }
}

static void exchange_between_hosts(struct work *w) {
  struct flow flows[2 * MOST_RANKS];
  struct hosts *h = w->comm->hosts;
  for (int i = 0; i < w->transfers; i++) {
    struct transfer *t = &w->transfer[i];
    flows[i] = (struct flow){t->sends ? outgoing(h, t->other) : -1, t->sends, (char *)t->at, t->count * sizeof(float)};
  }
  for (int i = 0; i < w->transfers; i++)
    if (!flows[i].sends) flows[i].socket = incoming(h, w->transfer[i].other);
  run_flows(h, flows, w->transfers);
  for (int i = 0; i < w->transfers; i++)
    if (!w->transfer[i].sends && setting("STANDIN_NCCL_DAMAGE")) *(char *)w->transfer[i].at ^= 1;
}

static void collective_between_hosts(const struct work *w) {
  struct hosts *h = w->comm->hosts;
  size_t whole = w->count * (size_t)h->ranks, own = (size_t)h->rank * w->count;
  float *copy;
  switch (w->kind) {
  case ALL_REDUCE:
    memmove(w->in, w->out, w->count * sizeof(float));
    ring_reduce(h, w->in, w->count);
    ring_gather(h, w->in, w->count);
    break;
  case ALL_GATHER:
    memmove(w->in + own, w->out, w->count * sizeof(float));
    ring_gather(h, w->in, whole);
    break;
  case REDUCE_SCATTER:
    copy = malloc(whole * sizeof(float));
    memcpy(copy, w->out, whole * sizeof(float));
    ring_reduce(h, copy, whole);
    memcpy(w->in, copy + own, w->count * sizeof(float));
    free(copy);
    break;
  case BROADCAST:
    if (h->rank == w->root) memmove(w->in, w->out, w->count * sizeof(float));
    chain_broadcast(h, w->in, w->count, w->root);
    break;
  default:
    memmove(w->in + own, w->out + own, w->count * sizeof(float));
    for (int step = 1; step < h->ranks; step++) {
      int to = turned(h, step), from = turned(h, -step);
      swap(h, to, w->out + (size_t)to * w->count, w->count * sizeof(float), from, w->in + (size_t)from * w->count,
           w->count * sizeof(float));
    }
  }
}
