// SPDX-License-Identifier: Apache-2.0
// User objects. See user_object.h.
#include "softgpu/device/user_object.h"

namespace openmps::softgpu {

void release_user_object(UserObject& object, uint64_t count) {
  if (object.references.fetch_sub(count) != count) return;
  const std::shared_ptr<UserObject> last = object.table->remove(object.handle);
  object.destroy(object.data);
}

}  // namespace openmps::softgpu
