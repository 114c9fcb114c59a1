// SPDX-License-Identifier: Apache-2.0
// Generated from api/*.toml by api/generate.py; do not edit.
// Opcodes and fixed structures of the generated messages; arrays and strings follow
// them as message_codec.h says. Both ends come from one build
// (wire/build.h).
#pragma once

#include <cstdint>

#include "api/message_codec.h"
#include "base/cuda_abi.h"

namespace openmps {

inline constexpr uint16_t kFirstGeneratedOpcode = 256;

enum class GeneratedOpcode : uint16_t {
  cuFuncGetAttribute = 256,
  cuGraphAddThings = 257,
  cuGraphDropThings = 258,
};

namespace messages {

struct cuFuncGetAttribute_request {
  CUfunction_attribute attrib;
  uint32_t hfunc;
};
struct cuFuncGetAttribute_reply {
  CUresult result;
  int pi;
};

struct cuGraphAddThings_request {
  uint32_t present;  // bit n: optional parameter n was given
  uint32_t node;
  uint32_t graph;
  size_t count;
  CUDA_MEMSET_NODE_PARAMS fill;
  uint32_t label;
  int bytes;
  int state;
  uint64_t place;
  uint32_t dev;
};
struct cuGraphAddThings_reply {
  CUresult result;
  int state;
};

struct cuGraphDropThings_request {
  uint32_t node;
};

}  // namespace messages
}  // namespace openmps
