// SPDX-License-Identifier: Apache-2.0
// cuUserObject* and what graphs hold of them. Implementations behind the generated entry points, on
// the program's threads.
#include <algorithm>

#include "api/client_impl.h"
#include "client/graph.h"
#include "client/session.h"

namespace openmps::client {

namespace {

CUresult find_object(CUuserObject handle, unsigned int count, Session** session,
                     UserObject** object) {
  OPENMPS_CUDA_CHECK(enter(session));
  *object = (*session)->user_objects.find(handle);
  return *object != nullptr && count != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

namespace impl {

CUresult cuUserObjectCreate(CUuserObject* object_out, void* ptr, CUhostFn destroy,
                            unsigned int initialRefcount, unsigned int flags) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session));
  if (object_out == nullptr || destroy == nullptr || initialRefcount == 0 ||
      flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  UserObject* object = session->user_objects.allocate();
  if (object == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  object->data = ptr;
  object->destroy = destroy;
  object->references.store(initialRefcount, std::memory_order_relaxed);
  session->user_objects.publish(object);
  *object_out = object->as<CUuserObject>();
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count) {
  Session* session = nullptr;
  UserObject* found = nullptr;
  OPENMPS_CUDA_CHECK(find_object(object, count, &session, &found));
  found->references.fetch_add(count, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count) {
  Session* session = nullptr;
  UserObject* found = nullptr;
  OPENMPS_CUDA_CHECK(find_object(object, count, &session, &found));
  if (found->references.load(std::memory_order_relaxed) < count) return CUDA_ERROR_INVALID_VALUE;
  session->user_objects.release(found, count);
  return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
                                 unsigned int flags) {
  Session* session = nullptr;
  UserObject* found = nullptr;
  OPENMPS_CUDA_CHECK(find_object(object, count, &session, &found));
  const std::lock_guard guard(session->graphs.lock);
  Graph* holder = session->graphs.find(graph);
  if (holder == nullptr || (flags & ~static_cast<unsigned int>(CU_GRAPH_USER_OBJECT_MOVE)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if ((flags & CU_GRAPH_USER_OBJECT_MOVE) == 0) {
    found->references.fetch_add(count, std::memory_order_relaxed);
  }
  holder->user_objects.emplace_back(session->user_objects, found, count);
  return CUDA_SUCCESS;
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count) {
  Session* session = nullptr;
  UserObject* found = nullptr;
  OPENMPS_CUDA_CHECK(find_object(object, count, &session, &found));
  const std::lock_guard guard(session->graphs.lock);
  Graph* holder = session->graphs.find(graph);
  if (holder == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint64_t held = 0;
  for (const UserObjectReference& reference : holder->user_objects) {
    if (reference.object() == found) held += reference.count();
  }
  if (held < count) return CUDA_ERROR_INVALID_VALUE;
  uint64_t left = count;
  for (UserObjectReference& reference : holder->user_objects) {
    if (reference.object() != found || left == 0) continue;
    const uint64_t dropped = std::min(left, reference.count());
    left -= dropped;
    reference.drop(dropped);
  }
  std::erase_if(holder->user_objects,
                [](const UserObjectReference& reference) { return reference.count() == 0; });
  return CUDA_SUCCESS;
}

}  // namespace impl
}  // namespace openmps::client
