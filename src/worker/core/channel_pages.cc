// SPDX-License-Identifier: Apache-2.0
// See channel_pages.h.
#include "worker/core/channel_pages.h"

#include <sys/mman.h>

#include <algorithm>

#include "worker/device/driver_check.h"
#include "worker/device/in_context.h"

namespace openmps::worker {
namespace {

using wire::kCallbackOffset;
using wire::kFenceOffset;
using wire::kRegisteredOffset;
using wire::kStagingOffset;

constexpr uint64_t kFences = kFenceOffset - kRegisteredOffset;
constexpr uint64_t kCallbacks = kCallbackOffset - kRegisteredOffset;
constexpr uint64_t kStaging = kStagingOffset - kRegisteredOffset;

}  // namespace

// The gap between the last host function and the staging arena counts as part of the host
// functions.
constinit const std::array<uint64_t, ChannelPages::kPieces + 1> ChannelPages::kBegins = [] {
  constexpr uint64_t kPage = wire::kHostPageBytes;
  std::array<uint64_t, kPieces + 1> begins{kFences, kFences + kPage, kCallbacks,
                                           kCallbacks + kPage};
  uint64_t at = 0;  // in the staging arena
  for (uint32_t number = kFirstStaging; number <= kPieces; ++number) {
    begins[number] = kStaging + at;
    const uint64_t large = at < kFirstGroup ? wire::kStagingPieceBytes : kGroupBytes;
    at += at < wire::kSmallStagingBytes ? kSmallBytes : large;
  }
  return begins;
}();

Status ChannelPages::add(uint64_t begin, uint64_t end) {
  const InContext current(driver_, context());
  void* pages = reinterpret_cast<void*>(begin_ + begin);
  return check(driver_.cuMemHostRegister_v2(pages, end - begin, kHostRegisterFlags),
               "cuMemHostRegister of the channel");
}

Status ChannelPages::open(const wire::ChannelView& view, uint64_t* delta) {
  view_ = view;
  begin_ = reinterpret_cast<uint64_t>(view.start()) + kRegisteredOffset;
  OPENMPS_RETURN_IF_ERROR(use(begin_, 1));
  const InContext current(driver_, context());
  CUdeviceptr device = 0;
  void* host = reinterpret_cast<void*>(begin_);
  OPENMPS_RETURN_IF_ERROR(check(driver_.cuMemHostGetDevicePointer_v2(&device, host, 0),
                                "cuMemHostGetDevicePointer of the channel"));
  *delta = 0;
  if (device == begin_) return Status();
  // Separate registrations would each have a different delta.
  driver_.cuMemHostUnregister(host);
  registered_.reset();
  OPENMPS_RETURN_IF_ERROR(add(0, kBytes));
  whole_ = true;
  OPENMPS_RETURN_IF_ERROR(check(driver_.cuMemHostGetDevicePointer_v2(&device, host, 0),
                                "cuMemHostGetDevicePointer of the channel"));
  *delta = device - begin_;
  return Status();
}

Status ChannelPages::use_part(uint64_t offset, uint64_t bytes) {
  if (whole_ || bytes == 0) return Status();
  const uint64_t last = offset + std::min(bytes, kBytes - offset) - 1;
  const auto behind_first = std::ranges::upper_bound(kBegins, offset);
  for (auto number = static_cast<uint32_t>(behind_first - kBegins.begin() - 1);
       number < kPieces && kBegins[number] <= last; ++number) {
    if (registered_.test(number)) continue;
    OPENMPS_RETURN_IF_ERROR(add(kBegins[number], kBegins[number + 1]));
    registered_.set(number);
  }
  return Status();
}

bool ChannelPages::give_back_staging() {
  if (whole_) return true;
  const InContext current(driver_, context());
  for (uint32_t number = kFirstStaging; number < kPieces; ++number) {
    if (!registered_.test(number)) continue;
    void* pages = reinterpret_cast<void*>(begin_ + kBegins[number]);
    // One quiescence for each piece, so that work submitted now does not wait for all pieces.
    const Request look{GatedCall::kHostUnregister, ContextGate::kAllDevices, &gate_client_,
                       Patience::kOneHold};
    if (!gate_.run_quiescent(look, [&] { return driver_.cuMemHostUnregister(pages); })) {
      return false;
    }
    registered_.reset(number);
  }
  return true;
}

bool ChannelPages::release_idle() {
  const bool all = give_back_staging();
  unsigned char* start = view_.start();
  madvise(start, kRegisteredOffset, MADV_DONTNEED);
  madvise(start + kStagingOffset, wire::kChannelBytes - kStagingOffset, MADV_DONTNEED);
  return all;
}

void ChannelPages::release_all() {
  const auto give_back = [this](uint64_t begin, uint64_t end) {
    const uint64_t address = begin_ + begin;
    releases_.add_quiescent({wire::ReturnKind::kHostMemory, address, end - begin},
                            {GatedCall::kHostUnregister, ContextGate::kAllDevices, context(),
                             [&driver = driver_, address] {
                               return driver.cuMemHostUnregister(reinterpret_cast<void*>(address));
                             }},
                            [] {});
  };
  if (whole_) give_back(0, kBytes);
  whole_ = false;
  for (uint32_t number = 0; number < kPieces; ++number) {
    if (!registered_.test(number)) continue;
    give_back(kBegins[number], kBegins[number + 1]);
    registered_.reset(number);
  }
}

}  // namespace openmps::worker
