// SPDX-License-Identifier: Apache-2.0
// Green contexts: resources and their split, the SMs on which kernels run, default streams, events
// of whole contexts. Run by run_e2e.py. usage: drv_green_contexts [detached]
// `detached`: streams whose green context has been destroyed, which CUDA 13.0 does not document.
#include <algorithm>
#include <atomic>
#include <set>

#include "driver.h"

namespace {

constexpr uint32_t kWords = 256;
constexpr uint32_t kRounds = 2000;

CUdevResource device_sms(CUdevice device) {
  CUdevResource all{};
  CHECK_CU(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
  return all;
}

CUgreenCtx make_green(CUdevice device, CUdevResource* resource) {
  CUdevResourceDesc description = nullptr;
  CUgreenCtx green = nullptr;
  CHECK_CU(cuDevResourceGenerateDesc(&description, resource, 1));
  CHECK_CU(cuGreenCtxCreate(&green, description, device, CU_GREEN_CTX_DEFAULT_STREAM));
  return green;
}

CUstream stream_in(CUgreenCtx green) {
  CUstream stream = nullptr;
  CHECK_CU(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
  return stream;
}

// The SMs on which a launch in the stream runs.
std::set<uint32_t> sms_of(CUfunction where, CUstream stream, unsigned device_sms) {
  const unsigned blocks = 32 * device_sms;
  e2e::Buffer<uint32_t> at(std::vector<uint32_t>(blocks, ~0u));
  CHECK_CU(cuCtxSynchronize());
  e2e::launch(where, blocks, 32, 0, stream, at.address, kRounds);
  CHECK_CU(cuStreamSynchronize(stream));
  const std::vector<uint32_t> seen = at.get();
  return {seen.begin(), seen.end()};
}

bool disjoint(const std::set<uint32_t>& a, const std::set<uint32_t>& b) {
  return std::none_of(a.begin(), a.end(), [&b](uint32_t sm) { return b.count(sm) != 0; });
}

unsigned share_of(CUcontext context) {
  CUdevResource resource{};
  CHECK_CU(cuCtxGetDevResource(context, &resource, CU_DEV_RESOURCE_TYPE_SM));
  return resource.sm.smCount;
}

// A word of pinned memory for which streams wait. The host sets it, so no other stream is needed.
struct Flag {
  std::atomic<uint32_t>* word = nullptr;
  Flag() {
    void* memory = nullptr;
    CHECK_CU(cuMemHostAlloc(&memory, 4096, 0));
    word = new (memory) std::atomic<uint32_t>(0);
  }
  ~Flag() { CHECK_CU(cuMemFreeHost(word)); }
  void hold(CUstream stream, uint32_t value) const {
    CHECK_CU(cuStreamWaitValue32_v2(stream, reinterpret_cast<CUdeviceptr>(word), value,
                                    CU_STREAM_WAIT_VALUE_GEQ));
  }
  void set(uint32_t value) const { word->store(value); }
};

void check_split(const CUdevResource& all) {
  const unsigned total = all.sm.smCount, least = all.sm.minSmPartitionSize;
  unsigned count = 0;
  CHECK_CU(cuDevSmResourceSplitByCount(nullptr, &count, &all, nullptr, 0, least));
  e2e::expect(count >= 2 && count * least <= total, "how many groups there would be");
  printf("# %u SMs, %u groups of %u, alignment %u\n", total, count, least,
         all.sm.smCoscheduledAlignment);
  const unsigned most = count;
  std::vector<CUdevResource> groups(most);
  CUdevResource rest{};
  CHECK_CU(cuDevSmResourceSplitByCount(groups.data(), &count, &all, &rest, 0, least));
  unsigned sum = rest.type == CU_DEV_RESOURCE_TYPE_SM ? rest.sm.smCount : 0;
  bool equal = true;
  for (unsigned i = 0; i < count; i++) {
    sum += groups[i].sm.smCount;
    equal = equal && groups[i].type == CU_DEV_RESOURCE_TYPE_SM &&
            groups[i].sm.smCount == groups[0].sm.smCount;
  }
  e2e::expect(count == most && equal, "as many groups, all equal");
  e2e::expect(sum == total, "groups and remainder are all SMs");
  e2e::expect(
      groups[0].sm.smCount >= least && groups[0].sm.smCount % all.sm.smCoscheduledAlignment == 0,
      "a group has the least size and is aligned");
  count = 1;
  CHECK_CU(cuDevSmResourceSplitByCount(groups.data(), &count, &all, &rest, 0, least + 1));
  e2e::expect(count == 1 && groups[0].sm.smCount > least &&
                  groups[0].sm.smCount % all.sm.smCoscheduledAlignment == 0 &&
                  groups[0].sm.smCount + rest.sm.smCount == total,
              "a group of one SM more is rounded up");
  count = 1;
  e2e::expect_result("more SMs than there are",
                     cuDevSmResourceSplitByCount(groups.data(), &count, &all, &rest, 0, total + 1),
                     {CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, CUDA_ERROR_INVALID_VALUE});
  CUdevResource none{};
  e2e::expect_result("a resource of no type",
                     cuDeviceGetDevResource(0, &none, CU_DEV_RESOURCE_TYPE_INVALID),
                     {CUDA_ERROR_INVALID_RESOURCE_TYPE, CUDA_ERROR_INVALID_VALUE});
  CUdevResourceDesc description = nullptr;
  e2e::expect_result("no place for a descriptor", cuDevResourceGenerateDesc(nullptr, &groups[0], 1),
                     CUDA_ERROR_INVALID_VALUE);
  e2e::expect_result("a descriptor of an empty resource",
                     cuDevResourceGenerateDesc(&description, &none, 1),
                     CUDA_ERROR_INVALID_RESOURCE_TYPE);
  e2e::expect_result("the resource of no context",
                     cuCtxGetDevResource(nullptr, &none, CU_DEV_RESOURCE_TYPE_SM),
                     CUDA_ERROR_INVALID_CONTEXT);
  e2e::expect_result("an event of no context", cuCtxRecordEvent(nullptr, nullptr),
                     CUDA_ERROR_INVALID_CONTEXT);
  e2e::expect_result("a wait of no context", cuCtxWaitEvent(nullptr, nullptr),
                     CUDA_ERROR_INVALID_CONTEXT);
}

// Queries while a green context is current.
void check_current(const e2e::Session& session, CUgreenCtx green, unsigned share, unsigned total,
                   const std::set<uint32_t>& others) {
  const CUfunction where = session.function("where"), mix = session.function("mix");
  CUcontext view = nullptr, current = nullptr, of_stream = nullptr, popped = nullptr;
  CHECK_CU(cuCtxFromGreenCtx(&view, green));
  e2e::expect(view != session.context, "a green context has a CUcontext of its own");
  CHECK_CU(cuCtxPushCurrent_v2(view));
  CHECK_CU(cuCtxGetCurrent(&current));
  e2e::expect(current == view, "and can be current");
  CUdevice device = 77;
  CHECK_CU(cuCtxGetDevice(&device));
  e2e::expect(device == session.device, "its device");
  e2e::expect(share_of(view) == share && share_of(session.context) == total,
              "each context has its share");
  const std::set<uint32_t> seen = sms_of(where, nullptr, total);
  e2e::expect(seen.size() <= share && disjoint(seen, others), "its default stream is on its SMs");
  CUstream made = nullptr;
  CHECK_CU(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
  const std::set<uint32_t> by_stream = sms_of(where, made, total);
  e2e::expect(by_stream.size() <= share && disjoint(by_stream, others),
              "so is a stream that is made while it is current");
  CUgreenCtx of_made = nullptr;
  CHECK_CU(cuStreamGetCtx_v2(made, &of_stream, &of_made));
  e2e::expect(of_stream == session.context && of_made == green, "contexts of that stream");
  CHECK_CU(cuStreamGetGreenCtx(made, &of_made));
  e2e::expect(of_made == green, "green context of that stream");
  CHECK_CU(cuStreamDestroy_v2(made));
  // Memory belongs to the primary context, and remains when the green context is not current any
  // more.
  e2e::Buffer<uint32_t> words(std::vector<uint32_t>(kWords, 3));
  e2e::launch(mix, e2e::blocks_for(kWords, 64), 64, 0, nullptr, words.address, kWords, 5u);
  CHECK_CU(cuCtxSynchronize());
  CHECK_CU(cuCtxPopCurrent_v2(&popped));
  std::vector<uint32_t> expected(kWords, 3);
  e2e::mix_on_host(expected, 5);
  e2e::expect(popped == view && words.get() == expected, "memory made in it is the primary's");
}

void check_events(const e2e::Session& session, CUgreenCtx first, CUgreenCtx second,
                  CUstream in_first, CUstream in_second) {
  const CUfunction mix = session.function("mix");
  const unsigned grid = e2e::blocks_for(kWords, 64);
  Flag flag;
  CUevent done = nullptr, other = nullptr;
  CHECK_CU(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
  CHECK_CU(cuEventCreate(&other, CU_EVENT_DEFAULT));
  CUstream plain = nullptr, also_first = stream_in(first);
  CHECK_CU(cuStreamCreate(&plain, CU_STREAM_NON_BLOCKING));
  e2e::Buffer<uint32_t> words(std::vector<uint32_t>(kWords, 1));
  e2e::Buffer<uint32_t> more(std::vector<uint32_t>(kWords, 1));
  CHECK_CU(cuCtxSynchronize());
  std::vector<uint32_t> expected(kWords, 1);

  flag.hold(in_first, 1);
  e2e::launch(mix, grid, 64, 0, in_first, words.address, kWords, 1u);
  CHECK_CU(cuGreenCtxRecordEvent(first, done));
  e2e::expect_result("an event of a busy green context", cuEventQuery(done), CUDA_ERROR_NOT_READY);
  CHECK_CU(cuGreenCtxRecordEvent(second, other));
  e2e::expect_result("the other one is idle", cuEventSynchronize(other), CUDA_SUCCESS);
  CHECK_CU(cuGreenCtxWaitEvent(second, done));
  e2e::launch(mix, grid, 64, 0, in_second, words.address, kWords, 2u);
  e2e::expect_result("now it waits", cuStreamQuery(in_second), CUDA_ERROR_NOT_READY);
  e2e::launch(mix, grid, 64, 0, plain, more.address, kWords, 9u);
  e2e::expect_result("the primary context does not", cuStreamSynchronize(plain), CUDA_SUCCESS);
  e2e::launch(mix, grid, 64, 0, also_first, more.address, kWords, 9u);
  e2e::expect_result("nor does another stream of the first", cuStreamSynchronize(also_first),
                     CUDA_SUCCESS);
  flag.set(1);
  CHECK_CU(cuStreamSynchronize(in_second));
  CHECK_CU(cuEventQuery(done));
  e2e::mix_on_host(expected, 1);
  e2e::mix_on_host(expected, 2);
  e2e::expect(words.get() == expected, "kernels of two green contexts in order");

  flag.hold(in_first, 2);
  e2e::launch(mix, grid, 64, 0, in_first, words.address, kWords, 3u);
  CHECK_CU(cuCtxRecordEvent(session.context, done));
  e2e::expect_result("the primary context's event is about green contexts, too", cuEventQuery(done),
                     CUDA_ERROR_NOT_READY);
  CHECK_CU(cuCtxWaitEvent(session.context, done));
  e2e::launch(mix, grid, 64, 0, plain, words.address, kWords, 4u);
  e2e::expect_result("a stream of the primary context waits", cuStreamQuery(plain),
                     CUDA_ERROR_NOT_READY);
  flag.set(2);
  CHECK_CU(cuStreamSynchronize(plain));
  e2e::mix_on_host(expected, 3);
  e2e::mix_on_host(expected, 4);
  e2e::expect(words.get() == expected, "and comes behind them");
  CHECK_CU(cuCtxSynchronize());

  CUgraph graph = nullptr;
  CHECK_CU(cuStreamBeginCapture_v2(in_first, CU_STREAM_CAPTURE_MODE_RELAXED));
  e2e::expect_result("an event of a context that captures", cuGreenCtxRecordEvent(first, done),
                     CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  e2e::expect_result("which ends the capture", cuStreamEndCapture(in_first, &graph),
                     CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK_CU(cuStreamDestroy_v2(plain));
  CHECK_CU(cuStreamDestroy_v2(also_first));
  CHECK_CU(cuEventDestroy_v2(done));
  CHECK_CU(cuEventDestroy_v2(other));
}

void check_detached(const e2e::Session& session, CUdevResource* group) {
  const CUfunction spin = session.function("spin");
  e2e::Buffer<uint32_t> result(1);
  CUgreenCtx green = make_green(session.device, group);
  CUstream stream = stream_in(green);
  CUcontext view = nullptr;
  CHECK_CU(cuCtxFromGreenCtx(&view, green));
  e2e::expect_result("a green context's CUcontext is not the program's to destroy",
                     cuCtxDestroy_v2(view), CUDA_ERROR_INVALID_CONTEXT);
  e2e::launch(spin, 1, 32, 0, stream, result.address, 100000u);
  CHECK_CU(cuGreenCtxDestroy(green));
  e2e::expect(result.get()[0] != 0, "its work is done");
  e2e::expect_result("its CUcontext", cuCtxPushCurrent_v2(view),
                     {CUDA_ERROR_CONTEXT_IS_DESTROYED, CUDA_ERROR_INVALID_CONTEXT});
  e2e::expect_result("its stream", cuStreamQuery(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  e2e::expect_result("a launch there", e2e::try_launch(spin, 1, 32, 0, stream, result.address, 1u),
                     CUDA_ERROR_CONTEXT_IS_DESTROYED);
  CHECK_CU(cuStreamDestroy_v2(stream));
  e2e::expect_result("destroying it again", cuStreamDestroy_v2(stream), CUDA_ERROR_INVALID_HANDLE);
  e2e::expect_result("a destroyed green context", cuGreenCtxDestroy(green),
                     {CUDA_ERROR_CONTEXT_IS_DESTROYED, CUDA_ERROR_INVALID_CONTEXT});
  CHECK_CU(cuCtxSynchronize());
  // A green context with a stream that the program does not destroy.
  static_cast<void>(stream_in(make_green(session.device, group)));
}

}  // namespace

int main(int argc, char** argv) {
  e2e::Session session;
  const CUdevResource all = device_sms(session.device);
  int count = 0;
  CHECK_CU(cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, session.device));
  const unsigned total = all.sm.smCount;
  e2e::expect(all.type == CU_DEV_RESOURCE_TYPE_SM && total == static_cast<unsigned>(count),
              "the device's SMs");
  CUdevResource groups[2] = {}, rest{};
  unsigned made = 2;
  CHECK_CU(cuDevSmResourceSplitByCount(groups, &made, &all, &rest, 0, all.sm.minSmPartitionSize));
  const unsigned share = groups[0].sm.smCount;
  if (argc > 1 && strcmp(argv[1], "detached") == 0) {
    check_detached(session, &groups[0]);
    return e2e::finish();
  }
  check_split(all);

  CUgreenCtx green[2] = {make_green(session.device, &groups[0]),
                         make_green(session.device, &groups[1])};
  unsigned long long ids[2] = {};
  CUdevResource of_green{};
  CUstream stream[2] = {};
  std::set<uint32_t> seen[2];
  const CUfunction where = session.function("where");
  for (int i = 0; i < 2; i++) {
    CHECK_CU(cuGreenCtxGetId(green[i], &ids[i]));
    CHECK_CU(cuGreenCtxGetDevResource(green[i], &of_green, CU_DEV_RESOURCE_TYPE_SM));
    e2e::expect(of_green.sm.smCount == share, "SMs of green context %d", i);
    stream[i] = stream_in(green[i]);
    seen[i] = sms_of(where, stream[i], total);
    printf("# green context %d: %zu SMs seen\n", i, seen[i].size());
    e2e::expect(seen[i].size() <= share && *seen[i].rbegin() < total, "its kernels keep to them");
  }
  e2e::expect(ids[0] != ids[1], "green contexts have different ids");
  e2e::expect(disjoint(seen[0], seen[1]), "two groups share no SM");
  const std::set<uint32_t> seen_by_all = sms_of(where, nullptr, total);
  printf("# primary context: %zu SMs seen\n", seen_by_all.size());
  e2e::expect(seen_by_all.size() > share, "the primary context has more");
  CUcontext of_stream = nullptr;
  CUgreenCtx of_green_stream = nullptr;
  CHECK_CU(cuStreamGetCtx_v2(stream[0], &of_stream, &of_green_stream));
  e2e::expect(of_stream == session.context && of_green_stream == green[0], "contexts of a stream");
  CHECK_CU(cuStreamGetGreenCtx(nullptr, &of_green_stream));
  e2e::expect(of_green_stream == nullptr, "the primary's default stream has no green context");

  check_current(session, green[0], share, total, seen[1]);
  check_events(session, green[0], green[1], stream[0], stream[1]);

  CUdevResourceDesc description = nullptr;
  CUgreenCtx again = nullptr, refused = nullptr;
  CHECK_CU(cuDevResourceGenerateDesc(&description, groups, 2));
  CHECK_CU(cuGreenCtxCreate(&again, description, session.device, CU_GREEN_CTX_DEFAULT_STREAM));
  CHECK_CU(cuGreenCtxGetDevResource(again, &of_green, CU_DEV_RESOURCE_TYPE_SM));
  e2e::expect(of_green.sm.smCount == 2 * share, "a green context of two groups");
  CHECK_CU(cuGreenCtxDestroy(again));
  CHECK_CU(cuGreenCtxCreate(&again, description, session.device, CU_GREEN_CTX_DEFAULT_STREAM));
  e2e::expect(again != nullptr, "a descriptor serves twice");
  CHECK_CU(cuGreenCtxDestroy(again));
  e2e::expect_result("a green context without default stream",
                     cuGreenCtxCreate(&refused, description, session.device, 0),
                     CUDA_ERROR_INVALID_VALUE);
  CUstream blocking = nullptr;
  e2e::expect_result("a blocking stream",
                     cuGreenCtxStreamCreate(&blocking, green[0], CU_STREAM_DEFAULT, 0),
                     CUDA_ERROR_INVALID_VALUE);
  for (int i = 0; i < 2; i++) {
    CHECK_CU(cuStreamDestroy_v2(stream[i]));
    CHECK_CU(cuGreenCtxDestroy(green[i]));
  }
  unsigned flags = 0;
  int active = 0;
  CHECK_CU(cuDevicePrimaryCtxGetState(session.device, &flags, &active));
  e2e::expect(active == 1, "the primary context is still active");
  return e2e::finish();
}
