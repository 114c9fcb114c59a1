// SPDX-License-Identifier: Apache-2.0
// Ends of captures, with success and with errors, and calls with their streams and events before
// and after the end. The lines are compared with those of NVIDIA's driver. Run by run_e2e.py.
// usage: drv_capture_ends invalidated|ends|events|graph|legacy|destroy
#include <map>
#include <thread>

#include "capture_stage.h"

namespace e2e {
namespace {

void say(const char* what, CUresult result) { printf("  %s: %s\n", what, name_of(result).c_str()); }
void say(const char* what, const std::string& text) { printf("  %s: %s\n", what, text.c_str()); }
void title(const char* text) { printf("%s\n", text); }

// The calls that can be made with a stream whose capture was invalidated.
void after_invalidation(const Session& session) {
  title("an invalidated capture");
  Stage s(session);
  CUstream joined = nullptr;
  CHECK_CU(cuStreamCreate(&joined, CU_STREAM_NON_BLOCKING));
  s.begin(kRelaxed);
  CHECK_CU(cuStreamWaitEvent(joined, s.captured, 0));
  say("cuStreamQuery", cuStreamQuery(s.origin));
  say("status", status_of(s.origin));
  say("status of a joined stream", status_of(joined));
  auto status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 77;
  auto graph = reinterpret_cast<CUgraph>(1);
  const CUgraphNode* nodes = nullptr;
  size_t count = 77;
  say("cuStreamGetCaptureInfo",
      cuStreamGetCaptureInfo_v3(s.origin, &status, &id, &graph, &nodes, nullptr, &count));
  printf("  it says %s, %s, %s, %zu\n", status_name(status), id == 77 ? "no id" : "an id",
         graph == reinterpret_cast<CUgraph>(1) ? "graph untouched"
         : graph == nullptr                    ? "no graph"
                                               : "a graph",
         count);
  say("launch", try_launch(session.function("empty"), 1, 1, 0, s.origin));
  say("memset", cuMemsetD8Async(s.memory, 1, kBytes, s.origin));
  say("copy", cuMemcpyHtoDAsync_v2(s.memory, s.pageable, kBytes, s.origin));
  say("host function", cuLaunchHostFunc(
                           s.origin, [](void*) {}, nullptr));
  say("launch in the joined stream", try_launch(session.function("empty"), 1, 1, 0, joined));
  say("record", cuEventRecord(s.unused, s.origin));
  say("record, external", cuEventRecordWithFlags(s.unused, s.origin, CU_EVENT_RECORD_EXTERNAL));
  say("wait for an event of the capture", cuStreamWaitEvent(s.origin, s.captured, 0));
  say("wait for an event from outside", cuStreamWaitEvent(s.origin, s.done, 0));
  say("another stream waits for an event of the capture", cuStreamWaitEvent(s.free, s.captured, 0));
  say("status of that stream", status_of(s.free));
  say("the legacy stream waits for it", cuStreamWaitEvent(nullptr, s.captured, 0));
  say("cuEventQuery of it", cuEventQuery(s.captured));
  say("cuEventSynchronize of it", cuEventSynchronize(s.captured));
  say("dependencies", cuStreamUpdateCaptureDependencies(s.origin, nullptr, 0, 1));
  say("cuStreamSynchronize", cuStreamSynchronize(s.origin));
  say("cuStreamSynchronize of the legacy stream", cuStreamSynchronize(nullptr));
  say("cuStreamIsCapturing of the legacy stream", status_of(nullptr));
  say("a launch in the legacy stream", try_launch(session.function("empty"), 1, 1, 0, nullptr));
  say("cuCtxSynchronize", cuCtxSynchronize());
  CUdeviceptr memory = 0;
  const CUresult allocated = cuMemAlloc_v2(&memory, kBytes);
  say("cuMemAlloc, relaxed", allocated);
  if (allocated == CUDA_SUCCESS) CHECK_CU(cuMemFree_v2(memory));
  say("cuMemcpyHtoD, relaxed", cuMemcpyHtoD_v2(s.more, s.pageable, kBytes));
  say("begin", cuStreamBeginCapture_v2(s.origin, kRelaxed));
  say("end of the joined stream", cuStreamEndCapture(joined, &graph));
  say("end without a place", cuStreamEndCapture(s.origin, nullptr));
  say("status", status_of(s.origin));
  say("end", s.end());
  say("status", status_of(s.origin));
  say("status of the joined stream", status_of(joined));
  say("another end", s.end());
  say("begin", cuStreamBeginCapture_v2(s.origin, kRelaxed));
  say("end", s.end());
  CHECK_CU(cuStreamDestroy_v2(joined));
}

void unsafe_after_invalidation(const Session& session) {
  title("an invalidated capture in global mode");
  Stage s(session);
  s.begin(kGlobal);
  CUdeviceptr memory = 0;
  say("cuMemAlloc", cuMemAlloc_v2(&memory, kBytes));
  say("cuMemAlloc again", cuMemAlloc_v2(&memory, kBytes));
  say("cuEventQuery", cuEventQuery(s.done));
  say("cuStreamQuery of another stream", cuStreamQuery(s.free));
  say("cuStreamSynchronize of the legacy stream", cuStreamSynchronize(nullptr));
  say("end", s.end());
}

void wrong_thread(const Session& session) {
  for (const auto& [mode, name] :
       {std::pair{kGlobal, "global"}, {kLocal, "local"}, {kRelaxed, "relaxed"}}) {
    printf("an end on another thread, %s\n", name);
    Stage s(session);
    s.begin(mode);
    std::string seen;
    std::thread([&] {
      CHECK_CU(cuCtxSetCurrent(session.context));
      seen = s.end();
      say("end", seen);
      say("status there", status_of(s.origin));
      say("end again", s.end());
    }).join();
    say("status", status_of(s.origin));
    say("end on its own thread", s.end());
  }
}

void unmatched(const Session& session) {
  title("an end in a stream that joined");
  Stage s(session);
  s.begin(kGlobal);
  CHECK_CU(cuStreamWaitEvent(s.free, s.captured, 0));
  CUgraph graph = nullptr;
  say("end", cuStreamEndCapture(s.free, &graph));
  say("status of the origin", status_of(s.origin));
  say("status of the joined stream", status_of(s.free));
  say("work in the origin", cuMemsetD8Async(s.memory, 1, kBytes, s.origin));
  say("end in the origin", s.end());
  say("status of the joined stream", status_of(s.free));

  title("an end without a place in a stream that joined");
  Stage other(session);
  other.begin(kGlobal);
  CHECK_CU(cuStreamWaitEvent(other.free, other.captured, 0));
  say("end", cuStreamEndCapture(other.free, nullptr));
  say("status of the origin", status_of(other.origin));
  say("end in the origin", other.end());
}

void unjoined(const Session& session) {
  title("work that is not joined");
  {
    Stage s(session);
    s.begin(kGlobal);
    CHECK_CU(cuStreamWaitEvent(s.free, s.captured, 0));
    CHECK_CU(cuMemsetD8Async(s.more, 1, kBytes, s.free));
    say("end", s.end());
    say("status", status_of(s.origin));
    say("status of the fork", status_of(s.free));
  }
  {
    Stage s(session);
    s.begin(kGlobal);
    CHECK_CU(cuStreamWaitEvent(s.free, s.captured, 0));
    CHECK_CU(cuMemsetD8Async(s.more, 1, kBytes, s.free));
    CHECK_CU(cuEventRecord(s.unused, s.free));
    CHECK_CU(cuStreamWaitEvent(s.origin, s.unused, 0));
    CHECK_CU(cuMemsetD8Async(s.more, 1, kBytes, s.free));
    say("end after more work behind the join", s.end());
  }
  {
    Stage s(session);
    s.begin(kGlobal);
    CHECK_CU(cuStreamWaitEvent(s.free, s.captured, 0));
    CHECK_CU(cuMemsetD8Async(s.more, 1, kBytes, s.free));
    CHECK_CU(cuStreamDestroy_v2(std::exchange(s.free, nullptr)));
    say("end after the fork was destroyed", s.end());
  }
  {
    Stage s(session);
    s.begin(kGlobal);
    CHECK_CU(cuStreamUpdateCaptureDependencies(s.origin, nullptr, 0, 1));
    say("end after the dependencies were dropped", s.end());
  }
}

void merge(const Session& session) {
  title("two captures that would merge");
  Stage first(session), second(session);
  first.begin(kRelaxed);
  second.begin(kRelaxed);
  say("wait", cuStreamWaitEvent(second.origin, first.captured, 0));
  say("status of the first", status_of(first.origin));
  say("status of the second", status_of(second.origin));
  say("end of the first", first.end());
  say("end of the second", second.end());
}

void ended_events(const Session& session) {
  title("events of a capture that has ended");
  Stage s(session);
  s.begin(kRelaxed);
  say("end", s.end());
  float ms = 0;
  say("cuEventQuery", cuEventQuery(s.captured));
  say("cuEventSynchronize", cuEventSynchronize(s.captured));
  say("cuEventElapsedTime", cuEventElapsedTime_v2(&ms, s.captured, s.captured_later));
  say("cuStreamWaitEvent", cuStreamWaitEvent(s.free, s.captured, 0));
  say("cuStreamWaitEvent of the legacy stream", cuStreamWaitEvent(nullptr, s.captured, 0));
  s.begin(kRelaxed);
  CHECK_CU(cuEventRecord(s.unused, s.origin));
  say("end", s.end());
  s.begin(kRelaxed);
  say("a wait for it in the next capture", cuStreamWaitEvent(s.origin, s.unused, 0));
  say("status", status_of(s.origin));
  say("end", s.end());
  say("cuEventRecord", cuEventRecord(s.captured, s.free));
  say("cuEventSynchronize", cuEventSynchronize(s.captured));
  say("cuEventQuery", cuEventQuery(s.captured));
}

// A graph of the program into which streams capture. NVIDIA's driver destroys it with a capture
// that fails, after which the graph can't be used.
struct Target {
  Target() {
    CHECK_CU(cuGraphCreate(&graph, 0));
    CHECK_CU(cuGraphAddEmptyNode(&first, graph, nullptr, 0));
  }
  void begin(Stage& s, CUstreamCaptureMode mode = kGlobal) {
    CHECK_CU(cuStreamBeginCaptureToGraph(s.origin, graph, &first, nullptr, 1, mode));
    s.fill();
  }
  CUgraph graph = nullptr;
  CUgraphNode first = nullptr;
};

void tell(CUgraph graph) {
  size_t nodes = 0;
  CHECK_CU(cuGraphGetNodes(graph, nullptr, &nodes));
  printf("  the graph has %zu nodes\n", nodes);
  CHECK_CU(cuGraphDestroy(graph));
}

void to_graph(const Session& session) {
  CUgraph made = nullptr;
  const auto begun = [](Stage& s, const char* what) {
    title(what);
    Target target;
    target.begin(s);
    return target.graph;
  };
  {
    Stage s(session);
    const CUgraph target = begun(s, "into a graph that exists");
    say("end", cuStreamEndCapture(s.origin, &made));
    printf("  %s\n", made == target ? "the same graph" : "another graph");
    tell(target);
  }
  {
    Stage s(session);
    const CUgraph target = begun(s, "into a graph that exists, ended without a place");
    say("end", cuStreamEndCapture(s.origin, nullptr));
    say("status", status_of(s.origin));
    tell(target);
  }
  {
    Stage s(session);
    const CUgraph target = begun(s, "into a graph that exists, invalidated");
    say("cuStreamQuery", cuStreamQuery(s.origin));
    made = target;
    say("end", cuStreamEndCapture(s.origin, &made));
    printf("  the place is %s\n", made == nullptr ? "null" : "not null");
  }
  {
    Stage s(session);
    static_cast<void>(begun(s, "into a graph that exists, invalidated and ended without a place"));
    say("cuStreamQuery", cuStreamQuery(s.origin));
    say("end", cuStreamEndCapture(s.origin, nullptr));
    say("status", status_of(s.origin));
  }
  {
    Stage s(session);
    static_cast<void>(begun(s, "into a graph that exists, not joined"));
    CHECK_CU(cuEventRecord(s.captured, s.origin));
    CHECK_CU(cuStreamWaitEvent(s.free, s.captured, 0));
    CHECK_CU(cuMemsetD8Async(s.more, 1, kBytes, s.free));
    say("end", cuStreamEndCapture(s.origin, &made));
  }
  {
    Stage s(session);
    static_cast<void>(begun(s, "into a graph that exists, ended on another thread"));
    std::thread([&] {
      CHECK_CU(cuCtxSetCurrent(session.context));
      say("end", cuStreamEndCapture(s.origin, &made));
    }).join();
    say("status", status_of(s.origin));
  }
  title("into a graph that exists, refused");
  Stage s(session);
  Target target;
  const auto begin = [&](const CUgraphNode* node, size_t count, CUstreamCaptureMode mode) {
    const CUresult result =
        cuStreamBeginCaptureToGraph(s.origin, target.graph, node, nullptr, count, mode);
    return name_of(result) + ", " + status_of(s.origin);
  };
  say("behind no nodes", begin(nullptr, 1, kGlobal));
  CUgraphNode foreign = nullptr;
  size_t count = 1;
  CHECK_CU(cuGraphGetNodes(s.graph, &foreign, &count));
  say("behind a node of another graph", begin(&foreign, 1, kGlobal));
  say("in a bad mode", begin(nullptr, 0, static_cast<CUstreamCaptureMode>(7)));
  tell(target.graph);
}

// Queries, which do not invalidate a capture.
void questions(const Session& session) {
  title("questions about a stream that does not capture");
  Stage s(session);
  auto status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  cuuint64_t id = 77;
  auto graph = reinterpret_cast<CUgraph>(1);
  const CUgraphNode* nodes = nullptr;
  size_t count = 77;
  say("cuStreamGetCaptureInfo",
      cuStreamGetCaptureInfo_v3(s.origin, &status, &id, &graph, &nodes, nullptr, &count));
  printf("  it says %s, %s, %s, %zu\n", status_name(status), id == 77 ? "no id" : "an id",
         graph == reinterpret_cast<CUgraph>(1) ? "graph untouched" : "graph touched", count);
}

// Which captures of other streams are affected by calls with the legacy stream.
void implicit(const Session& session) {
  title("the legacy stream beside a free stream's capture that a blocking stream joined");
  {
    Stage s(session, CU_STREAM_NON_BLOCKING);
    s.begin(kRelaxed);
    CHECK_CU(cuStreamWaitEvent(s.blocking, s.captured, 0));
    say("cuStreamIsCapturing", status_of(nullptr));
    say("cuStreamQuery", cuStreamQuery(nullptr));
    say("launch", try_launch(session.function("empty"), 1, 1, 0, nullptr));
    say("status", status_of(s.origin));
    say("end", s.end());
  }
  title("the legacy stream beside a blocking stream's capture, left by it");
  {
    Stage s(session, CU_STREAM_DEFAULT);
    s.begin(kRelaxed);
    say("end", s.end());
    say("cuStreamIsCapturing", status_of(nullptr));
    say("launch", try_launch(session.function("empty"), 1, 1, 0, nullptr));
  }
  title("the legacy stream beside the capture of the thread's stream");
  {
    CHECK_CU(cuStreamBeginCapture_v2(CU_STREAM_PER_THREAD, kRelaxed));
    say("cuStreamIsCapturing", status_of(nullptr));
    say("launch", try_launch(session.function("empty"), 1, 1, 0, nullptr));
    say("status", status_of(CU_STREAM_PER_THREAD));
    CUgraph graph = nullptr;
    say("end", cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph));
  }
  title("the legacy stream of another context");
  {
    Stage s(session);
    CUcontext other = nullptr;
    CHECK_CU(cuCtxCreate_v2(&other, 0, session.device));
    CHECK_CU(cuCtxSetCurrent(session.context));
    s.begin(kRelaxed);
    CHECK_CU(cuCtxSetCurrent(other));
    say("cuStreamIsCapturing", status_of(nullptr));
    say("cuStreamQuery", cuStreamQuery(nullptr));
    say("cuStreamSynchronize", cuStreamSynchronize(nullptr));
    say("cuMemsetD8Async", cuMemsetD8Async(s.more, 1, kBytes, nullptr));
    say("cuCtxSynchronize", cuCtxSynchronize());
    CHECK_CU(cuCtxSetCurrent(session.context));
    say("status", status_of(s.origin));
    say("end", s.end());
    CHECK_CU(cuCtxDestroy_v2(other));
  }
}

// Streams and graphs that are destroyed while they are in use.
void destroy(const Session& session) {
  title("the origin is destroyed");
  {
    Stage s(session);
    s.begin(kRelaxed);
    CHECK_CU(cuStreamWaitEvent(s.free, s.captured, 0));
    say("cuStreamDestroy", cuStreamDestroy_v2(std::exchange(s.origin, nullptr)));
    say("status of a joined stream", status_of(s.free));
    say("launch in it", try_launch(session.function("empty"), 1, 1, 0, s.free));
    say("cuEventQuery of an event of the capture", cuEventQuery(s.captured));
    say("cuStreamSynchronize of the legacy stream", cuStreamSynchronize(nullptr));
    CUgraph graph = nullptr;
    say("end of the joined stream", cuStreamEndCapture(s.free, &graph));
    say("status of it", status_of(s.free));
  }
  title("a joined stream is destroyed");
  {
    Stage s(session);
    s.begin(kRelaxed);
    CHECK_CU(cuStreamWaitEvent(s.blocking, s.captured, 0));
    say("cuStreamDestroy", cuStreamDestroy_v2(std::exchange(s.blocking, nullptr)));
    say("status", status_of(s.origin));
    say("end", s.end());
  }
}

}  // namespace
}  // namespace e2e

int main(int argc, char** argv) {
  using namespace e2e;
  const Session session;
  const std::map<std::string, std::vector<void (*)(const Session&)>> groups = {
      {"invalidated", {after_invalidation, unsafe_after_invalidation}},
      {"ends", {wrong_thread, unmatched, unjoined, merge}},
      {"events", {ended_events, questions}},
      {"graph", {to_graph}},
      {"legacy", {implicit}},
      {"destroy", {destroy}},
  };
  const auto group = groups.find(argc > 1 ? argv[1] : "");
  if (group == groups.end()) return 2;
  for (const auto run : group->second) run(session);
  return finish();
}
