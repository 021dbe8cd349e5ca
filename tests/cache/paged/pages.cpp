// Runs both bodies of pages.kernel on a CPU.

#include "host.h"

HEADER

extern "C" void put(int blocks, const ELEMENT* keys, const ELEMENT* values, const int32_t* table,
                    const int32_t* span, const void* after, const ELEMENT* fresh_keys,
                    const ELEMENT* fresh_values, ELEMENT* written) {
  for (int at = 0; at < blocks; ++at) {
    block::run(at, THREADS, [&] {
      PUT_BODY
    });
  }
}

extern "C" void gather(int blocks, const ELEMENT* keys, const ELEMENT* values, const int32_t* table,
                       const int32_t* span, const void* after, ELEMENT* gathered_keys,
                       ELEMENT* gathered_values) {
  for (int at = 0; at < blocks; ++at) {
    block::run(at, THREADS, [&] {
      GATHER_BODY
    });
  }
}
