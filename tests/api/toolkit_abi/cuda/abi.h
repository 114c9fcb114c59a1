// SPDX-License-Identifier: Apache-2.0
// Stands in for src/cuda/abi.h in prototype_check.cc alone: the toolkit's own declarations.
#pragma once

#define __CUDA_API_VERSION_INTERNAL  // every version of every prototype, no renaming
#include <cuda.h>
#include <cudaProfiler.h>
