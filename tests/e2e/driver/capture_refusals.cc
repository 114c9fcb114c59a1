// SPDX-License-Identifier: Apache-2.0
// What each call answers while a stream captures, and what it does to the capture: for every kind
// of capture the result, the status of the capture afterwards, and the result of its end or how
// many nodes it has. The lines are compared with those of NVIDIA's driver. Run by run_e2e.py.
// usage: drv_capture_refusals streams|events|copies|memory|code|captures|nodes
#include <map>
#include <thread>

#include "capture_stage.h"

namespace {

using e2e::CaptureStage;
using e2e::kGlobal;
using e2e::kLocal;
using e2e::kRelaxed;
using e2e::name_of;
using e2e::status_of;
using Stage = CaptureStage;

constexpr size_t kBytes = Stage::kBytes;

CUstreamCaptureMode exchange_mode(CUstreamCaptureMode mode) {
  CHECK_CU(cuThreadExchangeStreamCaptureMode(&mode));
  return mode;
}

struct Call {
  const char* name;
  std::function<CUresult(Stage&)> make;
};

// Who captures, how, and on whose thread with which mode the call is made.
struct Setting {
  const char* name;
  CUstreamCaptureMode mode;
  unsigned origin_flags = CU_STREAM_DEFAULT;
  bool elsewhere = false;  // another thread makes the call
  CUstreamCaptureMode caller_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
};

constexpr Setting kSettings[] = {
    {"global", kGlobal},
    {"local", kLocal},
    {"relaxed", kRelaxed},
    {"free-global", kGlobal, CU_STREAM_NON_BLOCKING},
    {"free-relaxed", kRelaxed, CU_STREAM_NON_BLOCKING},
    {"global+local", kGlobal, CU_STREAM_DEFAULT, false, kLocal},
    {"global+relaxed", kGlobal, CU_STREAM_DEFAULT, false, kRelaxed},
    {"local+relaxed", kLocal, CU_STREAM_DEFAULT, false, kRelaxed},
    {"global/other", kGlobal, CU_STREAM_DEFAULT, true, kGlobal},
    {"global/other+local", kGlobal, CU_STREAM_DEFAULT, true, kLocal},
    {"global/other+relaxed", kGlobal, CU_STREAM_DEFAULT, true, kRelaxed},
    {"local/other", kLocal, CU_STREAM_DEFAULT, true, kGlobal},
    {"relaxed/other", kRelaxed, CU_STREAM_DEFAULT, true, kGlobal},
};

std::string outcome(const e2e::Session& session, const Setting& setting, const Call& call) {
  Stage stage(session, setting.origin_flags);
  stage.begin(setting.mode);
  CUresult result = CUDA_SUCCESS;
  const auto make = [&] {
    const CUstreamCaptureMode before = exchange_mode(setting.caller_mode);
    result = call.make(stage);
    exchange_mode(before);
  };
  if (setting.elsewhere) {
    std::thread([&] {
      CHECK_CU(cuCtxSetCurrent(session.context));
      make();
    }).join();
  } else {
    make();
  }
  std::string text = name_of(result);
  text += ", " + (stage.origin == nullptr ? "no stream" : status_of(stage.origin));
  text += ", " + stage.end();
  CHECK_CU(cuCtxSynchronize());
  return text;
}

// A line: the call, and behind each outcome the settings that had it.
void compare(const e2e::Session& session, const std::vector<Call>& calls) {
  for (const Call& call : calls) {
    std::vector<std::pair<std::string, std::string>> outcomes;  // and their settings
    for (const Setting& setting : kSettings) {
      const std::string seen = outcome(session, setting, call);
      auto same = outcomes.begin();
      while (same != outcomes.end() && same->first != seen) ++same;
      if (same == outcomes.end()) same = outcomes.insert(same, {seen, ""});
      same->second += std::string(same->second.empty() ? "" : " ") + setting.name;
    }
    printf("%s\n", call.name);
    for (const auto& [seen, settings] : outcomes) {
      printf("    %s <- %s\n", seen.c_str(), outcomes.size() == 1 ? "all" : settings.c_str());
    }
  }
}

// ---- The calls ---------------------------------------------------------------------------------

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
     [](Stage& s) { return e2e::try_launch(s.session.function("empty"), 1, 1, 0, s.origin); }},
    {"cuLaunchKernel(legacy)",
     [](Stage& s) { return e2e::try_launch(s.session.function("empty"), 1, 1, 0, nullptr); }},
    {"cuLaunchKernel(blocking)",
     [](Stage& s) { return e2e::try_launch(s.session.function("empty"), 1, 1, 0, s.blocking); }},
    {"cuLaunchKernel(per thread)",
     [](Stage& s) {
       return e2e::try_launch(s.session.function("empty"), 1, 1, 0, CU_STREAM_PER_THREAD);
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

CUDA_MEMCPY2D box(CUmemorytype destination_type, CUmemorytype source_type) {
  CUDA_MEMCPY2D copy{};
  copy.dstMemoryType = destination_type;
  copy.srcMemoryType = source_type;
  copy.dstPitch = copy.srcPitch = 32;
  copy.WidthInBytes = 16;
  copy.Height = 4;
  return copy;
}

const std::vector<Call> kCopyCalls = {
    {"cuMemcpyHtoD(pageable)",
     [](Stage& s) { return cuMemcpyHtoD_v2(s.more, s.pageable, kBytes); }},
    {"cuMemcpyHtoD(pinned)", [](Stage& s) { return cuMemcpyHtoD_v2(s.more, s.pinned, kBytes); }},
    {"cuMemcpyDtoH(pageable)",
     [](Stage& s) { return cuMemcpyDtoH_v2(s.pageable, s.more, kBytes); }},
    {"cuMemcpyDtoH(pinned)", [](Stage& s) { return cuMemcpyDtoH_v2(s.pinned, s.more, kBytes); }},
    {"cuMemcpyDtoD", [](Stage& s) { return cuMemcpyDtoD_v2(s.more, s.memory, kBytes); }},
    {"cuMemcpy(host, host)",
     [](Stage& s) {
       return cuMemcpy(reinterpret_cast<CUdeviceptr>(s.pageable),
                       reinterpret_cast<CUdeviceptr>(s.pageable_too), kBytes);
     }},
    {"cuMemcpy(device, device)", [](Stage& s) { return cuMemcpy(s.more, s.memory, kBytes); }},
    {"cuMemcpy2D(device, pageable)",
     [](Stage& s) {
       CUDA_MEMCPY2D copy = box(CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST);
       copy.dstDevice = s.more;
       copy.srcHost = s.pageable;
       return cuMemcpy2D_v2(&copy);
     }},
    {"cuMemcpyHtoA", [](Stage& s) { return cuMemcpyHtoA_v2(s.array, 0, s.pageable, 64); }},
    {"cuMemcpyDtoA", [](Stage& s) { return cuMemcpyDtoA_v2(s.array, 0, s.memory, 64); }},
    {"cuMemcpyHtoDAsync(origin, pageable)",
     [](Stage& s) { return cuMemcpyHtoDAsync_v2(s.more, s.pageable, kBytes, s.origin); }},
    {"cuMemcpyHtoDAsync(origin, pinned)",
     [](Stage& s) { return cuMemcpyHtoDAsync_v2(s.more, s.pinned, kBytes, s.origin); }},
    {"cuMemcpyDtoHAsync(origin, pageable)",
     [](Stage& s) { return cuMemcpyDtoHAsync_v2(s.pageable, s.more, kBytes, s.origin); }},
    {"cuMemcpyDtoDAsync(origin)",
     [](Stage& s) { return cuMemcpyDtoDAsync_v2(s.more, s.memory, kBytes, s.origin); }},
    {"cuMemcpyAsync(origin, host, host)",
     [](Stage& s) {
       return cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(s.pageable),
                            reinterpret_cast<CUdeviceptr>(s.pageable_too), kBytes, s.origin);
     }},
    {"cuMemcpyHtoDAsync(legacy, pageable)",
     [](Stage& s) { return cuMemcpyHtoDAsync_v2(s.more, s.pageable, kBytes, nullptr); }},
    {"cuMemcpyHtoDAsync(legacy, pinned)",
     [](Stage& s) { return cuMemcpyHtoDAsync_v2(s.more, s.pinned, kBytes, nullptr); }},
    {"cuMemcpyDtoDAsync(legacy)",
     [](Stage& s) { return cuMemcpyDtoDAsync_v2(s.more, s.memory, kBytes, nullptr); }},
    {"cuMemcpyHtoDAsync(free, pageable)",
     [](Stage& s) { return cuMemcpyHtoDAsync_v2(s.more, s.pageable, kBytes, s.free); }},
    {"cuMemcpyDtoHAsync(free, pageable)",
     [](Stage& s) { return cuMemcpyDtoHAsync_v2(s.pageable, s.more, kBytes, s.free); }},
    {"cuMemcpyHtoDAsync(origin, nothing)",
     [](Stage& s) { return cuMemcpyHtoDAsync_v2(s.more, s.pageable, 0, s.origin); }},
    {"cuMemsetD8", [](Stage& s) { return cuMemsetD8_v2(s.more, 1, kBytes); }},
    {"cuMemsetD32", [](Stage& s) { return cuMemsetD32_v2(s.more, 1, kBytes / 4); }},
    {"cuMemsetD2D8", [](Stage& s) { return cuMemsetD2D8_v2(s.more, 32, 1, 16, 4); }},
    {"cuMemsetD8Async(legacy)",
     [](Stage& s) { return cuMemsetD8Async(s.more, 1, kBytes, nullptr); }},
    {"cuMemsetD8Async(free)", [](Stage& s) { return cuMemsetD8Async(s.more, 1, kBytes, s.free); }},
};

const std::vector<Call> kMemoryCalls = {
    {"cuMemFree(nothing)", [](Stage&) { return cuMemFree_v2(0); }},
    {"cuMemPoolDestroy",
     [](Stage& s) {
       CUmemPoolProps wanted{};
       wanted.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
       wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, s.session.device};
       CUmemoryPool made = nullptr;
       const CUstreamCaptureMode before = exchange_mode(kRelaxed);
       const CUresult created = cuMemPoolCreate(&made, &wanted);
       exchange_mode(before);
       return created != CUDA_SUCCESS ? created : cuMemPoolDestroy(made);
     }},
    {"cuMemPoolGetAttribute",
     [](Stage& s) {
       CUmemoryPool pool = nullptr;
       CHECK_CU(cuDeviceGetDefaultMemPool(&pool, s.session.device));
       cuuint64_t value = 0;
       return cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value);
     }},
    {"cuMemHostUnregister",
     [](Stage& s) {
       void* block = aligned_alloc(4096, 4096);
       const CUstreamCaptureMode before = exchange_mode(kRelaxed);
       const CUresult registered = cuMemHostRegister_v2(block, 4096, 0);
       exchange_mode(before);
       if (registered != CUDA_SUCCESS) return registered;
       const CUresult result = cuMemHostUnregister(block);
       s.later([=] {
         if (result != CUDA_SUCCESS) CHECK_CU(cuMemHostUnregister(block));
         ::free(block);
       });
       return result;
     }},
    {"cuMipmappedArrayCreate",
     [](Stage& s) {
       CUmipmappedArray made = nullptr;
       CUDA_ARRAY3D_DESCRIPTOR shape{16, 16, 0, CU_AD_FORMAT_FLOAT, 1, 0};
       const CUresult result = cuMipmappedArrayCreate(&made, &shape, 2);
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuMipmappedArrayDestroy(made)); });
       return result;
     }},
    {"cuMemAllocAsync(blocking)",
     [](Stage& s) {
       CUdeviceptr made = 0;
       const CUresult result = cuMemAllocAsync(&made, kBytes, s.blocking);
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuMemFree_v2(made)); });
       return result;
     }},
    {"cuMemFreeAsync(free)",
     [](Stage& s) {
       CUdeviceptr made = 0;
       const CUstreamCaptureMode before = exchange_mode(kRelaxed);
       CHECK_CU(cuMemAllocAsync(&made, kBytes, s.free));
       exchange_mode(before);
       const CUresult result = cuMemFreeAsync(made, s.free);
       if (result != CUDA_SUCCESS) s.later([=] { CHECK_CU(cuMemFree_v2(made)); });
       return result;
     }},
    {"cuMemFreeAsync(legacy)",
     [](Stage& s) {
       CUdeviceptr made = 0;
       const CUstreamCaptureMode before = exchange_mode(kRelaxed);
       CHECK_CU(cuMemAllocAsync(&made, kBytes, s.free));
       exchange_mode(before);
       const CUresult result = cuMemFreeAsync(made, nullptr);
       if (result != CUDA_SUCCESS) s.later([=] { CHECK_CU(cuMemFree_v2(made)); });
       return result;
     }},
    {"cuPointerSetAttribute(SYNC_MEMOPS)",
     [](Stage& s) {
       unsigned on = 1;
       return cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, s.more);
     }},
    {"cuMemAlloc",
     [](Stage& s) {
       CUdeviceptr made = 0;
       const CUresult result = cuMemAlloc_v2(&made, kBytes);
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuMemFree_v2(made)); });
       return result;
     }},
    {"cuMemAlloc, large",
     [](Stage& s) {
       CUdeviceptr made = 0;
       const CUresult result = cuMemAlloc_v2(&made, 8 << 20);
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuMemFree_v2(made)); });
       return result;
     }},
    {"cuMemAllocPitch",
     [](Stage& s) {
       CUdeviceptr made = 0;
       size_t pitch = 0;
       const CUresult result = cuMemAllocPitch_v2(&made, &pitch, 100, 4, 4);
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuMemFree_v2(made)); });
       return result;
     }},
    {"cuMemFree",
     [](Stage& s) {
       const CUresult result = cuMemFree_v2(s.more);
       if (result == CUDA_SUCCESS) s.more = 0;
       return result;
     }},
    {"cuMemHostAlloc",
     [](Stage& s) {
       void* made = nullptr;
       const CUresult result = cuMemHostAlloc(&made, kBytes, 0);
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuMemFreeHost(made)); });
       return result;
     }},
    {"cuMemFreeHost",
     [](Stage& s) {
       const CUresult result = cuMemFreeHost(s.pinned);
       if (result == CUDA_SUCCESS) s.pinned = nullptr;
       return result;
     }},
    {"cuMemAllocManaged",
     [](Stage& s) {
       CUdeviceptr made = 0;
       const CUresult result = cuMemAllocManaged(&made, kBytes, CU_MEM_ATTACH_GLOBAL);
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuMemFree_v2(made)); });
       return result;
     }},
    {"cuMemHostRegister",
     [](Stage& s) {
       void* block = aligned_alloc(4096, 4096);
       const CUresult result = cuMemHostRegister_v2(block, 4096, 0);
       s.later([=] {
         if (result == CUDA_SUCCESS) CHECK_CU(cuMemHostUnregister(block));
         ::free(block);
       });
       return result;
     }},
    {"cuMemGetInfo",
     [](Stage&) {
       size_t available = 0, total = 0;
       return cuMemGetInfo_v2(&available, &total);
     }},
    {"cuMemGetAddressRange",
     [](Stage& s) {
       CUdeviceptr base = 0;
       size_t bytes = 0;
       return cuMemGetAddressRange_v2(&base, &bytes, s.memory);
     }},
    {"cuPointerGetAttribute",
     [](Stage& s) {
       unsigned type = 0;
       return cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, s.memory);
     }},
    {"cuMemHostGetDevicePointer",
     [](Stage& s) {
       CUdeviceptr seen = 0;
       return cuMemHostGetDevicePointer_v2(&seen, s.pinned, 0);
     }},
    {"cuArrayCreate",
     [](Stage& s) {
       CUarray made = nullptr;
       CUDA_ARRAY_DESCRIPTOR shape{16, 4, CU_AD_FORMAT_FLOAT, 1};
       const CUresult result = cuArrayCreate_v2(&made, &shape);
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuArrayDestroy(made)); });
       return result;
     }},
    {"cuArrayDestroy",
     [](Stage& s) {
       const CUresult result = cuArrayDestroy(s.array);
       if (result == CUDA_SUCCESS) s.array = nullptr;
       return result;
     }},
    {"cuTexObjectCreate",
     [](Stage& s) {
       CUDA_RESOURCE_DESC resource{};
       resource.resType = CU_RESOURCE_TYPE_ARRAY;
       resource.res.array.hArray = s.array;
       CUDA_TEXTURE_DESC texture{};
       CUtexObject made = 0;
       const CUresult result = cuTexObjectCreate(&made, &resource, &texture, nullptr);
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuTexObjectDestroy(made)); });
       return result;
     }},
    {"cuMemAddressReserve",
     [](Stage& s) {
       CUdeviceptr made = 0;
       const CUresult result = cuMemAddressReserve(&made, 2 << 20, 0, 0, 0);
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuMemAddressFree(made, 2 << 20)); });
       return result;
     }},
    {"cuMemCreate",
     [](Stage& s) {
       CUmemAllocationProp wanted{};
       wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
       wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, s.session.device};
       CUmemGenericAllocationHandle made = 0;
       const CUresult result = cuMemCreate(&made, 2 << 20, &wanted, 0);
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuMemRelease(made)); });
       return result;
     }},
    {"cuMemPoolCreate",
     [](Stage& s) {
       CUmemPoolProps wanted{};
       wanted.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
       wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, s.session.device};
       CUmemoryPool made = nullptr;
       const CUresult result = cuMemPoolCreate(&made, &wanted);
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuMemPoolDestroy(made)); });
       return result;
     }},
    {"cuMemPoolTrimTo",
     [](Stage& s) {
       CUmemoryPool pool = nullptr;
       CHECK_CU(cuDeviceGetDefaultMemPool(&pool, s.session.device));
       return cuMemPoolTrimTo(pool, 0);
     }},
    {"cuMemAllocAsync(legacy)",
     [](Stage& s) {
       CUdeviceptr made = 0;
       const CUresult result = cuMemAllocAsync(&made, kBytes, nullptr);
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuMemFree_v2(made)); });
       return result;
     }},
    {"cuMemAllocAsync(free)",
     [](Stage& s) {
       CUdeviceptr made = 0;
       const CUresult result = cuMemAllocAsync(&made, kBytes, s.free);
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuMemFree_v2(made)); });
       return result;
     }},
};

const std::vector<Call> kCodeCalls = {
    {"cuModuleUnload",
     [](Stage& s) {
       CUmodule made = nullptr;
       const CUstreamCaptureMode before = exchange_mode(kRelaxed);
       CHECK_CU(cuModuleLoadData(&made, e2e::condition_kernels_ptx()));
       exchange_mode(before);
       const CUresult result = cuModuleUnload(made);
       if (result != CUDA_SUCCESS) s.later([=] { CHECK_CU(cuModuleUnload(made)); });
       return result;
     }},
    {"cuLibraryUnload",
     [](Stage& s) {
       CUlibrary made = nullptr;
       const CUstreamCaptureMode before = exchange_mode(kRelaxed);
       CHECK_CU(cuLibraryLoadData(&made, e2e::condition_kernels_ptx(), nullptr, nullptr, 0, nullptr,
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
       const CUresult result = cuModuleLoadData(&made, e2e::condition_kernels_ptx());
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuModuleUnload(made)); });
       return result;
     }},
    {"cuLibraryLoadData",
     [](Stage& s) {
       CUlibrary made = nullptr;
       const CUresult result = cuLibraryLoadData(&made, e2e::condition_kernels_ptx(), nullptr,
                                                 nullptr, 0, nullptr, nullptr, 0);
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
       if (result == CUDA_SUCCESS)
         s.later([device = s.session.device] { CHECK_CU(cuDevicePrimaryCtxRelease_v2(device)); });
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

// Nodes of a captured allocation.
void memory(const e2e::Session& session) {
  const std::vector<Call> calls = {
      {"cuMemAllocAsync(origin)",
       [](Stage& s) {
         CUdeviceptr made = 0;
         const CUresult result = cuMemAllocAsync(&made, kBytes, s.origin);
         return result;
       }},
      {"cuMemcpyPeerAsync(origin)",
       [](Stage& s) {
         return cuMemcpyPeerAsync(s.more, s.session.context, s.memory, s.session.context, kBytes,
                                  s.origin);
       }},
      {"cuMemcpy2DAsync(origin)",
       [](Stage& s) {
         CUDA_MEMCPY2D copy = box(CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_DEVICE);
         copy.dstDevice = s.more;
         copy.srcDevice = s.memory;
         return cuMemcpy2DAsync_v2(&copy, s.origin);
       }},
      {"cuMemPrefetchAsync(origin)",
       [](Stage& s) {
         CUdeviceptr made = 0;
         const CUstreamCaptureMode before = exchange_mode(kRelaxed);
         CHECK_CU(cuMemAllocManaged(&made, kBytes, CU_MEM_ATTACH_GLOBAL));
         exchange_mode(before);
         s.later([=] { CHECK_CU(cuMemFree_v2(made)); });
         return cuMemPrefetchAsync_v2(made, kBytes, {CU_MEM_LOCATION_TYPE_DEVICE, 0}, 0, s.origin);
       }},
      {"cuGraphLaunch(origin) of a kernel",
       [](Stage& s) {
         CUgraph graph = nullptr;
         CUgraphNode node = nullptr;
         CUgraphExec exec = nullptr;
         CUDA_KERNEL_NODE_PARAMS kernel{};
         kernel.func = s.session.function("empty");
         kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = 1;
         kernel.blockDimX = kernel.blockDimY = kernel.blockDimZ = 1;
         void* none[] = {nullptr};
         kernel.kernelParams = none;
         const CUstreamCaptureMode before = exchange_mode(kRelaxed);
         CHECK_CU(cuGraphCreate(&graph, 0));
         CHECK_CU(cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &kernel));
         CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
         exchange_mode(before);
         s.later([=] {
           CHECK_CU(cuGraphExecDestroy(exec));
           CHECK_CU(cuGraphDestroy(graph));
         });
         return cuGraphLaunch(exec, s.origin);
       }},
      {"cuGraphLaunch(origin)", [](Stage& s) { return cuGraphLaunch(s.exec, s.origin); }},
  };
  compare(session, calls);
}

}  // namespace

int main(int argc, char** argv) {
  const e2e::Session session;
  const std::map<std::string, std::function<void()>> groups = {
      {"streams", [&] { compare(session, kStreamCalls); }},
      {"events", [&] { compare(session, kEventCalls); }},
      {"copies", [&] { compare(session, kCopyCalls); }},
      {"memory", [&] { compare(session, kMemoryCalls); }},
      {"code", [&] { compare(session, kCodeCalls); }},
      {"captures", [&] { compare(session, kCaptureCalls); }},
      {"nodes", [&] { memory(session); }},
  };
  const auto group = groups.find(argc > 1 ? argv[1] : "");
  if (group == groups.end()) return 2;
  group->second();
  return e2e::finish();
}
