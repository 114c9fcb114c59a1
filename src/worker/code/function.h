// SPDX-License-Identifier: Apache-2.0
// The functions of modules and kernels of libraries: look-up by name with layout and attributes,
// changes of attributes, occupancy. The objects belong to Modules (module.h). Session's thread
// only.
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
  // As many whole names as the reply holds, from a number on.
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
  // Call f(CUfunction) with the function that the device's work uses, in its context.
  template <typename F>
  Status ask(Function& function, uint32_t device, const char* call, F&& f);
  void describe(Function& function, CUfunction handle, wire::GetFunction::Reply* facts,
                std::vector<wire::ParameterLayout>* layout);

  SessionCore& core_;
  Modules& modules_;
};

}  // namespace openmps::worker
