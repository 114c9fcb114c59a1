// SPDX-License-Identifier: Apache-2.0
// See work.h.
#include "softgpu/device/work/work.h"

namespace openmps::softgpu {

CUgraphNodeType node_type(const Work& work) {
  if (std::holds_alternative<LaunchWork>(work)) return CU_GRAPH_NODE_TYPE_KERNEL;
  if (std::holds_alternative<CopyWork>(work)) return CU_GRAPH_NODE_TYPE_MEMCPY;
  if (std::holds_alternative<FillWork>(work)) return CU_GRAPH_NODE_TYPE_MEMSET;
  if (std::holds_alternative<HostWork>(work)) return CU_GRAPH_NODE_TYPE_HOST;
  if (std::holds_alternative<WordsWork>(work)) return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
  if (std::holds_alternative<RecordWork>(work)) return CU_GRAPH_NODE_TYPE_EVENT_RECORD;
  if (std::holds_alternative<WaitWork>(work)) return CU_GRAPH_NODE_TYPE_WAIT_EVENT;
  if (std::holds_alternative<AllocationWork>(work)) return CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  if (std::holds_alternative<GraphFreeWork>(work)) return CU_GRAPH_NODE_TYPE_MEM_FREE;
  if (std::holds_alternative<ConditionalWork>(work)) return CU_GRAPH_NODE_TYPE_CONDITIONAL;
  return CU_GRAPH_NODE_TYPE_EMPTY;
}

Status check_words(const AddressSpace& memory, const WordsWork& work) {
  for (const WordAction& action : work.actions) {
    if (action.kind == WordAction::Kind::kBarrier) continue;
    const bool write = action.kind != WordAction::Kind::kWait;
    if (memory.coverage(action.address, action.bytes, write) != AddressSpace::Coverage::kInside) {
      return Status(CUDA_ERROR_INVALID_VALUE, "the address is not mapped for the device");
    }
  }
  return Status();
}

}  // namespace openmps::softgpu
