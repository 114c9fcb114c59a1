// SPDX-License-Identifier: Apache-2.0
// A session's side of KernelOutput: which launches may print or assert, and the client's request
// for what was printed. Session's thread only.
#pragma once

#include <atomic>
#include <utility>

#include "wire/commands/device.h"
#include "worker/code/module.h"
#include "worker/core/reply_writer.h"
#include "worker/core/session_core.h"
#include "worker/printing/kernel_output.h"

namespace openmps::worker {

class Prints {
 public:
  Prints(SessionCore& core, KernelOutput& output, Modules& modules, const std::atomic<bool>& stop)
      : core_(core), output_(output), modules_(modules), stop_(stop) {}

  // Around a launch: wait for the session's turn if the kernel may print, and mark the kernel's
  // end.
  void before_launch(Function& function) {
    if (!function.prints && !function.asserts) [[likely]] {
      return;
    }
    prepare(function);
  }
  // `launched`: the result of the launch, which is returned unless marking fails.
  Status after_launch(const Function& function, Status launched, CUstream stream, uint32_t device) {
    return function.prints ? finish(std::move(launched), stream, device) : launched;
  }
  // Around the launch of a graph, which may hold any kernel of the session.
  void before_graph();
  [[nodiscard]] bool marks_graphs() const { return modules_.any_prints(); }
  Status after_graph(Status launched, CUstream stream, uint32_t device) {
    return marks_graphs() ? finish(std::move(launched), stream, device) : launched;
  }

  Status handle(const wire::OutputFlush& command, ReplyTo<wire::OutputFlush> reply);
  void release_all() { output_.remove(client_); }

 private:
  void prepare(Function& function);
  void join();
  Status finish(Status launched, CUstream stream, uint32_t device);

  SessionCore& core_;
  KernelOutput& output_;
  Modules& modules_;
  const std::atomic<bool>& stop_;
  KernelOutput::Client client_;
};

}  // namespace openmps::worker
