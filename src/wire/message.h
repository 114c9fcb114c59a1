// SPDX-License-Identifier: Apache-2.0
// Reading and writing the messages of handshake.h as packets: the one place that checks a header.
// Called by every program that holds a socket, on any thread.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

#include "base/unix_socket.h"
#include "cuda/status.h"
#include "wire/handshake.h"

namespace openmps::wire {

// The header of a packet whose magic, version and size are right.
// Errors: CUDA_ERROR_MPS_CONNECTION_FAILED with what is wrong.
inline Result<MessageHeader> read_header(std::span<const std::byte> data) {
  MessageHeader header{.kind = MessageKind{}, .bytes = 0};
  if (data.size() < sizeof(header)) {
    return Status(CUDA_ERROR_MPS_CONNECTION_FAILED,
                  "a message of " + std::to_string(data.size()) + " bytes has no header");
  }
  std::memcpy(&header, data.data(), sizeof(header));
  if (header.magic != kMagic) {
    return Status(CUDA_ERROR_MPS_CONNECTION_FAILED, "a message does not begin with OMPS");
  }
  if (header.version != kProtocolVersion) {
    return Status(CUDA_ERROR_MPS_CONNECTION_FAILED,
                  "protocol version " + std::to_string(header.version) + " instead of " +
                      std::to_string(kProtocolVersion));
  }
  if (header.bytes != data.size()) {
    return Status(CUDA_ERROR_MPS_CONNECTION_FAILED, "a message of " + std::to_string(data.size()) +
                                                        " bytes claims " +
                                                        std::to_string(header.bytes));
  }
  return header;
}

// The messages of one struct and nothing behind it. No other type can be read, so what the fuzz
// target of the messages tries is everything that a peer can send.
template <typename... Structs>
struct MessageList {
  template <typename T>
  static constexpr bool has = (std::is_same_v<T, Structs> || ...);
};
using Messages =
    MessageList<Hello, Welcome, Admit, ServerReady, Query, Shutdown, ShutdownRefused, Rejoin,
                Totals, Event, WorkerReady, OpenSession, SessionReady, CloseSession, SessionClosed,
                WindowFree, SessionFault, PassDescriptor, DescriptorTaken, ChangeSession, Reserve,
                Reserved, SetGroup, ChangeGroup, Probe, Alive, WorkerLost, LeaveSession, HandedOver,
                Keep, Forget, Forgotten, Give, ShareMemory, FindMemory, SuspendSession,
                SessionSuspended, MemoryShort>;

// A whole message of exactly this type. `out` is untouched on failure.
template <typename T>
Status read_message(std::span<const std::byte> data, T* out) {
  static_assert(std::is_trivially_copyable_v<T>);
  static_assert(Messages::has<T>, "a new message belongs into the list above");
  Result<MessageHeader> header = read_header(data);
  if (!header.ok()) return header.status();
  if (header->kind != T{}.header.kind || data.size() != sizeof(T)) {
    return Status(CUDA_ERROR_MPS_CONNECTION_FAILED,
                  "message kind " + std::to_string(static_cast<uint32_t>(header->kind)) + " of " +
                      std::to_string(data.size()) + " bytes instead of kind " +
                      std::to_string(static_cast<uint32_t>(T{}.header.kind)) + " of " +
                      std::to_string(sizeof(T)));
  }
  std::memcpy(out, data.data(), sizeof(T));
  return Status();
}

template <typename T>
std::span<const std::byte> message_bytes(const T& message) {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::as_bytes(std::span(&message, 1));
}

}  // namespace openmps::wire
