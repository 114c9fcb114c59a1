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

// A module whose functions' bodies are passed over at first and parsed one by one. Bodies that
// declare what is part of the module, such as shared variables, are parsed at once. Not
// thread-safe.
class LazyModule {
 public:
  // Errors as parse() has them, but those of bodies that are passed over.
  static Result<std::unique_ptr<LazyModule>> open(std::string_view text);
  virtual ~LazyModule() = default;
  [[nodiscard]] virtual const Module& module() const = 0;
  // The body of a function that was put off, until drop_body(). CUDA_ERROR_INVALID_PTX: instead of
  // the body there is one instruction that nobody knows.
  virtual Status parse_body(int32_t function) = 0;
  virtual void drop_body(int32_t function) = 0;
};

// "sm_90a" -> 90 and 'a'; false if it is no such name. The suffix is '\0' without one.
bool parse_target(std::string_view name, uint32_t* capability, char* suffix);

}  // namespace openmps::softgpu::ptx
