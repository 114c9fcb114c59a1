// SPDX-License-Identifier: Apache-2.0
// See graph_launch.h.
#include "softgpu/device/issue/graph_launch.h"

#include <algorithm>

#include "softgpu/device/contexts/context.h"
#include "softgpu/device/contexts/stream.h"
#include "softgpu/device/driver.h"
#include "softgpu/device/graphs/capture.h"
#include "softgpu/device/graphs/graph_exec.h"
#include "softgpu/device/issue/event_issue.h"
#include "softgpu/device/issue/graph_run.h"
#include "softgpu/device/issue/make_operation.h"
#include "softgpu/device/schedule/scheduler.h"
#include "softgpu/device/work/event.h"
#include "softgpu/device/work/module.h"

namespace openmps::softgpu {
namespace {

bool launches_graphs(const GraphExec& exec) {
  return std::any_of(exec.steps.begin(), exec.steps.end(), [](const GraphStep& step) {
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

void note_visit_locked(ExecutionContext& context, const OperationPtr& end) {
  std::erase_if(context.visits, [](const OperationPtr& visit) { return visit->done; });
  context.visits.push_back(end);
}

struct MemoryNodes {
  std::vector<GraphBlockPtr> allocations;
  std::vector<uint64_t> frees;
};

// Bodies of conditional nodes have none (check_conditionals_locked).
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

}  // namespace

Status launch_graph(GraphExec& exec, Stream& stream) {
  Driver& driver = stream.context->driver();
  Scheduler& scheduler = driver.scheduler;
  scheduler.await_standstills(*stream.execution);
  scheduler.await_room(*stream.queue);
  const std::lock_guard exec_lock(exec.mutex);
  std::vector<std::shared_ptr<ExecutionContext>> others;
  OPENMPS_RETURN_IF_ERROR(find_others(exec.steps, *stream.execution, &others));
  for (const GraphExec::Step& step : exec.steps) {
    if (const auto* words = std::get_if<WordsWork>(&step.work)) {
      OPENMPS_RETURN_IF_ERROR(check_words(driver.address_space, *words));
    }
  }
  const MemoryNodes memory = memory_nodes(exec.steps);
  GraphMemory& graph_memory = driver.graph_memory;
  const bool frees_itself = (exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
  OPENMPS_RETURN_IF_ERROR(graph_memory.open(memory.allocations, frees_itself));

  std::vector<OperationPtr> operations;
  for (const GraphExec::Step& step : exec.steps) {
    operations.push_back(make_operation(work_at_launch(step), stream.execution, *stream.queue));
  }
  // Records of events count from now on; waits are for what was recorded before.
  std::vector<OperationPtr> waited(exec.steps.size());
  for (size_t i = 0; i < exec.steps.size(); ++i) {
    if (const auto* wait = std::get_if<WaitWork>(&exec.steps[i].work)) {
      waited[i] = last_record(*wait->event);
    }
  }
  for (size_t i = 0; i < exec.steps.size(); ++i) {
    if (const auto* record = std::get_if<RecordWork>(&exec.steps[i].work)) {
      set_record(*record->event, operations[i]);
    }
  }
  auto begin = std::make_shared<MarkerOperation>(stream.execution);
  begin->assigned = exec.conditions;
  auto end = std::make_shared<MarkerOperation>(stream.execution);
  end->unconnected = true;
  std::shared_ptr<MarkerOperation> graph_end;  // of one whose kernels launch graphs
  std::shared_ptr<GraphRun> run;
  if (launches_graphs(exec)) {
    auto around = std::make_shared<GraphRun>(driver, stream.execution, *stream.queue);
    run = std::make_shared<GraphRun>(around, exec.shared_from_this());
    end->graph_run = std::move(around);
    for (const OperationPtr& operation : operations) {
      if (operation->kind == OperationKind::kKernel) {
        run->adopt(static_cast<KernelOperation&>(*operation));
      }
    }
    graph_end = std::make_shared<MarkerOperation>(stream.execution);
    graph_end->graph_run = run;
  }
  exec.uploaded = true;

  graph_memory.use(memory.allocations, end);
  for (const uint64_t address : memory.frees) graph_memory.close(address, end);

  scheduler.together([&](Submission& submission) {
    for (const auto& other : others) note_visit_locked(*other, end);
    submission.submit(*stream.queue, begin, {&exec.last_launch, 1});
    for (size_t i = 0; i < operations.size(); ++i) {
      std::vector<OperationPtr> after;
      for (uint32_t index : exec.steps[i].after) after.push_back(operations[index]);
      if (after.empty()) after.push_back(begin);
      if (waited[i] != nullptr) after.push_back(waited[i]);
      operations[i]->stream_id = stream.queue->id;
      // Branches of a graph run side by side: each step goes to a hardware queue of its own.
      if (operations[i]->kind == OperationKind::kKernel) {
        static_cast<KernelOperation&>(*operations[i]).queue =
            operations[i]->context->take_queue_locked();
      }
      submission.submit_unordered(operations[i], after);
    }
    if (run != nullptr) {
      run->begin_locked();
      submission.submit_unordered(graph_end, operations);
      operations = {graph_end};
    }
    submission.submit(*stream.queue, end, operations);
  });
  exec.last_launch = end;
  return Status();
}

}  // namespace openmps::softgpu
