// SPDX-License-Identifier: Apache-2.0
// The cases of the conformance comparison: one PTX instruction (or a few that belong together) per
// case, with the kind of its inputs and what it writes. Tables only; kernels.cc makes kernels of
// them. The rows with registers only are in cases.cc, those with memory in a file for each family.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace conformance {

// The kind of the inputs: each mixes values that are special for its type with random bits.
enum class Inputs { kInteger, kShift, kF32, kF64, kF16, kBF16, kFP8, kCollective, kMatrix, kTile };

struct Case {
  Inputs inputs = Inputs::kInteger;
  // The register that holds the result: %r (32 bits), %q (64), %h (16), %p (predicate); or several:
  // %rs is %r0 to %r7, %qs is %q0 to %q3; of matrices all of %d0.. (32 bits) or %e0.. (64).
  std::string result;
  // Inputs are %a %b %c (32 bits), the same numbers as %ha .. (16) and %wa .. (64), and %pa, a bit.
  std::string code;
  int matrix_registers = 0;  // results of a matrix case
  // The numbers of a matrix case: of similar size, of any size, or with infinities and NaNs.
  enum class Spread { kNear, kWide, kSpecial } spread = Spread::kNear;
  uint32_t threads = 32;  // per block
  uint32_t cluster = 1;   // blocks per cluster
  // Whether the kernel has memory with the thread's inputs, which are 16 words then; see kernels.cc
  // for the names.
  bool memory = false;
  std::string factor = {}, sum = {};  // types of the elements of tiles
  struct Tensor {
    int rank = 0;  // 0: the kernel gets no tensor
    bool im2col = false;
    int swizzle = 0;     // bytes
    bool whole = false;  // im2col without a filter
  };
  Tensor tensor = {};  // see tensor.h
  struct Image {
    std::string shape = {}, format = {};  // as in opcodes; "": the kernel gets no image
    bool normalized = false;              // the coordinates are normalized
  };
  Image image = {};  // see image.h
  // The case's code, or the opcode of a matrix case.
  [[nodiscard]] std::string title() const;
  // The case's name in the recording.
  [[nodiscard]] std::string name() const;
};

const std::vector<Case>& cases();

}  // namespace conformance
