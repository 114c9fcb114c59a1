// SPDX-License-Identifier: Apache-2.0
// One command to the control daemon and its answer.
#include "wire/control_call.h"

#include <unistd.h>

#include <cstring>
#include <vector>

#include "base/environment.h"
#include "base/text.h"
#include "wire/message.h"

namespace openmps::wire {
namespace {

// In a user namespace the daemon of root outside appears as the overflow user. The environment
// names that user's number.
constexpr const char* kTrustedUserVariable = "OPENMPS_DAEMON_UID";

bool is_trusted(uid_t uid) {
  if (uid == 0 || uid == geteuid()) return true;
  const char* trusted = environment_variable(kTrustedUserVariable);
  return trusted != nullptr && parse_unsigned(trusted, UINT32_MAX) == uid;
}

}  // namespace

std::string control_socket_path(std::string_view pipe_directory) {
  return std::string(pipe_directory) + "/" + kControlSocketName;
}

Result<UniqueFd> connect_to_daemon(const std::string& socket_path, Waits waits) {
  Result<UniqueFd> socket = connect_to(socket_path, waits);
  if (!socket.ok()) return socket;
  Result<PeerCredentials> daemon = peer_credentials(socket->get());
  if (!daemon.ok()) return daemon.status();
  if (is_trusted(daemon->uid)) return socket;
  return Status(CUDA_ERROR_NOT_PERMITTED,
                "the daemon at " + socket_path + " is user " + std::to_string(daemon->uid) +
                    "'s, neither root's nor user " + std::to_string(geteuid()) + "'s: not trusted");
}

Status send_command(int socket, std::string_view command) {
  if (command.size() > kMaxCommandBytes) {
    return Status(CUDA_ERROR_INVALID_VALUE, "a command of " + std::to_string(command.size()) +
                                                " bytes is longer than " +
                                                std::to_string(kMaxCommandBytes));
  }
  const MessageHeader header{
      .kind = MessageKind::kUiCommand,
      .bytes = static_cast<uint32_t>(sizeof(MessageHeader) + command.size())};
  std::vector<std::byte> packet(header.bytes);
  std::memcpy(packet.data(), &header, sizeof(header));
  std::memcpy(packet.data() + sizeof(header), command.data(), command.size());
  return send_packet(socket, packet);
}

Result<ControlReply> receive_reply(int socket) {
  ControlReply reply;
  while (true) {
    Result<Packet> answer = receive_packet(socket, kMaxMessageBytes);
    if (!answer.ok()) return answer.status();
    if (answer->closed) {
      return Status(CUDA_ERROR_MPS_RPC_FAILURE, "the daemon has gone before it answered");
    }
    Result<MessageHeader> got = read_header(answer->data);
    if (!got.ok()) return got.status();
    UiReply part;
    if (got->kind != MessageKind::kUiReply || answer->data.size() < sizeof(part)) {
      return Status(CUDA_ERROR_MPS_RPC_FAILURE, "the daemon's answer is not one");
    }
    std::memcpy(&part, answer->data.data(), sizeof(part));
    reply.text.append(reinterpret_cast<const char*>(answer->data.data()) + sizeof(part),
                      answer->data.size() - sizeof(part));
    reply.exit_status = static_cast<int>(part.exit_status);
    reply.build = part.build;
    if (part.more == 0) return reply;
  }
}

Result<ControlReply> call_control(int socket, std::string_view command) {
  OPENMPS_RETURN_IF_ERROR(send_command(socket, command));
  return receive_reply(socket);
}

}  // namespace openmps::wire
