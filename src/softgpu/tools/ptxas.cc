// SPDX-License-Identifier: Apache-2.0
// softgpu-ptxas: stands in for NVIDIA's ptxas where a program starts it to compile PTX at run time
// (TRITON_PTXAS_PATH, XLA's search of PATH). It checks the PTX as softgpu's driver would, and
// writes a container with it, which cuModuleLoadData takes in place of machine code.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <string_view>

#include "cuda/fatbin.h"
#include "softgpu/engine.h"

namespace {

using namespace openmps;

constexpr int kFailed = 255;                 // ptxas's exit code
constexpr uint32_t kDefaultCapability = 75;  // ptxas 13.0's

constexpr char kVersion[] =
    "ptxas: softgpu's stand-in for NVIDIA (R) Ptx optimizing assembler\n"
    "Cuda compilation tools, release 13.0, V13.0.88\n";
constexpr char kHelp[] =
    "usage: softgpu-ptxas [options] FILE.ptx\n"
    "\n"
    "Checks PTX as softgpu's driver does, and writes it as what cuModuleLoadData takes. Made to be "
    "started\n"
    "in place of NVIDIA's ptxas, e.g. by TRITON_PTXAS_PATH; other options of ptxas have no "
    "effect.\n"
    "\n"
    "  -o, --output-file FILE   where to write (default: elf.o)\n"
    "  -arch, --gpu-name sm_XY  the device (default: sm_75)\n"
    "  -v, --verbose            say what each kernel needs\n"
    "  -V, --version\n"
    "  -h, --help\n";

struct Options {
  std::string input;
  std::string output = "elf.o";
  uint32_t capability = kDefaultCapability;  // 10 * major + minor
  bool verbose = false;
};

[[noreturn]] void fail(const std::string& why) {
  fprintf(stderr, "ptxas fatal   : %s\n", why.c_str());
  exit(kFailed);
}

// "sm_90a" is 90.
uint32_t capability_of(const std::string& name) {
  unsigned number = 0;
  if (sscanf(name.c_str(), "sm_%u", &number) == 1 ||
      sscanf(name.c_str(), "compute_%u", &number) == 1) {
    return number;
  }
  fail("Value '" + name + "' is not defined for option 'gpu-name'");
}

Options parse(int count, char** words) {
  // Options whose value may be the next word.
  static const std::set<std::string_view> with_value = {"-o",
                                                        "--output-file",
                                                        "-arch",
                                                        "--gpu-name",
                                                        "-O",
                                                        "--opt-level",
                                                        "-m",
                                                        "--machine",
                                                        "-maxrregcount",
                                                        "--maxrregcount",
                                                        "-dlcm",
                                                        "--def-load-cache",
                                                        "-dscm",
                                                        "--def-store-cache",
                                                        "-split-compile",
                                                        "--split-compile",
                                                        "-ftz",
                                                        "-e",
                                                        "--entry"};
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    if (word == "-V" || word == "--version") {
      fputs(kVersion, stdout);
      exit(0);
    }
    if (word == "-h" || word == "--help") {
      fputs(kHelp, stdout);
      exit(0);
    }
    if (word == "-v" || word == "--verbose") options.verbose = true;
    if (!word.starts_with('-')) {
      if (!options.input.empty()) fail("More than one input file: " + std::string(word));
      options.input = word;
      continue;
    }
    const size_t equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    std::string value;
    if (equals != std::string_view::npos) {
      value = word.substr(equals + 1);
    } else if (with_value.contains(name)) {
      if (i + 1 == count) fail("Missing value of option " + std::string(word));
      value = words[++i];
    }
    if (name == "-o" || name == "--output-file") options.output = value;
    if (name == "-arch" || name == "--gpu-name") options.capability = capability_of(value);
  }
  if (options.input.empty()) fail("No input files specified");
  return options;
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail("Could not open input file '" + path + "'");
  return {std::istreambuf_iterator<char>(file), {}};
}

void describe(const softgpu::Program& program, const Options& options) {
  for (const softgpu::KernelInfo& kernel : program.kernels()) {
    fprintf(stderr,
            "ptxas info    : Compiling entry function '%s' for 'sm_%u'\n"
            "ptxas info    : Function properties for %s\n"
            "    %u bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
            "ptxas info    : Used %u registers, %u bytes smem\n",
            kernel.name.c_str(), options.capability, kernel.name.c_str(), kernel.local_bytes,
            kernel.registers, kernel.static_shared_bytes);
  }
}

// A container with the text as its only entry.
std::string contain(const std::string& text, uint32_t capability) {
  constexpr size_t kAlignment = 8;
  constexpr uint32_t kOptionBytes = kAlignment;  // of the compiler's options: none
  std::string payload = text + '\0';
  const size_t bytes = payload.size();
  payload.resize((bytes + kAlignment - 1) / kAlignment * kAlignment);
  cuda::EntryHeader entry{};
  entry.kind = cuda::kPtxEntry;
  entry.version = 0x101;
  entry.header_bytes = sizeof entry + kOptionBytes;
  entry.payload_bytes = payload.size();
  entry.options_offset = sizeof entry;
  entry.architecture = capability;
  entry.bits = 64;
  const cuda::ContainerHeader header{cuda::kContainerMagic, 1, sizeof header,
                                     entry.header_bytes + payload.size()};
  std::string all(reinterpret_cast<const char*>(&header), sizeof header);
  all.append(reinterpret_cast<const char*>(&entry), sizeof entry);
  return all + std::string(kOptionBytes, '\0') + payload;
}

}  // namespace

int main(int argc, char** argv) {  // NOLINT(bugprone-exception-escape): ends the program
  const Options options = parse(argc, argv);
  const std::string text = read_text(options.input);
  softgpu::CompileError error;
  const auto program = softgpu::compile(text.c_str(), text.size() + 1,
                                        {.compute_capability = options.capability}, &error);
  if (program == nullptr) {
    fprintf(stderr, "%s\n", error.log.c_str());
    return kFailed;
  }
  for (const softgpu::KernelInfo& kernel : program->kernels()) {
    if (kernel.unusable.empty()) continue;
    fprintf(stderr, "%s\n", kernel.unusable.c_str());
    return kFailed;
  }
  for (const std::string& what : program->unsupported()) {
    fprintf(stderr, "ptxas warning : softgpu can't run this: %s\n", what.c_str());
  }
  if (options.verbose) describe(*program, options);
  std::ofstream file(options.output, std::ios::binary | std::ios::trunc);
  file << contain(text, options.capability);
  file.close();
  if (!file) fail("Could not write output file '" + options.output + "'");
  return 0;
}
