// SPDX-License-Identifier: Apache-2.0
// cuGetErrorName and cuGetErrorString. Any thread, before cuInit too.
#include "cuda/error_names.h"
#include "softgpu/front/front.h"

CUresult cuGetErrorName(CUresult error, const char** pStr) {
  if (pStr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const openmps::cuda::ErrorText* found = openmps::cuda::find_error_text(error);
  *pStr = found == nullptr ? nullptr : found->name;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** pStr) {
  if (pStr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const openmps::cuda::ErrorText* found = openmps::cuda::find_error_text(error);
  *pStr = found == nullptr ? nullptr : found->text;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
