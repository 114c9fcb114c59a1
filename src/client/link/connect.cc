// SPDX-License-Identifier: Apache-2.0
// See connect.h. Called by cuInit, once, on the calling thread.
#include "client/link/connect.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "base/environment.h"
#include "base/unix_socket.h"
#include "client/context_sms.h"
#include "client/debug.h"
#include "wire/control_call.h"
#include "wire/message.h"

namespace openmps::client {
namespace {

// A server's first client waits for a worker to start a CUDA context: seconds on a large machine.
constexpr int kWelcomeTimeoutMs = 120'000;

void copy_text(char* target, size_t bytes, const char* text) {
  strncpy(target, text, bytes - 1);
  target[bytes - 1] = '\0';
}

// The program's arguments, separated by spaces, as far as they fit.
void read_command_line(char* target, size_t bytes) {
  const UniqueFd file(open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return;
  const ssize_t got = read(file.get(), target, bytes - 1);
  for (ssize_t i = 0; i + 1 < got; ++i) {
    if (target[i] == '\0') target[i] = ' ';
  }
}

wire::Hello make_hello() {
  wire::Hello hello;
  hello.pid = static_cast<uint32_t>(getpid());
  hello.quality = wire::quality_of(environment_variable("OPENMPS_QOS"));
  hello.replay = wire::replay_of(environment_variable("OPENMPS_REPLAY"));
  hello.limits = wire::limits_of_program();
  hello.limits.active_thread_percentage = percentage_of_program();
  struct stat info {};
  if (stat("/proc/self/ns/pid", &info) == 0) {
    hello.namespace_inode = static_cast<uint32_t>(info.st_ino);
  }
  if (const char* visible = environment_variable("CUDA_VISIBLE_DEVICES"); visible != nullptr) {
    hello.visible_devices[0] = '\x01';
    copy_text(hello.visible_devices + 1, sizeof(hello.visible_devices) - 1, visible);
  }
  read_command_line(hello.command, sizeof(hello.command));
  const char* group = environment_variable("OPENMPS_GROUP");
  if (group != nullptr) copy_text(hello.group, sizeof(hello.group), group);
  const char* domain = environment_variable("OPENMPS_DOMAIN");
  if (domain != nullptr) copy_text(hello.domain, sizeof(hello.domain), domain);
  if (const char* partition = environment_variable("CUDA_MPS_SM_PARTITION"); partition != nullptr) {
    copy_text(hello.sm_partition, sizeof(hello.sm_partition), partition);
  }
  return hello;
}

Result<wire::Welcome> receive_welcome(int socket, std::vector<UniqueFd>* fds) {
  Result<Packet> packet =
      receive_packet(socket, wire::kMaxMessageBytes, kWelcomeTimeoutMs, Descriptors::kTaken);
  if (!packet.ok()) return packet.status();
  if (packet->closed) {
    return Status(CUDA_ERROR_MPS_CONNECTION_FAILED, "the daemon closed the connection");
  }
  // The header is the part of a message that all versions of OpenMPS have in common.
  Status header = wire::read_header(packet->data).status();
  if (!header.ok()) {
    return Status(CUDA_ERROR_MPS_CONNECTION_FAILED,
                  "client and daemon are of different versions of OpenMPS: " + header.message());
  }
  wire::Welcome welcome;
  OPENMPS_RETURN_IF_ERROR(wire::read_message(packet->data, &welcome));
  welcome.reason[sizeof(welcome.reason) - 1] = '\0';
  if (welcome.result != CUDA_SUCCESS) {
    return Status(static_cast<CUresult>(welcome.result), welcome.reason);
  }
  OPENMPS_RETURN_IF_ERROR(wire::check_build(welcome.build, "server", "client"));
  if (packet->fds.size() != 2) {
    return Status(CUDA_ERROR_MPS_RPC_FAILURE,
                  "the server's welcome lacks its files: this process has no descriptor "
                  "left for them (ulimit -n)");
  }
  *fds = std::move(packet->fds);
  return welcome;
}

Result<std::unique_ptr<wire::Facts>> read_facts(int fd) {
  Result<Mapping> mapping = map_shared(fd, 0, sizeof(wire::Facts), MapAccess::kReadOnly);
  if (!mapping.ok()) return mapping.status();
  auto facts = std::make_unique<wire::Facts>();
  memcpy(facts.get(), mapping->address(), sizeof(wire::Facts));
  if (facts->magic != wire::kMagic || facts->bytes != sizeof(wire::Facts) ||
      facts->device_count > wire::kMaxDevices) {
    return Status(CUDA_ERROR_MPS_RPC_FAILURE, "the server's device facts are not ours");
  }
  return facts;
}

Result<Mapping> map_window(const wire::Welcome& welcome, int host_file) {
  struct stat info {};
  if (fstat(host_file, &info) != 0 || static_cast<uint64_t>(info.st_size) < wire::kHostBytes) {
    return Status(CUDA_ERROR_MPS_RPC_FAILURE, "the server's host file is too short");
  }
  Result<Mapping> window = reserve_addresses(welcome.window_base, wire::kWindowBytes);
  if (!window.ok()) {
    return Status(
        CUDA_ERROR_OUT_OF_MEMORY,
        "the session's address window is in use in this process: " + window.status().message());
  }
  Result<Mapping> host =
      map_shared_at(welcome.window_base + wire::kDeviceBytes, host_file, 0, wire::kHostBytes);
  if (!host.ok()) return host.status();
  host->leak();  // the mapping of the window covers and unmaps it
  const auto* header =
      reinterpret_cast<const wire::ChannelHeader*>(welcome.window_base + wire::kDeviceBytes);
  if (header->magic != wire::kMagic || header->version != wire::kProtocolVersion ||
      header->window_base != welcome.window_base) {
    return Status(CUDA_ERROR_MPS_RPC_FAILURE, "the session's host file is not ours");
  }
  // A forked child must not write into the parent's session, nor keep the parent's pinned memory
  // alive. Core dumps have pinned memory, as natively: it is put into them when it is registered.
  OPENMPS_RETURN_IF_ERROR(keep_from_children_and_dumps(window->address(), wire::kWindowBytes));
  return window;
}

}  // namespace

Result<Connection> connect(const std::string& control_socket) {
  Result<UniqueFd> socket = wire::connect_to_daemon(control_socket);
  if (!socket.ok()) return socket.status();
  const wire::Hello hello = make_hello();
  OPENMPS_RETURN_IF_ERROR(
      send_packet_within(kWelcomeTimeoutMs, socket->get(), wire::message_bytes(hello)));
  std::vector<UniqueFd> fds;
  Result<wire::Welcome> welcome = receive_welcome(socket->get(), &fds);
  if (!welcome.ok()) return welcome.status();
  Result<std::unique_ptr<wire::Facts>> facts = read_facts(fds[1].get());
  if (!facts.ok()) return facts.status();
  Result<Mapping> window = map_window(*welcome, fds[0].get());
  if (!window.ok()) return window.status();

  Connection connection;
  connection.socket = std::move(*socket);
  connection.window = std::move(*window);
  connection.host_file = std::move(fds[0]);
  connection.facts = std::move(*facts);
  connection.window_base = welcome->window_base;
  connection.limits = welcome->limits;
  connection.partition = welcome->partition;
  connection.spin_ns = static_cast<uint64_t>(welcome->spin_us) * 1000;
  connection.in_group = welcome->in_group != 0;
  connection.group_limits = welcome->group_limits;
  debug_line("session %u of server %u, window at 0x%llx, %u device(s)", welcome->session,
             welcome->server_pid, static_cast<unsigned long long>(welcome->window_base),
             connection.facts->device_count);
  return connection;
}

}  // namespace openmps::client
