// SPDX-License-Identifier: Apache-2.0
// Graphs that kernels launch. Each launch of a graph runs in an environment; what its kernels
// launch in it ends before it does, and at last, one after the other, what they left for its tail.
// Workers call from inside the engine; the rest is called under the Scheduler's mutex.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "softgpu/device/graphs/graph_exec.h"
#include "softgpu/device/graphs/graph_steps.h"
#include "softgpu/device/schedule/execution_context.h"
#include "softgpu/device/schedule/operation.h"

namespace openmps::softgpu {

class Driver;
class Submission;

// One environment.
class GraphRun final : public GraphLaunches,
                       public Offspring,
                       public std::enable_shared_from_this<GraphRun> {
 public:
  // Of the stream in which the host launches a graph: there is none around it.
  GraphRun(Driver& driver, std::shared_ptr<ExecutionContext> execution, const StreamQueue& stream,
           const WorkOrigin& origin);
  // Of `exec`, inside of `parent`.
  GraphRun(const std::shared_ptr<GraphRun>& parent, std::shared_ptr<GraphExec> exec);

  // By a kernel of it. CUDA_ERROR_INVALID_VALUE: not for launches by the device, not uploaded, of
  // another context, or running or waiting already.
  CUresult launch_graph(uint64_t graph, uint64_t how) override;
  uint64_t current_graph() override;

  // The kernel launches graphs in this environment.
  void adopt(KernelOperation& kernel);
  // The host launches the graph.
  void begin_locked() REQUIRES(scheduler_mutex);
  // Of `end`, behind everything in it.
  [[nodiscard]] bool finish(Submission& submission, const OperationPtr& end) override
      REQUIRES(scheduler_mutex);

 private:
  struct Launched {
    std::shared_ptr<GraphRun> run;
    std::vector<LateOperation> operations;
    std::shared_ptr<MarkerOperation> end;
  };
  Result<Launched> prepare(const std::shared_ptr<GraphExec>& exec, bool tail);
  static void submit(Submission& submission, Launched& launched) REQUIRES(scheduler_mutex);
  void take_tails_locked(std::deque<Launched>& tails) REQUIRES(scheduler_mutex);

  Driver& driver_;
  const std::shared_ptr<ExecutionContext> execution_;
  StreamQueue stream_;
  WorkOrigin origin_;
  const std::shared_ptr<GraphRun> parent_;
  const std::shared_ptr<GraphExec> exec_;  // null: a stream's
  std::weak_ptr<GraphRun> tail_of_;        // the environment whose tail launch this is

  // Ends of the environments inside of this one.
  std::vector<OperationPtr> running_ GUARDED_BY(scheduler_mutex);
  std::deque<Launched> tails_ GUARDED_BY(scheduler_mutex);
};

}  // namespace openmps::softgpu
