// SPDX-License-Identifier: Apache-2.0
// Copies of every kind and many sizes: pageable, pinned and registered memory, device to device, at
// unaligned offsets, asynchronous, pitched, 2D and 3D. Bytes around each destination must not
// change. Run by run_e2e.py. usage: copies [LARGEST_BYTES]
#include <sys/mman.h>

#include <algorithm>
#include <vector>

#include "e2e.h"

using Bytes = std::vector<unsigned char>;

// Guard bytes before and after every destination. An odd number, so that destinations are
// unaligned.
constexpr size_t kGuard = 37;
constexpr unsigned char kFiller = 0xa5;

static void fill(unsigned char* data, size_t n, uint64_t seed) {
  e2e::Random random(seed);
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const uint64_t word = random.next();
    memcpy(data + i, &word, 8);
  }
  for (; i < n; i++) data[i] = static_cast<unsigned char>(random.next());
}

static bool intact(const unsigned char* got, const unsigned char* wanted, size_t n) {
  for (size_t i = 0; i < kGuard; i++) {
    if (got[i] != kFiller || got[kGuard + n + i] != kFiller) return false;
  }
  return memcmp(got + kGuard, wanted, n) == 0;
}

enum class Kind { kPageable, kPinned, kRegistered };
static const char* const kNames[] = {"pageable", "pinned", "registered"};

struct HostBuffer {
  Kind kind;
  unsigned char* data = nullptr;
  size_t mapped = 0;
  HostBuffer(Kind kind_in, size_t bytes) : kind(kind_in) {
    if (kind == Kind::kPinned) {
      CHECK_CUDA(cudaMallocHost(&data, bytes));
      return;
    }
    mapped = (bytes + 4095) / 4096 * 4096;
    void* memory =
        mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) exit(2);
    data = static_cast<unsigned char*>(memory);
    if (kind == Kind::kRegistered) {
      CHECK_CUDA(cudaHostRegister(data, mapped, cudaHostRegisterDefault));
    }
  }
  ~HostBuffer() {
    if (kind == Kind::kPinned) CHECK_CUDA(cudaFreeHost(data));
    if (kind == Kind::kRegistered) CHECK_CUDA(cudaHostUnregister(data));
    if (mapped) munmap(data, mapped);
  }
};

// host -> device -> device (unaligned) -> host, then the same asynchronously in a stream.
static bool round_trip(Kind kind, size_t n, size_t device_offset) {
  const size_t room = n + 2 * kGuard;
  HostBuffer source(kind, room), result(kind, room);
  fill(source.data, n, n + static_cast<size_t>(kind));
  unsigned char *first, *second;
  CHECK_CUDA(cudaMalloc(&first, room + device_offset));
  CHECK_CUDA(cudaMalloc(&second, room + device_offset));
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  bool good = true;
  for (bool async : {false, true}) {
    unsigned char *a = first + device_offset, *b = second + device_offset / 2;
    memset(result.data, 0, room);
    if (!async) {
      CHECK_CUDA(cudaMemset(b, kFiller, room));
      CHECK_CUDA(cudaMemcpy(a, source.data, n, cudaMemcpyHostToDevice));
      CHECK_CUDA(cudaMemcpy(b + kGuard, a, n, cudaMemcpyDeviceToDevice));
      CHECK_CUDA(cudaMemcpy(result.data, b, room, cudaMemcpyDeviceToHost));
    } else {
      CHECK_CUDA(cudaMemsetAsync(b, kFiller, room, stream));
      CHECK_CUDA(cudaMemcpyAsync(a, source.data, n, cudaMemcpyDefault, stream));
      CHECK_CUDA(cudaMemcpyAsync(b + kGuard, a, n, cudaMemcpyDefault, stream));
      CHECK_CUDA(cudaMemcpyAsync(result.data, b, room, cudaMemcpyDefault, stream));
      CHECK_CUDA(cudaStreamSynchronize(stream));
    }
    good = good && intact(result.data, source.data, n);
  }
  CHECK_CUDA(cudaStreamDestroy(stream));
  CHECK_CUDA(cudaFree(first));
  CHECK_CUDA(cudaFree(second));
  return good;
}

static void pitched_copies() {
  for (size_t width : {size_t(1), size_t(63), size_t(512), size_t(1000)}) {
    const size_t height = 29, host_pitch = width + 13;
    Bytes source(host_pitch * height), result(source.size(), kFiller), wanted = result;
    fill(source.data(), source.size(), width);
    for (size_t y = 0; y < height; y++) {
      std::copy_n(&source[y * host_pitch], width, &wanted[y * host_pitch]);
    }
    unsigned char *a, *b;
    size_t pitch;
    CHECK_CUDA(cudaMallocPitch(&a, &pitch, width, height));
    CHECK_CUDA(cudaMalloc(&b, width * height));
    CHECK_CUDA(
        cudaMemcpy2D(a, pitch, source.data(), host_pitch, width, height, cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpy2D(b, width, a, pitch, width, height, cudaMemcpyDeviceToDevice));
    CHECK_CUDA(cudaMemcpy2DAsync(result.data(), host_pitch, b, width, width, height,
                                 cudaMemcpyDeviceToHost, 0));
    CHECK_CUDA(cudaStreamSynchronize(0));
    e2e::expect(pitch >= width && result == wanted, "2D copy of %zu x %zu", width, height);
    CHECK_CUDA(cudaFree(a));
    CHECK_CUDA(cudaFree(b));
  }
  unsigned char* a;
  size_t pitch;
  CHECK_CUDA(cudaMallocPitch(&a, &pitch, 100, 10));
  Bytes host(2000);
  e2e::expect_error("2D copy wider than its pitch",
                    cudaMemcpy2D(a, pitch, host.data(), 50, 60, 10, cudaMemcpyHostToDevice),
                    cudaErrorInvalidPitchValue);
  cudaGetLastError();
  CHECK_CUDA(cudaFree(a));
}

static void volume_copies() {
  const size_t width = 45, height = 17, depth = 9;
  Bytes source(width * height * depth), result(source.size(), kFiller), wanted = result;
  fill(source.data(), source.size(), 99);
  cudaPitchedPtr volume;
  CHECK_CUDA(cudaMalloc3D(&volume, make_cudaExtent(width, height, depth)));
  cudaMemcpy3DParms in = {};
  in.srcPtr = make_cudaPitchedPtr(source.data(), width, width, height);
  in.dstPtr = volume;
  in.extent = make_cudaExtent(width, height, depth);
  in.kind = cudaMemcpyHostToDevice;
  CHECK_CUDA(cudaMemcpy3D(&in));
  // A box in the middle of the source, copied to another place in the result.
  const size_t from[3] = {5, 3, 2}, to[3] = {11, 1, 4}, box[3] = {30, 12, 5};
  for (size_t z = 0; z < box[2]; z++) {
    for (size_t y = 0; y < box[1]; y++) {
      std::copy_n(&source[((from[2] + z) * height + from[1] + y) * width + from[0]], box[0],
                  &wanted[((to[2] + z) * height + to[1] + y) * width + to[0]]);
    }
  }
  cudaMemcpy3DParms out = {};
  out.srcPtr = volume;
  out.srcPos = make_cudaPos(from[0], from[1], from[2]);
  out.dstPtr = make_cudaPitchedPtr(result.data(), width, width, height);
  out.dstPos = make_cudaPos(to[0], to[1], to[2]);
  out.extent = make_cudaExtent(box[0], box[1], box[2]);
  out.kind = cudaMemcpyDeviceToHost;
  CHECK_CUDA(cudaMemcpy3DAsync(&out, 0));
  CHECK_CUDA(cudaDeviceSynchronize());
  e2e::expect(result == wanted, "3D copy of a box");
  CHECK_CUDA(cudaFree(volume.ptr));
}

__global__ void increment(unsigned* words, size_t n) {
  const size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
  if (i < n) words[i] += 1;
}

// Kernels reach pinned memory without a copy.
static void mapped_memory() {
  constexpr size_t kWords = 3000;
  unsigned *host, *seen_by_device;
  CHECK_CUDA(cudaHostAlloc(&host, kWords * sizeof(unsigned), cudaHostAllocMapped));
  for (size_t i = 0; i < kWords; i++) host[i] = static_cast<unsigned>(i * i);
  CHECK_CUDA(cudaHostGetDevicePointer(&seen_by_device, host, 0));
  increment<<<e2e::blocks_for(kWords, 128), 128>>>(seen_by_device, kWords);
  CHECK_CUDA(cudaDeviceSynchronize());
  size_t wrong = 0;
  for (size_t i = 0; i < kWords; i++) wrong += host[i] != i * i + 1;
  e2e::expect(wrong == 0, "kernel in pinned memory: %zu wrong", wrong);
  cudaPointerAttributes attributes;
  CHECK_CUDA(cudaPointerGetAttributes(&attributes, host));
  e2e::expect(attributes.type == cudaMemoryTypeHost && attributes.hostPointer == host,
              "pinned pointer attributes");
  int on_stack;
  CHECK_CUDA(cudaPointerGetAttributes(&attributes, &on_stack));
  e2e::expect(attributes.type == cudaMemoryTypeUnregistered, "pageable pointer attributes");
  CHECK_CUDA(cudaFreeHost(host));
  unsigned char* device;
  CHECK_CUDA(cudaMalloc(&device, 100));
  CHECK_CUDA(cudaPointerGetAttributes(&attributes, device + 50));
  e2e::expect(attributes.type == cudaMemoryTypeDevice && attributes.devicePointer == device + 50,
              "device pointer attributes");
  CHECK_CUDA(cudaFree(device));
}

int main(int argc, char** argv) {
  const size_t largest = e2e::argument(argc, argv, 1, 16 << 20);
  const size_t sizes[] = {1,
                          2,
                          3,
                          4,
                          7,
                          16,
                          63,
                          4095,
                          4096,
                          4097,
                          65535,
                          65536,
                          65537,
                          (1 << 20) - 1,
                          (1 << 20) + 17,
                          3 << 20,
                          16 << 20,
                          64 << 20,
                          256 << 20};
  for (Kind kind : {Kind::kPageable, Kind::kPinned, Kind::kRegistered}) {
    for (size_t n : sizes) {
      if (n > largest) continue;
      e2e::expect(round_trip(kind, n, n % 2 ? 13 : 0), "%s, %zu bytes",
                  kNames[static_cast<int>(kind)], n);
    }
  }
  pitched_copies();
  volume_copies();
  mapped_memory();
  CHECK_CUDA(cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyHostToDevice));
  return e2e::finish();
}
