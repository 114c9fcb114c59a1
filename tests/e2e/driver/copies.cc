// SPDX-License-Identifier: Apache-2.0
// Copies through the driver API: pageable, pinned, registered, device to device, unaligned, 2D, 3D
// and asynchronous, and memory sets of 8, 16 and 32 bits. Run by run_e2e.py. usage: drv_copies
// [LARGEST_BYTES]
#include <algorithm>
#include <thread>

#include "driver.h"

namespace {

using Bytes = std::vector<unsigned char>;

Bytes noise(size_t n, uint64_t seed) {
  Bytes data(n);
  e2e::Random random(seed);
  for (size_t i = 0; i < n; i += 8) {
    const uint64_t word = random.next();
    memcpy(&data[i], &word, std::min<size_t>(8, n - i));
  }
  return data;
}

bool linear(size_t n, bool pinned) {
  const Bytes source = noise(n, n);
  void *in = nullptr, *out = nullptr;
  Bytes pageable_in, pageable_out;
  if (pinned) {
    CHECK_CU(cuMemAllocHost_v2(&in, n));
    CHECK_CU(cuMemHostAlloc(&out, n, CU_MEMHOSTALLOC_PORTABLE));
  } else {
    pageable_in.resize(n);
    pageable_out.resize(n);
    in = pageable_in.data();
    out = pageable_out.data();
  }
  memcpy(in, source.data(), n);
  memset(out, 0, n);
  e2e::Buffer<unsigned char> a(n + 16), b(n + 16);
  CUstream stream;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  CHECK_CU(cuMemcpyHtoD_v2(a.address + 3, in, n));
  CHECK_CU(cuMemcpyDtoD_v2(b.address + 5, a.address + 3, n));
  CHECK_CU(cuMemcpyDtoH_v2(out, b.address + 5, n));
  bool good = memcmp(out, source.data(), n) == 0;
  memset(out, 0, n);
  CHECK_CU(cuMemsetD8Async(a.address, 0, n, stream));
  CHECK_CU(cuMemcpyHtoDAsync_v2(a.address, in, n, stream));
  CHECK_CU(cuMemcpyDtoDAsync_v2(b.address + 1, a.address, n, stream));
  CHECK_CU(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(out), b.address + 1, n, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  good = good && memcmp(out, source.data(), n) == 0;
  CHECK_CU(cuStreamDestroy_v2(stream));
  if (pinned) {
    CHECK_CU(cuMemFreeHost(in));
    CHECK_CU(cuMemFreeHost(out));
  }
  return good;
}

void rectangles() {
  const size_t width = 123, height = 17, host_pitch = 200;
  const Bytes source = noise(host_pitch * height, 2);
  Bytes result(source.size(), 7), wanted = result;
  CUdeviceptr plane = 0;
  size_t pitch = 0;
  CHECK_CU(cuMemAllocPitch_v2(&plane, &pitch, width, height, 4));
  CUDA_MEMCPY2D in = {};
  in.srcMemoryType = CU_MEMORYTYPE_HOST;
  in.srcHost = source.data();
  in.srcPitch = host_pitch;
  in.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  in.dstDevice = plane;
  in.dstPitch = pitch;
  in.WidthInBytes = width;
  in.Height = height;
  CHECK_CU(cuMemcpy2D_v2(&in));
  CUDA_MEMCPY2D out = {};
  out.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  out.srcDevice = plane;
  out.srcPitch = pitch;
  out.srcXInBytes = 20;
  out.srcY = 3;
  out.dstMemoryType = CU_MEMORYTYPE_HOST;
  out.dstHost = result.data();
  out.dstPitch = host_pitch;
  out.dstXInBytes = 51;
  out.dstY = 1;
  out.WidthInBytes = 77;
  out.Height = 11;
  CHECK_CU(cuMemcpy2DAsync_v2(&out, nullptr));
  CHECK_CU(cuStreamSynchronize(nullptr));
  for (size_t y = 0; y < 11; y++) {
    std::copy_n(&source[(y + 3) * host_pitch + 20], 77, &wanted[(y + 1) * host_pitch + 51]);
  }
  e2e::expect(pitch >= width && result == wanted, "2D copy of a rectangle");
  CHECK_CU(cuMemFree_v2(plane));
}

void boxes() {
  const size_t width = 40, height = 10, depth = 6;
  const Bytes source = noise(width * height * depth, 3);
  Bytes result(source.size(), 9), wanted = result;
  e2e::Buffer<unsigned char> volume(source.size());
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = source.data();
  copy.srcPitch = width;
  copy.srcHeight = height;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = volume.address;
  copy.dstPitch = width;
  copy.dstHeight = height;
  copy.WidthInBytes = width;
  copy.Height = height;
  copy.Depth = depth;
  CHECK_CU(cuMemcpy3D_v2(&copy));
  CUDA_MEMCPY3D back = {};
  back.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  back.srcDevice = volume.address;
  back.srcPitch = width;
  back.srcHeight = height;
  back.srcXInBytes = 4;
  back.srcY = 2;
  back.srcZ = 1;
  back.dstMemoryType = CU_MEMORYTYPE_HOST;
  back.dstHost = result.data();
  back.dstPitch = width;
  back.dstHeight = height;
  back.dstZ = 2;
  back.WidthInBytes = 30;
  back.Height = 7;
  back.Depth = 4;
  CHECK_CU(cuMemcpy3DAsync_v2(&back, nullptr));
  CHECK_CU(cuCtxSynchronize());
  for (size_t z = 0; z < 4; z++) {
    for (size_t y = 0; y < 7; y++) {
      std::copy_n(&source[((z + 1) * height + y + 2) * width + 4], 30,
                  &wanted[((z + 2) * height + y) * width]);
    }
  }
  e2e::expect(result == wanted, "3D copy of a box");
}

void sets() {
  e2e::Buffer<unsigned char> room(Bytes(1000, 1));
  CHECK_CU(cuMemsetD8_v2(room.address + 7, 2, 50));
  CHECK_CU(cuMemsetD16_v2(room.address + 100, 0x0304, 33));
  CHECK_CU(cuMemsetD32_v2(room.address + 200, 0x05060708, 20));
  CHECK_CU(cuMemsetD2D8_v2(room.address + 400, 50, 9, 10, 4));
  Bytes wanted(1000, 1);
  std::fill_n(&wanted[7], 50, 2);
  for (size_t i = 0; i < 66; i++) wanted[100 + i] = i % 2 ? 3 : 4;
  for (size_t i = 0; i < 80; i++) wanted[200 + i] = static_cast<unsigned char>(8 - i % 4);
  for (size_t y = 0; y < 4; y++) std::fill_n(&wanted[400 + y * 50], 10, 9);
  e2e::expect(room.get() == wanted, "memory sets of every width");
  e2e::expect_result("misaligned 32-bit set", cuMemsetD32_v2(room.address + 2, 1, 1),
                     CUDA_ERROR_INVALID_VALUE);
}

void registered(CUfunction mix) {
  constexpr uint32_t kWords = 2048;
  constexpr size_t kPage = 4096;
  void* memory = nullptr;
  if (posix_memalign(&memory, kPage, kWords * 4) != 0) exit(2);
  auto* words = static_cast<uint32_t*>(memory);
  std::vector<uint32_t> expected(kWords);
  for (uint32_t i = 0; i < kWords; i++) expected[i] = words[i] = i * 3;
  CHECK_CU(cuMemHostRegister_v2(words, kWords * 4, CU_MEMHOSTREGISTER_DEVICEMAP));
  e2e::expect_result("second registration", cuMemHostRegister_v2(words, kWords * 4, 0),
                     CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  CUdeviceptr address = 0;
  CHECK_CU(cuMemHostGetDevicePointer_v2(&address, words, 0));
  e2e::launch(mix, 16, 128, 0, nullptr, address, kWords, 1u);
  CHECK_CU(cuCtxSynchronize());
  e2e::mix_on_host(expected, 1);
  e2e::expect(memcmp(words, expected.data(), kWords * 4) == 0, "kernel in registered memory");
  CHECK_CU(cuMemHostUnregister(words));
  e2e::expect_result("second unregistration", cuMemHostUnregister(words),
                     CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  free(memory);
}

void addresses() {
  e2e::Buffer<unsigned char> room(5000);
  CUdeviceptr base = 0;
  size_t size = 0;
  CHECK_CU(cuMemGetAddressRange_v2(&base, &size, room.address + 4999));
  e2e::expect(base == room.address && size == 5000, "address range of an allocation: %zu", size);
  unsigned type = 0;
  CHECK_CU(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, room.address));
  e2e::expect(type == CU_MEMORYTYPE_DEVICE, "memory type");
  std::thread([&room] {  // has no current context
    unsigned type = 0;
    CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    void* place = &type;
    CHECK_CU(cuPointerGetAttributes(1, &attribute, &place, room.address));
    e2e::expect(type == CU_MEMORYTYPE_DEVICE, "memory type on a thread without context");
  })
      .join();
  size_t free_bytes = 0, total = 0;
  CHECK_CU(cuMemGetInfo_v2(&free_bytes, &total));
  e2e::expect(free_bytes > 0 && free_bytes <= total, "memory information");
}

}  // namespace

int main(int argc, char** argv) {
  const size_t largest = e2e::argument(argc, argv, 1, 8 << 20);
  e2e::Session session;
  for (size_t n : {size_t(1), size_t(3), size_t(64), size_t(4097), size_t(65536),
                   size_t(1 << 20) + 1, size_t(8) << 20, size_t(64) << 20, size_t(256) << 20}) {
    if (n > largest) continue;
    e2e::expect(linear(n, false), "pageable, %zu bytes", n);
    e2e::expect(linear(n, true), "pinned, %zu bytes", n);
  }
  rectangles();
  boxes();
  sets();
  registered(session.function("mix"));
  addresses();
  return e2e::finish();
}
