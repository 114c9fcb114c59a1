// SPDX-License-Identifier: Apache-2.0
// cuMemset*: one command each, checked against the allocation. Implementations behind the generated
// entry points, on the program's threads.
#include "api/client_impl.h"
#include "client/context/transfer.h"
#include "client/context/work_check.h"
#include "client/session/enter.h"
#include "client/session/submit.h"

namespace openmps::client {
namespace {

struct Fill : FillWork {
  bool wait = false;

  // Where it writes is looked at when the graph is instantiated: cuDNN captures its work with
  // made-up addresses to learn the size of its grids, and throws the graph away.
  CUresult describe(Session&, Work* work) const {
    OPENMPS_CUDA_CHECK(check_fill(parameters));
    *work = FillWork(*this);
    return CUDA_SUCCESS;
  }
  CUresult issue(Session& session, Stream& stream) const {
    OPENMPS_CUDA_CHECK(check_fill(session.places, parameters));
    const bool pinned = session.pinned.in_heap(parameters.dst);
    OPENMPS_CUDA_CHECK(session.streams.push(stream, fill_command(parameters, stream.id)));
    // CUDA's synchronous fills return at once, except for host memory.
    return wait && (pinned || session.places.ends_before_return(stream, parameters.dst))
               ? session.synchronize(stream)
               : CUDA_SUCCESS;
  }
};

CUresult fill_memory(CUdeviceptr address, size_t pitch, uint32_t value, uint32_t element,
                     size_t width, size_t height, CUstream handle, bool wait) {
  Session* session = nullptr;
  Context* context = nullptr;
  Stream* stream = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context, handle, &stream));
  if (width == 0 || height == 0) return CUDA_SUCCESS;
  return submit(*session, *stream, Fill{{{address, pitch, value, element, width, height}}, wait});
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
