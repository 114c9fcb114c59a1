// SPDX-License-Identifier: Apache-2.0
// See api_server.h.
#include "kubernetes/api_server.h"

#include <curl/curl.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/environment.h"
#include "base/text.h"

namespace openmps::kubernetes {
namespace {

constexpr long kLimitS = 15;
// An object of etcd, which the API server keeps them in, has 1.5 MiB at most.
constexpr size_t kMostBytes = 8u << 20;
// Names of objects are DNS subdomains.
constexpr size_t kLongestName = 253;
// What the kubelet gives a pod.
constexpr const char* kAccount = "/var/run/secrets/kubernetes.io/serviceaccount/";

size_t take(char* data, size_t size, size_t count, void* to) {
  auto* const body = static_cast<std::string*>(to);
  if (body->size() + size * count > kMostBytes) return 0;
  body->append(data, size * count);
  return size * count;
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

ApiServer::Options ApiServer::of_pod() {
  const std::string host = environment_or("KUBERNETES_SERVICE_HOST", "");
  if (host.empty()) return {};
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return {"https://" + (is_ipv6 ? "[" + host + "]" : host) + ":" +
              environment_or("KUBERNETES_SERVICE_PORT", "443"),
          std::string(kAccount) + "token", std::string(kAccount) + "ca.crt"};
}

ApiServer::ApiServer(Options options) : options_(std::move(options)) {
  curl_global_init(CURL_GLOBAL_DEFAULT);
}

Result<ApiServer::Answer> ApiServer::get(const std::string& path) const {
  return call("GET", path, nullptr);
}
Result<ApiServer::Answer> ApiServer::post(const std::string& path, const std::string& json) const {
  return call("POST", path, &json);
}
Result<ApiServer::Answer> ApiServer::put(const std::string& path, const std::string& json) const {
  return call("PUT", path, &json);
}

Result<ApiServer::Answer> ApiServer::call(const char* method, const std::string& path,
                                          const std::string* json) const {
  const auto failed = [&](const std::string& why) {
    return Status(CUDA_ERROR_MPS_CONNECTION_FAILED,
                  format_text("%s %s%s: ", method, options_.url.c_str(), path.c_str()) + why);
  };
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(curl_easy_init(),
                                                                 curl_easy_cleanup);
  if (curl == nullptr) return failed("no memory");
  std::string header = "Accept: application/json";
  curl_slist* list = curl_slist_append(nullptr, header.c_str());
  if (json != nullptr) list = curl_slist_append(list, "Content-Type: application/json");
  if (!options_.token_file.empty()) {
    header = "Authorization: Bearer " + first_line(options_.token_file);
    list = curl_slist_append(list, header.c_str());
  }
  const std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers(list,
                                                                            curl_slist_free_all);
  Answer answer;
  char why[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(curl.get(), CURLOPT_URL, (options_.url + path).c_str());
  curl_easy_setopt(curl.get(), CURLOPT_CUSTOMREQUEST, method);
  curl_easy_setopt(curl.get(), CURLOPT_PROTOCOLS_STR, "https,http");
  curl_easy_setopt(curl.get(), CURLOPT_NOPROXY, "*");
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT, kLimitS);
  curl_easy_setopt(curl.get(), CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl.get(), CURLOPT_ERRORBUFFER, why);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, take);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &answer.body);
  if (!options_.ca_file.empty()) {
    curl_easy_setopt(curl.get(), CURLOPT_CAINFO, options_.ca_file.c_str());
  }
  if (json != nullptr) {
    curl_easy_setopt(curl.get(), CURLOPT_POSTFIELDS, json->c_str());
    curl_easy_setopt(curl.get(), CURLOPT_POSTFIELDSIZE, static_cast<long>(json->size()));
  }
  const CURLcode done = curl_easy_perform(curl.get());
  if (done != CURLE_OK) return failed(printable(*why != '\0' ? why : curl_easy_strerror(done)));
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &answer.status);
  return answer;
}

bool names_an_object(std::string_view text) {
  return !text.empty() && text.size() <= kLongestName && text.front() != '.' &&
         std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '-' || c == '.';
         });
}

std::string words_of(const ApiServer::Answer& answer) {
  std::string text = "HTTP status " + std::to_string(answer.status);
  const auto body = nlohmann::json::parse(answer.body, nullptr, false);
  if (body.is_object() && body.contains("message") && body["message"].is_string()) {
    text += ": " + printable(body["message"].get<std::string>());
  }
  return text;
}

}  // namespace openmps::kubernetes
