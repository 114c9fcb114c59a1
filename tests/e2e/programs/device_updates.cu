// SPDX-License-Identifier: Apache-2.0
// Kernels that change kernel nodes of graphs: parameters, grids, and whether the nodes run at all,
// later in the same launch and in the next ones. `refused`: invalid changes, with which a GPU may
// read invalid memory. Run by run_e2e.py.
// usage: device_updates [refused]
#include <cstring>

#include "e2e.h"

namespace {

constexpr int kBlocks = 8;

struct Board {
  int blocks[kBlocks];  // the value that each block of the node wrote
  int other;
  int errors[4];
};

// The changes that the kernel `change` makes to nodes.
struct Change {
  bool set_value, set_grid, set_enabled, in_one_call;
  int value;
  unsigned grid;
  bool enabled;
};

}  // namespace

__global__ void write(Board* board, int value) { board->blocks[blockIdx.x] = value; }
__global__ void write_other(Board* board, int value) { board->other = value; }

constexpr size_t kValueOffset =
    sizeof(Board*);  // the offset of `value` in both kernels' parameters

__global__ void change(cudaGraphDeviceNode_t node, const Change* wanted, Board* board) {
  const Change& c = *wanted;
  if (!c.in_one_call) {
    if (c.set_value) board->errors[0] = cudaGraphKernelNodeSetParam(node, kValueOffset, c.value);
    if (c.set_grid) board->errors[1] = cudaGraphKernelNodeSetGridDim(node, dim3(c.grid));
    if (c.set_enabled) board->errors[2] = cudaGraphKernelNodeSetEnabled(node, c.enabled);
    return;
  }
  alignas(cudaGraphKernelNodeUpdate) char room[3 * sizeof(cudaGraphKernelNodeUpdate)];
  auto* updates = reinterpret_cast<cudaGraphKernelNodeUpdate*>(room);
  for (int i = 0; i < 3; i++) updates[i].node = node;
  updates[0].field = cudaGraphKernelNodeFieldParam;
  updates[0].updateData.param.pValue = &wanted->value;
  updates[0].updateData.param.offset = kValueOffset;
  updates[0].updateData.param.size = sizeof c.value;
  updates[1].field = cudaGraphKernelNodeFieldGridDim;
  updates[1].updateData.gridDim = dim3(c.grid);
  updates[2].field = cudaGraphKernelNodeFieldEnabled;
  updates[2].updateData.isEnabled = c.enabled;
  board->errors[3] = cudaGraphKernelNodeUpdatesApply(updates, 3);
}

__global__ void wrong(cudaGraphDeviceNode_t node, Board* board) {
  board->errors[0] = cudaGraphKernelNodeSetParam(node, kValueOffset + 1, 7);
  board->errors[1] = cudaGraphKernelNodeSetGridDim(node, dim3(0));
  board->errors[2] = cudaGraphKernelNodeSetEnabled(nullptr, false);
  alignas(cudaGraphKernelNodeUpdate) char room[sizeof(cudaGraphKernelNodeUpdate)];
  auto* update = reinterpret_cast<cudaGraphKernelNodeUpdate*>(room);
  update->node = node;
  update->field = static_cast<cudaGraphKernelNodeField>(9);
  board->errors[3] = cudaGraphKernelNodeUpdatesApply(update, 1);
}

namespace {

Board* board = nullptr;
Change* wanted = nullptr;
cudaStream_t stream = nullptr;

cudaKernelNodeAttrValue updatable(int to) {
  cudaKernelNodeAttrValue value;
  memset(&value, 0, sizeof value);
  value.deviceUpdatableKernelNode.deviceUpdatable = to;
  return value;
}

cudaGraphNode_t add(cudaGraph_t graph, cudaGraphNode_t after, void (*kernel)(Board*, int),
                    int value) {
  void* arguments[] = {&board, &value};
  cudaKernelNodeParams params = {};
  params.func = reinterpret_cast<void*>(kernel);
  params.gridDim = params.blockDim = dim3(1);
  params.kernelParams = arguments;
  cudaGraphNode_t node = nullptr;
  CHECK_CUDA(cudaGraphAddKernelNode(&node, graph, &after, after == nullptr ? 0 : 1, &params));
  return node;
}

// A graph of three nodes in a row: change -> write(1), the node that is changed -> write_other(5).
struct Chain {
  cudaGraph_t graph = nullptr;
  cudaGraphNode_t changed = nullptr, changer = nullptr;
  cudaGraphDeviceNode_t handle = nullptr;
  cudaGraphExec_t exec = nullptr;

  explicit Chain(bool instantiated = true) {
    CHECK_CUDA(cudaGraphCreate(&graph, 0));
    changed = add(graph, nullptr, write, 1);
    cudaKernelNodeAttrValue value = updatable(1);
    CHECK_CUDA(cudaGraphKernelNodeSetAttribute(
        changed, cudaLaunchAttributeDeviceUpdatableKernelNode, &value));
    handle = value.deviceUpdatableKernelNode.devNode;
    void* arguments[] = {&handle, &wanted, &board};
    cudaKernelNodeParams params = {};
    params.func = reinterpret_cast<void*>(change);
    params.gridDim = params.blockDim = dim3(1);
    params.kernelParams = arguments;
    CHECK_CUDA(cudaGraphAddKernelNode(&changer, graph, nullptr, 0, &params));
    CHECK_CUDA(cudaGraphAddDependencies(graph, &changer, &changed, nullptr, 1));
    add(graph, changed, write_other, 5);
    if (!instantiated) return;
    CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CHECK_CUDA(cudaGraphUpload(exec, stream));
  }
  Chain(const Chain&) = delete;
  ~Chain() {
    if (exec != nullptr) CHECK_CUDA(cudaGraphExecDestroy(exec));
    CHECK_CUDA(cudaGraphDestroy(graph));
  }
  Board run(const Change& asked) const {
    CHECK_CUDA(cudaMemsetAsync(board, 0, sizeof(Board), stream));
    CHECK_CUDA(cudaMemcpyAsync(wanted, &asked, sizeof asked, cudaMemcpyHostToDevice, stream));
    CHECK_CUDA(cudaGraphLaunch(exec, stream));
    Board seen;
    CHECK_CUDA(cudaMemcpyAsync(&seen, board, sizeof seen, cudaMemcpyDeviceToHost, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    return seen;
  }
};

// Whether the first `count` blocks wrote `value` and the others nothing, and the node behind ran.
bool wrote(const Board& seen, int count, int value) {
  bool right = seen.other == 5;
  for (int i = 0; i < kBlocks; i++) right &= seen.blocks[i] == (i < count ? value : 0);
  for (int error : seen.errors) right &= error == cudaSuccess;
  return right;
}

void changes() {
  const Chain chain;
  Change c = {};
  e2e::expect(wrote(chain.run(c), 1, 1), "nothing is changed");
  c.set_value = true;
  c.value = 42;
  e2e::expect(wrote(chain.run(c), 1, 42), "a parameter, within the launch");
  c.set_value = false;
  e2e::expect(wrote(chain.run(c), 1, 42), "it stays in the next one");
  c.set_grid = true;
  c.grid = 5;
  e2e::expect(wrote(chain.run(c), 5, 42), "a larger grid");
  c.grid = 2;
  e2e::expect(wrote(chain.run(c), 2, 42), "a smaller one");
  c.set_grid = false;
  c.set_enabled = true;
  c.enabled = false;
  e2e::expect(wrote(chain.run(c), 0, 0), "switched off");
  c.set_enabled = false;
  e2e::expect(wrote(chain.run(c), 0, 0), "it stays off");
  c.in_one_call = true;
  c.value = 9;
  c.grid = 3;
  c.enabled = true;
  e2e::expect(wrote(chain.run(c), 3, 9), "all of it in one call");
}

void captured() {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeDeviceUpdatableKernelNode;
  attribute.val = updatable(1);
  cudaLaunchConfig_t config = {};
  config.gridDim = config.blockDim = dim3(1);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  CHECK_CUDA(cudaLaunchKernelEx(&config, write, board, 3));
  CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  CHECK_CUDA(cudaGraphUpload(exec, stream));
  Change c = {};
  c.set_value = true;
  c.value = 77;
  CHECK_CUDA(cudaMemsetAsync(board, 0, sizeof(Board), stream));
  CHECK_CUDA(cudaMemcpyAsync(wanted, &c, sizeof c, cudaMemcpyHostToDevice, stream));
  change<<<1, 1, 0, stream>>>(attribute.val.deviceUpdatableKernelNode.devNode, wanted, board);
  CHECK_CUDA(cudaGetLastError());
  CHECK_CUDA(cudaGraphLaunch(exec, stream));
  Board seen;
  CHECK_CUDA(cudaMemcpyAsync(&seen, board, sizeof seen, cudaMemcpyDeviceToHost, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  e2e::expect(seen.blocks[0] == 77 && seen.errors[0] == cudaSuccess,
              "a captured node, by a kernel of no graph");
  CHECK_CUDA(cudaGraphExecDestroy(exec));
  CHECK_CUDA(cudaGraphDestroy(graph));
}

bool fails(cudaError_t result) {
  static_cast<void>(cudaGetLastError());
  return result != cudaSuccess;
}

void rules() {
  const Chain chain;
  cudaKernelNodeAttrValue value = {};
  CHECK_CUDA(cudaGraphKernelNodeGetAttribute(chain.changed,
                                             cudaLaunchAttributeDeviceUpdatableKernelNode, &value));
  e2e::expect(value.deviceUpdatableKernelNode.deviceUpdatable == 1 &&
                  value.deviceUpdatableKernelNode.devNode == chain.handle,
              "the attribute can be read");
  value = updatable(0);
  e2e::expect(fails(cudaGraphKernelNodeSetAttribute(
                  chain.changed, cudaLaunchAttributeDeviceUpdatableKernelNode, &value)),
              "and not taken back");
  cudaGraphExec_t second = nullptr;
  e2e::expect(fails(cudaGraphInstantiate(&second, chain.graph, 0)), "one executable graph");
  e2e::expect(fails(cudaGraphDestroyNode(chain.changed)), "the node stays");
  cudaGraphExecUpdateResultInfo info = {};
  e2e::expect(fails(cudaGraphExecUpdate(chain.exec, chain.graph, &info)),
              "the executable graph is not updated as a whole");
}

void refused() {
  const Chain chain;
  wrong<<<1, 1, 0, stream>>>(chain.handle, board);
  CHECK_CUDA(cudaGetLastError());
  Board seen;
  CHECK_CUDA(cudaMemcpyAsync(&seen, board, sizeof seen, cudaMemcpyDeviceToHost, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  const char* what[] = {"a parameter that is not", "an empty grid", "no node", "no such field"};
  for (int i = 0; i < 4; i++) {
    e2e::expect(seen.errors[i] == cudaErrorInvalidValue, "%s: cudaErrorInvalidValue", what[i]);
  }
  e2e::expect(wrote(chain.run({}), 1, 1), "nothing has changed");
  const Chain graph_only(false);
  CHECK_CUDA(cudaMemsetAsync(board, 0, sizeof(Board), stream));
  Change c = {};
  c.set_enabled = true;
  CHECK_CUDA(cudaMemcpyAsync(wanted, &c, sizeof c, cudaMemcpyHostToDevice, stream));
  change<<<1, 1, 0, stream>>>(graph_only.handle, wanted, board);
  CHECK_CUDA(cudaMemcpyAsync(&seen, board, sizeof seen, cudaMemcpyDeviceToHost, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  e2e::expect(seen.errors[2] == cudaErrorInvalidValue,
              "a node of a graph that was not instantiated: cudaErrorInvalidValue");
}

}  // namespace

int main(int argc, char** argv) {
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK_CUDA(cudaMalloc(&board, sizeof(Board)));
  CHECK_CUDA(cudaMalloc(&wanted, sizeof(Change)));
  if (argc > 1 && strcmp(argv[1], "refused") == 0) {
    refused();
  } else {
    changes();
    captured();
    rules();
  }
  CHECK_CUDA(cudaFree(wanted));
  CHECK_CUDA(cudaFree(board));
  CHECK_CUDA(cudaStreamDestroy(stream));
  return e2e::finish();
}
