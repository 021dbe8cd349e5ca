// Runs both bodies of attention.kernel on a CPU: see block.h.

#include "block.h"

#define SHARED static
#define BARRIER() block::wait()
#define THREAD threadIdx.x
#define BLOCK blockIdx.x
#define SHUFFLE_XOR(mine, step) float(block::other(double(mine), threadIdx.x ^ (step)))
#define EXP(x) std::exp(float(x))
#define TANH(x) std::tanh(float(x))
#define OFFSET(x) size_t(x)
#define UNROLL
#define LOAD_PIECE(from) (*reinterpret_cast<const Piece*>(from))

struct bfloat {
  uint16_t bits;
  operator float() const { return __uint_as_float(unsigned(bits) << 16); }
  bfloat() = default;
  explicit bfloat(float x) {
    unsigned whole = __float_as_uint(x);
    bits = (whole + 0x7fff + (whole >> 16 & 1)) >> 16;
  }
};

HEADER

extern "C" void partition(int blocks, const int* table_shape, const ELEMENT* queries,
                          const ELEMENT* keys, const ELEMENT* values, const int32_t* table,
                          const int32_t* lengths,
#if FINAL
                          ELEMENT* attended
#else
                          float* accumulated, float* measures
#endif
) {
  for (int at = 0; at < blocks; ++at) {
    block::run(at, THREADS, [&] {
      PARTITION_BODY
    });
  }
}

extern "C" void merge(int blocks, const int* table_shape, const float* accumulated,
                      const float* measures, const int32_t* table, const int32_t* lengths,
#if SINKS
                      const ELEMENT* sinks,
#endif
                      ELEMENT* attended) {
  for (int at = 0; at < blocks; ++at) {
    block::run(at, THREADS, [&] {
      MERGE_BODY
    });
  }
}
