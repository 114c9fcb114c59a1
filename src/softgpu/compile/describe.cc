// SPDX-License-Identifier: Apache-2.0
// See describe.h.
#include "softgpu/compile/describe.h"

#include <algorithm>
#include <cstdio>
#include <string>

namespace openmps::softgpu {
namespace {

// What occupancy uses when a kernel needs next to nothing, and the architecture's maximum.
constexpr uint32_t kMinRegisters = 16;
constexpr uint32_t kMaxRegisters = 255;
constexpr uint32_t kMaxThreadsPerBlock = 1024;
constexpr uint32_t kRegistersPerSm = 64 * 1024;
// ptxas hands registers out in these units.
constexpr uint32_t kRegisterStep = 8;
// A limit that ptxas enforces since PTX 8.1.
constexpr uint64_t kMaxParameterBytes = 32764;

// The threads of a block, at most `limit`: an image may ask for more than 2^32.
uint32_t product_up_to(const uint32_t (&sizes)[3], uint32_t limit) {
  uint64_t product = 1;
  for (const uint32_t size : sizes) product = std::min<uint64_t>(product * size, limit);
  return static_cast<uint32_t>(product);
}

// What ptxas would leave each thread at most: .maxnreg, and so few that the blocks that the
// directives speak of fit a multiprocessor. Without directives that is the largest block there is.
uint32_t register_limit(const ptx::Function& function) {
  const bool bounded = function.max_threads[0] != 0 || function.required_threads[0] != 0;
  uint64_t threads = kMaxThreadsPerBlock;
  if (bounded) {
    threads = product_up_to(
        function.max_threads[0] != 0 ? function.max_threads : function.required_threads,
        kRegistersPerSm);
  }
  if (bounded && function.min_blocks > 1) {
    threads = std::min<uint64_t>(threads * function.min_blocks, kRegistersPerSm);
  }
  uint64_t limit = kRegistersPerSm / std::max<uint64_t>(threads, 1) / kRegisterStep * kRegisterStep;
  if (function.max_registers != 0) limit = std::min<uint64_t>(limit, function.max_registers);
  return static_cast<uint32_t>(std::clamp<uint64_t>(limit, kMinRegisters, kMaxRegisters));
}

// Empty, or what ptxas would say of a kernel with that much of `what`.
std::string beyond_limit(const std::string& kernel, const char* what, uint64_t bytes,
                         uint64_t most) {
  if (bytes <= most) return "";
  char text[128];
  std::snprintf(text, sizeof text, "' uses too much %s (0x%llx bytes, 0x%llx max)", what,
                static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(most));
  return "ptxas error   : Entry function '" + kernel + text;
}

}  // namespace

// What is left when those whose calls all end are taken away, again and again, and then those that
// nobody left calls.
std::vector<bool> recursive_functions(const std::vector<std::vector<int32_t>>& callees) {
  const size_t count = callees.size();
  std::vector<std::vector<int32_t>> callers(count);
  for (size_t i = 0; i < count; ++i) {
    for (const int32_t callee : callees[i]) {
      callers[static_cast<size_t>(callee)].push_back(static_cast<int32_t>(i));
    }
  }
  std::vector<bool> left(count, true);
  const auto peel = [&](const auto& ahead, const auto& behind) {
    std::vector<size_t> open(count), ready;
    for (size_t i = 0; i < count; ++i) {
      for (const int32_t next : ahead[i]) open[i] += left[static_cast<size_t>(next)] ? 1 : 0;
      if (left[i] && open[i] == 0) ready.push_back(i);
    }
    while (!ready.empty()) {
      const size_t at = ready.back();
      ready.pop_back();
      left[at] = false;
      for (const int32_t next : behind[at]) {
        const auto to = static_cast<size_t>(next);
        if (left[to] && --open[to] == 0) ready.push_back(to);
      }
    }
  };
  peel(callees, callers);
  peel(callers, callees);
  return left;
}

void walk_calls(int32_t function, size_t functions,
                const std::function<const Code*(int32_t)>& code_of,
                const std::function<void(const Code&)>& visit) {
  std::vector<bool> seen(functions);
  std::vector<int32_t> open = {function};
  while (!open.empty()) {
    const int32_t at = open.back();
    open.pop_back();
    if (seen[static_cast<size_t>(at)]) continue;
    seen[static_cast<size_t>(at)] = true;
    const Code* code = code_of(at);
    if (code == nullptr) continue;
    visit(*code);
    open.insert(open.end(), code->callees.begin(), code->callees.end());
  }
}

KernelInfo describe_signature(const ptx::Function& function, uint64_t shared_bytes,
                              uint64_t max_shared_bytes) {
  KernelInfo info;
  info.name = function.name;
  uint64_t end = 0;
  for (const ptx::Variable& parameter : function.prototype.parameters) {
    const uint64_t at = (end + parameter.alignment - 1) & ~uint64_t{parameter.alignment - 1};
    info.parameters.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(parameter.bytes)});
    end = at + parameter.bytes;
  }
  info.parameter_bytes = static_cast<uint32_t>(end);
  info.static_shared_bytes = static_cast<uint32_t>(shared_bytes);
  info.unusable = beyond_limit(function.name, "shared data", shared_bytes, max_shared_bytes);
  if (info.unusable.empty()) {
    info.unusable = beyond_limit(function.name, "parameter space", end, kMaxParameterBytes);
  }
  for (int i = 0; i < 3; ++i) {
    info.required_block[i] = function.required_threads[i];
    info.required_cluster[i] = function.required_cluster[i];
  }
  info.max_cluster_blocks = function.max_cluster_blocks;
  info.explicit_cluster = function.explicit_cluster;
  if (function.max_threads[0]) {
    info.max_threads = product_up_to(function.max_threads, kMaxThreadsPerBlock);
  }
  return info;
}

void add_reached(const Code& reached, bool any_runtime, KernelInfo* info, uint64_t* local_bytes) {
  *local_bytes += reached.local_bytes;
  info->registers = std::max(info->registers, reached.registers);
  info->uses_cooperative_groups |= reached.uses_grid_workspace;
  info->uses_reserved_shared |= reached.uses_reserved_shared;
  info->launches_graphs |= reached.launches_graphs;
  // What is called indirectly may be any function of the program.
  info->launches_kernels |= reached.calls_runtime || (reached.calls_indirectly && any_runtime);
}

void finish_description(const ptx::Function& function, uint64_t local_bytes, KernelInfo* info) {
  info->local_bytes = static_cast<uint32_t>(std::min<uint64_t>(local_bytes, UINT32_MAX));
  info->registers = std::clamp(info->registers, kMinRegisters, register_limit(function));
}

}  // namespace openmps::softgpu
