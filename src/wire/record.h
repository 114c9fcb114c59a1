// SPDX-License-Identifier: Apache-2.0
// The frame of a command in the ring. The commands themselves are described in api/commands/*.toml
// and generated into wire/commands/*.h. Normative (docs/wire-format.md).
//
// Objects are named by 32-bit ids that the client mints per type, starting at 1; 0 is none. An id
// is free again right after its destroy command: the ring keeps the order. The worker checks every
// id, length and address against what the session owns; a violation ends the session with
// CUDA_ERROR_MPS_RPC_FAILURE and a reason in the log.
#pragma once

#include <cstdint>

namespace openmps::wire {

using Id = uint32_t;

// Every record: this header, the command's struct, its tail; padded to kRecordAlignment.
struct RecordHeader {
  uint32_t bytes;  // of the whole record
  uint16_t opcode;
  uint16_t reply_slot;  // kNoReply: no thread waits; errors go to ChannelHeader::async_error
};
inline constexpr uint32_t kRecordAlignment = 16;
inline constexpr uint16_t kNoReply = 0xffff;
// Holds the largest kernel parameters (32764 bytes since CUDA 12.1) with their launch.
inline constexpr uint32_t kMaxRecordBytes = 64 * 1024;

}  // namespace openmps::wire
