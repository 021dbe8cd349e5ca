// One block of threads chooses the token of one row: see cuda.py, which defines THREADS, VOCAB
// (tokens), TOGETHER (logits read at once), LOGIT (their type), LOW_BITS (of a float32 that it never
// sets), HELD, PENALISED and BIASED, and passes
//   logits [B, VOCAB], settings [B]: the bits of a struct that is made there
//   places [B, 2]: position of the new token in its sequence, and in its reply
//   slots [B], words [G, VOCAB / 32]: the mask of a row, a bit for each token
//   inputs [B], marks [P, VOCAB]: what a penalised row has seen, by count; the top bit: in the prompt
//   bias [B, VOCAB]
// for tokens [B], moved [B, 2], the next places, and marked [P, VOCAB], the marks with the inputs
// counted.

constexpr int WARPS = THREADS / 32;
constexpr int WORDS = (VOCAB + 31) / 32;
typedef unsigned long long Wide;

template <typename A, int W>
struct alignas(sizeof(A) * W) Pack {
  A at[W];
};

// Rises with the number.
__device__ inline unsigned order_of(float x) {
  unsigned bits = __float_as_uint(x);
  return bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
}

// What has that order; below all numbers, the lowest.
__device__ inline float value_of(unsigned order) {
  if (order < 0x007fffffu) order = 0x007fffffu;
  return __uint_as_float(order >> 31 ? order ^ 0x80000000u : ~order);
}

__device__ inline Wide mix(Wide x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// The first of draw.py's uniform numbers.
__device__ inline float uniform_at(Wide seed, unsigned position) {
  return float(mix(mix(mix(seed) ^ position)) >> 40) / float(1 << 24);
}

// The sum over all threads, the same in each, always added in the same order.
__device__ inline double total_of(double mine, double* shared) {
  for (int step = 16; step; step >>= 1) mine += __shfl_xor_sync(0xffffffffu, mine, step);
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = mine;
  __syncthreads();
  double sum = 0;
  for (int warp = 0; warp < WARPS; ++warp) sum += shared[warp];
  return sum;
}

// The sums over the threads before this one, and with it. One thread's end is the next one's
// start, to the bit.
__device__ inline void place(double mine, double* shared, double& start, double& end) {
  double upto = mine;
  for (int step = 1; step < 32; step <<= 1) {
    double other = __shfl_up_sync(0xffffffffu, upto, step);
    if (threadIdx.x % 32 >= step) upto += other;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 31) shared[threadIdx.x / 32] = upto;
  __syncthreads();
  double sum = 0;
  for (int warp = 0; warp < threadIdx.x / 32; ++warp) sum += shared[warp];
  double left = __shfl_up_sync(0xffffffffu, upto, 1);
  start = threadIdx.x % 32 ? sum + left : sum;
  end = sum + upto;
}

// Falling order; size is a power of two, at most THREADS.
__device__ inline void sort(Wide* items, int size) {
  for (int run = 2; run <= size; run <<= 1) {
    for (int apart = run >> 1; apart; apart >>= 1) {
      __syncthreads();
      int at = threadIdx.x, other = at ^ apart;
      if (at < size && other > at) {
        bool falling = (at & run) == 0;
        Wide a = items[at], b = items[other];
        if ((a < b) == falling) {
          items[at] = b;
          items[other] = a;
        }
      }
    }
  }
  __syncthreads();
}

// ---- the kernel's body
__shared__ double shared[WARPS];
__shared__ Wide items[THREADS];
__shared__ double last_end;
__shared__ int found;
const int row = blockIdx.x;
const int lane = threadIdx.x;
const Settings mine = reinterpret_cast<const Settings*>(settings)[row];
const float temperature = mine.temperature, min_p = mine.min_p, top_p = mine.top_p;
const int top_k = mine.top_k;
const int slot = mine.slot;
const LOGIT* x = logits + size_t(row) * VOCAB;
#if HELD
const auto* mask = words + size_t(slots[row]) * WORDS;
#endif
if (lane < 2) moved[2 * row + lane] = places[2 * row + lane] + 1;

#if PENALISED
const float repetition = mine.repetition, presence = mine.presence, frequency = mine.frequency;
const Wide told = size_t(slot) * VOCAB;
const int newest = places[2 * row + 1] != 0 ? int(inputs[row]) : -1;
auto mark = [&](int at, unsigned was) -> unsigned {
  return at == newest && (was & 0x7fff) < 0x7fff ? was + 1 : was;
};
if (slot >= 0) {
  for (int at = lane; at < VOCAB; at += THREADS) marked[told + at] = mark(at, marks[told + at]);
}
#endif
// Calls visit(token, logit) for this thread's tokens, always in the same order. Zero has one
// sign, so that numbers and their orders compare alike.
auto each = [&](auto&& visit) {
  for (int base = lane * TOGETHER; base < VOCAB; base += THREADS * TOGETHER) {
    const auto pack = *reinterpret_cast<const Pack<LOGIT, TOGETHER>*>(x + base);
#if PENALISED
    Pack<uint16_t, TOGETHER> marks_here = {};
    if (slot >= 0) marks_here = *reinterpret_cast<const Pack<uint16_t, TOGETHER>*>(marks + told + base);
#endif
#if HELD
    const unsigned allowed = mask[base / 32] >> base % 32;
#else
    const unsigned allowed = ~0u;
#endif
#pragma unroll
    for (int j = 0; j < TOGETHER; ++j) {
      float v = static_cast<float>(pack.at[j]);
#if PENALISED
      if (slot >= 0) {
        unsigned was = mark(base + j, marks_here.at[j]);
        float said = was & 0x7fff;
        if (was) v = v > 0 ? v / repetition : v * repetition;
        v = v - frequency * said - (said > 0 ? presence : 0.0f);
      }
#endif
#if BIASED
      v += bias[size_t(row) * VOCAB + base + j];
#endif
      visit(base + j, allowed >> j & 1 ? v + 0.0f : -INFINITY);
    }
  }
};
auto item = [](int at, float v) -> Wide {
  return Wide(order_of(v)) << 32 | (0xffffffffu - unsigned(at));
};
auto token_of = [](Wide it) -> unsigned { return 0xffffffffu - unsigned(it); };

// best
float top = -INFINITY;
int where = -1;
each([&](int at, float v) {
  if (v > top || (where < 0 && v == top)) {
    top = v;
    where = at;
  }
});
const Wide own = item(where < 0 ? lane % VOCAB : where, top);
Wide best = own;
for (int step = 16; step; step >>= 1) {
  Wide other = __shfl_xor_sync(0xffffffffu, best, step);
  best = other > best ? other : best;
}
if (lane % 32 == 0) items[lane / 32] = best;
__syncthreads();
for (int warp = 0; warp < WARPS; ++warp) best = items[warp] > best ? items[warp] : best;
if (lane == 0) {
  tokens[row] = token_of(best);
  found = 0;
}
if (temperature == 0) return;
__syncthreads();

const float largest = value_of(best >> 32), scale = 1.0f / temperature, least = logf(min_p);
auto weight = [&](float v) -> float {
  float y = (v - largest) * scale;
  return y >= least ? __expf(y) : 0.0f;
};
const Wide seed = Wide(mine.seed_high) << 32 | mine.seed_low;
const float u = uniform_at(seed, places[2 * row]);
// The token of the thread in whose share of the whole u falls.
auto pick = [&](double start, double end, double whole) -> bool {
  double goal = u * whole;
  return start <= goal && goal < end;
};
double start, end;

// few: the k-th best of the threads' best tokens has k tokens or more above it, seldom many.
const bool cut = top_k > 0 && top_k < VOCAB;
const int wanted = cut ? top_k : THREADS / 2;
if (wanted <= THREADS / 2 && (cut || top_p < 1)) {
  double whole = 0;
  if (!cut) {
    each([&](int, float v) { whole += weight(v); });
    whole = total_of(whole, shared);
  }
  unsigned edge = 0;
  for (int bit = 31; bit >= 0; --bit) {
    unsigned higher = edge | 1u << bit;
    if (__syncthreads_count(unsigned(own >> 32) >= higher) >= wanted) edge = higher;
  }
  const float from = value_of(edge);
  each([&](int at, float v) {
    if (!(v >= from)) return;
    int spot = atomicAdd(&found, 1);
    if (spot < THREADS) items[spot] = item(at, v);
  });
  __syncthreads();
  const int count = found;
  if (count <= THREADS) {
    int size = 1;
    while (size < count) size <<= 1;
    if (lane >= count && lane < size) items[lane] = 0;
    sort(items, size);
    const Wide it = lane < count ? items[lane] : 0;
    double w = lane < count && !(cut && lane >= top_k) ? weight(value_of(it >> 32)) : 0;
    place(w, shared, start, end);
    if (lane == THREADS - 1) last_end = end;
    __syncthreads();
    const double all = last_end;
    const double goal = top_p * (cut ? all : whole);
    if (cut || all >= goal) {
      // Kept: who has less than the goal before it, and the best in any case.
      if (top_p < 1 && lane > 0 && start >= goal) w = 0;
      place(w, shared, start, end);
      if (lane == THREADS - 1) last_end = end;
      __syncthreads();
      if (pick(start, end, last_end)) tokens[row] = token_of(it);
      return;
    }
  }
}

// many: `edge` is the last value that is kept, of which `ties` are. It is found from the top
// bits of its order down; half precision leaves the low ones alike.
const int low = BIASED || slot >= 0 ? 0 : LOW_BITS;
auto number = [&](unsigned key) -> float {
  unsigned order = key << low;
  return value_of(order >> 31 ? order : order | ((1u << low) - 1));
};
float edge = -INFINITY;
double ties = VOCAB;
if (cut) {
  unsigned key = 0;
  for (int shift = 30 - low; shift >= 0; shift -= 2) {
    const float from1 = number(key | 1u << shift), from2 = number(key | 2u << shift),
                from3 = number(key | 3u << shift);
    int one = 0, two = 0, three = 0;
    each([&](int, float v) {
      one += v >= from1;
      two += v >= from2;
      three += v >= from3;
    });
    double c1 = total_of(one, shared), c2 = total_of(two, shared), c3 = total_of(three, shared);
    key |= (c3 >= top_k ? 3u : c2 >= top_k ? 2u : c1 >= top_k ? 1u : 0u) << shift;
  }
  edge = number(key);
  int above = 0;
  each([&](int, float v) { above += v > edge; });
  ties = top_k - total_of(above, shared);
}
if (top_p < 1) {
  float sum = 0;
  each([&](int, float v) {
    if (!cut || v > edge) sum += weight(v);
  });
  const double same = cut ? weight(edge) * ties : 0;
  const double goal = top_p * (total_of(sum, shared) + same);
  // What lies above the part that is searched is summed up once: `over` begins it. If what is above
  // the edge of top_k does not reach the goal, that edge is the last one kept.
  unsigned key = 0;
  float over = INFINITY;
  double above = 0;
  for (int shift = 30 - low; shift >= 0; shift -= 2) {
    const float from1 = number(key | 1u << shift), from2 = number(key | 2u << shift),
                from3 = number(key | 3u << shift);
    float one = 0, two = 0, three = 0;
    each([&](int, float v) {
      if (!(v >= from1) || v >= over || (cut && v <= edge)) return;
      float w = weight(v);
      one += w;
      if (v >= from2) two += w;
      if (v >= from3) three += w;
    });
    double s1 = above + total_of(one, shared), s2 = above + total_of(two, shared),
           s3 = above + total_of(three, shared);
    const unsigned digit = s3 >= goal ? 3u : s2 >= goal ? 2u : s1 >= goal ? 1u : 0u;
    if (digit < 3) {
      above = digit == 2 ? s3 : digit == 1 ? s2 : s1;
      over = digit == 2 ? from3 : digit == 1 ? from2 : from1;
    }
    key |= digit << shift;
  }
  const float last = goal > 0 ? number(key) : largest;
  if (!cut || last > edge) {
    edge = last;
    ties = VOCAB;
  }
}
double skip = 0;
if (ties < VOCAB) {
  int same = 0;
  each([&](int, float v) { same += v == edge; });
  place(same, shared, skip, end);
}
// Up to where the sum passes goal; the last token on that way.
auto walk = [&](double from, double goal, unsigned& token) -> double {
  double sum = 0, seen = skip;
  each([&](int at, float v) {
    if (v < edge || (v == edge && seen++ >= ties) || from + sum > goal) return;
    float w = weight(v);
    sum += w;
    if (w > 0) token = at;
  });
  return sum;
};
unsigned token = token_of(best);
const double sum = walk(0, INFINITY, token);
place(sum, shared, start, end);
if (lane == THREADS - 1) last_end = end;
__syncthreads();
const double whole = last_end;
if (pick(start, end, whole)) {
  walk(start, u * whole, token);
  tokens[row] = token;
}
