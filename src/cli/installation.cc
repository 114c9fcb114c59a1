// SPDX-License-Identifier: Apache-2.0
// The paths of this installation.
#include "cli/installation.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "base/environment.h"
#include "base/subprocess.h"

namespace openmps::cli {
namespace {

constexpr const char* kLibrary = "/libcuda.so.1";

}  // namespace

Result<Installation> find_installation() {
  Result<std::string> bin = program_directory();
  if (!bin.ok()) return bin.status();
  const std::string root = bin->substr(0, bin->rfind('/'));
  return Installation{*bin + "/openmps-control",        *bin + "/openmps-server",
                      *bin + "/openmps-worker",         root + "/lib/openmps",
                      root + "/lib/openmps" + kLibrary, root + "/lib/softgpu" + kLibrary};
}

std::string library_on_path() {
  const std::string path = environment_or("LD_LIBRARY_PATH", "");
  std::string_view rest = path;
  while (!rest.empty()) {
    const std::string_view folder = rest.substr(0, rest.find_first_of(":;"));
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
    std::string candidate = (folder.empty() ? "." : std::string(folder)) + kLibrary;
    if (access(candidate.c_str(), R_OK) == 0) return candidate;
  }
  return "";
}

std::string why_not_loadable(const std::string& library) {
  if (dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL) != nullptr) return "";
  return dlerror();
}

std::string nvidia_library() {
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
                             "/usr/lib64", "/usr/lib", "/usr/local/nvidia/lib64"}) {
    std::string candidate = std::string(folder) + kLibrary;
    if (access(candidate.c_str(), R_OK) == 0) return candidate;
  }
  return "";
}

}  // namespace openmps::cli
