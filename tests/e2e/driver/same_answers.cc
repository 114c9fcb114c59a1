// SPDX-License-Identifier: Apache-2.0
// Fills, copies and stream memory operations are given to a stream, to a capture and to a node of a
// graph. Each is accepted or refused at the same point as on an H200. Run by run_e2e.py.
// usage: drv_same_answers values|fills|refused
#include <functional>
#include <string>

#include "driver.h"

namespace {

using e2e::expect;
using e2e::expect_result;
using Operations = std::vector<CUstreamBatchMemOpParams>;

constexpr auto kInvalid = CUDA_ERROR_INVALID_VALUE;
constexpr size_t kGranule = 2 << 20;

// Memory that the device may only read, and addresses without memory.
struct Fixture {
  e2e::Session session;
  CUstream stream = nullptr;
  e2e::Buffer<uint32_t> words{std::vector<uint32_t>(1024, 0)};
  CUdeviceptr read_only = 0;
  CUdeviceptr nothing = 0;
  CUmemGenericAllocationHandle physical = 0;

  Fixture() {
    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CHECK_CU(cuMemCreate(&physical, kGranule, &prop, 0));
    CHECK_CU(cuMemAddressReserve(&read_only, kGranule, 0, 0, 0));
    CHECK_CU(cuMemMap(read_only, kGranule, 0, physical, 0));
    set_access(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK_CU(cuMemsetD8_v2(read_only, 0, kGranule));
    CHECK_CU(cuCtxSynchronize());
    set_access(CU_MEM_ACCESS_FLAGS_PROT_READ);
    CHECK_CU(cuMemAddressReserve(&nothing, kGranule, 0, 0, 0));
  }
  Fixture(const Fixture&) = delete;
  ~Fixture() {
    CHECK_CU(cuMemAddressFree(nothing, kGranule));
    CHECK_CU(cuMemUnmap(read_only, kGranule));
    CHECK_CU(cuMemRelease(physical));
    CHECK_CU(cuMemAddressFree(read_only, kGranule));
    CHECK_CU(cuStreamDestroy_v2(stream));
  }
  void set_access(CUmemAccess_flags flags) const {
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, flags};
    CHECK_CU(cuMemSetAccess(read_only, kGranule, &access, 1));
  }
};

// The results of a graph of one node, and the graph's number of nodes.
struct Outcome {
  CUresult made = CUDA_SUCCESS;  // the result of adding the node, or of the captured call
  size_t nodes = 0;
  CUresult instantiated = CUDA_SUCCESS;
  CUresult launched = CUDA_SUCCESS;
  bool operator==(const Outcome&) const = default;
  std::string text() const {
    return std::string(e2e::name(made)) + ", " + std::to_string(nodes) + " nodes, " +
           e2e::name(instantiated) + ", " + e2e::name(launched);
  }
};

void run(const Fixture& f, CUgraph graph, Outcome* outcome) {
  CHECK_CU(cuGraphGetNodes(graph, nullptr, &outcome->nodes));
  CUgraphExec exec = nullptr;
  outcome->instantiated = cuGraphInstantiateWithFlags(&exec, graph, 0);
  if (outcome->instantiated == CUDA_SUCCESS) {
    outcome->launched = cuGraphLaunch(exec, f.stream);
    // Behind OpenMPS a launch is refused when it is executed, and the error is reported later.
    const CUresult done = cuStreamSynchronize(f.stream);
    if (outcome->launched == CUDA_SUCCESS) outcome->launched = done;
    CHECK_CU(cuGraphExecDestroy(exec));
  }
  CHECK_CU(cuGraphDestroy(graph));
}

struct Work {
  std::function<CUresult(CUstream)> call;
  std::function<CUresult(CUgraphNode*, CUgraph)> add;
};

struct Expected {
  CUresult stream;
  Outcome captured;
  Outcome node;
};
// The same result in a stream, in a capture and for a node.
Expected everywhere(CUresult result) {
  const Outcome same{result, result == CUDA_SUCCESS ? size_t{1} : 0};
  return {result, same, same};
}
// An error at once in a stream, and for a graph when that is launched.
Expected at_launch(CUresult result) {
  const Outcome late{CUDA_SUCCESS, 1, CUDA_SUCCESS, result};
  return {result, late, late};
}

void compare(const Fixture& f, const char* name, const Work& work, const Expected& expected) {
  const CUresult direct = work.call(f.stream);
  CHECK_CU(cuStreamSynchronize(f.stream));
  expect(direct == expected.stream, "%s in a stream: %s", name, e2e::name(direct));
  Outcome captured;
  CUgraph graph = nullptr;
  CHECK_CU(cuStreamBeginCapture_v2(f.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  captured.made = work.call(f.stream);
  CHECK_CU(cuStreamEndCapture(f.stream, &graph));
  run(f, graph, &captured);
  expect(captured == expected.captured, "%s captured: %s", name, captured.text().c_str());
  Outcome node;
  CUgraphNode added = nullptr;
  CHECK_CU(cuGraphCreate(&graph, 0));
  node.made = work.add(&added, graph);
  run(f, graph, &node);
  expect(node == expected.node, "%s as a node: %s", name, node.text().c_str());
}

// ---- Values -------------------------------------------------------------------------------------

CUstreamBatchMemOpParams write(CUdeviceptr address, unsigned flags = 0) {
  CUstreamBatchMemOpParams made{};
  made.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  made.writeValue.address = address;
  made.writeValue.flags = flags;
  return made;
}
// A wait that is satisfied at once, since all words are 0.
CUstreamBatchMemOpParams wait(CUdeviceptr address, unsigned flags = CU_STREAM_WAIT_VALUE_EQ) {
  CUstreamBatchMemOpParams made{};
  made.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  made.waitValue.address = address;
  made.waitValue.flags = flags;
  return made;
}
CUstreamBatchMemOpParams other(CUstreamBatchMemOpType operation, unsigned flags = 0) {
  CUstreamBatchMemOpParams made{};
  made.operation = operation;
  made.memoryBarrier.flags = flags;
  return made;
}

Work batch(const Fixture& f, Operations operations, unsigned flags = 0) {
  const auto count = static_cast<unsigned>(operations.size());
  operations.resize(count + 1);  // CUDA accepts no null pointer, not even for an empty batch
  return {[operations, count, flags](CUstream stream) mutable {
            return cuStreamBatchMemOp_v2(stream, count, operations.data(), flags);
          },
          [operations, count, flags, &f](CUgraphNode* node, CUgraph graph) mutable {
            const CUDA_BATCH_MEM_OP_NODE_PARAMS parameters{f.session.context, count,
                                                           operations.data(), flags};
            return cuGraphAddBatchMemOpNode(node, graph, nullptr, 0, &parameters);
          }};
}

void values() {
  const Fixture f;
  const CUdeviceptr word = f.words.address;
  constexpr auto kBarrier = CU_STREAM_MEM_OP_BARRIER;
  constexpr auto kFlush = CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES;
  const Expected good = everywhere(CUDA_SUCCESS);
  const Expected bad = everywhere(kInvalid);
  const Expected unsupported = everywhere(CUDA_ERROR_NOT_SUPPORTED);
  const auto check = [&f](const char* name, Operations operations, const Expected& expected,
                          unsigned flags = 0) {
    compare(f, name, batch(f, std::move(operations), flags), expected);
  };
  check("write, write, barrier", {write(word), write(word + 4), other(kBarrier)}, good);
  check("a barrier", {other(kBarrier)}, good);
  check("a barrier of the device", {other(kBarrier, CU_STREAM_MEMORY_BARRIER_TYPE_GPU)}, good);
  check("write, barrier, wait", {write(word), other(kBarrier), wait(word)}, good);
  check("write, write", {write(word), write(word + 4)}, good);
  check("a write", {write(word)}, good);
  check("nothing", {}, good);
  check("255 writes", Operations(255, write(word)), good);
  check("256 writes", Operations(256, write(word)), bad);
  check("an unknown barrier", {other(kBarrier, 2)}, bad);
  check("an unknown operation", {other(static_cast<CUstreamBatchMemOpType>(77))}, bad);
  check("flags of a batch", {write(word)}, bad, 1);
  check("flags of a write", {write(word, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER)}, bad);
  check("unknown flags of a wait", {wait(word, 4)}, bad);
  check("a flush", {other(kFlush)}, unsupported);
  check("write, flush", {write(word), other(kFlush)}, unsupported);
  check("a wait that flushes", {wait(word, CU_STREAM_WAIT_VALUE_FLUSH)}, unsupported);
  check("a write between words", {write(word + 2)}, bad);
  check("a wait for read-only memory", {wait(f.read_only)}, good);
  check("a write to nothing", {write(f.nothing)}, at_launch(kInvalid));
  check("a wait for nothing", {wait(f.nothing)}, at_launch(kInvalid));
  check("write, write to nothing", {write(word), write(f.nothing)}, at_launch(kInvalid));
}

// ---- Fills and copies ---------------------------------------------------------------------------

Work fill(const Fixture& f, CUdeviceptr to, size_t bytes) {
  return {[=](CUstream stream) { return cuMemsetD8Async(to, 0, bytes, stream); },
          [=, &f](CUgraphNode* node, CUgraph graph) {
            const CUDA_MEMSET_NODE_PARAMS parameters{to, 0, 0, 1, bytes, 1};
            return cuGraphAddMemsetNode(node, graph, nullptr, 0, &parameters, f.session.context);
          }};
}
Work copy(const Fixture& f, CUdeviceptr to, CUdeviceptr from) {
  constexpr size_t kBytes = 16;
  return {[=](CUstream stream) { return cuMemcpyDtoDAsync_v2(to, from, kBytes, stream); },
          [=, &f](CUgraphNode* node, CUgraph graph) {
            CUDA_MEMCPY3D box{};
            box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
            box.srcDevice = from;
            box.dstDevice = to;
            box.WidthInBytes = box.srcPitch = box.dstPitch = kBytes;
            box.Height = box.Depth = box.srcHeight = box.dstHeight = 1;
            return cuGraphAddMemcpyNode(node, graph, nullptr, 0, &box, f.session.context);
          }};
}

void fills() {
  const Fixture f;
  const CUdeviceptr word = f.words.address;
  const Expected good = everywhere(CUDA_SUCCESS);
  const Expected bad = everywhere(kInvalid);
  // The memory of a captured fill is checked when the graph is instantiated.
  const Expected later{kInvalid, {CUDA_SUCCESS, 1, kInvalid}, {kInvalid, 0}};
  compare(f, "a fill", fill(f, word, 16), good);
  compare(f, "a fill of read-only memory", fill(f, f.read_only, 16), later);
  compare(f, "a fill of nothing's memory", fill(f, f.nothing, 16), later);
  compare(f, "a fill beyond the end", fill(f, f.read_only + kGranule - 8, 16), later);
  compare(f, "a fill of address 0", fill(f, 0, 16), later);
  compare(f, "a fill of no bytes", fill(f, word, 0),
          {CUDA_SUCCESS, {CUDA_SUCCESS, 0}, {kInvalid, 0}});
  compare(f, "a copy to read-only memory", copy(f, f.read_only, word), bad);
  compare(f, "a copy from read-only memory", copy(f, word, f.read_only), good);
  compare(f, "a copy to nothing's memory", copy(f, f.nothing, word), bad);
}

// ---- Work that would fault natively
// -------------------------------------------------------------------

// On a GPU, a write to read-only memory ends the context (error 719). Behind OpenMPS, where
// programs share a context, it is refused in streams and graphs alike, and has no effect.
void refused() {
  const Fixture f;
  compare(f, "a write to read-only memory", batch(f, {write(f.read_only)}), at_launch(kInvalid));
  compare(f, "a write after a good one", batch(f, {write(f.words.address), write(f.read_only)}),
          at_launch(kInvalid));
  expect_result("one write", cuStreamWriteValue32_v2(f.stream, f.read_only, 1, 0), kInvalid);
  expect_result("one wait", cuStreamWaitValue32_v2(f.stream, f.read_only, 0, 0), CUDA_SUCCESS);
  expect_result("the stream afterwards", cuStreamSynchronize(f.stream), CUDA_SUCCESS);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string group = argc > 1 ? argv[1] : "";
  if (group == "values") values();
  if (group == "fills") fills();
  if (group == "refused") refused();
  return e2e::finish();
}
