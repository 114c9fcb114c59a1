// SPDX-License-Identifier: Apache-2.0
// A piece of held work: a copy of all that it points to, and shares of the code and the objects
// that it uses. Session's thread only.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "worker/work/work.h"

namespace openmps::worker {

class HeldWork {
 public:
  // `work` is as WorkMaker has made it. Throws std::bad_alloc.
  explicit HeldWork(const Work& work);
  HeldWork(const HeldWork&) = delete;
  HeldWork& operator=(const HeldWork&) = delete;

  [[nodiscard]] const Work& work() const { return work_; }
  // Bytes allocated outside of this object.
  [[nodiscard]] size_t bytes() const { return outside_bytes_; }

 private:
  // More than the parameters of most kernels.
  static constexpr size_t kBytesInside = 512;

  template <typename... T>
  void own(std::span<const T>&... parts);

  Work work_;
  std::shared_ptr<const Function> function_;
  alignas(std::max_align_t) std::array<unsigned char, kBytesInside> inside_;
  std::unique_ptr<unsigned char[]> outside_;  // for more than that
  size_t outside_bytes_ = 0;
};

}  // namespace openmps::worker
