// SPDX-License-Identifier: Apache-2.0
// cuIpc*: memory and events shared between processes behind the same server. Implementations behind
// the generated entry points, on the program's threads.
#include <cstring>

#include "api/client_handlers.h"
#include "client/session/enter.h"

namespace openmps::client {
namespace {

template <typename Handle>
ShareHandle read_handle(const Handle& handle) {
  ShareHandle share;
  memcpy(&share, static_cast<const void*>(&handle), sizeof(share));
  return share;
}

bool is_kind(const ShareHandle& share, ShareKind kind) {
  return share.magic == kShareMagic && share.kind == static_cast<uint32_t>(kind);
}

}  // namespace

namespace impl {

CUresult cuIpcGetMemHandle(Session& session, CUipcMemHandle* pHandle, CUdeviceptr dptr) {
  DeviceMemory::Entry entry;
  // Any address in the allocation will do, as with CUDA; the handle is that of the whole.
  if (!session.memory.find(dptr, &entry)) return CUDA_ERROR_INVALID_VALUE;
  DeviceMemory::Published published;
  OPENMPS_CUDA_CHECK(session.memory.publish(entry.base, false, &published, &entry));
  const ShareHandle share{kShareMagic,         static_cast<uint32_t>(ShareKind::kMemory),
                          session.window_base, published.key,
                          published.bytes,     entry.base - published.base,
                          entry.bytes,         0};
  memcpy(pHandle, &share, sizeof(share));
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(Session& session, Context&, CUdeviceptr* pdptr,
                               CUipcMemHandle handle, unsigned int Flags) {
  if (Flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  const ShareHandle share = read_handle(handle);
  if (!is_kind(share, ShareKind::kMemory)) return CUDA_ERROR_INVALID_HANDLE;
  return session.opened.open(share, pdptr);
}

CUresult cuIpcGetEventHandle(Session& session, CUipcEventHandle* pHandle, Event& object) {
  if ((object.flags & CU_EVENT_INTERPROCESS) == 0) return CUDA_ERROR_INVALID_HANDLE;
  wire::EventPublish::Reply reply;
  OPENMPS_CUDA_CHECK(session.channel.call(wire::EventPublish{object.id}, &reply));
  ShareHandle share{};
  share.key = reply.key;
  share.magic = kShareMagic;
  share.kind = static_cast<uint32_t>(ShareKind::kEvent);
  share.exporter = session.window_base;
  memcpy(pHandle, &share, sizeof(share));
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(Session& session, Context& context, CUevent* phEvent,
                              CUipcEventHandle handle) {
  const ShareHandle share = read_handle(handle);
  if (!is_kind(share, ShareKind::kEvent)) return CUDA_ERROR_INVALID_HANDLE;
  if (share.exporter == session.window_base) return CUDA_ERROR_INVALID_CONTEXT;
  return session.events.make(phEvent, [&](Event& event) {
    event.context = context.owner();
    event.flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
    event.shared = true;
    return session.channel.call(wire::EventOpen{event.id, event.flags, share.key});
  });
}

}  // namespace impl
}  // namespace openmps::client
