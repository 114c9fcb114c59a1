// SPDX-License-Identifier: Apache-2.0
// What the client makes of a daemon's answer to its Hello, from a daemon that the test plays.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "base/unix_socket.h"
#include "client/session/session.h"
#include "wire/message.h"

namespace openmps::client {
namespace {

class ConnectTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(directory_), nullptr);
    path_ = std::string(directory_) + "/" + wire::kControlSocketName;
    Result<UniqueFd> socket = listen_at(path_, 0600);
    ASSERT_TRUE(socket.ok()) << socket.status().message();
    listener_ = std::move(socket).value();
  }
  void TearDown() override {
    unlink(path_.c_str());
    rmdir(directory_);
  }

  // The reason why there is no session when the daemon answers like this.
  Status refused_with(const wire::Welcome& welcome) {
    std::thread daemon([&] {
      pollfd waiting{listener_.get(), POLLIN, 0};
      ASSERT_EQ(poll(&waiting, 1, -1), 1);
      const UniqueFd peer(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      Result<Packet> packet = receive_packet(peer.get(), wire::kMaxMessageBytes);
      ASSERT_TRUE(packet.ok());
      EXPECT_TRUE(wire::read_message(packet->data, &hello_).ok());
      EXPECT_TRUE(send_packet(peer.get(), wire::message_bytes(welcome)).ok());
    });
    const Result<Connection> connection = connect(path_);
    daemon.join();
    EXPECT_FALSE(connection.ok());
    return connection.status();
  }

  char directory_[32] = "/tmp/omps-connect-XXXXXX";
  std::string path_;
  UniqueFd listener_;
  wire::Hello hello_;
};

TEST_F(ConnectTest, SaysOfWhichBuildItIs) {
  wire::Welcome no;
  no.result = CUDA_ERROR_MPS_SERVER_NOT_READY;
  snprintf(no.reason, sizeof(no.reason), "not now");
  const Status status = refused_with(no);
  EXPECT_EQ(status.code(), CUDA_ERROR_MPS_SERVER_NOT_READY);
  EXPECT_EQ(status.message(), "not now");
  EXPECT_EQ(hello_.build, wire::kBuildHash);
}

TEST_F(ConnectTest, NamesItsPartitionOfSms) {
  wire::Welcome no;
  no.result = CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  setenv("CUDA_MPS_SM_PARTITION", "GPU-74d43ed3/1", 1);
  EXPECT_EQ(refused_with(no).code(), CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  EXPECT_STREQ(hello_.sm_partition, "GPU-74d43ed3/1");
  unsetenv("CUDA_MPS_SM_PARTITION");
  EXPECT_FALSE(refused_with(no).ok());
  EXPECT_STREQ(hello_.sm_partition, "");
}

TEST_F(ConnectTest, RefusesAServerOfAnotherBuild) {
  wire::Welcome other;
  ++other.build;
  const Status status = refused_with(other);
  EXPECT_EQ(status.code(), CUDA_ERROR_MPS_CONNECTION_FAILED);
  EXPECT_NE(status.message().find("different builds of OpenMPS"), std::string::npos)
      << status.message();
}

TEST_F(ConnectTest, RefusesAServerOfAnotherVersion) {
  wire::Welcome old;
  old.header.version = 1;
  const Status status = refused_with(old);
  EXPECT_EQ(status.code(), CUDA_ERROR_MPS_CONNECTION_FAILED);
  EXPECT_NE(status.message().find("protocol version 1 instead of 4"), std::string::npos)
      << status.message();
}

}  // namespace
}  // namespace openmps::client
