/* The kernels of Linpack, compiled for the host from the text that the GPU runs: a block has one thread, and blocks run
 * one after another. Included by cuda_device.h alone. */
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;

static __thread u32 block_now, blocks_now;

#define KERNEL static void
#define INSIDE static inline
#define SHARED static __thread

static inline u32 special_thread(void) { return 0; }
static inline u32 special_threads(void) { return 1; }
static inline u32 special_block(void) { return block_now; }
static inline u32 special_blocks(void) { return blocks_now; }
static inline u64 first_index(void) { return block_now; }
static inline u64 all_threads(void) { return blocks_now; }
static inline void synchronize(void) {}

#include "../../src/railwright/native/lu_kernels.h"

#define ON_HOST(name, ...)                                                     \
  static void name##_on_host(const uint64_t *a) {                              \
    for (block_now = 0; block_now < blocks_now; block_now++) name(__VA_ARGS__); \
  }
#define AT(i) ((void *)a[i])

ON_HOST(lu_generate, AT(0), a[1], a[2], a[3])
ON_HOST(lu_multiply, AT(0), a[1], a[2], a[3], AT(4), AT(5), AT(6))
ON_HOST(lu_search, AT(0), a[1], a[2])
ON_HOST(lu_tell, AT(0), a[1], a[2], a[3])
ON_HOST(lu_eliminate, AT(0), a[1], a[2], a[3])
ON_HOST(lu_copy, AT(0), a[1], AT(2), a[3], a[4], a[5])
ON_HOST(lu_collect, AT(0), a[1], AT(2), a[3], AT(4), a[5])
ON_HOST(lu_distribute, AT(0), a[1], AT(2), a[3], AT(4), a[5], a[6])
ON_HOST(lu_assemble, AT(0), AT(1), a[2], AT(3), a[4])
ON_HOST(lu_sum, AT(0), AT(1), a[2], a[3])
