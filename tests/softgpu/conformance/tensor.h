// SPDX-License-Identifier: Apache-2.0
// The tensor that a case copies from and to: the memory of all threads, with 32 words of 32 bits
// each, as an array of one to five dimensions. With three dimensions and more, the last is the
// block. Boxes have 64 elements, like eight pixels of eight channels.
#pragma once

#include "cases.h"
#include "cuda/abi.h"

namespace conformance {

CUresult make_tensor_map(const Case& one, CUdeviceptr memory, CUtensorMap* map);

}  // namespace conformance
