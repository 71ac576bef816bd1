// Copies to, from and between GPUs in plain CUDA C++, for comparison with `railwright run gpu_copy`: the same method,
// but with the runtime API, its allocator and a kernel that nvcc compiles for the present GPU.
//
//   nvcc -O3 -arch=native -o gpu_copy gpu_copy.cu && ./gpu_copy [BYTES [SAMPLES [PAIRS [CPU]]]]
//
// Prints a line of JSON for each point: path, varied parameters, the seconds of a copy for each sample, and the
// bandwidth by their median. PAIRS is all (every kind of copy between every two GPUs) or neighbours (every kind between
// neighbours, one kind between the others). CPU is the CPU to bind to before host memory is touched.
#include <cuda_runtime.h>

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <vector>

#define CHECK(call)                                                                                       \
  do {                                                                                                    \
    cudaError_t error = (call);                                                                           \
    if (error != cudaSuccess) {                                                                           \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error));           \
      exit(1);                                                                                            \
    }                                                                                                     \
  } while (0)

enum { WARM = 4, COPIES = 16, THREADS = 512, MOST_DEVICES = 16 };

__global__ void copy_vectors(uint4 *to, const uint4 *from, size_t vectors, int loops) {
  size_t step = (size_t)gridDim.x * blockDim.x;
  for (int loop = 0; loop < loops; loop++) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 7 * step < vectors; i += 8 * step) {
      uint4 kept[8];
#pragma unroll
      for (int k = 0; k < 8; k++) kept[k] = from[i + k * step];
#pragma unroll
      for (int k = 0; k < 8; k++) to[i + k * step] = kept[k];
    }
    for (; i < vectors; i += step) to[i] = from[i];
  }
}

__global__ void hold(volatile int *go) {
  long long start = clock64();
  while (!*go && clock64() - start < 20000000000LL) {
  }
}

struct Way {
  void *to, *from;
  int device;
  bool kernel;
  cudaStream_t stream;
};

static size_t bytes = (size_t)512 << 20;
static int samples = 5, multiprocessors;
static volatile int *go;

static void enqueue(const Way &way, int copies) {
  CHECK(cudaSetDevice(way.device));
  if (way.kernel) {
    copy_vectors<<<multiprocessors, THREADS, 0, way.stream>>>((uint4 *)way.to, (const uint4 *)way.from, bytes / 16, copies);
    CHECK(cudaGetLastError());
    return;
  }
  for (int i = 0; i < copies; i++) CHECK(cudaMemcpyAsync(way.to, way.from, bytes, cudaMemcpyDefault, way.stream));
}

static void measure(const char *path, const char *varied, Way way, Way *other) {
  cudaEvent_t begin, end;
  std::vector<double> seconds;
  Way *ways[] = {&way, other};
  int count = other ? 2 : 1;
  for (int i = 0; i < count; i++) {
    CHECK(cudaSetDevice(ways[i]->device));
    CHECK(cudaStreamCreateWithFlags(&ways[i]->stream, cudaStreamNonBlocking));
    *go = 1;
    hold<<<1, 1, 0, ways[i]->stream>>>(go);
    enqueue(*ways[i], 1);
    CHECK(cudaStreamSynchronize(ways[i]->stream));
  }
  CHECK(cudaSetDevice(way.device));
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  printf("{\"path\": \"%s\", %s, \"size_bytes\": %zu, \"seconds\": [", path, varied, bytes);
  for (int k = 0; k < samples; k++) {
    float ms;
    *go = 0;
    for (int i = 0; i < count; i++) {
      CHECK(cudaSetDevice(ways[i]->device));
      hold<<<1, 1, 0, ways[i]->stream>>>(go);
    }
    if (other) enqueue(*other, WARM + 2 * COPIES);
    enqueue(way, WARM);
    CHECK(cudaEventRecord(begin, way.stream));
    enqueue(way, COPIES);
    CHECK(cudaEventRecord(end, way.stream));
    *go = 1;
    for (int i = 0; i < count; i++) CHECK(cudaStreamSynchronize(ways[i]->stream));
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    seconds.push_back(1e-3 * (double)ms / COPIES);
    printf("%s%.9g", k ? ", " : "", seconds.back());
  }
  std::sort(seconds.begin(), seconds.end());
  double median = (seconds[(samples - 1) / 2] + seconds[samples / 2]) / 2;
  printf("], \"bandwidth_bytes_per_s\": %.9g}\n", (double)bytes / median);
  fflush(stdout);
  CHECK(cudaEventDestroy(begin));
  CHECK(cudaEventDestroy(end));
  for (int i = 0; i < count; i++) CHECK(cudaStreamDestroy(ways[i]->stream));
}

// Copies in one direction and in both at the same time, by a copy engine and by multiprocessors.
static void all_ways(const char *path, const char *more, Way there, Way back, bool both) {
  char varied[200];
  for (int kernel = 0; kernel < 2; kernel++)
    for (int direction = 0; direction < (both ? 2 : 1); direction++) {
      there.kernel = back.kernel = kernel;
      snprintf(varied, sizeof varied, "\"engine\": \"%s\", \"direction\": \"%s\"%s", kernel ? "sm" : "ce",
               direction ? "both" : "one", more);
      measure(path, varied, there, direction ? &back : NULL);
    }
}

// Copies between GPUs, by the source GPU and by the destination GPU; with `alone` only the copy engine's write.
static void between(int from, int to, void **out, void **into, bool alone) {
  char path[64];
  Way pull = {into[to], out[from], to}, pull_back = {into[from], out[to], from};
  Way push = {into[to], out[from], from}, push_back = {into[from], out[to], to};
  snprintf(path, sizeof path, "gpu%d>gpu%d", from, to);
  if (alone) return measure(path, "\"engine\": \"ce\", \"direction\": \"one\", \"by\": \"write\"", push, NULL);
  all_ways(path, ", \"by\": \"read\"", pull, pull_back, true);
  all_ways(path, ", \"by\": \"write\"", push, push_back, true);
}

int main(int argc, char **argv) {
  int devices;
  bool all = argc <= 3 || strcmp(argv[3], "neighbours");
  void *out[MOST_DEVICES], *into[MOST_DEVICES], *host_out, *host_into;
  char path[64];
  if (argc > 1) bytes = strtoull(argv[1], NULL, 0) / 16 * 16;
  if (argc > 2) samples = std::max(1, atoi(argv[2]));
  if (argc > 4) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(atoi(argv[4]), &set);
    if (sched_setaffinity(0, sizeof set, &set)) return perror("sched_setaffinity"), 1;
  }
  setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);  // number GPUs like Railwright
  CHECK(cudaGetDeviceCount(&devices));
  if (devices > MOST_DEVICES) devices = MOST_DEVICES;
  CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
  CHECK(cudaHostAlloc((void **)&go, 64, cudaHostAllocPortable | cudaHostAllocMapped));
  CHECK(cudaHostAlloc(&host_out, bytes, cudaHostAllocPortable));
  CHECK(cudaHostAlloc(&host_into, bytes, cudaHostAllocPortable));
  for (int d = 0; d < devices; d++) {
    CHECK(cudaSetDevice(d));
    CHECK(cudaMalloc(&out[d], bytes));
    CHECK(cudaMalloc(&into[d], bytes));
    for (int p = 0, can = 0; p < devices; p++)
      if (p != d && cudaDeviceCanAccessPeer(&can, d, p) == cudaSuccess && can) CHECK(cudaDeviceEnablePeerAccess(p, 0));
  }
  for (int d = 0; d < devices; d++) {
    Way down = {into[d], host_out, d}, up = {host_into, out[d], d}, local = {into[d], out[d], d};
    snprintf(path, sizeof path, "memory0>gpu%d", d);
    all_ways(path, ", \"host\": \"pinned\"", down, up, true);
    snprintf(path, sizeof path, "gpu%d>memory0", d);
    all_ways(path, ", \"host\": \"pinned\"", up, down, true);
    snprintf(path, sizeof path, "gpu%d>gpu%d", d, d);
    all_ways(path, "", local, local, false);
  }
  for (int from = 0; from < devices; from++)
    for (int to = 0; to < devices; to++) {
      int can = 0;
      if (from == to) continue;
      CHECK(cudaDeviceCanAccessPeer(&can, from, to));
      if (can) between(from, to, out, into, !all && to != (from + 1) % devices);
    }
  return 0;
}
