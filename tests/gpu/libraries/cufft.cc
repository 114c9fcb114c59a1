// SPDX-License-Identifier: Apache-2.0
// cuFFT against a discrete Fourier transform by its definition on the CPU: powers of two, primes,
// real and double, two dimensions, batches. Run by tests/gpu/run_gpu.py.
#include <cufft.h>

#include <complex>

#include "library_test.h"

using namespace library_test;

namespace {

using Complex = std::complex<double>;

constexpr double kPi = 3.14159265358979323846;

// The discrete Fourier transform by its definition, in n^2 steps.
std::vector<Complex> transform(const std::vector<Complex>& x) {
  const std::size_t n = x.size();
  std::vector<Complex> y(n);
  for (std::size_t k = 0; k < n; ++k) {
    for (std::size_t i = 0; i < n; ++i) {
      y[k] += x[i] *
              std::polar(1.0, -2 * kPi * static_cast<double>(k * i % n) / static_cast<double>(n));
    }
  }
  return y;
}

template <typename T>
void compare(const std::vector<T>& got, const std::vector<Complex>& want, double tolerance) {
  std::vector<double> mine, reference;
  for (std::size_t i = 0; i < want.size(); ++i) {
    mine.insert(mine.end(), {got[i].x, got[i].y});
    reference.insert(reference.end(), {want[i].real(), want[i].imag()});
  }
  close(mine, reference, tolerance, "transform");
}

void complex_transform(int n) {
  const auto parts = numbers<float>(2 * n, 1);
  std::vector<cufftComplex> x(n);
  std::vector<Complex> reference(n);
  for (int i = 0; i < n; ++i) {
    x[i] = {parts[2 * i], parts[2 * i + 1]};
    reference[i] = {parts[2 * i], parts[2 * i + 1]};
  }
  DeviceArray<cufftComplex> data(x);
  cufftHandle plan;
  CHECK(cufftPlan1d(&plan, n, CUFFT_C2C, 1));
  CHECK(cufftExecC2C(plan, data.get(), data.get(), CUFFT_FORWARD));
  compare(data.host(), transform(reference), 1e-3);
  remember(data.host());
  CHECK(cufftExecC2C(plan, data.get(), data.get(), CUFFT_INVERSE));
  for (auto& number : reference) number *= n;
  compare(data.host(), reference, 1e-3);
  CHECK(cufftDestroy(plan));
}

void real_transform() {
  const int n = 500;
  const auto x = numbers<float>(n, 2);
  DeviceArray<float> input(x);
  DeviceArray<cufftComplex> output(n / 2 + 1);
  cufftHandle plan;
  CHECK(cufftPlan1d(&plan, n, CUFFT_R2C, 1));
  CHECK(cufftExecR2C(plan, input.get(), output.get()));
  auto want = transform({x.begin(), x.end()});
  want.resize(n / 2 + 1);
  compare(output.host(), want, 1e-3);
  CHECK(cufftDestroy(plan));
}

void double_precision() {
  const int n = 384;
  const auto x = numbers<double>(n, 3);
  std::vector<cufftDoubleComplex> host(n);
  for (int i = 0; i < n; ++i) host[i] = {x[i], 0};
  DeviceArray<cufftDoubleComplex> data(host);
  cufftHandle plan;
  CHECK(cufftPlan1d(&plan, n, CUFFT_Z2Z, 1));
  CHECK(cufftExecZ2Z(plan, data.get(), data.get(), CUFFT_FORWARD));
  compare(data.host(), transform({x.begin(), x.end()}), 1e-10);
  CHECK(cufftDestroy(plan));
}

// Two dimensions: the reference transforms rows, then columns.
void plane() {
  const int rows = 20, columns = 24;
  const auto x = numbers<float>(rows * columns, 4);
  std::vector<cufftComplex> host(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) host[i] = {x[i], 0};
  DeviceArray<cufftComplex> data(host);
  cufftHandle plan;
  CHECK(cufftPlan2d(&plan, rows, columns, CUFFT_C2C));
  CHECK(cufftExecC2C(plan, data.get(), data.get(), CUFFT_FORWARD));
  std::vector<Complex> want(x.size());
  for (int row = 0; row < rows; ++row) {
    const auto line = transform({x.begin() + row * columns, x.begin() + (row + 1) * columns});
    for (int column = 0; column < columns; ++column) want[row * columns + column] = line[column];
  }
  for (int column = 0; column < columns; ++column) {
    std::vector<Complex> line(rows);
    for (int row = 0; row < rows; ++row) line[row] = want[row * columns + column];
    line = transform(line);
    for (int row = 0; row < rows; ++row) want[row * columns + column] = line[row];
  }
  compare(data.host(), want, 1e-3);
  CHECK(cufftDestroy(plan));
}

void batch_on_a_stream() {
  const int n = 64, batch = 100;
  const auto x = numbers<float>(n * batch, 5);
  std::vector<cufftComplex> host(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) host[i] = {x[i], 0};
  DeviceArray<cufftComplex> data(host);
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  cufftHandle plan;
  CHECK(cufftPlan1d(&plan, n, CUFFT_C2C, batch));
  CHECK(cufftSetStream(plan, stream));
  CHECK(cufftExecC2C(plan, data.get(), data.get(), CUFFT_FORWARD));
  CHECK(cudaStreamSynchronize(stream));
  std::vector<Complex> want;
  for (int i = 0; i < batch; ++i) {
    const auto line = transform({x.begin() + i * n, x.begin() + (i + 1) * n});
    want.insert(want.end(), line.begin(), line.end());
  }
  compare(data.host(), want, 1e-3);
  CHECK(cufftDestroy(plan));
  CHECK(cudaStreamDestroy(stream));
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv,
             {{"power_of_two", [] { complex_transform(1024); }},
              {"composite", [] { complex_transform(360); }},
              {"prime", [] { complex_transform(1009); }},
              {"real", real_transform},
              {"double_precision", double_precision},
              {"plane", plane},
              {"batch_on_a_stream", batch_on_a_stream}});
}
