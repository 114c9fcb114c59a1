// SPDX-License-Identifier: Apache-2.0
// Memory sets with odd sizes and offsets, asynchronous, 2D and 3D ones; the bytes around them must
// not change; and kernels ordered behind a memory set. Run by run_e2e.py. usage: memset_all
// [LARGEST_BYTES]
#include <vector>

#include "e2e.h"

static bool holds(const unsigned char* device, size_t before, size_t n, size_t room, int value) {
  std::vector<unsigned char> got(room);
  CHECK_CUDA(cudaMemcpy(got.data(), device, room, cudaMemcpyDeviceToHost));
  for (size_t i = 0; i < room; i++) {
    const bool inside = i >= before && i < before + n;
    if (got[i] != (inside ? value & 255 : 0x11)) return false;
  }
  return true;
}

__global__ void add_one(unsigned char* data, size_t n) {
  const size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
  if (i < n) data[i] += 1;
}

int main(int argc, char** argv) {
  const size_t largest = e2e::argument(argc, argv, 1, 4 << 20);
  const size_t room = largest + 100;
  unsigned char* device;
  CHECK_CUDA(cudaMalloc(&device, room));
  for (size_t n :
       {size_t(0), size_t(1), size_t(5), size_t(255), size_t(4096), size_t(70001), largest}) {
    for (size_t offset : {size_t(0), size_t(3), size_t(64)}) {
      if (n > largest) continue;
      CHECK_CUDA(cudaMemset(device, 0x11, room));
      CHECK_CUDA(cudaMemset(device + offset, 0x1c7, n));
      e2e::expect(holds(device, offset, n, room, 0xc7), "memset of %zu bytes at %zu", n, offset);
    }
  }

  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  CHECK_CUDA(cudaMemsetAsync(device, 0x11, room, stream));
  CHECK_CUDA(cudaMemsetAsync(device + 9, 40, 5000, stream));
  add_one<<<20, 256, 0, stream>>>(device + 9, 5000);
  add_one<<<20, 256, 0, stream>>>(device + 9, 5000);
  CHECK_CUDA(cudaStreamSynchronize(stream));
  e2e::expect(holds(device, 9, 5000, room, 42), "asynchronous memset, then two kernels");
  CHECK_CUDA(cudaStreamDestroy(stream));
  CHECK_CUDA(cudaFree(device));

  unsigned char* plane;
  size_t pitch;
  const size_t width = 77, height = 13;
  CHECK_CUDA(cudaMallocPitch(&plane, &pitch, width, height));
  CHECK_CUDA(cudaMemset(plane, 0x11, pitch * height));
  CHECK_CUDA(cudaMemset2D(plane + pitch, pitch, 200, 50, height - 2));
  std::vector<unsigned char> got(pitch * height);
  CHECK_CUDA(cudaMemcpy(got.data(), plane, got.size(), cudaMemcpyDeviceToHost));
  size_t wrong = 0;
  for (size_t y = 0; y < height; y++) {
    for (size_t x = 0; x < pitch; x++) {
      wrong += got[y * pitch + x] != (y >= 1 && y < height - 1 && x < 50 ? 200 : 0x11);
    }
  }
  e2e::expect(wrong == 0, "2D memset: %zu wrong", wrong);
  CHECK_CUDA(cudaFree(plane));

  cudaPitchedPtr volume;
  const cudaExtent extent = make_cudaExtent(30, 8, 5);
  CHECK_CUDA(cudaMalloc3D(&volume, extent));
  CHECK_CUDA(cudaMemset3D(volume, 3, extent));
  CHECK_CUDA(cudaMemset3D(volume, 9, make_cudaExtent(10, 4, 2)));
  std::vector<unsigned char> cube(volume.pitch * 8 * 5);
  CHECK_CUDA(cudaMemcpy(cube.data(), volume.ptr, cube.size(), cudaMemcpyDeviceToHost));
  wrong = 0;
  for (size_t z = 0; z < 5; z++) {
    for (size_t y = 0; y < 8; y++) {
      for (size_t x = 0; x < 30; x++) {
        wrong += cube[(z * 8 + y) * volume.pitch + x] != (z < 2 && y < 4 && x < 10 ? 9 : 3);
      }
    }
  }
  e2e::expect(wrong == 0, "3D memset: %zu wrong", wrong);
  CHECK_CUDA(cudaFree(volume.ptr));
  return e2e::finish();
}
