// SPDX-License-Identifier: Apache-2.0
// Holds memory of every kind and keeps a long queue of kernels in flight until it is killed; the
// service must release all of it. Prints "ready" once the queue is full. Run by
// run_e2e.py. usage: drv_kill_victim
#include <unistd.h>

#include "driver.h"

int main() {
  e2e::Session session;
  const CUfunction spin = session.function("spin");
  e2e::Buffer<unsigned char> large(32 << 20);
  e2e::Buffer<uint32_t> result(4);
  void* pinned = nullptr;
  CHECK_CU(cuMemHostAlloc(&pinned, 8 << 20, 0));
  CUstream streams[4];
  CUevent events[4];
  for (int i = 0; i < 4; i++) {
    CHECK_CU(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    CHECK_CU(cuEventCreate(&events[i], 0));
  }
  for (bool first = true;; first = false) {
    for (int i = 0; i < 4; i++) {
      for (int k = 0; k < 16; k++) {
        e2e::launch(spin, 2, 64, 0, streams[i], result.address + static_cast<unsigned>(i) * 4,
                    20000u);
      }
      CHECK_CU(cuMemcpyHtoDAsync_v2(large.address, pinned, 8 << 20, streams[i]));
      CHECK_CU(cuEventRecord(events[i], streams[i]));
    }
    if (first) {
      printf("ready\n");
      fflush(stdout);
    }
    for (CUevent event : events) CHECK_CU(cuEventSynchronize(event));
  }
}
