// SPDX-License-Identifier: Apache-2.0
// What a program's kernels are like, for the model: by their signatures and directives, and by the
// code that they reach. Used by compile() and for functions that are compiled later (lazy_code.h);
// any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "softgpu/ir/code.h"
#include "softgpu/ir/program.h"
#include "softgpu/ptx/ast.h"

namespace openmps::softgpu {

// The functions that may call themselves, of a program whose functions call these.
std::vector<bool> recursive_functions(const std::vector<std::vector<int32_t>>& callees);

// Calls visit(code) for every function that `function` may reach by direct calls, itself included,
// once. `code_of`: by index; null: there is none.
void walk_calls(int32_t function, size_t functions,
                const std::function<const Code*(int32_t)>& code_of,
                const std::function<void(const Code&)>& visit);

// By the signature and directives alone.
KernelInfo describe_signature(const ptx::Function& function, uint64_t shared_bytes,
                              uint64_t max_shared_bytes);

// Adds one function that the kernel reaches. `any_runtime`: some function of the program calls the
// device's run time.
void add_reached(const Code& reached, bool any_runtime, KernelInfo* info, uint64_t* local_bytes);
// When all have been added.
void finish_description(const ptx::Function& function, uint64_t local_bytes, KernelInfo* info);

}  // namespace openmps::softgpu
