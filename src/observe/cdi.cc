// SPDX-License-Identifier: Apache-2.0
// See cdi.h.
#include "observe/cdi.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.h"
#include "base/unique_fd.h"

namespace openmps::observe {
namespace {

// The oldest version that has all that is said here (device names that begin with a digit), since
// engines refuse a file of a version that is newer than they are. Podman 4.3 and Docker 25 read it.
constexpr const char* kCdiVersion = "0.5.0";
// name, server, server-status, pinned-memory-limit, active-thread-percentage, client-priority,
// pipe-directory.
enum Field { kName, kServer, kDirectory = 6, kFields };

constexpr const char* kClientName = "/libcuda.so.1";
constexpr const char* kNvmlName = "/libnvidia-ml.so.1";
constexpr const char* kNvmlFolder = "/nvml";

// In the container. Not below /tmp, which many containers mount over.
constexpr const char* kPipeDirectory = "/run/openmps";
// A place that the dynamic linker searches by itself for each family of distributions: Debian's and
// Fedora's. It does not mind a file in a place that it does not search. The format can't say
// otherwise where a library is: a value of LD_LIBRARY_PATH would replace the image's own, and
// refreshing the linker's cache needs a program that the engine runs in the container as root.
// NVIDIA's container toolkit puts its libraries there, too, under names with their versions. What
// programs load by name is ours then, both libraries together: CUDA and NVML tell of one GPU.
#ifdef __aarch64__
constexpr const char* kLibraryFolders[] = {"/usr/lib/aarch64-linux-gnu", "/usr/lib64"};
#else
constexpr const char* kLibraryFolders[] = {"/usr/lib/x86_64-linux-gnu", "/usr/lib64"};
#endif

// What stands for bytes that are no text, in UTF-8.
constexpr const char* kNoCharacter = "\xEF\xBF\xBD";

// Readable for every engine and user, like the files beside it.
constexpr mode_t kFileMode = 0644;

Status invalid(const std::string& why) { return Status(CUDA_ERROR_INVALID_VALUE, why); }

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Letters, digits and `others`, with a letter or a digit at both ends.
bool is_word(std::string_view text, std::string_view others) {
  const auto is_plain = [](char c) { return is_letter(c) || is_digit(c); };
  const auto fits = [&](char c) { return is_plain(c) || others.find(c) != std::string_view::npos; };
  return !text.empty() && std::ranges::all_of(text, fits) && is_plain(text.front()) &&
         is_plain(text.back());
}

// The lines of a table of comma-separated values. A field that has a comma, a quotation mark or a
// newline is in quotation marks, and a quotation mark in it is doubled.
std::vector<std::vector<std::string>> csv_lines(std::string_view text) {
  std::vector<std::vector<std::string>> lines;
  std::vector<std::string> line(1);
  bool is_quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_quoted && c == '"' && i + 1 < text.size() && text[i + 1] == '"') {
      line.back() += text[++i];
    } else if (c == '"') {
      is_quoted = !is_quoted;
    } else if (is_quoted || (c != ',' && c != '\n')) {
      line.back() += c;
    } else if (c == ',') {
      line.emplace_back();
    } else {
      lines.push_back(std::exchange(line, std::vector<std::string>(1)));
    }
  }
  if (line.size() > 1 || !line[0].empty()) lines.push_back(line);
  return lines;
}

Status check_names(const CdiSpec& spec) {
  if (!is_word(spec.vendor, "_-.") || !is_letter(spec.vendor[0])) {
    return invalid(
        "a vendor begins with a letter, has letters, digits, _, - and ., and ends with "
        "a letter or digit: not " +
        printable(spec.vendor));
  }
  // Dots in it came with version 0.6.0.
  if (!is_word(spec.device_class, "_-") || !is_letter(spec.device_class[0])) {
    return invalid(
        "a class begins with a letter, has letters, digits, _ and -, and ends with a "
        "letter or digit: not " +
        printable(spec.device_class));
  }
  if (!spec.libraries.client.starts_with('/')) {
    return invalid("the library's path has to begin with /: " + printable(spec.libraries.client));
  }
  for (const CdiDevice& device : spec.devices) {
    if (is_word(device.name, "_-.:")) continue;
    return invalid(
        "the name of a device has letters, digits, _, -, . and :, and begins and ends "
        "with a letter or digit: not " +
        printable(device.name));
  }
  return Status();
}

nlohmann::ordered_json json_of(const std::vector<ContainerMount>& mounts) {
  auto list = nlohmann::ordered_json::array();
  for (const ContainerMount& mount : mounts) {
    list.push_back({{"hostPath", mount.from},
                    {"containerPath", mount.to},
                    {"options", {"ro", "nosuid", "nodev", "bind"}}});
  }
  return list;
}

nlohmann::ordered_json json_of(const std::vector<std::pair<std::string, std::string>>& variables) {
  auto list = nlohmann::ordered_json::array();
  for (const auto& [name, value] : variables) list.push_back(name + "=" + value);
  return list;
}

// The directory, and perhaps variables, are what one device has and another has not.
nlohmann::ordered_json json_of(const CdiDevice& device) {
  nlohmann::ordered_json edits{{"mounts", json_of(std::vector{share_mount(device.directory)})}};
  if (!device.environment.empty()) edits["env"] = json_of(device.environment);
  return {{"name", device.name}, {"containerEdits", edits}};
}

Status system_error(const std::string& what) {
  return Status(CUDA_ERROR_OPERATING_SYSTEM, what + ": " + strerror(errno));
}

Status write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_error("writing");
    text.remove_prefix(static_cast<size_t>(written));
  }
  // Its name comes after its content, also when the machine stops.
  return fchmod(file, kFileMode) == 0 && fsync(file) == 0 ? Status() : system_error("writing");
}

}  // namespace

Result<std::vector<Share>> read_shares(std::string_view csv) {
  std::vector<Share> shares;
  for (const std::vector<std::string>& line : csv_lines(csv)) {
    if (line.size() == 1 && line[0].empty()) continue;
    if (line.size() != kFields || !line[kDirectory].starts_with('/')) {
      return invalid("the daemon's list of namespaces has a line that is none: " +
                     printable(line[0]));
    }
    shares.push_back({line[kServer], line[kName], line[kDirectory]});
  }
  return shares;
}

ContainerMount share_mount(const std::string& directory) { return {directory, kPipeDirectory}; }

ContainerLibraries libraries_at(const std::string& client_library) {
  ContainerLibraries libraries{client_library};
  const std::string folder = client_library.substr(0, client_library.rfind('/'));
  const std::string nvml = folder + kNvmlFolder + kNvmlName;
  std::error_code error;
  if (std::filesystem::is_regular_file(nvml, error)) libraries.nvml = nvml;
  return libraries;
}

std::vector<ContainerMount> library_mounts(const ContainerLibraries& libraries) {
  std::vector<ContainerMount> mounts;
  for (const char* folder : kLibraryFolders) {
    mounts.push_back({libraries.client, std::string(folder) + kClientName});
    if (libraries.nvml.empty()) continue;
    mounts.push_back({libraries.nvml, std::string(folder) + kNvmlName});
  }
  return mounts;
}

std::vector<std::pair<std::string, std::string>> share_environment() {
  // Without OPENMPS_REQUIRED a container that has NVIDIA's driver, too, would run without limits
  // when the daemon has gone.
  return {{"CUDA_MPS_PIPE_DIRECTORY", kPipeDirectory}, {"OPENMPS_REQUIRED", "1"}};
}

Result<std::string> cdi_text(const CdiSpec& spec) {
  OPENMPS_RETURN_IF_ERROR(check_names(spec));
  auto devices = nlohmann::ordered_json::array();
  for (const CdiDevice& device : spec.devices) devices.push_back(json_of(device));
  const nlohmann::ordered_json text = {{"cdiVersion", kCdiVersion},
                                       {"kind", spec.vendor + "/" + spec.device_class},
                                       {"containerEdits",
                                        {{"env", json_of(share_environment())},
                                         {"mounts", json_of(library_mounts(spec.libraries))}}},
                                       {"devices", devices}};
  const std::string file =
      text.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  if (file.find(kNoCharacter) != std::string::npos) return invalid("a path is not UTF-8");
  return file;
}

Status replace_file(const std::string& path, std::string_view text) {
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return Status(CUDA_ERROR_OPERATING_SYSTEM, folder.string() + ": " + error.message());
  }
  // Engines read the names that end in .json and .yaml only.
  std::string temporary = path + ".XXXXXX";
  const UniqueFd file(mkostemp(temporary.data(), O_CLOEXEC));
  if (!file.valid()) return system_error("a file beside " + path);
  Status written = write_all(file.get(), text);
  if (written.ok() && rename(temporary.c_str(), path.c_str()) != 0) {
    written = system_error("replacing it");
  }
  if (written.ok()) return written;
  (void)unlink(temporary.c_str());
  return Status(written.code(), path + ": " + written.message());
}

}  // namespace openmps::observe
