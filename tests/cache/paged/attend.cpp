// Runs both bodies of attention.kernel on a CPU.

#include "host.h"

HEADER

extern "C" void partition(int blocks, const int* queries_shape, const int* table_shape,
                          const ELEMENT* queries,
                          const ELEMENT* fresh_keys, const ELEMENT* fresh_values,
                          const ELEMENT* keys, const ELEMENT* values, const int32_t* table,
                          const int32_t* lengths, const void* after,
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

extern "C" void merge(int blocks, const int* accumulated_shape, const int* table_shape,
                      const float* accumulated, const float* measures, const int32_t* table, const int32_t* lengths,
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
