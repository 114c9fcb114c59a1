// SPDX-License-Identifier: Apache-2.0
// SOCK_SEQPACKET sockets with descriptor passing.
#include "base/unix_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/clock.h"

namespace openmps {
namespace {

Status socket_error(const std::string& what) {
  return Status(CUDA_ERROR_MPS_CONNECTION_FAILED, what + ": " + strerror(errno));
}

// What ends by itself.
bool is_passing(int error) { return error == ETOOMANYREFS || error == ENOBUFS || error == ENOMEM; }

Status fill_address(const std::string& path, sockaddr_un* address) {
  memset(address, 0, sizeof(*address));
  address->sun_family = AF_UNIX;
  if (path.size() >= sizeof(address->sun_path)) {
    return Status(CUDA_ERROR_MPS_CONNECTION_FAILED,
                  "socket path of " + std::to_string(path.size()) +
                      " bytes is longer than the 107 that the system allows: " + path);
  }
  memcpy(address->sun_path, path.c_str(), path.size() + 1);
  return Status();
}

struct Next {
  size_t bytes = 0;
  bool descriptors = false;
};

// What comes beside the data of a packet if the socket has SO_PASSCRED, and no more.
struct Sender {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))] = {};
};

// A look at the next packet. The kernel takes references to its descriptors for us and drops them
// again; the packet keeps its own, so nothing is closed. Without room for them it says MSG_CTRUNC.
Next look_at_next(int fd, bool with_sender = false) {
  char byte = 0;
  iovec part{&byte, 1};
  Sender sender;
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (with_sender) {
    message.msg_control = sender.control;
    message.msg_controllen = sizeof(sender.control);
  }
  ssize_t got = 0;
  do {
    got = recvmsg(fd, &message, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
  } while (got < 0 && (errno == EINTR || errno == ECONNRESET));
  if (got < 0) return {};
  return {static_cast<size_t>(got), (message.msg_flags & MSG_CTRUNC) != 0};
}

Status wait_for_packet(int fd, int timeout_ms) {
  pollfd wait{fd, POLLIN, 0};
  int ready = 0;
  do {
    ready = poll(&wait, 1, timeout_ms);
  } while (ready < 0 && errno == EINTR);
  return ready == 0 ? Status(CUDA_ERROR_TIMEOUT, "no message in time") : Status();
}

Status check_next(const Next& next, size_t max_bytes, Descriptors descriptors) {
  if (next.bytes > max_bytes) {
    return Status(CUDA_ERROR_MPS_RPC_FAILURE,
                  "a message is longer than " + std::to_string(max_bytes) + " bytes");
  }
  if (next.descriptors && descriptors == Descriptors::kRefused) {
    return Status(CUDA_ERROR_MPS_RPC_FAILURE, "a message with descriptors where none belong");
  }
  return Status();
}

Status receive_message(int fd, int flags, msghdr* message, Packet* packet) {
  ssize_t got = 0;
  do {
    // A peer that left without reading everything shows once as ECONNRESET, before what it sent.
    got = recvmsg(fd, message, flags);
  } while (got < 0 && (errno == EINTR || errno == ECONNRESET));
  if (got < 0) {
    const bool is_there = is_passing(errno) || errno == EAGAIN;
    return Status(is_there ? kNoBufferNow : CUDA_ERROR_MPS_RPC_FAILURE,
                  std::string("receiving: ") + strerror(errno));
  }
  packet->closed = got == 0;
  packet->data.resize(static_cast<size_t>(got));
  return Status();
}

}  // namespace

Result<UniqueFd> listen_at(const std::string& path, mode_t mode) {
  sockaddr_un address;
  OPENMPS_RETURN_IF_ERROR(fill_address(path, &address));
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return socket_error("socket");
  // Not chmod() behind it: until then it would have another mode, and its name might lead
  // elsewhere.
  const mode_t before = umask(0777 & ~mode);
  const int bound = bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
  const int error = errno;
  umask(before);
  errno = error;
  if (bound != 0) return socket_error("bind to " + path);
  if (listen(fd.get(), SOMAXCONN) != 0) return socket_error("listen on " + path);
  return fd;
}

Result<UniqueFd> connect_to(const std::string& path, Waits waits) {
  sockaddr_un address;
  OPENMPS_RETURN_IF_ERROR(fill_address(path, &address));
  const int now = waits == Waits::kNo ? SOCK_NONBLOCK : 0;
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | now, 0));
  if (!fd.valid()) return socket_error("socket");
  int rc = 0;
  do {
    rc = connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
  } while (rc != 0 && errno == EINTR);
  if (rc != 0) return socket_error("connect to " + path);
  return fd;
}

Result<std::pair<UniqueFd, UniqueFd>> make_socket_pair() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0) {
    return socket_error("socketpair");
  }
  return std::make_pair(UniqueFd(fds[0]), UniqueFd(fds[1]));
}

bool is_packet_socket(int fd) {
  int domain = 0;
  int type = 0;
  socklen_t bytes = sizeof(int);
  if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) != 0) return false;
  bytes = sizeof(int);
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) != 0) return false;
  return domain == AF_UNIX && type == SOCK_SEQPACKET;
}

Result<PeerCredentials> peer_credentials(int fd) {
  ucred raw{};
  socklen_t length = sizeof(raw);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &raw, &length) != 0) {
    return socket_error("SO_PEERCRED");
  }
  return PeerCredentials{raw.pid, raw.uid, raw.gid};
}

Status send_packet(int fd, std::span<const std::byte> data, std::span<const int> fds) {
  assert(fds.size() <= kMaxPassedFds && "our own messages pass few descriptors");
  iovec part{const_cast<std::byte*>(data.data()), data.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxPassedFds)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * fds.size());
  }
  ssize_t sent = 0;
  do {
    sent = sendmsg(fd, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) {
    // EAGAIN comes only on a non-blocking socket: the peer has not read yet, it is not gone.
    CUresult code = errno == EAGAIN ? CUDA_ERROR_NOT_READY : CUDA_ERROR_MPS_RPC_FAILURE;
    if (is_passing(errno)) code = kNoBufferNow;
    return Status(code, std::string("sending a message: ") + strerror(errno));
  }
  return Status();
}

Status send_packet_as(uid_t uid, int fd, std::span<const std::byte> data) {
  iovec part{const_cast<std::byte*>(data.data()), data.size()};
  Sender sender;
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = sender.control;
  message.msg_controllen = sizeof(sender.control);
  const ucred stated{getpid(), uid, getgid()};
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_CREDENTIALS;
  header->cmsg_len = CMSG_LEN(sizeof(stated));
  memcpy(CMSG_DATA(header), &stated, sizeof(stated));
  ssize_t sent = 0;
  do {
    sent = sendmsg(fd, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return Status();
  // EINVAL: a user who has no number here.
  const bool refused = errno == EPERM || errno == EINVAL;
  return Status(refused ? CUDA_ERROR_NOT_PERMITTED : CUDA_ERROR_MPS_RPC_FAILURE,
                "sending a message as user " + std::to_string(uid) + ": " + strerror(errno));
}

Status send_packet_within(uint64_t limit_ms, int fd, std::span<const std::byte> data,
                          std::span<const int> fds) {
  const uint64_t end_ns = now_ns() + limit_ms * kNsPerMs;
  for (uint64_t pause_ms = kFirstRetryMs;; pause_ms = std::min(2 * pause_ms, kLongestRetryMs)) {
    Status sent = send_packet(fd, data, fds);
    if (sent.code() != kNoBufferNow || now_ns() >= end_ns) return sent;
    std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
  }
}

Result<Packet> receive_packet(int fd, size_t max_bytes, int timeout_ms, Descriptors descriptors) {
  OPENMPS_RETURN_IF_ERROR(wait_for_packet(fd, timeout_ms));
  OPENMPS_RETURN_IF_ERROR(check_next(look_at_next(fd), max_bytes, descriptors));
  Packet packet;
  packet.data.resize(max_bytes);
  iovec part{packet.data.data(), max_bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMostReceivedFds)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  OPENMPS_RETURN_IF_ERROR(receive_message(fd, MSG_CMSG_CLOEXEC, &message, &packet));
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int passed = -1;
      memcpy(&passed, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      packet.fds.emplace_back(passed);
    }
  }
  return packet;
}

Result<SignedPacket> receive_signed(int fd, size_t max_bytes, int timeout_ms) {
  // Now, not before the question was sent: a socket with this option gets a name when it sends. A
  // packet has its sender with or without the receiver's option.
  const int on = 1;
  if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0) {
    return socket_error("SO_PASSCRED");
  }
  OPENMPS_RETURN_IF_ERROR(wait_for_packet(fd, timeout_ms));
  OPENMPS_RETURN_IF_ERROR(check_next(look_at_next(fd, true), max_bytes, Descriptors::kRefused));
  Packet packet;
  packet.data.resize(max_bytes);
  iovec part{packet.data.data(), max_bytes};
  Sender sender;
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = sender.control;
  message.msg_controllen = sizeof(sender.control);
  OPENMPS_RETURN_IF_ERROR(receive_message(fd, MSG_CMSG_CLOEXEC, &message, &packet));
  const int off = 0;
  (void)setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &off, sizeof(off));
  if (packet.closed) return SignedPacket{};
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_level != SOL_SOCKET ||
      header->cmsg_type != SCM_CREDENTIALS) {
    return Status(CUDA_ERROR_MPS_RPC_FAILURE, "a message without its sender");
  }
  ucred stated{};
  memcpy(&stated, CMSG_DATA(header), sizeof(stated));
  return SignedPacket{std::move(packet.data), stated.uid};
}

}  // namespace openmps
