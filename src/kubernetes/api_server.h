// SPDX-License-Identifier: Apache-2.0
// Calls of the Kubernetes API server, by HTTP. Blocking, each with a limit of some seconds; any
// thread.
#pragma once

#include <string>

#include "cuda/status.h"

namespace openmps::kubernetes {

class ApiServer {
 public:
  struct Options {
    std::string url;         // "https://10.0.0.1:443"
    std::string token_file;  // read for each call, since the kubelet renews it; "": no token
    std::string ca_file;     // of the server's certificate; "": the system's
  };
  // For a pod of the cluster, by what the kubelet gives it. Empty: this is none.
  static Options of_pod();

  struct Answer {
    long status = 0;  // of HTTP
    std::string body;
  };

  // Before other threads are there.
  explicit ApiServer(Options options);
  ApiServer(const ApiServer&) = delete;
  ApiServer& operator=(const ApiServer&) = delete;

  // `path` begins with a slash. Errors: CUDA_ERROR_MPS_CONNECTION_FAILED with the reason: no
  // answer; answers of any status are answers.
  [[nodiscard]] Result<Answer> get(const std::string& path) const;
  [[nodiscard]] Result<Answer> post(const std::string& path, const std::string& json) const;
  [[nodiscard]] Result<Answer> put(const std::string& path, const std::string& json) const;

 private:
  [[nodiscard]] Result<Answer> call(const char* method, const std::string& path,
                                    const std::string* json) const;

  const Options options_;
};

// Whether it can be part of a path: the name of an object of Kubernetes.
bool names_an_object(std::string_view text);

// What an answer that is no success says, for the log.
std::string words_of(const ApiServer::Answer& answer);

}  // namespace openmps::kubernetes
