// SPDX-License-Identifier: Apache-2.0
// See graph_launch.h.
#include "softgpu/device/issue/graph_launch.h"

#include <algorithm>
#include <utility>

#include "softgpu/device/contexts/context.h"
#include "softgpu/device/contexts/stream.h"
#include "softgpu/device/driver.h"
#include "softgpu/device/graphs/capture.h"
#include "softgpu/device/graphs/graph_exec.h"
#include "softgpu/device/issue/event_issue.h"
#include "softgpu/device/issue/graph_run.h"
#include "softgpu/device/issue/issue.h"
#include "softgpu/device/issue/make_operation.h"
#include "softgpu/device/schedule/scheduler.h"
#include "softgpu/device/work/event.h"
#include "softgpu/device/work/module.h"

namespace openmps::softgpu {
namespace {

bool launches_graphs(const std::vector<GraphStep>& steps) {
  return std::any_of(steps.begin(), steps.end(), [](const GraphStep& step) {
    const auto* launch = std::get_if<LaunchWork>(&step.work);
    return launch != nullptr && launch->function->info->launches_graphs;
  });
}

// Contexts but the stream's whose kernels the steps run.
Status find_others(const std::vector<GraphStep>& steps, const ExecutionContext& own,
                   std::vector<std::shared_ptr<ExecutionContext>>* others) {
  for (const GraphStep& step : steps) {
    if (const auto* conditional = std::get_if<ConditionalWork>(&step.work)) {
      for (const auto& body : conditional->bodies) {
        OPENMPS_RETURN_IF_ERROR(find_others(*body, own, others));
      }
    }
    const auto* launch = std::get_if<LaunchWork>(&step.work);
    if (launch == nullptr || launch->function->module->execution.get() == &own) continue;
    const Module& module = *launch->function->module;
    if (module.context->execution() != module.execution) {
      return Status(CUDA_ERROR_CONTEXT_IS_DESTROYED, "a kernel's context was destroyed");
    }
    if (std::find(others->begin(), others->end(), module.execution) == others->end()) {
      others->push_back(module.execution);
    }
  }
  return Status();
}

void note_visit_locked(ExecutionContext& context, const OperationPtr& end)
    REQUIRES(scheduler_mutex) {
  std::erase_if(context.visits,
                [](const OperationPtr& visit) REQUIRES(scheduler_mutex) { return visit->done; });
  context.visits.push_back(end);
}

struct MemoryNodes {
  std::vector<GraphBlockPtr> allocations;
  std::vector<uint64_t> frees;
};

// The bodies of conditional nodes allocate and free nothing (check_conditionals_locked).
MemoryNodes memory_nodes(const std::vector<GraphStep>& steps) {
  MemoryNodes nodes;
  for (const GraphStep& step : steps) {
    if (const auto* allocation = std::get_if<AllocationWork>(&step.work)) {
      nodes.allocations.push_back(allocation->block);
    }
    if (const auto* free = std::get_if<GraphFreeWork>(&step.work)) {
      nodes.frees.push_back(free->address);
    }
  }
  return nodes;
}

// One launch of an executable graph: an operation for each step, between two markers.
struct LaunchOperations {
  std::vector<OperationPtr> steps;
  std::vector<OperationPtr> waited;  // by step: the record of an event that the step waits for
  std::shared_ptr<MarkerOperation> begin;
  std::shared_ptr<MarkerOperation> end;
  // Null unless kernels of the graph launch graphs.
  std::shared_ptr<GraphRun> run;
  std::shared_ptr<MarkerOperation> run_end;
};

// Records of events count from now on; waits are for what was recorded before.
void make_steps(const std::vector<GraphStep>& steps, Stream& stream, const WorkOrigin& origin,
                LaunchOperations* launch) {
  for (const GraphStep& step : steps) {
    launch->steps.push_back(make_operation(work_at_launch(step), stream.execution, *stream.queue,
                                           origin_of(step, origin)));
    const auto* wait = std::get_if<WaitWork>(&step.work);
    launch->waited.push_back(wait == nullptr ? nullptr : last_record(*wait->event));
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    if (const auto* record = std::get_if<RecordWork>(&steps[i].work)) {
      set_record(*record->event, launch->steps[i]);
    }
  }
}

void make_run(Driver& driver, const std::shared_ptr<GraphExec>& exec, const Stream& stream,
              const WorkOrigin& origin, LaunchOperations* launch) {
  auto around = std::make_shared<GraphRun>(driver, stream.execution, *stream.queue, origin);
  launch->run = std::make_shared<GraphRun>(around, exec);
  launch->end->graph_run = std::move(around);
  for (const OperationPtr& operation : launch->steps) {
    if (operation->kind == OperationKind::kKernel) {
      launch->run->adopt(static_cast<KernelOperation&>(*operation));
    }
  }
  launch->run_end = std::make_shared<MarkerOperation>(stream.execution);
  launch->run_end->graph_run = launch->run;
}

void submit_locked(Submission& submission, const LaunchOperations& launch,
                   const std::vector<GraphStep>& steps, StreamQueue& queue,
                   const OperationPtr& last_launch) REQUIRES(scheduler_mutex) {
  submission.submit(queue, launch.begin, {&last_launch, 1});
  for (size_t i = 0; i < steps.size(); ++i) {
    std::vector<OperationPtr> after;
    for (uint32_t index : steps[i].after) after.push_back(launch.steps[index]);
    if (after.empty()) after.push_back(launch.begin);
    if (launch.waited[i] != nullptr) after.push_back(launch.waited[i]);
    const OperationPtr& operation = launch.steps[i];
    operation->stream_id = queue.id;
    // Branches of a graph run side by side: each step goes to a hardware queue of its own.
    if (operation->kind == OperationKind::kKernel) {
      static_cast<KernelOperation&>(*operation).queue = operation->context->take_queue_locked();
    }
    submission.submit_unordered(operation, after);
  }
  if (launch.run == nullptr) {
    submission.submit(queue, launch.end, launch.steps);
    return;
  }
  launch.run->begin_locked();
  submission.submit_unordered(launch.run_end, launch.steps);
  const OperationPtr run_end = launch.run_end;
  submission.submit(queue, launch.end, {&run_end, 1});
}

Status launch_locked(GraphExec& exec, const std::vector<GraphStep>& steps, Stream& stream)
    REQUIRES(exec.mutex) {
  Driver& driver = stream.context->driver();
  std::vector<std::shared_ptr<ExecutionContext>> others;
  OPENMPS_RETURN_IF_ERROR(find_others(steps, *stream.execution, &others));
  for (const GraphStep& step : steps) {
    if (const auto* words = std::get_if<WordsWork>(&step.work)) {
      OPENMPS_RETURN_IF_ERROR(check_words(driver.address_space, *words));
    }
  }
  const MemoryNodes memory = memory_nodes(steps);
  const bool frees_itself = (exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
  OPENMPS_RETURN_IF_ERROR(driver.graph_memory.open(memory.allocations, frees_itself));

  LaunchOperations launch;
  WorkOrigin origin = give_work(stream);
  origin.graph = static_cast<uint32_t>(exec.id);
  make_steps(steps, stream, origin, &launch);
  launch.begin = std::make_shared<MarkerOperation>(stream.execution);
  launch.begin->assigned = exec.conditions;
  launch.end = std::make_shared<MarkerOperation>(stream.execution);
  launch.end->unconnected = true;
  if (launches_graphs(steps)) {
    make_run(driver, exec.shared_from_this(), stream, origin, &launch);
  }
  exec.uploaded = true;
  driver.graph_memory.use(memory.allocations, launch.end);
  for (const uint64_t address : memory.frees) driver.graph_memory.close(address, launch.end);

  const OperationPtr last_launch = std::exchange(exec.last_launch, launch.end);
  driver.scheduler.together([&](Submission& submission) REQUIRES(scheduler_mutex) {
    for (const auto& other : others) note_visit_locked(*other, launch.end);
    submit_locked(submission, launch, steps, *stream.queue, last_launch);
  });
  return Status();
}

}  // namespace

Status launch_graph(GraphExec& exec, Stream& stream) {
  Scheduler& scheduler = stream.context->driver().scheduler;
  scheduler.await_launches_allowed(*stream.execution);
  scheduler.await_submission(*stream.queue);
  const MutexLock lock(exec.mutex);
  return launch_locked(exec, exec.steps, stream);
}

}  // namespace openmps::softgpu
