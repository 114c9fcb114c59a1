// SPDX-License-Identifier: Apache-2.0
// SOCK_SEQPACKET sockets: one message is one packet, with at most kMaxPassedFds descriptors.
// Daemon, server, worker and client talk over these, off the data path.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "cuda/status.h"

namespace openmps {

// No message of ours passes more.
inline constexpr size_t kMaxPassedFds = 8;
// What the kernel lets a peer pass in one packet (SCM_MAX_FD, since Linux 2.6.38).
inline constexpr size_t kMostReceivedFds = 253;

struct PeerCredentials {
  pid_t pid = 0;  // in the reader's PID namespace; 0 if the peer is not visible there
  uid_t uid = 0;
  gid_t gid = 0;
};

// Listen at `path` (at most 107 bytes), a socket that has `mode` from its first moment. The caller
// unlinks a stale file first, under its own lock, and has no other thread that makes files.
Result<UniqueFd> listen_at(const std::string& path, mode_t mode);
// Connect. Where more wait to be accepted than the listener allows, this waits, too, or does not:
// the socket is non-blocking then. Errors: CUDA_ERROR_MPS_CONNECTION_FAILED with the reason (no
// listener, no such file...).
enum class Waits { kYes, kNo };
Result<UniqueFd> connect_to(const std::string& path, Waits waits = Waits::kYes);
Result<std::pair<UniqueFd, UniqueFd>> make_socket_pair();
// Whether it is a socket of the kind of this file.
bool is_packet_socket(int fd);
// SO_PEERCRED of a connected socket.
Result<PeerCredentials> peer_credentials(int fd);

// What a process of the same user, or the machine's load, may cause at any moment, and end: too
// many descriptors in flight (the kernel counts a user's, whoever sends them: ETOOMANYREFS), no
// memory for a packet. A connection that says so is as good as before: the same call is made again
// after a pause, which doubles from the first to the longest of these.
inline constexpr CUresult kNoBufferNow = CUDA_ERROR_SYSTEM_NOT_READY;
inline constexpr uint64_t kFirstRetryMs = 10;
inline constexpr uint64_t kLongestRetryMs = 500;

// Send one packet; never raises SIGPIPE. Errors: CUDA_ERROR_MPS_RPC_FAILURE (peer gone),
// kNoBufferNow, and on a non-blocking socket CUDA_ERROR_NOT_READY (its buffer is full now).
Status send_packet(int fd, std::span<const std::byte> data, std::span<const int> fds = {});
// Sends on a blocking socket, again for at most `limit_ms` while the kernel has no buffer. Sleeps
// in between.
Status send_packet_within(uint64_t limit_ms, int fd, std::span<const std::byte> data,
                          std::span<const int> fds = {});

// Send one packet with the statement that `uid` sends it. The kernel lets a process state its own
// user and, with CAP_SETUID in its user namespace, any user who has a number there. Errors: those
// of send_packet(), and CUDA_ERROR_NOT_PERMITTED.
Status send_packet_as(uid_t uid, int fd, std::span<const std::byte> data);

struct Packet {
  std::vector<std::byte> data;  // empty with `closed`: the peer has gone
  std::vector<UniqueFd> fds;
  bool closed = false;
};
// kRefused: a packet that carries descriptors is an error. kTaken: all of them are the caller's, so
// the kernel closes none on this thread, unless the process has no number left for one.
enum class Descriptors { kRefused, kTaken };
// Receive one packet of at most `max_bytes`; timeout_ms -1: wait for ever. One thread at a time
// receives from a socket. A packet that is too long or carries descriptors that are refused stays
// where it is, unread: to take it would be to close them here, which can take as long as the peer
// likes. The socket is good for nothing then but to be disposed of. Errors:
// CUDA_ERROR_MPS_RPC_FAILURE, CUDA_ERROR_TIMEOUT, kNoBufferNow.
Result<Packet> receive_packet(int fd, size_t max_bytes, int timeout_ms = -1,
                              Descriptors descriptors = Descriptors::kRefused);

struct SignedPacket {
  std::vector<std::byte> data;  // empty: the peer has gone
  uid_t sender = 0;             // as the kernel vouches for it, as a number of this user namespace
};
// As receive_packet() without descriptors, with the user that the sender has stated; if it has
// stated none, its own or the overflow user.
Result<SignedPacket> receive_signed(int fd, size_t max_bytes, int timeout_ms);

}  // namespace openmps
