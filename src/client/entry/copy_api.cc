// SPDX-License-Identifier: Apache-2.0
// cuMemcpy*: each call names its two sides and a box, transfer() does the rest. On the program's
// threads.
#include "api/client_handlers.h"
#include "client/entry/families.h"
#include "client/session/enter.h"
#include "client/session/graph_params.h"
#include "client/session/submit.h"
#include "cuda/copies.h"

namespace openmps::client {
namespace {

using Named = Places::Named;

// A copy that was checked and copies something.
struct Transfer {
  const Copy& copy;
  bool wait;

  [[nodiscard]] bool is_launch() const {
    return on_device(copy.destination) && on_device(copy.source);
  }
  CUresult describe(Session&, Work* work) const {
    // What ends before the call returns can't be in a graph; between device memory nothing does.
    const bool between_devices = on_device(copy.destination) && on_device(copy.source);
    if (wait && !between_devices) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    *work = copy_work(copy);
    return CUDA_SUCCESS;
  }
  CUresult issue(Session& session, Stream& stream) const {
    if (!session.managed.any()) [[likely]] {
      return session.transfers.copy(stream, copy, wait);
    }
    OPENMPS_CUDA_CHECK(session.managed.send(stream));
    OPENMPS_CUDA_CHECK(session.transfers.copy(stream, copy, wait));
    const bool on_host = !on_device(copy.destination) && !on_device(copy.source);
    return wait || on_host ? session.managed.fetch() : CUDA_SUCCESS;
  }
};

// The addresses describe a copy between contexts completely; contexts that the call names must
// exist.
CUresult check_contexts(const Session& session, CUcontext to, CUcontext from) {
  for (CUcontext named : {to, from}) {
    Context* context = nullptr;
    if (named != nullptr) OPENMPS_CUDA_CHECK(session.contexts.look_up(named, &context));
  }
  return CUDA_SUCCESS;
}

// Whatever is asked for, checked and copied in stream order.
CUresult transfer(Session& session, Stream& stream, const Copy& copy, bool wait) {
  const Box& box = copy.box;
  if (box.empty()) return CUDA_SUCCESS;
  OPENMPS_CUDA_CHECK(session.places.check(copy));
  if (box.height * box.depth == 1 || !is_contiguous(copy)) {
    return submit(session, stream, Transfer{copy, wait});
  }
  const Copy row{copy.destination, copy.source, {.width = box.width * box.height * box.depth}};
  return submit(session, stream, Transfer{row, wait});
}

Named named(CUmemorytype type) {
  switch (type) {
    case CU_MEMORYTYPE_HOST: return Named::kHost;
    case CU_MEMORYTYPE_DEVICE: return Named::kDevice;
    default: return Named::kAny;
  }
}

}  // namespace

CUresult copy_linear(const cuda::LinearSide& to, const cuda::LinearSide& from, size_t bytes,
                     StreamOrder order) {
  Session* session = nullptr;
  Context* context = nullptr;
  Stream* stream = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context, order.stream, &stream));
  const Copy copy{session->places.side_of(named(to.type), to.address),
                  session->places.side_of(named(from.type), from.address),
                  {.width = bytes}};
  return transfer(*session, *stream, copy, order.waits);
}

CUresult copy_row(const cuda::CopySide& to, const cuda::CopySide& from, size_t bytes,
                  StreamOrder order) {
  const CUDA_MEMCPY3D row = cuda::copy_between(to, from, {.width = bytes});
  return copy_box(&row, order);
}

CUresult copy_box(const CUDA_MEMCPY3D* named, StreamOrder order) {
  Session* session = nullptr;
  Context* context = nullptr;
  Stream* stream = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context, order.stream, &stream));
  if (named == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Copy copy;
  OPENMPS_CUDA_CHECK(session->places.read(*context, *named, &copy));
  return transfer(*session, *stream, copy, order.waits);
}

CUresult copy_box(const CUDA_MEMCPY2D* copy, StreamOrder order) {
  const CUDA_MEMCPY3D* none = nullptr;
  if (copy == nullptr) return copy_box(none, order);
  const CUDA_MEMCPY3D wide = cuda::widen(*copy);
  return copy_box(&wide, order);
}

CUresult copy_box(const CUDA_MEMCPY3D_PEER* peer, StreamOrder order) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session));
  if (peer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  OPENMPS_CUDA_CHECK(check_contexts(*session, peer->dstContext, peer->srcContext));
  const CUDA_MEMCPY3D copy = cuda::without_contexts(*peer);
  return copy_box(&copy, order);
}

namespace impl {

CUresult cuMemcpyPeer(Session& session, CUdeviceptr dstDevice, CUcontext dstContext,
                      CUdeviceptr srcDevice, CUcontext srcContext, size_t ByteCount) {
  OPENMPS_CUDA_CHECK(check_contexts(session, dstContext, srcContext));
  return copy_linear(cuda::on_device(dstDevice), cuda::on_device(srcDevice), ByteCount);
}

CUresult cuMemcpyPeerAsync(Session& session, CUdeviceptr dstDevice, CUcontext dstContext,
                           CUdeviceptr srcDevice, CUcontext srcContext, size_t ByteCount,
                           Stream& stream) {
  OPENMPS_CUDA_CHECK(check_contexts(session, dstContext, srcContext));
  const Copy copy{session.places.side_of(Named::kDevice, dstDevice),
                  session.places.side_of(Named::kDevice, srcDevice),
                  {.width = ByteCount}};
  return transfer(session, stream, copy, false);
}

}  // namespace impl
}  // namespace openmps::client
