// SPDX-License-Identifier: Apache-2.0
// Requests of a page become command lines, or errors.
#include "exporter/actions.h"

#include <gtest/gtest.h>

namespace openmps::exporter {
namespace {

using nlohmann::json;

std::string line_of(const char* request) {
  const Result<std::string> line = command_of(json::parse(request));
  return line.ok() ? *line : "";
}

TEST(Actions, AreCommandsOfTheDaemon) {
  EXPECT_EQ(line_of(R"({"action":"terminate","server":17,"client":3})"),
            "terminate_client 17 id:3");
  EXPECT_EQ(line_of(R"({"action":"suspend","server":17,"client":3})"), "suspend id:3@17");
  EXPECT_EQ(line_of(R"({"action":"resume","server":17,"client":3})"), "resume id:3@17");
  EXPECT_EQ(line_of(R"({"action":"percentage","server":17,"client":3,"value":12.5})"),
            "set_client_active_thread_percentage id:3@17 12.5");
  EXPECT_EQ(line_of(R"({"action":"priority","server":17,"client":3,"value":1})"),
            "set_client_priority id:3@17 1");
}

TEST(Actions, NothingElseIsOne) {
  for (const char* request : {"[]", "1", "{}", R"({"action":"quit","server":1,"client":1})",
                              R"({"action":"terminate","server":0,"client":1})",
                              R"({"action":"terminate","server":1,"client":-1})",
                              R"({"action":"terminate","server":1,"client":4294967296})",
                              R"({"action":"terminate","server":"1","client":"1 \n quit"})",
                              R"({"action":"terminate","server":1.5,"client":1})",
                              R"({"action":["terminate"],"server":1,"client":1})",
                              R"({"action":"percentage","server":1,"client":1})",
                              R"({"action":"percentage","server":1,"client":1,"value":0})",
                              R"({"action":"percentage","server":1,"client":1,"value":101})",
                              R"({"action":"percentage","server":1,"client":1,"value":"50"})",
                              R"({"action":"priority","server":1,"client":1,"value":2})"}) {
    EXPECT_EQ(line_of(request), "") << request;
  }
}

TEST(Actions, SucceedByTheDaemonsWord) {
  EXPECT_TRUE(has_succeeded("terminate_client 1 id:2", 0, "0\n"));
  EXPECT_FALSE(has_succeeded("terminate_client 1 id:2", 0, "Client id:2 not found!\n1\n"));
  EXPECT_FALSE(has_succeeded("terminate_client 1 id:2", 1, "Permission denied: ...\n"));
  EXPECT_TRUE(has_succeeded("resume id:2@1", 0, ""));
  EXPECT_FALSE(has_succeeded("suspend id:2@1", 1, "Client id:2@1 not found\n"));
}

}  // namespace
}  // namespace openmps::exporter
