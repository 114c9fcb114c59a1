// SPDX-License-Identifier: Apache-2.0
// A worker without a driver, for tests of server and daemon: it speaks the worker's side of
// handshake.h and misbehaves when told to, by --driver or by the command line of a client.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "base/shared_memory.h"
#include "base/text.h"
#include "wire/channel_view.h"
#include "wire/device_facts.h"
#include "wire/message.h"

namespace openmps {
namespace {

int server = -1;
struct Session {
  Mapping page;
  std::string command;  // the client's command line
  uint32_t window = 0;
};
std::map<uint32_t, Session> sessions;
bool context_lost = false;

void send_or_exit(std::span<const std::byte> message, std::span<const int> fds = {}) {
  if (!send_packet(server, message, fds).ok()) exit(4);
}

// The device of the transcript of NVIDIA's daemon, so that its tables can be compared.
UniqueFd make_facts() {
  const auto facts = std::make_unique<wire::Facts>();
  facts->magic = wire::kMagic;
  facts->version = wire::kProtocolVersion;
  facts->bytes = sizeof(wire::Facts);
  facts->device_count = 1;
  const unsigned char uuid[16] = {0x00, 0x8c, 0xba, 0xa3, 0x6c, 0xdc, 0x94, 0x44,
                                  0x31, 0x2b, 0x2c, 0xa5, 0x0d, 0x63, 0xb1, 0x55};
  memcpy(facts->device[0].uuid, uuid, sizeof(uuid));
  fill_field(facts->device[0].name, "NVIDIA H200");
  fill_field(facts->device[0].pci_bus_id, "0000:00:06.0");
  facts->device[0].attribute[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] = 132;
  facts->device[0].sm_step = 8;
  facts->device[0].most_sms = 120;
  // The file is not sealed here, since the server has to seal it.
  UniqueFd file(memfd_create("fake-facts", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (pwrite(file.get(), facts.get(), sizeof(*facts), 0) != sizeof(*facts)) exit(4);
  return file;
}

void fault(uint32_t session, CUresult result, const char* reason) {
  if (session == 0) {
    context_lost = true;
    for (auto& [id, opened] : sessions) {
      wire::ChannelView(opened.page.address()).header().status.store(result);
    }
  }
  wire::SessionFault message;
  message.session = session;
  message.result = result;
  fill_field(message.reason, reason);
  send_or_exit(wire::message_bytes(message));
}

bool take_device(const std::string& path) {
  // The lock on the file stands for the device. This process holds it until it ends.
  const int file = open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0 && flock(file, LOCK_EX | LOCK_NB) == 0) return true;
  close(open((path + ".wanted").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  return false;
}

void free_window(uint32_t window) {
  wire::WindowFree message;
  message.window = window;
  send_or_exit(wire::message_bytes(message));
}

// True for the first caller with a path, among the callers in all processes.
bool is_first(const std::string& path) {
  const int file = open(path.c_str(), O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file >= 0) close(file);
  return file >= 0;
}

void open_session(const Packet& packet) {
  wire::OpenSession open;
  if (!wire::read_message(packet.data, &open).ok() || packet.fds.empty()) exit(5);
  const std::string command(field_text(open.command));
  if (command == "kill-worker-on-open") raise(SIGKILL);
  // "stop-once:PATH": the first worker that opens such a session is stopped by a signal.
  if (command.starts_with("stop-once:") && is_first(command.substr(10))) raise(SIGSTOP);
  // "kill-once:PATH": the first worker that opens such a session is killed.
  if (command.starts_with("kill-once:") && is_first(command.substr(10))) raise(SIGKILL);
  if (command == "lose-context-on-open" && !sessions.empty()) {
    fault(0, CUDA_ERROR_ILLEGAL_ADDRESS, "kernel hit 0x30");
    return;
  }
  wire::SessionReady ready;
  ready.session = open.session;
  if (command == "refuse-me") {
    ready.result = CUDA_ERROR_OUT_OF_MEMORY;
    fill_field(ready.reason, "no memory for a session");
    send_or_exit(wire::message_bytes(ready));
    free_window(open.window);
    return;
  }
  Result<Mapping> page =
      map_shared(packet.fds[0].get(), 0, wire::kValueWaitOffset, MapAccess::kReadWrite);
  if (!page.ok()) exit(6);
  const wire::ChannelHeader& header = wire::ChannelView(page->address()).header();
  if (header.magic != wire::kMagic || header.session != open.session ||
      header.window_base != wire::window_base(open.window)) {
    exit(7);
  }
  if (command.starts_with("taint")) {
    wire::ChannelView(page->address()).header().tainted.store(1);
  }
  sessions[open.session] = {std::move(page).value(), command, open.window};
  if (open.grant.reservation != 0) {
    fprintf(stderr, "fake worker: %s in %u\n", command.c_str(), open.grant.reservation);
  }
  send_or_exit(wire::message_bytes(ready));
  if (command == "kill-worker") {  // as the driver would, within a command
    wire::ChannelView(sessions[open.session].page.address()).executor().opcode.store(1);
    raise(SIGKILL);
  }
  if (command == "violate") fault(open.session, CUDA_ERROR_MPS_RPC_FAILURE, "a bad command");
  if (command == "lose-context") fault(0, CUDA_ERROR_ILLEGAL_ADDRESS, "kernel hit 0x10");
  if (command == "garbage-from-worker" && open.adoption == wire::Adoption::kNone) {
    send_or_exit(std::as_bytes(std::span("garbage", 7)));
  }
}

void close_session(const Packet& packet) {
  wire::CloseSession close;
  if (!wire::read_message(packet.data, &close).ok()) exit(8);
  if (close.session == 0) {  // standard error is the server's log
    fprintf(stderr, "fake worker: told to retire\n");
    return;
  }
  const auto found = sessions.find(close.session);
  if (found == sessions.end()) exit(9);  // the server closes each session once
  const std::string command = found->second.command;
  if (command == "never-ends" || command == "taint-and-never-end") return;
  if (command == "lose-context-at-close") {
    fault(0, CUDA_ERROR_ILLEGAL_ADDRESS, "kernel hit 0x20");
    return;
  }
  const uint32_t window = found->second.window;
  sessions.erase(found);
  wire::SessionClosed closed;
  closed.session = close.session;
  closed.tainted = command == "taint-late" ? 1 : 0;
  send_or_exit(wire::message_bytes(closed));
  if (command != "keep-window") free_window(window);
}

// A client whose command line begins with "moves" goes to the next worker; others stay, but for
// "hangs", of which the server hears nothing.
void leave(const Packet& packet) {
  wire::LeaveSession leave;
  if (!wire::read_message(packet.data, &leave).ok()) exit(16);
  const auto found = sessions.find(leave.session);
  if (found == sessions.end() || found->second.command == "hangs") return;
  wire::HandedOver over;
  over.session = leave.session;
  const bool moves = found->second.command.starts_with("moves");
  over.outcome = moves ? wire::Outcome::kMoved : wire::Outcome::kStays;
  fill_field(over.reason, "its work has not ended");
  const uint32_t window = found->second.window;
  if (moves) sessions.erase(found);
  send_or_exit(wire::message_bytes(over));
  if (moves) free_window(window);
}

// Writes a reservation to the server's log.
void keep(const Packet& packet) {
  wire::Reserve reserve;
  if (!wire::read_message(packet.data, &reserve).ok()) exit(14);
  fprintf(stderr, "fake worker: %u SMs in groups %llx for %u\n", reserve.sms,
          static_cast<unsigned long long>(reserve.groups[0]), reserve.number);
  if (reserve.sms == 0) return;
  wire::Reserved reserved;
  reserved.number = reserve.number;
  reserved.sms = reserve.sms;
  send_or_exit(wire::message_bytes(reserved));
}

int serve() {
  while (true) {
    Result<Packet> packet = receive_packet(server, wire::kMaxMessageBytes, -1, Descriptors::kTaken);
    if (!packet.ok()) return 10;
    if (packet->closed) return 0;
    Result<wire::MessageHeader> header = wire::read_header(packet->data);
    if (!header.ok()) return 11;
    if (header->kind == wire::MessageKind::kOpenSession) {
      open_session(*packet);
    } else if (header->kind == wire::MessageKind::kChangeSession) {
      wire::ChangeSession changed;
      if (!wire::read_message(packet->data, &changed).ok()) return 14;
    } else if (header->kind == wire::MessageKind::kChangeGroup) {
      wire::ChangeGroup changed;
      if (!wire::read_message(packet->data, &changed).ok()) return 15;
    } else if (header->kind == wire::MessageKind::kCloseSession) {
      close_session(*packet);
    } else if (header->kind == wire::MessageKind::kLeaveSession) {
      leave(*packet);
    } else if (header->kind == wire::MessageKind::kProbe) {
      // If the server has closed the connection, the next receive_packet() says so: ignored here.
      (void)send_packet(server, wire::message_bytes(wire::Alive{})).ok();
    } else if (header->kind == wire::MessageKind::kReserve) {
      keep(*packet);
    } else if (header->kind == wire::MessageKind::kPassDescriptor) {
      wire::PassDescriptor passed;
      if (!wire::read_message(packet->data, &passed).ok() || packet->fds.size() != 1) return 13;
      // Logged, and never answered with DescriptorTaken.
      fprintf(stderr, "fake worker: ticket %u\n", passed.ticket);
    } else {
      return 12;
    }
  }
}

}  // namespace
}  // namespace openmps

int main(int argc, char** argv) {
  using namespace openmps;
  if ((argc != 9 && argc != 11) || strcmp(argv[1], "--server-fd") != 0 ||
      strcmp(argv[3], "--driver") != 0) {
    return 2;
  }
  server = atoi(argv[2]);
  const std::string driver = argv[4];
  if (driver == "crash") raise(SIGKILL);
  if (driver == "hang") {
    while (true) pause();
  }
  // "hang-once:PATH": the first worker hangs.
  if (driver.starts_with("hang-once:") && is_first(driver.substr(10))) {
    while (true) pause();
  }
  // "await:PATH": the worker is not ready before the file exists.
  if (driver.starts_with("await:")) {
    while (access(driver.c_str() + strlen("await:"), F_OK) != 0) usleep(1000);
  }
  wire::WorkerReady ready;
  ready.spin_us = 7;
  // "exclusive:PATH": a device in exclusive mode. One process at a time, which locks PATH, can use
  // it. A worker that has lost its contexts keeps the device until another worker has failed to get
  // it.
  const std::string device = driver.starts_with("exclusive:") ? driver.substr(10) : "";
  if (!device.empty() && !take_device(device)) {
    ready.result = CUDA_ERROR_DEVICE_UNAVAILABLE;
    fill_field(ready.reason, "another process has the device");
    send_or_exit(wire::message_bytes(ready));
    return 1;
  }
  if (driver == "stranger") ++ready.build;
  if (driver == "none") {
    ready.result = CUDA_ERROR_NO_DEVICE;
    fill_field(ready.reason, "no CUDA device");
    send_or_exit(wire::message_bytes(ready));
    return 1;
  }
  const UniqueFd facts = make_facts();
  const int fd = facts.get();
  send_or_exit(wire::message_bytes(ready), {&fd, 1});
  if (driver == "crash-when-ready") raise(SIGKILL);
  const int status = serve();
  while (!device.empty() && context_lost && access((device + ".wanted").c_str(), F_OK) != 0) {
    usleep(1000);
  }
  return status;
}
