// SPDX-License-Identifier: Apache-2.0
// cuUserObject* and what graphs hold of them. Implementations behind the generated entry points, on
// the program's threads.
#include <algorithm>

#include "api/client_handlers.h"
#include "client/graphs/graph.h"
#include "client/session/session.h"

namespace openmps::client {

namespace impl {

CUresult cuUserObjectCreate(Session& session, CUuserObject* object_out, void* ptr, CUhostFn destroy,
                            unsigned int initialRefcount, unsigned int flags) {
  if (destroy == nullptr || initialRefcount == 0 || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return session.user_objects.make(object_out, [&](UserObject& object) {
    object.data = ptr;
    object.destroy = destroy;
    object.references.store(initialRefcount, std::memory_order_relaxed);
    return CUDA_SUCCESS;
  });
}

CUresult cuUserObjectRetain(Session&, UserObject& object, unsigned int count) {
  if (count == 0) return CUDA_ERROR_INVALID_VALUE;
  object.references.fetch_add(count, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(Session& session, UserObject& object, unsigned int count) {
  if (count == 0 || object.references.load(std::memory_order_relaxed) < count) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  session.user_objects.release(&object, count);
  return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(Session& session, Graph& graph, UserObject& object,
                                 unsigned int count, unsigned int flags) {
  if (count == 0 || (flags & ~static_cast<unsigned int>(CU_GRAPH_USER_OBJECT_MOVE)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if ((flags & CU_GRAPH_USER_OBJECT_MOVE) == 0) {
    object.references.fetch_add(count, std::memory_order_relaxed);
  }
  graph.user_objects.emplace_back(session.user_objects, &object, count);
  return CUDA_SUCCESS;
}

CUresult cuGraphReleaseUserObject(Session&, Graph& graph, UserObject& object, unsigned int count) {
  if (count == 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t held = 0;
  for (const UserObjectReference& reference : graph.user_objects) {
    if (reference.object() == &object) held += reference.count();
  }
  if (held < count) return CUDA_ERROR_INVALID_VALUE;
  uint64_t left = count;
  for (UserObjectReference& reference : graph.user_objects) {
    if (reference.object() != &object || left == 0) continue;
    const uint64_t dropped = std::min(left, reference.count());
    left -= dropped;
    reference.drop(dropped);
  }
  std::erase_if(graph.user_objects,
                [](const UserObjectReference& reference) { return reference.count() == 0; });
  return CUDA_SUCCESS;
}

}  // namespace impl
}  // namespace openmps::client
