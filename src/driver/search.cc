// SPDX-License-Identifier: Apache-2.0
// Search paths of driver libraries. No streams and no globals: this is part of the client library.
#include "driver/search.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/environment.h"
#include "base/unique_fd.h"

namespace openmps {
namespace {

// Where distributions, NVIDIA's installer and container runtimes put the driver.
constexpr const char* kUsualDirectories[] = {
    "/usr/lib/x86_64-linux-gnu", "/usr/lib64",      "/usr/lib", "/usr/local/nvidia/lib64",
    "/usr/local/cuda/compat",    "/usr/lib/wsl/lib"};

// Device nodes that exist if and only if a kernel driver for NVIDIA GPUs is loaded (Linux, WSL).
constexpr const char* kDeviceNodes[] = {"/dev/nvidiactl", "/dev/dxg"};

// Longest configuration file of ld.so that is read; real ones are a few lines.
constexpr size_t kMaxConfigurationBytes = 64 * 1024;

std::string read_file(const std::string& path) {
  std::string text;
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char buffer[4096];
  while (fd.valid() && text.size() < kMaxConfigurationBytes) {
    const ssize_t got = ::read(fd.get(), buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(buffer, static_cast<size_t>(got));
  }
  return text;
}

void add_directory(std::string_view directory, std::vector<std::string>* directories) {
  if (directory.empty()) return;
  std::string name(directory);
  if (std::find(directories->begin(), directories->end(), name) == directories->end()) {
    directories->push_back(std::move(name));
  }
}

// Calls `take` for each non-empty part of `text`.
template <typename Take>
void split(std::string_view text, const char* separators, Take take) {
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(separators), text.size());
    if (end != 0) take(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

// The directory lines of one file of ld.so; its include lines name ld.so.conf.d, read as a whole.
void add_configured(const std::string& file, std::vector<std::string>* directories) {
  split(read_file(file), "\n", [&](std::string_view line) {
    const std::string_view entry = line.substr(0, line.find_first_of(" \t#="));
    if (!entry.empty() && entry.front() == '/') add_directory(entry, directories);
  });
}

std::vector<std::string> nvidia_directories() {
  std::vector<std::string> directories;
  if (const char* path = environment_variable("LD_LIBRARY_PATH")) {
    split(path, ":;", [&](std::string_view entry) { add_directory(entry, &directories); });
  }
  constexpr const char* kFolder = "/etc/ld.so.conf.d";
  std::vector<std::string> files = {"/etc/ld.so.conf"};
  if (DIR* folder = ::opendir(kFolder)) {
    while (const dirent* entry = ::readdir(folder)) {
      const std::string_view name = entry->d_name;
      if (name.size() > 5 && name.substr(name.size() - 5) == ".conf") {
        files.push_back(std::string(kFolder) + "/" + entry->d_name);
      }
    }
    ::closedir(folder);
  }
  std::sort(files.begin() + 1, files.end());
  for (const std::string& file : files) add_configured(file, &directories);
  for (const char* directory : kUsualDirectories) add_directory(directory, &directories);
  return directories;
}

// Directory of the program or library that contains this function, without symbolic links.
std::string own_directory() {
  Dl_info info = {};
  const char* path = "/proc/self/exe";
  // For the program itself dladdr knows argv[0] only, which need not be a path.
  if (dladdr(reinterpret_cast<void*>(&own_directory), &info) != 0 && info.dli_fname != nullptr &&
      strcmp(info.dli_fname, program_invocation_name) != 0 &&
      strchr(info.dli_fname, '/') != nullptr) {
    path = info.dli_fname;
  }
  char* resolved = ::realpath(path, nullptr);
  if (resolved == nullptr) return "";
  std::string directory(resolved);
  free(resolved);
  return directory.substr(0, directory.rfind('/'));
}

}  // namespace

DriverSearch default_driver_search() {
  DriverSearch search;
  search.nvidia_directories = nvidia_directories();
  const std::string own = own_directory();
  // From bin/ and from lib/openmps/, the layout of the build tree and of an installation.
  search.softgpu_paths = {own + "/../lib/softgpu/libcuda.so.1", own + "/../softgpu/libcuda.so.1"};
  for (const char* node : kDeviceNodes) {
    search.gpu_present = search.gpu_present || ::access(node, F_OK) == 0;
  }
  return search;
}

}  // namespace openmps
