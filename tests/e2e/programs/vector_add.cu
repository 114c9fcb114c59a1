// SPDX-License-Identifier: Apache-2.0
// Vector addition in three element types, with a length that is not a multiple of the block size.
// Run by run_e2e.py. usage: vector_add [ELEMENTS]
#include <vector>

#include "e2e.h"

// Frees its memory after main(), as a global thrust::device_vector does. The result of the call
// depends on the order of destruction; the program must exit with 0.
struct Global {
  ~Global() { cudaFree(memory); }
  void* memory = nullptr;
};
static Global global;

template <typename T>
__global__ void add(const T* a, const T* b, T* sum, size_t n) {
  const size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
  if (i < n) sum[i] = a[i] + b[i];
}

template <typename T>
static void run(const char* type, size_t n) {
  std::vector<T> a(n), b(n), sum(n);
  e2e::Random random(n);
  for (size_t i = 0; i < n; i++) {
    a[i] = static_cast<T>(random.below(1u << 30)) / static_cast<T>(7);
    b[i] = static_cast<T>(random.below(1u << 30)) / static_cast<T>(11);
  }
  T *da, *db, *dsum;
  const size_t bytes = n * sizeof(T);
  CHECK_CUDA(cudaMalloc(&da, bytes));
  CHECK_CUDA(cudaMalloc(&db, bytes));
  CHECK_CUDA(cudaMalloc(&dsum, bytes));
  CHECK_CUDA(cudaMemcpy(da, a.data(), bytes, cudaMemcpyHostToDevice));
  CHECK_CUDA(cudaMemcpy(db, b.data(), bytes, cudaMemcpyHostToDevice));
  add<<<e2e::blocks_for(n, 256), 256>>>(da, db, dsum, n);
  CHECK_CUDA(cudaGetLastError());
  CHECK_CUDA(cudaMemcpy(sum.data(), dsum, bytes, cudaMemcpyDeviceToHost));
  size_t wrong = 0;
  for (size_t i = 0; i < n; i++) wrong += sum[i] != a[i] + b[i];
  e2e::expect(wrong == 0, "%s: %zu of %zu sums wrong, hash %016llx", type, wrong, n,
              static_cast<unsigned long long>(e2e::hash(sum.data(), bytes)));
  CHECK_CUDA(cudaFree(da));
  CHECK_CUDA(cudaFree(db));
  CHECK_CUDA(cudaFree(dsum));
}

int main(int argc, char** argv) {
  const size_t n = e2e::argument(argc, argv, 1, 500003);
  CHECK_CUDA(cudaMalloc(&global.memory, n));
  run<float>("float", n);
  run<double>("double", n);
  run<int>("int", n);
  return e2e::finish();
}
