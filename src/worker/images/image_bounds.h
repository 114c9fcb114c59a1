// SPDX-License-Identifier: Apache-2.0
// Whether an image lies within the bytes that the client has sent. Drivers take a pointer without a
// length and trust the headers behind it, so wrong headers would make the driver read memory that
// is not the client's, or crash the worker. Called before an image is loaded; any thread.
#pragma once

#include "cuda/fatbin.h"

namespace openmps::worker {

// `image`: fatbin containers, an ELF file, or text, which the caller ends with a NUL. Errors:
// CUDA_ERROR_INVALID_IMAGE with the reason: a length beyond the end, or a fatbin wrapper, which
// consists of pointers of the client (its library sends the data that they point to).
Status check_image_bounds(cuda::Bytes image);

}  // namespace openmps::worker
