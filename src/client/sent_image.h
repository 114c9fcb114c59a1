// SPDX-License-Identifier: Apache-2.0
// An image as it travels to the worker: the containers one behind the other, each without the code
// that none of the program's devices can run. CUDA's libraries bring code for six to ten
// architectures, of which a device runs one: a fifth of their bytes. Refers to the image, which
// must stay readable. Any thread.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "client/image.h"

namespace openmps::client {

class SentImage {
 public:
  // `capabilities`: 10 * major + minor of the devices that are to run it; none: all of it travels,
  // as what can't be read and what none of them runs does: whatever is wrong with it is the
  // driver's to say. So does a linked program whose linked code one of them doesn't run: the driver
  // links it anew.
  // `forces_ptx`: machine code does not travel where there is PTX that they run
  // (CUDA_FORCE_PTX_JIT); a linked program's does.
  explicit SentImage(const Image& image, std::span<const uint32_t> capabilities = {},
                     bool forces_ptx = false);
  SentImage(const SentImage&) = delete;
  SentImage& operator=(const SentImage&) = delete;

  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  [[nodiscard]] bool is_whole() const { return headers_.empty(); }
  // Writes `count` bytes of it, from `offset` on.
  void copy(uint64_t offset, uint64_t count, unsigned char* target) const;

 private:
  struct Run {
    uint64_t start;
    cuda::Bytes bytes;
  };
  void add(cuda::Bytes bytes);
  void add_container(cuda::Bytes container, std::span<const uint32_t> capabilities,
                     bool forces_ptx = false);

  std::vector<Run> runs_;                      // in their order; between them zeros
  std::deque<cuda::ContainerHeader> headers_;  // of containers without some of their code
  uint64_t bytes_ = 0;
};

// Whether CUDA_FORCE_PTX_JIT and CUDA_DISABLE_PTX_JIT leave code of the image that one of the
// devices runs. Errors: those of check_code() (base/program_switches.h).
[[nodiscard]] CUresult check_code_of(const Image& image, std::span<const uint32_t> capabilities);

}  // namespace openmps::client
