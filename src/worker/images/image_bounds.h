// SPDX-License-Identifier: Apache-2.0
// Does an image lie within the bytes that have come? Drivers take a bare pointer and believe the
// headers behind it, so a client whose headers lie would make the driver read what is not the
// client's, or crash the worker of everybody. Called before an image is loaded; any thread.
#pragma once

#include "cuda/fatbin.h"

namespace openmps::worker {

// `image`: fatbin containers, an ELF file, or text, which the caller ends with a NUL. Errors:
// CUDA_ERROR_INVALID_IMAGE with the reason: a length beyond the end, or a fatbin wrapper, which is
// pointers of the client's (its library sends what they point to).
Status check_image_bounds(cuda::Bytes image);

}  // namespace openmps::worker
