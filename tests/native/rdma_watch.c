/* Counts the packets of RoCE v2 that an interface sends and receives, until SIGTERM: one line for each opcode.
 *
 *     rdma_watch INTERFACE
 *
 * A packet that was sent again has the PSN of the first, so distinct PSNs of a queue pair count the requests. Emulation
 * drops packets, and retransmissions and acknowledgements are counted apart. */
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ROCE_PORT = 4791, MOST_PAIRS = 256, PSNS = 1 << 24, BTH = 12, RETH = 16, AETH = 4, ICRC = 4 };

static volatile sig_atomic_t ended;
static struct pair {
  uint32_t number;
  uint8_t *seen; /* a bit for each PSN */
} pairs[MOST_PAIRS];
static struct total {
  unsigned long packets, distinct;
  unsigned long long payload; /* of the distinct ones */
} totals[256];
static unsigned queue_pairs;

static void end(int number) { (void)number, ended = 1; }

static int is_new(uint32_t number, uint32_t psn) {
  unsigned place = 0;
  while (place < queue_pairs && pairs[place].number != number) place++;
  if (place == queue_pairs) {
    if (place == MOST_PAIRS) return 1;
    pairs[queue_pairs++] = (struct pair){number, calloc(PSNS / 8, 1)};
  }
  uint8_t *byte = &pairs[place].seen[psn / 8], bit = (uint8_t)(1 << psn % 8);
  int fresh = !(*byte & bit);
  *byte |= bit;
  return fresh;
}

static int headers(int opcode) {
  int kind = opcode & 31;
  if (kind == 6 || kind == 10 || kind == 12) return BTH + RETH;             /* first or only write, read request */
  if (kind == 13 || kind == 15 || kind == 16 || kind == 17) return BTH + AETH; /* read responses, acknowledgement */
  return BTH;
}

int main(int count, char **words) {
  if (count != 2) return 2;
  int link = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL)), size = 256 << 20;
  setsockopt(link, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size);
  struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = (int)if_nametoindex(words[1])};
  struct sigaction act = {.sa_handler = end};
  sigaction(SIGTERM, &act, NULL);
  if (bind(link, (struct sockaddr *)&at, sizeof at)) return 1;
  printf("watching\n");
  fflush(stdout);
  static uint8_t frame[1 << 16];
  for (ssize_t bytes; !ended && (bytes = recv(link, frame, sizeof frame, 0)) > 0;) {
    const uint8_t *ip = frame + ETH_HLEN;
    if (bytes < ETH_HLEN + 20 + 8 + BTH || frame[12] != 8 || frame[13] || ip[9] != 17) continue;
    const uint8_t *udp = ip + 4 * (ip[0] & 15), *bth = udp + 8;
    if ((udp[2] << 8 | udp[3]) != ROCE_PORT) continue;
    int length = (udp[4] << 8 | udp[5]) - 8, opcode = bth[0], pad = bth[1] >> 4 & 3;
    uint32_t number = (uint32_t)bth[5] << 16 | (uint32_t)bth[6] << 8 | bth[7];
    uint32_t psn = (uint32_t)bth[9] << 16 | (uint32_t)bth[10] << 8 | bth[11];
    struct total *total = &totals[opcode];
    total->packets++;
    /* A response has the PSN of its request, and both ends may have the same numbers. */
    if (!is_new(number ^ (uint32_t)ip[15] << 24, psn)) continue;
    total->distinct++;
    total->payload += (unsigned)(length - headers(opcode) - pad - ICRC);
  }
  struct tpacket_stats lost;
  socklen_t room = sizeof lost;
  getsockopt(link, SOL_PACKET, PACKET_STATISTICS, &lost, &room);
  for (int opcode = 0; opcode < 256; opcode++)
    if (totals[opcode].packets)
      printf("opcode %d distinct %lu packets %lu payload %llu\n", opcode, totals[opcode].distinct, totals[opcode].packets, totals[opcode].payload);
  printf("queue_pairs %u missed %u\n", queue_pairs, lost.tp_drops);
  return 0;
}
