// SPDX-License-Identifier: Apache-2.0
// The results of wrong calls: a line for each, with the call and its result. The lines are compared
// with those of NVIDIA's driver. A call may crash that driver or never return there, so the calls
// are made in a child process; after such a call, another child continues with the next. Run by
// run_e2e.py.
// usage: drv_wrong_calls TOPIC
#include "wrong_calls.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <memory>
#include <new>

namespace e2e {

Stage::Stage(const World& world_in)
    : world(world_in), device(world_in.device), context(world_in.context) {
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK_CU(cuEventCreate(&event, CU_EVENT_DEFAULT));
  CHECK_CU(cuEventCreate(&recorded, CU_EVENT_DEFAULT));
  CHECK_CU(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
  CHECK_CU(cuEventRecord(recorded, stream));
  CHECK_CU(cuEventRecord(untimed, stream));
  CHECK_CU(cuMemAlloc_v2(&memory, kBytes));
  CHECK_CU(cuMemsetD8_v2(memory, 0, kBytes));
  CHECK_CU(cuMemAllocManaged(&managed, kBytes, CU_MEM_ATTACH_GLOBAL));
  void* host = nullptr;
  CHECK_CU(cuMemHostAlloc(&host, kBytes, 0));
  pinned = static_cast<unsigned char*>(host);
  CUDA_ARRAY_DESCRIPTOR shape{kWidth, kHeight, CU_AD_FORMAT_FLOAT, 1};
  CHECK_CU(cuArrayCreate_v2(&plain_array, &shape));
  CUDA_ARRAY3D_DESCRIPTOR deep{
      kWidth, kHeight, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SURFACE_LDST};
  CHECK_CU(cuArray3DCreate_v2(&array, &deep));
  CHECK_CU(cuMipmappedArrayCreate(&mipmaps, &deep, 2));
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = place(CU_MEM_LOCATION_TYPE_DEVICE, device);
  CHECK_CU(cuMemPoolCreate(&pool, &properties));

  CUmemAllocationProp physical{};
  physical.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  physical.location = properties.location;
  CHECK_CU(cuMemGetAllocationGranularity(&granule, &physical, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CHECK_CU(cuMemAddressReserve(&range, granule, 0, 0, 0));
  CHECK_CU(cuMemCreate(&handle, granule, &physical, 0));

  CHECK_CU(cuGraphCreate(&graph, 0));
  CHECK_CU(cuGraphCreate(&other_graph, 0));
  CHECK_CU(cuGraphAddEmptyNode(&plain, graph, nullptr, 0));
  CHECK_CU(cuGraphAddEmptyNode(&other_node, other_graph, nullptr, 0));
  CUDA_KERNEL_NODE_PARAMS kernel{world.empty, 1, 1,       1,       1,       1,
                                 1,           0, nullptr, nullptr, nullptr, nullptr};
  CHECK_CU(cuGraphAddKernelNode_v2(&launch, graph, &plain, 1, &kernel));
  CUDA_MEMSET_NODE_PARAMS bytes{memory, 0, 1, 4, 16, 1};
  CHECK_CU(cuGraphAddMemsetNode(&fill, graph, &plain, 1, &bytes, context));
  CUDA_MEMCPY3D box{};
  box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.srcDevice = memory;
  box.dstDevice = memory + kBytes / 2;
  box.WidthInBytes = 64;
  box.Height = box.Depth = 1;
  CHECK_CU(cuGraphAddMemcpyNode(&copy, graph, &plain, 1, &box, context));
  CUDA_HOST_NODE_PARAMS host_call{nothing, nullptr};
  CHECK_CU(cuGraphAddHostNode(&call, graph, &plain, 1, &host_call));
  CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  CHECK_CU(cuGraphClone(&clone, graph));
  CHECK_CU(cuGraphAddEmptyNode(&late, graph, nullptr, 0));
  CHECK_CU(cuUserObjectCreate(&object, nullptr, nothing, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  CHECK_CU(cuStreamSynchronize(stream));
}

// Errors are ignored, since a wrong call may have destroyed objects of the stage.
Stage::~Stage() {
  static_cast<void>(cuGraphExecDestroy(exec));
  for (CUgraph each : {graph, other_graph, clone}) static_cast<void>(cuGraphDestroy(each));
  static_cast<void>(cuMemRelease(handle));
  static_cast<void>(cuMemPoolDestroy(pool));
  static_cast<void>(cuMipmappedArrayDestroy(mipmaps));
  for (CUarray each : {array, plain_array}) static_cast<void>(cuArrayDestroy(each));
  static_cast<void>(cuMemFreeHost(pinned));
  for (CUdeviceptr each : {memory, managed}) static_cast<void>(cuMemFree_v2(each));
  for (CUevent each : {event, recorded, untimed}) static_cast<void>(cuEventDestroy_v2(each));
  static_cast<void>(cuStreamDestroy_v2(stream));
}

namespace {

// No call should wait. A call that has not returned after this time never does.
constexpr unsigned kCallLimitS = 60;

// CUDA's name of the result without the common prefix.
std::string name_of(CUresult result) {
  const std::string full = name(result);
  const std::string prefix = "CUDA_ERROR_";
  return full.rfind(prefix, 0) == 0 ? full.substr(prefix.size()) : full;
}

// The text of a call without the line breaks of the source.
std::string text_of(const WrongCall& call) {
  std::string text;
  for (const char* at = call.text; *at != '\0'; ++at) {
    const bool broken = !text.empty() && (text.back() == '(' || text.back() == '{' || at[1] == '.');
    if (*at != ' ' || !broken) text += *at;
  }
  return text;
}

// Makes the calls from `next` on, and advances `next`. Ends after a call that leaves the context
// with an error.
void make(const WrongCalls& calls, std::atomic<size_t>& next) {
  const World world;
  while (next < calls.size()) {
    alarm(kCallLimitS);
    auto stage = std::make_unique<Stage>(world);
    const CUresult result = calls[next].make(*stage);
    CHECK_CU(cuCtxSetCurrent(world.context));
    // Work of the other context uses memory that is freed with the stage.
    static_cast<void>(cuStreamSynchronize(world.foreign_stream));
    const CUresult later = cuCtxSynchronize();
    printf("%s: %s", text_of(calls[next]).c_str(), name_of(result).c_str());
    if (later != CUDA_SUCCESS) printf(", later %s", name_of(later).c_str());
    printf("\n");
    ++next;
    if (later != CUDA_SUCCESS) _exit(0);
    stage.reset();
    alarm(0);
  }
}

bool make_all(const WrongCalls& calls) {
  void* shared = mmap(nullptr, sizeof(std::atomic<size_t>), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return false;
  auto& next = *new (shared) std::atomic<size_t>(0);
  while (next < calls.size()) {
    const size_t first = next;
    fflush(stdout);
    const pid_t child = fork();
    if (child < 0) return false;
    if (child == 0) {
      make(calls, next);
      exit(0);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child) return false;
    if (WIFSIGNALED(status) && next < calls.size()) {
      printf("%s: %s\n", text_of(calls[next]).c_str(),
             WTERMSIG(status) == SIGALRM ? "never ends" : "crashes");
      ++next;
    } else if (next == first) {
      return false;  // the child has reported the reason
    }
  }
  return true;
}

}  // namespace
}  // namespace e2e

int main(int argc, char** argv) {
  using namespace e2e;
  const std::map<std::string, const WrongCalls*> topics = {
      {"devices", &kDeviceCalls},
      {"contexts", &kContextCalls},
      {"limits", &kLimitCalls},
      {"nocontext", &kNoContextCalls},
      {"streams", &kStreamCalls},
      {"events", &kEventCalls},
      {"values", &kValueCalls},
      {"memory", &kMemoryCalls},
      {"pointers", &kPointerCalls},
      {"fills", &kFillCalls},
      {"pools", &kPoolCalls},
      {"mappings", &kMappingCalls},
      {"copies", &kCopyCalls},
      {"boxes", &kBoxCalls},
      {"modules", &kModuleCalls},
      {"libraries", &kLibraryCalls},
      {"functions", &kFunctionCalls},
      {"launches", &kLaunchCalls},
      {"linking", &kLinkCalls},
      {"graphs", &kGraphCalls},
      {"nodes", &kNodeCalls},
      {"execs", &kExecCalls},
      {"arrays", &kArrayCalls},
      {"textures", &kTextureCalls},
      {"tensor_maps", &kTensorMapCalls},
  };
  const auto topic = topics.find(argc > 1 ? argv[1] : "");
  if (topic == topics.end()) return 2;
  setvbuf(stdout, nullptr, _IOLBF, 0);
  return make_all(*topic->second) ? 0 : 1;
}
