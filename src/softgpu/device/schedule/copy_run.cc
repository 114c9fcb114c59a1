// SPDX-License-Identifier: Apache-2.0
// See copy_run.h.
#include "softgpu/device/schedule/copy_run.h"

#include "base/clock.h"
#include "softgpu/device/schedule/execution_context.h"

namespace openmps::softgpu {

CUresult run_copy_operation(AddressSpace& memory, CopyOperation& copy) {
  uint32_t phase = memory.enter();
  bool mapped = true;
  if (auto* shape = std::get_if<CopyShape>(&copy.work)) {
    if (!copy.staged.empty()) shape->source = reinterpret_cast<uint64_t>(copy.staged.data());
    auto inside = [&](uint64_t address, uint64_t extent, bool write) {
      return memory.coverage(address, extent, write) == AddressSpace::Coverage::kInside;
    };
    mapped =
        (!copy.check_source || inside(shape->source, shape->source_extent(), false)) &&
        (!copy.check_destination || inside(shape->destination, shape->destination_extent(), true));
    if (mapped) run_copy(*shape);
  } else {
    const FillShape& fill = std::get<FillShape>(copy.work);
    mapped =
        memory.coverage(fill.destination, fill.extent(), true) == AddressSpace::Coverage::kInside;
    if (mapped) run_fill(fill);
  }
  memory.exit(phase);
  return mapped ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

void note_copy_times(CopyOperation& copy, uint64_t start_ns) {
  if (copy.record == nullptr) return;
  copy.record->activity.begin_ns = start_ns;
  copy.record->activity.end_ns = now_ns();
}

void trace_copy(Trace& trace, const CopyOperation& copy, const std::string& lane,
                uint64_t start_ns) {
  if (!trace.enabled()) return;
  trace.event('X', "copy", std::holds_alternative<CopyShape>(copy.work) ? "copy" : "fill", lane,
              start_ns, now_ns(),
              "\"stream\":" + std::to_string(copy.stream_id) +
                  ",\"context\":" + std::to_string(copy.context->id));
}

}  // namespace openmps::softgpu
