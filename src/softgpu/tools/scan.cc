// SPDX-License-Identifier: Apache-2.0
// softgpu-scan: which kernels of programs and libraries softgpu could run, and why not the others.
// Looks for containers of device code in any file, and compiles the PTX that a device of the given
// compute capability would get. Runs nothing.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "cuda/fatbin.h"
#include "cuda/unpack.h"
#include "softgpu/engine.h"

namespace {

using namespace openmps;

constexpr uint32_t kDefaultCapability =
    130;  // what programs with CUDA's libraries need (decision 41)
constexpr int kSomeDoNotRun = 1;
constexpr int kUsage = 2;

constexpr char kHelp[] =
    "usage: softgpu-scan [--capability X.Y] [--verbose] FILE...\n"
    "\n"
    "Which kernels of programs, libraries and PTX files softgpu could run. For each file: its "
    "modules with\n"
    "PTX for the device, their kernels, and the modules that do not compile. Then, for all files, "
    "the\n"
    "instructions that fault when they are reached, each with the number of functions that have "
    "it, and the\n"
    "reasons of modules and kernels that are refused. Exit code 1: there are some.\n"
    "\n"
    "  --capability X.Y   the device's compute capability (default: 13.0)\n"
    "  --verbose          name each function and kernel\n"
    "  --help\n";

struct Report {
  size_t modules = 0;
  size_t kernels = 0;
  size_t refused_modules = 0;
  size_t refused_kernels = 0;
  size_t faulting_functions = 0;
};

// A reason, with what it concerns.
using Reasons = std::map<std::string, std::vector<std::string>>;

class Scan {
 public:
  explicit Scan(uint32_t capability) : capability_(capability) {}

  // False: it can't be read.
  bool file(const std::string& path);
  [[nodiscard]] const Reasons& reasons() const { return reasons_; }

 private:
  void container(cuda::Bytes bytes);
  void module(const std::string& text);

  const uint32_t capability_;
  Report report_;
  Reasons reasons_;
};

bool Scan::file(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!file.valid() || fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    fprintf(stderr, "softgpu-scan: %s: %s\n", path.c_str(),
            file.valid() ? "it is no regular file" : strerror(errno));
    return false;
  }
  report_ = {};
  const auto bytes = static_cast<size_t>(info.st_size);
  void* mapped =
      bytes == 0 ? MAP_FAILED : mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (mapped != MAP_FAILED) {
    const cuda::Bytes all(static_cast<const unsigned char*>(mapped), bytes);
    size_t containers = 0;
    for (size_t at = 0; at < bytes;) {
      const void* found = memmem(&all[at], bytes - at, &cuda::kContainerMagic, sizeof(uint32_t));
      if (found == nullptr) break;
      at = static_cast<size_t>(static_cast<const unsigned char*>(found) - all.data());
      const Result<cuda::Bytes> whole = cuda::front_container(all.subspan(at));
      if (whole.ok()) {
        container(*whole);
        ++containers;
      }
      at += whole.ok() ? whole->size() : sizeof(uint32_t);
    }
    if (containers == 0) {
      const std::string text(reinterpret_cast<const char*>(all.data()), bytes);
      if (text.find(".version") != std::string::npos) module(text);
    }
    munmap(mapped, bytes);
  }
  printf("%-40s %7zu %7zu %9zu %9zu %9zu\n", path.substr(path.rfind('/') + 1).c_str(),
         report_.modules, report_.kernels, report_.faulting_functions, report_.refused_kernels,
         report_.refused_modules);
  fflush(stdout);
  return true;
}

// The newest PTX in it that the device may run.
void Scan::container(cuda::Bytes bytes) {
  std::vector<cuda::FatbinEntry> newest;
  const Status walked = cuda::for_each_entry(bytes, [&](const cuda::FatbinEntry& entry) {
    if (!cuda::may_run(entry.header, cuda::kPtxEntry, capability_)) return Status();
    const uint32_t best = newest.empty() ? 0 : newest.front().header.architecture;
    if (entry.header.architecture > best) newest.clear();
    if (entry.header.architecture >= best) newest.push_back(entry);
    return Status();
  });
  if (!walked.ok()) return;  // the magic number was no container's
  for (const cuda::FatbinEntry& entry : newest) {
    std::vector<unsigned char> buffer;
    const Result<cuda::Bytes> text = cuda::unpack(entry, &buffer);
    if (!text.ok()) {
      ++report_.modules;
      ++report_.refused_modules;
      reasons_[text.status().message()].emplace_back("a module");
      continue;
    }
    module(std::string(reinterpret_cast<const char*>(text->data()), text->size()));
  }
}

void Scan::module(const std::string& text) {
  ++report_.modules;
  softgpu::CompileError error;
  const auto program =
      softgpu::compile(text.c_str(), text.size() + 1, {.compute_capability = capability_}, &error);
  if (program == nullptr) {
    ++report_.refused_modules;
    reasons_["module: " + error.log].emplace_back("a module");
    return;
  }
  report_.kernels += program->kernels().size();
  for (const softgpu::KernelInfo& kernel : program->kernels()) {
    if (kernel.unusable.empty()) continue;
    ++report_.refused_kernels;
    reasons_["kernel: " + kernel.unusable].push_back(kernel.name);
  }
  std::string last;
  for (const std::string& what : program->unsupported()) {  // "function: opcode"
    const size_t colon = what.find(": ");
    const std::string function = what.substr(0, colon);
    if (function != last) ++report_.faulting_functions;
    last = function;
    auto& functions = reasons_[what.substr(colon + 2)];
    if (functions.empty() || functions.back() != function) functions.push_back(function);
  }
}

// "13.0" or "130". False: it is neither.
bool parse_capability(std::string_view text, uint32_t* capability) {
  std::string digits(text);
  std::erase(digits, '.');
  const auto [end, failed] =
      std::from_chars(digits.data(), digits.data() + digits.size(), *capability);
  return failed == std::errc() && end == digits.data() + digits.size() && *capability >= 50;
}

}  // namespace

int main(int argc, char** argv) {  // NOLINT(bugprone-exception-escape): ends the program
  uint32_t capability = kDefaultCapability;
  bool verbose = false;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--help" || word == "-h") return fputs(kHelp, stdout), 0;
    if (word == "--verbose" || word == "-v") {
      verbose = true;
    } else if (word == "--capability" && i + 1 < argc) {
      if (!parse_capability(argv[++i], &capability)) {
        fprintf(stderr, "softgpu-scan: %s is no compute capability\n", argv[i]);
        return kUsage;
      }
    } else if (word.starts_with('-')) {
      fprintf(stderr, "softgpu-scan: there is no option %s\n", argv[i]);
      return kUsage;
    } else {
      files.emplace_back(word);
    }
  }
  if (files.empty()) return fputs(kHelp, stderr), kUsage;

  printf("%-40s %7s %7s %9s %9s %9s\n%-40s %7s %7s %9s %9s %9s\n", "", "", "", "functions",
         "kernels", "modules", "file", "modules", "kernels", "fault", "refused", "refused");
  Scan scan(capability);
  bool read_all = true;
  for (const std::string& path : files) read_all = scan.file(path) && read_all;
  if (!scan.reasons().empty()) printf("\n");
  for (const auto& [reason, concerned] : scan.reasons()) {
    printf("%6zu  %s\n", concerned.size(), reason.c_str());
    if (!verbose) continue;
    for (const std::string& name : concerned) printf("        %s\n", name.c_str());
  }
  if (!read_all) return kUsage;
  return scan.reasons().empty() ? 0 : kSomeDoNotRun;
}
