// SPDX-License-Identifier: Apache-2.0
// Wrong calls about graphs: their structure, their nodes, and executable graphs.
#include "wrong_calls.h"

namespace e2e {
namespace {

using Kernel = CUDA_KERNEL_NODE_PARAMS;
using Fill = CUDA_MEMSET_NODE_PARAMS;
using Box = CUDA_MEMCPY3D;
using Host = CUDA_HOST_NODE_PARAMS;
using Allocation = CUDA_MEM_ALLOC_NODE_PARAMS;
using Batch = CUDA_BATCH_MEM_OP_NODE_PARAMS;
using Any = CUgraphNodeParams;
using Value = CUkernelNodeAttrValue;

Made<Kernel> kernel(const Stage& s) {
  return {{s.world.empty, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr, nullptr}};
}
Made<Fill> fill(const Stage& s) { return {{s.memory, 64, 1, 4, 8, 2}}; }
Made<Box> box(const Stage& s) {
  Made<Box> made;
  made.value.srcMemoryType = made.value.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  made.value.srcDevice = s.memory;
  made.value.dstDevice = s.memory + Stage::kBytes / 2;
  made.value.srcPitch = made.value.dstPitch = 64;
  made.value.srcHeight = made.value.dstHeight = 2;
  made.value.WidthInBytes = 32;
  made.value.Height = 2;
  made.value.Depth = 1;
  return made;
}
Made<Host> host() { return {{nothing, nullptr}}; }
Made<Allocation> allocation(const Stage& s) {
  Made<Allocation> made;
  made.value.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  made.value.poolProps.location = place(CU_MEM_LOCATION_TYPE_DEVICE, s.device);
  made.value.bytesize = 64;
  return made;
}
Made<Allocation> allocation_at(const Stage& s, CUmemLocation location) {
  Made<Allocation> made = allocation(s);
  made.value.poolProps.location = location;
  return made;
}
Made<Batch> batch(const Stage& s, unsigned count, CUstreamBatchMemOpParams* operations) {
  return {{s.context, count, operations, 0}};
}
Made<Any> any(CUgraphNodeType type) {
  Made<Any> made;
  made.value.type = type;
  return made;
}
CUstreamBatchMemOpParams* write_at(CUdeviceptr address) {
  static CUstreamBatchMemOpParams operation;
  operation = {};
  operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operation.writeValue.address = address;
  return &operation;
}
Value priority(int to) {
  Value value{};
  value.priority = to;
  return value;
}
Made<CUDA_GRAPH_INSTANTIATE_PARAMS> instantiation(cuuint64_t flags) {
  return {{flags, nullptr, nullptr, {}}};
}
CUgraphNode* node() { return out<CUgraphNode>(); }

// A graph with another topology than the stage's.
CUgraph other_topology(const Stage& s) { return s.other_graph; }

}  // namespace

const WrongCalls kGraphCalls = {
    WRONG(cuGraphCreate(nullptr, 0)),
    WRONG(cuGraphCreate(out<CUgraph>(), 1)),
    WRONG(cuGraphCreate(nullptr, 1)),
    WRONG(cuGraphDestroy(nullptr)),
    WRONG(cuGraphClone(nullptr, s.graph)),
    WRONG(cuGraphClone(out<CUgraph>(), nullptr)),
    WRONG(cuGraphAddEmptyNode(nullptr, s.graph, nullptr, 0)),
    WRONG(cuGraphAddEmptyNode(node(), nullptr, nullptr, 0)),
    WRONG(cuGraphAddEmptyNode(node(), s.graph, nullptr, 1)),
    WRONG(cuGraphAddEmptyNode(node(), s.graph, list<CUgraphNode>({nullptr}), 1)),
    WRONG(cuGraphAddEmptyNode(node(), s.graph, list({s.plain, s.plain}), 2)),
    WRONG(cuGraphAddEmptyNode(node(), s.graph, &s.other_node, 1)),
    WRONG(cuGraphAddEmptyNode(nullptr, nullptr, nullptr, 1)),
    WRONG(cuGraphAddDependencies(nullptr, &s.plain, &s.late, 1)),
    WRONG(cuGraphAddDependencies(s.graph, nullptr, &s.late, 1)),
    WRONG(cuGraphAddDependencies(s.graph, &s.plain, nullptr, 1)),
    WRONG(cuGraphAddDependencies(s.graph, nullptr, nullptr, 0)),
    WRONG(cuGraphAddDependencies(s.graph, &s.plain, &s.plain, 1)),
    WRONG(cuGraphAddDependencies(s.graph, &s.plain, &s.launch, 1)),
    WRONG(cuGraphAddDependencies(s.graph, &s.launch, &s.plain, 1)),
    WRONG(cuGraphAddDependencies(s.graph, &s.plain, &s.other_node, 1)),
    WRONG(cuGraphAddDependencies(s.graph, &s.plain, list<CUgraphNode>({nullptr}), 1)),
    WRONG(cuGraphAddDependencies(s.other_graph, &s.plain, &s.late, 1)),
    WRONG(cuGraphRemoveDependencies(nullptr, &s.plain, &s.launch, 1)),
    WRONG(cuGraphRemoveDependencies(s.graph, &s.plain, &s.late, 1)),
    WRONG(cuGraphRemoveDependencies(s.graph, nullptr, &s.launch, 1)),
    WRONG(cuGraphRemoveDependencies(s.graph, &s.plain, &s.other_node, 1)),
    WRONG(cuGraphGetNodes(nullptr, nullptr, out<size_t>())),
    WRONG(cuGraphGetNodes(s.graph, nullptr, nullptr)),
    WRONG(cuGraphGetRootNodes(nullptr, nullptr, out<size_t>())),
    WRONG(cuGraphGetRootNodes(s.graph, nullptr, nullptr)),
    WRONG(cuGraphGetEdges(nullptr, nullptr, nullptr, out<size_t>())),
    WRONG(cuGraphGetEdges(s.graph, nullptr, nullptr, nullptr)),
    WRONG(cuGraphGetEdges(s.graph, node(), nullptr, list<size_t>({1}))),
    WRONG(cuGraphGetEdges_v2(s.graph, nullptr, nullptr, nullptr, nullptr)),
    WRONG(cuGraphNodeGetType(nullptr, out<CUgraphNodeType>())),
    WRONG(cuGraphNodeGetType(s.plain, nullptr)),
    WRONG(cuGraphNodeGetDependencies(nullptr, nullptr, out<size_t>())),
    WRONG(cuGraphNodeGetDependencies(s.launch, nullptr, nullptr)),
    WRONG(cuGraphNodeGetDependentNodes(nullptr, nullptr, out<size_t>())),
    WRONG(cuGraphNodeGetDependentNodes(s.launch, nullptr, nullptr)),
    WRONG(cuGraphNodeFindInClone(nullptr, s.plain, s.clone)),
    WRONG(cuGraphNodeFindInClone(node(), nullptr, s.clone)),
    WRONG(cuGraphNodeFindInClone(node(), s.plain, nullptr)),
    WRONG(cuGraphNodeFindInClone(node(), s.plain, s.other_graph)),
    WRONG(cuGraphNodeFindInClone(node(), s.plain, s.graph)),
    WRONG(cuGraphNodeFindInClone(node(), s.late, s.clone)),
    WRONG(cuGraphDestroyNode(nullptr)),
    WRONG(cuGraphDebugDotPrint(nullptr, "/dev/null", 0)),
    WRONG(cuGraphDebugDotPrint(s.graph, nullptr, 0)),
    WRONG(cuGraphDebugDotPrint(s.graph, "/nonexistent/dot", 0)),
    WRONG(cuUserObjectCreate(nullptr, nullptr, nothing, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)),
    WRONG(cuUserObjectCreate(out<CUuserObject>(), nullptr, nullptr, 1,
                             CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)),
    WRONG(cuUserObjectCreate(out<CUuserObject>(), nullptr, nothing, 0,
                             CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)),
    WRONG(cuUserObjectCreate(out<CUuserObject>(), nullptr, nothing, 1, 0)),
    WRONG(cuUserObjectCreate(out<CUuserObject>(), nullptr, nothing, 1, 99)),
    WRONG(cuUserObjectRetain(nullptr, 1)),
    WRONG(cuUserObjectRetain(s.object, 0)),
    WRONG(cuUserObjectRelease(nullptr, 1)),
    WRONG(cuUserObjectRelease(s.object, 0)),
    WRONG(cuGraphRetainUserObject(nullptr, s.object, 1, 0)),
    WRONG(cuGraphRetainUserObject(s.graph, nullptr, 1, 0)),
    WRONG(cuGraphRetainUserObject(s.graph, s.object, 0, 0)),
    WRONG(cuGraphRetainUserObject(s.graph, s.object, 1, 99)),
    WRONG(cuGraphReleaseUserObject(nullptr, s.object, 1)),
    WRONG(cuGraphReleaseUserObject(s.graph, nullptr, 1)),
    WRONG(cuGraphReleaseUserObject(s.graph, s.object, 0)),
    WRONG(cuGraphReleaseUserObject(s.graph, s.object, 1)),
    WRONG(cuGraphConditionalHandleCreate(nullptr, s.graph, s.context, 0, 0)),
    WRONG(
        cuGraphConditionalHandleCreate(out<CUgraphConditionalHandle>(), nullptr, s.context, 0, 0)),
    WRONG(
        cuGraphConditionalHandleCreate(out<CUgraphConditionalHandle>(), s.graph, s.context, 1, 99)),
    WRONG(
        cuGraphConditionalHandleCreate(out<CUgraphConditionalHandle>(), s.graph, s.context, 1, 0)),
};

const WrongCalls kNodeCalls = {
    WRONG(cuGraphAddKernelNode_v2(nullptr, s.graph, nullptr, 0, kernel(s))),
    WRONG(cuGraphAddKernelNode_v2(node(), nullptr, nullptr, 0, kernel(s))),
    WRONG(cuGraphAddKernelNode_v2(node(), s.graph, nullptr, 0, nullptr)),
    WRONG(cuGraphAddKernelNode_v2(node(), s.graph, nullptr, 1, kernel(s))),
    WRONG(cuGraphAddKernelNode_v2(node(), s.graph, nullptr, 0,
                                  kernel(s).with(&Kernel::func, nullptr))),
    WRONG(cuGraphAddKernelNode_v2(node(), s.graph, nullptr, 0,
                                  kernel(s).with(&Kernel::func, s.world.mix))),
    WRONG(
        cuGraphAddKernelNode_v2(node(), s.graph, nullptr, 0, kernel(s).with(&Kernel::gridDimX, 0))),
    WRONG(cuGraphAddKernelNode_v2(node(), s.graph, nullptr, 0,
                                  kernel(s).with(&Kernel::blockDimX, 2048))),
    WRONG(cuGraphAddKernelNode_v2(node(), s.graph, nullptr, 0,
                                  kernel(s).with(&Kernel::sharedMemBytes, 1 << 20))),
    WRONG(cuGraphAddKernelNode_v2(node(), s.graph, nullptr, 0,
                                  kernel(s).with(&Kernel::kern, s.world.kernel))),
    WRONG(cuGraphAddMemsetNode(nullptr, s.graph, nullptr, 0, fill(s), s.context)),
    WRONG(cuGraphAddMemsetNode(node(), s.graph, nullptr, 0, nullptr, s.context)),
    WRONG(cuGraphAddMemsetNode(node(), s.graph, nullptr, 0, fill(s), nullptr)),
    WRONG(
        cuGraphAddMemsetNode(node(), s.graph, nullptr, 0, fill(s).with(&Fill::dst, 0), s.context)),
    WRONG(cuGraphAddMemsetNode(node(), s.graph, nullptr, 0, fill(s).with(&Fill::elementSize, 3),
                               s.context)),
    WRONG(cuGraphAddMemsetNode(node(), s.graph, nullptr, 0, fill(s).with(&Fill::elementSize, 0),
                               s.context)),
    WRONG(cuGraphAddMemsetNode(node(), s.graph, nullptr, 0, fill(s).with(&Fill::width, 0),
                               s.context)),
    WRONG(cuGraphAddMemsetNode(node(), s.graph, nullptr, 0, fill(s).with(&Fill::height, 0),
                               s.context)),
    WRONG(cuGraphAddMemsetNode(node(), s.graph, nullptr, 0, fill(s).with(&Fill::pitch, 16),
                               s.context)),
    WRONG(cuGraphAddMemsetNode(node(), s.graph, nullptr, 0, fill(s).with(&Fill::dst, s.memory + 2),
                               s.context)),
    WRONG(cuGraphAddMemsetNode(node(), s.graph, nullptr, 0,
                               fill(s).with(&Fill::value, 256).with(&Fill::elementSize, 1),
                               s.context)),
    WRONG(cuGraphAddMemsetNode(node(), s.graph, nullptr, 0, fill(s).with(&Fill::width, kHuge),
                               s.context)),
    WRONG(cuGraphAddMemcpyNode(nullptr, s.graph, nullptr, 0, box(s), s.context)),
    WRONG(cuGraphAddMemcpyNode(node(), s.graph, nullptr, 0, nullptr, s.context)),
    WRONG(cuGraphAddMemcpyNode(node(), s.graph, nullptr, 0, box(s), nullptr)),
    WRONG(cuGraphAddMemcpyNode(node(), s.graph, nullptr, 0, box(s).with(&Box::srcMemoryType, 9),
                               s.context)),
    WRONG(cuGraphAddMemcpyNode(node(), s.graph, nullptr, 0, box(s).with(&Box::srcDevice, 0),
                               s.context)),
    WRONG(cuGraphAddMemcpyNode(node(), s.graph, nullptr, 0, box(s).with(&Box::srcPitch, 16),
                               s.context)),
    WRONG(cuGraphAddMemcpyNode(node(), s.graph, nullptr, 0, box(s).with(&Box::WidthInBytes, 0),
                               s.context)),
    WRONG(
        cuGraphAddMemcpyNode(node(), s.graph, nullptr, 0, box(s).with(&Box::Depth, 0), s.context)),
    WRONG(
        cuGraphAddMemcpyNode(node(), s.graph, nullptr, 0, box(s).with(&Box::srcLOD, 1), s.context)),
    WRONG(cuGraphAddMemcpyNode(node(), s.graph, nullptr, 0, box(s).with(&Box::Height, kHuge),
                               s.context)),
    WRONG(cuGraphAddHostNode(nullptr, s.graph, nullptr, 0, host())),
    WRONG(cuGraphAddHostNode(node(), s.graph, nullptr, 0, nullptr)),
    WRONG(cuGraphAddHostNode(node(), s.graph, nullptr, 0, host().with(&Host::fn, nullptr))),
    WRONG(cuGraphAddEventRecordNode(nullptr, s.graph, nullptr, 0, s.event)),
    WRONG(cuGraphAddEventRecordNode(node(), s.graph, nullptr, 0, nullptr)),
    WRONG(cuGraphAddEventWaitNode(nullptr, s.graph, nullptr, 0, s.event)),
    WRONG(cuGraphAddEventWaitNode(node(), s.graph, nullptr, 0, nullptr)),
    WRONG(cuGraphAddChildGraphNode(nullptr, s.graph, nullptr, 0, s.other_graph)),
    WRONG(cuGraphAddChildGraphNode(node(), s.graph, nullptr, 0, nullptr)),
    WRONG(cuGraphAddMemAllocNode(nullptr, s.graph, nullptr, 0, allocation(s))),
    WRONG(cuGraphAddMemAllocNode(node(), s.graph, nullptr, 0, nullptr)),
    WRONG(cuGraphAddMemAllocNode(node(), s.graph, nullptr, 0,
                                 allocation(s).with(&Allocation::bytesize, 0))),
    WRONG(cuGraphAddMemAllocNode(node(), s.graph, nullptr, 0,
                                 allocation(s).with(&Allocation::bytesize, kHuge))),
    WRONG(cuGraphAddMemAllocNode(node(), s.graph, nullptr, 0,
                                 allocation_at(s, place(CU_MEM_LOCATION_TYPE_DEVICE, kNoDevice)))),
    WRONG(cuGraphAddMemAllocNode(node(), s.graph, nullptr, 0,
                                 allocation_at(s, place(CU_MEM_LOCATION_TYPE_INVALID, 0)))),
    WRONG(cuGraphAddMemFreeNode(nullptr, s.graph, nullptr, 0, s.memory)),
    WRONG(cuGraphAddMemFreeNode(node(), s.graph, nullptr, 0, 0)),
    WRONG(cuGraphAddMemFreeNode(node(), s.graph, nullptr, 0, s.memory)),
    WRONG(cuGraphAddBatchMemOpNode(nullptr, s.graph, nullptr, 0, batch(s, 1, write_at(s.memory)))),
    WRONG(cuGraphAddBatchMemOpNode(node(), s.graph, nullptr, 0, nullptr)),
    WRONG(cuGraphAddBatchMemOpNode(node(), s.graph, nullptr, 0, batch(s, 0, write_at(s.memory)))),
    WRONG(cuGraphAddBatchMemOpNode(node(), s.graph, nullptr, 0, batch(s, 1, nullptr))),
    WRONG(
        cuGraphAddBatchMemOpNode(node(), s.graph, nullptr, 0, batch(s, 1, write_at(s.memory + 2)))),
    WRONG(cuGraphAddBatchMemOpNode(node(), s.graph, nullptr, 0, batch(s, 1, write_at(0)))),
    WRONG(cuGraphAddBatchMemOpNode(node(), s.graph, nullptr, 0,
                                   batch(s, 1, write_at(s.memory)).with(&Batch::flags, 1))),
    WRONG(cuGraphAddBatchMemOpNode(node(), s.graph, nullptr, 0,
                                   batch(s, 1, write_at(s.memory)).with(&Batch::ctx, nullptr))),
    WRONG(cuGraphAddNode_v2(nullptr, s.graph, nullptr, nullptr, 0, any(CU_GRAPH_NODE_TYPE_EMPTY))),
    WRONG(cuGraphAddNode_v2(node(), nullptr, nullptr, nullptr, 0, any(CU_GRAPH_NODE_TYPE_EMPTY))),
    WRONG(cuGraphAddNode_v2(node(), s.graph, nullptr, nullptr, 0, nullptr)),
    WRONG(cuGraphAddNode_v2(node(), s.graph, nullptr, nullptr, 1, any(CU_GRAPH_NODE_TYPE_EMPTY))),
    WRONG(cuGraphAddNode_v2(node(), s.graph, nullptr, nullptr, 0, any(bad<CUgraphNodeType>))),
    WRONG(cuGraphAddNode_v2(node(), s.graph, nullptr, nullptr, 0,
                            any(CU_GRAPH_NODE_TYPE_EMPTY).with(&Any::reserved2, 1))),
    WRONG(cuGraphAddNode_v2(node(), s.graph, nullptr, nullptr, 0, any(CU_GRAPH_NODE_TYPE_KERNEL))),
    WRONG(cuGraphAddNode_v2(node(), s.graph, nullptr, nullptr, 0, any(CU_GRAPH_NODE_TYPE_MEMSET))),
    WRONG(cuGraphAddNode_v2(node(), s.graph, nullptr, nullptr, 0, any(CU_GRAPH_NODE_TYPE_MEMCPY))),
    WRONG(cuGraphAddNode_v2(node(), s.graph, nullptr, nullptr, 0, any(CU_GRAPH_NODE_TYPE_HOST))),
    WRONG(cuGraphAddNode_v2(node(), s.graph, nullptr, nullptr, 0, any(CU_GRAPH_NODE_TYPE_GRAPH))),
    WRONG(cuGraphAddNode_v2(node(), s.graph, nullptr, nullptr, 0,
                            any(CU_GRAPH_NODE_TYPE_WAIT_EVENT))),
    WRONG(cuGraphAddNode_v2(node(), s.graph, nullptr, nullptr, 0,
                            any(CU_GRAPH_NODE_TYPE_EVENT_RECORD))),
    WRONG(
        cuGraphAddNode_v2(node(), s.graph, nullptr, nullptr, 0, any(CU_GRAPH_NODE_TYPE_MEM_ALLOC))),
    WRONG(
        cuGraphAddNode_v2(node(), s.graph, nullptr, nullptr, 0, any(CU_GRAPH_NODE_TYPE_MEM_FREE))),
    WRONG(cuGraphAddNode_v2(node(), s.graph, nullptr, nullptr, 0,
                            any(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP))),
    WRONG(cuGraphAddNode_v2(node(), s.graph, nullptr, nullptr, 0,
                            any(CU_GRAPH_NODE_TYPE_CONDITIONAL))),
    WRONG(cuGraphKernelNodeGetParams_v2(nullptr, out<Kernel>())),
    WRONG(cuGraphKernelNodeGetParams_v2(s.launch, nullptr)),
    WRONG(cuGraphKernelNodeGetParams_v2(s.fill, out<Kernel>())),
    WRONG(cuGraphKernelNodeSetParams_v2(nullptr, kernel(s))),
    WRONG(cuGraphKernelNodeSetParams_v2(s.launch, nullptr)),
    WRONG(cuGraphKernelNodeSetParams_v2(s.fill, kernel(s))),
    WRONG(cuGraphKernelNodeSetParams_v2(s.launch, kernel(s).with(&Kernel::func, nullptr))),
    WRONG(cuGraphKernelNodeSetParams_v2(s.launch, kernel(s).with(&Kernel::gridDimX, 0))),
    WRONG(cuGraphMemsetNodeGetParams(s.launch, out<Fill>())),
    WRONG(cuGraphMemsetNodeGetParams(s.fill, nullptr)),
    WRONG(cuGraphMemsetNodeSetParams(s.fill, nullptr)),
    WRONG(cuGraphMemsetNodeSetParams(s.launch, fill(s))),
    WRONG(cuGraphMemsetNodeSetParams(s.fill, fill(s).with(&Fill::elementSize, 3))),
    WRONG(cuGraphMemsetNodeSetParams(s.fill, fill(s).with(&Fill::dst, 0))),
    WRONG(cuGraphMemcpyNodeGetParams(s.launch, out<Box>())),
    WRONG(cuGraphMemcpyNodeGetParams(s.copy, nullptr)),
    WRONG(cuGraphMemcpyNodeSetParams(s.copy, nullptr)),
    WRONG(cuGraphMemcpyNodeSetParams(s.launch, box(s))),
    WRONG(cuGraphMemcpyNodeSetParams(s.copy, box(s).with(&Box::srcPitch, 16))),
    WRONG(cuGraphMemcpyNodeSetParams(s.copy, box(s).with(&Box::srcDevice, 0))),
    WRONG(cuGraphHostNodeGetParams(s.launch, out<Host>())),
    WRONG(cuGraphHostNodeGetParams(s.call, nullptr)),
    WRONG(cuGraphHostNodeSetParams(s.call, nullptr)),
    WRONG(cuGraphHostNodeSetParams(s.call, host().with(&Host::fn, nullptr))),
    WRONG(cuGraphHostNodeSetParams(s.launch, host())),
    WRONG(cuGraphEventRecordNodeGetEvent(s.launch, out<CUevent>())),
    WRONG(cuGraphEventRecordNodeSetEvent(s.launch, s.event)),
    WRONG(cuGraphEventWaitNodeGetEvent(s.launch, out<CUevent>())),
    WRONG(cuGraphEventWaitNodeSetEvent(s.launch, s.event)),
    WRONG(cuGraphChildGraphNodeGetGraph(s.launch, out<CUgraph>())),
    WRONG(cuGraphMemAllocNodeGetParams(s.launch, out<Allocation>())),
    WRONG(cuGraphMemFreeNodeGetParams(s.launch, out<CUdeviceptr>())),
    WRONG(cuGraphBatchMemOpNodeGetParams(s.launch, out<Batch>())),
    WRONG(cuGraphNodeSetParams(nullptr, any(CU_GRAPH_NODE_TYPE_KERNEL))),
    WRONG(cuGraphNodeSetParams(s.launch, nullptr)),
    WRONG(cuGraphNodeSetParams(s.launch, any(CU_GRAPH_NODE_TYPE_MEMSET))),
    WRONG(cuGraphNodeSetParams(s.launch, any(CU_GRAPH_NODE_TYPE_KERNEL))),
    WRONG(cuGraphKernelNodeGetAttribute(nullptr, CU_KERNEL_NODE_ATTRIBUTE_PRIORITY, out<Value>())),
    WRONG(cuGraphKernelNodeGetAttribute(s.launch, bad<CUkernelNodeAttrID>, out<Value>())),
    WRONG(cuGraphKernelNodeGetAttribute(s.fill, CU_KERNEL_NODE_ATTRIBUTE_PRIORITY, out<Value>())),
    WRONG(cuGraphKernelNodeSetAttribute(s.launch, bad<CUkernelNodeAttrID>, out<Value>())),
    WRONG(cuGraphKernelNodeSetAttribute(s.fill, CU_KERNEL_NODE_ATTRIBUTE_PRIORITY, out<Value>())),
    WRONG(cuGraphKernelNodeSetAttribute(s.launch, CU_KERNEL_NODE_ATTRIBUTE_PRIORITY,
                                        list({priority(-100)}))),
    WRONG(cuGraphKernelNodeSetAttribute(s.launch, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY,
                                        out<Value>())),
    WRONG(cuGraphKernelNodeCopyAttributes(nullptr, s.launch)),
    WRONG(cuGraphKernelNodeCopyAttributes(s.launch, nullptr)),
    WRONG(cuGraphKernelNodeCopyAttributes(s.launch, s.fill)),
};

const WrongCalls kExecCalls = {
    WRONG(cuGraphInstantiateWithFlags(nullptr, s.graph, 0)),
    WRONG(cuGraphInstantiateWithFlags(out<CUgraphExec>(), nullptr, 0)),
    WRONG(cuGraphInstantiateWithFlags(out<CUgraphExec>(), s.graph, 0x8000)),
    WRONG(cuGraphInstantiateWithFlags(nullptr, nullptr, 0x8000)),
    WRONG(cuGraphInstantiateWithFlags(out<CUgraphExec>(), s.graph,
                                      CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)),
    WRONG(cuGraphInstantiateWithFlags(out<CUgraphExec>(), s.graph,
                                      CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)),
    WRONG(cuGraphInstantiateWithParams(nullptr, s.graph, instantiation(0))),
    WRONG(cuGraphInstantiateWithParams(out<CUgraphExec>(), nullptr, instantiation(0))),
    WRONG(cuGraphInstantiateWithParams(out<CUgraphExec>(), s.graph, nullptr)),
    WRONG(cuGraphInstantiateWithParams(out<CUgraphExec>(), s.graph, instantiation(0x8000))),
    WRONG(cuGraphInstantiateWithParams(out<CUgraphExec>(), s.graph,
                                       instantiation(CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH))),
    WRONG(cuGraphExecDestroy(nullptr)),
    WRONG(cuGraphLaunch(nullptr, s.stream)),
    WRONG(cuGraphLaunch(s.exec, s.world.foreign_stream)),
    WRONG(cuGraphUpload(nullptr, s.stream)),
    WRONG(cuGraphExecGetFlags(nullptr, out<cuuint64_t>())),
    WRONG(cuGraphExecGetFlags(s.exec, nullptr)),
    WRONG(cuGraphExecUpdate_v2(nullptr, s.graph, out<CUgraphExecUpdateResultInfo>())),
    WRONG(cuGraphExecUpdate_v2(s.exec, nullptr, out<CUgraphExecUpdateResultInfo>())),
    WRONG(cuGraphExecUpdate_v2(s.exec, s.clone, nullptr)),
    WRONG(cuGraphExecUpdate_v2(s.exec, s.graph, out<CUgraphExecUpdateResultInfo>())),
    WRONG(cuGraphExecUpdate_v2(s.exec, other_topology(s), out<CUgraphExecUpdateResultInfo>())),
    WRONG(cuGraphNodeGetEnabled(nullptr, s.launch, out<unsigned>())),
    WRONG(cuGraphNodeGetEnabled(s.exec, nullptr, out<unsigned>())),
    WRONG(cuGraphNodeGetEnabled(s.exec, s.launch, nullptr)),
    WRONG(cuGraphNodeGetEnabled(s.exec, s.plain, out<unsigned>())),
    WRONG(cuGraphNodeGetEnabled(s.exec, s.call, out<unsigned>())),
    WRONG(cuGraphNodeGetEnabled(s.exec, s.late, out<unsigned>())),
    WRONG(cuGraphNodeGetEnabled(s.exec, s.other_node, out<unsigned>())),
    WRONG(cuGraphNodeSetEnabled(nullptr, s.launch, 1)),
    WRONG(cuGraphNodeSetEnabled(s.exec, nullptr, 1)),
    WRONG(cuGraphNodeSetEnabled(s.exec, s.launch, 7)),
    WRONG(cuGraphNodeSetEnabled(s.exec, s.plain, 1)),
    WRONG(cuGraphNodeSetEnabled(s.exec, s.late, 1)),
    WRONG(cuGraphExecKernelNodeSetParams_v2(nullptr, s.launch, kernel(s))),
    WRONG(cuGraphExecKernelNodeSetParams_v2(s.exec, nullptr, kernel(s))),
    WRONG(cuGraphExecKernelNodeSetParams_v2(s.exec, s.launch, nullptr)),
    WRONG(cuGraphExecKernelNodeSetParams_v2(s.exec, s.fill, kernel(s))),
    WRONG(cuGraphExecKernelNodeSetParams_v2(s.exec, s.other_node, kernel(s))),
    WRONG(cuGraphExecKernelNodeSetParams_v2(s.exec, s.launch,
                                            kernel(s).with(&Kernel::func, nullptr))),
    WRONG(
        cuGraphExecKernelNodeSetParams_v2(s.exec, s.launch, kernel(s).with(&Kernel::gridDimX, 0))),
    WRONG(cuGraphExecKernelNodeSetParams_v2(s.exec, s.launch,
                                            kernel(s).with(&Kernel::blockDimX, 2048))),
    WRONG(cuGraphExecKernelNodeSetParams_v2(s.exec, s.launch,
                                            kernel(s).with(&Kernel::func, s.world.mix))),
    WRONG(cuGraphExecMemsetNodeSetParams(s.exec, s.fill, nullptr, s.context)),
    WRONG(cuGraphExecMemsetNodeSetParams(s.exec, s.launch, fill(s), s.context)),
    WRONG(cuGraphExecMemsetNodeSetParams(s.exec, s.fill, fill(s), s.context)),
    WRONG(cuGraphExecMemsetNodeSetParams(s.exec, s.fill, fill(s).with(&Fill::elementSize, 3),
                                         s.context)),
    WRONG(cuGraphExecMemsetNodeSetParams(
        s.exec, s.fill, fill(s).with(&Fill::height, 1).with(&Fill::dst, 0), s.context)),
    WRONG(cuGraphExecMemsetNodeSetParams(s.exec, s.fill, fill(s).with(&Fill::height, 1), nullptr)),
    WRONG(cuGraphExecMemcpyNodeSetParams(s.exec, s.copy, nullptr, s.context)),
    WRONG(cuGraphExecMemcpyNodeSetParams(s.exec, s.launch, box(s), s.context)),
    WRONG(cuGraphExecMemcpyNodeSetParams(s.exec, s.copy, box(s), s.context)),
    WRONG(cuGraphExecMemcpyNodeSetParams(s.exec, s.copy, box(s).with(&Box::Height, 1), nullptr)),
    WRONG(cuGraphExecMemcpyNodeSetParams(s.exec, s.copy,
                                         box(s)
                                             .with(&Box::Height, 1)
                                             .with(&Box::srcMemoryType, CU_MEMORYTYPE_HOST)
                                             .with(&Box::srcHost, s.pinned),
                                         s.context)),
    WRONG(cuGraphExecHostNodeSetParams(s.exec, s.call, nullptr)),
    WRONG(cuGraphExecHostNodeSetParams(s.exec, s.call, host().with(&Host::fn, nullptr))),
    WRONG(cuGraphExecHostNodeSetParams(s.exec, s.launch, host())),
    WRONG(cuGraphExecEventRecordNodeSetEvent(s.exec, s.launch, s.event)),
    WRONG(cuGraphExecEventWaitNodeSetEvent(s.exec, s.launch, s.event)),
    WRONG(cuGraphExecChildGraphNodeSetParams(s.exec, s.launch, s.other_graph)),
    WRONG(cuGraphExecBatchMemOpNodeSetParams(s.exec, s.launch, batch(s, 1, write_at(s.memory)))),
    WRONG(cuGraphExecNodeSetParams(nullptr, s.launch, any(CU_GRAPH_NODE_TYPE_KERNEL))),
    WRONG(cuGraphExecNodeSetParams(s.exec, nullptr, any(CU_GRAPH_NODE_TYPE_KERNEL))),
    WRONG(cuGraphExecNodeSetParams(s.exec, s.launch, nullptr)),
    WRONG(cuGraphExecNodeSetParams(s.exec, s.launch, any(CU_GRAPH_NODE_TYPE_MEMSET))),
};

}  // namespace e2e
