// SPDX-License-Identifier: Apache-2.0
// Compares a CUDA driver with what an H200 computed, instruction by instruction and bit by bit.
//   conformance compare FILE           run every case; a mismatch names instruction, lanes, values
//   conformance record [--image FILE]  print FILE for the driver at hand, from its own compiler or
//                                      from machine code that ptxas made of `conformance ptx`
//   conformance ptx                    print the module
//   conformance show TEXT              print inputs and results of the cases with TEXT in their
//   name
// A line of FILE: two hexadecimal digits for each lane (a digest of the lane's results in all
// warps), a blank, the case.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>

#include "api/prototypes.h"
#include "base/cuda_abi.h"
#include "inputs.h"
#include "kernels.h"

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
    CHECK_CU(cuMemAlloc_v2(&inputs_, kThreads * sizeof(ThreadInputs)));
    CHECK_CU(cuMemAlloc_v2(&outputs_, kThreads * sizeof(ThreadOutputs)));
  }

  CUresult run(size_t index, const std::vector<ThreadInputs>& inputs,
               std::vector<ThreadOutputs>* outputs) {
    outputs->assign(kThreads, {});
    const size_t input_bytes = inputs.size() * sizeof inputs[0];
    const size_t output_bytes = outputs->size() * sizeof outputs->front();
    CUfunction function = nullptr;
    CUresult result =
        cuModuleGetFunction(&function, module_, ("c" + std::to_string(index)).c_str());
    if (result != CUDA_SUCCESS) return result;
    CHECK_CU(cuMemcpyHtoD_v2(inputs_, inputs.data(), input_bytes));
    CHECK_CU(cuMemcpyHtoD_v2(outputs_, outputs->data(), output_bytes));
    void* arguments[] = {&inputs_, &outputs_};
    result = cuLaunchKernel(function, kWarps, 1, 1, kLanes, 1, 1, 0, nullptr, arguments, nullptr);
    if (result != CUDA_SUCCESS) return result;
    CHECK_CU(cuMemcpyDtoH_v2(outputs->data(), outputs_, output_bytes));
    return CUDA_SUCCESS;
  }

 private:
  CUmodule module_ = nullptr;
  CUdeviceptr inputs_ = 0, outputs_ = 0;
};

// Two digits for each lane.
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

std::vector<size_t> everything() {
  std::vector<size_t> all;
  for (size_t i = 0; i < cases().size(); ++i) all.push_back(i);
  return all;
}

void print_values(const Case& one, const std::vector<ThreadInputs>& inputs,
                  const std::vector<ThreadOutputs>& outputs, uint32_t thread) {
  const size_t used = one.inputs == Inputs::kMatrix ? kInputWords : 4;
  printf("    warp %u lane %u:", thread / kLanes, thread % kLanes);
  for (size_t i = 0; i < used; ++i) printf(" %llx", (unsigned long long)inputs[thread][i]);
  printf(" ->");
  const size_t made = one.inputs == Inputs::kMatrix ? kOutputWords : 1;
  for (size_t i = 0; i < made; ++i) printf(" %llx", (unsigned long long)outputs[thread][i]);
  printf("\n");
}

std::string read_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

int record(const std::string& image) {
  Device device(image);
  std::vector<ThreadOutputs> outputs;
  for (const size_t index : everything()) {
    const Case& one = cases()[index];
    const CUresult result = device.run(index, make_inputs(one), &outputs);
    if (result != CUDA_SUCCESS)
      printf("# error %d: %s\n", static_cast<int>(result), one.name().c_str());
    else
      printf("%s %s\n", digest(outputs).c_str(), one.name().c_str());
  }
  return 0;
}

int show(const std::string& image, const char* part, uint32_t warps) {
  Device device(image);
  std::vector<ThreadOutputs> outputs;
  for (const size_t index : everything()) {
    const Case& one = cases()[index];
    if (one.name().find(part) == std::string::npos) continue;
    const std::vector<ThreadInputs> inputs = make_inputs(one);
    const CUresult result = device.run(index, inputs, &outputs);
    printf("%s: %d\n", one.name().c_str(), static_cast<int>(result));
    for (uint32_t thread = 0; thread < warps * kLanes; ++thread)
      print_values(one, inputs, outputs, thread);
  }
  return 0;
}

// Results alone, for fitting models to: a line for each lane.
int values(const std::string& image, const char* part, uint32_t warps) {
  Device device(image);
  std::vector<ThreadOutputs> outputs;
  for (const size_t index : everything()) {
    const Case& one = cases()[index];
    if (one.name().find(part) == std::string::npos) continue;
    const CUresult result = device.run(index, make_inputs(one), &outputs);
    printf("= %d %s\n", static_cast<int>(result), one.name().c_str());
    const size_t made = one.inputs == Inputs::kMatrix ? kOutputWords : 1;
    for (uint32_t thread = 0; thread < warps * kLanes; ++thread)
      for (size_t i = 0; i < made; ++i)
        printf("%llx%c", (unsigned long long)outputs[thread][i],
               i + 1 < made || (made == 1 && thread % kLanes != kLanes - 1) ? ' ' : '\n');
  }
  return 0;
}

// The lanes whose digests differ.
uint32_t different_lanes(const std::string& a, const std::string& b) {
  uint32_t lanes = 0;
  for (uint32_t lane = 0; lane < kLanes; ++lane)
    lanes |= static_cast<uint32_t>(a.compare(2 * lane, 2, b, 2 * lane, 2) != 0) << lane;
  return lanes;
}

int compare(const char* path) {
  std::map<std::string, std::string> recorded;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.size() > 2 * kLanes && line[0] != '#')
      recorded[line.substr(2 * kLanes + 1)] = line.substr(0, 2 * kLanes);
  Device device(module_text(everything()));
  std::vector<ThreadOutputs> outputs;
  size_t compared = 0, different = 0, missing = 0;
  for (const size_t index : everything()) {
    const Case& one = cases()[index];
    const auto found = recorded.find(one.name());
    if (found == recorded.end()) {
      printf("not recorded: %s\n", one.name().c_str());
      ++missing;
      continue;
    }
    const std::vector<ThreadInputs> inputs = make_inputs(one);
    const CUresult result = device.run(index, inputs, &outputs);
    ++compared;
    const uint32_t lanes =
        result == CUDA_SUCCESS ? different_lanes(digest(outputs), found->second) : ~0u;
    if (lanes == 0) continue;
    ++different;
    printf("%s: result %d, lanes %08x differ\n", one.name().c_str(), static_cast<int>(result),
           lanes);
    if (result == CUDA_SUCCESS)
      print_values(one, inputs, outputs, static_cast<uint32_t>(__builtin_ctz(lanes)));
  }
  printf("%zu cases compared, %zu differ, %zu not recorded\n", compared, different, missing);
  return compared > 0 && different == 0 && missing == 0 ? 0 : 1;
}

int run(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  std::string image;
  if (argc > 3 && strcmp(argv[argc - 2], "--image") == 0) {
    image = read_file(argv[argc - 1]);
    argc -= 2;
  }
  if (mode == "ptx") return printf("%s", module_text(everything()).c_str()) > 0 ? 0 : 1;
  if (mode == "compare" && argc == 3) return compare(argv[2]);
  if (image.empty()) image = module_text(everything());
  if (mode == "record") return record(image);
  if (mode == "show" && argc >= 3)
    return show(image, argv[2], argc > 3 ? static_cast<uint32_t>(atoi(argv[3])) : 1);
  if (mode == "values" && argc == 4)
    return values(image, argv[2], static_cast<uint32_t>(atoi(argv[3])));
  printf("usage: conformance compare FILE | record | ptx | show TEXT [WARPS] [--image FILE]\n");
  return 2;
}

}  // namespace
}  // namespace conformance

int main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  return conformance::run(argc, argv);
}
