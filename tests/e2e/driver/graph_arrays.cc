// SPDX-License-Identifier: Apache-2.0
// Copies to and from CUDA arrays in graphs: as nodes between every kind of memory, by capture, and
// changed in executable graphs. Run by run_e2e.py. usage: drv_graph_arrays
#include "driver.h"

namespace {

constexpr size_t kWidth = 200, kHeight = 40, kBytes = kWidth * kHeight;

std::vector<unsigned char> pattern(unsigned seed) {
  std::vector<unsigned char> bytes(kBytes);
  for (size_t i = 0; i < kBytes; i++) {
    bytes[i] = static_cast<unsigned char>(i * 7 + i / kWidth + seed);
  }
  return bytes;
}

struct Array {
  CUarray handle = nullptr;
  Array() {
    const CUDA_ARRAY_DESCRIPTOR d{kWidth, kHeight, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    CHECK_CU(cuArrayCreate_v2(&handle, &d));
  }
  Array(const Array&) = delete;
  ~Array() { CHECK_CU(cuArrayDestroy(handle)); }
};

CUDA_MEMCPY3D whole() {
  CUDA_MEMCPY3D box{};
  box.WidthInBytes = kWidth;
  box.Height = kHeight;
  box.Depth = 1;
  return box;
}
CUDA_MEMCPY3D from_array(CUDA_MEMCPY3D box, const Array& array, size_t x = 0, size_t y = 0) {
  box.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  box.srcArray = array.handle;
  box.srcXInBytes = x;
  box.srcY = y;
  return box;
}
CUDA_MEMCPY3D to_array(CUDA_MEMCPY3D box, const Array& array, size_t x = 0, size_t y = 0) {
  box.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  box.dstArray = array.handle;
  box.dstXInBytes = x;
  box.dstY = y;
  return box;
}
CUDA_MEMCPY3D from_host(CUDA_MEMCPY3D box, const void* data) {
  box.srcMemoryType = CU_MEMORYTYPE_HOST;
  box.srcHost = data;
  box.srcPitch = kWidth;
  box.srcHeight = kHeight;
  return box;
}
CUDA_MEMCPY3D to_host(CUDA_MEMCPY3D box, void* data) {
  box.dstMemoryType = CU_MEMORYTYPE_HOST;
  box.dstHost = data;
  box.dstPitch = kWidth;
  box.dstHeight = kHeight;
  return box;
}
CUDA_MEMCPY3D from_device(CUDA_MEMCPY3D box, CUdeviceptr address) {
  box.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  box.srcDevice = address;
  box.srcPitch = kWidth;
  box.srcHeight = kHeight;
  return box;
}
CUDA_MEMCPY3D to_device(CUDA_MEMCPY3D box, CUdeviceptr address) {
  box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.dstDevice = address;
  box.dstPitch = kWidth;
  box.dstHeight = kHeight;
  return box;
}

CUgraphNode add(CUgraph graph, CUcontext context, const CUDA_MEMCPY3D& copy, CUgraphNode behind) {
  CUgraphNode node = nullptr;
  CHECK_CU(cuGraphAddMemcpyNode(&node, graph, &behind, behind != nullptr ? 1 : 0, &copy, context));
  return node;
}

void run(CUgraphExec exec, CUstream stream) {
  CHECK_CU(cuGraphLaunch(exec, stream));
  CHECK_CU(cuStreamSynchronize(stream));
}

// pageable -> array -> array, moved -> device -> array -> pinned, and to pageable.
void nodes(CUcontext context, CUstream stream) {
  Array a, b, c;
  e2e::Buffer<unsigned char> linear(kBytes);
  std::vector<unsigned char> in = pattern(1), out(kBytes);
  void* pinned = nullptr;
  CHECK_CU(cuMemHostAlloc(&pinned, kBytes, CU_MEMHOSTALLOC_PORTABLE));
  CUgraph graph = nullptr;
  CHECK_CU(cuGraphCreate(&graph, 0));
  CUDA_MEMCPY3D part = whole();
  part.WidthInBytes = 150;
  part.Height = 30;
  const CUgraphNode first =
      add(graph, context, to_array(from_host(whole(), in.data()), a), nullptr);
  const CUgraphNode clear = add(graph, context, to_array(from_host(whole(), in.data()), b), first);
  const CUgraphNode across =
      add(graph, context, to_array(from_array(part, a, 10, 5), b, 20, 6), clear);
  const CUgraphNode down =
      add(graph, context, to_device(from_array(whole(), b), linear.address), across);
  const CUgraphNode up =
      add(graph, context, to_array(from_device(whole(), linear.address), c), down);
  add(graph, context, to_host(from_array(whole(), c), out.data()), up);
  add(graph, context, to_host(from_array(whole(), c), pinned), up);
  CUDA_MEMCPY3D asked{};
  CHECK_CU(cuGraphMemcpyNodeGetParams(across, &asked));
  e2e::expect(asked.srcArray == a.handle && asked.dstArray == b.handle && asked.dstY == 6,
              "the parameters of a node with arrays");
  CUgraphExec exec = nullptr;
  CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  const auto moved = [&] {
    std::vector<unsigned char> wanted = in;
    for (size_t y = 0; y < 30; y++) {
      memcpy(&wanted[(y + 6) * kWidth + 20], &in[(y + 5) * kWidth + 10], 150);
    }
    return wanted;
  };
  run(exec, stream);
  e2e::expect(out == moved() && memcmp(pinned, out.data(), kBytes) == 0, "through three arrays");
  const std::vector<unsigned char> fresh = pattern(90);
  memcpy(in.data(), fresh.data(), kBytes);  // pageable memory is read at each launch
  run(exec, stream);
  e2e::expect(out == moved() && memcmp(pinned, out.data(), kBytes) == 0, "a second launch");

  const CUDA_MEMCPY3D changed = to_array(from_array(part, a, 10, 5), b, 30, 8);
  e2e::expect_result("a change of a copy with two dimensions",
                     cuGraphExecMemcpyNodeSetParams(exec, across, &changed, context),
                     CUDA_ERROR_INVALID_VALUE);
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(graph));
  CHECK_CU(cuMemFreeHost(pinned));
}

void captured(CUstream stream) {
  Array a;
  e2e::Buffer<unsigned char> linear(pattern(3));
  std::vector<unsigned char> out(kBytes), row(kWidth);
  const std::vector<unsigned char> line = pattern(200);
  CUgraph graph = nullptr;
  CHECK_CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  const CUDA_MEMCPY3D up = to_array(from_device(whole(), linear.address), a);
  CHECK_CU(cuMemcpy3DAsync_v2(&up, stream));
  CHECK_CU(cuMemcpyHtoAAsync_v2(a.handle, 0, line.data(), kWidth, stream));
  const CUDA_MEMCPY3D down = to_host(from_array(whole(), a), out.data());
  CHECK_CU(cuMemcpy3DAsync_v2(&down, stream));
  CHECK_CU(cuMemcpyAtoHAsync_v2(row.data(), a.handle, 0, kWidth, stream));
  CHECK_CU(cuStreamEndCapture(stream, &graph));
  size_t count = 0;
  CHECK_CU(cuGraphGetNodes(graph, nullptr, &count));
  CUgraphNode nodes[4] = {};
  if (e2e::expect(count == 4, "%zu copies captured", count)) {
    CHECK_CU(cuGraphGetNodes(graph, nodes, &count));
  }
  CUDA_MEMCPY3D asked{};
  CHECK_CU(cuGraphMemcpyNodeGetParams(nodes[0], &asked));
  e2e::expect(asked.dstMemoryType == CU_MEMORYTYPE_ARRAY && asked.dstArray == a.handle,
              "a captured copy names its array");
  CUgraphExec exec = nullptr;
  CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  run(exec, stream);
  std::vector<unsigned char> wanted = pattern(3);
  memcpy(wanted.data(), line.data(), kWidth);
  e2e::expect(out == wanted && memcmp(row.data(), line.data(), kWidth) == 0, "and runs");
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(graph));
}

void refused(CUcontext context) {
  Array a;
  e2e::Buffer<unsigned char> linear(kBytes);
  CUgraph graph = nullptr;
  CHECK_CU(cuGraphCreate(&graph, 0));
  CUgraphNode node = nullptr;
  const CUDA_MEMCPY3D beyond = to_array(from_device(whole(), linear.address), a, 1, 0);
  e2e::expect_result("a box beyond the array",
                     cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &beyond, context),
                     CUDA_ERROR_INVALID_VALUE);
  node = add(graph, context, to_array(from_device(whole(), linear.address), a), nullptr);
  CUgraphExec exec = nullptr;
  CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  const CUDA_MEMCPY3D other = to_device(from_device(whole(), linear.address), linear.address);
  e2e::expect(cuGraphExecMemcpyNodeSetParams(exec, node, &other, context) != CUDA_SUCCESS,
              "an array can't become an address");
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(graph));
}

}  // namespace

int main() {
  {
    e2e::Session session;
    CUstream stream = nullptr;
    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    nodes(session.context, stream);
    captured(stream);
    refused(session.context);
    CHECK_CU(cuStreamDestroy_v2(stream));
  }
  return e2e::finish();
}
