// SPDX-License-Identifier: Apache-2.0
// Who may ask the exporter for what.
#include "exporter/access.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace openmps::exporter {
namespace {

const std::string kToken = "0123456789abcdef0123456789abcdef";

TEST(Access, HostsAreNamesWithoutPorts) {
  EXPECT_EQ(host_name("Gpu7.Example:9836"), "gpu7.example");
  EXPECT_EQ(host_name("[::1]:9836"), "::1");
  EXPECT_EQ(host_name("[::1]"), "::1");
  EXPECT_EQ(host_name("::1"), "::1");
  EXPECT_EQ(host_name("[::1"), "");
  EXPECT_EQ(host_name(""), "");
}

TEST(Access, AnotherNameThatLeadsHereIsRefused) {
  const Access access({"gpu7.example"}, "");
  for (const char* host : {"127.0.0.1:9836", "localhost", "[::1]:1", "GPU7.example:80"}) {
    EXPECT_TRUE(access.may_read({host, "", ""}).ok()) << host;
  }
  for (const char* host :
       {"", "evil.example", "127.0.0.1.evil.example", "localhost.", "10.0.0.1"}) {
    EXPECT_EQ(access.may_read({host, "", ""}).code(), CUDA_ERROR_NOT_PERMITTED) << host;
  }
}

TEST(Access, ChangesNeedTheTokenAndOurOwnPage) {
  const Access access({}, kToken);
  const std::string host = "127.0.0.1:9836";
  const std::string bearer = "Bearer " + kToken;
  EXPECT_TRUE(access.may_change(Way::kTcp, {host, "", bearer}).ok());
  EXPECT_TRUE(access.may_change(Way::kTcp, {host, "http://" + host, bearer}).ok());
  const RequestHeaders refused[] = {
      {host, "", ""},
      {host, "", "Bearer "},
      {host, "", "Bearer " + kToken.substr(1)},
      {host, "", "bearer " + kToken},
      {host, "", kToken},
      {host, "http://evil.example", bearer},
      {host, "null", bearer},
      {host, "http://127.0.0.1:8080", bearer},
      {"evil.example", "http://evil.example", bearer},
  };
  for (const RequestHeaders& request : refused) {
    EXPECT_EQ(access.may_change(Way::kTcp, request).code(), CUDA_ERROR_NOT_PERMITTED)
        << request.origin << " " << request.authorization;
  }
}

TEST(Access, WithoutATokenOnlyTheSocketsOwnerChangesSomething) {
  const Access access({}, "");
  EXPECT_FALSE(access.may_change(Way::kTcp, {"localhost", "", "Bearer "}).ok());
  EXPECT_TRUE(access.may_change(Way::kUnixSocket, {"localhost", "", ""}).ok());
  EXPECT_FALSE(access.may_change(Way::kUnixSocket, {"localhost", "http://evil.example", ""}).ok())
      << "a tunnel to the socket may have any page before it";
}

TEST(Access, ATokenIsInAPrivateFile) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("token-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  const std::string path = folder / "token";
  EXPECT_EQ(read_token(path).status().code(), CUDA_ERROR_FILE_NOT_FOUND);
  std::ofstream(path) << kToken << "\nmore\n";
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  EXPECT_EQ(read_token(path).value(), kToken);
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  EXPECT_EQ(read_token(path).status().code(), CUDA_ERROR_NOT_PERMITTED);
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  std::ofstream(path) << "short\n";
  EXPECT_EQ(read_token(path).status().code(), CUDA_ERROR_INVALID_VALUE);
  std::filesystem::create_symlink(path, folder / "link");
  EXPECT_FALSE(read_token(folder / "link").ok());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace openmps::exporter
