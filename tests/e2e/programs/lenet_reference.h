// SPDX-License-Identifier: Apache-2.0
// What lenet.cc trains, and on what: the layers of LeNet for pictures of CIFAR-10's shape,
// synthetic pictures of ten classes, and one step of training on the CPU, in double precision, by
// loops that follow the definitions. No CUDA. Included by lenet.cc only; main thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <vector>

namespace lenet {

// CIFAR-10: 32 x 32 pixels of three colours, ten classes.
constexpr int kColours = 3, kSide = 32, kClasses = 10;
constexpr int kPixels = kColours * kSide * kSide;
constexpr int kBatch = 32;

// Convolutions have 5 x 5 filters, step 1 and no padding; pooling takes the largest of 2 x 2.
constexpr int kFilter = 5, kPool = 2;
enum class Kind { kConvolution, kRelu, kMaxPool, kDense };
struct Layer {
  Kind kind;
  int outputs;  // channels; of convolutions and dense layers
};
constexpr Layer kLayers[] = {{Kind::kConvolution, 6},  {Kind::kRelu, 0},        {Kind::kMaxPool, 0},
                             {Kind::kConvolution, 16}, {Kind::kRelu, 0},        {Kind::kMaxPool, 0},
                             {Kind::kDense, 120},      {Kind::kRelu, 0},        {Kind::kDense, 84},
                             {Kind::kRelu, 0},         {Kind::kDense, kClasses}};

// What a layer gives for one picture: channels of side x side numbers.
struct Shape {
  int channels, side;
  int size() const { return channels * side * side; }
};
constexpr Shape kPicture = {kColours, kSide};

inline Shape output_shape(const Layer& layer, Shape input) {
  switch (layer.kind) {
    case Kind::kConvolution: return {layer.outputs, input.side - kFilter + 1};
    case Kind::kMaxPool: return {input.channels, input.side / kPool};
    case Kind::kDense: return {layer.outputs, 1};
    case Kind::kRelu: break;
  }
  return input;
}

// Weights of one output of the layer; 0 for a layer without parameters. All parameters lie in one
// array, layer after layer: the weights of each output, then the biases.
inline int weights_of_output(const Layer& layer, Shape input) {
  if (layer.kind == Kind::kConvolution) return input.channels * kFilter * kFilter;
  return layer.kind == Kind::kDense ? input.size() : 0;
}
inline int parameters_of(const Layer& layer, Shape input) {
  const int weights = weights_of_output(layer, input);
  return weights == 0 ? 0 : layer.outputs * (weights + 1);
}

// splitmix64, in [-1, 1).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  float number() { return static_cast<float>(next() >> 40) / 8388608.0f - 1.0f; }  // 24 bits

 private:
  uint64_t state_;
};

// Uniform with variance 2 / (weights of an output) for layers before a ReLU (He et al. 2015), the
// biases, too.
inline std::vector<float> first_parameters(uint64_t seed) {
  Random random(seed);
  std::vector<float> made;
  Shape shape = kPicture;
  for (const Layer& layer : kLayers) {
    const int count = parameters_of(layer, shape);
    const float bound =
        std::sqrt(6.0f / static_cast<float>(std::max(1, weights_of_output(layer, shape))));
    for (int i = 0; i < count; i++) made.push_back(bound * random.number());
    shape = output_shape(layer, shape);
  }
  return made;
}

struct Pictures {
  std::vector<float> pixels;  // pictures x colours x rows x columns
  std::vector<int> labels;
};

// Pictures of each class are one pattern of 8 x 8 squares, the same for every `seed`, under noise
// of the same strength.
inline Pictures make_pictures(int count, uint64_t seed) {
  constexpr int kSquare = 4, kSquares = kSide / kSquare;
  std::vector<float> patterns(kClasses * kColours * kSquares * kSquares);
  Random fixed(10);
  for (float& number : patterns) number = fixed.number();
  Pictures made;
  Random random(seed);
  for (int picture = 0; picture < count; picture++) {
    const int label = static_cast<int>(random.next() % kClasses);
    made.labels.push_back(label);
    for (int colour = 0; colour < kColours; colour++) {
      for (int y = 0; y < kSide; y++) {
        for (int x = 0; x < kSide; x++) {
          const int row = (label * kColours + colour) * kSquares + y / kSquare;
          made.pixels.push_back(patterns[row * kSquares + x / kSquare] + random.number());
        }
      }
    }
  }
  return made;
}

// The CPU's network, for batches of kBatch pictures.
class Reference {
 public:
  explicit Reference(const std::vector<float>& parameters)
      : parameters_(parameters.begin(), parameters.end()) {}

  // One step of gradient descent; returns the mean loss (cross entropy) before it.
  double train(const float* pixels, const int* labels, double rate) {
    std::vector<std::vector<double>> values = {{pixels, pixels + kBatch * kPixels}};
    std::vector<Shape> shapes = {kPicture};
    std::vector<int> offsets = {0};
    for (const Layer& layer : kLayers) {
      const Shape in = shapes.back(), out = output_shape(layer, in);
      std::vector<double> output(kBatch * out.size());
      walk(
          layer, in, out, offsets.back(),
          [&](int to, int from, int weight) {
            if (layer.kind == Kind::kRelu) {
              output[to] = std::max(0.0, values.back()[from]);
            } else if (layer.kind == Kind::kMaxPool) {
              output[to] = values.back()[from];
            } else {
              output[to] += (from < 0 ? 1 : values.back()[from]) * parameters_[weight];
            }
          },
          values.back());
      offsets.push_back(offsets.back() + parameters_of(layer, in));
      values.push_back(std::move(output));
      shapes.push_back(out);
    }
    double loss = 0;
    std::vector<double> slopes = softmax_slopes(values.back(), labels, &loss);
    std::vector<double> changes(parameters_.size());
    for (std::size_t i = std::size(kLayers); i-- > 0;) {
      std::vector<double> input_slopes(values[i].size());
      walk(
          kLayers[i], shapes[i], shapes[i + 1], offsets[i],
          [&](int to, int from, int weight) {
            if (kLayers[i].kind == Kind::kRelu) {
              input_slopes[from] = values[i][from] > 0 ? slopes[to] : 0;
            } else if (kLayers[i].kind == Kind::kMaxPool) {
              input_slopes[from] += slopes[to];
            } else {
              changes[weight] += slopes[to] * (from < 0 ? 1 : values[i][from]);
              if (from >= 0) input_slopes[from] += slopes[to] * parameters_[weight];
            }
          },
          values[i]);
      slopes = std::move(input_slopes);
    }
    for (std::size_t i = 0; i < parameters_.size(); i++) parameters_[i] -= rate * changes[i];
    return loss;
  }

 private:
  // Calls visit(output, input, parameter) for everything that an output is made of, by places in
  // the batch's arrays; input -1 is the constant 1, of the bias. Of a pool's inputs it visits the
  // largest.
  template <typename Visit>
  static void walk(const Layer& layer, Shape in, Shape out, int offset, const Visit& visit,
                   const std::vector<double>& inputs) {
    const int weights = weights_of_output(layer, in), biases = offset + layer.outputs * weights;
    for (int n = 0; n < kBatch; n++) {
      for (int c = 0; c < out.channels; c++) {
        for (int place = 0; place < out.side * out.side; place++) {
          const int to = n * out.size() + c * out.side * out.side + place;
          const int y = place / out.side, x = place % out.side;
          const int first = n * in.size();
          switch (layer.kind) {
            case Kind::kRelu: visit(to, to, 0); break;
            case Kind::kMaxPool:
              visit(
                  to,
                  largest(inputs, first + (c * in.side + y * kPool) * in.side + x * kPool, in.side),
                  0);
              break;
            case Kind::kDense:
              for (int i = 0; i < weights; i++) visit(to, first + i, offset + c * weights + i);
              visit(to, -1, biases + c);
              break;
            case Kind::kConvolution:
              for (int i = 0; i < weights; i++) {
                const int channel = i / (kFilter * kFilter), row = i / kFilter % kFilter,
                          column = i % kFilter;
                visit(to, first + (channel * in.side + y + row) * in.side + x + column,
                      offset + c * weights + i);
              }
              visit(to, -1, biases + c);
              break;
          }
        }
      }
    }
  }

  static int largest(const std::vector<double>& values, int corner, int side) {
    int best = corner;
    for (int i = 1; i < kPool * kPool; i++) {
      const int place = corner + i / kPool * side + i % kPool;
      if (values[place] > values[best]) best = place;
    }
    return best;
  }

  // The slopes of the mean loss with respect to the last layer's outputs.
  static std::vector<double> softmax_slopes(const std::vector<double>& outputs, const int* labels,
                                            double* loss) {
    std::vector<double> slopes(outputs.size());
    for (int n = 0; n < kBatch; n++) {
      const double* row = &outputs[n * kClasses];
      const double top = *std::max_element(row, row + kClasses);
      double sum = 0;
      for (int c = 0; c < kClasses; c++) sum += std::exp(row[c] - top);
      *loss += (std::log(sum) + top - row[labels[n]]) / kBatch;
      for (int c = 0; c < kClasses; c++) {
        slopes[n * kClasses + c] = (std::exp(row[c] - top) / sum - (c == labels[n])) / kBatch;
      }
    }
    return slopes;
  }

  std::vector<double> parameters_;
};

}  // namespace lenet
