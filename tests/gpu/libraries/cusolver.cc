// SPDX-License-Identifier: Apache-2.0
// cuSOLVER's dense solvers: LU, Cholesky, QR, eigenvalues, singular values. The results are checked
// by inserting them into the equations that they solve. Run by tests/gpu/run_gpu.py.
#include <cusolverDn.h>

#include "library_test.h"

using namespace library_test;

namespace {

constexpr int kN = 48;
constexpr double kTolerance = 1e-8;

cusolverDnHandle_t handle() {
  static cusolverDnHandle_t made = [] {
    cusolverDnHandle_t fresh;
    CHECK(cusolverDnCreate(&fresh));
    return fresh;
  }();
  return made;
}

// A matrix that is far from singular, column-major.
std::vector<double> matrix() {
  auto a = numbers<double>(kN * kN, 1);
  for (int i = 0; i < kN; ++i) a[i + i * kN] += kN;
  return a;
}

// A symmetric, positive definite matrix.
std::vector<double> symmetric() {
  auto a = matrix();
  for (int row = 0; row < kN; ++row) {
    for (int column = 0; column < row; ++column) a[row + column * kN] = a[column + row * kN];
  }
  return a;
}

void expect_success(const DeviceArray<int>& info) {
  if (info.host()[0] != 0) fail("info is " + std::to_string(info.host()[0]));
}

void lu() {
  const auto a = matrix(), x = numbers<double>(kN, 2);
  DeviceArray<double> da(a), db(product(a, x, kN, 1, kN));
  DeviceArray<int> pivots(kN), info(1);
  int size = 0;
  CHECK(cusolverDnDgetrf_bufferSize(handle(), kN, kN, da.get(), kN, &size));
  DeviceArray<double> work(size);
  CHECK(cusolverDnDgetrf(handle(), kN, kN, da.get(), kN, work.get(), pivots.get(), info.get()));
  expect_success(info);
  CHECK(cusolverDnDgetrs(handle(), CUBLAS_OP_N, kN, 1, da.get(), kN, pivots.get(), db.get(), kN,
                         info.get()));
  close(db.host(), x, kTolerance, "solution");
}

void cholesky() {
  const auto a = symmetric(), x = numbers<double>(kN, 2);
  DeviceArray<double> da(a), db(product(a, x, kN, 1, kN));
  DeviceArray<int> info(1);
  int size = 0;
  CHECK(cusolverDnDpotrf_bufferSize(handle(), CUBLAS_FILL_MODE_LOWER, kN, da.get(), kN, &size));
  DeviceArray<double> work(size);
  CHECK(cusolverDnDpotrf(handle(), CUBLAS_FILL_MODE_LOWER, kN, da.get(), kN, work.get(), size,
                         info.get()));
  expect_success(info);
  CHECK(cusolverDnDpotrs(handle(), CUBLAS_FILL_MODE_LOWER, kN, 1, da.get(), kN, db.get(), kN,
                         info.get()));
  close(db.host(), x, kTolerance, "solution");
}

// R of QR has the norms of A's columns: |R e_j| = |A e_j|.
void qr() {
  const auto a = matrix();
  DeviceArray<double> da(a), tau(kN);
  DeviceArray<int> info(1);
  int size = 0;
  CHECK(cusolverDnDgeqrf_bufferSize(handle(), kN, kN, da.get(), kN, &size));
  DeviceArray<double> work(size);
  CHECK(cusolverDnDgeqrf(handle(), kN, kN, da.get(), kN, tau.get(), work.get(), size, info.get()));
  expect_success(info);
  const auto r = da.host();
  std::vector<double> got(kN), want(kN);
  for (int column = 0; column < kN; ++column) {
    for (int row = 0; row < kN; ++row) want[column] += a[row + column * kN] * a[row + column * kN];
    for (int row = 0; row <= column; ++row) {
      got[column] += r[row + column * kN] * r[row + column * kN];
    }
  }
  close(got, want, kTolerance, "norms of columns");
}

// A v = lambda v for every pair.
void eigenvalues() {
  const auto a = symmetric();
  DeviceArray<double> da(a), values(kN);
  DeviceArray<int> info(1);
  int size = 0;
  CHECK(cusolverDnDsyevd_bufferSize(handle(), CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, kN,
                                    da.get(), kN, values.get(), &size));
  DeviceArray<double> work(size);
  CHECK(cusolverDnDsyevd(handle(), CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, kN, da.get(),
                         kN, values.get(), work.get(), size, info.get()));
  expect_success(info);
  const auto vectors = da.host();
  const auto lambda = values.host();
  auto scaled = vectors;
  for (int i = 0; i < kN * kN; ++i) scaled[i] *= lambda[i / kN];
  close(product(a, vectors, kN, kN, kN), scaled, kTolerance, "eigenvectors");
}

// U * S * V^T = A.
void singular_values() {
  const auto a = matrix();
  DeviceArray<double> da(a), s(kN), u(kN * kN), vt(kN * kN);
  DeviceArray<int> info(1);
  int size = 0;
  CHECK(cusolverDnDgesvd_bufferSize(handle(), kN, kN, &size));
  DeviceArray<double> work(size);
  CHECK(cusolverDnDgesvd(handle(), 'A', 'A', kN, kN, da.get(), kN, s.get(), u.get(), kN, vt.get(),
                         kN, work.get(), size, nullptr, info.get()));
  expect_success(info);
  auto left = u.host();
  const auto values = s.host();
  for (int i = 0; i < kN * kN; ++i) left[i] *= values[i / kN];
  close(product(left, vt.host(), kN, kN, kN), a, kTolerance, "U S V^T");
}

void create_on_a_stream() {
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  cusolverDnHandle_t other;
  CHECK(cusolverDnCreate(&other));
  CHECK(cusolverDnSetStream(other, stream));
  CHECK(cusolverDnDestroy(other));
  CHECK(cudaStreamDestroy(stream));
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv,
             {{"create_on_a_stream", create_on_a_stream},
              {"lu", lu},
              {"cholesky", cholesky},
              {"qr", qr},
              {"eigenvalues", eigenvalues},
              {"singular_values", singular_values}});
}
