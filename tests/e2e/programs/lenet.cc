// SPDX-License-Identifier: Apache-2.0
// LeNet on pictures of CIFAR-10's shape, trained by gradient descent with cuDNN's and cuBLAS's
// kernels alone: what a program of their users does, without a framework. It checks itself: the
// losses of the first steps equal those of the CPU, the loss falls, and most pictures that it was
// not trained with are told apart. All algorithms are deterministic, so `bits` is the same in every
// run on one kind of device. Run by run_e2e.py. usage: lenet [STEPS]
#include <cublas_v2.h>
#include <cudnn.h>

#include <memory>
#include <string>

#include "e2e.h"
#include "lenet_reference.h"

using namespace lenet;

namespace {

constexpr int kTrainingBatches = 20, kTestBatches = 2;
constexpr float kRate = 0.03f;
// Steps that the CPU takes, too, and how far their losses may be apart, relatively: float's sums of
// up to 25,000 products (a filter's slope) in another order differ by some 1e-6 of the slope;
// softgpu's were within 1.4e-7.
constexpr int kReferenceSteps = 8;
constexpr double kReferenceBound = 5e-6;
// In 20 steps the loss falls from 5.4 to about 0.1 on the CPU, too; knowing nothing gives log(10)
// = 2.3 and one of ten.
constexpr double kLastLoss = 0.5, kAccuracy = 0.8;
constexpr std::size_t kWorkspace = 16 << 20;

// cuDNN, cuBLAS and CUDA's run time all have 0 for success.
template <typename Status>
void check(Status status, const char* call) {
  if (static_cast<int>(status) == 0) return;
  printf("%s gave %d\n", call, static_cast<int>(status));
  exit(1);
}
#define CHECK(call) check((call), #call)

constexpr float kOne = 1, kZero = 0, kMinusOne = -1;

struct Libraries {
  cudnnHandle_t dnn;
  cublasHandle_t blas;
  void* workspace;
};

float* device_floats(std::size_t count) {
  float* made;
  CHECK(cudaMalloc(&made, count * sizeof(float)));
  return made;
}

// What is between two layers: a batch of values, and the slopes of the loss with respect to them.
struct Blob {
  explicit Blob(Shape of)
      : shape(of),
        values(device_floats(kBatch * of.size())),
        slopes(device_floats(kBatch * of.size())) {
    CHECK(cudnnCreateTensorDescriptor(&layout));
    CHECK(cudnnSetTensor4dDescriptor(layout, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, kBatch,
                                     of.channels, of.side, of.side));
  }
  ~Blob() {
    CHECK(cudnnDestroyTensorDescriptor(layout));
    CHECK(cudaFree(values));
    CHECK(cudaFree(slopes));
  }
  Blob(const Blob&) = delete;
  Blob& operator=(const Blob&) = delete;

  Shape shape;
  cudnnTensorDescriptor_t layout;
  float *values, *slopes;
};

class Step {
 public:
  Step(const Libraries& libraries, const Blob& in, const Blob& out)
      : libraries_(libraries), in_(in), out_(out) {}
  virtual ~Step() = default;
  virtual void forward() = 0;
  virtual void backward() = 0;

 protected:
  const Libraries& libraries_;
  const Blob &in_, &out_;
};

class Relu final : public Step {
 public:
  Relu(const Libraries& libraries, const Blob& in, const Blob& out) : Step(libraries, in, out) {
    CHECK(cudnnCreateActivationDescriptor(&relu_));
    CHECK(cudnnSetActivationDescriptor(relu_, CUDNN_ACTIVATION_RELU, CUDNN_NOT_PROPAGATE_NAN, 0));
  }
  ~Relu() override { CHECK(cudnnDestroyActivationDescriptor(relu_)); }
  void forward() override {
    CHECK(cudnnActivationForward(libraries_.dnn, relu_, &kOne, in_.layout, in_.values, &kZero,
                                 out_.layout, out_.values));
  }
  void backward() override {
    CHECK(cudnnActivationBackward(libraries_.dnn, relu_, &kOne, out_.layout, out_.values,
                                  out_.layout, out_.slopes, in_.layout, in_.values, &kZero,
                                  in_.layout, in_.slopes));
  }

 private:
  cudnnActivationDescriptor_t relu_;
};

class MaxPool final : public Step {
 public:
  MaxPool(const Libraries& libraries, const Blob& in, const Blob& out) : Step(libraries, in, out) {
    CHECK(cudnnCreatePoolingDescriptor(&pool_));
    CHECK(cudnnSetPooling2dDescriptor(pool_, CUDNN_POOLING_MAX_DETERMINISTIC,
                                      CUDNN_NOT_PROPAGATE_NAN, kPool, kPool, 0, 0, kPool, kPool));
  }
  ~MaxPool() override { CHECK(cudnnDestroyPoolingDescriptor(pool_)); }
  void forward() override {
    CHECK(cudnnPoolingForward(libraries_.dnn, pool_, &kOne, in_.layout, in_.values, &kZero,
                              out_.layout, out_.values));
  }
  void backward() override {
    CHECK(cudnnPoolingBackward(libraries_.dnn, pool_, &kOne, out_.layout, out_.values, out_.layout,
                               out_.slopes, in_.layout, in_.values, &kZero, in_.layout,
                               in_.slopes));
  }

 private:
  cudnnPoolingDescriptor_t pool_;
};

// A layer with weights and biases, and the slopes of the loss with respect to them.
class Trained : public Step {
 public:
  Trained(const Libraries& libraries, const Blob& in, const Blob& out, const Layer& layer,
          float* parameters, float* slopes)
      : Step(libraries, in, out), weights_(parameters), weight_slopes_(slopes) {
    const int weights = layer.outputs * weights_of_output(layer, in.shape);
    biases_ = parameters + weights;
    bias_slopes_ = slopes + weights;
    CHECK(cudnnCreateTensorDescriptor(&bias_layout_));
    CHECK(cudnnSetTensor4dDescriptor(bias_layout_, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1,
                                     layer.outputs, 1, 1));
  }
  ~Trained() override { CHECK(cudnnDestroyTensorDescriptor(bias_layout_)); }

 protected:
  void add_biases() {
    CHECK(cudnnAddTensor(libraries_.dnn, &kOne, bias_layout_, biases_, &kOne, out_.layout,
                         out_.values));
  }
  void find_bias_slopes() {
    CHECK(cudnnConvolutionBackwardBias(libraries_.dnn, &kOne, out_.layout, out_.slopes, &kZero,
                                       bias_layout_, bias_slopes_));
  }

  float *weights_, *weight_slopes_;

 private:
  float *biases_, *bias_slopes_;
  cudnnTensorDescriptor_t bias_layout_;
};

class Convolution final : public Trained {
 public:
  Convolution(const Libraries& libraries, const Blob& in, const Blob& out, const Layer& layer,
              float* parameters, float* slopes)
      : Trained(libraries, in, out, layer, parameters, slopes) {
    CHECK(cudnnCreateFilterDescriptor(&filters_));
    CHECK(cudnnSetFilter4dDescriptor(filters_, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, layer.outputs,
                                     in.shape.channels, kFilter, kFilter));
    CHECK(cudnnCreateConvolutionDescriptor(&convolution_));
    CHECK(cudnnSetConvolution2dDescriptor(convolution_, 0, 0, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                          CUDNN_DATA_FLOAT));
    CHECK(cudnnSetConvolutionMathType(convolution_, CUDNN_FMA_MATH));  // else TF32, with 10 bits
  }
  ~Convolution() override {
    CHECK(cudnnDestroyConvolutionDescriptor(convolution_));
    CHECK(cudnnDestroyFilterDescriptor(filters_));
  }
  void forward() override {
    CHECK(cudnnConvolutionForward(libraries_.dnn, &kOne, in_.layout, in_.values, filters_, weights_,
                                  convolution_, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
                                  libraries_.workspace, kWorkspace, &kZero, out_.layout,
                                  out_.values));
    add_biases();
  }
  // The algorithms 1 are deterministic, the algorithms 0 add with atomics.
  void backward() override {
    find_bias_slopes();
    CHECK(cudnnConvolutionBackwardFilter(libraries_.dnn, &kOne, in_.layout, in_.values, out_.layout,
                                         out_.slopes, convolution_,
                                         CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, libraries_.workspace,
                                         kWorkspace, &kZero, filters_, weight_slopes_));
    if (in_.shape.channels == kColours) return;  // nothing is before the first layer
    CHECK(cudnnConvolutionBackwardData(libraries_.dnn, &kOne, filters_, weights_, out_.layout,
                                       out_.slopes, convolution_, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1,
                                       libraries_.workspace, kWorkspace, &kZero, in_.layout,
                                       in_.slopes));
  }

 private:
  cudnnFilterDescriptor_t filters_;
  cudnnConvolutionDescriptor_t convolution_;
};

// Arrays are rows here, columns in cuBLAS: a batch is a matrix with a column for each picture.
class Dense final : public Trained {
 public:
  using Trained::Trained;
  void forward() override {
    const int in = in_.shape.size(), out = out_.shape.size();
    CHECK(cublasSgemm(libraries_.blas, CUBLAS_OP_T, CUBLAS_OP_N, out, kBatch, in, &kOne, weights_,
                      in, in_.values, in, &kZero, out_.values, out));
    add_biases();
  }
  void backward() override {
    const int in = in_.shape.size(), out = out_.shape.size();
    find_bias_slopes();
    CHECK(cublasSgemm(libraries_.blas, CUBLAS_OP_N, CUBLAS_OP_T, in, out, kBatch, &kOne, in_.values,
                      in, out_.slopes, out, &kZero, weight_slopes_, in));
    CHECK(cublasSgemm(libraries_.blas, CUBLAS_OP_N, CUBLAS_OP_N, in, kBatch, out, &kOne, weights_,
                      in, out_.slopes, out, &kZero, in_.slopes, in));
  }
};

class Network {
 public:
  Network(const Libraries& libraries, const std::vector<float>& parameters)
      : libraries_(libraries),
        count_(static_cast<int>(parameters.size())),
        parameters_(device_floats(count_)),
        slopes_(device_floats(count_)) {
    CHECK(cudaMemcpy(parameters_, parameters.data(), count_ * sizeof(float), cudaMemcpyDefault));
    blobs_.push_back(std::make_unique<Blob>(kPicture));
    int offset = 0;
    for (const Layer& layer : kLayers) {
      const Blob& in = *blobs_.back();
      blobs_.push_back(std::make_unique<Blob>(output_shape(layer, in.shape)));
      steps_.push_back(make_step(layer, in, *blobs_.back(), offset));
      offset += parameters_of(layer, in.shape);
    }
  }
  ~Network() {
    CHECK(cudaFree(parameters_));
    CHECK(cudaFree(slopes_));
  }
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // The probabilities of the classes, a row for each picture.
  std::vector<float> classify(const float* pixels) {
    CHECK(cudaMemcpy(blobs_.front()->values, pixels, kBatch * kPixels * sizeof(float),
                     cudaMemcpyDefault));
    for (const auto& step : steps_) step->forward();
    const Blob& last = *blobs_.back();
    CHECK(cudnnSoftmaxForward(libraries_.dnn, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_INSTANCE,
                              &kOne, last.layout, last.values, &kZero, last.layout, last.slopes));
    std::vector<float> rows(kBatch * kClasses);
    CHECK(cudaMemcpy(rows.data(), last.slopes, rows.size() * sizeof(float), cudaMemcpyDefault));
    return rows;
  }

  // One step of gradient descent; returns the mean loss before it.
  double train(const float* pixels, const int* labels) {
    const std::vector<float> rows = classify(pixels);
    double loss = 0;
    std::vector<float> wanted(rows.size());
    for (int n = 0; n < kBatch; n++) {
      loss -= std::log(static_cast<double>(rows[n * kClasses + labels[n]])) / kBatch;
      wanted[n * kClasses + labels[n]] = 1;
    }
    // The slopes of softmax's loss: (probability - 1 for the right class) / pictures.
    const Blob& last = *blobs_.back();
    const int outputs = static_cast<int>(wanted.size());
    const float share = 1.0f / kBatch, rate = -kRate;
    CHECK(cudaMemcpy(last.values, wanted.data(), outputs * sizeof(float), cudaMemcpyDefault));
    CHECK(cublasSaxpy(libraries_.blas, outputs, &kMinusOne, last.values, 1, last.slopes, 1));
    CHECK(cublasSscal(libraries_.blas, outputs, &share, last.slopes, 1));
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) (*step)->backward();
    CHECK(cublasSaxpy(libraries_.blas, count_, &rate, slopes_, 1, parameters_, 1));
    return loss;
  }

  std::vector<float> parameters() const {
    std::vector<float> copy(count_);
    CHECK(cudaMemcpy(copy.data(), parameters_, count_ * sizeof(float), cudaMemcpyDefault));
    return copy;
  }

 private:
  std::unique_ptr<Step> make_step(const Layer& layer, const Blob& in, const Blob& out, int offset) {
    float *parameters = parameters_ + offset, *slopes = slopes_ + offset;
    switch (layer.kind) {
      case Kind::kConvolution:
        return std::make_unique<Convolution>(libraries_, in, out, layer, parameters, slopes);
      case Kind::kDense:
        return std::make_unique<Dense>(libraries_, in, out, layer, parameters, slopes);
      case Kind::kMaxPool: return std::make_unique<MaxPool>(libraries_, in, out);
      case Kind::kRelu: break;
    }
    return std::make_unique<Relu>(libraries_, in, out);
  }

  const Libraries& libraries_;
  int count_;
  float *parameters_, *slopes_;
  std::vector<std::unique_ptr<Blob>> blobs_;
  std::vector<std::unique_ptr<Step>> steps_;
};

// The share of test pictures whose class has the highest probability.
double accuracy(Network& network) {
  const Pictures test = make_pictures(kTestBatches * kBatch, 3);
  int right = 0;
  for (int batch = 0; batch < kTestBatches; batch++) {
    const std::vector<float> rows = network.classify(&test.pixels[batch * kBatch * kPixels]);
    for (int n = 0; n < kBatch; n++) {
      const auto row = rows.begin() + n * kClasses;
      right += std::max_element(row, row + kClasses) - row == test.labels[batch * kBatch + n];
    }
  }
  return right / (double(kTestBatches) * kBatch);
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = static_cast<int>(e2e::argument(argc, argv, 1, kTrainingBatches));
  Libraries libraries{};
  CHECK(cudnnCreate(&libraries.dnn));
  CHECK(cublasCreate(&libraries.blas));
  CHECK(cudaMalloc(&libraries.workspace, kWorkspace));

  const Pictures pictures = make_pictures(kTrainingBatches * kBatch, 1);
  const std::vector<float> parameters = first_parameters(2);
  Reference reference(parameters);
  std::string wrong;
  double first = 0, last = 0, apart = 0, right = 0;
  uint64_t bits = 0;
  {
    Network network(libraries, parameters);
    for (int step = 0; step < steps; step++) {
      const int batch = step % kTrainingBatches;
      const float* pixels = &pictures.pixels[batch * kBatch * kPixels];
      const int* labels = &pictures.labels[batch * kBatch];
      last = network.train(pixels, labels);
      if (step == 0) first = last;
      if (step < kReferenceSteps) {
        const double wanted = reference.train(pixels, labels, kRate);
        apart = std::max(apart, std::fabs(last - wanted) / wanted);
      }
    }
    right = accuracy(network);
    const std::vector<float> trained = network.parameters();
    bits = e2e::hash(trained.data(), trained.size() * sizeof(float));
  }
  CHECK(cudaFree(libraries.workspace));
  CHECK(cublasDestroy(libraries.blas));
  CHECK(cudnnDestroy(libraries.dnn));

  if (!(apart <= kReferenceBound)) wrong += ", the first losses are not the CPU's";
  if (!(last < kLastLoss)) wrong += ", the loss is too high";
  if (!(right >= kAccuracy)) wrong += ", the accuracy is too low";
  printf("lenet steps=%d loss=%.4f..%.4f accuracy=%.3f apart=%.1e bits=%016llx %s%s\n", steps,
         first, last, right, apart, static_cast<unsigned long long>(bits),
         wrong.empty() ? "PASSED" : "FAILED", wrong.c_str());
  return wrong.empty() ? 0 : 1;
}
