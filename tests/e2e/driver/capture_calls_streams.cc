// SPDX-License-Identifier: Apache-2.0
// Calls about streams, work in them, and events that are made while a stream captures. See
// capture_calls.h.
#include "capture_calls.h"

namespace e2e {

const std::vector<Call> kStreamCalls = {
    {"cuStreamGetPriority(origin)",
     [](Stage& s) {
       int priority = 0;
       return cuStreamGetPriority(s.origin, &priority);
     }},
    {"cuStreamGetPriority(legacy)",
     [](Stage&) {
       int priority = 0;
       return cuStreamGetPriority(nullptr, &priority);
     }},
    {"cuStreamGetId(origin)",
     [](Stage& s) {
       unsigned long long id = 0;
       return cuStreamGetId(s.origin, &id);
     }},
    {"cuStreamGetCtx(origin)",
     [](Stage& s) {
       CUcontext context = nullptr;
       return cuStreamGetCtx(s.origin, &context);
     }},
    {"cuStreamGetDevice(origin)",
     [](Stage& s) {
       CUdevice device = 0;
       return cuStreamGetDevice(s.origin, &device);
     }},
    {"cuStreamGetDevice(legacy)",
     [](Stage&) {
       CUdevice device = 0;
       return cuStreamGetDevice(nullptr, &device);
     }},
    {"cuStreamGetGreenCtx(origin)",
     [](Stage& s) {
       CUgreenCtx green = nullptr;
       return cuStreamGetGreenCtx(s.origin, &green);
     }},
    {"cuStreamGetAttribute(origin)",
     [](Stage& s) {
       CUstreamAttrValue policy{};
       return cuStreamGetAttribute(s.origin, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &policy);
     }},
    {"cuStreamSetAttribute(legacy)",
     [](Stage&) {
       CUstreamAttrValue policy{};
       policy.syncPolicy = CU_SYNC_POLICY_AUTO;
       return cuStreamSetAttribute(nullptr, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &policy);
     }},
    {"cuStreamGetFlags(a joined stream)",
     [](Stage& s) {
       CHECK_CU(cuStreamWaitEvent(s.free, s.captured, 0));
       unsigned flags = 0;
       return cuStreamGetFlags(s.free, &flags);
     }},
    {"cuStreamAttachMemAsync(origin)",
     [](Stage& s) { return cuStreamAttachMemAsync(s.origin, s.memory, 0, CU_MEM_ATTACH_GLOBAL); }},
    {"cuStreamBatchMemOp(origin)",
     [](Stage& s) {
       CUstreamBatchMemOpParams one{};
       one.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
       one.writeValue.address = s.memory;
       return cuStreamBatchMemOp_v2(s.origin, 1, &one, 0);
     }},
    {"cuStreamQuery(origin)", [](Stage& s) { return cuStreamQuery(s.origin); }},
    {"cuStreamSynchronize(origin)", [](Stage& s) { return cuStreamSynchronize(s.origin); }},
    {"cuStreamQuery(legacy)", [](Stage&) { return cuStreamQuery(nullptr); }},
    {"cuStreamSynchronize(legacy)", [](Stage&) { return cuStreamSynchronize(nullptr); }},
    {"cuStreamQuery(blocking)", [](Stage& s) { return cuStreamQuery(s.blocking); }},
    {"cuStreamSynchronize(blocking)", [](Stage& s) { return cuStreamSynchronize(s.blocking); }},
    {"cuStreamQuery(free)", [](Stage& s) { return cuStreamQuery(s.free); }},
    {"cuStreamSynchronize(free)", [](Stage& s) { return cuStreamSynchronize(s.free); }},
    {"cuStreamSynchronize(per thread)",
     [](Stage&) { return cuStreamSynchronize(CU_STREAM_PER_THREAD); }},
    {"cuCtxSynchronize", [](Stage&) { return cuCtxSynchronize(); }},
    {"cuStreamCreate",
     [](Stage& s) {
       CUstream made = nullptr;
       const CUresult result = cuStreamCreate(&made, CU_STREAM_DEFAULT);
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuStreamDestroy_v2(made)); });
       return result;
     }},
    {"cuStreamDestroy(blocking)",
     [](Stage& s) { return cuStreamDestroy_v2(std::exchange(s.blocking, nullptr)); }},
    {"cuStreamGetFlags(origin)",
     [](Stage& s) {
       unsigned flags = 0;
       return cuStreamGetFlags(s.origin, &flags);
     }},
    {"cuStreamGetFlags(legacy)",
     [](Stage&) {
       unsigned flags = 0;
       return cuStreamGetFlags(nullptr, &flags);
     }},
    {"cuStreamGetId(legacy)",
     [](Stage&) {
       unsigned long long id = 0;
       return cuStreamGetId(nullptr, &id);
     }},
    {"cuStreamGetCtx(legacy)",
     [](Stage&) {
       CUcontext context = nullptr;
       return cuStreamGetCtx(nullptr, &context);
     }},
    {"cuStreamSetAttribute(origin)",
     [](Stage& s) {
       CUstreamAttrValue policy{};
       policy.syncPolicy = CU_SYNC_POLICY_AUTO;
       return cuStreamSetAttribute(s.origin, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &policy);
     }},
    {"cuStreamGetAttribute(legacy)",
     [](Stage&) {
       CUstreamAttrValue policy{};
       return cuStreamGetAttribute(nullptr, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &policy);
     }},
    {"cuStreamCopyAttributes(origin, free)",
     [](Stage& s) { return cuStreamCopyAttributes(s.origin, s.free); }},
    {"cuStreamAddCallback(origin)",
     [](Stage& s) {
       return cuStreamAddCallback(
           s.origin, [](CUstream, CUresult, void*) {}, nullptr, 0);
     }},
    {"cuStreamAddCallback(legacy)",
     [](Stage&) {
       return cuStreamAddCallback(
           nullptr, [](CUstream, CUresult, void*) {}, nullptr, 0);
     }},
    {"cuLaunchHostFunc(origin)",
     [](Stage& s) {
       return cuLaunchHostFunc(
           s.origin, [](void*) {}, nullptr);
     }},
    {"cuLaunchHostFunc(legacy)",
     [](Stage&) {
       return cuLaunchHostFunc(
           nullptr, [](void*) {}, nullptr);
     }},
    {"cuLaunchHostFunc(free)",
     [](Stage& s) {
       return cuLaunchHostFunc(
           s.free, [](void*) {}, nullptr);
     }},
    {"cuStreamWriteValue32(origin)",
     [](Stage& s) { return cuStreamWriteValue32_v2(s.origin, s.memory, 1, 0); }},
    {"cuStreamWriteValue32(legacy)",
     [](Stage& s) { return cuStreamWriteValue32_v2(nullptr, s.memory, 1, 0); }},
    {"cuStreamWaitValue32(origin)",
     [](Stage& s) {
       return cuStreamWaitValue32_v2(s.origin, s.memory, 0, CU_STREAM_WAIT_VALUE_GEQ);
     }},
    {"cuLaunchKernel(origin)",
     [](Stage& s) { return try_launch(s.session.function("empty"), 1, 1, 0, s.origin); }},
    {"cuLaunchKernel(legacy)",
     [](Stage& s) { return try_launch(s.session.function("empty"), 1, 1, 0, nullptr); }},
    {"cuLaunchKernel(blocking)",
     [](Stage& s) { return try_launch(s.session.function("empty"), 1, 1, 0, s.blocking); }},
    {"cuLaunchKernel(per thread)",
     [](Stage& s) {
       return try_launch(s.session.function("empty"), 1, 1, 0, CU_STREAM_PER_THREAD);
     }},
};

const std::vector<Call> kEventCalls = {
    {"cuEventQuery(done)", [](Stage& s) { return cuEventQuery(s.done); }},
    {"cuEventSynchronize(done)", [](Stage& s) { return cuEventSynchronize(s.done); }},
    {"cuEventQuery(unused)", [](Stage& s) { return cuEventQuery(s.unused); }},
    {"cuEventSynchronize(unused)", [](Stage& s) { return cuEventSynchronize(s.unused); }},
    {"cuEventQuery(captured)", [](Stage& s) { return cuEventQuery(s.captured); }},
    {"cuEventSynchronize(captured)", [](Stage& s) { return cuEventSynchronize(s.captured); }},
    {"cuEventElapsedTime(done, done)",
     [](Stage& s) {
       float ms = 0;
       return cuEventElapsedTime_v2(&ms, s.done, s.done_later);
     }},
    {"cuEventElapsedTime(done, captured)",
     [](Stage& s) {
       float ms = 0;
       return cuEventElapsedTime_v2(&ms, s.done, s.captured);
     }},
    {"cuEventElapsedTime(captured, captured)",
     [](Stage& s) {
       float ms = 0;
       return cuEventElapsedTime_v2(&ms, s.captured, s.captured_later);
     }},
    {"cuEventElapsedTime(unused, captured)",
     [](Stage& s) {
       float ms = 0;
       return cuEventElapsedTime_v2(&ms, s.unused, s.captured);
     }},
    {"cuEventRecord(origin)", [](Stage& s) { return cuEventRecord(s.unused, s.origin); }},
    {"cuEventRecord(legacy)", [](Stage& s) { return cuEventRecord(s.unused, nullptr); }},
    {"cuEventRecord(blocking)", [](Stage& s) { return cuEventRecord(s.unused, s.blocking); }},
    {"cuEventRecord(captured, free)", [](Stage& s) { return cuEventRecord(s.captured, s.free); }},
    {"cuEventRecordWithFlags(external, origin)",
     [](Stage& s) { return cuEventRecordWithFlags(s.unused, s.origin, CU_EVENT_RECORD_EXTERNAL); }},
    {"cuEventRecordWithFlags(external, free)",
     [](Stage& s) { return cuEventRecordWithFlags(s.unused, s.free, CU_EVENT_RECORD_EXTERNAL); }},
    {"cuEventRecordWithFlags(external, legacy)",
     [](Stage& s) { return cuEventRecordWithFlags(s.unused, nullptr, CU_EVENT_RECORD_EXTERNAL); }},
    {"cuEventCreate",
     [](Stage& s) {
       CUevent made = nullptr;
       const CUresult result = cuEventCreate(&made, CU_EVENT_DEFAULT);
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuEventDestroy_v2(made)); });
       return result;
     }},
    {"cuEventDestroy(done)",
     [](Stage& s) { return cuEventDestroy_v2(std::exchange(s.done, nullptr)); }},
    {"cuEventDestroy(captured)",
     [](Stage& s) { return cuEventDestroy_v2(std::exchange(s.captured, nullptr)); }},
    {"cuStreamWaitEvent(origin, captured)",
     [](Stage& s) { return cuStreamWaitEvent(s.origin, s.captured, 0); }},
    {"cuStreamWaitEvent(origin, done)",
     [](Stage& s) { return cuStreamWaitEvent(s.origin, s.done, 0); }},
    {"cuStreamWaitEvent(origin, unused)",
     [](Stage& s) { return cuStreamWaitEvent(s.origin, s.unused, 0); }},
    {"cuStreamWaitEvent(origin, done, external)",
     [](Stage& s) { return cuStreamWaitEvent(s.origin, s.done, CU_EVENT_WAIT_EXTERNAL); }},
    {"cuStreamWaitEvent(origin, captured, external)",
     [](Stage& s) { return cuStreamWaitEvent(s.origin, s.captured, CU_EVENT_WAIT_EXTERNAL); }},
    {"cuStreamWaitEvent(free, captured, external)",
     [](Stage& s) { return cuStreamWaitEvent(s.free, s.captured, CU_EVENT_WAIT_EXTERNAL); }},
    {"cuStreamWaitEvent(free, done, external)",
     [](Stage& s) { return cuStreamWaitEvent(s.free, s.done, CU_EVENT_WAIT_EXTERNAL); }},
    {"cuStreamWaitEvent(legacy, captured)",
     [](Stage& s) { return cuStreamWaitEvent(nullptr, s.captured, 0); }},
    {"cuStreamWaitEvent(legacy, done)",
     [](Stage& s) { return cuStreamWaitEvent(nullptr, s.done, 0); }},
    {"cuStreamWaitEvent(legacy, unused)",
     [](Stage& s) { return cuStreamWaitEvent(nullptr, s.unused, 0); }},
    {"cuStreamWaitEvent(blocking, done)",
     [](Stage& s) { return cuStreamWaitEvent(s.blocking, s.done, 0); }},
    {"cuStreamWaitEvent(free, captured), nothing in it",
     [](Stage& s) { return cuStreamWaitEvent(s.free, s.captured, 0); }},
    {"cuStreamWaitEvent(free, captured), work in it",
     [](Stage& s) {
       const CUresult result = cuStreamWaitEvent(s.free, s.captured, 0);
       return result != CUDA_SUCCESS ? result : cuMemsetD8Async(s.more, 1, kBytes, s.free);
     }},
    {"cuCtxRecordEvent", [](Stage& s) { return cuCtxRecordEvent(s.session.context, s.unused); }},
    {"cuCtxWaitEvent(done)", [](Stage& s) { return cuCtxWaitEvent(s.session.context, s.done); }},
    {"cuCtxWaitEvent(captured)",
     [](Stage& s) { return cuCtxWaitEvent(s.session.context, s.captured); }},
};

}  // namespace e2e
