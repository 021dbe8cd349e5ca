// Runs the body of a CUDA kernel on a CPU: one block after the other, its threads as coroutines
// that change places wherever threads wait for each other. Every such call counts as a barrier of
// the whole block, which holds for kernels whose threads all make the same calls.

#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#define __device__
#define __shared__ static

struct Index {
  int x;
};
static Index threadIdx, blockIdx;

namespace block {
// Contexts start a thread; jumps, which do without a system call, change between them.
static ucontext_t start, home;
static jmp_buf turn;
struct Place {
  jmp_buf buffer;
};
static std::vector<Place> threads;
static std::vector<char> state;  // 0: not begun, 1: waits, 2: done
static std::vector<double> wide;
static std::vector<unsigned long long> whole;
static std::function<void()> body;

static void wait() {
  int me = threadIdx.x;
  if (_setjmp(threads[me].buffer) == 0) _longjmp(turn, 1);
  threadIdx.x = me;
}

static void enter() {
  int me = threadIdx.x;
  body();
  state[me] = 2;
  _longjmp(turn, 1);
}

static void run(int index, int count, std::function<void()> work) {
  static std::vector<std::vector<char>> stacks;
  stacks.resize(count, std::vector<char>(64 << 10));
  threads.resize(count);
  state.assign(count, 0);
  wide.assign(count, 0);
  whole.assign(count, 0);
  blockIdx.x = index;
  body = work;
  static volatile int at, left;
  for (left = count; left;) {
    left = 0;
    for (at = 0; at < count; at = at + 1) {
      if (state[at] == 2) continue;
      left = left + 1;
      threadIdx.x = at;
      if (_setjmp(turn) != 0) continue;
      if (state[at] == 1) _longjmp(threads[at].buffer, 1);
      state[at] = 1;
      getcontext(&start);
      start.uc_stack.ss_sp = stacks[at].data();
      start.uc_stack.ss_size = stacks[at].size();
      start.uc_link = &home;
      makecontext(&start, enter, 0);
      setcontext(&start);
    }
  }
}

template <typename A>
static std::vector<A>& slots();
template <>
std::vector<double>& slots<double>() {
  return wide;
}
template <>
std::vector<unsigned long long>& slots<unsigned long long>() {
  return whole;
}

// What thread `from(me)` passed, if it is of the same warp.
template <typename A>
static A other(A mine, int from) {
  slots<A>()[threadIdx.x] = mine;
  wait();
  A found = from < 0 ? mine : slots<A>()[from];
  wait();
  return found;
}
}  // namespace block

inline unsigned __float_as_uint(float x) {
  unsigned bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}
inline float __uint_as_float(unsigned bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}
inline float __expf(float x) { return std::exp(x); }
inline int atomicAdd(int* where, int more) {
  int was = *where;
  *where += more;
  return was;
}
inline void __syncthreads() { block::wait(); }
inline int __syncthreads_count(bool yes) {
  block::whole[threadIdx.x] = yes;
  block::wait();
  int count = 0;
  for (auto it : block::whole) count += it != 0;
  block::wait();
  return count;
}
template <typename A>
A __shfl_xor_sync(unsigned, A mine, int step) {
  return block::other(mine, threadIdx.x ^ step);
}
template <typename A>
A __shfl_up_sync(unsigned, A mine, int step) {
  int lane = threadIdx.x % 32;
  return block::other(mine, lane >= step ? threadIdx.x - step : -1);
}

using std::size_t;
