// SPDX-License-Identifier: Apache-2.0
// What the generated messages need: the frame around a request, and handles of every type to and
// from wire ids. Types with an object of their own use its table; all others share a generic one.
// On the program's threads.
#include <string.h>

#include <algorithm>
#include <span>

#include "api/client_hooks.h"
#include "client/module.h"
#include "client/stream.h"
#include "client/thread_state.h"

namespace openmps::client {
namespace {

// The frame of the calling thread's context.
wire::Generated frame_of(const Context& context, size_t bytes) {
  return {context.id, context.wire_device, static_cast<uint32_t>(bytes), 0};
}

CUresult call(Session& session, uint16_t opcode, const wire::Generated& frame, const void* request,
              void* reply, size_t reply_capacity, size_t* reply_bytes) {
  if (frame.bytes > wire::kMaxRecordBytes / 2) return CUDA_ERROR_INVALID_VALUE;
  uint32_t received = 0;
  const auto capacity =
      static_cast<uint32_t>(std::min<size_t>(reply_capacity, wire::kMaxReplyBytes));
  const CUresult result =
      session.channel.call(static_cast<wire::Opcode>(opcode), frame, bytes_of(request, frame.bytes),
                           reply, capacity, &received);
  *reply_bytes = std::min(received, capacity);
  return result;
}

template <typename Table, typename Handle>
CUresult id_of(const Table& table, Handle value, uint32_t* id) {
  if (value == nullptr) {
    *id = 0;
    return CUDA_SUCCESS;
  }
  const auto* object = table.find(value);
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *id = object->id;
  return CUDA_SUCCESS;
}

template <typename Table, typename Handle>
CUresult mint(Table& table, Handle* value, uint32_t* id) {
  auto* object = table.allocate();
  if (object == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *value = object->template as<Handle>();
  *id = object->id;
  table.publish(object);
  return CUDA_SUCCESS;
}

template <typename Table, typename Handle>
void drop(Table& table, Handle value) {
  auto* object = table.find(value);
  if (object != nullptr && table.retire(object)) table.recycle(object);
}

}  // namespace

CUresult remote_call(uint16_t opcode, const void* request, size_t request_bytes, void* reply,
                     size_t reply_capacity, size_t* reply_bytes) {
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context));
  return call(*session, opcode, frame_of(*context, request_bytes), request, reply, reply_capacity,
              reply_bytes);
}

CUresult remote_device_call(uint16_t opcode, const void* request, size_t request_bytes, void* reply,
                            size_t reply_capacity, size_t* reply_bytes) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session));
  const wire::Generated frame{0, session->devices[0], static_cast<uint32_t>(request_bytes), 0};
  return call(*session, opcode, frame, request, reply, reply_capacity, reply_bytes);
}

CUresult remote_post(uint16_t opcode, const void* request, size_t request_bytes) {
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context));
  if (request_bytes > wire::kMaxRecordBytes / 2) return CUDA_ERROR_INVALID_VALUE;
  return session->channel.push(session->channel.order(), static_cast<wire::Opcode>(opcode),
                               frame_of(*context, request_bytes), bytes_of(request, request_bytes));
}

CUresult device_to_wire(CUdevice device, uint32_t* id) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session));
  if (!session->valid_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *id = session->devices[static_cast<uint32_t>(device)];
  return CUDA_SUCCESS;
}

// ---- Types that have a table of their own -------------------------------------------------------

CUresult handle_to_wire(CUcontext value, uint32_t* id) {
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session));
  *id = 0;
  if (value == nullptr) return CUDA_SUCCESS;
  OPENMPS_CUDA_CHECK(find_context(*session, value, &context));
  *id = context->id;
  return CUDA_SUCCESS;
}

CUresult handle_to_wire(CUstream value, uint32_t* id) {
  Session* session = nullptr;
  Context* context = nullptr;
  Stream* stream = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context, value, &stream));
  *id = stream->id;
  return CUDA_SUCCESS;
}

CUresult handle_to_wire(CUlibrary value, uint32_t* id) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session));
  *id = 0;
  if (value == nullptr) return CUDA_SUCCESS;
  Module* module = find_library(*session, value);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  OPENMPS_CUDA_CHECK(ensure_loaded(*session, *module));
  *id = module->id;
  return CUDA_SUCCESS;
}

// No generated function makes one of these: what makes them is hand-written.
#define OPENMPS_NEVER_MINTED(handle)                                            \
  CUresult mint_handle(handle*, uint32_t*) { return CUDA_ERROR_NOT_SUPPORTED; } \
  void drop_handle(handle) {}
OPENMPS_NEVER_MINTED(CUcontext)
OPENMPS_NEVER_MINTED(CUstream)
OPENMPS_NEVER_MINTED(CUlibrary)
OPENMPS_NEVER_MINTED(CUmodule)
OPENMPS_NEVER_MINTED(CUfunction)
OPENMPS_NEVER_MINTED(CUkernel)
OPENMPS_NEVER_MINTED(CUevent)
#undef OPENMPS_NEVER_MINTED

#define OPENMPS_OWN_TABLE(handle, table)                \
  CUresult handle_to_wire(handle value, uint32_t* id) { \
    Session* session = nullptr;                         \
    OPENMPS_CUDA_CHECK(enter(&session));                \
    return id_of(session->table, value, id);            \
  }
OPENMPS_OWN_TABLE(CUmodule, modules)
OPENMPS_OWN_TABLE(CUfunction, functions)
OPENMPS_OWN_TABLE(CUkernel, functions)
OPENMPS_OWN_TABLE(CUevent, events)
#define OPENMPS_MINTED_TABLE(handle, table)                           \
  OPENMPS_OWN_TABLE(handle, table)                                    \
  CUresult mint_handle(handle* value, uint32_t* id) {                 \
    Session* session = nullptr;                                       \
    OPENMPS_CUDA_CHECK(enter(&session));                              \
    return mint(session->table, value, id);                           \
  }                                                                   \
  void drop_handle(handle value) {                                    \
    Session* session = nullptr;                                       \
    if (enter(&session) == CUDA_SUCCESS) drop(session->table, value); \
  }
OPENMPS_MINTED_TABLE(CUarray, arrays)
OPENMPS_MINTED_TABLE(CUmipmappedArray, mipmapped_arrays)
#undef OPENMPS_MINTED_TABLE
#undef OPENMPS_OWN_TABLE

// ---- Types that no generated function can name --------------------------------------------------

// Graphs and user objects live in this process alone; of the others none can exist: the functions
// that would make them are not supported.
#define OPENMPS_NO_OBJECTS(handle)                                              \
  CUresult handle_to_wire(handle value, uint32_t* id) {                         \
    *id = 0;                                                                    \
    return value == nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;         \
  }                                                                             \
  CUresult mint_handle(handle*, uint32_t*) { return CUDA_ERROR_NOT_SUPPORTED; } \
  void drop_handle(handle) {}
OPENMPS_NO_OBJECTS(CUgraph)
OPENMPS_NO_OBJECTS(CUgraphExec)
OPENMPS_NO_OBJECTS(CUgraphNode)
OPENMPS_NO_OBJECTS(CUuserObject)
OPENMPS_NO_OBJECTS(CUtexref)
OPENMPS_NO_OBJECTS(CUsurfref)
OPENMPS_NO_OBJECTS(CUgraphicsResource)
OPENMPS_NO_OBJECTS(CUexternalMemory)
OPENMPS_NO_OBJECTS(CUexternalSemaphore)
OPENMPS_NO_OBJECTS(CUmemoryPool)
OPENMPS_NO_OBJECTS(CUgraphDeviceNode)
OPENMPS_NO_OBJECTS(CUasyncCallbackHandle)
OPENMPS_NO_OBJECTS(CUgreenCtx)
OPENMPS_NO_OBJECTS(CUlinkState)
OPENMPS_NO_OBJECTS(CUdevResourceDesc)
OPENMPS_NO_OBJECTS(CUlogsCallbackHandle)
#undef OPENMPS_NO_OBJECTS

}  // namespace openmps::client
