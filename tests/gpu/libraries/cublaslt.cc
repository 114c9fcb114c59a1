// SPDX-License-Identifier: Apache-2.0
// cuBLASLt against the CPU: products in float, half and bfloat16 with the heuristic's first
// algorithm, and a bias in the epilogue. Run by tests/gpu/run_gpu.py.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

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
  cublasLtMatmulPreference_t preference;
  CHECK(cublasLtMatmulPreferenceCreate(&preference));
  CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &kWorkspace, sizeof kWorkspace));
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  CHECK(cublasLtMatmulAlgoGetHeuristic(handle, operation, layout_a, layout_b, layout_c, layout_c,
                                       preference, 1, &found, &count));
  if (count == 0) fail("the heuristic found no algorithm");
  const float one = 1, zero = 0;
  CHECK(cublasLtMatmul(handle, operation, &one, da.get(), layout_a, db.get(), layout_b, &zero,
                       dc.get(), layout_c, dc.get(), layout_c, &found.algo, workspace.get(),
                       kWorkspace, nullptr));
  CHECK(cudaDeviceSynchronize());

  std::vector<float> ra(a.size()), rb(b.size());
  for (std::size_t i = 0; i < a.size(); ++i) ra[i] = static_cast<float>(a[i]);
  for (std::size_t i = 0; i < b.size(); ++i) rb[i] = static_cast<float>(b[i]);
  auto want = product(ra, rb, kM, kN, kK);
  for (std::size_t i = 0; with_bias && i < want.size(); ++i) want[i] += fbias[i % kM];
  close(dc.host(), want, 1e-3, "matmul");
  remember(dc.host());
  CHECK(cublasLtMatmulPreferenceDestroy(preference));
  for (auto layout : {layout_a, layout_b, layout_c}) CHECK(cublasLtMatrixLayoutDestroy(layout));
  CHECK(cublasLtMatmulDescDestroy(operation));
  CHECK(cublasLtDestroy(handle));
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv,
             {{"float32", [] { multiply<float>(false); }},
              {"float16", [] { multiply<__half>(false); }},
              {"bfloat16", [] { multiply<__nv_bfloat16>(false); }},
              {"float32_bias", [] { multiply<float>(true); }},
              {"create_and_destroy", [] {
                 for (int i = 0; i < 10; ++i) {
                   cublasLtHandle_t handle;
                   CHECK(cublasLtCreate(&handle));
                   CHECK(cublasLtDestroy(handle));
                 }
               }}});
}
