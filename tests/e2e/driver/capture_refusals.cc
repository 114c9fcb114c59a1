// SPDX-License-Identifier: Apache-2.0
// The result of each call while a stream captures, and its effect on the capture: for every kind of
// capture the result, the status of the capture afterwards, and the result of its end or its number
// of nodes. The lines are compared with those of NVIDIA's driver. Run by run_e2e.py.
// usage: drv_capture_refusals streams|events|copies|memory|code|captures|nodes
#include <map>
#include <thread>

#include "capture_calls.h"

namespace e2e {
namespace {

// Which stream captures in which mode; on which thread, with which mode, the call is made.
struct Setting {
  const char* name;
  CUstreamCaptureMode mode;
  unsigned origin_flags = CU_STREAM_DEFAULT;
  bool elsewhere = false;  // another thread makes the call
  CUstreamCaptureMode caller_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
};

constexpr Setting kSettings[] = {
    {"global", kGlobal},
    {"local", kLocal},
    {"relaxed", kRelaxed},
    {"free-global", kGlobal, CU_STREAM_NON_BLOCKING},
    {"free-relaxed", kRelaxed, CU_STREAM_NON_BLOCKING},
    {"global+local", kGlobal, CU_STREAM_DEFAULT, false, kLocal},
    {"global+relaxed", kGlobal, CU_STREAM_DEFAULT, false, kRelaxed},
    {"local+relaxed", kLocal, CU_STREAM_DEFAULT, false, kRelaxed},
    {"global/other", kGlobal, CU_STREAM_DEFAULT, true, kGlobal},
    {"global/other+local", kGlobal, CU_STREAM_DEFAULT, true, kLocal},
    {"global/other+relaxed", kGlobal, CU_STREAM_DEFAULT, true, kRelaxed},
    {"local/other", kLocal, CU_STREAM_DEFAULT, true, kGlobal},
    {"relaxed/other", kRelaxed, CU_STREAM_DEFAULT, true, kGlobal},
};

std::string outcome(const Session& session, const Setting& setting, const Call& call) {
  Stage stage(session, setting.origin_flags);
  stage.begin(setting.mode);
  CUresult result = CUDA_SUCCESS;
  const auto make = [&] {
    const CUstreamCaptureMode before = exchange_mode(setting.caller_mode);
    result = call.make(stage);
    exchange_mode(before);
  };
  if (setting.elsewhere) {
    std::thread([&] {
      CHECK_CU(cuCtxSetCurrent(session.context));
      make();
    }).join();
  } else {
    make();
  }
  std::string text = name_of(result);
  text += ", " + (stage.origin == nullptr ? "no stream" : status_of(stage.origin));
  text += ", " + stage.end();
  CHECK_CU(cuCtxSynchronize());
  return text;
}

// Prints a line for each call: its name, and each outcome with the settings that have it.
void compare(const Session& session, const std::vector<Call>& calls) {
  for (const Call& call : calls) {
    std::vector<std::pair<std::string, std::string>> outcomes;  // outcome and its settings
    for (const Setting& setting : kSettings) {
      const std::string seen = outcome(session, setting, call);
      auto same = outcomes.begin();
      while (same != outcomes.end() && same->first != seen) ++same;
      if (same == outcomes.end()) same = outcomes.insert(same, {seen, ""});
      same->second += std::string(same->second.empty() ? "" : " ") + setting.name;
    }
    printf("%s\n", call.name);
    for (const auto& [seen, settings] : outcomes) {
      printf("    %s <- %s\n", seen.c_str(), outcomes.size() == 1 ? "all" : settings.c_str());
    }
  }
}

}  // namespace
}  // namespace e2e

int main(int argc, char** argv) {
  using namespace e2e;
  const Session session;
  const std::map<std::string, const std::vector<Call>*> groups = {
      {"streams", &kStreamCalls}, {"events", &kEventCalls}, {"copies", &kCopyCalls},
      {"memory", &kMemoryCalls},  {"code", &kCodeCalls},    {"captures", &kCaptureCalls},
      {"nodes", &kNodeCalls},
  };
  const auto group = groups.find(argc > 1 ? argv[1] : "");
  if (group == groups.end()) return 2;
  compare(session, *group->second);
  return finish();
}
