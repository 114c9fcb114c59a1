// SPDX-License-Identifier: Apache-2.0
// Provisional: NVIDIA's header until our own ABI description replaces it.
#pragma once
#include "/usr/local/cuda/include/cuda.h"
