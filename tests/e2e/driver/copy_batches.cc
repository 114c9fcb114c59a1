// SPDX-License-Identifier: Apache-2.0
// Copies in batches (linear and boxes), box copies between contexts, and hints about managed
// memory, each against a reference on the host; and what is refused. Run by run_e2e.py. usage:
// drv_copy_batches
#include "driver.h"

namespace {

using e2e::expect;
using e2e::expect_result;

struct Stream {
  CUstream handle = nullptr;
  Stream() { CHECK_CU(cuStreamCreate(&handle, CU_STREAM_NON_BLOCKING)); }
  ~Stream() { CHECK_CU(cuStreamDestroy_v2(handle)); }
};

void linear(CUstream stream) {
  constexpr size_t kCount = 40;
  constexpr size_t kBytes = 40000;
  std::vector<unsigned char> source(kBytes);
  e2e::Random random(5);
  for (unsigned char& byte : source) byte = static_cast<unsigned char>(random.next());
  e2e::Buffer<unsigned char> from(source);
  e2e::Buffer<unsigned char> to(std::vector<unsigned char>(kBytes, 0));
  std::vector<unsigned char> expected(kBytes, 0);
  std::vector<CUdeviceptr> dsts;
  std::vector<CUdeviceptr> srcs;
  std::vector<size_t> sizes;
  for (size_t i = 0; i < kCount; ++i) {
    const size_t bytes = 1 + random.below(900);
    const size_t at = random.below(kBytes - 900);
    const size_t put = i * 1000;
    dsts.push_back(to.address + put);
    // Device and pageable memory in one batch.
    srcs.push_back(i % 2 == 0 ? from.address + at : reinterpret_cast<CUdeviceptr>(&source[at]));
    sizes.push_back(bytes);
    memcpy(&expected[put], &source[at], bytes);
  }
  CUmemcpyAttributes attributes[2] = {};
  attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  attributes[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
  size_t indices[2] = {0, kCount / 2};
  CHECK_CU(cuMemcpyBatchAsync_v2(dsts.data(), srcs.data(), sizes.data(), kCount, attributes,
                                 indices, 2, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  expect(to.get() == expected, "a batch of %zu copies, hash %016llx", kCount,
         static_cast<unsigned long long>(e2e::hash(expected.data(), kBytes)));

  attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
  expect_result("a batch without an order",
                cuMemcpyBatchAsync_v2(dsts.data(), srcs.data(), sizes.data(), kCount, attributes,
                                      indices, 2, stream),
                CUDA_ERROR_INVALID_VALUE);
  attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  indices[0] = 1;
  expect_result("a batch whose first copy has no attributes",
                cuMemcpyBatchAsync_v2(dsts.data(), srcs.data(), sizes.data(), kCount, attributes,
                                      indices, 2, stream),
                CUDA_ERROR_INVALID_VALUE);
  indices[0] = 0;
  expect_result("a batch on the NULL stream",
                cuMemcpyBatchAsync_v2(dsts.data(), srcs.data(), sizes.data(), kCount, attributes,
                                      indices, 2, nullptr),
                {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_HANDLE});
}

void boxes(CUstream stream) {
  constexpr size_t kWidth = 96;
  constexpr size_t kHeight = 20;
  constexpr size_t kDepth = 6;
  std::vector<unsigned char> source(kWidth * kHeight * kDepth);
  e2e::Random random(6);
  for (unsigned char& byte : source) byte = static_cast<unsigned char>(random.next());
  e2e::Buffer<unsigned char> from(source);
  e2e::Buffer<unsigned char> to(std::vector<unsigned char>(source.size(), 0));
  std::vector<unsigned char> expected(source.size(), 0);
  CUDA_MEMCPY3D_BATCH_OP operations[2] = {};
  for (size_t i = 0; i < 2; ++i) {
    const size_t offset = i * kWidth * kHeight * 3 + 7;
    CUDA_MEMCPY3D_BATCH_OP& operation = operations[i];
    operation.src.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    operation.src.op.ptr = {from.address + offset, kWidth, kHeight, {}};
    operation.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    operation.dst.op.ptr = {to.address + offset, kWidth, kHeight, {}};
    operation.extent = {40, 11, 3};
    operation.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    for (size_t z = 0; z < 3; ++z) {
      for (size_t y = 0; y < 11; ++y) {
        const size_t at = offset + (z * kHeight + y) * kWidth;
        memcpy(&expected[at], &source[at], 40);
      }
    }
  }
  CHECK_CU(cuMemcpy3DBatchAsync_v2(2, operations, 0, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  expect(to.get() == expected, "a batch of boxes");
  expect_result("a batch of no boxes", cuMemcpy3DBatchAsync_v2(0, operations, 0, stream),
                CUDA_ERROR_INVALID_VALUE);
  operations[1].src.type = static_cast<CUmemcpy3DOperandType>(9);
  expect_result("a box of no kind", cuMemcpy3DBatchAsync_v2(2, operations, 0, stream),
                CUDA_ERROR_INVALID_VALUE);
}

void between_contexts(const e2e::Session& session, CUstream stream) {
  const std::vector<uint32_t> data{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  e2e::Buffer<uint32_t> from(data);
  e2e::Buffer<uint32_t> to(std::vector<uint32_t>(data.size(), 0));
  CUDA_MEMCPY3D_PEER copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from.address;
  copy.srcContext = session.context;
  copy.srcPitch = 16;
  copy.srcHeight = 3;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = to.address;
  copy.dstContext = session.context;
  copy.dstPitch = 16;
  copy.dstHeight = 3;
  copy.WidthInBytes = 8;
  copy.Height = 3;
  copy.Depth = 1;
  CHECK_CU(cuMemcpy3DPeerAsync(&copy, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  expect(to.get() == std::vector<uint32_t>({1, 2, 0, 0, 5, 6, 0, 0, 9, 10, 0, 0}),
         "a box between contexts");
  CHECK_CU(cuMemcpyPeer(to.address, session.context, from.address, session.context, 48));
  expect(to.get() == data, "a copy between contexts");
  int can = 1;
  expect_result("peer access of no device", cuDeviceCanAccessPeer(&can, 0, 99),
                CUDA_ERROR_INVALID_DEVICE);
  expect_result("a context as its own peer", cuCtxEnablePeerAccess(session.context, 0),
                CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
}

void managed(CUstream stream) {
  constexpr size_t kWords = 30000;
  CUdeviceptr memory = 0;
  CHECK_CU(cuMemAllocManaged(&memory, kWords * 4, CU_MEM_ATTACH_GLOBAL));
  auto* words = reinterpret_cast<uint32_t*>(memory);
  for (size_t i = 0; i < kWords; ++i) words[i] = static_cast<uint32_t>(i);
  const CUmemLocation device{CU_MEM_LOCATION_TYPE_DEVICE, 0};
  const CUmemLocation host{CU_MEM_LOCATION_TYPE_HOST, 0};
  CHECK_CU(cuMemAdvise_v2(memory, kWords * 4, CU_MEM_ADVISE_SET_READ_MOSTLY, device));
  CHECK_CU(cuMemAdvise_v2(memory, kWords * 4, CU_MEM_ADVISE_UNSET_READ_MOSTLY, device));
  CHECK_CU(cuMemPrefetchAsync_v2(memory, kWords * 4, device, 0, stream));
  CHECK_CU(cuMemsetD32Async(memory, 9, 10, stream));
  CHECK_CU(cuMemPrefetchAsync_v2(memory, kWords * 4, host, 0, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  bool right = true;
  for (size_t i = 0; i < kWords; ++i) right = right && words[i] == (i < 10 ? 9 : i);
  expect(right, "managed memory on both sides");
  unsigned int is_managed = 0;
  CHECK_CU(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, memory + 100));
  expect(is_managed == 1, "its pointers say so");
  int read_mostly = 7;
  CHECK_CU(cuMemRangeGetAttribute(&read_mostly, sizeof(read_mostly),
                                  CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory, kWords * 4));
  expect(read_mostly == 0, "and no hint is left");
  CHECK_CU(cuMemFree_v2(memory));
}

}  // namespace

int main() {
  e2e::Session session;
  Stream stream;
  linear(stream.handle);
  boxes(stream.handle);
  between_contexts(session, stream.handle);
  managed(stream.handle);
  return e2e::finish();
}
