// SPDX-License-Identifier: Apache-2.0
// Trust in a daemon.
#include "wire/trust.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "base/unique_fd.h"
#include "base/unix_socket.h"
#include "wire/handshake.h"
#include "wire/message.h"

namespace openmps::wire {
namespace {

// Numbers of MessageKind that handshake.h leaves free. Both messages are a header alone.
constexpr auto kDemandProof = static_cast<MessageKind>(5);
constexpr auto kProof = static_cast<MessageKind>(6);

// The daemon answers at once. As long as it waits for a peer's first packet (control/daemon.h).
constexpr int kProofLimitMs = 10'000;

// The kernel's own default of the overflow user (DEFAULT_OVERFLOWUID).
constexpr uid_t kUsualOverflowUser = 65534;
// Inside, outside, count: the map of a user namespace that leaves nobody out, as the first one.
constexpr std::string_view kEverybody[] = {"0", "0", "4294967295"};

MessageHeader bare(MessageKind kind) {
  return MessageHeader{.kind = kind, .bytes = sizeof(MessageHeader)};
}

bool is_bare(std::span<const std::byte> packet, MessageKind kind) {
  const MessageHeader wanted = bare(kind);
  return std::ranges::equal(packet, message_bytes(wanted));
}

// The words of a short file; none if it can't be read. No stream: those have global constructors.
std::vector<std::string> words_of(const char* path) {
  // More than any single line of the files that are read here.
  char text[128];
  const UniqueFd file(open(path, O_RDONLY | O_CLOEXEC));
  const ssize_t got = file.valid() ? read(file.get(), text, sizeof(text)) : 0;
  if (got <= 0) return {};
  std::replace(text, text + got, '\n', ' ');
  return split_words({text, static_cast<size_t>(got)});
}

}  // namespace

Trust trust_in(uid_t daemon, const Viewer& viewer, std::optional<uid_t> named) {
  if (daemon == named) return Trust::kGiven;
  if (!viewer.sees_all && daemon == viewer.overflow) {
    // Everybody outside appears so. A viewer who does, too, can't recognise a statement of its own
    // user either.
    return viewer.user == viewer.overflow ? Trust::kRefused : Trust::kNeedsProof;
  }
  return daemon == 0 || daemon == viewer.user ? Trust::kGiven : Trust::kRefused;
}

Viewer this_viewer() {
  const std::vector<std::string> overflow = words_of("/proc/sys/kernel/overflowuid");
  const std::optional<uint64_t> number =
      overflow.empty() ? std::nullopt : parse_unsigned(overflow[0], UINT32_MAX);
  return Viewer{geteuid(), static_cast<uid_t>(number.value_or(kUsualOverflowUser)),
                std::ranges::equal(words_of("/proc/self/uid_map"), kEverybody)};
}

Status demand_proof(int socket, uid_t user) {
  OPENMPS_RETURN_IF_ERROR(send_packet(socket, message_bytes(bare(kDemandProof))));
  const Result<SignedPacket> answer = receive_signed(socket, sizeof(MessageHeader), kProofLimitMs);
  if (!answer.ok()) return Status(CUDA_ERROR_NOT_PERMITTED, answer.status().message());
  if (answer->data.empty()) {
    return Status(CUDA_ERROR_NOT_PERMITTED, "it closed the connection when asked for a proof");
  }
  if (!is_bare(answer->data, kProof) || answer->sender != user) {
    return Status(CUDA_ERROR_NOT_PERMITTED, "its answer is no proof");
  }
  return Status();
}

bool is_demand_for_proof(std::span<const std::byte> packet) {
  return is_bare(packet, kDemandProof);
}

Status give_proof(int socket, uid_t user) {
  return send_packet_as(user, socket, message_bytes(bare(kProof)));
}

}  // namespace openmps::wire
