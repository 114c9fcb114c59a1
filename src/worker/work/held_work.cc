// SPDX-License-Identifier: Apache-2.0
// See held_work.h.
#include "worker/work/held_work.h"

#include <cstring>
#include <type_traits>

#include "worker/code/module.h"

namespace openmps::worker {

// Copies the parts, one behind the other, the ones that need alignment first.
template <typename... T>
void HeldWork::own(std::span<const T>&... parts) {
  const size_t bytes = (parts.size_bytes() + ...);
  if (bytes > inside_.size()) {
    outside_ = std::make_unique<unsigned char[]>(bytes);
    outside_bytes_ = bytes;
  }
  unsigned char* at = outside_ != nullptr ? outside_.get() : inside_.data();
  const auto move = [&at](auto& part) {
    using Part = std::remove_reference_t<decltype(part)>;
    static_assert(std::is_trivially_copyable_v<typename Part::value_type>);
    if (!part.empty()) memcpy(at, part.data(), part.size_bytes());
    part = Part(reinterpret_cast<typename Part::pointer>(at), part.size());
    at += part.size_bytes();
  };
  (move(parts), ...);
}

HeldWork::HeldWork(const Work& work) : work_(work) {
  std::visit(Overloaded{[this](KernelWork& kernel) {
                          std::span shape(kernel.shape, 1);
                          own(kernel.attributes, shape, kernel.parameters);
                          kernel.shape = shape.data();
                          function_ = kernel.function->shared_from_this();
                        },
                        [this](ValuesWork& values) { own(values.batch, values.operations); },
                        [this](GraphWork& graph) { own(graph.waits); }, [](auto&) {}},
             work_.what);
}

}  // namespace openmps::worker
