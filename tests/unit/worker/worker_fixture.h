// SPDX-License-Identifier: Apache-2.0
// A worker on the fake driver, with the test as its server and its clients: sessions have threads,
// rings and sockets as they have in the program.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "fake_driver.h"
#include "test_client.h"
#include "worker/device/facts.h"
#include "worker/device/log.h"
#include "worker/process/main_loop.h"

namespace openmps::worker {

class WorkerFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    log("a test begins");  // the log opens its descriptor with the first line
    auto sockets = make_socket_pair();
    ASSERT_TRUE(sockets.ok());
    server_ = std::make_unique<TestServer>(std::move(sockets->first));
    link_ = std::make_unique<ServerReports>(std::move(sockets->second));
    devices_ = std::make_unique<Devices>(std::move(Devices::open(driver_.table())).value());
    monitor_ = std::make_unique<FaultMonitor>(
        driver_.table(), *devices_, false,
        [this](CUresult result, const std::string& reason, FaultMonitor::DriverKnows) {
          link_->send(wire::SessionFault{.session = 0, .result = result}, reason);
        });
    worker_parts_.partitions = std::make_shared<SmPartitions>(driver_.table(), *devices_, gate_,
                                                              worker_parts_.descriptors);
    environment_ = std::make_unique<Environment>(
        Environment{driver_.table(), *devices_, gate_, worker_parts_, *monitor_, spins_, *link_});
    worker_ = std::make_unique<MainLoop>(*environment_);
    main_ = std::thread([this] { served_ = worker_->serve(); });
  }
  void TearDown() override {
    server_->hang_up();
    main_.join();
    EXPECT_TRUE(served_.ok()) << served_.message();
    worker_.reset();
    while (gate_.is_collecting()) usleep(1000);  // what the last sessions left
    monitor_.reset();
    worker_parts_.partitions.reset();
    EXPECT_EQ(driver_.live(), "") << "what the sessions left behind";
  }

  std::unique_ptr<TestClient> connect(uint32_t session = 1, uint32_t window = 10,
                                      const wire::Grant& grant = {},
                                      const wire::ClientLimits& group_limits = {}) {
    auto client = std::make_unique<TestClient>(session, window);
    server_->open(*client, grant, group_limits);
    auto ready = server_->expect<wire::SessionReady>();
    EXPECT_TRUE(ready.ok()) << ready.status().message();
    EXPECT_EQ(ready->session, session);
    EXPECT_EQ(ready->result, 0u) << ready->reason;
    return client;
  }
  void expect_closed(uint32_t session) {
    auto closed = server_->expect<wire::SessionClosed>();
    ASSERT_TRUE(closed.ok()) << closed.status().message();
    EXPECT_EQ(closed->session, session);
  }
  void close(const TestClient& client) {
    server_->close(client.session());
    expect_closed(client.session());
  }
  // Streams, events, memory, pinned memory, a module and a graph.
  void use_everything(TestClient& client) {
    // First: from the first work on the fault monitor may make a stream of its own at any time.
    memcpy(client.view().staging(), "code", 4);
    client.post(wire::BlobBegin{4, 1});
    client.post(wire::BlobData{1, 4, 0, client.staging()});
    EXPECT_EQ(client.call(wire::ModuleLoad{1, 1, 0, wire::ModuleKind::kLibrary, 0, 0}),
              CUDA_SUCCESS);
    client.post(wire::StreamCreate{1, 1, 0, wire::StreamKind::kLegacy, 0, 0});
    client.post(wire::StreamCreate{2, 1, 0, wire::StreamKind::kBlocking, 0, 0});
    client.post(wire::EventCreate{1, 0, 0});
    client.post(wire::EventRecord{1, 1, 0, 0, 1});
    client.post(wire::GetFunction{1, 1, wire::ModuleKind::kLibrary, 4}, "kern");
    client.post(wire::MemoryMap{client.base(), wire::kMemoryGranularity, 0});
    client.post(wire::HostRegister{client.base() + wire::kDeviceBytes + wire::kPinnedOffset, 4096});
    client.post(wire::Launch{2, 1, {1, 1, 1}, {1, 1, 1}, 0, 0, 16, 0}, std::string(16, 'x'));
    client.post(wire::Launch{1, 1, {1, 1, 1}, {1, 1, 1}, 0, 0, 16, 0}, std::string(16, 'x'));
    client.post(wire::GraphBegin{1, 0});
    client.post(wire::GraphNode{1, wire::GraphNodeKind::kEmpty, 0, 0});
    client.post(wire::GraphInstantiate{0, 1});
    client.post(wire::GraphLaunch{1, 2});
    EXPECT_EQ(client.call(wire::Ping{}), CUDA_SUCCESS);
    EXPECT_EQ(client.view().header().async_error.load(), 0u)
        << "opcode " << client.view().header().async_error_opcode.load();
  }

  FakeDriver driver_;
  ContextGate gate_{driver_.table()};
  const MonotonicClock clock_;
  WorkerParts worker_parts_{clock_};
  SpinLimits spins_{1, 1000};
  std::unique_ptr<TestServer> server_;
  std::unique_ptr<ServerReports> link_;
  std::unique_ptr<Devices> devices_;
  std::unique_ptr<FaultMonitor> monitor_;
  std::unique_ptr<Environment> environment_;
  std::unique_ptr<MainLoop> worker_;
  std::thread main_;
  Status served_;
};

}  // namespace openmps::worker
