// SPDX-License-Identifier: Apache-2.0
// Planning and issuing copies and fills. See copy_plan.h.
#include "softgpu/device/copy_plan.h"

#include <cstring>

#include "cuda/box.h"
#include "cuda/copies.h"
#include "softgpu/device/array.h"
#include "softgpu/device/capture.h"
#include "softgpu/device/context.h"
#include "softgpu/device/driver.h"

namespace openmps::softgpu {
namespace {

// Up to this size a pageable source is copied aside, so that the call returns at once; the limit
// below which the real driver does so for transfers to the device.
constexpr uint64_t kStagingLimit = 64 * 1024;

// Hosts on one engine, devices on the other, as the two directions of a bus.
constexpr uint32_t kToDeviceEngine = 0;
constexpr uint32_t kFromDeviceEngine = 1;

Status invalid(const char* what) { return Status(CUDA_ERROR_INVALID_VALUE, what); }

struct SideFacts {
  bool mapped = false;    // in the address space: must stay so until the copy runs
  bool pageable = false;  // ordinary memory of the program
  bool device = false;
  bool sync_memops = false;
  const Context* variable_of = nullptr;  // whose module's variable it is
};

Status examine(const Driver& driver, uint64_t address, uint64_t extent, bool write, CopySide side,
               SideFacts* facts) {
  if (extent == cuda::kTooManyBytes) return invalid("the copy does not fit the address space");
  switch (driver.address_space.coverage(address, extent, write)) {
    case AddressSpace::Coverage::kOutside: return invalid("the copy leaves its allocation");
    case AddressSpace::Coverage::kNone:
      if (side == CopySide::kDevice) return invalid("not a device pointer");
      if (address == 0) return invalid("a null pointer");
      facts->pageable = true;
      return Status();
    case AddressSpace::Coverage::kInside: break;
  }
  MappedRange range;
  facts->mapped = true;
  facts->device = driver.address_space.find_mapped(address, &range) &&
                  range.kind != RangeKind::kHostAllocated &&
                  range.kind != RangeKind::kHostRegistered;
  facts->sync_memops = facts->device && range.sync_memops;
  if (facts->device && range.kind == RangeKind::kModuleGlobal && range.flags == 0)
    facts->variable_of = range.owner;
  return Status();
}

struct Plan {
  CopyWork work;
  SideFacts source;
  SideFacts destination;
};

Status make_plan(const Driver& driver, const CopyShape& shape, CopySide source,
                 CopySide destination, Plan* plan) {
  OPENMPS_RETURN_IF_ERROR(
      examine(driver, shape.source, shape.source_extent(), false, source, &plan->source));
  OPENMPS_RETURN_IF_ERROR(examine(driver, shape.destination, shape.destination_extent(), true,
                                  destination, &plan->destination));
  plan->work.shape = shape;
  plan->work.check_source = plan->source.mapped;
  plan->work.check_destination = plan->destination.mapped;
  bool from_device = plan->source.device && !plan->destination.device;
  plan->work.engine = from_device ? kFromDeviceEngine : kToDeviceEngine;
  return Status();
}

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

Result<CopyWork> plan_copy(const Driver& driver, const CopyShape& shape, CopySide source,
                           CopySide destination) {
  Plan plan;
  if (shape.empty()) return plan.work;
  OPENMPS_RETURN_IF_ERROR(make_plan(driver, shape, source, destination, &plan));
  return plan.work;
}

Status issue_copy(Stream& stream, const CopyShape& shape, CopySide source, CopySide destination,
                  bool synchronous) {
  if (synchronous) OPENMPS_RETURN_IF_ERROR(refuse_capturing(stream));
  if (shape.empty()) return Status();
  const Driver& driver = stream.context->driver();
  Plan plan;
  OPENMPS_RETURN_IF_ERROR(make_plan(driver, shape, source, destination, &plan));

  // Between device memory a synchronous copy returns at once, unless the program asked otherwise.
  if (plan.source.device && plan.destination.device && !plan.source.sync_memops &&
      !plan.destination.sync_memops && !has_sync_memops(stream))
    synchronous = false;
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

namespace {

Status check_fill_shape(const FillShape& shape) {
  if (shape.destination % shape.element != 0)
    return invalid("the address is not aligned to the element");
  if (shape.height > 1 && shape.pitch < shape.width * shape.element)
    return invalid("the row does not fit the pitch");
  return Status();
}

}  // namespace

Status check_fill_range(const Driver& driver, const FillShape& shape) {
  SideFacts facts;
  return examine(driver, shape.destination, shape.extent(), true, CopySide::kDevice, &facts);
}

Result<FillWork> plan_fill(const Driver& driver, const FillShape& shape) {
  FillWork work;
  work.shape = shape;
  if (shape.empty()) return work;
  OPENMPS_RETURN_IF_ERROR(check_fill_shape(shape));
  OPENMPS_RETURN_IF_ERROR(check_fill_range(driver, shape));
  return work;
}

Status issue_fill(Stream& stream, const FillShape& shape, bool synchronous) {
  if (synchronous) OPENMPS_RETURN_IF_ERROR(refuse_capturing(stream));
  if (shape.empty()) return Status();
  OPENMPS_RETURN_IF_ERROR(check_fill_shape(shape));
  // A captured fill's range is looked at when the graph is instantiated (seen on an H200).
  SideFacts facts;
  if (!stream.capturing)
    OPENMPS_RETURN_IF_ERROR(examine(stream.context->driver(), shape.destination, shape.extent(),
                                    true, CopySide::kDevice, &facts));
  // Kernels and copies reach such a variable, fills don't (seen on an H200).
  if (facts.variable_of != nullptr && facts.variable_of != &stream.context->owner())
    return invalid("a variable of a module of another context");
  // As with copies between device memory.
  if (facts.device && !facts.sync_memops && !has_sync_memops(stream)) synchronous = false;
  FillWork work;
  work.shape = shape;
  work.inline_execution = synchronous;
  OperationPtr operation;
  OPENMPS_RETURN_IF_ERROR(issue(stream, work, &operation));
  return synchronous ? finish_inline(stream, operation, true) : Status();
}

namespace {

Status read_side(const Driver& driver, const cuda::CopySide& named, const cuda::CopyBox& box,
                 uint64_t* address, uint64_t* pitch, uint64_t* slice, CopySide* side) {
  switch (named.type) {
    case CU_MEMORYTYPE_HOST: *side = CopySide::kHost; break;
    case CU_MEMORYTYPE_DEVICE: *side = CopySide::kDevice; break;
    case CU_MEMORYTYPE_UNIFIED: *side = CopySide::kUnified; break;
    case CU_MEMORYTYPE_ARRAY:
      if (named.level != 0) return invalid("a level of detail");
      *side = CopySide::kDevice;
      return locate_in_array(driver, named.array,
                             {named.x, named.y, named.z, box.width, box.height, box.depth}, address,
                             pitch, slice);
    default: return invalid("no such memory type");
  }
  *pitch = named.pitch_of(box);
  const uint64_t rows = named.rows_of(box);
  if (named.x + box.width > *pitch && (box.height > 1 || box.depth > 1))
    return invalid("the row does not fit the pitch");
  if (box.depth > 1 && named.y + box.height > rows)
    return invalid("the plane does not fit its height");
  if (__builtin_mul_overflow(*pitch, rows, slice))
    return invalid("the copy does not fit the address space");
  *address = named.address + named.z * *slice + named.y * *pitch + named.x;
  return Status();
}

}  // namespace

Status read_copy_parameters(const Driver& driver, const CUDA_MEMCPY3D& p, CopyShape* shape,
                            CopySide* source, CopySide* destination) {
  shape->width = p.WidthInBytes;
  shape->height = p.Height;
  shape->depth = p.Depth;
  if (p.srcMemoryType == CU_MEMORYTYPE_ARRAY || p.dstMemoryType == CU_MEMORYTYPE_ARRAY)
    shape->named = std::make_shared<const CUDA_MEMCPY3D>(p);
  const cuda::CopyBox box = cuda::box_of(p);
  OPENMPS_RETURN_IF_ERROR(read_side(driver, cuda::source_of(p), box, &shape->source,
                                    &shape->source_pitch, &shape->source_slice, source));
  return read_side(driver, cuda::destination_of(p), box, &shape->destination,
                   &shape->destination_pitch, &shape->destination_slice, destination);
}

}  // namespace openmps::softgpu
