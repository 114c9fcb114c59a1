// SPDX-License-Identifier: Apache-2.0
// See copy_plan.h.
#include "softgpu/device/work/copy_plan.h"

#include "cuda/box.h"
#include "cuda/copies.h"
#include "softgpu/device/driver.h"
#include "softgpu/device/memory/array.h"

namespace openmps::softgpu {
namespace {

// Hosts on one engine, devices on the other, as the two directions of a bus.
constexpr uint32_t kToDeviceEngine = 0;
constexpr uint32_t kFromDeviceEngine = 1;

cupti::MemoryKind memory_kind(const MappedRange& range) {
  switch (range.kind) {
    case RangeKind::kHostAllocated:
    case RangeKind::kHostRegistered: return cupti::MemoryKind::kPinned;
    case RangeKind::kManaged: return cupti::MemoryKind::kManaged;
    case RangeKind::kModuleGlobal:
      return range.flags != 0 ? cupti::MemoryKind::kManaged : cupti::MemoryKind::kDevice;
    case RangeKind::kArray: return cupti::MemoryKind::kArray;
    case RangeKind::kDevice:
    case RangeKind::kImported:
    case RangeKind::kMapped:
    case RangeKind::kGraph:
    case RangeKind::kInternal: break;
  }
  return cupti::MemoryKind::kDevice;
}

Status examine(const AddressSpace& memory, uint64_t address, uint64_t extent, bool write,
               CopySide side, SideFacts* facts) {
  if (extent == cuda::kTooManyBytes) {
    return invalid_value("the copy does not fit the address space");
  }
  switch (memory.coverage(address, extent, write)) {
    case AddressSpace::Coverage::kOutside: return invalid_value("the copy leaves its allocation");
    case AddressSpace::Coverage::kNone:
      if (side == CopySide::kDevice) return invalid_value("not a device pointer");
      if (address == 0) return invalid_value("a null pointer");
      facts->pageable = true;
      facts->place.kind = cupti::MemoryKind::kPageable;
      return Status();
    case AddressSpace::Coverage::kInside: break;
  }
  MappedRange range;
  facts->mapped = true;
  if (!memory.find_mapped(address, &range)) return Status();
  facts->place = {memory_kind(range), range.device};
  facts->device = facts->place.kind != cupti::MemoryKind::kPinned;
  facts->sync_memops = facts->device && range.sync_memops;
  if (facts->device && range.kind == RangeKind::kModuleGlobal && range.flags == 0) {
    facts->variable_of = range.owner;
  }
  return Status();
}

}  // namespace

Result<CopyPlan> plan_copy(const AddressSpace& memory, const CopyShape& shape, CopySide source,
                           CopySide destination) {
  CopyPlan plan;
  if (shape.empty()) return plan;
  OPENMPS_RETURN_IF_ERROR(
      examine(memory, shape.source, shape.source_extent(), false, source, &plan.source));
  OPENMPS_RETURN_IF_ERROR(examine(memory, shape.destination, shape.destination_extent(), true,
                                  destination, &plan.destination));
  plan.work.shape = shape;
  plan.work.check_source = plan.source.mapped;
  plan.work.check_destination = plan.destination.mapped;
  plan.work.from_device = plan.source.device;
  plan.work.to_device = plan.destination.device;
  plan.work.source = plan.source.place;
  plan.work.destination = plan.destination.place;
  const bool leaves_device = plan.source.device && !plan.destination.device;
  plan.work.engine = leaves_device ? kFromDeviceEngine : kToDeviceEngine;
  return plan;
}

Status check_fill_shape(const FillShape& shape) {
  if (shape.destination % shape.element != 0) {
    return invalid_value("the address is not aligned to the element");
  }
  if (shape.height > 1 && shape.pitch < shape.width * shape.element) {
    return invalid_value("the row does not fit the pitch");
  }
  return Status();
}

Status check_fill_range(const AddressSpace& memory, const FillShape& shape, SideFacts* facts) {
  SideFacts unused;
  return examine(memory, shape.destination, shape.extent(), true, CopySide::kDevice,
                 facts == nullptr ? &unused : facts);
}

Result<FillWork> plan_fill(const AddressSpace& memory, const FillShape& shape) {
  FillWork work;
  work.shape = shape;
  if (shape.empty()) return work;
  OPENMPS_RETURN_IF_ERROR(check_fill_shape(shape));
  SideFacts facts;
  OPENMPS_RETURN_IF_ERROR(check_fill_range(memory, shape, &facts));
  work.destination = facts.place.kind;
  return work;
}

namespace {

Status read_side(const Driver& driver, const cuda::CopySide& named, const cuda::CopyBox& box,
                 uint64_t* address, uint64_t* pitch, uint64_t* slice, CopySide* side) {
  switch (named.type) {
    case CU_MEMORYTYPE_HOST: *side = CopySide::kHost; break;
    case CU_MEMORYTYPE_DEVICE: *side = CopySide::kDevice; break;
    case CU_MEMORYTYPE_UNIFIED: *side = CopySide::kUnified; break;
    case CU_MEMORYTYPE_ARRAY:
      if (named.level != 0) return invalid_value("a level of detail");
      *side = CopySide::kDevice;
      return locate_in_array(driver, named.array,
                             {named.x, named.y, named.z, box.width, box.height, box.depth}, address,
                             pitch, slice);
    default: return invalid_value("no such memory type");
  }
  *pitch = named.pitch_of(box);
  const uint64_t rows = named.rows_of(box);
  if (named.x + box.width > *pitch) return invalid_value("the row does not fit the pitch");
  if (named.y + box.height > rows) return invalid_value("the plane does not fit its height");
  if (__builtin_mul_overflow(*pitch, rows, slice)) {
    return invalid_value("the copy does not fit the address space");
  }
  *address = named.address + named.z * *slice + named.y * *pitch + named.x;
  return Status();
}

}  // namespace

Status read_copy_parameters(const Driver& driver, const CUDA_MEMCPY3D& p, CopyShape* shape,
                            CopySide* source, CopySide* destination) {
  shape->width = p.WidthInBytes;
  shape->height = p.Height;
  shape->depth = p.Depth;
  if (shape->empty()) {
    *source = *destination = CopySide::kUnified;
    return Status();
  }
  if (p.srcMemoryType == CU_MEMORYTYPE_ARRAY || p.dstMemoryType == CU_MEMORYTYPE_ARRAY) {
    shape->named = std::make_shared<const CUDA_MEMCPY3D>(p);
  }
  const cuda::CopyBox box = cuda::box_of(p);
  OPENMPS_RETURN_IF_ERROR(read_side(driver, cuda::source_of(p), box, &shape->source,
                                    &shape->source_pitch, &shape->source_slice, source));
  return read_side(driver, cuda::destination_of(p), box, &shape->destination,
                   &shape->destination_pitch, &shape->destination_slice, destination);
}

}  // namespace openmps::softgpu
