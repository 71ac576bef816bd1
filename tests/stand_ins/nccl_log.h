/* The log of the stand-in for NCCL, in NCCL's words. Included by nccl.c alone. */
#include "nccl_hosts.h"

static FILE *log_file;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static int logs(const char *part) {
  const char *level = getenv("NCCL_DEBUG"), *parts = getenv("NCCL_DEBUG_SUBSYS"), *name = getenv("NCCL_DEBUG_FILE");
  if (!level || strcmp(level, "INFO") || !parts || !strstr(parts, part)) return 0;
  pthread_mutex_lock(&log_lock);
  if (!log_file && name) log_file = fopen(name, "w");
  pthread_mutex_unlock(&log_lock);
  return log_file != NULL;
}

static void say(const char *part, const char *format, ...) {
  char name[256] = "";
  va_list arguments;
  if (!logs(part)) return;
  gethostname(name, sizeof name - 1);
  pthread_mutex_lock(&log_lock);
  fprintf(log_file, "%s:%d:%d [0] NCCL INFO ", name, getpid(), getpid());
  va_start(arguments, format);
  vfprintf(log_file, format, arguments);
  va_end(arguments);
  fputc('\n', log_file);
  fflush(log_file);
  pthread_mutex_unlock(&log_lock);
}

static void say_begin(const struct comm *c, const char *id, const char *state) {
  say("INIT", "ncclCommInitRankConfig comm %p rank %d nranks %d cudaDev 0 nvmlDev 0 busId %x commId 0x%.12s - Init %s",
      (const void *)c, c->rank, c->ranks, c->rank + 16, id, state);
}

static void say_network(void) {
  char interface[IF_NAMESIZE], text[INET_ADDRSTRLEN];
  struct sockaddr_in at = own_address(interface);
  inet_ntop(AF_INET, &at.sin_addr, text, sizeof text);
  if (setting("STANDIN_NCCL_IB")) say("INIT", "NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB %s:%s<0>", interface, text);
  else say("INIT", "NET/IB : No device found.");
  say("INIT", "NET/Socket : Using [0]%s:%s<0>", interface, text);
  say("INIT", "Using network Socket");
}

/* NCCL connects when the first operation needs it, and says so then. */
static void say_connections(struct comm *c) {
  if (c->connected++) return;
  for (int side = 0; side < 2; side++) {
    int other = (c->rank + (side ? c->ranks - 1 : 1)) % c->ranks;
    int from = side ? other : c->rank, to = side ? c->rank : other;
    if (c->hosts && is_remote(c->hosts, other))
      say("INIT", "Channel 00/0 : %d[0] -> %d[0] [%s] via NET/Socket/0", from, to, side ? "receive" : "send");
    else if (!side)
      say("INIT", "Channel 00/0 : %d[0] -> %d[0] via P2P/CUMEM", from, to);
  }
}
