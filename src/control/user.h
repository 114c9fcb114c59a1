// SPDX-License-Identifier: Apache-2.0
// Users, as the kernel reports them. Used by all of the daemon.
#pragma once

#include <sys/types.h>

namespace openmps::control {

// The user of a server or of a client.
struct User {
  uid_t uid = 0;
  gid_t gid = 0;
};

// The user of that number with its primary group. One that the system does not know gets a group of
// the same number.
User system_user(uid_t uid);

// Whether `caller` may look into what is `owner`'s, and end it: that user may, root, and the user
// who runs the daemon.
bool may_control(uid_t caller, uid_t owner, uid_t daemon);

}  // namespace openmps::control
