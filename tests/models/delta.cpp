// Runs the body of gated_delta.kernel on a CPU.

#include "host.h"

HEADER

extern "C" void delta(int blocks, const int32_t* q_shape, const ELEMENT* q, const ELEMENT* k,
                      const ELEMENT* v, const float* g, const BETA* beta, const float* state,
#if MASKED
                      const bool* allowed,
#endif
                      ELEMENT* y, float* after) {
  for (int at = 0; at < blocks; ++at) {
    block::run(at, THREADS, [&] {
      BODY
    });
  }
}
