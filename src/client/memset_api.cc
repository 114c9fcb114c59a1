// SPDX-License-Identifier: Apache-2.0
// cuMemset*: one command each, checked against the allocation. Implementations behind the generated
// entry points, on the program's threads.
#include "api/client_impl.h"
#include "client/stream.h"
#include "client/thread_state.h"
#include "client/transfer.h"
#include "client/work_check.h"

namespace openmps::client {
namespace {

CUresult fill_memory(CUdeviceptr address, size_t pitch, uint32_t value, uint32_t element,
                     size_t width, size_t height, CUstream handle, bool wait) {
  Session* session = nullptr;
  Context* context = nullptr;
  Stream* stream = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context, handle, &stream));
  if (width == 0 || height == 0) return CUDA_SUCCESS;
  const CUDA_MEMSET_NODE_PARAMS fill{address, pitch, value, element, width, height};
  if (stream->capture.load(std::memory_order_relaxed) != 0) {
    OPENMPS_CUDA_CHECK(check_fill(fill));
    return capture_work(*session, *stream, CU_GRAPH_NODE_TYPE_MEMSET, FillWork{fill});
  }
  OPENMPS_CUDA_CHECK(check_fill(*session, fill));
  const bool pinned = session->pinned.in_heap(address);
  OPENMPS_CUDA_CHECK(push_work(
      *session, *stream, wire::Memset{stream->id, element, address, pitch, width, height, value}));
  // CUDA's synchronous fills return at once, except for host memory.
  return wait && (pinned || ends_before_return(*session, *stream, address))
             ? synchronize_stream(*session, *stream)
             : CUDA_SUCCESS;
}

}  // namespace

namespace impl {

CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
  return fill_memory(dstDevice, 0, uc, 1, N, 1, nullptr, true);
}
CUresult cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N) {
  return fill_memory(dstDevice, 0, us, 2, N, 1, nullptr, true);
}
CUresult cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N) {
  return fill_memory(dstDevice, 0, ui, 4, N, 1, nullptr, true);
}
CUresult cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                         size_t Height) {
  return fill_memory(dstDevice, dstPitch, uc, 1, Width, Height, nullptr, true);
}
CUresult cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                          size_t Height) {
  return fill_memory(dstDevice, dstPitch, us, 2, Width, Height, nullptr, true);
}
CUresult cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                          size_t Height) {
  return fill_memory(dstDevice, dstPitch, ui, 4, Width, Height, nullptr, true);
}
CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream) {
  return fill_memory(dstDevice, 0, uc, 1, N, 1, hStream, false);
}
CUresult cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream) {
  return fill_memory(dstDevice, 0, us, 2, N, 1, hStream, false);
}
CUresult cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream) {
  return fill_memory(dstDevice, 0, ui, 4, N, 1, hStream, false);
}
CUresult cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                           size_t Height, CUstream hStream) {
  return fill_memory(dstDevice, dstPitch, uc, 1, Width, Height, hStream, false);
}
CUresult cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                            size_t Height, CUstream hStream) {
  return fill_memory(dstDevice, dstPitch, us, 2, Width, Height, hStream, false);
}
CUresult cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                            size_t Height, CUstream hStream) {
  return fill_memory(dstDevice, dstPitch, ui, 4, Width, Height, hStream, false);
}

}  // namespace impl
}  // namespace openmps::client
