// SPDX-License-Identifier: Apache-2.0
// The functions of modules and kernels of libraries: names, look-up with layout and attributes,
// attributes, occupancy. They belong to Modules (module.h). Session's thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "wire/codec.h"
#include "worker/code/module.h"
#include "worker/core/reply_writer.h"
#include "worker/core/session_core.h"
#include "worker/streams/green.h"

namespace openmps::worker {

class Functions {
 public:
  Functions(SessionCore& core, Modules& modules) : core_(core), modules_(modules) {}

  Status handle(const wire::GetFunction& command, Module& module,
                const wire::GetFunction::Tail& tail, ReplyTo<wire::GetFunction> reply);
  // Whole names, from a number on, as many as the reply holds.
  Status handle(const wire::ModuleFunctions& command, Module& module,
                ReplyTo<wire::ModuleFunctions> reply);
  Status handle(const wire::FunctionSetAttribute& command, Function& function);
  Status handle(const wire::FunctionGetAttribute& command, Function& function,
                ReplyTo<wire::FunctionGetAttribute> reply);
  Status handle(const wire::Occupancy& command, Function& function, ReplyTo<wire::Occupancy> reply);
  Status handle(const wire::SharedMemoryRoom& command, Function& function,
                ReplyTo<wire::SharedMemoryRoom> reply);
  Status handle(const wire::ClusterOccupancy& command, Function& function, ClientGreen* green,
                const wire::ClusterOccupancy::Tail& tail, ReplyTo<wire::ClusterOccupancy> reply);

 private:
  // f(CUfunction) where work of the device would find it, in that context.
  template <typename F>
  Status ask(Function& function, uint32_t device, const char* call, F&& f);
  void describe(Function& function, CUfunction handle, wire::GetFunction::Reply* facts,
                std::vector<wire::ParameterLayout>* layout);

  SessionCore& core_;
  Modules& modules_;
};

}  // namespace openmps::worker
