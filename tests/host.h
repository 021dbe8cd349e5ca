// What `kernel_preludes.py` says of CUDA and Metal, of a CPU: see block.h.

#include "block.h"

#define SHARED static
#define BARRIER() block::wait()
#define DEVICE_BARRIER() block::wait()
#define THREAD threadIdx.x
#define BLOCK blockIdx.x
#define SHUFFLE_XOR(mine, step) float(block::other(double(mine), threadIdx.x ^ (step)))
#define EXP(x) std::exp(float(x))
#define TANH(x) std::tanh(float(x))
#define OFFSET(x) size_t(x)
#define UNROLL
#define WRITABLE(array) const_cast<ELEMENT*>(array)
// MLX's arrays lie at any multiple of eight here.
#define LOAD_PIECE(from) load<Piece>(from)
#define STORE_PIECE(to, piece) std::memcpy(to, &(const Piece&)(piece), sizeof(Piece))

template <typename Piece>
static Piece load(const void* from) {
  Piece piece;
  std::memcpy(&piece, from, sizeof(Piece));
  return piece;
}

struct bfloat {
  uint16_t bits;
  operator float() const { return __uint_as_float(unsigned(bits) << 16); }
  bfloat() = default;
  explicit bfloat(float x) {
    unsigned whole = __float_as_uint(x);
    bits = (whole + 0x7fff + (whole >> 16 & 1)) >> 16;
  }
};
