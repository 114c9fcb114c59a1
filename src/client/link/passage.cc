// SPDX-License-Identifier: Apache-2.0
// See passage.h.
#include "client/link/passage.h"

#include "base/mutex.h"
#include "base/shared_memory.h"
#include "base/thread_end.h"
#include "base/unix_socket.h"
#include "wire/message.h"

namespace openmps::client {
namespace {

// The worker has sent the descriptor before the command's reply, but an overloaded server is slow
// to pass it on, and the socket's buffer may be full.
constexpr int kArrivalMs = 10'000;

}  // namespace

CUresult Passage::receive(uint32_t ticket, UniqueFd* descriptor) {
  for (;;) {
    if (socket_.get() < 0) return CUDA_ERROR_MPS_RPC_FAILURE;  // the program has closed it
    Result<Packet> packet =
        receive_packet(socket_.get(), wire::kMaxMessageBytes, kArrivalMs, Descriptors::kTaken);
    if (!packet.ok()) return CUDA_ERROR_OPERATING_SYSTEM;
    if (packet->closed) {
      channel_.fail(CUDA_ERROR_MPS_RPC_FAILURE);
      return channel_.status();
    }
    wire::PassDescriptor message;
    const Status status = wire::read_message(packet->data, &message);
    if (!status.ok() || packet->fds.size() != 1) return CUDA_ERROR_MPS_RPC_FAILURE;
    if (message.ticket != ticket) continue;  // for a call that timed out
    *descriptor = std::move(packet->fds[0]);
    return CUDA_SUCCESS;
  }
}

template <typename Command>
CUresult Passage::call_for(UniqueFd* descriptor, Command command) {
  const CancellationHeld held;
  const MutexLock guard(lock_);
  command.ticket = ++last_ticket_;
  const CUresult result = channel_.call(command);
  return result == CUDA_SUCCESS ? receive(command.ticket, descriptor) : result;
}

CUresult Passage::export_physical(wire::Id physical, UniqueFd* descriptor) {
  return call_for(descriptor, wire::PhysicalExport{physical});
}

CUresult Passage::export_range(uint64_t address, uint64_t bytes, uint32_t flags,
                               UniqueFd* descriptor) {
  return call_for(descriptor, wire::RangeExport{address, bytes, flags});
}

CUresult Passage::import_physical(wire::Id physical, int descriptor,
                                  wire::PhysicalImport::Reply* reply) {
  if (!may_be_memory(descriptor)) return CUDA_ERROR_INVALID_VALUE;
  const CancellationHeld held;
  const MutexLock guard(lock_);
  uint32_t ticket = 0;
  const CUresult result = send(descriptor, &ticket);
  return result == CUDA_SUCCESS ? channel_.call(wire::PhysicalImport{physical, ticket}, reply)
                                : result;
}

CUresult Passage::map_host(uint64_t address, uint64_t bytes, int file, uint64_t offset,
                           uint32_t flags) {
  const MutexLock guard(lock_);
  uint32_t ticket = 0;
  const CUresult result = send(file, &ticket);
  return result == CUDA_SUCCESS
             ? channel_.call(wire::HostMap{address, bytes, offset, ticket, flags})
             : result;
}

CUresult Passage::record_into(int connection) {
  const CancellationHeld held;
  const MutexLock guard(lock_);
  return send_as(wire::kRecordTicket, connection);
}

CUresult Passage::send(int descriptor, uint32_t* ticket) {
  *ticket = ++last_ticket_;
  return send_as(*ticket, descriptor);
}

CUresult Passage::send_as(uint32_t ticket, int descriptor) {
  wire::PassDescriptor message;
  message.ticket = ticket;
  const Status sent =
      send_packet_within(kArrivalMs, socket_.get(), wire::message_bytes(message), {&descriptor, 1});
  return sent.ok() ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

}  // namespace openmps::client
