// SPDX-License-Identifier: Apache-2.0
// Shared by drv_capture_refusals and drv_capture_ends: a stage of streams, events and memory, with
// one capture, and results as text, which is compared with that of NVIDIA's driver.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "driver.h"

namespace e2e {

// CUDA's name of the result without the common prefix.
inline std::string name_of(CUresult result) {
  std::string name = e2e::name(result);
  for (const char* prefix : {"CUDA_ERROR_", "CUDA_"}) {
    if (name.rfind(prefix, 0) == 0) name.erase(0, strlen(prefix));
  }
  return name;
}

inline const char* status_name(CUstreamCaptureStatus status) {
  switch (status) {
    case CU_STREAM_CAPTURE_STATUS_NONE: return "none";
    case CU_STREAM_CAPTURE_STATUS_ACTIVE: return "active";
    case CU_STREAM_CAPTURE_STATUS_INVALIDATED: return "invalidated";
  }
  return "?";
}

inline std::string status_of(CUstream stream) {
  auto status = static_cast<CUstreamCaptureStatus>(-1);
  const CUresult result = cuStreamIsCapturing(stream, &status);
  return result == CUDA_SUCCESS ? status_name(status) : name_of(result);
}

// The objects with which the calls are made. Built anew for each call, outside of any capture.
struct Stage {
  static constexpr size_t kBytes = 256;

  explicit Stage(const Session& session_in, unsigned origin_flags = CU_STREAM_DEFAULT)
      : session(session_in) {
    CHECK_CU(cuStreamCreate(&origin, origin_flags));
    CHECK_CU(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    CHECK_CU(cuStreamCreate(&free, CU_STREAM_NON_BLOCKING));
    for (CUevent* event : {&done, &done_later, &captured, &captured_later, &unused}) {
      CHECK_CU(cuEventCreate(event, CU_EVENT_DEFAULT));
    }
    CHECK_CU(cuEventRecord(done, free));
    CHECK_CU(cuEventRecord(done_later, free));
    CHECK_CU(cuStreamSynchronize(free));
    CHECK_CU(cuMemAlloc_v2(&memory, kBytes));
    CHECK_CU(cuMemAlloc_v2(&more, kBytes));
    void* host = nullptr;
    CHECK_CU(cuMemHostAlloc(&host, kBytes, 0));
    pinned = static_cast<unsigned char*>(host);
    CUDA_ARRAY_DESCRIPTOR shape{16, 4, CU_AD_FORMAT_FLOAT, 1};
    CHECK_CU(cuArrayCreate_v2(&array, &shape));
    CUgraphNode node = nullptr;
    CHECK_CU(cuGraphCreate(&graph, 0));
    CHECK_CU(cuGraphAddEmptyNode(&node, graph, nullptr, 0));
    CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  }
  Stage(const Stage&) = delete;
  ~Stage() {
    for (CUstream stream : {origin, blocking, free}) {  // one of them may still capture
      if (stream != nullptr && status_of(stream) != "none") static_cast<void>(end(stream));
    }
    for (const auto& clean_up : later_) clean_up();
    CHECK_CU(cuGraphExecDestroy(exec));
    CHECK_CU(cuGraphDestroy(graph));
    if (array != nullptr) CHECK_CU(cuArrayDestroy(array));
    if (pinned != nullptr) CHECK_CU(cuMemFreeHost(pinned));
    if (more != 0) CHECK_CU(cuMemFree_v2(more));
    CHECK_CU(cuMemFree_v2(memory));
    for (CUevent event : {done, done_later, captured, captured_later, unused}) {
      if (event != nullptr) CHECK_CU(cuEventDestroy_v2(event));
    }
    for (CUstream stream : {origin, blocking, free}) {
      if (stream != nullptr) CHECK_CU(cuStreamDestroy_v2(stream));
    }
  }

  // Registers work for the time after the capture's end.
  void later(std::function<void()> clean_up) { later_.push_back(std::move(clean_up)); }

  // Begins a capture with one node and two recorded events.
  void begin(CUstreamCaptureMode mode) {
    CHECK_CU(cuStreamBeginCapture_v2(origin, mode));
    fill();
    CHECK_CU(cuEventRecord(captured, origin));
    CHECK_CU(cuEventRecord(captured_later, origin));
  }
  void fill() const { CHECK_CU(cuMemsetD8Async(memory, 1, kBytes, origin)); }

  [[nodiscard]] std::string end() const { return origin == nullptr ? "no stream" : end(origin); }
  // Ends a stream's capture. The result as text.
  [[nodiscard]] static std::string end(CUstream stream) {
    auto made = reinterpret_cast<CUgraph>(1);
    const CUresult result = cuStreamEndCapture(stream, &made);
    if (result != CUDA_SUCCESS) return name_of(result) + (made == nullptr ? "" : ", graph left");
    size_t nodes = 0;
    CHECK_CU(cuGraphGetNodes(made, nullptr, &nodes));
    CHECK_CU(cuGraphDestroy(made));
    return std::to_string(nodes);
  }

  const Session& session;
  CUstream origin = nullptr, blocking = nullptr, free = nullptr;
  CUevent done = nullptr, done_later = nullptr;          // complete, outside of any capture
  CUevent captured = nullptr, captured_later = nullptr;  // recorded in the capture
  CUevent unused = nullptr;
  CUdeviceptr memory = 0, more = 0;
  unsigned char* pinned = nullptr;
  unsigned char pageable[kBytes] = {};
  unsigned char pageable_too[kBytes] = {};
  CUarray array = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;

 private:
  std::vector<std::function<void()>> later_;
};

constexpr size_t kBytes = Stage::kBytes;
constexpr auto kGlobal = CU_STREAM_CAPTURE_MODE_GLOBAL;
constexpr auto kLocal = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
constexpr auto kRelaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

}  // namespace e2e
