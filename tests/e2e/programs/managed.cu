// SPDX-License-Identifier: Apache-2.0
// Managed memory: host and device take turns with the same pointer, and a __managed__ variable. Run
// by run_e2e.py. usage: managed [WORDS]
#include "e2e.h"

__managed__ int shared_counter = 17;

__global__ void square(unsigned* data, size_t n) {
  const size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
  if (i < n) data[i] *= data[i];
  if (i == 0) shared_counter += 3;
}

int main(int argc, char** argv) {
  const size_t n = e2e::argument(argc, argv, 1, 50000);
  unsigned* data;
  CHECK_CUDA(cudaMallocManaged(&data, n * sizeof(unsigned)));
  for (size_t i = 0; i < n; i++) data[i] = static_cast<unsigned>(i);
  for (int round = 0; round < 2; round++) {
    square<<<e2e::blocks_for(n, 256), 256>>>(data, n);
    CHECK_CUDA(cudaDeviceSynchronize());
    data[1] += 1;  // the host writes between two kernels
  }
  size_t wrong = 0;
  for (unsigned i = 2; i < n; i++) wrong += data[i] != i * i * i * i;
  e2e::expect(wrong == 0 && data[1] == 5, "managed memory: %zu wrong", wrong);
  e2e::expect(shared_counter == 23, "managed variable %d", shared_counter);
  CHECK_CUDA(cudaFree(data));
  return e2e::finish();
}
