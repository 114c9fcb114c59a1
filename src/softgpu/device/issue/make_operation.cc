// SPDX-License-Identifier: Apache-2.0
// See make_operation.h.
#include "softgpu/device/issue/make_operation.h"

#include <algorithm>

#include "softgpu/device/contexts/context.h"
#include "softgpu/device/driver.h"
#include "softgpu/device/graphs/graph_steps.h"
#include "softgpu/device/work/event.h"
#include "softgpu/device/work/module.h"
#include "softgpu/device/work/nested_launches.h"

namespace openmps::softgpu {
namespace {

using cupti::ActivityKind;
using cupti::MemoryKind;

using Execution = std::shared_ptr<ExecutionContext>;

bool is_on_device(MemoryKind kind) {
  return kind == MemoryKind::kDevice || kind == MemoryKind::kArray;
}

// Between two devices the activity's device is the source's, and its peer the destination's.
void describe(const CopyWork& work, cupti::Activity& activity) {
  activity.bytes = work.shape.width * work.shape.height * work.shape.depth;
  activity.from = work.source.kind;
  activity.to = work.destination.kind;
  if (!is_on_device(activity.from) || !is_on_device(activity.to)) return;
  if (work.source.device == work.destination.device) return;
  activity.is_peer = 1;
  activity.device = static_cast<uint32_t>(work.source.device);
  activity.peer = static_cast<uint32_t>(work.destination.device);
}

void describe(const FillWork& work, cupti::Activity& activity) {
  activity.bytes = work.shape.width * work.shape.element * work.shape.height;
  activity.value = work.shape.value;
  activity.to = work.destination;
}

void describe(const LaunchWork& work, cupti::Activity& activity) {
  std::copy(work.grid.begin(), work.grid.end(), activity.grid);
  std::copy(work.block.begin(), work.block.end(), activity.block);
  const KernelInfo& info = *work.function->info;
  activity.registers = info.registers;
  activity.static_shared_bytes = info.static_shared_bytes;
  activity.dynamic_shared_bytes = work.dynamic_shared_bytes;
  activity.local_bytes = info.local_bytes;
}

// 256 bytes, zeroed: the size word and the barrier counter of a grid-wide synchronisation live in
// it.
constexpr size_t kWorkspaceWords = 32;

OperationPtr make(const MarkerWork& work, const Execution& execution, const StreamQueue&,
                  const WorkOrigin&) {
  auto marker = std::make_shared<MarkerOperation>(execution);
  marker->unconnected = work.is_free;
  return marker;
}

OperationPtr make(const RecordWork& work, const Execution& execution, const StreamQueue& stream,
                  const WorkOrigin&) {
  return make_operation(record_work(*work.event), execution, stream);
}

OperationPtr make(const WaitWork& work, const Execution& execution, const StreamQueue& stream,
                  const WorkOrigin&) {
  return make_operation(wait_work(*work.event), execution, stream);
}

// What is allocated is there for the life of the graph: GraphMemory counts at the launch.
OperationPtr make(const AllocationWork&, const Execution& execution, const StreamQueue&,
                  const WorkOrigin&) {
  return std::make_shared<MarkerOperation>(execution);
}

OperationPtr make(const GraphFreeWork&, const Execution& execution, const StreamQueue&,
                  const WorkOrigin&) {
  return std::make_shared<MarkerOperation>(execution);
}

OperationPtr make(const FreeWork& work, const Execution& execution, const StreamQueue&,
                  const WorkOrigin&) {
  auto operation = std::make_shared<MarkerOperation>(execution);
  operation->freed_address = work.address;
  return operation;
}

OperationPtr make(const CopyWork& work, const Execution& execution, const StreamQueue& stream,
                  const WorkOrigin& origin) {
  auto operation = std::make_shared<CopyOperation>(execution);
  operation->work = work.shape;
  operation->staged = work.staged;
  operation->check_source = work.check_source;
  operation->check_destination = work.check_destination;
  operation->engine = work.engine;
  operation->inline_execution = work.inline_execution;
  operation->record = make_record(origin, ActivityKind::kCopy, execution->device, stream.id);
  if (operation->record != nullptr) describe(work, operation->record->activity);
  return operation;
}

OperationPtr make(const FillWork& work, const Execution& execution, const StreamQueue& stream,
                  const WorkOrigin& origin) {
  auto operation = std::make_shared<CopyOperation>(execution);
  operation->work = work.shape;
  operation->inline_execution = work.inline_execution;
  operation->record = make_record(origin, ActivityKind::kFill, execution->device, stream.id);
  if (operation->record != nullptr) describe(work, operation->record->activity);
  return operation;
}

OperationPtr make(const HostWork& work, const Execution& execution, const StreamQueue&,
                  const WorkOrigin&) {
  auto operation = std::make_shared<HostOperation>(execution);
  operation->function = work.function;
  operation->callback = work.callback;
  operation->stream = work.stream;
  operation->user_data = work.user_data;
  return operation;
}

OperationPtr make(const WordsWork& work, const Execution& execution, const StreamQueue&,
                  const WorkOrigin&) {
  auto operation = std::make_shared<MemoryWordsOperation>(execution);
  operation->actions = work.actions;
  operation->kept = work.kept;
  return operation;
}

OperationPtr make(const ConditionalWork& work, const Execution& execution,
                  const StreamQueue& stream, const WorkOrigin& origin) {
  return make_conditional(work, execution, stream, origin, make_operation);
}

OperationPtr make(const LaunchWork& work, const Execution& streams, const StreamQueue& stream,
                  const WorkOrigin& origin) {
  const Function& function = *work.function;
  const Execution& execution = function.module->execution;
  auto operation = std::make_shared<KernelOperation>(execution);
  Driver& driver = function.module->context->driver();
  const SmLimits limits = sm_limits(driver.config.compute_capability);

  Launch& launch = operation->launch;
  launch.program = function.module->linked;
  launch.kernel = function.index;
  std::copy(work.grid.begin(), work.grid.end(), launch.grid);
  std::copy(work.block.begin(), work.block.end(), launch.block);
  std::copy(work.cluster.begin(), work.cluster.end(), launch.cluster);
  launch.explicit_cluster = work.explicit_cluster;
  launch.dynamic_shared_bytes = work.dynamic_shared_bytes;
  launch.parameters = work.parameters;
  launch.sm_count = driver.config.sm_count;
  launch.memory = &driver.address_space;
  launch.services = execution.get();

  if (function.info->launches_kernels) {
    auto nested = std::make_shared<GridLaunches>(
        driver.scheduler, driver.config, driver.address_space, function.module, execution, stream,
        work.place.sms, origin.without_node(), make_operation);
    launch.nested = nested.get();
    operation->nested = std::move(nested);
  }

  operation->device_node = work.device_node;
  operation->name = function.info->name;
  operation->demand = block_demand(
      limits, work.block[0] * work.block[1] * work.block[2], function.info->registers,
      static_cast<uint64_t>(function.info->static_shared_bytes) + work.dynamic_shared_bytes);
  operation->sms = work.place.sms;
  operation->queue = stream.queue;
  operation->level = stream.level;
  if (work.has_priority) {
    operation->level =
        static_cast<uint32_t>(std::clamp(work.priority, kGreatestPriority, 0) - kGreatestPriority);
  }
  operation->cluster_blocks = work.cluster[0] * work.cluster[1] * work.cluster[2];
  operation->cluster_count =
      static_cast<uint64_t>(work.grid[0]) * work.grid[1] * work.grid[2] / operation->cluster_blocks;
  operation->record =
      make_record(origin, ActivityKind::kKernel, execution->device, stream.id, function.info->name);
  if (operation->record != nullptr) {
    describe(work, operation->record->activity);
    if (execution != streams) {
      operation->record->activity.context =
          static_cast<uint32_t>(context_number(*function.module->context, *execution));
    }
  }
  operation->cooperative = work.cooperative;
  if (work.cooperative) {
    operation->workspace.assign(kWorkspaceWords, 0);
    MappedRange range;
    range.begin = reinterpret_cast<uint64_t>(operation->workspace.data());
    range.bytes = kWorkspaceWords * sizeof(uint64_t);
    range.end = range.begin + range.bytes;
    range.kind = RangeKind::kInternal;
    launch.grid_workspace = range.begin;
    // Fresh heap memory can't overlap what is mapped.
    [[maybe_unused]] Status inserted = driver.address_space.insert(range);
  }
  return operation;
}

}  // namespace

OperationPtr make_operation(const Work& work, const std::shared_ptr<ExecutionContext>& execution,
                            const StreamQueue& stream, const WorkOrigin& origin) {
  return std::visit(
      [&](const auto& what) -> OperationPtr { return make(what, execution, stream, origin); },
      work);
}

}  // namespace openmps::softgpu
