// SPDX-License-Identifier: Apache-2.0
// A lowered function: what the interpreter runs. Made by ir::lower(), immutable, shared by all
// threads; addresses of globals are filled in per LinkedProgram (linked images).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "softgpu/ir/op.h"
#include "softgpu/ptx/ast.h"
#include "softgpu/ptx/device_calls.h"

namespace openmps::softgpu {

// What a frame holds besides PTX's special registers.
enum class FrameValue : uint8_t { kSpecial, kLocalBase, kDynamicShared };

struct SpecialSlot {
  FrameValue what = FrameValue::kSpecial;
  ptx::SpecialRegister special = ptx::SpecialRegister::kNone;
  int32_t offset = 0;  // in the frame
  uint32_t bytes = 4;
};

struct GlobalReference {  // a constant of 32 equal lanes: address of a global + addend
  int32_t offset = 0;
  uint32_t bytes = 8;  // of a lane
  int32_t global = 0;
  uint64_t addend = 0;
};

struct Argument {
  uint64_t offset = 0;  // in the frame's local memory
  uint64_t bytes = 0;
};

struct CallSite {
  int32_t callee = -1;              // function, or -1: indirect
  std::vector<Argument> arguments;  // in the caller's frame
  std::vector<Argument> results;
  ptx::DeviceCall device_call = ptx::DeviceCall::kNone;
};

// A place of the frame: 32 lanes of `bytes` each, or a predicate (0).
struct FrameSlot {
  int32_t offset = 0;
  uint32_t bytes = 4;
};

class KernelTier;
struct CompiledKernel;

struct Code {
  std::string name;
  int32_t function = 0;
  bool is_kernel = false;
  std::vector<Op> ops;
  std::vector<int32_t> extras;  // storage behind Op::extra
  std::vector<CallSite> call_sites;
  std::vector<std::vector<const Op*>> jump_tables;
  uint32_t frame_bytes = 0;
  std::vector<std::byte> image;             // start of every frame: flags and constants
  std::vector<GlobalReference> references;  // to be added into a copy of the image
  std::vector<SpecialSlot> specials;
  std::vector<FrameSlot> slots;   // of all values, by offset
  uint64_t local_bytes = 0;       // of one frame, of one lane
  std::vector<Argument> results;  // in this function's own frame
  std::vector<Argument> parameters;
  uint32_t registers = 0;  // 32-bit units live at once
  bool calls_indirectly = false;
  bool uses_grid_workspace = false;
  bool uses_reserved_shared = false;
  bool calls_runtime = false;    // the device's (ptx/device_calls.h)
  bool launches_graphs = false;  // or reads %current_graph_exec
  bool recursive = false;  // may call itself: how much stack that takes is not known beforehand
  std::vector<int32_t> callees;
  std::vector<std::string> unsupported;  // what the ops that stand for unsupported instructions say
  std::shared_ptr<KernelTier> tier;      // of a kernel that may be compiled (interp/compiled.h)
  const CompiledKernel* compiled = nullptr;  // its machine code, where these ops lead into that
};

}  // namespace openmps::softgpu
