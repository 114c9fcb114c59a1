// SPDX-License-Identifier: Apache-2.0
// cuDNN's graph (backend) API against the CPU: a convolution, and one with bias and ReLU, by every
// engine that the heuristics propose, those that are compiled at run time among them. Run by
// tests/gpu/run_gpu.py.
#include <cuda_fp16.h>
#include <cudnn.h>

#include <algorithm>
#include <utility>

#include "library_test.h"

using namespace library_test;

namespace {

constexpr int kPictures = 2, kIn = 16, kOut = 8, kSide = 12, kFilter = 3, kPadding = 1;

// A descriptor of the backend, whose attributes are set before it is finalized.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    CHECK(cudnnBackendCreateDescriptor(type, &handle_));
  }
  Descriptor(Descriptor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  ~Descriptor() {
    if (handle_ != nullptr) cudnnBackendDestroyDescriptor(handle_);
  }

  template <typename T>
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                  const std::vector<T>& values) {
    CHECK(cudnnBackendSetAttribute(handle_, name, type, static_cast<int64_t>(values.size()),
                                   values.data()));
    return *this;
  }
  Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& other) {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::vector{other.handle_});
  }
  Descriptor finalized() {
    CHECK(cudnnBackendFinalize(handle_));
    return std::move(*this);
  }
  cudnnBackendDescriptor_t get() const { return handle_; }

 private:
  cudnnBackendDescriptor_t handle_ = nullptr;
};

using Numbers = std::vector<int64_t>;

// Ids of the tensors in a graph.
enum Id : int64_t { kX = 1, kW, kBias, kY, kSum, kBiased };

// A tensor of four dimensions whose channels are neighbours (NHWC) or not (NCHW).
struct Tensor {
  Tensor(bool of_neighbours, int n, int c, int side)
      : dims{n, c, side, side},
        strides(of_neighbours ? Numbers{int64_t{c} * side * side, 1, int64_t{c} * side, c}
                              : Numbers{int64_t{c} * side * side, int64_t{side} * side, side, 1}) {}

  Descriptor describe(Id id, cudnnDataType_t type, bool is_virtual = false) const {
    Descriptor made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const bool flag = is_virtual;
    CHECK(cudnnBackendSetAttribute(made.get(), CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1,
                                   &flag));
    return made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{type})
        .set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, dims)
        .set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides)
        .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, Numbers{id})
        .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, Numbers{16})
        .finalized();
  }
  std::size_t size() const {
    return static_cast<std::size_t>(dims[0] * dims[1] * dims[2] * dims[3]);
  }
  std::size_t at(int n, int c, int y, int x) const {
    return static_cast<std::size_t>(n * strides[0] + c * strides[1] + y * strides[2] +
                                    x * strides[3]);
  }

  Numbers dims, strides;
};

Descriptor pointwise(cudnnPointwiseMode_t mode, const Descriptor& x, const Descriptor* b,
                     const Descriptor& y) {
  const Descriptor operation =
      Descriptor(CUDNN_BACKEND_POINTWISE_DESCRIPTOR)
          .set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, std::vector{mode})
          .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, std::vector{CUDNN_DATA_FLOAT})
          .finalized();
  Descriptor made(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  if (b != nullptr) made.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
  return made.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, operation)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y)
      .finalized();
}

Descriptor convolution(const Descriptor& x, const Descriptor& w, const Descriptor& y) {
  const Numbers padding = {kPadding, kPadding}, ones = {1, 1};
  const Descriptor operation =
      Descriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)
          .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, Numbers{2})
          .set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
               std::vector{CUDNN_DATA_FLOAT})
          .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
               std::vector{CUDNN_CROSS_CORRELATION})
          .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, padding)
          .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, padding)
          .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, ones)
          .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, ones)
          .finalized();
  return Descriptor(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, operation)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, std::vector{1.0f})
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, std::vector{0.0f})
      .finalized();
}

// The configurations of engines that cuDNN proposes, best first, and those that it falls back to.
// Not the latter for NCHW: one of cuDNN 9.19's (engine 71) then tells its kernel that input and
// filters are NHWC, without having converted them.
std::vector<Descriptor> proposed(const Descriptor& graph, bool of_neighbours) {
  std::vector<cudnnBackendHeurMode_t> modes = {CUDNN_HEUR_MODE_A};
  if (of_neighbours) modes.push_back(CUDNN_HEUR_MODE_FALLBACK);
  std::vector<Descriptor> all;
  for (const cudnnBackendHeurMode_t mode : modes) {
    const Descriptor heuristic =
        Descriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)
            .set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
            .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, std::vector{mode})
            .finalized();
    int64_t count = 0;
    CHECK(cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr));
    std::vector<cudnnBackendDescriptor_t> found;
    const std::size_t first = all.size();
    for (int64_t i = 0; i < count; ++i) {
      all.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
      found.push_back(all.back().get());
    }
    CHECK(cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count, found.data()));
    while (all.size() > first + static_cast<std::size_t>(count)) all.pop_back();
  }
  return all;
}

// The tensors and data of the convolution, and what it gives.
template <typename T>
struct Problem {
  Problem(bool of_neighbours, bool fused)
      : x_shape(of_neighbours, kPictures, kIn, kSide),
        w_shape(of_neighbours, kOut, kIn, kFilter),
        y_shape(of_neighbours, kPictures, kOut, kSide),
        bias_shape(of_neighbours, 1, kOut, 1),
        x(data(x_shape.size(), 1)),
        w(data(w_shape.size(), 2)),
        bias(data(kOut, 3)),
        want(y_shape.size()) {
    for (int n = 0; n < kPictures; ++n) {
      for (int k = 0; k < kOut; ++k) {
        for (int place = 0; place < kSide * kSide; ++place) {
          const int row = place / kSide, column = place % kSide;
          const double sum = sum_at(n, k, row, column);
          want[y_shape.at(n, k, row, column)] =
              fused ? std::max(0.0, sum + static_cast<float>(bias[k])) : sum;
        }
      }
    }
  }

  static std::vector<T> data(std::size_t count, std::uint64_t seed) {
    const std::vector<float> made = numbers<float>(count, seed);
    return std::vector<T>(made.begin(), made.end());
  }
  double sum_at(int n, int k, int row, int column) const {
    double sum = 0;
    for (int i = 0; i < kIn * kFilter * kFilter; ++i) {
      const int c = i / (kFilter * kFilter), r = i / kFilter % kFilter, s = i % kFilter;
      const int from_y = row + r - kPadding, from_x = column + s - kPadding;
      if (std::min(from_y, from_x) < 0 || std::max(from_y, from_x) >= kSide) continue;
      sum += static_cast<double>(static_cast<float>(x[x_shape.at(n, c, from_y, from_x)])) *
             static_cast<float>(w[w_shape.at(k, c, r, s)]);
    }
    return sum;
  }

  Tensor x_shape, w_shape, y_shape, bias_shape;
  std::vector<T> x, w, bias;
  std::vector<double> want;
};

// Runs the engine; false: it is not for this device or these tensors.
bool execute(cudnnHandle_t handle, const Descriptor& configuration, const Numbers& ids,
             const std::vector<void*>& data) {
  Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, std::vector{handle})
      .set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
  const cudnnStatus_t made = cudnnBackendFinalize(plan.get());
  if (made / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000) return false;
  check(made, "cudnnBackendFinalize of a plan");
  int64_t count = 0, bytes = 0;
  CHECK(cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                 CUDNN_TYPE_INT64, 1, &count, &bytes));
  DeviceArray<char> workspace(std::max<int64_t>(bytes, 1));
  const Descriptor pack = Descriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
                              .set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids)
                              .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, data)
                              .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR,
                                   std::vector<void*>{workspace.get()})
                              .finalized();
  CHECK(cudnnBackendExecute(handle, plan.get(), pack.get()));
  CHECK(cudaDeviceSynchronize());
  return true;
}

// The convolution, with bias and ReLU if `fused`, by each engine that is proposed.
template <typename T>
void convolve(cudnnDataType_t type, bool of_neighbours, bool fused, double tolerance) {
  const Problem<T> problem(of_neighbours, fused);
  const Descriptor x = problem.x_shape.describe(kX, type), w = problem.w_shape.describe(kW, type),
                   y = problem.y_shape.describe(kY, type),
                   bias = problem.bias_shape.describe(kBias, type),
                   sum = problem.y_shape.describe(kSum, CUDNN_DATA_FLOAT, true),
                   biased = problem.y_shape.describe(kBiased, CUDNN_DATA_FLOAT, true);
  std::vector<Descriptor> operations;
  operations.push_back(convolution(x, w, fused ? sum : y));
  if (fused) {
    operations.push_back(pointwise(CUDNN_POINTWISE_ADD, sum, &bias, biased));
    operations.push_back(pointwise(CUDNN_POINTWISE_RELU_FWD, biased, nullptr, y));
  }
  std::vector<cudnnBackendDescriptor_t> handles;
  for (const Descriptor& operation : operations) handles.push_back(operation.get());

  cudnnHandle_t handle;
  CHECK(cudnnCreate(&handle));
  {
    const Descriptor graph =
        Descriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
            .set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, std::vector{handle})
            .set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, handles)
            .finalized();
    DeviceArray<T> dx(problem.x), dw(problem.w), dbias(problem.bias), dy(problem.y_shape.size());
    Numbers ids = {kX, kW, kY};
    std::vector<void*> data = {dx.get(), dw.get(), dy.get()};
    if (fused) {
      ids.push_back(kBias);
      data.push_back(dbias.get());
    }
    int engines = 0;
    for (const Descriptor& configuration : proposed(graph, of_neighbours)) {
      CHECK(cudaMemset(dy.get(), 0xff, dy.bytes()));  // not a number
      if (!execute(handle, configuration, ids, data)) continue;
      std::vector<float> got;
      for (const T& element : dy.host()) got.push_back(static_cast<float>(element));
      close(got, problem.want, tolerance, "convolution");
      if (engines++ == 0) remember(got);
    }
    if (engines == 0) fail("no engine that is proposed can be had");
  }
  CHECK(cudnnDestroy(handle));
}

}  // namespace

// TF32 has 10 bits, half as many, of which the result has one rounding more.
int main(int argc, char** argv) {
  return run(
      argc, argv,
      {{"graph_float32_nchw", [] { convolve<float>(CUDNN_DATA_FLOAT, false, false, 1e-2); }},
       {"graph_float32_bias_relu", [] { convolve<float>(CUDNN_DATA_FLOAT, true, true, 1e-2); }},
       {"graph_float16", [] { convolve<__half>(CUDNN_DATA_HALF, true, false, 2e-3); }},
       {"graph_float16_bias_relu", [] { convolve<__half>(CUDNN_DATA_HALF, true, true, 2e-3); }}});
}
