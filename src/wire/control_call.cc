// SPDX-License-Identifier: Apache-2.0
// One command to the control daemon and its answer.
#include "wire/control_call.h"

#include <cstring>
#include <optional>
#include <vector>

#include "base/environment.h"
#include "base/text.h"
#include "wire/message.h"
#include "wire/trust.h"

namespace openmps::wire {
namespace {

// One more user whose daemon is trusted.
constexpr const char* kTrustedUserVariable = "OPENMPS_DAEMON_UID";

std::optional<uid_t> named_user() {
  const char* text = environment_variable(kTrustedUserVariable);
  const std::optional<uint64_t> number =
      text == nullptr ? std::nullopt : parse_unsigned(text, UINT32_MAX);
  return number ? std::optional<uid_t>(static_cast<uid_t>(*number)) : std::nullopt;
}

Status not_trusted(const std::string& daemon, uid_t uid, const std::string& why) {
  return Status(CUDA_ERROR_NOT_PERMITTED, "the daemon at " + daemon + " is user " +
                                              std::to_string(uid) + "'s, " + why + ": not trusted");
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
  const Viewer viewer = this_viewer();
  switch (trust_in(daemon->uid, viewer, named_user())) {
    case Trust::kGiven: return socket;
    case Trust::kRefused: break;
    case Trust::kNeedsProof:
      const Status proved = demand_proof(socket->get(), viewer.user);
      if (proved.ok()) return socket;
      return not_trusted(socket_path, daemon->uid,
                         "which stands for all users outside this user namespace, and does not "
                         "prove to be root's (" +
                             proved.message() + ")");
  }
  if (!viewer.sees_all && viewer.user == viewer.overflow && daemon->uid == viewer.overflow) {
    return not_trusted(socket_path, daemon->uid,
                       "which stands for all users without a number in this user namespace, as "
                       "this program's own does");
  }
  return not_trusted(socket_path, daemon->uid,
                     "neither root's nor user " + std::to_string(viewer.user) + "'s");
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

Result<bool> read_reply_part(std::span<const std::byte> packet, ControlReply* reply) {
  Result<MessageHeader> got = read_header(packet);
  if (!got.ok()) return got.status();
  UiReply part;
  if (got->kind != MessageKind::kUiReply || packet.size() < sizeof(part)) {
    return Status(CUDA_ERROR_MPS_RPC_FAILURE, "the daemon's answer is not one");
  }
  std::memcpy(&part, packet.data(), sizeof(part));
  reply->text.append(reinterpret_cast<const char*>(packet.data()) + sizeof(part),
                     packet.size() - sizeof(part));
  reply->exit_status = static_cast<int>(part.exit_status);
  reply->build = part.build;
  return part.more != 0;
}

Result<ControlReply> receive_reply(int socket) {
  ControlReply reply;
  while (true) {
    Result<Packet> answer = receive_packet(socket, kMaxMessageBytes);
    if (!answer.ok()) return answer.status();
    if (answer->closed) {
      return Status(CUDA_ERROR_MPS_RPC_FAILURE, "the daemon has gone before it answered");
    }
    const Result<bool> more = read_reply_part(answer->data, &reply);
    if (!more.ok()) return more.status();
    if (!*more) return reply;
  }
}

Result<ControlReply> call_control(int socket, std::string_view command) {
  OPENMPS_RETURN_IF_ERROR(send_command(socket, command));
  return receive_reply(socket);
}

}  // namespace openmps::wire
