// SPDX-License-Identifier: Apache-2.0
// Calls about code, contexts, graphs and captures that are made while a stream captures. See
// capture_calls.h.
#include "capture_calls.h"

namespace e2e {

const std::vector<Call> kCodeCalls = {
    {"cuModuleUnload",
     [](Stage& s) {
       CUmodule made = nullptr;
       const CUstreamCaptureMode before = exchange_mode(kRelaxed);
       CHECK_CU(cuModuleLoadData(&made, condition_kernels_ptx()));
       exchange_mode(before);
       const CUresult result = cuModuleUnload(made);
       if (result != CUDA_SUCCESS) s.later([=] { CHECK_CU(cuModuleUnload(made)); });
       return result;
     }},
    {"cuLibraryUnload",
     [](Stage& s) {
       CUlibrary made = nullptr;
       const CUstreamCaptureMode before = exchange_mode(kRelaxed);
       CHECK_CU(cuLibraryLoadData(&made, condition_kernels_ptx(), nullptr, nullptr, 0, nullptr,
                                  nullptr, 0));
       exchange_mode(before);
       const CUresult result = cuLibraryUnload(made);
       if (result != CUDA_SUCCESS) s.later([=] { CHECK_CU(cuLibraryUnload(made)); });
       return result;
     }},
    {"cuCtxSetLimit",
     [](Stage&) {
       size_t value = 0;
       CHECK_CU(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
       return cuCtxSetLimit(CU_LIMIT_STACK_SIZE, value);
     }},
    {"cuCtxSetCacheConfig", [](Stage&) { return cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_NONE); }},
    {"cuGraphDestroy",
     [](Stage&) {
       CUgraph made = nullptr;
       CHECK_CU(cuGraphCreate(&made, 0));
       return cuGraphDestroy(made);
     }},
    {"cuGraphExecDestroy",
     [](Stage& s) {
       CUgraphExec made = nullptr;
       const CUstreamCaptureMode before = exchange_mode(kRelaxed);
       CHECK_CU(cuGraphInstantiateWithFlags(&made, s.graph, 0));
       exchange_mode(before);
       return cuGraphExecDestroy(made);
     }},
    {"cuGraphAddEmptyNode(the capture's graph)",
     [](Stage& s) {
       auto status = CU_STREAM_CAPTURE_STATUS_NONE;
       CUgraph graph = nullptr;
       CUgraphNode node = nullptr;
       CHECK_CU(cuStreamGetCaptureInfo_v3(s.origin, &status, nullptr, &graph, nullptr, nullptr,
                                          nullptr));
       return cuGraphAddEmptyNode(&node, graph, nullptr, 0);
     }},
    {"cuGraphInstantiate(the capture's graph)",
     [](Stage& s) {
       auto status = CU_STREAM_CAPTURE_STATUS_NONE;
       CUgraph graph = nullptr;
       CUgraphExec made = nullptr;
       CHECK_CU(cuStreamGetCaptureInfo_v3(s.origin, &status, nullptr, &graph, nullptr, nullptr,
                                          nullptr));
       const CUresult result = cuGraphInstantiateWithFlags(&made, graph, 0);
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuGraphExecDestroy(made)); });
       return result;
     }},
    {"cuModuleLoadData",
     [](Stage& s) {
       CUmodule made = nullptr;
       const CUresult result = cuModuleLoadData(&made, condition_kernels_ptx());
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuModuleUnload(made)); });
       return result;
     }},
    {"cuLibraryLoadData",
     [](Stage& s) {
       CUlibrary made = nullptr;
       const CUresult result = cuLibraryLoadData(&made, condition_kernels_ptx(), nullptr, nullptr,
                                                 0, nullptr, nullptr, 0);
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuLibraryUnload(made)); });
       return result;
     }},
    {"cuModuleGetFunction",
     [](Stage& s) {
       CUfunction found = nullptr;
       return cuModuleGetFunction(&found, s.session.module, "mix");
     }},
    {"cuModuleGetGlobal",
     [](Stage& s) {
       CUdeviceptr address = 0;
       size_t bytes = 0;
       return cuModuleGetGlobal_v2(&address, &bytes, s.session.module, "counter");
     }},
    {"cuFuncGetAttribute",
     [](Stage& s) {
       int value = 0;
       return cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, s.session.function("mix"));
     }},
    {"cuFuncSetAttribute",
     [](Stage& s) {
       return cuFuncSetAttribute(s.session.function("mix"),
                                 CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024);
     }},
    {"cuOccupancyMaxActiveBlocksPerMultiprocessor",
     [](Stage& s) {
       int blocks = 0;
       return cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, s.session.function("mix"), 64,
                                                          0);
     }},
    {"cuCtxSetCurrent", [](Stage& s) { return cuCtxSetCurrent(s.session.context); }},
    {"cuCtxGetDevice",
     [](Stage&) {
       CUdevice device = 0;
       return cuCtxGetDevice(&device);
     }},
    {"cuCtxGetLimit",
     [](Stage&) {
       size_t value = 0;
       return cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE);
     }},
    {"cuDevicePrimaryCtxRetain",
     [](Stage& s) {
       CUcontext context = nullptr;
       const CUresult result = cuDevicePrimaryCtxRetain(&context, s.session.device);
       if (result == CUDA_SUCCESS) {
         s.later([device = s.session.device] { CHECK_CU(cuDevicePrimaryCtxRelease_v2(device)); });
       }
       return result;
     }},
    {"cuGraphCreate",
     [](Stage& s) {
       CUgraph made = nullptr;
       const CUresult result = cuGraphCreate(&made, 0);
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuGraphDestroy(made)); });
       return result;
     }},
    {"cuGraphInstantiate",
     [](Stage& s) {
       CUgraphExec made = nullptr;
       const CUresult result = cuGraphInstantiateWithFlags(&made, s.graph, 0);
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuGraphExecDestroy(made)); });
       return result;
     }},
    {"cuGraphExecUpdate",
     [](Stage& s) {
       CUgraphExecUpdateResultInfo info{};
       return cuGraphExecUpdate_v2(s.exec, s.graph, &info);
     }},
    {"cuGraphUpload(free)", [](Stage& s) { return cuGraphUpload(s.exec, s.free); }},
    {"cuGraphUpload(origin)", [](Stage& s) { return cuGraphUpload(s.exec, s.origin); }},
    {"cuGraphLaunch(free)", [](Stage& s) { return cuGraphLaunch(s.exec, s.free); }},
    {"cuGraphLaunch(legacy)", [](Stage& s) { return cuGraphLaunch(s.exec, nullptr); }},
};

const std::vector<Call> kCaptureCalls = {
    {"cuStreamIsCapturing(legacy)",
     [](Stage&) {
       auto status = CU_STREAM_CAPTURE_STATUS_NONE;
       return cuStreamIsCapturing(nullptr, &status);
     }},
    {"cuStreamIsCapturing(blocking)",
     [](Stage& s) {
       auto status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
       const CUresult result = cuStreamIsCapturing(s.blocking, &status);
       return status == CU_STREAM_CAPTURE_STATUS_NONE ? result : CUDA_ERROR_UNKNOWN;
     }},
    {"cuStreamIsCapturing(no place)",
     [](Stage& s) { return cuStreamIsCapturing(s.origin, nullptr); }},
    {"cuStreamGetCaptureInfo(legacy)",
     [](Stage&) {
       auto status = CU_STREAM_CAPTURE_STATUS_NONE;
       cuuint64_t id = 0;
       return cuStreamGetCaptureInfo_v3(nullptr, &status, &id, nullptr, nullptr, nullptr, nullptr);
     }},
    {"cuStreamGetCaptureInfo_v2(legacy)",
     [](Stage&) {
       auto status = CU_STREAM_CAPTURE_STATUS_NONE;
       return cuStreamGetCaptureInfo_v2(nullptr, &status, nullptr, nullptr, nullptr, nullptr);
     }},
    {"cuStreamGetCaptureInfo(no place)",
     [](Stage& s) {
       return cuStreamGetCaptureInfo_v3(s.origin, nullptr, nullptr, nullptr, nullptr, nullptr,
                                        nullptr);
     }},
    {"cuStreamGetCaptureInfo(origin)",
     [](Stage& s) {
       auto status = CU_STREAM_CAPTURE_STATUS_NONE;
       return cuStreamGetCaptureInfo_v3(s.origin, &status, nullptr, nullptr, nullptr, nullptr,
                                        nullptr);
     }},
    {"cuStreamBeginCapture(origin)",
     [](Stage& s) { return cuStreamBeginCapture_v2(s.origin, kGlobal); }},
    {"cuStreamBeginCapture(origin), bad mode",
     [](Stage& s) {
       return cuStreamBeginCapture_v2(s.origin, static_cast<CUstreamCaptureMode>(7));
     }},
    {"cuStreamBeginCapture(free), bad mode",
     [](Stage& s) { return cuStreamBeginCapture_v2(s.free, static_cast<CUstreamCaptureMode>(7)); }},
    {"cuStreamBeginCapture(legacy)",
     [](Stage&) { return cuStreamBeginCapture_v2(nullptr, kGlobal); }},
    {"cuStreamBeginCapture(legacy), relaxed",
     [](Stage&) { return cuStreamBeginCapture_v2(nullptr, kRelaxed); }},
    {"cuStreamBeginCaptureToGraph(origin)",
     [](Stage& s) {
       return cuStreamBeginCaptureToGraph(s.origin, s.graph, nullptr, nullptr, 0, kGlobal);
     }},
    {"cuStreamBeginCaptureToGraph(free, no graph)",
     [](Stage& s) {
       return cuStreamBeginCaptureToGraph(s.free, nullptr, nullptr, nullptr, 0, kGlobal);
     }},
    {"cuStreamBeginCaptureToGraph(legacy)",
     [](Stage& s) {
       return cuStreamBeginCaptureToGraph(nullptr, s.graph, nullptr, nullptr, 0, kGlobal);
     }},
    {"cuStreamBeginCaptureToGraph(free, the origin's graph)",
     [](Stage& s) {
       auto status = CU_STREAM_CAPTURE_STATUS_NONE;
       CUgraph graph = nullptr;
       CHECK_CU(cuStreamGetCaptureInfo_v3(s.origin, &status, nullptr, &graph, nullptr, nullptr,
                                          nullptr));
       const CUresult result =
           cuStreamBeginCaptureToGraph(s.free, graph, nullptr, nullptr, 0, kRelaxed);
       if (result == CUDA_SUCCESS) {
         CUgraph same = nullptr;
         CHECK_CU(cuStreamEndCapture(s.free, &same));
       }
       return result;
     }},
    {"cuStreamEndCapture(no place)",
     [](Stage& s) { return cuStreamEndCapture(s.origin, nullptr); }},
    {"cuStreamEndCapture(legacy)",
     [](Stage&) {
       CUgraph made = nullptr;
       return cuStreamEndCapture(nullptr, &made);
     }},
    {"cuStreamEndCapture(blocking)",
     [](Stage& s) {
       CUgraph made = nullptr;
       return cuStreamEndCapture(s.blocking, &made);
     }},
    {"cuStreamEndCapture(a joined stream)",
     [](Stage& s) {
       CHECK_CU(cuStreamWaitEvent(s.free, s.captured, 0));
       CUgraph made = nullptr;
       return cuStreamEndCapture(s.free, &made);
     }},
    {"cuStreamUpdateCaptureDependencies(legacy)",
     [](Stage&) { return cuStreamUpdateCaptureDependencies(nullptr, nullptr, 0, 0); }},
    {"cuStreamUpdateCaptureDependencies(blocking)",
     [](Stage& s) { return cuStreamUpdateCaptureDependencies(s.blocking, nullptr, 0, 0); }},
    {"cuStreamUpdateCaptureDependencies(origin), bad flags",
     [](Stage& s) { return cuStreamUpdateCaptureDependencies(s.origin, nullptr, 0, 7); }},
    {"cuStreamUpdateCaptureDependencies(origin), no nodes",
     [](Stage& s) { return cuStreamUpdateCaptureDependencies(s.origin, nullptr, 1, 0); }},
    {"cuStreamUpdateCaptureDependencies(origin), none",
     [](Stage& s) { return cuStreamUpdateCaptureDependencies(s.origin, nullptr, 0, 1); }},
    {"cuStreamUpdateCaptureDependencies(origin), a foreign node",
     [](Stage& s) {
       CUgraphNode node = nullptr;
       size_t count = 1;
       CHECK_CU(cuGraphGetNodes(s.graph, &node, &count));
       return cuStreamUpdateCaptureDependencies(s.origin, &node, 1, 0);
     }},
};

}  // namespace e2e
