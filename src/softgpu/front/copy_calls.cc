// SPDX-License-Identifier: Apache-2.0
// Copies and fills in all their spellings. Any thread.
#include "softgpu/device/issue/copy_issue.h"
#include "softgpu/device/work/copy_plan.h"
#include "softgpu/front/families.h"

namespace openmps::softgpu {
namespace {

constexpr bool kSynchronous = true;
constexpr bool kAsynchronous = false;

CopySide side_of(CUmemorytype type) {
  switch (type) {
    case CU_MEMORYTYPE_HOST: return CopySide::kHost;
    case CU_MEMORYTYPE_DEVICE: return CopySide::kDevice;
    default: return CopySide::kUnified;
  }
}

CUresult copy_linear(const cuda::LinearSide& to, const cuda::LinearSide& from, size_t bytes,
                     CUstream stream, bool synchronous) {
  return with_stream(CallKind::kCopy, stream, [&](Caller&, Stream& target) {
    return issue_copy(target, linear_copy(to.address, from.address, bytes), side_of(from.type),
                      side_of(to.type), synchronous);
  });
}

CUresult copy_box(const CUDA_MEMCPY3D& parameters, CUstream stream, bool synchronous) {
  return with_stream(CallKind::kCopy, stream, [&](Caller& caller, Stream& target) -> Status {
    CopyShape shape;
    CopySide source;
    CopySide destination;
    OPENMPS_RETURN_IF_ERROR(
        read_copy_parameters(caller.driver, parameters, &shape, &source, &destination));
    return issue_copy(target, shape, source, destination, synchronous);
  });
}

const CUDA_MEMCPY3D& whole(const CUDA_MEMCPY3D& copy) { return copy; }
CUDA_MEMCPY3D whole(const CUDA_MEMCPY2D& copy) { return cuda::widen(copy); }
CUDA_MEMCPY3D whole(const CUDA_MEMCPY3D_PEER& copy) { return cuda::without_contexts(copy); }

template <typename Copy>
CUresult copy_box(const Copy* copy, CUstream stream, bool synchronous) {
  if (copy == nullptr) {
    return with_stream(stream, [](Caller&, Stream&) { return invalid_value("no description"); });
  }
  return copy_box(whole(*copy), stream, synchronous);
}

CUresult fill(const CUDA_MEMSET_NODE_PARAMS& what, CUstream stream, bool synchronous) {
  return with_stream(CallKind::kFill, stream, [&](Caller&, Stream& target) -> Status {
    if (what.height > 1 &&
        (what.pitch % what.elementSize != 0 || what.pitch / what.elementSize < what.width)) {
      return invalid_value("rows that do not fit their pitch");
    }
    return issue_fill(target, fill_shape(what), synchronous);
  });
}

// Addresses say all about a copy between contexts; a context that is named has to be there all the
// same.
CUresult check_contexts(CUcontext to, CUcontext from) {
  return with_driver([&](Driver& driver) -> Status {
    for (CUcontext context : {to, from}) {
      if (context != nullptr && driver.contexts.find(context) == nullptr) {
        return Status(CUDA_ERROR_INVALID_CONTEXT, "not a context");
      }
    }
    return Status();
  });
}

}  // namespace

CUresult copy_linear(const cuda::LinearSide& to, const cuda::LinearSide& from, size_t bytes) {
  return copy_linear(to, from, bytes, nullptr, kSynchronous);
}
CUresult copy_linear(const cuda::LinearSide& to, const cuda::LinearSide& from, size_t bytes,
                     CUstream stream) {
  return copy_linear(to, from, bytes, stream, kAsynchronous);
}
CUresult copy_row(const cuda::CopySide& to, const cuda::CopySide& from, size_t bytes) {
  return copy_box(cuda::copy_between(to, from, {.width = bytes}), nullptr, kSynchronous);
}
CUresult copy_row(const cuda::CopySide& to, const cuda::CopySide& from, size_t bytes,
                  CUstream stream) {
  return copy_box(cuda::copy_between(to, from, {.width = bytes}), stream, kAsynchronous);
}
CUresult copy_box(const CUDA_MEMCPY2D* copy) { return copy_box(copy, nullptr, kSynchronous); }
CUresult copy_box(const CUDA_MEMCPY2D* copy, CUstream stream) {
  return copy_box(copy, stream, kAsynchronous);
}
CUresult copy_box(const CUDA_MEMCPY3D* copy) { return copy_box(copy, nullptr, kSynchronous); }
CUresult copy_box(const CUDA_MEMCPY3D* copy, CUstream stream) {
  return copy_box(copy, stream, kAsynchronous);
}
CUresult copy_box(const CUDA_MEMCPY3D_PEER* copy) { return copy_box(copy, nullptr, kSynchronous); }
CUresult copy_box(const CUDA_MEMCPY3D_PEER* copy, CUstream stream) {
  return copy_box(copy, stream, kAsynchronous);
}
CUresult fill(const CUDA_MEMSET_NODE_PARAMS& what) { return fill(what, nullptr, kSynchronous); }
CUresult fill(const CUDA_MEMSET_NODE_PARAMS& what, CUstream stream) {
  return fill(what, stream, kAsynchronous);
}

}  // namespace openmps::softgpu

using namespace openmps;           // NOLINT: entry points live outside the namespace
using namespace openmps::softgpu;  // NOLINT: entry points live outside the namespace

CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                      CUcontext srcContext, size_t ByteCount) {
  CUresult result = check_contexts(dstContext, srcContext);
  if (result != CUDA_SUCCESS) return result;
  return copy_linear(cuda::on_device(dstDevice), cuda::on_device(srcDevice), ByteCount);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                           CUcontext srcContext, size_t ByteCount, CUstream hStream) {
  CUresult result = check_contexts(dstContext, srcContext);
  if (result != CUDA_SUCCESS) return result;
  return with_stream(CallKind::kCopy, hStream, [&](Caller& caller, Stream& stream) -> Status {
    OPENMPS_RETURN_IF_ERROR(caller.driver.captures.refuse(stream));
    return issue_copy(stream, linear_copy(dstDevice, srcDevice, ByteCount), CopySide::kDevice,
                      CopySide::kDevice, kAsynchronous);
  });
}
