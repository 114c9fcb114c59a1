// SPDX-License-Identifier: Apache-2.0
// See copy_issue.h.
#include "softgpu/device/issue/copy_issue.h"

#include <cstring>

#include "softgpu/device/contexts/context.h"
#include "softgpu/device/driver.h"
#include "softgpu/device/graphs/capture.h"
#include "softgpu/device/issue/issue.h"
#include "softgpu/device/schedule/scheduler.h"

namespace openmps::softgpu {
namespace {

// Up to this size a pageable source is copied aside, so that the call returns at once; the limit
// below which the real driver does so for transfers to the device.
constexpr uint64_t kStagingLimit = 64 * 1024;

bool has_sync_memops(const Stream& stream) {
  return (stream.context->flags.load(std::memory_order_relaxed) & CU_CTX_SYNC_MEMOPS) != 0;
}

Status finish_inline(Stream& stream, const OperationPtr& operation, bool synchronous) {
  // Null: captured, or nothing to wait for.
  if (operation == nullptr) return Status();
  Scheduler& scheduler = stream.context->driver().scheduler;
  scheduler.run_inline(std::static_pointer_cast<CopyOperation>(operation));
  if (synchronous) stream.execution->flush_output();
  return sticky_error(*stream.execution);
}

}  // namespace

Status issue_copy(Stream& stream, const CopyShape& shape, CopySide source, CopySide destination,
                  bool synchronous) {
  Driver& driver = stream.context->driver();
  if (synchronous) OPENMPS_RETURN_IF_ERROR(driver.captures.refuse(stream));
  if (shape.empty()) return Status();
  Result<CopyPlan> planned = plan_copy(driver.address_space, shape, source, destination);
  if (!planned.ok()) return planned.status();
  CopyPlan& plan = *planned;

  // Between device memory a synchronous copy returns at once, unless the program asked otherwise.
  if (plan.source.device && plan.destination.device && !plan.source.sync_memops &&
      !plan.destination.sync_memops && !has_sync_memops(stream)) {
    synchronous = false;
  }
  // Between host memory every copy has ended when the call returns, as CUDA documents.
  if (!plan.source.device && !plan.destination.device && !stream.capturing) synchronous = true;
  bool pageable = plan.source.pageable || plan.destination.pageable;
  bool linear = shape.height == 1 && shape.depth == 1;
  if (!synchronous && !stream.capturing && plan.source.pageable && !plan.destination.pageable &&
      linear && shape.width <= kStagingLimit) {
    plan.work.staged.resize(shape.width);
    memcpy(plan.work.staged.data(), reinterpret_cast<const void*>(shape.source), shape.width);
    pageable = false;
  }
  plan.work.inline_execution = (synchronous || pageable) && !stream.capturing;
  OperationPtr operation;
  OPENMPS_RETURN_IF_ERROR(issue(stream, plan.work, &operation));
  return plan.work.inline_execution ? finish_inline(stream, operation, synchronous) : Status();
}

Status issue_fill(Stream& stream, const FillShape& shape, bool synchronous) {
  Driver& driver = stream.context->driver();
  if (synchronous) OPENMPS_RETURN_IF_ERROR(driver.captures.refuse(stream));
  if (shape.empty()) return Status();
  OPENMPS_RETURN_IF_ERROR(check_fill_shape(shape));
  // A captured fill's range is looked at when the graph is instantiated (seen on an H200).
  SideFacts facts;
  if (!stream.capturing) {
    OPENMPS_RETURN_IF_ERROR(check_fill_range(driver.address_space, shape, &facts));
  }
  // Kernels and copies reach such a variable, fills don't (seen on an H200).
  if (facts.variable_of != nullptr && facts.variable_of != &stream.context->owner()) {
    return Status(CUDA_ERROR_INVALID_VALUE, "a variable of a module of another context");
  }
  // A fill of device memory returns at once, as a copy between device memory does.
  if (facts.device && !facts.sync_memops && !has_sync_memops(stream)) synchronous = false;
  FillWork work;
  work.shape = shape;
  if (facts.mapped) work.destination = facts.place.kind;
  work.inline_execution = synchronous;
  OperationPtr operation;
  OPENMPS_RETURN_IF_ERROR(issue(stream, work, &operation));
  return synchronous ? finish_inline(stream, operation, true) : Status();
}

}  // namespace openmps::softgpu
