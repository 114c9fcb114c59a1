// SPDX-License-Identifier: Apache-2.0
// A client that breaks the protocol, in one way per run. It uses the sockets directly, without
// CUDA. It must be refused or disconnected, with a line in the log, and no other client may be
// affected. Run by scenarios.py. Exit code 0: daemon, server or worker reacted as they should.
// usage: rogue_client wrong_version|short_hello|no_hello|garbage_ring|garbage_commands|lying_tail
// SEED
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/futex.h"
#include "base/unix_socket.h"
#include "wire/channel_view.h"
#include "wire/message.h"
#include "wire/ring.h"

namespace {

using namespace openmps;

// How long daemon, server or worker may take to react.
constexpr int kReactionMs = 20'000;

[[noreturn]] void fail(const std::string& text) {
  fprintf(stderr, "rogue_client: %s\n", text.c_str());
  exit(1);
}

UniqueFd connect_to_daemon() {
  const char* directory = getenv("CUDA_MPS_PIPE_DIRECTORY");
  if (directory == nullptr) fail("CUDA_MPS_PIPE_DIRECTORY is not set");
  Result<UniqueFd> socket = connect_to(std::string(directory) + "/" + wire::kControlSocketName);
  if (!socket.ok()) fail(socket.status().message());
  return std::move(*socket);
}

void send(int socket, std::span<const std::byte> data) {
  const Status sent = send_packet(socket, data);
  if (!sent.ok()) fail("send: " + sent.message());
}

// The connection must end: closed, or reset because our packets were not read.
void expect_closed(int socket) {
  for (;;) {
    Result<Packet> packet =
        receive_packet(socket, wire::kMaxMessageBytes, kReactionMs, Descriptors::kTaken);
    if (!packet.ok() && packet.status().code() == CUDA_ERROR_TIMEOUT) {
      fail("the connection is still open");
    }
    if (!packet.ok() || packet->closed) return;
  }
}

void wrong_version() {
  const UniqueFd socket = connect_to_daemon();
  wire::Hello hello;
  hello.header.version = wire::kProtocolVersion + 1;
  send(socket.get(), wire::message_bytes(hello));
  Result<Packet> packet =
      receive_packet(socket.get(), wire::kMaxMessageBytes, kReactionMs, Descriptors::kTaken);
  if (!packet.ok() || packet->data.size() != sizeof(wire::Welcome)) fail("there was no refusal");
  wire::Welcome welcome;
  memcpy(&welcome, packet->data.data(), sizeof(welcome));
  welcome.reason[sizeof(welcome.reason) - 1] = '\0';
  if (welcome.result != CUDA_ERROR_MPS_CONNECTION_FAILED || !packet->fds.empty()) {
    fail("refused with " + std::to_string(welcome.result));
  }
  if (strstr(welcome.reason, "version") == nullptr) fail(std::string("reason: ") + welcome.reason);
  printf("refused: %s\n", welcome.reason);
  expect_closed(socket.get());
}

void broken_hello(bool any_bytes, std::mt19937_64& random) {
  const UniqueFd socket = connect_to_daemon();
  if (any_bytes) {
    std::vector<std::byte> data(1 + random() % sizeof(wire::Hello));
    for (std::byte& byte : data) byte = static_cast<std::byte>(random());
    send(socket.get(), data);
    expect_closed(socket.get());
    printf("cut off\n");
  }
  // no_hello: connects and disconnects without sending anything, which must leave nothing behind.
}

// A session as an honest client gets it, with the channel mapped at any address.
struct Session {
  UniqueFd socket = connect_to_daemon();
  wire::ChannelView view;
  Session() {
    wire::Hello hello;
    hello.pid = static_cast<uint32_t>(getpid());
    strcpy(hello.command, "rogue_client");
    send(socket.get(), wire::message_bytes(hello));
    Result<Packet> packet =
        receive_packet(socket.get(), wire::kMaxMessageBytes, kReactionMs, Descriptors::kTaken);
    wire::Welcome welcome;
    if (!packet.ok()) fail("welcome: " + packet.status().message());
    const Status read = wire::read_message(packet->data, &welcome);
    if (!read.ok()) fail("welcome: " + read.message());
    if (welcome.result != CUDA_SUCCESS || packet->fds.size() != 2) fail(welcome.reason);
    void* start = mmap(nullptr, wire::kChannelBytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                       packet->fds[0].get(), 0);
    if (start == MAP_FAILED) fail("the host file can't be mapped");
    view = wire::ChannelView(start);
  }
  void ring_doorbell() {
    view.ring_control().consumer_sleeping.store(0);
    futex_wake(&view.ring_control().consumer_sleeping, 1);
  }
  // The worker must notice and end the session: its status becomes an error.
  void expect_end() {
    for (int waited = 0; view.header().status.load() == CUDA_SUCCESS; ++waited) {
      if (waited == kReactionMs) fail("the session does not end");
      usleep(1000);
    }
    printf("ended\n");
  }
};

void garbage_ring(std::mt19937_64& random) {
  Session session;
  for (uint64_t i = 0; i < wire::kRingBytes; i += 8) {
    const uint64_t word = random();
    memcpy(session.view.ring_data() + i, &word, 8);
  }
  session.view.ring_control().tail.store(random() % wire::kRingBytes / 16 * 16 + 64);
  session.ring_doorbell();
  session.expect_end();
}

void lying_tail(std::mt19937_64& random) {
  Session session;
  session.view.ring_control().tail.store(random() | (1ull << 63));
  session.ring_doorbell();
  session.expect_end();
}

// Well-formed records, with an opcode that may exist and a random payload. A single record may
// happen to be harmless, so further ones are sent until the session ends.
void garbage_commands(std::mt19937_64& random) {
  Session session;
  wire::RingProducer producer(session.view);
  for (int waited = 0; session.view.header().status.load() == CUDA_SUCCESS;) {
    const auto bytes = static_cast<uint32_t>(random() % 200);
    const auto opcode = static_cast<wire::Opcode>(random() % 700);
    unsigned char* payload = producer.reserve(opcode, bytes, wire::kNoReply);
    if (payload == nullptr) {  // the ring is full: the worker is slow, or has stopped listening
      if (++waited == kReactionMs) fail("the ring stays full and the session goes on");
      usleep(1000);
      continue;
    }
    for (uint32_t i = 0; i < bytes; ++i) payload[i] = static_cast<unsigned char>(random());
    producer.publish();
  }
  printf("ended\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return fprintf(stderr, "usage: rogue_client KIND SEED\n"), 2;
  const std::string kind = argv[1];
  std::mt19937_64 random(strtoull(argv[2], nullptr, 10));
  if (kind == "wrong_version") {
    wrong_version();
  } else if (kind == "short_hello") {
    broken_hello(true, random);
  } else if (kind == "no_hello") {
    broken_hello(false, random);
  } else if (kind == "garbage_ring") {
    garbage_ring(random);
  } else if (kind == "garbage_commands") {
    garbage_commands(random);
  } else if (kind == "lying_tail") {
    lying_tail(random);
  } else {
    return fprintf(stderr, "rogue_client: unknown kind %s\n", kind.c_str()), 2;
  }
  return 0;
}
