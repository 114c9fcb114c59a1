// SPDX-License-Identifier: Apache-2.0
// Status and Result<T>: how everything below the CUDA ABI reports failure. A Status is a CUresult
// plus one sentence for the log; the extern "C" edge returns the code and logs the sentence.
#pragma once

#include <cassert>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "cuda/abi.h"

namespace openmps {

class [[nodiscard]] Status {
 public:
  Status() = default;  // success
  Status(CUresult code, std::string message);

  [[nodiscard]] bool ok() const { return code_ == CUDA_SUCCESS; }
  [[nodiscard]] CUresult code() const { return code_; }
  // Lower case, with the offending values; empty on success, and where there was no memory for it.
  [[nodiscard]] const std::string& message() const;

 private:
  CUresult code_ = CUDA_SUCCESS;
  std::shared_ptr<const std::string> message_;  // null on success, which passes by in every call
};

inline Status invalid_value(std::string why) {
  return Status(CUDA_ERROR_INVALID_VALUE, std::move(why));
}

// A value or the reason why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit on purpose
  Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {  // NOLINT: the same
    assert(!std::get<1>(state_).ok() && "a Result made from a Status must be an error");
  }

  [[nodiscard]] bool ok() const { return state_.index() == 0; }
  [[nodiscard]] T& value() & { return std::get<0>(state_); }
  [[nodiscard]] const T& value() const& { return std::get<0>(state_); }
  [[nodiscard]] T&& value() && { return std::get<0>(std::move(state_)); }
  [[nodiscard]] Status status() const { return ok() ? Status() : std::get<1>(state_); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace openmps

// Return early with the error of an expression that yields a Status.
#define OPENMPS_RETURN_IF_ERROR(expression)                                      \
  do {                                                                           \
    if (::openmps::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)
