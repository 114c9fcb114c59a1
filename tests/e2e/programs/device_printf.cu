// SPDX-License-Identifier: Apache-2.0
// printf from a kernel, in order within one thread, shown at synchronisation. Run by run_e2e.py.
// usage: device_printf
#include "e2e.h"

__global__ void speak(int number, double real, const char* nothing) {
  printf("integer %d, unsigned %u, hexadecimal %08x, 64 bit %lld\n", -number, number, number,
         1ll << 40);
  printf("real %.3f and %g, character %c, string %s, percent %%\n", real, real * 1000, 'q', "text");
  printf("no arguments\n");
}

int main() {
  speak<<<1, 1>>>(42, 3.25, nullptr);
  CHECK_CUDA(cudaGetLastError());
  CHECK_CUDA(cudaDeviceSynchronize());
  fflush(stdout);
  return e2e::finish();
}
