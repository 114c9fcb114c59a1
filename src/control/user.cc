// SPDX-License-Identifier: Apache-2.0
// See user.h.
#include "control/user.h"

#include <pwd.h>

namespace openmps::control {

User system_user(uid_t uid) {
  const passwd* entry = getpwuid(uid);
  return {uid, entry != nullptr ? entry->pw_gid : static_cast<gid_t>(uid)};
}

bool may_control(uid_t caller, uid_t owner, uid_t daemon) {
  return caller == owner || caller == 0 || caller == daemon;
}

}  // namespace openmps::control
