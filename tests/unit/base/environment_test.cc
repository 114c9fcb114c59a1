// SPDX-License-Identifier: Apache-2.0
// Environment variables as an ordinary program reads them, and as a set-user-ID program does, which
// ignores those of its caller.
#include "base/environment.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace openmps {
namespace {

constexpr const char* kName = "OPENMPS_ENVIRONMENT_TEST";
// Numbers that no user of the system has.
constexpr uid_t kOwner = 54321;
constexpr uid_t kCaller = 54322;

// The output for kName, which the caller has set, of a copy of print_environment whose file has the
// permissions `mode`.
std::string told(mode_t mode) {
  std::string folder = std::filesystem::temp_directory_path() / "environment-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return "no folder";
  const std::string program = folder + "/program";
  std::filesystem::copy_file(PRINT_ENVIRONMENT, program);
  int ends[2];
  if (chmod(folder.c_str(), 0755) != 0 || chown(program.c_str(), kOwner, kOwner) != 0 ||
      chmod(program.c_str(), mode) != 0 || pipe(ends) != 0) {
    return "no program";
  }
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    setenv(kName, "set", 1);
    if (setgid(kCaller) != 0 || setuid(kCaller) != 0) _exit(2);
    execl(program.c_str(), "print_environment", kName, nullptr);
    _exit(3);
  }
  close(ends[1]);
  std::array<char, 256> said{};
  const ssize_t got = read(ends[0], said.data(), said.size());
  close(ends[0]);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  std::filesystem::remove_all(folder);
  return {said.data(), static_cast<size_t>(std::max<ssize_t>(got, 0))};
}

TEST(Environment, ASetUserIdProgramReadsNoVariables) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give rights to a program";
  struct statvfs place {};
  ASSERT_EQ(statvfs(std::filesystem::temp_directory_path().c_str(), &place), 0);
  if ((place.f_flag & ST_NOSUID) != 0) GTEST_SKIP() << "this file system ignores set-user-ID bits";
  EXPECT_EQ(told(0755), "set set set\n");
  EXPECT_EQ(told(04755), "unset default unset\n");
  EXPECT_EQ(told(02755), "unset default unset\n");
}

TEST(Environment, AnEmptyVariableIsSetAndHasTheDefaultValue) {
  unsetenv(kName);
  EXPECT_EQ(environment_variable(kName), nullptr);
  EXPECT_EQ(environment_or(kName, "default"), "default");
  setenv(kName, "", 1);
  EXPECT_STREQ(environment_variable(kName), "");
  EXPECT_EQ(environment_or(kName, "default"), "default");
  setenv(kName, "value", 1);
  EXPECT_STREQ(environment_variable(kName), "value");
  EXPECT_EQ(environment_or(kName, "default"), "value");
  EXPECT_EQ(environment_at_start(kName), "");
}

TEST(Environment, AllVariablesWithAPrefixAreUnset) {
  setenv("OPENMPS_UNSET_A", "1", 1);
  setenv("OPENMPS_UNSET_B", "", 1);
  setenv("OPENMPS_UNSE", "stays", 1);
  unset_environment("OPENMPS_UNSET");
  EXPECT_EQ(environment_variable("OPENMPS_UNSET_A"), nullptr);
  EXPECT_EQ(environment_variable("OPENMPS_UNSET_B"), nullptr);
  EXPECT_STREQ(environment_variable("OPENMPS_UNSE"), "stays");
}

}  // namespace
}  // namespace openmps
