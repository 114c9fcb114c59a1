// SPDX-License-Identifier: Apache-2.0
// Who may ask the exporter for what (docs/monitoring.md). Over TCP nobody is known by the socket,
// and any page in a browser on this machine can make requests; so the Host header has to name this
// exporter (a name of somebody else's that leads here is DNS rebinding), and what changes something
// needs the token, and comes from our own page if a browser sends it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cuda/status.h"

namespace openmps::exporter {

// How a request has come. Who may open the Unix socket, by its mode, may do all.
enum class Way { kTcp, kUnixSocket };

struct RequestHeaders {
  std::string host;
  std::string origin;         // "": none
  std::string authorization;  // "Bearer TOKEN"
};

class Access {
 public:
  // `hosts`: names and addresses, without port, by which the exporter is reached beside those of
  // the loopback interface. `token` "": nothing may be changed over TCP.
  Access(std::vector<std::string> hosts, std::string token);

  // Errors: CUDA_ERROR_NOT_PERMITTED with a sentence for the caller.
  [[nodiscard]] Status may_read(const RequestHeaders& request) const;
  [[nodiscard]] Status may_change(Way way, const RequestHeaders& request) const;

 private:
  std::vector<std::string> hosts_;
  std::string token_;
};

// Without the port and the brackets of IPv6; in lower case.
std::string host_name(std::string_view host);

// The token is the file's first line. Errors: CUDA_ERROR_NOT_PERMITTED: others could read or write
// the file, or it is another user's; CUDA_ERROR_INVALID_VALUE: it has fewer than
// kShortestTokenBytes.
inline constexpr size_t kShortestTokenBytes = 16;  // 64 bits in hexadecimal: not to be guessed
Result<std::string> read_token(const std::string& path);

}  // namespace openmps::exporter
