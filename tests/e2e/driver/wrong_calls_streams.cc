// SPDX-License-Identifier: Apache-2.0
// Wrong calls about streams, events, and values in memory that streams wait for or write.
#include "wrong_calls.h"

namespace e2e {
namespace {

using Value = CUlaunchAttributeValue;

void callback(CUstream, CUresult, void*) {}

Value policy(CUsynchronizationPolicy to) {
  Value value{};
  value.syncPolicy = to;
  return value;
}
Value priority(int to) {
  Value value{};
  value.priority = to;
  return value;
}
Value window(const Stage& s, size_t bytes, float ratio, CUaccessProperty hit,
             CUaccessProperty miss) {
  Value value{};
  value.accessPolicyWindow = {pointer(s.memory), bytes, ratio, hit, miss};
  return value;
}

CUstreamBatchMemOpParams operation(CUstreamBatchMemOpType what, CUdeviceptr address,
                                   unsigned flags) {
  CUstreamBatchMemOpParams made{};
  made.writeValue.operation = what;
  made.writeValue.address = address;
  made.writeValue.flags = flags;
  return made;
}

// Makes a call while a stream captures. The capture ends after the call.
template <typename Call>
CUresult captured(Stage& s, Call call) {
  CHECK_CU(cuStreamBeginCapture_v2(s.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  const CUresult result = call(s);
  CUgraph made = nullptr;
  static_cast<void>(cuStreamEndCapture(s.stream, &made));
  if (made != nullptr) CHECK_CU(cuGraphDestroy(made));
  return result;
}
#define CAPTURED(...) WRONG_WHERE("capturing: ", captured, __VA_ARGS__)

CUevent interprocess() {
  CUevent made = nullptr;
  CHECK_CU(cuEventCreate(&made, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
  return made;
}

}  // namespace

const WrongCalls kStreamCalls = {
    WRONG(cuStreamCreate(nullptr, 0)),
    WRONG(cuStreamCreate(out<CUstream>(), 2)),
    WRONG(cuStreamCreate(out<CUstream>(), ~0u)),
    WRONG(cuStreamCreate(nullptr, ~0u)),
    WRONG(cuStreamCreateWithPriority(nullptr, 0, 0)),
    WRONG(cuStreamCreateWithPriority(out<CUstream>(), 7, 0)),
    WRONG(cuStreamCreateWithPriority(out<CUstream>(), 0, 100)),
    WRONG(cuStreamCreateWithPriority(out<CUstream>(), 0, -100)),
    WRONG(cuStreamDestroy_v2(nullptr)),
    WRONG(cuStreamDestroy_v2(CU_STREAM_LEGACY)),
    WRONG(cuStreamDestroy_v2(CU_STREAM_PER_THREAD)),
    WRONG(cuStreamGetFlags(s.stream, nullptr)),
    WRONG(cuStreamGetPriority(s.stream, nullptr)),
    WRONG(cuStreamGetId(s.stream, nullptr)),
    WRONG(cuStreamGetCtx(s.stream, nullptr)),
    WRONG(cuStreamGetCtx_v2(s.stream, nullptr, nullptr)),
    WRONG(cuStreamGetCtx_v2(s.stream, out<CUcontext>(), nullptr)),
    WRONG(cuStreamGetGreenCtx(s.stream, nullptr)),
    WRONG(cuStreamGetDevice(s.stream, nullptr)),
    WRONG(cuStreamGetFlags(s.world.foreign_stream, out<unsigned>())),
    WRONG(cuStreamGetCtx(s.world.foreign_stream, out<CUcontext>())),
    WRONG(cuStreamQuery(s.world.foreign_stream)),
    WRONG(cuStreamSynchronize(s.world.foreign_stream)),
    WRONG(cuStreamWaitEvent(s.stream, nullptr, 0)),
    WRONG(cuStreamWaitEvent(s.stream, s.event, 0)),
    WRONG(cuStreamWaitEvent(s.stream, s.event, 99)),
    WRONG(cuStreamWaitEvent(s.stream, nullptr, 99)),
    WRONG(cuStreamWaitEvent(s.stream, s.event, CU_EVENT_WAIT_EXTERNAL)),
    WRONG(cuStreamWaitEvent(s.world.foreign_stream, s.event, 0)),
    WRONG(cuStreamWaitEvent(s.stream, s.world.foreign_event, 0)),
    WRONG(cuStreamAddCallback(s.stream, nullptr, nullptr, 0)),
    WRONG(cuStreamAddCallback(s.stream, callback, nullptr, 1)),
    WRONG(cuStreamAddCallback(s.stream, nullptr, nullptr, 1)),
    WRONG(cuLaunchHostFunc(s.stream, nullptr, nullptr)),
    WRONG(cuStreamAttachMemAsync(s.stream, 0, 0, CU_MEM_ATTACH_SINGLE)),
    WRONG(cuStreamAttachMemAsync(s.stream, s.memory, 0, CU_MEM_ATTACH_SINGLE)),
    WRONG(cuStreamAttachMemAsync(s.stream, s.managed, 5, CU_MEM_ATTACH_SINGLE)),
    WRONG(cuStreamAttachMemAsync(s.stream, s.managed, 0, 0x80)),
    WRONG(cuStreamAttachMemAsync(nullptr, s.managed, 0, CU_MEM_ATTACH_SINGLE)),
    WRONG(cuStreamGetAttribute(s.stream, bad<CUstreamAttrID>, out<Value>())),
    WRONG(cuStreamGetAttribute(s.stream, bad<CUstreamAttrID>, nullptr)),
    WRONG(cuStreamGetAttribute(s.stream, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, out<Value>())),
    WRONG(cuStreamGetAttribute(s.stream, CU_LAUNCH_ATTRIBUTE_IGNORE, out<Value>())),
    WRONG(cuStreamSetAttribute(s.stream, bad<CUstreamAttrID>, out<Value>())),
    WRONG(cuStreamSetAttribute(s.stream, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, out<Value>())),
    WRONG(cuStreamSetAttribute(s.stream, CU_LAUNCH_ATTRIBUTE_IGNORE, out<Value>())),
    WRONG(cuStreamSetAttribute(s.stream, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY,
                               list({policy(bad<CUsynchronizationPolicy>)}))),
    WRONG(cuStreamSetAttribute(s.stream, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY,
                               list({policy(static_cast<CUsynchronizationPolicy>(0))}))),
    WRONG(cuStreamSetAttribute(s.stream, CU_STREAM_ATTRIBUTE_PRIORITY, list({priority(-100)}))),
    WRONG(cuStreamSetAttribute(s.stream, CU_STREAM_ATTRIBUTE_PRIORITY, list({priority(100)}))),
    WRONG(cuStreamSetAttribute(
        s.stream, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW,
        list({window(s, 64, 2, CU_ACCESS_PROPERTY_NORMAL, CU_ACCESS_PROPERTY_NORMAL)}))),
    WRONG(cuStreamSetAttribute(
        s.stream, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW,
        list({window(s, 64, -1, CU_ACCESS_PROPERTY_NORMAL, CU_ACCESS_PROPERTY_NORMAL)}))),
    WRONG(cuStreamSetAttribute(
        s.stream, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW,
        list({window(s, kHuge, 1, CU_ACCESS_PROPERTY_NORMAL, CU_ACCESS_PROPERTY_NORMAL)}))),
    WRONG(cuStreamSetAttribute(
        s.stream, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW,
        list({window(s, 64, 1, bad<CUaccessProperty>, CU_ACCESS_PROPERTY_NORMAL)}))),
    WRONG(cuStreamSetAttribute(
        s.stream, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW,
        list({window(s, 64, 1, CU_ACCESS_PROPERTY_NORMAL, CU_ACCESS_PROPERTY_PERSISTING)}))),
    WRONG(cuStreamCopyAttributes(nullptr, s.stream)),
    WRONG(cuStreamCopyAttributes(s.stream, nullptr)),
    WRONG(cuStreamCopyAttributes(s.stream, s.world.foreign_stream)),
    WRONG(cuStreamBeginCapture_v2(s.stream, bad<CUstreamCaptureMode>)),
    WRONG(cuStreamBeginCapture_v2(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL)),
    WRONG(cuStreamBeginCapture_v2(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_GLOBAL)),
    WRONG(cuStreamBeginCapture_v2(nullptr, bad<CUstreamCaptureMode>)),
    WRONG(cuStreamEndCapture(s.stream, out<CUgraph>())),
    WRONG(cuStreamEndCapture(s.stream, nullptr)),
    WRONG(cuStreamEndCapture(nullptr, out<CUgraph>())),
    WRONG(cuStreamEndCapture(nullptr, nullptr)),
    WRONG(cuStreamIsCapturing(s.stream, nullptr)),
    WRONG(cuStreamIsCapturing(nullptr, out<CUstreamCaptureStatus>())),
    WRONG(cuStreamIsCapturing(nullptr, nullptr)),
    WRONG(cuStreamGetCaptureInfo_v2(s.stream, nullptr, nullptr, nullptr, nullptr, nullptr)),
    WRONG(
        cuStreamGetCaptureInfo_v3(s.stream, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr)),
    WRONG(cuStreamUpdateCaptureDependencies(s.stream, nullptr, 0, 0)),
    WRONG(cuStreamUpdateCaptureDependencies(s.stream, nullptr, 0, 99)),
    WRONG(cuStreamUpdateCaptureDependencies(s.stream, nullptr, 1, 0)),
    WRONG(cuStreamUpdateCaptureDependencies(nullptr, nullptr, 0, 0)),
    WRONG(cuStreamBeginCaptureToGraph(s.stream, nullptr, nullptr, nullptr, 0,
                                      CU_STREAM_CAPTURE_MODE_GLOBAL)),
    WRONG(cuStreamBeginCaptureToGraph(s.stream, s.graph, nullptr, nullptr, 1,
                                      CU_STREAM_CAPTURE_MODE_GLOBAL)),
    WRONG(cuStreamBeginCaptureToGraph(s.stream, s.graph, &s.other_node, nullptr, 1,
                                      CU_STREAM_CAPTURE_MODE_GLOBAL)),
    WRONG(cuStreamBeginCaptureToGraph(s.stream, s.graph, nullptr, nullptr, 0,
                                      bad<CUstreamCaptureMode>)),
    WRONG(cuStreamBeginCaptureToGraph(nullptr, s.graph, nullptr, nullptr, 0,
                                      CU_STREAM_CAPTURE_MODE_GLOBAL)),
    WRONG(cuThreadExchangeStreamCaptureMode(list({bad<CUstreamCaptureMode>}))),
    CAPTURED(cuStreamBeginCapture_v2(s.stream, CU_STREAM_CAPTURE_MODE_GLOBAL)),
    CAPTURED(cuStreamBeginCapture_v2(s.stream, bad<CUstreamCaptureMode>)),
    CAPTURED(cuStreamEndCapture(s.stream, nullptr)),
    CAPTURED(cuStreamUpdateCaptureDependencies(s.stream, nullptr, 1, 0)),
    CAPTURED(cuStreamUpdateCaptureDependencies(s.stream, &s.plain, 1, 0)),
    CAPTURED(cuStreamUpdateCaptureDependencies(s.stream, nullptr, 0, 99)),
    CAPTURED(cuStreamWaitEvent(s.stream, s.event, CU_EVENT_WAIT_EXTERNAL)),
    CAPTURED(cuStreamWaitEvent(s.stream, s.event, 99)),
    CAPTURED(cuStreamWaitEvent(s.stream, nullptr, 0)),
    CAPTURED(cuEventRecordWithFlags(s.event, s.stream, 99)),
    CAPTURED(cuEventRecord(nullptr, s.stream)),
    CAPTURED(cuEventRecord(s.world.foreign_event, s.stream)),
    CAPTURED(cuStreamQuery(s.stream)),
    CAPTURED(cuLaunchHostFunc(s.stream, nullptr, nullptr)),
    CAPTURED(cuMemsetD32Async(s.memory + 1, 1, 4, s.stream)),
    CAPTURED(cuMemsetD8Async(0, 1, 4, s.stream)),
    CAPTURED(cuMemcpyAsync(0, s.memory, 4, s.stream)),
    CAPTURED(cuMemcpyDtoDAsync_v2(s.memory, s.memory + 64, kHuge, s.stream)),
    CAPTURED(cuMemcpyHtoDAsync_v2(s.memory, nullptr, 16, s.stream)),
    CAPTURED(cuMemAllocAsync(out<CUdeviceptr>(), 0, s.stream)),
    CAPTURED(cuMemFreeAsync(s.memory, s.stream)),
    CAPTURED(cuGraphLaunch(nullptr, s.stream)),
    CAPTURED(cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, s.stream, nullptr, nullptr)),
    CAPTURED(cuLaunchKernel(s.world.empty, 0, 1, 1, 1, 1, 1, 0, s.stream, nullptr, nullptr)),
    CAPTURED(cuLaunchKernel(s.world.empty, 1, 1, 1, 2048, 1, 1, 0, s.stream, nullptr, nullptr)),
};

const WrongCalls kEventCalls = {
    WRONG(cuEventCreate(nullptr, 0)),
    WRONG(cuEventCreate(out<CUevent>(), 8)),
    WRONG(cuEventCreate(out<CUevent>(), 0xff)),
    WRONG(cuEventCreate(out<CUevent>(), CU_EVENT_INTERPROCESS)),
    WRONG(cuEventCreate(nullptr, 0xff)),
    WRONG(cuEventDestroy_v2(nullptr)),
    WRONG(cuEventQuery(nullptr)),
    WRONG(cuEventSynchronize(nullptr)),
    WRONG(cuEventQuery(s.event)),
    WRONG(cuEventSynchronize(s.event)),
    WRONG(cuEventQuery(s.world.foreign_event)),
    WRONG(cuEventRecord(nullptr, s.stream)),
    WRONG(cuEventRecord(s.event, s.world.foreign_stream)),
    WRONG(cuEventRecord(s.world.foreign_event, s.stream)),
    WRONG(cuEventRecord(s.world.foreign_event, nullptr)),
    WRONG(cuEventRecordWithFlags(s.event, s.stream, 99)),
    WRONG(cuEventRecordWithFlags(nullptr, s.stream, 99)),
    WRONG(cuEventRecordWithFlags(s.event, s.world.foreign_stream, 99)),
    WRONG(cuEventRecordWithFlags(s.event, s.stream, CU_EVENT_RECORD_EXTERNAL)),
    WRONG(cuEventElapsedTime_v2(nullptr, s.recorded, s.recorded)),
    WRONG(cuEventElapsedTime_v2(out<float>(), nullptr, s.recorded)),
    WRONG(cuEventElapsedTime_v2(out<float>(), s.recorded, nullptr)),
    WRONG(cuEventElapsedTime_v2(nullptr, nullptr, nullptr)),
    WRONG(cuEventElapsedTime_v2(out<float>(), s.event, s.recorded)),
    WRONG(cuEventElapsedTime_v2(out<float>(), s.recorded, s.event)),
    WRONG(cuEventElapsedTime_v2(out<float>(), s.untimed, s.recorded)),
    WRONG(cuEventElapsedTime_v2(out<float>(), s.recorded, s.untimed)),
    WRONG(cuEventElapsedTime_v2(out<float>(), s.untimed, s.event)),
    WRONG(cuEventElapsedTime_v2(nullptr, s.untimed, s.event)),
    WRONG(cuEventElapsedTime_v2(out<float>(), s.recorded, s.world.foreign_event)),
    WRONG(cuEventElapsedTime(nullptr, s.recorded, s.recorded)),
    WRONG(cuEventElapsedTime(out<float>(), s.untimed, s.recorded)),
    WRONG(cuEventElapsedTime(out<float>(), s.event, s.recorded)),
    WRONG(cuIpcGetEventHandle(nullptr, interprocess())),
    WRONG(cuIpcGetEventHandle(out<CUipcEventHandle>(), nullptr)),
    WRONG(cuIpcGetEventHandle(out<CUipcEventHandle>(), s.event)),
    WRONG(cuIpcGetEventHandle(out<CUipcEventHandle>(), s.untimed)),
    WRONG(cuIpcOpenEventHandle(nullptr, {})),
    WRONG(cuIpcOpenEventHandle(out<CUevent>(), {})),
};

const WrongCalls kValueCalls = {
    WRONG(cuStreamWaitValue32_v2(s.stream, 0, 1, CU_STREAM_WAIT_VALUE_EQ)),
    WRONG(cuStreamWaitValue32_v2(s.stream, s.memory + 2, 0, CU_STREAM_WAIT_VALUE_EQ)),
    WRONG(cuStreamWaitValue32_v2(s.stream, s.memory, 0, 0x80)),
    WRONG(cuStreamWaitValue32_v2(s.stream, s.memory + 2, 0, 0x80)),
    WRONG(cuStreamWaitValue32_v2(s.stream, 0, 0, 0x80)),
    WRONG(cuStreamWaitValue64_v2(s.stream, 0, 1, CU_STREAM_WAIT_VALUE_EQ)),
    WRONG(cuStreamWaitValue64_v2(s.stream, s.memory + 4, 0, CU_STREAM_WAIT_VALUE_EQ)),
    WRONG(cuStreamWaitValue64_v2(s.stream, s.memory, 0, 0x80)),
    WRONG(cuStreamWriteValue32_v2(s.stream, 0, 1, 0)),
    WRONG(cuStreamWriteValue32_v2(s.stream, s.memory + 2, 1, 0)),
    WRONG(cuStreamWriteValue32_v2(s.stream, s.memory, 1, 0x80)),
    WRONG(cuStreamWriteValue32_v2(s.stream, s.memory + 2, 1, 0x80)),
    WRONG(cuStreamWriteValue64_v2(s.stream, 0, 1, 0)),
    WRONG(cuStreamWriteValue64_v2(s.stream, s.memory + 4, 1, 0)),
    WRONG(cuStreamWriteValue64_v2(s.stream, s.memory, 1, 0x80)),
    WRONG(cuStreamWriteValue32_v2(s.world.foreign_stream, s.memory, 1, 0)),
    WRONG(cuStreamBatchMemOp_v2(s.stream, 0, nullptr, 0)),
    WRONG(cuStreamBatchMemOp_v2(
        s.stream, 0, list({operation(CU_STREAM_MEM_OP_WRITE_VALUE_32, s.memory, 0)}), 0)),
    WRONG(cuStreamBatchMemOp_v2(
        s.stream, 1, list({operation(CU_STREAM_MEM_OP_WRITE_VALUE_32, s.memory, 0)}), 1)),
    WRONG(cuStreamBatchMemOp_v2(s.stream, 257, out<CUstreamBatchMemOpParams>(), 0)),
    WRONG(cuStreamBatchMemOp_v2(s.stream, 1,
                                list({operation(bad<CUstreamBatchMemOpType>, s.memory, 0)}), 0)),
    WRONG(cuStreamBatchMemOp_v2(
        s.stream, 1, list({operation(CU_STREAM_MEM_OP_WRITE_VALUE_32, s.memory + 2, 0)}), 0)),
    WRONG(cuStreamBatchMemOp_v2(s.stream, 1,
                                list({operation(CU_STREAM_MEM_OP_WRITE_VALUE_32, 0, 0)}), 0)),
    WRONG(cuStreamBatchMemOp_v2(
        s.stream, 1, list({operation(CU_STREAM_MEM_OP_WRITE_VALUE_64, s.memory + 4, 0)}), 0)),
    WRONG(cuStreamBatchMemOp_v2(
        s.stream, 1, list({operation(CU_STREAM_MEM_OP_WRITE_VALUE_32, s.memory, 0x80)}), 0)),
    WRONG(cuStreamBatchMemOp_v2(s.stream, 1, list({operation(CU_STREAM_MEM_OP_BARRIER, 0, 0)}), 0)),
};

}  // namespace e2e
