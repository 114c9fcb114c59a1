// SPDX-License-Identifier: Apache-2.0
// The calls of drv_wrong_calls, by topic. Each is wrong in one way, or in several ways, which shows
// what is checked first. None should destroy objects of the stage.
#pragma once

#include <string>
#include <vector>

#include "driver.h"

namespace e2e {

// The objects that exist as long as the process that makes the calls. The session's context is
// current.
struct World : Session {
  CUcontext other = nullptr;  // a second context of the device, with a stream and an event
  CUstream foreign_stream = nullptr;
  CUevent foreign_event = nullptr;
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;  // mix(words, n, key)
  CUfunction mix = nullptr, empty = nullptr;

  World() {
    CHECK_CU(cuCtxCreate_v2(&other, 0, device));
    CHECK_CU(cuStreamCreate(&foreign_stream, CU_STREAM_NON_BLOCKING));
    CHECK_CU(cuEventCreate(&foreign_event, CU_EVENT_DEFAULT));
    CHECK_CU(cuCtxSetCurrent(context));
    CHECK_CU(cuLibraryLoadData(&library, kernels_ptx(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    CHECK_CU(cuLibraryGetKernel(&kernel, library, "mix"));
    mix = function("mix");
    empty = function("empty");
  }
  World(const World&) = delete;
  ~World() {
    CHECK_CU(cuLibraryUnload(library));
    CHECK_CU(cuCtxDestroy_v2(other));
    CHECK_CU(cuCtxSetCurrent(context));
  }
};

// The objects with which a call is made. Built anew for each call.
struct Stage {
  static constexpr size_t kBytes = 4096;
  static constexpr size_t kWidth = 16, kHeight = 4;  // of the arrays, in elements of one float

  explicit Stage(const World& world);
  Stage(const Stage&) = delete;
  ~Stage();

  const World& world;
  CUdevice device;
  CUcontext context;
  CUstream stream = nullptr;
  CUevent event = nullptr, recorded = nullptr, untimed = nullptr;  // event: never recorded
  CUdeviceptr memory = 0, managed = 0;
  unsigned char* pinned = nullptr;
  alignas(4096) unsigned char pageable[2 * kBytes] = {};
  CUarray array = nullptr, plain_array = nullptr;  // plain_array can't be used for surfaces
  CUmipmappedArray mipmaps = nullptr;              // has two levels
  CUmemoryPool pool = nullptr;
  // A range of addresses and memory of the same size that nothing is mapped to.
  size_t granule = 0;
  CUdeviceptr range = 0;
  CUmemGenericAllocationHandle handle = 0;
  // A graph, an executable graph that was instantiated before `late` was added, and a clone.
  CUgraph graph = nullptr, other_graph = nullptr, clone = nullptr;
  CUgraphNode plain = nullptr, launch = nullptr, fill = nullptr, copy = nullptr, call = nullptr;
  CUgraphNode late = nullptr, other_node = nullptr;
  CUgraphExec exec = nullptr;
  CUuserObject object = nullptr;
};

struct WrongCall {
  const char* text;
  CUresult (*make)(Stage&);
};
// A call is named by its text. WRONG_WHERE: also a text to print before it, and a function that
// makes the call in the situation that this text describes.
#define WRONG(...) \
  WRONG_WHERE(     \
      "", [](Stage& s, auto call) { return call(s); }, __VA_ARGS__)
#define WRONG_WHERE(where, within, ...)                \
  WrongCall {                                          \
    where #__VA_ARGS__, [](Stage& stage) -> CUresult { \
      return within(stage, [](Stage& s) -> CUresult {  \
        static_cast<void>(s);                          \
        return __VA_ARGS__;                            \
      });                                              \
    }                                                  \
  }

using WrongCalls = std::vector<WrongCall>;
extern const WrongCalls kDeviceCalls, kContextCalls, kLimitCalls, kNoContextCalls;
extern const WrongCalls kStreamCalls, kEventCalls, kValueCalls;
extern const WrongCalls kMemoryCalls, kPointerCalls, kFillCalls, kPoolCalls, kMappingCalls;
extern const WrongCalls kCopyCalls, kBoxCalls;
extern const WrongCalls kModuleCalls, kLibraryCalls, kFunctionCalls, kLaunchCalls, kLinkCalls;
extern const WrongCalls kGraphCalls, kNodeCalls, kExecCalls;
extern const WrongCalls kArrayCalls, kTextureCalls, kTensorMapCalls;

// A place for a call's result.
template <typename T>
T* out() {
  static T places[64];
  memset(static_cast<void*>(places), 0, sizeof places);
  return places;
}
// A value that no enumeration of CUDA has.
template <typename T>
constexpr T bad = static_cast<T>(0x7fff);
constexpr CUdevice kNoDevice = 999;
constexpr size_t kHuge = size_t{1} << 60;

// A valid structure, whose members a call makes wrong.
template <typename T>
struct Made {
  T value{};
  template <typename M, typename V>
  Made& with(M T::*member, V to) {
    value.*member = static_cast<M>(to);
    return *this;
  }
  operator T*() { return &value; }  // NOLINT(google-explicit-constructor): calls take it as it is
};
// A list in the text of a call.
template <typename T, size_t kCount>
T* list(const T (&values)[kCount]) {
  static T places[kCount];
  for (size_t i = 0; i < kCount; ++i) places[i] = values[i];
  return places;
}

inline CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }
inline void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }
inline CUmemLocation place(CUmemLocationType type, int id) { return {type, id}; }
inline void nothing(void*) {}

}  // namespace e2e
