// SPDX-License-Identifier: Apache-2.0
// Queries and attributes of streams, stream memory operations, callbacks, and the older versions of
// the capture calls. Run by run_e2e.py.
// usage: drv_stream_calls attributes|values|callbacks|capture|bad
#include <atomic>
#include <string>
#include <thread>

#include "driver.h"

namespace {

using e2e::expect;
using e2e::expect_result;

constexpr auto kInvalid = CUDA_ERROR_INVALID_VALUE;

struct Streams {
  CUstream first = nullptr, second = nullptr;
  Streams() {
    CHECK_CU(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    CHECK_CU(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
  }
  Streams(const Streams&) = delete;
  ~Streams() {
    CHECK_CU(cuStreamDestroy_v2(first));
    CHECK_CU(cuStreamDestroy_v2(second));
  }
};

// ---- Queries and attributes --------------------------------------------------------------------

unsigned long long id_of(CUstream stream) {
  unsigned long long id = ~0ull;
  CHECK_CU(cuStreamGetId(stream, &id));
  return id;
}

void identity(const e2e::Session& session) {
  Streams s;
  const unsigned long long first = id_of(s.first), second = id_of(s.second);
  expect(first != second && first == id_of(s.first) && second == id_of(s.second),
         "each stream has its id");
  expect(id_of(nullptr) == id_of(CU_STREAM_LEGACY) && id_of(nullptr) != id_of(s.first),
         "the NULL stream is the legacy stream");
  expect(id_of(CU_STREAM_PER_THREAD) != id_of(CU_STREAM_LEGACY), "the thread's stream is another");
  unsigned long long elsewhere = 0;
  std::thread([&] {
    CHECK_CU(cuCtxSetCurrent(session.context));
    elsewhere = id_of(CU_STREAM_PER_THREAD);
  }).join();
  expect(elsewhere != id_of(CU_STREAM_PER_THREAD), "another thread has its own");

  CUcontext made = nullptr, seen = nullptr;
  CHECK_CU(cuCtxCreate_v2(&made, 0, session.device));
  CUstream inside = nullptr;
  CHECK_CU(cuStreamCreate(&inside, CU_STREAM_DEFAULT));
  CHECK_CU(cuCtxSetCurrent(session.context));
  CHECK_CU(cuStreamGetCtx(inside, &seen));
  expect(seen == made, "the context of a stream of another context");
  CHECK_CU(cuStreamGetCtx(nullptr, &seen));
  expect(seen == session.context, "the NULL stream's context is the current one");
  auto green = reinterpret_cast<CUgreenCtx>(&seen);
  seen = nullptr;
  CHECK_CU(cuStreamGetCtx_v2(inside, &seen, &green));
  expect(seen == made && green == nullptr, "both kinds of context");
  green = reinterpret_cast<CUgreenCtx>(&seen);
  CHECK_CU(cuStreamGetGreenCtx(s.first, &green));
  expect(green == nullptr, "an ordinary stream has no green context");
  CUdevice device = 77;
  CHECK_CU(cuStreamGetDevice(inside, &device));
  expect(device == session.device, "the device of a stream");
  CHECK_CU(cuCtxDestroy_v2(made));

  expect_result("an id without a place", cuStreamGetId(s.first, nullptr), kInvalid);
  expect_result("a device without a place", cuStreamGetDevice(s.first, nullptr), kInvalid);
  expect_result("a context without a place", cuStreamGetCtx(s.first, nullptr), kInvalid);
}

CUstreamAttrValue attribute_of(CUstream stream, CUstreamAttrID which) {
  CUstreamAttrValue value;
  memset(&value, 0x5a, sizeof(value));
  CHECK_CU(cuStreamGetAttribute(stream, which, &value));
  return value;
}

bool has_window(CUstream stream, const CUaccessPolicyWindow& wanted) {
  const CUaccessPolicyWindow seen =
      attribute_of(stream, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW).accessPolicyWindow;
  return seen.base_ptr == wanted.base_ptr && seen.num_bytes == wanted.num_bytes &&
         seen.hitProp == wanted.hitProp && seen.missProp == wanted.missProp;
}

CUsynchronizationPolicy policy_of(CUstream stream) {
  return attribute_of(stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY).syncPolicy;
}

void attributes() {
  Streams s;
  e2e::Buffer<uint32_t> words(1024);
  const CUaccessPolicyWindow none{};
  const CUsynchronizationPolicy first = policy_of(s.first);
  printf("# the first policy is %d\n", static_cast<int>(first));
  expect(has_window(s.first, none), "there is no window at first");
  CUstreamAttrValue policy{}, window{}, domain{};
  policy.syncPolicy = CU_SYNC_POLICY_BLOCKING_SYNC;
  CHECK_CU(cuStreamSetAttribute(s.first, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &policy));
  expect(policy_of(s.first) == CU_SYNC_POLICY_BLOCKING_SYNC, "the policy that was set");
  expect(policy_of(s.second) == first, "of this stream alone");
  window.accessPolicyWindow.base_ptr = reinterpret_cast<void*>(words.address);
  window.accessPolicyWindow.num_bytes = words.bytes();
  window.accessPolicyWindow.hitRatio = 1.0f;
  window.accessPolicyWindow.hitProp = CU_ACCESS_PROPERTY_STREAMING;
  window.accessPolicyWindow.missProp = CU_ACCESS_PROPERTY_NORMAL;
  CHECK_CU(cuStreamSetAttribute(s.first, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &window));
  expect(has_window(s.first, window.accessPolicyWindow), "the window that was set");
  domain.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
  CHECK_CU(cuStreamSetAttribute(s.first, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, &domain));
  expect(attribute_of(s.first, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN).memSyncDomain ==
             CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE,
         "the domain that was set");

  CHECK_CU(cuStreamCopyAttributes(s.second, s.first));
  expect(policy_of(s.second) == CU_SYNC_POLICY_BLOCKING_SYNC &&
             has_window(s.second, window.accessPolicyWindow),
         "attributes are copied");
  policy.syncPolicy = CU_SYNC_POLICY_SPIN;
  CHECK_CU(cuStreamSetAttribute(s.first, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &policy));
  expect(policy_of(s.second) == CU_SYNC_POLICY_BLOCKING_SYNC, "a copy stays as it is");
  window.accessPolicyWindow = none;
  CHECK_CU(cuStreamSetAttribute(s.first, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &window));
  expect(has_window(s.first, none), "the window is gone again");

  int least = 0, greatest = 0;
  CHECK_CU(cuCtxGetStreamPriorityRange(&least, &greatest));
  CUstream urgent = nullptr;
  CHECK_CU(cuStreamCreateWithPriority(&urgent, CU_STREAM_NON_BLOCKING, greatest));
  expect(attribute_of(urgent, CU_LAUNCH_ATTRIBUTE_PRIORITY).priority == greatest,
         "the priority is an attribute");
  CHECK_CU(cuStreamDestroy_v2(urgent));

  expect_result("an attribute of launches alone",
                cuStreamSetAttribute(s.first, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &policy), kInvalid);
  expect_result("asking for it",
                cuStreamGetAttribute(s.first, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &policy), kInvalid);
  expect_result("no such attribute",
                cuStreamSetAttribute(s.first, static_cast<CUstreamAttrID>(99), &policy), kInvalid);
}

// ---- Words -------------------------------------------------------------------------------------

// Expects that a stream waits until the word at `address`, `start` at first, is `release`.
void expect_wait(const char* what, const Streams& s, CUdeviceptr address, uint64_t start,
                 uint64_t wanted, unsigned flags, uint64_t release) {
  CHECK_CU(cuStreamWriteValue64_v2(s.second, address, start, CU_STREAM_WRITE_VALUE_DEFAULT));
  CHECK_CU(cuStreamSynchronize(s.second));
  CHECK_CU(cuStreamWaitValue64_v2(s.first, address, wanted, flags));
  const CUresult before = cuStreamQuery(s.first);
  CHECK_CU(cuStreamWriteValue64_v2(s.second, address, release, CU_STREAM_WRITE_VALUE_DEFAULT));
  CHECK_CU(cuStreamSynchronize(s.first));
  expect(before == CUDA_ERROR_NOT_READY, "%s: held back, then released", what);
}

void words(const e2e::Session& session) {
  const CUfunction store = session.function("store_at");  // loaded before a stream waits
  Streams s;
  e2e::Buffer<uint64_t> words(std::vector<uint64_t>(8, 0));
  const uint64_t high = 1ull << 40;
  CHECK_CU(cuStreamWriteValue64_v2(s.first, words.address + 8, high + 5, 0));
  CHECK_CU(cuStreamSynchronize(s.first));
  expect(words.get()[1] == high + 5 && words.get()[0] == 0 && words.get()[2] == 0,
         "64 bits are written");
  expect_wait("at least", s, words.address, high - 1, high, CU_STREAM_WAIT_VALUE_GEQ, high + 1);
  expect_wait("equal", s, words.address, high, 5, CU_STREAM_WAIT_VALUE_EQ, 5);
  expect_wait("a bit", s, words.address, 0xff, high, CU_STREAM_WAIT_VALUE_AND, high | 3);
  // NOR waits while no bit is missing in both.
  expect_wait("a bit that is missing", s, words.address, ~0ull, ~high, CU_STREAM_WAIT_VALUE_NOR,
              ~high);
  // The comparison is cyclic: 5 is ahead of -16.
  CHECK_CU(cuStreamWriteValue64_v2(s.first, words.address, 5, 0));
  CHECK_CU(cuStreamWaitValue64_v2(s.first, words.address, ~0ull - 15, CU_STREAM_WAIT_VALUE_GEQ));
  CHECK_CU(cuStreamWriteValue64_v2(s.first, words.address + 8, 77, 0));
  CHECK_CU(cuStreamSynchronize(s.first));
  expect(words.get()[1] == 77, "at least, around the end of the numbers");

  // A batch is executed in order: a kernel in the other stream runs between its two halves.
  CUstreamBatchMemOpParams batch[4] = {};
  batch[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  batch[0].writeValue.address = words.address + 16;
  batch[0].writeValue.value = 11;
  batch[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
  batch[1].writeValue.address = words.address + 24;
  batch[1].writeValue.value64 = high + 7;
  batch[2].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  batch[2].waitValue.address = words.address + 32;
  batch[2].waitValue.value = 9;
  batch[2].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  batch[3].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  batch[3].writeValue.address = words.address + 40;
  batch[3].writeValue.value = 13;
  CHECK_CU(cuStreamBatchMemOp_v2(s.first, 4, batch, 0));
  CHECK_CU(cuStreamWaitValue64_v2(s.second, words.address + 24, high + 7, CU_STREAM_WAIT_VALUE_EQ));
  CHECK_CU(cuStreamSynchronize(s.second));
  expect_result("a batch waits in its middle", cuStreamQuery(s.first), CUDA_ERROR_NOT_READY);
  e2e::launch(store, 1, 1, 0, s.second, words.address + 32, 9u);
  CHECK_CU(cuStreamSynchronize(s.first));
  const std::vector<uint64_t> seen = words.get();
  expect(seen[2] == 11 && seen[3] == high + 7 && seen[4] == 9 && seen[5] == 13,
         "all of the batch is done");

  expect_result("half a word", cuStreamWriteValue64_v2(s.first, words.address + 2, 1, 0), kInvalid);
  std::vector<uint64_t> ordinary(1);
  expect_result(
      "memory of the program",
      cuStreamWriteValue64_v2(s.first, reinterpret_cast<CUdeviceptr>(ordinary.data()), 1, 0),
      kInvalid);
  std::vector<CUstreamBatchMemOpParams> many(256, batch[0]);
  CHECK_CU(cuStreamBatchMemOp_v2(s.first, 255, many.data(), 0));
  expect_result("256 operations", cuStreamBatchMemOp_v2(s.first, 256, many.data(), 0), kInvalid);
  expect_result("unknown flags of a batch", cuStreamBatchMemOp_v2(s.first, 1, batch, 8), kInvalid);
  batch[0].writeValue.value = 99;
  batch[1].operation = static_cast<CUstreamBatchMemOpType>(55);
  expect_result("an unknown operation", cuStreamBatchMemOp_v2(s.first, 2, batch, 0),
                {kInvalid, CUDA_ERROR_NOT_SUPPORTED});
  CHECK_CU(cuStreamSynchronize(s.first));
  printf("# the operation before it was %sdone\n", words.get()[2] == 99 ? "" : "not ");
}

// ---- Callbacks ---------------------------------------------------------------------------------

struct Call {
  std::atomic<int>* count;
  CUstream stream = nullptr;
  CUresult status = CUDA_ERROR_UNKNOWN;
  int order = 0;
  uint32_t seen = 0;
  const uint32_t* word = nullptr;
};

void called(CUstream stream, CUresult status, void* data) {
  auto* call = static_cast<Call*>(data);
  call->stream = stream;
  call->status = status;
  call->seen = *call->word;
  call->order = ++*call->count;
}

void callbacks(const e2e::Session& session) {
  Streams s;
  void* host = nullptr;
  CUdeviceptr address = 0;
  CHECK_CU(cuMemHostAlloc(&host, 4, CU_MEMHOSTALLOC_DEVICEMAP));
  CHECK_CU(cuMemHostGetDevicePointer_v2(&address, host, 0));
  auto* word = static_cast<uint32_t*>(host);
  *word = 1;
  std::atomic<int> count{0};
  Call calls[2] = {{&count}, {&count}};
  const CUfunction store = session.function("store_at");
  for (uint32_t i = 0; i < 2; i++) {
    calls[i].word = word;
    e2e::launch(store, 1, 1, 0, s.first, address, 10 + i);
    CHECK_CU(cuStreamAddCallback(s.first, called, &calls[i], 0));
  }
  CHECK_CU(cuStreamSynchronize(s.first));
  expect(calls[0].order == 1 && calls[1].order == 2, "callbacks run in order");
  expect(calls[0].seen == 10 && calls[1].seen == 11, "between the kernels around them");
  expect(calls[0].stream == s.first && calls[1].status == CUDA_SUCCESS,
         "they get the stream and its state");
  expect_result("flags of a callback", cuStreamAddCallback(s.first, called, &calls[0], 1),
                kInvalid);
  CHECK_CU(cuStreamBeginCapture_v2(s.first, CU_STREAM_CAPTURE_MODE_RELAXED));
  expect_result("a callback in a capture", cuStreamAddCallback(s.first, called, &calls[0], 0),
                CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CUgraph graph = nullptr;
  expect_result("the capture is lost", cuStreamEndCapture(s.first, &graph),
                CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK_CU(cuMemFreeHost(host));
  expect(count == 2, "no other callback ran");
}

void attached(const e2e::Session& session) {
  Streams s;
  CUdeviceptr managed = 0;
  CHECK_CU(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_HOST));
  auto* word = reinterpret_cast<uint32_t*>(managed);
  *word = 3;
  CHECK_CU(cuStreamAttachMemAsync(s.first, managed, 0, CU_MEM_ATTACH_SINGLE));
  CHECK_CU(cuStreamSynchronize(s.first));
  e2e::launch(session.function("store_at"), 1, 1, 0, s.first, managed, 4u);
  CHECK_CU(cuStreamSynchronize(s.first));
  expect(*word == 4, "managed memory that belongs to a stream");
  CHECK_CU(cuStreamAttachMemAsync(s.first, managed, 4096, CU_MEM_ATTACH_GLOBAL));
  CHECK_CU(cuStreamSynchronize(s.first));
  CHECK_CU(cuMemFree_v2(managed));
}

// ---- Capture -----------------------------------------------------------------------------------

size_t edges_of(CUgraph graph) {
  size_t edges = 0;
  CHECK_CU(cuGraphGetEdges(graph, nullptr, nullptr, &edges));
  return edges;
}

void capture(const e2e::Session& session) {
  Streams s;
  e2e::Buffer<uint32_t> words(std::vector<uint32_t>(64, 0));
  const CUfunction mix = session.function("mix");
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  cuuint64_t id = 0, later = 0;
  CHECK_CU(cuStreamGetCaptureInfo(s.first, &status, &id));
  expect(status == CU_STREAM_CAPTURE_STATUS_NONE, "a stream that does not capture");
  CHECK_CU(cuStreamBeginCapture(s.first));
  CHECK_CU(cuStreamGetCaptureInfo(s.first, &status, &id));
  expect(status == CU_STREAM_CAPTURE_STATUS_ACTIVE, "one that does");
  expect_result("capturing twice", cuStreamBeginCapture(s.first), CUDA_ERROR_ILLEGAL_STATE);

  // Two independent kernels, and a third that depends on both.
  const auto dependencies = [&] {
    const CUgraphNode* nodes = nullptr;
    size_t count = 0;
    CHECK_CU(cuStreamGetCaptureInfo_v2(s.first, &status, nullptr, nullptr, &nodes, &count));
    return std::vector<CUgraphNode>(nodes, nodes + count);
  };
  e2e::launch(mix, 1, 64, 0, s.first, words.address, 32u, 1u);
  std::vector<CUgraphNode> one = dependencies();
  expect(one.size() == 1, "the stream waits for its kernel");
  CHECK_CU(cuStreamUpdateCaptureDependencies_v2(s.first, nullptr, nullptr, 0,
                                                CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  expect(dependencies().empty(), "then for nothing");
  e2e::launch(mix, 1, 64, 0, s.first, words.address + 128, 32u, 2u);
  CHECK_CU(cuStreamUpdateCaptureDependencies_v2(s.first, one.data(), nullptr, 1,
                                                CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
  expect(dependencies().size() == 2, "then for both kernels");
  expect_result("unknown flags",
                cuStreamUpdateCaptureDependencies_v2(s.first, nullptr, nullptr, 0, 7), kInvalid);
  e2e::launch(mix, 1, 64, 0, s.first, words.address, 64u, 3u);
  CUgraph graph = nullptr;
  CHECK_CU(cuStreamEndCapture(s.first, &graph));
  size_t nodes = 0, roots = 0;
  CHECK_CU(cuGraphGetNodes(graph, nullptr, &nodes));
  CHECK_CU(cuGraphGetRootNodes(graph, nullptr, &roots));
  expect(nodes == 3 && roots == 2 && edges_of(graph) == 2, "%zu nodes, %zu roots, %zu edges", nodes,
         roots, edges_of(graph));
  CUgraphExec exec = nullptr;
  CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  CHECK_CU(cuGraphLaunch(exec, s.first));
  CHECK_CU(cuStreamSynchronize(s.first));
  std::vector<uint32_t> left(32, 0), right(32, 0);
  e2e::mix_on_host(left, 1);
  e2e::mix_on_host(right, 2);
  left.insert(left.end(), right.begin(), right.end());
  e2e::mix_on_host(left, 3);
  expect(words.get() == left, "what the graph computes");
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(graph));
  expect_result("dependencies without a capture",
                cuStreamUpdateCaptureDependencies_v2(s.first, nullptr, nullptr, 0, 0),
                CUDA_ERROR_ILLEGAL_STATE);

  // The thread's mode is exchanged; a relaxed thread may allocate while it captures.
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  CHECK_CU(cuThreadExchangeStreamCaptureMode(&mode));
  expect(mode == CU_STREAM_CAPTURE_MODE_GLOBAL, "a thread begins with the global mode");
  CHECK_CU(cuStreamBeginCapture(s.first));
  CHECK_CU(cuStreamGetCaptureInfo(s.first, &status, &later));
  expect(later != id, "each capture has its id");
  CUdeviceptr more = 0;
  expect_result("an allocation of a relaxed thread", cuMemAlloc_v2(&more, 64), CUDA_SUCCESS);
  CHECK_CU(cuMemFree_v2(more));
  CHECK_CU(cuThreadExchangeStreamCaptureMode(&mode));
  expect(mode == CU_STREAM_CAPTURE_MODE_RELAXED, "the mode comes back");
  CHECK_CU(cuStreamEndCapture(s.first, &graph));
  CHECK_CU(cuGraphDestroy(graph));
  mode = static_cast<CUstreamCaptureMode>(9);
  // NVIDIA's driver (580) accepts the unknown mode.
  expect_result("no such mode", cuThreadExchangeStreamCaptureMode(&mode), {kInvalid, CUDA_SUCCESS});
}

// Calls on which NVIDIA's driver (580) crashes.
void bad() {
  Streams s;
  expect_result("a batch of nothing", cuStreamBatchMemOp_v2(s.first, 1, nullptr, 0), kInvalid);
  expect_result("no callback", cuStreamAddCallback(s.first, nullptr, nullptr, 0), kInvalid);
  CUdeviceptr managed = 0;
  CHECK_CU(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
  expect_result("no kind of attachment", cuStreamAttachMemAsync(s.first, managed, 0, 0), kInvalid);
  expect_result("an unknown attachment", cuStreamAttachMemAsync(s.first, managed, 0, 64), kInvalid);
  e2e::Buffer<uint32_t> device(64);
  expect_result("memory that is not managed",
                cuStreamAttachMemAsync(s.first, device.address, 0, CU_MEM_ATTACH_GLOBAL), kInvalid);
  expect_result("a part of managed memory",
                cuStreamAttachMemAsync(s.first, managed, 16, CU_MEM_ATTACH_GLOBAL), kInvalid);
  CHECK_CU(cuMemFree_v2(managed));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string group = argc > 1 ? argv[1] : "attributes";
  e2e::Session session;
  if (group == "attributes") {
    identity(session);
    attributes();
  } else if (group == "values") {
    words(session);
  } else if (group == "callbacks") {
    callbacks(session);
    attached(session);
  } else if (group == "capture") {
    capture(session);
  } else {
    bad();
  }
  return e2e::finish();
}
