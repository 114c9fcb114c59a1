// SPDX-License-Identifier: Apache-2.0
// Which calls wait for work in which streams. A kernel that runs until the host stops it holds one
// stream; then the call is made. A call that waits must not return before the host has stopped the
// kernel; a call that does not wait must return while the kernel runs. Run by run_e2e.py.
// usage: drv_stream_waits blocking|thread|legacy|free: the stream that is held
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "driver.h"

namespace {

using std::chrono::milliseconds;

// The time after which a stream is released if the call has not returned: long for a call that
// should return, so that it is not taken for a call that waits on a slow machine; short for one
// that should wait.
constexpr milliseconds kReturning(30'000);
constexpr milliseconds kWaiting(40);

// A stream with work that runs until the host stops it.
class Held {
 public:
  Held(const e2e::Session& session, CUstream stream) : stream_(stream) {
    void* host = nullptr;
    CHECK_CU(cuMemHostAlloc(&host, sizeof(uint32_t), CU_MEMHOSTALLOC_DEVICEMAP));
    flag_ = static_cast<std::atomic<uint32_t>*>(host);
    CHECK_CU(cuMemHostGetDevicePointer_v2(&address_, host, 0));
    function_ = session.function("hold");
  }
  Held(const Held&) = delete;
  ~Held() { CHECK_CU(cuMemFreeHost(flag_)); }

  void hold() {
    flag_->store(0);
    released_ = false;
    e2e::launch(function_, 1, 1, 0, stream_, address_);
  }
  // Makes the call, and lets the stream continue when the call has returned, or after `patience`.
  // True: the call waited.
  bool waits(milliseconds patience, const std::function<void()>& call) {
    std::mutex lock;
    std::condition_variable changed;
    bool back = false;
    std::thread releaser([&] {
      std::unique_lock guard(lock);
      changed.wait_for(guard, patience, [&] { return back; });
      released_ = true;
      flag_->store(1);
    });
    call();
    const bool waited = released_;
    {
      const std::lock_guard guard(lock);
      back = true;
    }
    changed.notify_one();
    releaser.join();
    return waited;
  }

 private:
  CUstream stream_;
  CUfunction function_ = nullptr;
  CUdeviceptr address_ = 0;
  std::atomic<uint32_t>* flag_ = nullptr;
  std::atomic<bool> released_{false};
};

constexpr size_t kBytes = 256;

// The objects with which the calls are made.
struct Stage {
  Stage() {
    CHECK_CU(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    CHECK_CU(cuStreamCreate(&free, CU_STREAM_NON_BLOCKING));
    for (CUevent* each : {&event, &legacy_event}) CHECK_CU(cuEventCreate(each, 0));
    for (CUdeviceptr* each : {&memory, &more, &spare}) CHECK_CU(cuMemAlloc_v2(each, kBytes));
    for (unsigned char** each : {&pinned, &pinned_too, &pinned_spare}) {
      void* host = nullptr;
      CHECK_CU(cuMemHostAlloc(&host, kBytes, 0));
      *each = static_cast<unsigned char*>(host);
    }
    for (CUarray* each : {&array, &array_spare}) {
      CUDA_ARRAY_DESCRIPTOR shape{16, 4, CU_AD_FORMAT_FLOAT, 1};
      CHECK_CU(cuArrayCreate_v2(each, &shape));
    }
    CUgraphNode node = nullptr;
    CHECK_CU(cuGraphCreate(&graph, 0));
    CHECK_CU(cuGraphAddEmptyNode(&node, graph, nullptr, 0));
    CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK_CU(cuCtxSynchronize());
  }
  Stage(const Stage&) = delete;
  ~Stage() {
    CHECK_CU(cuCtxSynchronize());
    CHECK_CU(cuGraphExecDestroy(exec));
    CHECK_CU(cuGraphDestroy(graph));
    for (CUarray each : {array, array_spare}) {
      if (each != nullptr) CHECK_CU(cuArrayDestroy(each));
    }
    for (unsigned char* each : {pinned, pinned_too, pinned_spare}) {
      if (each != nullptr) CHECK_CU(cuMemFreeHost(each));
    }
    for (CUdeviceptr each : {memory, more, spare, made}) {
      if (each != 0) CHECK_CU(cuMemFree_v2(each));
    }
    for (CUevent each : {event, legacy_event}) CHECK_CU(cuEventDestroy_v2(each));
    for (CUstream each : {blocking, free}) {
      if (each != nullptr) CHECK_CU(cuStreamDestroy_v2(each));
    }
  }

  CUstream blocking = nullptr, free = nullptr;
  CUevent event = nullptr, legacy_event = nullptr;
  CUdeviceptr memory = 0, more = 0, spare = 0;
  CUdeviceptr made = 0;  // allocated by the call
  unsigned char *pinned = nullptr, *pinned_too = nullptr, *pinned_spare = nullptr;
  unsigned char pageable[kBytes] = {};
  unsigned char pageable_too[kBytes] = {};
  CUarray array = nullptr, array_spare = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
};

CUdeviceptr unified(const void* host) { return reinterpret_cast<CUdeviceptr>(host); }

// Queries until the result is not CUDA_ERROR_NOT_READY, which is equivalent to a wait.
template <typename Query>
CUresult until_ready(Query query) {
  for (;;) {
    const CUresult result = query();
    if (result != CUDA_ERROR_NOT_READY) return result;
    std::this_thread::yield();
  }
}

// The streams that a call waits for, a bit for each stream that may be held.
enum Waits : unsigned {
  kNothing = 0,
  kHeldBlocking = 1,
  kHeldThread = 2,
  kHeldLegacy = 4,
  kHeldFree = 8,
  kLegacyRule = kHeldBlocking | kHeldThread | kHeldLegacy,  // what the legacy stream waits for
  kContext = kLegacyRule | kHeldFree,
};

struct Call {
  const char* name;
  Waits waits;
  std::function<CUresult(Stage&)> make;
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

const std::vector<Call> kCalls = {
    {"cuStreamQuery(legacy)", kLegacyRule,
     [](Stage&) { return until_ready([] { return cuStreamQuery(nullptr); }); }},
    {"cuStreamQuery(blocking)", kNothing,
     [](Stage& s) { return until_ready([&] { return cuStreamQuery(s.blocking); }); }},
    {"cuStreamQuery(free)", kNothing,
     [](Stage& s) { return until_ready([&] { return cuStreamQuery(s.free); }); }},
    {"cuStreamQuery(per thread)", kHeldThread,
     [](Stage&) { return until_ready([] { return cuStreamQuery(CU_STREAM_PER_THREAD); }); }},
    {"cuStreamSynchronize(legacy)", kLegacyRule,
     [](Stage&) { return cuStreamSynchronize(nullptr); }},
    {"cuStreamSynchronize(blocking)", kNothing,
     [](Stage& s) { return cuStreamSynchronize(s.blocking); }},
    {"cuStreamSynchronize(free)", kNothing, [](Stage& s) { return cuStreamSynchronize(s.free); }},
    {"cuStreamSynchronize(per thread)", kHeldThread,
     [](Stage&) { return cuStreamSynchronize(CU_STREAM_PER_THREAD); }},
    {"cuCtxSynchronize", kContext, [](Stage&) { return cuCtxSynchronize(); }},
    {"cuEventRecord(legacy), cuEventQuery", kLegacyRule,
     [](Stage& s) {
       CHECK_CU(cuEventRecord(s.legacy_event, nullptr));
       return until_ready([&] { return cuEventQuery(s.legacy_event); });
     }},
    {"cuEventRecord(legacy), cuEventSynchronize", kLegacyRule,
     [](Stage& s) {
       CHECK_CU(cuEventRecord(s.legacy_event, nullptr));
       return cuEventSynchronize(s.legacy_event);
     }},
    {"cuEventRecord(blocking), cuEventSynchronize", kHeldLegacy,
     [](Stage& s) {
       CHECK_CU(cuEventRecord(s.event, s.blocking));
       return cuEventSynchronize(s.event);
     }},
    {"cuEventRecord(legacy), cuEventRecord(blocking), cuEventQuery", kLegacyRule,
     [](Stage& s) {
       CHECK_CU(cuEventRecord(s.legacy_event, nullptr));
       CHECK_CU(cuEventRecord(s.event, s.blocking));
       return until_ready([&] { return cuEventQuery(s.event); });
     }},
    {"cuMemsetD8Async(legacy), cuMemsetD8Async(blocking), cuStreamQuery(blocking)", kLegacyRule,
     [](Stage& s) {
       CHECK_CU(cuMemsetD8Async(s.memory, 1, kBytes, nullptr));
       CHECK_CU(cuMemsetD8Async(s.more, 1, kBytes, s.blocking));
       return until_ready([&] { return cuStreamQuery(s.blocking); });
     }},
    {"cuMemsetD8Async(legacy), cuStreamSynchronize(legacy)", kLegacyRule,
     [](Stage& s) {
       CHECK_CU(cuMemsetD8Async(s.memory, 1, kBytes, nullptr));
       return cuStreamSynchronize(nullptr);
     }},
    {"cuMemcpyHtoD(pageable)", kLegacyRule,
     [](Stage& s) { return cuMemcpyHtoD_v2(s.memory, s.pageable, kBytes); }},
    {"cuMemcpyHtoD(pinned)", kLegacyRule,
     [](Stage& s) { return cuMemcpyHtoD_v2(s.memory, s.pinned, kBytes); }},
    {"cuMemcpyDtoH(pageable)", kLegacyRule,
     [](Stage& s) { return cuMemcpyDtoH_v2(s.pageable, s.memory, kBytes); }},
    {"cuMemcpyDtoH(pinned)", kLegacyRule,
     [](Stage& s) { return cuMemcpyDtoH_v2(s.pinned, s.memory, kBytes); }},
    {"cuMemcpyDtoD", kNothing, [](Stage& s) { return cuMemcpyDtoD_v2(s.more, s.memory, kBytes); }},
    {"cuMemcpy(device, device)", kNothing,
     [](Stage& s) { return cuMemcpy(s.more, s.memory, kBytes); }},
    {"cuMemcpy(pageable, pageable)", kLegacyRule,
     [](Stage& s) { return cuMemcpy(unified(s.pageable), unified(s.pageable_too), kBytes); }},
    {"cuMemcpy(pinned, pinned)", kLegacyRule,
     [](Stage& s) { return cuMemcpy(unified(s.pinned), unified(s.pinned_too), kBytes); }},
    {"cuMemcpy(pageable, pinned)", kLegacyRule,
     [](Stage& s) { return cuMemcpy(unified(s.pageable), unified(s.pinned), kBytes); }},
    {"cuMemcpy(pinned, pageable)", kLegacyRule,
     [](Stage& s) { return cuMemcpy(unified(s.pinned), unified(s.pageable), kBytes); }},
    {"cuMemcpy2D(device, pageable)", kLegacyRule,
     [](Stage& s) {
       CUDA_MEMCPY2D copy = box(CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST);
       copy.dstDevice = s.memory;
       copy.srcHost = s.pageable;
       return cuMemcpy2D_v2(&copy);
     }},
    {"cuMemcpy2D(pageable, pageable)", kLegacyRule,
     [](Stage& s) {
       CUDA_MEMCPY2D copy = box(CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_HOST);
       copy.dstHost = s.pageable_too;
       copy.srcHost = s.pageable;
       return cuMemcpy2D_v2(&copy);
     }},
    {"cuMemcpy2D(device, device)", kNothing,
     [](Stage& s) {
       CUDA_MEMCPY2D copy = box(CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_DEVICE);
       copy.dstDevice = s.more;
       copy.srcDevice = s.memory;
       return cuMemcpy2D_v2(&copy);
     }},
    {"cuMemcpyHtoA", kLegacyRule,
     [](Stage& s) { return cuMemcpyHtoA_v2(s.array, 0, s.pageable, 64); }},
    {"cuMemcpyAtoH", kLegacyRule,
     [](Stage& s) { return cuMemcpyAtoH_v2(s.pageable, s.array, 0, 64); }},
    {"cuMemcpyDtoA", kNothing, [](Stage& s) { return cuMemcpyDtoA_v2(s.array, 0, s.memory, 64); }},
    {"cuMemcpyPeer", kNothing,
     [](Stage& s) {
       CUcontext context = nullptr;
       CHECK_CU(cuCtxGetCurrent(&context));
       return cuMemcpyPeer(s.more, context, s.memory, context, kBytes);
     }},
    {"cuMemcpyHtoDAsync(legacy, pageable)", kNothing,
     [](Stage& s) { return cuMemcpyHtoDAsync_v2(s.memory, s.pageable, kBytes, nullptr); }},
    {"cuMemcpyHtoDAsync(legacy, pinned)", kNothing,
     [](Stage& s) { return cuMemcpyHtoDAsync_v2(s.memory, s.pinned, kBytes, nullptr); }},
    {"cuMemcpyDtoHAsync(legacy, pageable)", kLegacyRule,
     [](Stage& s) { return cuMemcpyDtoHAsync_v2(s.pageable, s.memory, kBytes, nullptr); }},
    {"cuMemcpyDtoHAsync(legacy, pinned)", kNothing,
     [](Stage& s) { return cuMemcpyDtoHAsync_v2(s.pinned, s.memory, kBytes, nullptr); }},
    {"cuMemcpyAsync(legacy, pageable, pageable)", kLegacyRule,
     [](Stage& s) {
       return cuMemcpyAsync(unified(s.pageable), unified(s.pageable_too), kBytes, nullptr);
     }},
    {"cuMemcpyAsync(legacy, pinned, pinned)", kLegacyRule,
     [](Stage& s) {
       return cuMemcpyAsync(unified(s.pinned), unified(s.pinned_too), kBytes, nullptr);
     }},
    {"cuMemcpyHtoDAsync(blocking, pageable)", kNothing,
     [](Stage& s) { return cuMemcpyHtoDAsync_v2(s.memory, s.pageable, kBytes, s.blocking); }},
    {"cuMemcpyDtoHAsync(blocking, pageable)", kHeldLegacy,
     [](Stage& s) { return cuMemcpyDtoHAsync_v2(s.pageable, s.memory, kBytes, s.blocking); }},
    {"cuMemcpyAsync(blocking, pageable, pageable)", kHeldLegacy,
     [](Stage& s) {
       return cuMemcpyAsync(unified(s.pageable), unified(s.pageable_too), kBytes, s.blocking);
     }},
    {"cuMemcpyHtoDAsync(free, pageable)", kNothing,
     [](Stage& s) { return cuMemcpyHtoDAsync_v2(s.memory, s.pageable, kBytes, s.free); }},
    {"cuMemcpyDtoHAsync(free, pageable)", kNothing,
     [](Stage& s) { return cuMemcpyDtoHAsync_v2(s.pageable, s.memory, kBytes, s.free); }},
    {"cuMemsetD8", kNothing, [](Stage& s) { return cuMemsetD8_v2(s.memory, 1, kBytes); }},
    {"cuMemsetD32", kNothing, [](Stage& s) { return cuMemsetD32_v2(s.memory, 1, kBytes / 4); }},
    {"cuMemsetD8(pinned)", kLegacyRule,
     [](Stage& s) { return cuMemsetD8_v2(unified(s.pinned), 1, kBytes); }},
    {"cuMemsetD8Async(legacy)", kNothing,
     [](Stage& s) { return cuMemsetD8Async(s.memory, 1, kBytes, nullptr); }},
    {"cuMemAlloc", kNothing, [](Stage& s) { return cuMemAlloc_v2(&s.made, kBytes); }},
    {"cuMemFree", kContext, [](Stage& s) { return cuMemFree_v2(std::exchange(s.spare, 0)); }},
    {"cuMemFreeHost", kContext,
     [](Stage& s) { return cuMemFreeHost(std::exchange(s.pinned_spare, nullptr)); }},
    {"cuArrayDestroy", kContext,
     [](Stage& s) { return cuArrayDestroy(std::exchange(s.array_spare, nullptr)); }},
    {"cuStreamCreate, cuStreamDestroy", kNothing,
     [](Stage&) {
       CUstream made = nullptr;
       const CUresult result = cuStreamCreate(&made, CU_STREAM_DEFAULT);
       return result != CUDA_SUCCESS ? result : cuStreamDestroy_v2(made);
     }},
    {"cuEventCreate, cuEventDestroy", kNothing,
     [](Stage&) {
       CUevent made = nullptr;
       const CUresult result = cuEventCreate(&made, 0);
       return result != CUDA_SUCCESS ? result : cuEventDestroy_v2(made);
     }},
    {"cuLaunchHostFunc(legacy)", kNothing,
     [](Stage&) {
       return cuLaunchHostFunc(
           nullptr, [](void*) {}, nullptr);
     }},
    {"cuGraphLaunch(legacy)", kNothing, [](Stage& s) { return cuGraphLaunch(s.exec, nullptr); }},
    {"cuGraphLaunch(legacy), cuStreamSynchronize(legacy)", kLegacyRule,
     [](Stage& s) {
       CHECK_CU(cuGraphLaunch(s.exec, nullptr));
       return cuStreamSynchronize(nullptr);
     }},
    {"cuGraphLaunch(free), cuStreamSynchronize(free)", kNothing,
     [](Stage& s) {
       CHECK_CU(cuGraphLaunch(s.exec, s.free));
       return cuStreamSynchronize(s.free);
     }},
    {"cuStreamDestroy(blocking)", kNothing,
     [](Stage& s) { return cuStreamDestroy_v2(std::exchange(s.blocking, nullptr)); }},
};

void hold_and_call(const e2e::Session& session, CUstream stream, unsigned held_kind) {
  Held held(session, stream);
  for (const Call& call : kCalls) {
    Stage stage;
    const bool expected = (call.waits & held_kind) != 0;
    held.hold();
    CUresult result = CUDA_SUCCESS;
    const bool waited =
        held.waits(expected ? kWaiting : kReturning, [&] { result = call.make(stage); });
    e2e::expect(result == CUDA_SUCCESS && waited == expected, "%s %s%s%s", call.name,
                expected ? "waits" : "returns", result == CUDA_SUCCESS ? "" : ": ",
                result == CUDA_SUCCESS ? "" : e2e::name(result));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const e2e::Session session;
  const std::string group = argc > 1 ? argv[1] : "";
  CUstream stream = nullptr;
  if (group == "legacy") {
    hold_and_call(session, CU_STREAM_LEGACY, kHeldLegacy);
  } else if (group == "thread") {
    hold_and_call(session, CU_STREAM_PER_THREAD, kHeldThread);
  } else if (group == "blocking" || group == "free") {
    const bool free = group == "free";
    CHECK_CU(cuStreamCreate(&stream, free ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    hold_and_call(session, stream, free ? kHeldFree : kHeldBlocking);
    CHECK_CU(cuStreamDestroy_v2(stream));
  } else {
    return 2;
  }
  return e2e::finish();
}
