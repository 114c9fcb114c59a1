// SPDX-License-Identifier: Apache-2.0
// Nodes of driver graphs. See graph_node.h.
#include "worker/graphs/graph_node.h"

#include <algorithm>
#include <vector>

#include "worker/device/driver_check.h"
#include "worker/device/in_context.h"

namespace openmps::worker {
namespace {

class NodeWriter {
 public:
  NodeWriter(SessionCore& core, Fences& fences, uint32_t device, const NodePlace& place,
             const Uses& uses)
      : core_(core),
        driver_(core.driver),
        fences_(fences),
        place_(place),
        uses_(uses),
        context_(place.copies != nullptr ? place.copies : core.context({device, uses.lane})) {}

  CUresult put(const std::monostate&) {
    if (place_.graph == nullptr) return CUDA_SUCCESS;
    return driver_.cuGraphAddEmptyNode(place_.first, place_.graph, place_.before.data(),
                                       place_.before.size());
  }

  CUresult put(const KernelWork& kernel) {
    // The kernel runs on the SMs of the context that is current now, in whatever stream the graph
    // is launched (measured; the context in the parameters has no effect).
    const InContext in_part(driver_, uses_.lane == Lane::kMain ? place_.context : nullptr);
    PackedParameters packed(kernel.parameters);
    std::vector<void*> single = single_parameters(kernel);
    CUDA_KERNEL_NODE_PARAMS node = packed.node(kernel.handle, *kernel.shape);
    if (!single.empty()) {
      node.kernelParams = single.data();
      node.extra = nullptr;
    }
    const CUresult result =
        call(driver_.cuGraphAddKernelNode_v2, driver_.cuGraphKernelNodeSetParams_v2,
             driver_.cuGraphExecKernelNodeSetParams_v2, &node);
    if (result != CUDA_SUCCESS || place_.exec != nullptr) return result;
    const auto set = [this](CUlaunchAttributeID id, const CUlaunchAttributeValue& value) {
      return driver_.cuGraphKernelNodeSetAttribute(*place_.first, id, &value);
    };
    CUresult done = CUDA_SUCCESS;
    if (place_.priority != 0) {
      CUlaunchAttributeValue value{};
      value.priority = place_.priority;
      done = set(CU_LAUNCH_ATTRIBUTE_PRIORITY, value);
    }
    for (const CUlaunchAttribute& attribute : kernel.attributes) {
      if (done == CUDA_SUCCESS) done = set(attribute.id, attribute.value);
    }
    return done;
  }

  // A cooperative node has to have its parameters one by one (an H100: CUDA_ERROR_INVALID_VALUE for
  // the attribute otherwise). Empty: it has none, needs it not, or the driver does not say where
  // they are.
  std::vector<void*> single_parameters(const KernelWork& kernel) const {
    std::vector<void*> single;
    const bool is_cooperative =
        std::ranges::any_of(kernel.attributes, [](const CUlaunchAttribute& attribute) {
          return attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        });
    if (!is_cooperative || driver_.cuFuncGetParamInfo == nullptr) return single;
    size_t offset = 0;
    size_t bytes = 0;
    while (single.size() < wire::kMaxKernelParameters &&
           driver_.cuFuncGetParamInfo(kernel.handle, single.size(), &offset, &bytes) ==
               CUDA_SUCCESS) {
      if (bytes > kernel.parameters.size() || offset > kernel.parameters.size() - bytes) return {};
      single.push_back(const_cast<unsigned char*>(kernel.parameters.data() + offset));
    }
    return single;
  }

  // A node's memory is of one kind.
  CUresult put(const BoxWork& copy) {
    CUDA_MEMCPY3D box = copy.box;
    const uint64_t to = uses_.ranges[0].address;
    const uint64_t from = uses_.ranges[1].address;
    if (box.srcMemoryType == CU_MEMORYTYPE_UNIFIED) {
      box.srcMemoryType = core_.is_host(from) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      if (core_.is_host(from)) box.srcHost = reinterpret_cast<const void*>(from);
    }
    if (box.dstMemoryType == CU_MEMORYTYPE_UNIFIED) {
      box.dstMemoryType = core_.is_host(to) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      if (core_.is_host(to)) box.dstHost = reinterpret_cast<void*>(to);
    }
    // Rows without others behind them need no pitch, however long they are.
    if (box.Height <= 1 && box.Depth <= 1) box.srcPitch = box.dstPitch = 0;
    return call(driver_.cuGraphAddMemcpyNode, driver_.cuGraphMemcpyNodeSetParams,
                driver_.cuGraphExecMemcpyNodeSetParams, &box, context_);
  }

  CUresult put(const FillWork& fill) {
    return call(driver_.cuGraphAddMemsetNode, driver_.cuGraphMemsetNodeSetParams,
                driver_.cuGraphExecMemsetNodeSetParams, &fill.fill, context_);
  }

  CUresult put(const ValuesWork& values) {
    const CUDA_BATCH_MEM_OP_NODE_PARAMS node = batch_of(values.batch);
    return call(driver_.cuGraphAddBatchMemOpNode, driver_.cuGraphBatchMemOpNodeSetParams,
                driver_.cuGraphExecBatchMemOpNodeSetParams, &node);
  }

  CUresult put(const RecordWork& record) {
    return call(driver_.cuGraphAddEventRecordNode, driver_.cuGraphEventRecordNodeSetEvent,
                driver_.cuGraphExecEventRecordNodeSetEvent, record.event);
  }

  CUresult put(const WaitWork& wait) {
    return call(driver_.cuGraphAddEventWaitNode, driver_.cuGraphEventWaitNodeSetEvent,
                driver_.cuGraphExecEventWaitNodeSetEvent, wait.event);
  }

  // One node posts the slot, the other waits for the answer and clears it at once, so that the next
  // run does not find this answer.
  CUresult put(const HostCallWork& host) {
    if (place_.exec != nullptr) return CUDA_ERROR_INVALID_VALUE;
    wire::CallbackSlot& slot = core_.view.callback(host.slot);
    const Status there = core_.pages.use(&slot, sizeof(slot));
    if (!there.ok()) return there.code();
    const CUDA_HOST_NODE_PARAMS post = fences_.posting(host.slot);
    const CUdeviceptr done = core_.device_address(&slot.done);
    const CUstreamBatchMemOpParams answer[] = {
        operation_of(wire::ValueKind::kWait, {done, 1, 4, CU_STREAM_WAIT_VALUE_EQ}, done),
        operation_of(wire::ValueKind::kWrite, {done, 0, 4, CU_STREAM_WRITE_VALUE_DEFAULT}, done)};
    const CUDA_BATCH_MEM_OP_NODE_PARAMS batch = batch_of(answer);
    if (place_.graph == nullptr) {
      const CUresult result = driver_.cuGraphHostNodeSetParams(*place_.first, &post);
      if (result != CUDA_SUCCESS) return result;
      return driver_.cuGraphBatchMemOpNodeSetParams(*place_.last, &batch);
    }
    const CUresult result = driver_.cuGraphAddHostNode(
        place_.first, place_.graph, place_.before.data(), place_.before.size(), &post);
    if (result != CUDA_SUCCESS) return result;
    return driver_.cuGraphAddBatchMemOpNode(place_.last, place_.graph, place_.first, 1, &batch);
  }

  // Work that is never a node of a client's graph.
  template <typename Other>
  CUresult put(const Other&) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }

 private:
  // The three calls take equal parameters; those for a graph take no context.
  template <typename Add, typename Set, typename Change, typename Parameters, typename... Context>
  CUresult call(Add add, Set set, Change change, Parameters parameters, Context... context) {
    if (place_.exec != nullptr) return change(place_.exec, *place_.first, parameters, context...);
    if (place_.graph == nullptr) return set(*place_.first, parameters);
    return add(place_.first, place_.graph, place_.before.data(), place_.before.size(), parameters,
               context...);
  }
  CUDA_BATCH_MEM_OP_NODE_PARAMS batch_of(std::span<const CUstreamBatchMemOpParams> operations) {
    return {context_, static_cast<unsigned>(operations.size()),
            const_cast<CUstreamBatchMemOpParams*>(operations.data()), 0};
  }

  SessionCore& core_;
  const DriverTable& driver_;
  Fences& fences_;
  const NodePlace& place_;
  const Uses& uses_;
  CUcontext const context_;
};

}  // namespace

Status put_node(SessionCore& core, Fences& fences, uint32_t device, const NodePlace& place,
                const Work& work) {
  NodeWriter writer(core, fences, device, place, work.uses);
  return check(std::visit([&](const auto& what) { return writer.put(what); }, work.what),
               place.graph != nullptr ? "cuGraphAddNode" : "cuGraphNodeSetParams");
}

}  // namespace openmps::worker
