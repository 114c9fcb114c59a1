// SPDX-License-Identifier: Apache-2.0
// cuBLAS against the CPU: vectors, matrices, batches, half precision. Run by tests/gpu/run_gpu.py.
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "library_test.h"

using namespace library_test;

namespace {

constexpr int kM = 96, kN = 80, kK = 112;

cublasHandle_t handle() {
  static cublasHandle_t made = [] {
    cublasHandle_t fresh;
    CHECK(cublasCreate(&fresh));
    return fresh;
  }();
  return made;
}

template <typename T>
cudaDataType_t type_of();
template <>
cudaDataType_t type_of<__half>() {
  return CUDA_R_16F;
}
template <>
cudaDataType_t type_of<__nv_bfloat16>() {
  return CUDA_R_16BF;
}

void vectors() {
  const int count = 10007;
  const auto x = numbers<float>(count, 1), y = numbers<float>(count, 2);
  DeviceArray<float> dx(x), dy(y);
  const float factor = 2.5F;
  float dot = 0, norm = 0;
  int largest = 0;
  CHECK(cublasSaxpy(handle(), count, &factor, dx.get(), 1, dy.get(), 1));
  CHECK(cublasSdot(handle(), count, dx.get(), 1, dx.get(), 1, &dot));
  CHECK(cublasSnrm2(handle(), count, dx.get(), 1, &norm));
  CHECK(cublasIsamax(handle(), count, dx.get(), 1, &largest));
  std::vector<double> sum(count);
  double square = 0;
  int expected = 0;
  for (int i = 0; i < count; ++i) {
    sum[i] = 2.5 * x[i] + y[i];
    square += static_cast<double>(x[i]) * x[i];
    if (std::fabs(x[i]) > std::fabs(x[expected])) expected = i;
  }
  close(dy.host(), sum, 1e-5, "saxpy");
  close(std::vector<float>{dot, norm}, std::vector<double>{square, std::sqrt(square)}, 1e-4, "dot");
  if (largest != expected + 1) fail("isamax");
}

void sgemm() {
  const auto a = numbers<float>(kM * kK, 1), b = numbers<float>(kK * kN, 2);
  DeviceArray<float> da(a), db(b), dc(static_cast<std::size_t>(kM) * kN);
  const float one = 1, zero = 0;
  CHECK(cublasSgemm(handle(), CUBLAS_OP_N, CUBLAS_OP_N, kM, kN, kK, &one, da.get(), kM, db.get(),
                    kK, &zero, dc.get(), kM));
  close(dc.host(), product(a, b, kM, kN, kK), 1e-4, "sgemm");
  remember(dc.host());
}

void dgemm() {
  const auto a = numbers<double>(kM * kK, 1), b = numbers<double>(kK * kN, 2);
  DeviceArray<double> da(a), db(b), dc(static_cast<std::size_t>(kM) * kN);
  const double one = 1, zero = 0;
  CHECK(cublasDgemm(handle(), CUBLAS_OP_N, CUBLAS_OP_N, kM, kN, kK, &one, da.get(), kM, db.get(),
                    kK, &zero, dc.get(), kM));
  close(dc.host(), product(a, b, kM, kN, kK), 1e-12, "dgemm");
}

void sgemv() {
  const auto a = numbers<float>(kM * kK, 1), x = numbers<float>(kK, 2);
  DeviceArray<float> da(a), dx(x), dy(kM);
  const float one = 1, zero = 0;
  CHECK(cublasSgemv(handle(), CUBLAS_OP_N, kM, kK, &one, da.get(), kM, dx.get(), 1, &zero, dy.get(),
                    1));
  close(dy.host(), product(a, x, kM, 1, kK), 1e-4, "sgemv");
}

template <typename T>
void half_gemm() {
  const auto fa = numbers<float>(kM * kK, 1), fb = numbers<float>(kK * kN, 2);
  const std::vector<T> a(fa.begin(), fa.end()), b(fb.begin(), fb.end());
  DeviceArray<T> da(a), db(b);
  DeviceArray<float> dc(static_cast<std::size_t>(kM) * kN);
  const float one = 1, zero = 0;
  CHECK(cublasGemmEx(handle(), CUBLAS_OP_N, CUBLAS_OP_N, kM, kN, kK, &one, da.get(), type_of<T>(),
                     kM, db.get(), type_of<T>(), kK, &zero, dc.get(), CUDA_R_32F, kM,
                     CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  std::vector<float> ra(a.size()), rb(b.size());
  for (std::size_t i = 0; i < a.size(); ++i) ra[i] = static_cast<float>(a[i]);
  for (std::size_t i = 0; i < b.size(); ++i) rb[i] = static_cast<float>(b[i]);
  close(dc.host(), product(ra, rb, kM, kN, kK), 1e-3, "gemmEx");
  remember(dc.host());
}

void strided_batch() {
  const int batch = 5;
  const auto a = numbers<float>(kM * kK * batch, 1), b = numbers<float>(kK * kN * batch, 2);
  DeviceArray<float> da(a), db(b), dc(static_cast<std::size_t>(kM) * kN * batch);
  const float one = 1, zero = 0;
  CHECK(cublasSgemmStridedBatched(handle(), CUBLAS_OP_N, CUBLAS_OP_N, kM, kN, kK, &one, da.get(),
                                  kM, kM * kK, db.get(), kK, kK * kN, &zero, dc.get(), kM, kM * kN,
                                  batch));
  std::vector<double> want;
  for (int i = 0; i < batch; ++i) {
    const std::vector<float> left(a.begin() + i * kM * kK, a.begin() + (i + 1) * kM * kK);
    const std::vector<float> right(b.begin() + i * kK * kN, b.begin() + (i + 1) * kK * kN);
    const auto part = product(left, right, kM, kN, kK);
    want.insert(want.end(), part.begin(), part.end());
  }
  close(dc.host(), want, 1e-4, "strided batch");
}

void on_a_stream_with_device_scalars() {
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cublasSetStream(handle(), stream));
  CHECK(cublasSetPointerMode(handle(), CUBLAS_POINTER_MODE_DEVICE));
  const auto x = numbers<float>(1000, 3);
  DeviceArray<float> dx(x), factor(std::vector<float>{3.0F}), result(1);
  CHECK(cublasSscal(handle(), 1000, factor.get(), dx.get(), 1));
  CHECK(cublasSasum(handle(), 1000, dx.get(), 1, result.get()));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cublasSetPointerMode(handle(), CUBLAS_POINTER_MODE_HOST));
  CHECK(cublasSetStream(handle(), nullptr));
  CHECK(cudaStreamDestroy(stream));
  double sum = 0;
  for (const float number : x) sum += 3 * std::fabs(static_cast<double>(number));
  close(result.host(), std::vector<double>{sum}, 1e-4, "asum");
}

void triangular_solve() {
  const int n = 64;
  auto a = numbers<float>(n * n, 1);
  for (int i = 0; i < n; ++i) a[i + i * n] = 8.0F;
  const auto x = numbers<float>(n, 2);
  std::vector<float> b(n);  // b = U x, where U is the upper triangle of A
  for (int row = 0; row < n; ++row) {
    double sum = 0;
    for (int column = row; column < n; ++column) {
      sum += static_cast<double>(a[row + column * n]) * x[column];
    }
    b[row] = static_cast<float>(sum);
  }
  DeviceArray<float> da(a), db(b);
  const float one = 1;
  CHECK(cublasStrsm(handle(), CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_N,
                    CUBLAS_DIAG_NON_UNIT, n, 1, &one, da.get(), n, db.get(), n));
  close(db.host(), x, 1e-3, "trsm");
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv,
             {{"vectors", vectors},
              {"sgemm", sgemm},
              {"dgemm", dgemm},
              {"sgemv", sgemv},
              {"gemm_float16", half_gemm<__half>},
              {"gemm_bfloat16", half_gemm<__nv_bfloat16>},
              {"strided_batch", strided_batch},
              {"on_a_stream_with_device_scalars", on_a_stream_with_device_scalars},
              {"triangular_solve", triangular_solve}});
}
