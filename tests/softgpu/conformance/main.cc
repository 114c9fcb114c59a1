// SPDX-License-Identifier: Apache-2.0
// Compares a CUDA driver with what an H200 computed, instruction by instruction and bit by bit.
//   conformance compare FILE           run every case; a mismatch names instruction, lanes, values
//   conformance record [--image FILE]  print such a FILE for the present driver, which compiles the
//                                      PTX, or loads the machine code that ptxas made of
//                                      `conformance ptx`
//   conformance ptx                    print the module
//   conformance show [TEXT...] [--image FILE] [--warps N]
//                                      print inputs and results of N warps of the cases whose names
//                                      contain a TEXT
//   conformance list                   print the names of all cases
//   record, ptx and show also take [--cases 3,8-12]: only these cases. record.py uses it, since a
//                                      fault ends the process.
// A line of FILE: two hexadecimal digits for each lane (a digest of the lane's results in all
// warps), a blank, the case. "# N cases wait for their recording": N cases have no line; they only
// have to run without an error.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include "api/prototypes.h"
#include "cuda/abi.h"
#include "image.h"
#include "inputs.h"
#include "kernels.h"
#include "tensor.h"

namespace conformance {
namespace {

using ThreadOutputs = std::array<uint64_t, kOutputWords>;

#define CHECK_CU(call)                                           \
  do {                                                           \
    const CUresult check_result = (call);                        \
    if (check_result != CUDA_SUCCESS) {                          \
      printf("%s: %d\n", #call, static_cast<int>(check_result)); \
      exit(1);                                                   \
    }                                                            \
  } while (0)

// How many cases are launched before a synchronisation. Fewer would cost more time on a busy
// machine.
constexpr size_t kGroup = 64;

struct Outcome {
  CUresult result = CUDA_SUCCESS;  // of the launch
  std::vector<ThreadInputs> inputs;
  std::vector<ThreadOutputs> outputs;
};

class Device {
 public:
  explicit Device(const std::string& image) {
    CUdevice device = 0;
    CUcontext context = nullptr;
    CHECK_CU(cuInit(0));
    CHECK_CU(cuDeviceGet(&device, 0));
    CHECK_CU(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_CU(cuCtxSetCurrent(context));
    CHECK_CU(cuModuleLoadData(&module_, image.c_str()));
    CHECK_CU(cuMemAlloc_v2(&inputs_, kGroup * kThreads * sizeof(ThreadInputs)));
    CHECK_CU(cuMemAlloc_v2(&outputs_, kGroup * kThreads * sizeof(ThreadOutputs)));
  }

  // Calls visit(case, outcome) for each of `chosen`, in their order.
  template <class F>
  void run(const std::vector<size_t>& chosen, F visit) {
    for (size_t begin = 0; begin < chosen.size(); begin += kGroup) {
      const size_t count = std::min(kGroup, chosen.size() - begin);
      std::vector<Outcome> outcomes(count);
      run_group(&chosen[begin], &outcomes);
      for (size_t i = 0; i < count; ++i) visit(cases()[chosen[begin + i]], outcomes[i]);
    }
  }

 private:
  void run_group(const size_t* indices, std::vector<Outcome>* outcomes) {
    std::vector<ThreadInputs> inputs;
    std::vector<ThreadOutputs> outputs(outcomes->size() * kThreads);
    for (size_t i = 0; i < outcomes->size(); ++i) {
      Outcome& one = (*outcomes)[i];
      one.inputs = make_inputs(cases()[indices[i]]);
      inputs.insert(inputs.end(), one.inputs.begin(), one.inputs.end());
    }
    CHECK_CU(cuMemcpyHtoD_v2(inputs_, inputs.data(), inputs.size() * sizeof inputs[0]));
    CHECK_CU(cuMemcpyHtoD_v2(outputs_, outputs.data(), outputs.size() * sizeof outputs[0]));
    for (size_t i = 0; i < outcomes->size(); ++i) (*outcomes)[i].result = launch(indices[i], i);
    CHECK_CU(cuMemcpyDtoH_v2(outputs.data(), outputs_, outputs.size() * sizeof outputs[0]));
    for (size_t i = 0; i < outcomes->size(); ++i) {
      (*outcomes)[i].outputs.assign(outputs.begin() + static_cast<ptrdiff_t>(i * kThreads),
                                    outputs.begin() + static_cast<ptrdiff_t>((i + 1) * kThreads));
    }
  }

  CUresult launch(size_t index, size_t place) {
    CUfunction function = nullptr;
    const CUresult found =
        cuModuleGetFunction(&function, module_, ("c" + std::to_string(index)).c_str());
    if (found != CUDA_SUCCESS) return found;
    CUdeviceptr inputs = inputs_ + place * kThreads * sizeof(ThreadInputs);
    CUdeviceptr outputs = outputs_ + place * kThreads * sizeof(ThreadOutputs);
    const Case& one = cases()[index];
    CUtensorMap map;
    if (one.tensor.rank > 0) CHECK_CU(make_tensor_map(one, inputs, &map));
    Image image;
    if (!one.image.shape.empty()) CHECK_CU(make_image(one, &image));
    void* arguments[] = {&inputs, &outputs, &map, nullptr};
    if (image.array != nullptr) {
      arguments[2] = &image.texture;
      arguments[3] = &image.surface;
    }
    const uint32_t threads = one.threads;
    return cuLaunchKernel(function, kThreads / threads, 1, 1, threads, 1, 1, 0, nullptr, arguments,
                          nullptr);
  }

  CUmodule module_ = nullptr;
  CUdeviceptr inputs_ = 0, outputs_ = 0;
};

// The digest of a case's results: two hexadecimal digits for each lane.
std::string digest(const std::vector<ThreadOutputs>& outputs) {
  std::string text;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    uint64_t all = 0;
    for (uint32_t warp = 0; warp < kWarps; ++warp) {
      const ThreadOutputs& one = outputs[warp * kLanes + lane];
      all = all * 0x9e3779b97f4a7c15ull + hash_of(one.data(), sizeof one);
    }
    char digits[3];
    snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(all >> 56));
    text += digits;
  }
  return text;
}

// The cases whose names contain one of `parts`.
std::vector<size_t> named(const std::vector<std::string>& parts) {
  std::vector<size_t> chosen;
  for (size_t i = 0; i < cases().size(); ++i) {
    const std::string name = cases()[i].name();
    const auto has = [&name](const std::string& part) { return name.find(part) != name.npos; };
    if (std::ranges::any_of(parts, has)) chosen.push_back(i);
  }
  return chosen;
}
std::vector<size_t> everything() { return named({""}); }

void print_values(const Case& one, const std::vector<ThreadInputs>& inputs,
                  const std::vector<ThreadOutputs>& outputs, uint32_t thread) {
  const size_t used = one.inputs == Inputs::kMatrix || one.memory ? kInputWords : 4;
  printf("    warp %u lane %u:", thread / kLanes, thread % kLanes);
  for (size_t i = 0; i < used; ++i) printf(" %llx", (unsigned long long)inputs[thread][i]);
  printf(" ->");
  const size_t made = one.inputs == Inputs::kMatrix || one.memory ? kOutputWords : 1;
  for (size_t i = 0; i < made; ++i) printf(" %llx", (unsigned long long)outputs[thread][i]);
  printf("\n");
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The cases of a list like 3,8-12 that exist.
std::vector<size_t> listed(const std::string& list) {
  std::vector<size_t> chosen;
  std::istringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t dash = part.find('-');
    const size_t first = std::stoul(part);
    const size_t last = dash == part.npos ? first : std::stoul(part.substr(dash + 1));
    for (size_t i = first; i <= last && i < cases().size(); ++i) chosen.push_back(i);
  }
  return chosen;
}

struct Options {
  std::string image;
  std::vector<size_t> chosen = everything();
  uint32_t warps = 1;
};

int record(const Options& options) {
  Device(options.image).run(options.chosen, [](const Case& one, const Outcome& outcome) {
    if (outcome.result != CUDA_SUCCESS) {
      printf("# error %d: %s\n", static_cast<int>(outcome.result), one.name().c_str());
    } else {
      printf("%s %s\n", digest(outcome.outputs).c_str(), one.name().c_str());
    }
  });
  return 0;
}

int show(const Options& options) {
  Device(options.image).run(options.chosen, [&](const Case& one, const Outcome& outcome) {
    printf("%s: %d\n", one.name().c_str(), static_cast<int>(outcome.result));
    for (uint32_t thread = 0; thread < std::min(options.warps, kWarps) * kLanes; ++thread) {
      print_values(one, outcome.inputs, outcome.outputs, thread);
    }
  });
  return 0;
}

// The lanes whose digests differ.
uint32_t different_lanes(const std::string& a, const std::string& b) {
  uint32_t lanes = 0;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    lanes |= static_cast<uint32_t>(a.compare(2 * lane, 2, b, 2 * lane, 2) != 0) << lane;
  }
  return lanes;
}

int compare(const std::string& path) {
  std::map<std::string, std::string> recorded;
  std::ifstream file(path);
  size_t waiting = 0;
  for (std::string line; std::getline(file, line);) {
    if (sscanf(line.c_str(), "# %zu cases wait", &waiting) == 1) continue;
    if (line.size() > 2 * kLanes && line[0] != '#') {
      recorded[line.substr(2 * kLanes + 1)] = line.substr(0, 2 * kLanes);
    }
  }
  size_t compared = 0, different = 0, missing = 0;
  Device(module_text(everything())).run(everything(), [&](const Case& one, const Outcome& outcome) {
    const auto found = recorded.find(one.name());
    const bool known = found != recorded.end();
    if (known) {
      ++compared;
    } else if (missing++ == waiting) {
      printf("not recorded, from here on: %s\n", one.name().c_str());
    }
    const bool ran = outcome.result == CUDA_SUCCESS;
    uint32_t lanes = 0;
    if (!ran) {
      lanes = ~0u;
    } else if (known) {
      lanes = different_lanes(digest(outcome.outputs), found->second);
    }
    if (lanes == 0) return;
    ++different;
    printf("%s: result %d, lanes %08x differ\n", one.name().c_str(),
           static_cast<int>(outcome.result), lanes);
    if (ran) {
      print_values(one, outcome.inputs, outcome.outputs,
                   static_cast<uint32_t>(__builtin_ctz(lanes)));
    }
  });
  printf("%zu cases compared, %zu wait for their recording, %zu differ or do not run\n", compared,
         missing, different);
  return compared > 0 && different == 0 && missing == waiting ? 0 : 1;
}

// Removes `NAME VALUE` from the arguments and returns VALUE, or "" if it is not there.
std::string take_option(std::vector<std::string>* arguments, const char* name) {
  const auto found = std::ranges::find(*arguments, name);
  if (arguments->end() - found < 2) return "";
  const std::string value = found[1];
  arguments->erase(found, found + 2);
  return value;
}

int run(std::vector<std::string> arguments) {
  Options options;
  const std::string image = take_option(&arguments, "--image");
  if (!image.empty()) options.image = read_file(image);
  const std::string list = take_option(&arguments, "--cases");
  if (!list.empty()) options.chosen = listed(list);
  const std::string warps = take_option(&arguments, "--warps");
  if (!warps.empty()) options.warps = static_cast<uint32_t>(std::stoul(warps));
  const std::string mode = arguments.empty() ? "" : arguments[0];
  if (mode == "ptx") return printf("%s", module_text(options.chosen).c_str()) > 0 ? 0 : 1;
  if (mode == "list") {
    for (const Case& one : cases()) printf("%s\n", one.name().c_str());
    return 0;
  }
  if (mode == "compare" && arguments.size() == 2) return compare(arguments[1]);
  if (options.image.empty()) options.image = module_text(everything());
  if (mode == "record" && arguments.size() == 1) return record(options);
  if (mode == "show") {
    if (arguments.size() > 1) options.chosen = named({arguments.begin() + 1, arguments.end()});
    return show(options);
  }
  printf("usage: conformance compare FILE | record | ptx | list | show [TEXT...]; see main.cc\n");
  return 2;
}

}  // namespace
}  // namespace conformance

int main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  return conformance::run({argv + 1, argv + argc});
}
