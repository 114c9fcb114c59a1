// SPDX-License-Identifier: Apache-2.0
// `openmps cdi generate`: the file's text, and its place.
#include "cli/cdi.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.h"
#include "base/unique_fd.h"
#include "cli/installation.h"
#include "observe/snapshot.h"
#include "wire/control_call.h"
#include "wire/daemon_search.h"

namespace openmps::cli {
namespace {

// The oldest version that has all that is said here (device names that begin with a digit), since
// engines refuse a file of a version that is newer than they are. Podman 4.3 and Docker 25 read it.
constexpr const char* kCdiVersion = "0.5.0";
constexpr const char* kListCommand = "namespace list --format=csv,noheader";
// name, server, server-status, pinned-memory-limit, active-thread-percentage, client-priority,
// pipe-directory.
enum Field { kName, kServer, kDirectory = 6, kFields };

// In the container. Not below /tmp, which many containers mount over.
constexpr const char* kPipeDirectory = "/run/openmps";
// A place that the dynamic linker searches by itself for each family of distributions: Debian's and
// Fedora's. It does not mind a file in a place that it does not search. The format can't say
// otherwise where a library is: a value of LD_LIBRARY_PATH would replace the image's own, and
// refreshing the linker's cache needs a program that the engine runs in the container as root.
#ifdef __aarch64__
constexpr const char* kLibraryPlaces[] = {"/usr/lib/aarch64-linux-gnu/libcuda.so.1",
                                          "/usr/lib64/libcuda.so.1"};
#else
constexpr const char* kLibraryPlaces[] = {"/usr/lib/x86_64-linux-gnu/libcuda.so.1",
                                          "/usr/lib64/libcuda.so.1"};
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

std::string full_name(const Share& share) { return share.server + "/" + share.name; }

Status check_names(const CdiOptions& options) {
  if (!is_word(options.vendor, "_-.") || !is_letter(options.vendor[0])) {
    return invalid(
        "a vendor begins with a letter, has letters, digits, _, - and ., and ends with "
        "a letter or digit: not " +
        printable(options.vendor));
  }
  // Dots in it came with version 0.6.0.
  if (!is_word(options.device_class, "_-") || !is_letter(options.device_class[0])) {
    return invalid(
        "a class begins with a letter, has letters, digits, _ and -, and ends with a "
        "letter or digit: not " +
        printable(options.device_class));
  }
  if (!options.library.starts_with('/')) {
    return invalid("the library's path has to begin with /: " + printable(options.library));
  }
  return Status();
}

nlohmann::ordered_json mount(const std::string& from, const std::string& to) {
  return {
      {"hostPath", from}, {"containerPath", to}, {"options", {"ro", "nosuid", "nodev", "bind"}}};
}

// The directory alone is what one device has and another has not.
nlohmann::ordered_json device(const std::string& name, const std::string& directory) {
  return {{"name", name},
          {"containerEdits",
           {{"mounts", nlohmann::ordered_json::array({mount(directory, kPipeDirectory)})}}}};
}

nlohmann::ordered_json for_all_devices(const std::string& library) {
  nlohmann::ordered_json mounts = nlohmann::ordered_json::array();
  for (const char* place : kLibraryPlaces) mounts.push_back(mount(library, place));
  // Without OPENMPS_REQUIRED a container that has NVIDIA's driver, too, would run without limits
  // when the daemon has gone.
  return {{"env", {std::string("CUDA_MPS_PIPE_DIRECTORY=") + kPipeDirectory, "OPENMPS_REQUIRED=1"}},
          {"mounts", mounts}};
}

Result<std::vector<Share>> ask_for_shares(int daemon) {
  Result<wire::ControlReply> reply = wire::call_control(daemon, kListCommand);
  if (!reply.ok()) return reply.status();
  if (reply->exit_status != 0) {
    return invalid("the daemon does not list its namespaces: " +
                   printable(reply->text.substr(0, reply->text.find('\n'))));
  }
  return read_shares(reply->text);
}

Result<std::string> text_by_daemon(CdiOptions options) {
  if (options.library.empty()) {
    Result<Installation> installation = find_installation();
    if (!installation.ok()) return installation.status();
    options.library = installation->client_library;
  }
  const auto [directory, daemon] = wire::find_daemon();
  if (!daemon.ok()) return daemon.status();
  Result<std::vector<Share>> shares = ask_for_shares(daemon->get());
  if (!shares.ok()) return shares.status();
  shares = choose_shares(*shares, options.shares);
  if (!shares.ok()) return shares.status();
  std::error_code error;
  const std::string own = std::filesystem::canonical(directory, error).string();
  if (error) return invalid(directory + ": " + error.message());
  return cdi_text(*shares, options, own);
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

std::string device_name(const Share& share) { return share.server + ":" + share.name; }

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

Result<std::vector<Share>> choose_shares(const std::vector<Share>& shares,
                                         const std::vector<std::string>& names) {
  if (names.empty()) return shares;
  std::vector<Share> chosen;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(shares, name, full_name);
    if (found == shares.end()) {
      std::string known;
      for (const Share& share : shares) known += (known.empty() ? "" : ", ") + full_name(share);
      return Status(CUDA_ERROR_NOT_FOUND,
                    "there is no namespace " + printable(name) +
                        (known.empty() ? ", nor any other" : "; there are: " + known));
    }
    if (std::ranges::find(chosen, name, full_name) == chosen.end()) chosen.push_back(*found);
  }
  return chosen;
}

Result<std::string> cdi_text(const std::vector<Share>& shares, const CdiOptions& options,
                             const std::string& own_directory) {
  OPENMPS_RETURN_IF_ERROR(check_names(options));
  nlohmann::ordered_json devices = nlohmann::ordered_json::array();
  for (const Share& share : shares) {
    const std::string name = device_name(share);
    if (!is_word(name, "_-.:")) {
      return invalid(
          "the name of a device has letters, digits, _, -, . and :, and begins and ends "
          "with a letter or digit: not " +
          printable(name));
    }
    devices.push_back(device(name, share.directory));
  }
  if (options.all) devices.push_back(device("all", own_directory));
  if (devices.empty()) {
    return invalid(
        "the daemon has no namespace: make one with `openmps-control namespace create`, "
        "or give --all");
  }
  const nlohmann::ordered_json text = {{"cdiVersion", kCdiVersion},
                                       {"kind", options.vendor + "/" + options.device_class},
                                       {"containerEdits", for_all_devices(options.library)},
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

int generate_cdi(const CdiOptions& options) {
  const Result<std::string> text = text_by_daemon(options);
  if (!text.ok()) {
    if (text.status().code() == CUDA_ERROR_MPS_CONNECTION_FAILED) {
      observe::report_no_daemon(text.status());
    } else {
      fprintf(stderr, "openmps: %s\n", text.status().message().c_str());
    }
    return 1;
  }
  if (options.output == "-") {
    fputs(text->c_str(), stdout);
    return fflush(stdout) == 0 ? 0 : 1;
  }
  if (const Status written = replace_file(options.output, *text); !written.ok()) {
    fprintf(stderr, "openmps: %s\n", written.message().c_str());
    return 1;
  }
  return 0;
}

}  // namespace openmps::cli
