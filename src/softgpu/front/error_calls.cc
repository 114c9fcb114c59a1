// SPDX-License-Identifier: Apache-2.0
// cuGetErrorName and cuGetErrorString. Any thread, before cuInit too.
#include "cuda/error_names.h"
#include "softgpu/device/lifetime/start.h"
#include "softgpu/front/front.h"

CUresult cuGetErrorName(CUresult error, const char** pStr) {
  if (openmps::softgpu::is_exiting()) return CUDA_ERROR_DEINITIALIZED;
  return openmps::cuda::get_error_name(error, pStr);
}

CUresult cuGetErrorString(CUresult error, const char** pStr) {
  if (openmps::softgpu::is_exiting()) return CUDA_ERROR_DEINITIALIZED;
  return openmps::cuda::get_error_string(error, pStr);
}
