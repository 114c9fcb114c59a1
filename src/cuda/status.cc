// SPDX-License-Identifier: Apache-2.0
// See status.h.
#include "cuda/status.h"

#include <new>

namespace openmps {

Status::Status(CUresult code, std::string message) : code_(code) {
  try {
    message_ = std::make_shared<const std::string>(std::move(message));
  } catch (const std::bad_alloc&) {
    // The code says what matters.
  }
}

const std::string& Status::message() const {
  static const std::string& none = *new const std::string;  // also behind the end of main()
  return message_ == nullptr ? none : *message_;
}

}  // namespace openmps
