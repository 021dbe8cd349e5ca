// Runs the body of choose.cu on a CPU: see block.h.

#include "block.h"

FUNCTIONS

extern "C" void choose(int rows, const LOGIT* logits, const float* settings, const uint32_t* places,
                       const int32_t* slots, const uint32_t* words, const uint32_t* inputs,
                       const uint16_t* marks, const float* bias, uint32_t* tokens, uint32_t* moved,
                       uint16_t* marked) {
  for (int row = 0; row < rows; ++row) {
    block::run(row, THREADS, [&] {
      BODY
    });
  }
}
