// SPDX-License-Identifier: Apache-2.0
// A callable that a function borrows for as long as it runs: no copy, no allocation.
#pragma once

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

namespace openmps {

template <typename>
class FunctionRef;

template <typename Result, typename... Arguments>
class FunctionRef<Result(Arguments...)> {
 public:
  FunctionRef() = default;  // calls nothing, and must not be called
  // `callable` outlives this object.
  template <typename F>
  requires(!std::same_as<std::remove_cvref_t<F>, FunctionRef> && std::invocable<F&, Arguments...>)
      FunctionRef(
          F& callable)  // NOLINT(google-explicit-constructor): a parameter like any callable
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* object, Arguments... arguments) -> Result {
          return (*static_cast<F*>(object))(std::forward<Arguments>(arguments)...);
        }) {}

  Result operator()(Arguments... arguments) const {
    return call_(object_, std::forward<Arguments>(arguments)...);
  }
  explicit operator bool() const { return call_ != nullptr; }

 private:
  void* object_ = nullptr;
  Result (*call_)(void*, Arguments...) = nullptr;
};

}  // namespace openmps
