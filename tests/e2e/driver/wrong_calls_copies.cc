// SPDX-License-Identifier: Apache-2.0
// Wrong copies: of bytes, of boxes, and with arrays.
#include "wrong_calls.h"

namespace e2e {
namespace {

using Flat = CUDA_MEMCPY2D;
using Box = CUDA_MEMCPY3D;
using PeerBox = CUDA_MEMCPY3D_PEER;

constexpr size_t kRow = Stage::kWidth * sizeof(float);  // bytes of a row of the stage's arrays

// Two rows of 32 bytes within the stage's memory, 64 bytes apart.
Made<Flat> flat(const Stage& s) {
  Made<Flat> made;
  made.value.srcMemoryType = made.value.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  made.value.srcDevice = s.memory;
  made.value.dstDevice = s.memory + Stage::kBytes / 2;
  made.value.srcPitch = made.value.dstPitch = 64;
  made.value.WidthInBytes = 32;
  made.value.Height = 2;
  return made;
}
// A valid copy from memory to the array.
Made<Flat> flat_to_array(const Stage& s) {
  return flat(s).with(&Flat::dstMemoryType, CU_MEMORYTYPE_ARRAY).with(&Flat::dstArray, s.array);
}
template <typename T>
Made<T> box_of(const Stage& s) {
  Made<T> made;
  made.value.srcMemoryType = made.value.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  made.value.srcDevice = s.memory;
  made.value.dstDevice = s.memory + Stage::kBytes / 2;
  made.value.srcPitch = made.value.dstPitch = 64;
  made.value.srcHeight = made.value.dstHeight = 2;
  made.value.WidthInBytes = 32;
  made.value.Height = made.value.Depth = 2;
  return made;
}
Made<Box> box(const Stage& s) { return box_of<Box>(s); }
Made<Box> box_to_array(const Stage& s) {
  return box(s)
      .with(&Box::dstMemoryType, CU_MEMORYTYPE_ARRAY)
      .with(&Box::dstArray, s.array)
      .with(&Box::Depth, 1);
}
Made<PeerBox> peer_box(const Stage& s) {
  return box_of<PeerBox>(s)
      .with(&PeerBox::srcContext, s.context)
      .with(&PeerBox::dstContext, s.context);
}

}  // namespace

const WrongCalls kCopyCalls = {
    WRONG(cuMemcpy(0, s.memory, 16)),
    WRONG(cuMemcpy(s.memory, 0, 16)),
    WRONG(cuMemcpy(0, 0, 16)),
    WRONG(cuMemcpy(0, 0, 0)),
    WRONG(cuMemcpyAsync(0, s.memory, 16, s.stream)),
    WRONG(cuMemcpyAsync(s.memory, 0, 16, s.stream)),
    WRONG(cuMemcpyAsync(s.memory, s.memory + 64, 16, s.world.foreign_stream)),
    WRONG(cuMemcpyHtoD_v2(0, s.pageable, 16)),
    WRONG(cuMemcpyHtoD_v2(1, s.pageable, 16)),
    WRONG(cuMemcpyHtoD_v2(s.memory, nullptr, 16)),
    WRONG(cuMemcpyHtoD_v2(s.memory, s.pageable, 0)),
    WRONG(cuMemcpyHtoD_v2(s.memory, nullptr, 0)),
    WRONG(cuMemcpyHtoD_v2(0, nullptr, 0)),
    WRONG(cuMemcpyHtoD_v2(0, nullptr, 16)),
    WRONG(cuMemcpyHtoD_v2(s.memory, s.pageable, kHuge)),
    WRONG(cuMemcpyHtoD_v2(address(s.pageable), s.pageable + 64, 16)),
    WRONG(cuMemcpyHtoD_v2(address(s.pinned), s.pageable, 16)),
    WRONG(cuMemcpyHtoD_v2(s.memory, pointer(s.memory + 64), 16)),
    WRONG(cuMemcpyHtoDAsync_v2(0, s.pageable, 16, s.stream)),
    WRONG(cuMemcpyHtoDAsync_v2(s.memory, nullptr, 16, s.stream)),
    WRONG(cuMemcpyHtoDAsync_v2(s.memory, s.pageable, 0, s.stream)),
    WRONG(cuMemcpyHtoDAsync_v2(s.memory, s.pinned, kHuge, s.stream)),
    WRONG(cuMemcpyDtoH_v2(nullptr, s.memory, 16)),
    WRONG(cuMemcpyDtoH_v2(s.pageable, 0, 16)),
    WRONG(cuMemcpyDtoH_v2(s.pageable, 1, 16)),
    WRONG(cuMemcpyDtoH_v2(nullptr, 0, 16)),
    WRONG(cuMemcpyDtoH_v2(nullptr, 0, 0)),
    WRONG(cuMemcpyDtoH_v2(s.pageable, s.memory, kHuge)),
    WRONG(cuMemcpyDtoHAsync_v2(nullptr, s.memory, 16, s.stream)),
    WRONG(cuMemcpyDtoHAsync_v2(s.pinned, 0, 16, s.stream)),
    WRONG(cuMemcpyDtoHAsync_v2(s.pinned, s.memory, kHuge, s.stream)),
    WRONG(cuMemcpyDtoD_v2(0, s.memory, 16)),
    WRONG(cuMemcpyDtoD_v2(s.memory, 0, 16)),
    WRONG(cuMemcpyDtoD_v2(s.memory, s.memory, kHuge)),
    WRONG(cuMemcpyDtoD_v2(0, 0, 0)),
    WRONG(cuMemcpyDtoD_v2(s.memory, address(s.pageable), 16)),
    WRONG(cuMemcpyDtoDAsync_v2(0, s.memory, 16, s.stream)),
    WRONG(cuMemcpyDtoDAsync_v2(s.memory, 1, 16, s.stream)),
    WRONG(cuMemcpyDtoDAsync_v2(s.memory, s.memory, kHuge, s.stream)),
    WRONG(cuMemcpyPeer(0, s.context, s.memory, s.context, 16)),
    WRONG(cuMemcpyPeer(s.memory, nullptr, s.memory + 64, s.context, 16)),
    WRONG(cuMemcpyPeer(s.memory, s.context, s.memory + 64, nullptr, 16)),
    WRONG(cuMemcpyPeer(s.memory, nullptr, s.memory + 64, nullptr, 0)),
    WRONG(cuMemcpyPeer(s.memory, s.context, s.memory + 64, s.context, kHuge)),
    WRONG(cuMemcpyPeerAsync(s.memory, nullptr, s.memory + 64, s.context, 16, s.stream)),
    WRONG(cuMemcpyPeerAsync(0, s.context, s.memory, s.context, 16, s.stream)),
    WRONG(cuMemcpyAtoD_v2(s.memory, nullptr, 0, 16)),
    WRONG(cuMemcpyAtoD_v2(s.memory, s.array, 1 << 20, 16)),
    WRONG(cuMemcpyAtoD_v2(0, s.array, 0, 16)),
    WRONG(cuMemcpyAtoD_v2(s.memory, s.array, 0, 0)),
    WRONG(cuMemcpyAtoD_v2(s.memory, s.array, 0, kRow * 2)),
    WRONG(cuMemcpyAtoD_v2(s.memory, s.array, 2, 16)),
    WRONG(cuMemcpyDtoA_v2(nullptr, 0, s.memory, 16)),
    WRONG(cuMemcpyDtoA_v2(s.array, 1 << 20, s.memory, 16)),
    WRONG(cuMemcpyDtoA_v2(s.array, 0, 0, 16)),
    WRONG(cuMemcpyDtoA_v2(s.array, 0, s.memory, kRow * 2)),
    WRONG(cuMemcpyHtoA_v2(nullptr, 0, s.pageable, 16)),
    WRONG(cuMemcpyHtoA_v2(s.array, 0, nullptr, 16)),
    WRONG(cuMemcpyHtoA_v2(s.array, 1 << 20, s.pageable, 16)),
    WRONG(cuMemcpyHtoA_v2(s.array, 0, s.pageable, 0)),
    WRONG(cuMemcpyHtoA_v2(nullptr, 0, nullptr, 0)),
    WRONG(cuMemcpyAtoH_v2(nullptr, s.array, 0, 16)),
    WRONG(cuMemcpyAtoH_v2(s.pageable, nullptr, 0, 16)),
    WRONG(cuMemcpyAtoH_v2(s.pageable, s.array, 1 << 20, 16)),
    WRONG(cuMemcpyAtoHAsync_v2(s.pinned, nullptr, 0, 16, s.stream)),
    WRONG(cuMemcpyHtoAAsync_v2(nullptr, 0, s.pinned, 16, s.stream)),
    WRONG(cuMemcpyAtoA_v2(nullptr, 0, s.array, 0, 16)),
    WRONG(cuMemcpyAtoA_v2(s.plain_array, 0, nullptr, 0, 16)),
    WRONG(cuMemcpyAtoA_v2(s.plain_array, 1 << 20, s.array, 0, 16)),
    WRONG(cuMemcpyAtoA_v2(s.plain_array, 0, s.array, 1 << 20, 16)),
    WRONG(cuMemcpyAtoA_v2(s.plain_array, 0, s.array, 0, 0)),
};

const WrongCalls kBoxCalls = {
    WRONG(cuMemcpy2D_v2(nullptr)),
    WRONG(cuMemcpy2D_v2(flat(s).with(&Flat::srcMemoryType, 0))),
    WRONG(cuMemcpy2D_v2(flat(s).with(&Flat::dstMemoryType, 9))),
    WRONG(cuMemcpy2D_v2(flat(s).with(&Flat::srcDevice, 0))),
    WRONG(cuMemcpy2D_v2(flat(s).with(&Flat::dstDevice, 0))),
    WRONG(cuMemcpy2D_v2(flat(s).with(&Flat::srcDevice, 1))),
    WRONG(cuMemcpy2D_v2(flat(s).with(&Flat::srcPitch, 16))),
    WRONG(cuMemcpy2D_v2(flat(s).with(&Flat::dstPitch, 16))),
    WRONG(cuMemcpy2D_v2(flat(s).with(&Flat::srcPitch, 0))),
    WRONG(cuMemcpy2D_v2(flat(s).with(&Flat::srcPitch, 16).with(&Flat::Height, 1))),
    WRONG(cuMemcpy2D_v2(flat(s).with(&Flat::srcPitch, size_t{1} << 33))),
    WRONG(cuMemcpy2D_v2(flat(s).with(&Flat::srcXInBytes, 48))),
    WRONG(cuMemcpy2D_v2(flat(s).with(&Flat::dstXInBytes, 48))),
    WRONG(cuMemcpy2D_v2(flat(s).with(&Flat::WidthInBytes, 0))),
    WRONG(cuMemcpy2D_v2(flat(s).with(&Flat::Height, 0))),
    WRONG(cuMemcpy2D_v2(flat(s).with(&Flat::Height, 0).with(&Flat::srcDevice, 0))),
    WRONG(cuMemcpy2D_v2(flat(s).with(&Flat::Height, 0).with(&Flat::srcPitch, 16))),
    WRONG(cuMemcpy2D_v2(flat(s).with(&Flat::Height, 0).with(&Flat::srcMemoryType, 9))),
    WRONG(cuMemcpy2D_v2(flat(s).with(&Flat::Height, kHuge))),
    WRONG(cuMemcpy2D_v2(flat(s).with(&Flat::srcY, kHuge / 64))),
    WRONG(cuMemcpy2D_v2(flat(s).with(&Flat::srcMemoryType, CU_MEMORYTYPE_HOST))),
    WRONG(cuMemcpy2D_v2(flat(s).with(&Flat::dstMemoryType, CU_MEMORYTYPE_HOST))),
    WRONG(cuMemcpy2D_v2(flat(s).with(&Flat::srcMemoryType, CU_MEMORYTYPE_ARRAY))),
    WRONG(cuMemcpy2D_v2(flat(s).with(&Flat::dstMemoryType, CU_MEMORYTYPE_ARRAY))),
    WRONG(cuMemcpy2D_v2(flat(s).with(&Flat::dstMemoryType, CU_MEMORYTYPE_UNIFIED))),
    WRONG(cuMemcpy2D_v2(flat_to_array(s).with(&Flat::dstXInBytes, kRow))),
    WRONG(cuMemcpy2D_v2(flat_to_array(s).with(&Flat::dstXInBytes, 48))),
    WRONG(cuMemcpy2D_v2(flat_to_array(s).with(&Flat::dstXInBytes, 2))),
    WRONG(cuMemcpy2D_v2(flat_to_array(s).with(&Flat::WidthInBytes, 30))),
    WRONG(cuMemcpy2D_v2(flat_to_array(s).with(&Flat::dstY, Stage::kHeight))),
    WRONG(cuMemcpy2D_v2(flat_to_array(s).with(&Flat::Height, Stage::kHeight + 1))),
    WRONG(cuMemcpy2D_v2(flat_to_array(s).with(&Flat::Height, 0).with(&Flat::dstArray, nullptr))),
    WRONG(cuMemcpy2DUnaligned_v2(nullptr)),
    WRONG(cuMemcpy2DUnaligned_v2(flat(s).with(&Flat::srcPitch, 16))),
    WRONG(cuMemcpy2DUnaligned_v2(flat(s).with(&Flat::srcDevice, 0))),
    WRONG(cuMemcpy2DUnaligned_v2(flat(s).with(&Flat::srcMemoryType, 9))),
    WRONG(cuMemcpy2DAsync_v2(nullptr, s.stream)),
    WRONG(cuMemcpy2DAsync_v2(flat(s).with(&Flat::srcPitch, 16), s.stream)),
    WRONG(cuMemcpy2DAsync_v2(flat(s).with(&Flat::srcMemoryType, 9), s.stream)),
    WRONG(cuMemcpy2DAsync_v2(flat(s).with(&Flat::Height, 0), s.stream)),
    WRONG(cuMemcpy2DAsync_v2(flat(s), s.world.foreign_stream)),
    WRONG(cuMemcpy3D_v2(nullptr)),
    WRONG(cuMemcpy3D_v2(box(s).with(&Box::srcMemoryType, 0))),
    WRONG(cuMemcpy3D_v2(box(s).with(&Box::dstMemoryType, 9))),
    WRONG(cuMemcpy3D_v2(box(s).with(&Box::srcDevice, 0))),
    WRONG(cuMemcpy3D_v2(box(s).with(&Box::srcPitch, 16))),
    WRONG(cuMemcpy3D_v2(box(s).with(&Box::srcPitch, 0))),
    WRONG(cuMemcpy3D_v2(box(s).with(&Box::srcHeight, 1))),
    WRONG(cuMemcpy3D_v2(box(s).with(&Box::dstHeight, 0))),
    WRONG(cuMemcpy3D_v2(box(s).with(&Box::srcHeight, 1).with(&Box::Depth, 1))),
    WRONG(cuMemcpy3D_v2(box(s).with(&Box::WidthInBytes, 0))),
    WRONG(cuMemcpy3D_v2(box(s).with(&Box::Height, 0))),
    WRONG(cuMemcpy3D_v2(box(s).with(&Box::Depth, 0))),
    WRONG(cuMemcpy3D_v2(box(s).with(&Box::Depth, 0).with(&Box::srcMemoryType, 9))),
    WRONG(cuMemcpy3D_v2(box(s).with(&Box::Depth, kHuge))),
    WRONG(cuMemcpy3D_v2(box(s).with(&Box::srcLOD, 1))),
    WRONG(cuMemcpy3D_v2(box(s).with(&Box::dstLOD, 1))),
    WRONG(cuMemcpy3D_v2(box(s).with(&Box::reserved0, pointer(s.memory)))),
    WRONG(cuMemcpy3D_v2(box(s).with(&Box::srcMemoryType, CU_MEMORYTYPE_ARRAY))),
    WRONG(cuMemcpy3D_v2(box_to_array(s).with(&Box::dstZ, 1))),
    WRONG(cuMemcpy3D_v2(box_to_array(s).with(&Box::Depth, 2))),
    WRONG(cuMemcpy3D_v2(box_to_array(s).with(&Box::dstY, Stage::kHeight))),
    WRONG(cuMemcpy3D_v2(box_to_array(s).with(&Box::dstXInBytes, 48))),
    WRONG(cuMemcpy3D_v2(box_to_array(s).with(&Box::dstXInBytes, 2))),
    WRONG(cuMemcpy3D_v2(box_to_array(s).with(&Box::dstLOD, 1))),
    WRONG(cuMemcpy3DAsync_v2(nullptr, s.stream)),
    WRONG(cuMemcpy3DAsync_v2(box(s).with(&Box::srcPitch, 16), s.stream)),
    WRONG(cuMemcpy3DAsync_v2(box(s).with(&Box::srcLOD, 1), s.stream)),
    WRONG(cuMemcpy3DPeer(peer_box(s).with(&PeerBox::srcContext, nullptr))),
    WRONG(cuMemcpy3DPeer(peer_box(s).with(&PeerBox::srcPitch, 16))),
    WRONG(cuMemcpy3DPeer(peer_box(s).with(&PeerBox::srcDevice, 0))),
    WRONG(cuMemcpy3DPeer(peer_box(s).with(&PeerBox::Depth, 0))),
    WRONG(cuMemcpy3DPeerAsync(peer_box(s).with(&PeerBox::dstContext, nullptr), s.stream)),
    WRONG(cuMemcpyBatchAsync(nullptr, &s.memory, list<size_t>({16}), 1, out<CUmemcpyAttributes>(),
                             out<size_t>(), 1, out<size_t>(), s.stream)),
    WRONG(cuMemcpyBatchAsync(&s.memory, &s.managed, nullptr, 1, out<CUmemcpyAttributes>(),
                             out<size_t>(), 1, out<size_t>(), s.stream)),
    WRONG(cuMemcpyBatchAsync(&s.memory, &s.managed, list<size_t>({16}), 0,
                             out<CUmemcpyAttributes>(), out<size_t>(), 1, out<size_t>(), s.stream)),
    WRONG(cuMemcpyBatchAsync(&s.memory, &s.managed, list<size_t>({16}), 1, nullptr, out<size_t>(),
                             1, out<size_t>(), s.stream)),
    WRONG(cuMemcpyBatchAsync(&s.memory, &s.managed, list<size_t>({16}), 1,
                             out<CUmemcpyAttributes>(), out<size_t>(), 0, out<size_t>(), s.stream)),
    WRONG(cuMemcpyBatchAsync(&s.memory, &s.managed, list<size_t>({16}), 1,
                             out<CUmemcpyAttributes>(), out<size_t>(), 1, out<size_t>(), nullptr)),
    WRONG(cuMemcpyBatchAsync(&s.memory, &s.managed, list<size_t>({16}), 1,
                             out<CUmemcpyAttributes>(), out<size_t>(), 1, out<size_t>(), s.stream)),
};

}  // namespace e2e
