// SPDX-License-Identifier: Apache-2.0
// A fixture with a daemon in a directory of the test, real servers, fake workers, and clients that
// do the handshake. At its end it checks that no process and no file in the pipe directory is left.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "base/shared_memory.h"
#include "base/unix_socket.h"
#include "wire/channel_view.h"
#include "wire/handshake.h"

namespace openmps {

// A limit that only a hang exceeds.
inline constexpr int kWaitMs = 20'000;

struct Outcome {
  std::string out;  // standard output and error
  int status = -1;
};

struct Client {
  UniqueFd socket;
  wire::Welcome welcome;
  std::vector<UniqueFd> files;
  Mapping header_page;
  [[nodiscard]] wire::ChannelHeader& header() const {
    return wire::ChannelView(header_page.address()).header();
  }
  // True once the server has closed the connection.
  [[nodiscard]] bool wait_closed() const;
};

// Waits until `condition` is true, which it checks every few milliseconds. False after kWaitMs.
bool eventually(const std::function<bool()>& condition);

class MpsTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // Runs openmps-control with commands on standard input, or with arguments.
  Outcome shell(const std::string& input);
  Outcome control(const std::vector<std::string>& arguments);
  void start_daemon(const std::string& option = "");
  // Returns when it has ended: one that ends can have no command line any more and still the lock.
  void kill_daemon();

  Result<UniqueFd> connect_raw() const;
  static wire::Hello hello(const std::string& command);
  // Connects, sends Hello and waits for the Welcome, which may be a refusal.
  Client join(const std::string& command = "./program", const std::string& group = "");
  static Client finish_join(UniqueFd socket);

  // PIDs of live processes of this test's daemon whose program has this name.
  std::vector<pid_t> processes(const std::string& program) const;
  pid_t daemon_pid() const;
  std::string log_text(const std::string& name) const;
  std::vector<std::string> pipe_entries() const;

  std::string directory_;  // for all files of the test
  std::string pipe_;
  std::string log_;
  std::string driver_ = "fake";
  std::string environment_;  // further variables of the daemon: "NAME=value ..."
  std::string bin_ = OPENMPS_FAKE_BIN;
  std::string program_ = "openmps-control";  // the daemon's name in bin_
};

}  // namespace openmps
