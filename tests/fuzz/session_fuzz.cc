// SPDX-License-Identifier: Apache-2.0
// Fuzz target of the worker's command handlers: the input is what a hostile client sends through a
// well-formed ring, one command after the other, to a session on the fake driver of the unit tests.
// A command is 2 bytes of opcode, 2 bytes of length, and that many bytes of struct and variable
// part. Whatever comes, the driver only gets addresses that are the session's, replies fit, and the
// session leaves nothing behind.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "base/shared_memory.h"
#include "fake_driver.h"
#include "wire/decode.h"
#include "worker/dispatch.h"
#include "worker/driver_check.h"
#include "worker/session_parts.h"

namespace openmps::worker {
namespace {

constexpr uint32_t kWindow = 3;
constexpr uint64_t kBase = wire::window_base(kWindow);
constexpr uint64_t kHost = kBase + wire::kDeviceBytes;
constexpr uint64_t kMemoryLimit = 64 * wire::kMiB;

template <typename T>
T must(Result<T> result) {
  if (!result.ok()) abort();
  return std::move(result).value();
}

// Reads what the driver would read.
void touch(const void* data, size_t bytes) {
  static volatile unsigned char last;
  for (const unsigned char byte : std::span(static_cast<const unsigned char*>(data), bytes)) {
    last = byte;
  }
  static_cast<void>(last);
}

// The session's window, or the one global that the fake driver gives out.
void must_own(unsigned __int128 address, unsigned __int128 bytes) {
  const auto inside = [&](uint64_t begin, uint64_t size) {
    return address >= begin && address + bytes <= static_cast<unsigned __int128>(begin) + size;
  };
  if (bytes != 0 && !inside(kBase, wire::kWindowBytes) && !inside(kFakeGlobal, kFakeGlobalBytes)) {
    abort();
  }
}

void must_own_box(uint64_t start, uint64_t pitch, uint64_t rows, const CUDA_MEMCPY3D& box) {
  if (box.WidthInBytes == 0 || box.Height == 0 || box.Depth == 0) return;
  const unsigned __int128 slice = static_cast<unsigned __int128>(pitch) * rows;
  must_own(start, (box.Depth - 1) * slice + static_cast<unsigned __int128>(box.Height - 1) * pitch +
                      box.WidthInBytes);
}

void must_own_rows(uint64_t start, uint64_t pitch, uint64_t width, uint64_t height) {
  if (width == 0 || height == 0) return;
  must_own(start, static_cast<unsigned __int128>(height - 1) * pitch + width);
}

// Only the registered channel is really there: values for device memory go nowhere.
template <typename T>
void write_value(uint64_t at, uint64_t value) {
  must_own(at, sizeof(T));
  const uint64_t channel = kHost + wire::kRegisteredOffset;
  if (at < channel || at >= kHost + wire::kRegisteredEnd) return;
  reinterpret_cast<std::atomic<T>*>(at)->store(static_cast<T>(value));
}

void fill_log(unsigned count, const CUjit_option* options, void** values) {
  for (unsigned i = 0; i + 1 < count; ++i) {
    if (options[i] != CU_JIT_ERROR_LOG_BUFFER && options[i] != CU_JIT_INFO_LOG_BUFFER) continue;
    memset(values[i], 'x', reinterpret_cast<uintptr_t>(values[i + 1]));
  }
}

void must_be_text(const char* text) { touch(text, strlen(text)); }

// Waits are over at once, addresses are checked, logs are filled to the brim.
DriverTable strict(DriverTable t) {
  t.cuEventRecordWithFlags = [](CUevent, CUstream, unsigned) { return CUDA_SUCCESS; };
  t.cuStreamWriteValue64_v2 = [](CUstream, CUdeviceptr at, cuuint64_t value, unsigned) {
    return write_value<uint64_t>(at, value), CUDA_SUCCESS;
  };
  t.cuStreamWriteValue32_v2 = [](CUstream, CUdeviceptr at, cuuint32_t value, unsigned) {
    return write_value<uint32_t>(at, value), CUDA_SUCCESS;
  };
  t.cuStreamWaitValue64_v2 = [](CUstream, CUdeviceptr at, cuuint64_t, unsigned) {
    return must_own(at, 8), CUDA_SUCCESS;
  };
  t.cuStreamWaitValue32_v2 = [](CUstream, CUdeviceptr at, cuuint32_t, unsigned) {
    return must_own(at, 4), CUDA_SUCCESS;
  };
  t.cuMemcpyAsync = [](CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream) {
    return must_own(to, bytes), must_own(from, bytes), CUDA_SUCCESS;
  };
  t.cuMemcpy3DAsync_v2 = [](const CUDA_MEMCPY3D* box, CUstream) {
    must_own_box(box->dstDevice, box->dstPitch, box->dstHeight, *box);
    must_own_box(box->srcDevice, box->srcPitch, box->srcHeight, *box);
    return CUDA_SUCCESS;
  };
  t.cuMemsetD8Async = [](CUdeviceptr to, unsigned char, size_t n, CUstream) {
    return must_own(to, n), CUDA_SUCCESS;
  };
  t.cuMemsetD16Async = [](CUdeviceptr to, unsigned short, size_t n, CUstream) {
    return must_own(to, 2 * static_cast<unsigned __int128>(n)), CUDA_SUCCESS;
  };
  t.cuMemsetD32Async = [](CUdeviceptr to, unsigned, size_t n, CUstream) {
    return must_own(to, 4 * static_cast<unsigned __int128>(n)), CUDA_SUCCESS;
  };
  t.cuMemsetD2D8Async = [](CUdeviceptr to, size_t pitch, unsigned char, size_t n, size_t rows,
                           CUstream) { return must_own_rows(to, pitch, n, rows), CUDA_SUCCESS; };
  t.cuMemsetD2D16Async = [](CUdeviceptr to, size_t pitch, unsigned short, size_t n, size_t rows,
                            CUstream) {
    return must_own_rows(to, pitch, 2 * n, rows), CUDA_SUCCESS;
  };
  t.cuMemsetD2D32Async = [](CUdeviceptr to, size_t pitch, unsigned, size_t n, size_t rows,
                            CUstream) {
    return must_own_rows(to, pitch, 4 * n, rows), CUDA_SUCCESS;
  };
  t.cuModuleLoadDataEx = [](CUmodule* module, const void* image, unsigned count,
                            CUjit_option* options, void** values) {
    touch(image, 1);
    fill_log(count, options, values);
    return *module = reinterpret_cast<CUmodule>(FakeDriver::current().make("modules")),
           CUDA_SUCCESS;
  };
  t.cuLibraryLoadData = [](CUlibrary* library, const void* image, CUjit_option* options,
                           void** values, unsigned count, CUlibraryOption*, void**, unsigned) {
    touch(image, 1);
    fill_log(count, options, values);
    return *library = reinterpret_cast<CUlibrary>(FakeDriver::current().make("libraries")),
           CUDA_SUCCESS;
  };
  t.cuModuleGetGlobal_v2 = [](CUdeviceptr* address, size_t* bytes, CUmodule, const char* symbol) {
    must_be_text(symbol);
    return *address = kFakeGlobal, *bytes = kFakeGlobalBytes, CUDA_SUCCESS;
  };
  t.cuLaunchKernel = [](CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                        unsigned, CUstream, void**, void** extra) {
    if (extra != nullptr) touch(extra[1], *static_cast<size_t*>(extra[3]));
    return CUDA_SUCCESS;
  };
  t.cuLaunchKernelEx = [](const CUlaunchConfig* config, CUfunction, void**, void** extra) {
    touch(config->attrs, config->numAttrs * sizeof(CUlaunchAttribute));
    if (extra != nullptr) touch(extra[1], *static_cast<size_t*>(extra[3]));
    return CUDA_SUCCESS;
  };
  return t;
}

// The host part of the window: 64 GiB of addresses, kept from input to input.
void* host_part() {
  static const Mapping mapping = [] {
    const UniqueFd file = must(create_shared_file("fuzz", wire::kHostBytes));
    Mapping reserved = must(reserve_addresses(kHost, wire::kHostBytes));
    Mapping mapped = must(map_shared_at(kHost, file.get(), 0, wire::kHostBytes));
    reserved.leak();  // replaced by the mapping
    return mapped;
  }();
  return mapping.address();
}

// Commands until the input ends or one of them ends the session, as in Executor::run.
void play(SessionParts& session, std::span<const uint8_t> input) {
  static ReplyWriter reply;
  std::vector<unsigned char> payload;
  while (input.size() >= 4) {
    uint16_t opcode = 0;
    uint16_t bytes = 0;
    memcpy(&opcode, input.data(), 2);
    memcpy(&bytes, input.data() + 2, 2);
    input = input.subspan(4);
    const size_t taken = std::min<size_t>({bytes, input.size(), wire::kMaxRecordBytes - 64});
    // As the ring's records: padded with zeros, aligned by the allocator.
    payload.assign(wire::record_bytes(taken) - sizeof(wire::RecordHeader), 0);
    std::copy_n(input.data(), taken, payload.data());
    input = input.subspan(taken);
    wire::Record record;
    record.opcode = static_cast<wire::Opcode>(opcode);
    record.payload = payload.data();
    record.payload_bytes = static_cast<uint32_t>(payload.size());
    reply.clear();
    Status status;
    try {
      status = dispatch(session, record, reply);
    } catch (const std::bad_alloc&) {
      status = Status(CUDA_ERROR_OUT_OF_MEMORY, "");
    }
    if (is_violation(status)) {
      if (status.message().empty()) abort();  // every refusal says why
      return;
    }
  }
}

}  // namespace
}  // namespace openmps::worker

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace openmps::worker;
  FakeDriver fake;
  const openmps::DriverTable table = strict(fake.table());
  const Devices devices = must(Devices::open(table));
  ContextGate gate(table);
  Commons commons;
  SessionInfo info;
  info.id = 1;
  info.window = kWindow;
  info.memory_limit[0] = kMemoryLimit;
  {
    SessionParts session(table, devices, gate, commons, info);
    session.core.view = openmps::wire::ChannelView(host_part());
    if (!session.memory.register_channel().ok()) abort();
    play(session, {data, size});
    session.drain();
    session.release();
  }
  if (!fake.live().empty() || fake.physical_bytes() != 0) abort();
  return 0;
}
