// SPDX-License-Identifier: Apache-2.0
// User objects. Any thread.
#include <algorithm>

#include "softgpu/device/user_object.h"
#include "softgpu/front/graph_front.h"

using namespace openmps;           // NOLINT: entry points live outside the namespace
using namespace openmps::softgpu;  // NOLINT: entry points live outside the namespace

namespace {

template <typename Body>
CUresult with_object(CUuserObject handle, unsigned int count, Body&& body) {
  return with_driver([&](Driver& driver) -> Status {
    std::shared_ptr<UserObject> object = driver.user_objects.find(handle);
    if (object == nullptr || count == 0) return invalid_value("not a user object, or no count");
    return body(driver, object);
  });
}

}  // namespace

CUresult cuUserObjectCreate(CUuserObject* object_out, void* ptr, CUhostFn destroy,
                            unsigned int initialRefcount, unsigned int flags) {
  return with_driver([&](Driver& driver) -> Status {
    if (object_out == nullptr || destroy == nullptr || initialRefcount == 0 ||
        flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
      return invalid_value("a bad argument");
    }
    auto object = std::make_shared<UserObject>();
    object->table = &driver.user_objects;
    object->data = ptr;
    object->destroy = destroy;
    object->references = initialRefcount;
    object->handle = driver.user_objects.add(object);
    *object_out = object->handle;
    return Status();
  });
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count) {
  return with_object(object, count, [&](Driver&, const std::shared_ptr<UserObject>& found) {
    found->references += count;
    return Status();
  });
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count) {
  return with_object(object, count, [&](Driver&, const std::shared_ptr<UserObject>& found) {
    if (found->references < count) return invalid_value("more references than there are");
    release_user_object(*found, count);
    return Status();
  });
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
                                 unsigned int flags) {
  return with_object(
      object, count, [&](Driver& driver, const std::shared_ptr<UserObject>& found) -> Status {
        std::shared_ptr<Graph> holder = driver.graphs.find(graph);
        if (holder == nullptr || flags > CU_GRAPH_USER_OBJECT_MOVE) {
          return invalid_value("not a graph, or unknown flags");
        }
        if (flags != CU_GRAPH_USER_OBJECT_MOVE) found->references += count;
        const MutexLock lock(graph_mutex);
        holder->user_objects.push_back(std::make_shared<UserObjectHold>(found, count));
        return Status();
      });
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count) {
  return with_object(
      object, count, [&](Driver& driver, const std::shared_ptr<UserObject>& found) -> Status {
        std::shared_ptr<Graph> holder = driver.graphs.find(graph);
        if (holder == nullptr) return invalid_value("not a graph");
        const MutexLock lock(graph_mutex);
        uint64_t held = 0;
        for (const auto& hold : holder->user_objects) {
          if (hold->object == found) held += hold->count;
        }
        if (held < count) return invalid_value("the graph holds fewer references");
        found->references += held - count;
        std::erase_if(holder->user_objects,
                      [&](const auto& hold) { return hold->object == found; });
        if (held > count) {
          holder->user_objects.push_back(std::make_shared<UserObjectHold>(found, held - count));
        }
        return Status();
      });
}
