// SPDX-License-Identifier: Apache-2.0
// The operations (acts) of random_order.cc's programs on buffers. An act is given to a stream, is a
// node of a graph, or is applied to the model of the buffers. Two acts on one buffer give different
// results in different orders.
#pragma once

#include <deque>
#include <string>

#include "driver.h"

namespace e2e::random_order {

inline constexpr uint32_t kActWords = 32;  // per buffer: a word for each lane of a warp
inline constexpr size_t kActBytes = kActWords * sizeof(uint32_t);

struct Act {
  enum class Kind : uint8_t { kBlend, kFill, kCopy, kCall };
  Kind kind = Kind::kBlend;
  uint32_t to = 0;
  uint32_t from = 0;  // the buffer that a blend or a copy reads
  uint32_t way = 0;   // which of the driver's functions is called
  uint32_t key = 0;

  [[nodiscard]] bool reads() const { return kind == Kind::kBlend || kind == Kind::kCopy; }
  [[nodiscard]] bool conflicts(const Act& other) const {
    return to == other.to || (reads() && from == other.to) || (other.reads() && other.from == to);
  }
  [[nodiscard]] std::string text() const {
    const std::string target = " buffer " + std::to_string(to);
    const std::string with = " with " + std::to_string(key);
    const std::string source = " from buffer " + std::to_string(from);
    switch (kind) {
      case Kind::kBlend: return "blend" + target + source + with;
      case Kind::kFill: return "fill" + target + with + ", way " + std::to_string(way);
      case Kind::kCopy: return "copy to" + target + source + ", way " + std::to_string(way);
      default: return "host function on" + target + with;
    }
  }
};

struct ActBuffer {
  CUdeviceptr address = 0;
  uint32_t* host = nullptr;  // the host address of a pinned buffer
  std::vector<uint32_t> model;
};

class Acts {
 public:
  Acts(CUfunction blend, CUcontext context) : blend_(blend), context_(context) {}

  // Applies the act to the model.
  template <typename Buffers>
  static void apply(const Act& act, Buffers& buffers) {
    std::vector<uint32_t>& words = buffers[act.to].model;
    const std::vector<uint32_t>& from = buffers[act.from].model;
    switch (act.kind) {
      case Act::Kind::kBlend:
        for (uint32_t i = 0; i < kActWords; i++) words[i] = words[i] * 5 + from[i] + act.key;
        break;
      case Act::Kind::kFill: words.assign(kActWords, filling(act)); break;
      case Act::Kind::kCopy: words = from; break;
      case Act::Kind::kCall: mix_on_host(words, act.key); break;
    }
  }

  template <typename Buffers>
  void put(const Act& act, const Buffers& buffers, CUstream stream) {
    const ActBuffer& to = buffers[act.to];
    const ActBuffer& from = buffers[act.from];
    switch (act.kind) {
      case Act::Kind::kBlend:
        launch(blend_, 1, kActWords, 0, stream, to.address, from.address, kActWords, act.key);
        break;
      case Act::Kind::kFill: put_fill(act, to.address, stream); break;
      case Act::Kind::kCopy: put_copy(act, to, from, stream); break;
      case Act::Kind::kCall:
        CHECK_CU(cuLaunchHostFunc(stream, mix, &calls_.emplace_back(to.host, act.key)));
        break;
    }
  }

  template <typename Buffers>
  CUgraphNode add(const Act& act, const Buffers& buffers, CUgraph graph,
                  const std::vector<CUgraphNode>& behind) {
    const ActBuffer& to = buffers[act.to];
    const ActBuffer& from = buffers[act.from];
    CUgraphNode node = nullptr;
    const CUgraphNode* first = behind.data();
    const size_t count = behind.size();
    if (act.kind == Act::Kind::kBlend) {
      CUdeviceptr words = to.address, other = from.address;
      uint32_t number = kActWords, key = act.key;
      void* parameters[] = {&words, &other, &number, &key};
      CUDA_KERNEL_NODE_PARAMS kernel{};
      kernel.func = blend_;
      kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = 1;
      kernel.blockDimX = kActWords;
      kernel.blockDimY = kernel.blockDimZ = 1;
      kernel.kernelParams = parameters;
      CHECK_CU(cuGraphAddKernelNode_v2(&node, graph, first, count, &kernel));
    } else if (act.kind == Act::Kind::kFill) {
      const unsigned size = element_of(act);
      const CUDA_MEMSET_NODE_PARAMS fill{to.address,       0, act.key & mask_of(act), size,
                                         kActBytes / size, 1};
      CHECK_CU(cuGraphAddMemsetNode(&node, graph, first, count, &fill, context_));
    } else if (act.kind == Act::Kind::kCopy) {
      CUDA_MEMCPY3D copy{};
      copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
      copy.srcDevice = from.address;
      copy.dstDevice = to.address;
      copy.WidthInBytes = kActBytes;
      copy.Height = copy.Depth = 1;
      CHECK_CU(cuGraphAddMemcpyNode(&node, graph, first, count, &copy, context_));
    } else {
      const CUDA_HOST_NODE_PARAMS call{mix, &calls_.emplace_back(to.host, act.key)};
      CHECK_CU(cuGraphAddHostNode(&node, graph, first, count, &call));
    }
    return node;
  }

 private:
  struct Call {
    uint32_t* words;
    uint32_t key;
    Call(uint32_t* words_in, uint32_t key_in) : words(words_in), key(key_in) {}
  };
  static void mix(void* data) {
    const Call& call = *static_cast<Call*>(data);
    for (uint32_t i = 0; i < kActWords; i++) call.words[i] = call.words[i] * 5 + i + call.key;
  }

  // Fills have elements of 1, 2 or 4 bytes.
  static unsigned element_of(const Act& act) { return 1u << act.way % 3; }
  static uint32_t mask_of(const Act& act) {
    return static_cast<uint32_t>((1ull << element_of(act) * 8) - 1);
  }
  static uint32_t filling(const Act& act) {
    const uint32_t value = act.key & mask_of(act);
    return value * (element_of(act) == 1 ? 0x01010101u : element_of(act) == 2 ? 0x00010001u : 1u);
  }
  static void put_fill(const Act& act, CUdeviceptr to, CUstream stream) {
    switch (element_of(act)) {
      case 1:
        CHECK_CU(cuMemsetD8Async(to, static_cast<unsigned char>(act.key), kActBytes, stream));
        break;
      case 2:
        CHECK_CU(cuMemsetD16Async(to, static_cast<uint16_t>(act.key), kActBytes / 2, stream));
        break;
      default: CHECK_CU(cuMemsetD32Async(to, act.key, kActWords, stream));
    }
  }
  static void put_copy(const Act& act, const ActBuffer& to, const ActBuffer& from,
                       CUstream stream) {
    const bool host_to = to.host != nullptr, host_from = from.host != nullptr;
    if (act.way % 3 == 0 || (host_to && host_from)) {
      CHECK_CU(cuMemcpyAsync(to.address, from.address, kActBytes, stream));
    } else if (act.way % 3 == 1) {
      CUDA_MEMCPY2D box{};
      box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
      box.srcDevice = from.address;
      box.dstDevice = to.address;
      box.srcPitch = box.dstPitch = box.WidthInBytes = kActBytes / 4;
      box.Height = 4;
      CHECK_CU(cuMemcpy2DAsync_v2(&box, stream));
    } else if (host_to) {
      CHECK_CU(cuMemcpyDtoHAsync_v2(to.host, from.address, kActBytes, stream));
    } else if (host_from) {
      CHECK_CU(cuMemcpyHtoDAsync_v2(to.address, from.host, kActBytes, stream));
    } else {
      CHECK_CU(cuMemcpyDtoDAsync_v2(to.address, from.address, kActBytes, stream));
    }
  }

  CUfunction blend_;
  CUcontext context_;
  std::deque<Call> calls_;  // arguments of host functions, kept while these may run
};

}  // namespace e2e::random_order
