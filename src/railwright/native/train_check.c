/* The data check of reduced gradients of any type, and a checksum of their bytes to compare ranks.
 *
 * All ranks but one contribute the element's number, 0 or 1, and that one contributes 2; which one it is changes from
 * element to element. So a sum has a closed form, is exact in every type up to 255 ranks, and differs if a rank is
 * missing or counted twice, or if an element is at another position. */
#include "train.h"

#include <string.h>

enum { MOST_RANKS = 255, RUN = 64 };
enum { FLOAT16 = 6, FLOAT32 = 7, BFLOAT16 = 9 }; /* ncclDataType_t */

/* The numbers of 64 elements, and the rank that contributes 2 to the first one; the next rank does so to the next. */
struct run {
  uint64_t numbers;
  int first;
};

static struct run run_at(int64_t index, int ranks) {
  uint64_t z = ((uint64_t)index + 1) * 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  z ^= z >> 31;
  return (struct run){z, (int)((z >> 32) % (uint64_t)ranks)};
}

/* The bits of the integers up to 256 in a type. */
struct table {
  uint32_t of[257];
  int wide;
};

static void make(struct table *t, int type) {
  t->wide = type == FLOAT32;
  for (int i = 0; i <= 256; i++) {
    float value = (float)i;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t half = i ? (bits - (112u << 23)) >> 13 : 0;
    t->of[i] = type == FLOAT32 ? bits : type == BFLOAT16 ? bits >> 16 : half;
  }
}

static inline uint32_t held(const struct table *t, const void *from, int64_t i) {
  return t->wide ? ((const uint32_t *)from)[i] : ((const uint16_t *)from)[i];
}

/* Writes a rank's contribution to the elements from `first` (a multiple of 64) on. */
static void give(const struct rw_train *t, const struct table *table, void *to, int64_t first, int64_t count) {
  for (int64_t i = 0; i < count;) {
    struct run run = run_at((first + i) / RUN, t->ranks);
    for (int k = 0, two = run.first; k < RUN && i < count; k++, i++, two = two + 1 == t->ranks ? 0 : two + 1) {
      uint32_t value = table->of[two == t->rank ? 2 : run.numbers >> k & 1];
      if (table->wide)
        ((uint32_t *)to)[i] = value;
      else
        ((uint16_t *)to)[i] = (uint16_t)value;
    }
  }
}

static int64_t wrong(const struct rw_train *t, const struct table *table, const void *from, int64_t first,
                     int64_t count) {
  int64_t found = 0;
  uint32_t sums[2] = {table->of[2], table->of[t->ranks + 1]};
  for (int64_t i = 0; i < count;) {
    uint64_t numbers = run_at((first + i) / RUN, t->ranks).numbers;
    for (int k = 0; k < RUN && i < count; k++, i++) found += held(table, from, i) != sums[numbers >> k & 1];
  }
  return found;
}

enum what { GIVE, CHECK, SUM_UP };

/* Goes through all gradients, as many at a time as the host memory at `staging` holds (a multiple of 64 elements). */
static int through(const struct rw_train *t, enum what what, void *staging, int64_t bytes, uint64_t *result) {
  struct table table;
  int64_t at_once = bytes / t->element_bytes / RUN * RUN;
  int status = rw_cuda.use(t->context);
  make(&table, t->type);
  *result = 0;
  for (int64_t first = 0; first < t->count && !status; first += at_once) {
    int64_t count = t->count - first < at_once ? t->count - first : at_once;
    uint64_t there = t->gradients + (uint64_t)(first * t->element_bytes), here = (uint64_t)(uintptr_t)staging;
    size_t size = (size_t)(count * t->element_bytes);
    if (what == GIVE) {
      give(t, &table, staging, first, count);
      status = rw_cuda.copy(there, here, size);
    } else {
      status = rw_cuda.copy(here, there, size);
      if (what == CHECK && !status) *result += (uint64_t)wrong(t, &table, staging, first, count);
    }
    for (size_t i = 0; what == SUM_UP && i < size / 2; i++)
      *result = (*result ^ ((const uint16_t *)staging)[i]) * 0x100000001b3ULL; /* FNV-1a by 16 bits */
  }
  return status ? status : rw_cuda.synchronize();
}

static int fits(const struct rw_train *t, int64_t bytes) {
  return t->ranks <= MOST_RANKS && bytes >= RUN * t->element_bytes;
}

/* Writes this rank's known gradients. Returns RW_NO_MEMORY if the staging is too small or there are too many ranks. */
int rw_train_give(const struct rw_train *t, void *staging, int64_t bytes) {
  uint64_t none;
  return fits(t, bytes) ? through(t, GIVE, staging, bytes, &none) : RW_NO_MEMORY;
}

/* Counts the wrong elements in the sum over all ranks. */
int rw_train_wrong(const struct rw_train *t, void *staging, int64_t bytes, uint64_t *found) {
  return fits(t, bytes) ? through(t, CHECK, staging, bytes, found) : RW_NO_MEMORY;
}

/* Computes a number that depends on every byte of the gradients and on its position. */
int rw_train_checksum(const struct rw_train *t, void *staging, int64_t bytes, uint64_t *sum) {
  if (!fits(t, bytes)) return RW_NO_MEMORY;
  return through(t, SUM_UP, staging, bytes, sum);
}
