// SPDX-License-Identifier: Apache-2.0
// The fake engine's kernels, as tests launch them.
#pragma once

#include <cstdint>

namespace openmps::softgpu::testing {

// The image that the fake engine compiles. Its kernels all take FakeParameters:
//   "run"        carries out the action
//   "wide"       carries it out, with 64 KiB of static shared memory: three blocks fill an SM
//   "unusable"   is beyond a limit
//   "another"    as "run"
// and it has a variable "counter" of 4 bytes.
inline constexpr char kFakeImage[] = "fake image";
// No compiler takes it.
inline constexpr char kFakeMachineCode[] = "machine code";

enum class FakeAction : uint64_t {
  kNothing,
  kAdd,       // add `value` to the 32-bit word at `address`, atomically
  kWait,      // run until the 32-bit word at `address` is at least `value`
  kFault,     // fault with the code `value`
  kPrint,     // device printf of "hello\n"
  kRecordSm,  // store the SM's number + 1 in the 32-bit array at `address`, by block
  kGridSync,  // add 1 to the word at `address`, run until it is `value`; check the workspace
  kCount,     // `value` warp instructions
  kAllocate,  // malloc of `value` bytes; add 1 to the word at `address` if it gives some
  kTexture,   // add 1 to the word at `address` if `value` is a texture object
  kSurface,   // or a surface object
};

struct FakeParameters {
  FakeAction action = FakeAction::kNothing;
  uint64_t address = 0;
  uint64_t value = 0;
};

}  // namespace openmps::softgpu::testing
