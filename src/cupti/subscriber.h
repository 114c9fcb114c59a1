// SPDX-License-Identifier: Apache-2.0
// The one subscriber of callbacks that CUPTI lets a program have. It is told nothing: this library
// learns of a call when its work is recorded, and a callback is due at the beginning of every call.
// Profilers subscribe before they record, and some only to learn whether they may. Any thread.
#pragma once

namespace openmps::cupti {

void forget_subscriber();

}  // namespace openmps::cupti
