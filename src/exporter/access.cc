// SPDX-License-Identifier: Apache-2.0
// See access.h.
#include "exporter/access.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "base/unique_fd.h"

namespace openmps::exporter {
namespace {

constexpr size_t kLongestTokenBytes = 1024;

// Takes as long for each text of that length.
bool is_same(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<unsigned char>(difference | (a[i] ^ b[i]));
  }
  return difference == 0;
}

}  // namespace

std::string host_name(std::string_view host) {
  if (host.starts_with('[')) {
    host = host.substr(1, host.find(']') == std::string_view::npos ? 0 : host.find(']') - 1);
  } else if (std::ranges::count(host, ':') == 1) {
    host = host.substr(0, host.find(':'));
  }
  std::string name(host);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return tolower(c); });
  return name;
}

Access::Access(std::vector<std::string> hosts, std::string token)
    : hosts_(std::move(hosts)), token_(std::move(token)) {
  for (std::string& host : hosts_) host = host_name(host);
  for (const char* own : {"localhost", "127.0.0.1", "::1"}) hosts_.emplace_back(own);
}

Status Access::may_read(const RequestHeaders& request) const {
  if (std::ranges::find(hosts_, host_name(request.host)) != hosts_.end()) return Status();
  return Status(CUDA_ERROR_NOT_PERMITTED,
                "the host name " + printable(request.host) +
                    " is none of this exporter: start it with --host NAME if it is");
}

Status Access::may_change(Way way, const RequestHeaders& request) const {
  OPENMPS_RETURN_IF_ERROR(may_read(request));
  if (!request.origin.empty()) {
    const size_t scheme = request.origin.find("://");
    const bool is_own =
        scheme != std::string::npos && request.origin.substr(scheme + 3) == request.host;
    if (!is_own) {
      return Status(CUDA_ERROR_NOT_PERMITTED,
                    "the request comes from another page (" + printable(request.origin) + ")");
    }
  }
  if (way == Way::kUnixSocket) return Status();
  if (token_.empty()) {
    return Status(CUDA_ERROR_NOT_PERMITTED,
                  "this exporter changes nothing over TCP: start it with --token-file FILE");
  }
  constexpr std::string_view kBearer = "Bearer ";
  if (request.authorization.starts_with(kBearer) &&
      is_same(std::string_view(request.authorization).substr(kBearer.size()), token_)) {
    return Status();
  }
  return Status(CUDA_ERROR_NOT_PERMITTED, "the token is missing or wrong");
}

Result<std::string> read_token(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat info {};
  if (!file.valid() || fstat(file.get(), &info) != 0) {
    return Status(CUDA_ERROR_FILE_NOT_FOUND, path + ": " + strerror(errno));
  }
  const bool is_private = S_ISREG(info.st_mode) && (info.st_mode & 077) == 0;
  if (!is_private || (info.st_uid != geteuid() && info.st_uid != 0)) {
    return Status(CUDA_ERROR_NOT_PERMITTED,
                  path + ": a token is in a file that only its owner can read (chmod 600)");
  }
  std::array<char, kLongestTokenBytes> bytes{};
  const ssize_t count = read(file.get(), bytes.data(), bytes.size());
  std::string token(bytes.data(), count > 0 ? static_cast<size_t>(count) : 0);
  token = token.substr(0, token.find_first_of("\r\n"));
  if (token.size() < kShortestTokenBytes) {
    return Status(CUDA_ERROR_INVALID_VALUE,
                  path + format_text(": a token has at least %zu characters, such as those of "
                                     "`openssl rand -hex 16`",
                                     kShortestTokenBytes));
  }
  return token;
}

}  // namespace openmps::exporter
