// SPDX-License-Identifier: Apache-2.0
// PTX text to Module. Input is untrusted: every error is a message with a line, nothing else.
// Called by compile(); any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "cuda/status.h"
#include "softgpu/ptx/ast.h"

namespace openmps::softgpu::ptx {

// The newest ".version" that we know: what CUDA 13.0, whose ABI we serve, defines. A newer one of
// the same CUDA is taken as far as it can be read, since most of what libraries have of it is old;
// a later CUDA's is refused.
inline constexpr uint32_t kNewestVersion = 90;

// CUDA_ERROR_INVALID_PTX, or CUDA_ERROR_UNSUPPORTED_PTX_VERSION for what is too new to be read; the
// message is in ptxas's style.
Result<std::shared_ptr<const Module>> parse(std::string_view text);

// "sm_90a" -> 90 and 'a'; false if it is no such name. The suffix is '\0' without one.
bool parse_target(std::string_view name, uint32_t* capability, char* suffix);

}  // namespace openmps::softgpu::ptx
