// SPDX-License-Identifier: Apache-2.0
// The output of softgpu-ptxas can be loaded and runs, as in a program that starts ptxas at run
// time. Invalid inputs are refused as by ptxas. Run by run_e2e.py. usage: drv_assembled
// PATH_OF_PTXAS
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "driver.h"

namespace {

constexpr uint32_t kItems = 1000;
constexpr int kRefused = 255;

std::string g_ptxas;

// Runs ptxas. The result is its exit code; `output` gets the text that it printed.
int run(const std::string& arguments, std::string* output = nullptr) {
  FILE* pipe = popen((g_ptxas + " " + arguments + " 2>&1").c_str(), "re");
  if (pipe == nullptr) exit(1);
  std::string text;
  char part[256];
  while (fgets(part, sizeof part, pipe) != nullptr) text += part;
  const int status = pclose(pipe);
  if (output != nullptr) *output = text;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void write_file(const char* path, const std::string& text) {
  FILE* file = fopen(path, "we");
  if (file == nullptr || fwrite(text.data(), 1, text.size(), file) != text.size()) exit(1);
  fclose(file);
}

void runs(const e2e::Session& session) {
  write_file("in.ptx", e2e::kernels_ptx());
  std::string output;
  e2e::expect(run("-lineinfo -v --gpu-name=sm_90 in.ptx -o out.cubin", &output) == 0, "assembled");
  e2e::expect(output.find("Compiling entry function 'vector_add' for 'sm_90'") != std::string::npos,
              "kernels are described");
  CUmodule module = nullptr;
  CHECK_CU(cuModuleLoad(&module, "out.cubin"));
  CUfunction add = nullptr;
  CHECK_CU(cuModuleGetFunction(&add, module, "vector_add"));
  std::vector<float> a(kItems);
  for (uint32_t i = 0; i < kItems; i++) a[i] = static_cast<float>(i);
  const e2e::Buffer<float> from(a);
  const e2e::Buffer<float> sum(kItems);
  e2e::launch(add, e2e::blocks_for(kItems, 128), 128, 0, nullptr, from.address, from.address,
              sum.address, kItems);
  bool right = true;
  const std::vector<float> result = sum.get();
  for (uint32_t i = 0; i < kItems; i++) right = right && result[i] == 2 * a[i];
  e2e::expect(right, "and run");
  CHECK_CU(cuModuleUnload(module));
  static_cast<void>(session);
}

void refuses() {
  std::string output;
  write_file(
      "bad.ptx",
      ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { add.u32 %r1, 1; }\n");
  e2e::expect(run("-arch sm_90 bad.ptx", &output) == kRefused, "what is no PTX is refused");
  e2e::expect(output.starts_with("ptxas"), "with the reason");
  e2e::expect(run("none.ptx") == kRefused, "a file that is not there is refused");
  e2e::expect(run("-arch=tesla in.ptx") == kRefused, "an unknown device is refused");
  e2e::expect(run("in.ptx -o /nowhere/out") == kRefused, "a place that is not there is refused");
  e2e::expect(run("-arch=sm_60 in.ptx") == kRefused, "PTX for newer devices is refused");
  for (const char* file : {"in.ptx", "bad.ptx", "out.cubin", "elf.o"}) unlink(file);
  e2e::expect(run("--version", &output) == 0 && output.find("release 13.0,") != std::string::npos,
              "the version");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  g_ptxas = argv[1];
  const e2e::Session session;
  runs(session);
  refuses();
  return e2e::finish();
}
