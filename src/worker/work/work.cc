// SPDX-License-Identifier: Apache-2.0
// See work.h.
#include "worker/work/work.h"

#include <cstring>
#include <type_traits>

#include "worker/code/module.h"

namespace openmps::worker {

wire::Opcode opcode_of(const Work& work) {
  using enum wire::Opcode;
  // By the alternatives of Work::what.
  constexpr std::array kOpcodes{
      kPing,  kLaunch,      kMemcpy,          kMemcpy3D,  kMemset,      kStreamBatch, kHostFunction,
      kFence, kEventRecord, kStreamWaitEvent, kWakeAfter, kGraphLaunch, kGraphUpload};
  static_assert(kOpcodes.size() == std::variant_size_v<decltype(Work::what)>);
  return kOpcodes[work.what.index()];
}

CUDA_KERNEL_NODE_PARAMS PackedParameters::node(CUfunction function, const wire::Launch& shape) {
  return {function,       shape.grid[0],  shape.grid[1],  shape.grid[2],
          shape.block[0], shape.block[1], shape.block[2], shape.shared_bytes,
          nullptr,        extra(),        nullptr,        nullptr};
}

CUstreamBatchMemOpParams operation_of(wire::ValueKind kind, const wire::StreamValue& value,
                                      CUdeviceptr address) {
  CUstreamBatchMemOpParams made{};
  const bool wide = value.width == 8;
  switch (kind) {
    case wire::ValueKind::kWrite:
      made.operation = wide ? CU_STREAM_MEM_OP_WRITE_VALUE_64 : CU_STREAM_MEM_OP_WRITE_VALUE_32;
      made.writeValue.address = address;
      made.writeValue.value64 = value.value;
      made.writeValue.flags = value.flags;
      break;
    case wire::ValueKind::kWait:
      made.operation = wide ? CU_STREAM_MEM_OP_WAIT_VALUE_64 : CU_STREAM_MEM_OP_WAIT_VALUE_32;
      made.waitValue.address = address;
      made.waitValue.value64 = value.value;
      made.waitValue.flags = value.flags;
      break;
    default:
      made.operation = CU_STREAM_MEM_OP_BARRIER;
      made.memoryBarrier.flags = value.flags;
      break;
  }
  return made;
}

size_t ValuesWork::waits_behind() const {
  for (size_t i = 1; i < operations.size(); ++i) {
    if (operations[i].kind == wire::ValueKind::kWait &&
        operations[i - 1].kind != wire::ValueKind::kWait) {
      return i;
    }
  }
  return 0;
}

ValuesWork ValuesWork::part(size_t from, size_t count) const {
  ValuesWork made;
  made.operations = operations.subspan(from, count);
  made.batch = batch.subspan(from, count);
  for (const wire::ValueOperation& operation : made.operations) {
    if (operation.kind == wire::ValueKind::kWait) ++made.waits;
  }
  return made;
}

// Copies the parts, one behind the other, the ones that need alignment first.
template <typename... T>
void HeldWork::own(std::span<const T>&... parts) {
  const size_t bytes = (parts.size_bytes() + ...);
  if (bytes > inside_.size()) {
    outside_ = std::make_unique<unsigned char[]>(bytes);
    outside_bytes_ = bytes;
  }
  unsigned char* at = outside_ != nullptr ? outside_.get() : inside_.data();
  const auto move = [&at](auto& part) {
    using Part = std::remove_reference_t<decltype(part)>;
    static_assert(std::is_trivially_copyable_v<typename Part::value_type>);
    if (!part.empty()) memcpy(at, part.data(), part.size_bytes());
    part = Part(reinterpret_cast<typename Part::pointer>(at), part.size());
    at += part.size_bytes();
  };
  (move(parts), ...);
}

HeldWork::HeldWork(const Work& work) : work_(work) {
  if (auto* kernel = std::get_if<KernelWork>(&work_.what)) {
    std::span shape(kernel->shape, 1);
    own(kernel->attributes, shape, kernel->parameters);
    kernel->shape = shape.data();
    function_ = kernel->function->shared_from_this();
  }
  if (auto* values = std::get_if<ValuesWork>(&work_.what)) own(values->batch, values->operations);
  if (auto* graph = std::get_if<GraphWork>(&work_.what)) own(graph->waits);
}

}  // namespace openmps::worker
