// SPDX-License-Identifier: Apache-2.0
// Where the interpreter and the compiled tier (tier/) meet. A kernel that has been compiled has a
// second Code: the same ops, of which those where machine code can be entered have a handler that
// does so. Machine code gives up at any op to the interpreter, which finds the registers in the
// same frame, and goes on behind an op that the interpreter ran from a state of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "softgpu/interp/warp.h"
#include "softgpu/ir/code.h"

namespace openmps::softgpu {

struct Block;

// Of one kernel; shared by the threads that run it.
class KernelTier {
 public:
  virtual ~KernelTier() = default;
  // What a block that is about to start runs; null: the kernel's own code.
  virtual const Code* choose(const Block& block) = 0;
  // A block has executed so many warp instructions more.
  virtual void count(const Block& block, uint64_t warp_instructions) = 0;
};

// What machine code gives back: an op's index, and what to do there.
enum class CompiledExit : uint32_t {
  kInterpret = 0,  // the interpreter runs the op
  kPoll = 1,       // others are to run before the warp goes on there
  kStopped = 2,    // the warp gives up the processor; its state says where it goes on, if it does
};
inline constexpr uint32_t kCompiledExitShift = 28;
inline constexpr uint32_t kCompiledOpMask = (1u << kCompiledExitShift) - 1;

// The start of a warp's state: where machine code goes on.
struct CompiledState {
  uint32_t resume_at = UINT32_MAX;  // op
  uint32_t resume = 0;              // number of the entry in the machine code
};

// What machine code calls. The order is part of the code that is kept on disk.
struct CompiledRuntime {
  uint32_t (*call_handler)(Warp* warp, uint32_t op);  // 0: stop
  uint32_t (*find_range)(Warp* warp, uint64_t begin, uint64_t end, uint32_t write, uint32_t slot);
  // Lanes that have parted go on in the interpreter: `places` has pairs of op and mask, of which
  // the first is where they meet.
  uint32_t (*part)(Warp* warp, const uint32_t* places, uint32_t count);
};

using CompiledFunction = uint32_t (*)(Warp* warp, std::byte* regs, std::byte* state,
                                      const CompiledRuntime* runtime, uint32_t entry);

struct CompiledKernel {
  CompiledFunction function = nullptr;
  uint32_t state_bytes = sizeof(CompiledState);
  std::vector<Handler> handlers;  // of all ops, the interpreter's
  std::vector<Op> single;         // each op, and behind it one that returns
};

extern const CompiledRuntime kCompiledRuntime;
// The handler of ops where machine code may be entered.
const Op* enter_compiled(const Op* op, Warp* warp, std::byte* regs, uint32_t mask);
// The handler behind an op that machine code has called.
const Op* return_to_compiled(const Op* op, Warp* warp, std::byte* regs, uint32_t mask);

}  // namespace openmps::softgpu
