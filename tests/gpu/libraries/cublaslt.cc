// SPDX-License-Identifier: Apache-2.0
// cuBLASLt against the CPU: products in float, half, bfloat16 and FP8 with the heuristic's first
// algorithm, and a bias in the epilogue. Run by tests/gpu/run_gpu.py.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "library_test.h"

using namespace library_test;

namespace {

constexpr int kM = 128, kN = 64, kK = 96;
constexpr std::size_t kWorkspace = 4 << 20;

template <typename T>
cudaDataType_t type_of();
template <>
cudaDataType_t type_of<float>() {
  return CUDA_R_32F;
}
template <>
cudaDataType_t type_of<__half>() {
  return CUDA_R_16F;
}
template <>
cudaDataType_t type_of<__nv_bfloat16>() {
  return CUDA_R_16BF;
}

template <>
cudaDataType_t type_of<__nv_fp8_e4m3>() {
  return CUDA_R_8F_E4M3;
}
template <>
cudaDataType_t type_of<__nv_fp8_e5m2>() {
  return CUDA_R_8F_E5M2;
}

cublasLtMatmulAlgo_t best_algorithm(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                    cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
  cublasLtMatmulPreference_t preference;
  CHECK(cublasLtMatmulPreferenceCreate(&preference));
  CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &kWorkspace, sizeof kWorkspace));
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  CHECK(
      cublasLtMatmulAlgoGetHeuristic(handle, operation, a, b, c, d, preference, 1, &found, &count));
  if (count == 0) fail("the heuristic found no algorithm");
  CHECK(cublasLtMatmulPreferenceDestroy(preference));
  return found.algo;
}

// C = A * B (+ bias), column-major, C in float.
template <typename T>
void multiply(bool with_bias) {
  const auto fa = numbers<float>(kM * kK, 1), fb = numbers<float>(kK * kN, 2),
             fbias = numbers<float>(kM, 3);
  const std::vector<T> a(fa.begin(), fa.end()), b(fb.begin(), fb.end());
  DeviceArray<T> da(a), db(b);
  DeviceArray<float> bias(fbias), dc(static_cast<std::size_t>(kM) * kN);
  DeviceArray<char> workspace(kWorkspace);

  cublasLtHandle_t handle;
  CHECK(cublasLtCreate(&handle));
  cublasLtMatmulDesc_t operation;
  CHECK(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  if (with_bias) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const float* pointer = bias.get();
    CHECK(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                         sizeof epilogue));
    CHECK(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &pointer,
                                         sizeof pointer));
  }
  cublasLtMatrixLayout_t layout_a, layout_b, layout_c;
  CHECK(cublasLtMatrixLayoutCreate(&layout_a, type_of<T>(), kM, kK, kM));
  CHECK(cublasLtMatrixLayoutCreate(&layout_b, type_of<T>(), kK, kN, kK));
  CHECK(cublasLtMatrixLayoutCreate(&layout_c, CUDA_R_32F, kM, kN, kM));
  const cublasLtMatmulAlgo_t algorithm =
      best_algorithm(handle, operation, layout_a, layout_b, layout_c, layout_c);
  const float one = 1, zero = 0;
  CHECK(cublasLtMatmul(handle, operation, &one, da.get(), layout_a, db.get(), layout_b, &zero,
                       dc.get(), layout_c, dc.get(), layout_c, &algorithm, workspace.get(),
                       kWorkspace, nullptr));
  CHECK(cudaDeviceSynchronize());

  std::vector<float> ra(a.size()), rb(b.size());
  for (std::size_t i = 0; i < a.size(); ++i) ra[i] = static_cast<float>(a[i]);
  for (std::size_t i = 0; i < b.size(); ++i) rb[i] = static_cast<float>(b[i]);
  auto want = product(ra, rb, kM, kN, kK);
  for (std::size_t i = 0; with_bias && i < want.size(); ++i) want[i] += fbias[i % kM];
  close(dc.host(), want, 1e-3, "matmul");
  remember(dc.host());
  for (auto layout : {layout_a, layout_b, layout_c}) CHECK(cublasLtMatrixLayoutDestroy(layout));
  CHECK(cublasLtMatmulDescDestroy(operation));
  CHECK(cublasLtDestroy(handle));
}

// D = scale of A * scale of B * A^T * B, in FP8. Devices take the first factor transposed only.
// An element of D is off by at most one part in `precision` from its type, by 1e-3 from the sums.
template <typename A, typename B, typename D>
void multiply_fp8(double precision) {
  int major = 0, minor = 0;
  CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
  if (major * 10 + minor < 89) return;  // no FP8
  const auto fa = numbers<float>(kK * kM, 4), fb = numbers<float>(kK * kN, 5);
  const std::vector<A> a(fa.begin(), fa.end());
  const std::vector<B> b(fb.begin(), fb.end());
  DeviceArray<A> da(a);
  DeviceArray<B> db(b);
  DeviceArray<__nv_bfloat16> dc(static_cast<std::size_t>(kM) * kN);
  DeviceArray<D> dd(static_cast<std::size_t>(kM) * kN);
  DeviceArray<char> workspace(kWorkspace);
  const float scale_a = 2, scale_b = 0.25;
  DeviceArray<float> scales(std::vector<float>{scale_a, scale_b});

  cublasLtHandle_t handle;
  CHECK(cublasLtCreate(&handle));
  cublasLtMatmulDesc_t operation;
  CHECK(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
    CHECK(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value));
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales.get());
  set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales.get() + 1);
  cublasLtMatrixLayout_t layout_a, layout_b, layout_c, layout_d;
  CHECK(cublasLtMatrixLayoutCreate(&layout_a, type_of<A>(), kK, kM, kK));
  CHECK(cublasLtMatrixLayoutCreate(&layout_b, type_of<B>(), kK, kN, kK));
  CHECK(cublasLtMatrixLayoutCreate(&layout_c, CUDA_R_16BF, kM, kN, kM));
  CHECK(cublasLtMatrixLayoutCreate(&layout_d, type_of<D>(), kM, kN, kM));
  const cublasLtMatrixLayout_t of_c = sizeof(D) == 4 ? layout_d : layout_c;  // of D's type
  const cublasLtMatmulAlgo_t algorithm =
      best_algorithm(handle, operation, layout_a, layout_b, of_c, layout_d);
  const float one = 1, zero = 0;
  const void* c = sizeof(D) == 4 ? static_cast<const void*>(dd.get()) : dc.get();
  CHECK(cublasLtMatmul(handle, operation, &one, da.get(), layout_a, db.get(), layout_b, &zero, c,
                       of_c, dd.get(), layout_d, &algorithm, workspace.get(), kWorkspace, nullptr));
  CHECK(cudaDeviceSynchronize());

  std::vector<float> ra(a.size()), rb(b.size());
  for (int i = 0; i < kM * kK; ++i) ra[i % kK * kM + i / kK] = static_cast<float>(a[i]);
  for (std::size_t i = 0; i < b.size(); ++i) rb[i] = static_cast<float>(b[i]);
  auto want = product(ra, rb, kM, kN, kK);
  for (double& element : want) element *= scale_a * scale_b;
  std::vector<float> got;
  for (const D& element : dd.host()) got.push_back(static_cast<float>(element));
  close(got, want, 1e-3 + precision, "matmul");
  remember(got);
  for (auto layout : {layout_a, layout_b, layout_c, layout_d}) {
    CHECK(cublasLtMatrixLayoutDestroy(layout));
  }
  CHECK(cublasLtMatmulDescDestroy(operation));
  CHECK(cublasLtDestroy(handle));
}

}  // namespace

int main(int argc, char** argv) {
  return run(
      argc, argv,
      {{"float32", [] { multiply<float>(false); }},
       {"float16", [] { multiply<__half>(false); }},
       {"bfloat16", [] { multiply<__nv_bfloat16>(false); }},
       {"float32_bias", [] { multiply<float>(true); }},
       {"fp8_float32", [] { multiply_fp8<__nv_fp8_e4m3, __nv_fp8_e4m3, float>(0); }},
       {"fp8_bfloat16",
        [] { multiply_fp8<__nv_fp8_e4m3, __nv_fp8_e4m3, __nv_bfloat16>(1.0 / 256); }},
       {"fp8_mixed", [] { multiply_fp8<__nv_fp8_e4m3, __nv_fp8_e5m2, __nv_bfloat16>(1.0 / 256); }},
       {"fp8_fp8", [] { multiply_fp8<__nv_fp8_e4m3, __nv_fp8_e4m3, __nv_fp8_e4m3>(1.0 / 16); }},
       {"create_and_destroy", [] {
          for (int i = 0; i < 10; ++i) {
            cublasLtHandle_t handle;
            CHECK(cublasLtCreate(&handle));
            CHECK(cublasLtDestroy(handle));
          }
        }}});
}
