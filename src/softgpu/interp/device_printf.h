// SPDX-License-Identifier: Apache-2.0
// printf of a kernel. Run by the interpreter, on its thread.
#pragma once

#include <string>

#include "softgpu/interp/warp.h"

namespace openmps::softgpu {

// The text, and what printf returns, of a format and packed arguments at generic addresses.
int format_printf(Warp* warp, uint32_t lane, uint64_t format, uint64_t arguments, std::string* out);

}  // namespace openmps::softgpu
