// SPDX-License-Identifier: Apache-2.0
// Managed memory: host and device take turns with the same pointer, and a __managed__ variable. Run
// by run_e2e.py. usage: managed [WORDS]
#include "e2e.h"

constexpr unsigned kEntries = 3000;  // more than a page

__managed__ int shared_counter = 17;
__managed__ unsigned table[kEntries] = {5, 7};

// Accesses the table by its name and by its address.
__global__ void shift_table(unsigned* entries, unsigned by) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kEntries) entries[i] = table[i] + by;
}

// Host and device take turns with the variables.
void variables() {
  e2e::expect(table[0] == 5 && table[1] == 7 && table[2] == 0, "the initial value");
  shift_table<<<e2e::blocks_for(kEntries, 128), 128>>>(table, 3);
  CHECK_CUDA(cudaDeviceSynchronize());
  unsigned wrong = 0;
  for (unsigned i = 2; i < kEntries; i++) wrong += table[i] != 3;
  e2e::expect(wrong == 0 && table[0] == 8 && table[1] == 10, "after a kernel: %u wrong", wrong);
  table[kEntries - 1] = 100;
  table[7] = 200;
  shift_table<<<e2e::blocks_for(kEntries, 128), 128>>>(table, 1);
  unsigned copied[8];
  CHECK_CUDA(cudaMemcpy(copied, table, sizeof copied, cudaMemcpyDefault));  // waits for the kernel
  e2e::expect(copied[7] == 201 && table[kEntries - 1] == 101 && table[8] == 4,
              "after the host has written: %u %u %u", copied[7], table[kEntries - 1], table[8]);
  // Writes to all of the table except for a byte of each entry, and then to some of it.
  for (unsigned i = 0; i < kEntries; i++) table[i] = 0x10000u + i;
  shift_table<<<e2e::blocks_for(kEntries, 128), 128>>>(table, 0x100);
  CHECK_CUDA(cudaDeviceSynchronize());
  for (unsigned i = 0; i < kEntries; i += 100) table[i] += 0x7000000;
  shift_table<<<e2e::blocks_for(kEntries, 128), 128>>>(table, 1);
  CHECK_CUDA(cudaDeviceSynchronize());
  for (unsigned i = 0; i < kEntries; i++) {
    const unsigned wanted = 0x10101u + i + (i % 100 == 0 ? 0x7000000 : 0);
    if (table[i] != wanted) e2e::expect(false, "entry %u is %#x, not %#x", i, table[i], wanted);
  }
  cudaPointerAttributes attributes;
  CHECK_CUDA(cudaPointerGetAttributes(&attributes, table));
  e2e::expect(attributes.type == cudaMemoryTypeManaged, "its pointer is one to managed memory");
  cudaEvent_t event;
  CHECK_CUDA(cudaEventCreate(&event));
  table[0] = 0;
  shift_table<<<1, 128>>>(table, 1);
  CHECK_CUDA(cudaEventRecord(event));
  while (cudaEventQuery(event) == cudaErrorNotReady) {
  }
  e2e::expect(table[0] == 1, "after a query: %u", table[0]);
  CHECK_CUDA(cudaEventDestroy(event));
}

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
  variables();
  return e2e::finish();
}
