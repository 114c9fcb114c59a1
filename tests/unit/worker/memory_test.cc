// SPDX-License-Identifier: Apache-2.0
// Memory: grants, limits, bounds of copies and fills.
#include <fcntl.h>

#include "session_fixture.h"

namespace openmps::worker {
namespace {

class MemoryTest : public SessionFixture {
 protected:
  Status copy(uint64_t destination, uint64_t source, uint64_t bytes) {
    return send(wire::Memcpy{1, 0, destination, source, bytes});
  }
};

TEST_F(MemoryTest, IsReservedAtTheFirstGrant) {
  EXPECT_EQ(driver_.live(), "registrations 1");
  map(kBase, kUnit);
  EXPECT_EQ(calls(), (Calls{"reserve", "create rdma", "map", "access"}));
  map(kBase + kUnit, kUnit);
  EXPECT_EQ(calls(), (Calls{"create rdma", "map", "access"})) << "as cuMemAlloc gives it";
}

TEST_F(MemoryTest, LimitIsEnforcedWhereMemoryIsGranted) {
  map(kBase, kLimit - kUnit);
  const wire::MemoryMap two{kBase + kLimit, 2 * kUnit, 0};
  EXPECT_EQ(send(two).code(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(send(wire::MemoryInfo{0}).ok());
  EXPECT_EQ(reply<wire::MemoryInfo::Reply>().total, kLimit);
  EXPECT_EQ(reply<wire::MemoryInfo::Reply>().free, kUnit);
  EXPECT_TRUE(send(wire::MemoryUnmap{kBase, kLimit - kUnit, 0, 0}).ok());
  EXPECT_EQ(driver_.physical_bytes(), 0u);
  map(two.address, two.bytes);
}

TEST_F(MemoryTest, FailedGrantLeavesNothing) {
  driver_.fail("access", CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(send(wire::MemoryMap{kBase, kUnit, 0}).code(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(driver_.live(), "registrations 1 reservations 1");
  EXPECT_EQ(session_->memory.granted(0), 0u);
  driver_.fail("access", CUDA_SUCCESS);
  map(kBase, kUnit);
}

TEST_F(MemoryTest, UnmapTakesWholeMappings) {
  map(kBase, kUnit);
  map(kBase + kUnit, kUnit);
  EXPECT_TRUE(is_violation(send(wire::MemoryUnmap{kBase + kUnit, 2 * kUnit, 0, 0})));
  EXPECT_EQ(session_->memory.granted(0), 2 * kUnit) << "a violation leaves everything";
  EXPECT_TRUE(send(wire::MemoryUnmap{kBase, 2 * kUnit, 0, 0}).ok());
  EXPECT_FALSE(session_->memory.contains(kBase, 1));
  EXPECT_EQ(driver_.physical_bytes(), 0u);
}

TEST_F(MemoryTest, GrantsOutsideTheWindowAreViolations) {
  for (const wire::MemoryMap& range :
       {wire::MemoryMap{kBase - kUnit, kUnit, 0}, wire::MemoryMap{kHost, kUnit, 0},
        wire::MemoryMap{kHost - kUnit, 2 * kUnit, 0}, wire::MemoryMap{kBase, 0, 0},
        wire::MemoryMap{kBase + 4096, kUnit, 0}, wire::MemoryMap{kBase, kUnit + 4096, 0},
        wire::MemoryMap{kBase, ~0ull - kUnit + 1, 0}, wire::MemoryMap{kBase, kUnit, 1}}) {
    EXPECT_TRUE(is_violation(send(range))) << std::hex << range.address;
  }
  map(kBase, 2 * kUnit);
  EXPECT_TRUE(is_violation(send(wire::MemoryMap{kBase + kUnit, kUnit, 0})));
  for (const wire::HostRegister& range :
       {wire::HostRegister{kHost, 4096}, wire::HostRegister{kPinned - 4096, 4096},
        wire::HostRegister{kPinned + 1, 4096}, wire::HostRegister{kPinned, 100},
        wire::HostRegister{kBase + wire::kWindowBytes, 4096}}) {
    EXPECT_TRUE(is_violation(send(range))) << std::hex << range.address;
  }
  EXPECT_TRUE(is_violation(send(wire::HostUnregister{kPinned, 4096})));
}

TEST_F(MemoryTest, CopiesStayInWhatTheSessionOwns) {
  create_stream(1, wire::StreamKind::kNonBlocking);
  map(kBase, kUnit);
  map(kBase + kUnit, kUnit);
  EXPECT_TRUE(send(wire::HostRegister{kPinned, 8192}).ok());
  EXPECT_TRUE(copy(kBase, kPinned, 8192).ok());
  EXPECT_TRUE(copy(kBase + kUnit - 8, kStaging, 16).ok()) << "across two grants";
  EXPECT_TRUE(copy(kBase, kBase + 2 * kUnit, 0).ok()) << "nothing is copied";
  EXPECT_TRUE(is_violation(copy(kBase + 2 * kUnit - 8, kStaging, 16)));
  EXPECT_TRUE(is_violation(copy(kBase - 8, kStaging, 16)));
  EXPECT_TRUE(is_violation(copy(kBase, kPinned + 8191, 2)));
  EXPECT_TRUE(is_violation(copy(kBase, kHost, 16))) << "the header is not registered";
  EXPECT_TRUE(is_violation(copy(kBase, ~0ull, 2)));
  EXPECT_TRUE(is_violation(copy(kBase, kStaging, ~0ull)));
  EXPECT_TRUE(is_violation(copy(wire::window_base(kWindow + 1), kStaging, 4)));
}

TEST_F(MemoryTest, BoxesAreMeasuredFromTheirFirstToTheirLastByte) {
  create_stream(1, wire::StreamKind::kNonBlocking);
  map(kBase, kUnit);
  wire::Memcpy3D box{1, 0, kBase, kStaging, 1024, 64, 1024 * 16, 64 * 16, 64, 16, 8};
  EXPECT_TRUE(send(box).ok());
  EXPECT_EQ(calls().back(), "copy3d s1");
  // The last row ends with the width, not with the pitch.
  box.destination = kBase + kUnit - (7 * 1024 * 16 + 15 * 1024 + 64);
  EXPECT_TRUE(send(box).ok());
  box.destination += 1;
  EXPECT_TRUE(is_violation(send(box)));
  box.destination = kBase;
  box.destination_slice = 1000;
  EXPECT_TRUE(is_violation(send(box))) << "a slice of no whole rows";
  box.destination_slice = ~0ull;
  EXPECT_TRUE(is_violation(send(box)));
}

TEST_F(MemoryTest, FillsKnowTheirElements) {
  create_stream(1, wire::StreamKind::kNonBlocking);
  map(kBase, kUnit);
  calls();
  EXPECT_TRUE(send(wire::Memset{1, 4, kBase, 0, kUnit / 4, 1, 7}).ok());
  EXPECT_EQ(calls(), (Calls{"stream 0", "fill32 s1 " + std::to_string(kUnit / 4)}));
  EXPECT_TRUE(send(wire::Memset{1, 2, kBase, 256, 4, 10, 7}).ok());
  EXPECT_EQ(calls(), Calls{"fill2d s1"});
  EXPECT_TRUE(is_violation(send(wire::Memset{1, 4, kBase, 0, kUnit / 4 + 1, 1, 7})));
  EXPECT_TRUE(is_violation(send(wire::Memset{1, 3, kBase, 0, 1, 1, 7})));
  EXPECT_TRUE(is_violation(send(wire::Memset{1, 4, kBase, 0, ~0ull, 1, 7})));
  EXPECT_TRUE(is_violation(send(wire::Memset{1, 1, kBase, ~0ull / 2, 1, 8, 7})));
}

TEST_F(MemoryTest, PhysicalMemoryIsCountedWhereItIsMade) {
  using wire::PhysicalMap;
  EXPECT_TRUE(send(wire::PhysicalCreate{1, 0, 3 * kUnit, 0}).ok());
  EXPECT_EQ(session_->memory.granted(0), 3 * kUnit);
  EXPECT_EQ(send(wire::PhysicalCreate{2, 0, kLimit, 0}).code(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(send(wire::PhysicalMap{kBase, 3 * kUnit, 0, 1}).ok());
  EXPECT_TRUE(send(wire::PhysicalMap{kBase + 4 * kUnit, kUnit, kUnit, 1}).ok());
  EXPECT_EQ(session_->memory.granted(0), 3 * kUnit) << "mappings cost nothing";
  EXPECT_FALSE(session_->memory.contains(kBase, 1)) << "no access yet";
  const wire::MemoryAccess reading{kBase, 3 * kUnit, 0, CU_MEM_ACCESS_FLAGS_PROT_READ};
  EXPECT_TRUE(send(reading).ok());
  EXPECT_TRUE(session_->memory.contains(kBase, 3 * kUnit));
  EXPECT_FALSE(session_->memory.contains(kBase, 1, true));
  EXPECT_TRUE(send(wire::PhysicalRelease{1}).ok());
  EXPECT_EQ(session_->memory.granted(0), 3 * kUnit) << "the mappings hold it";
  EXPECT_TRUE(send(wire::MemoryUnmap{kBase, 3 * kUnit, 0, 0}).ok());
  EXPECT_TRUE(send(wire::MemoryUnmap{kBase + 4 * kUnit, kUnit, 0, 0}).ok());
  EXPECT_EQ(session_->memory.granted(0), 0u);
}

TEST_F(MemoryTest, MapsOnlyPartsOfWhatItHas) {
  using wire::PhysicalMap;
  EXPECT_TRUE(send(wire::PhysicalCreate{1, 0, 2 * kUnit, 0}).ok());
  for (const PhysicalMap& bad :
       {PhysicalMap{kBase, 3 * kUnit, 0, 1}, PhysicalMap{kBase, kUnit, 2 * kUnit, 1},
        PhysicalMap{kBase, kUnit, ~0ull - kUnit + 1, 1}, PhysicalMap{kBase, kUnit, 5, 1},
        PhysicalMap{kBase, kUnit, 0, 2}, PhysicalMap{kBase - kUnit, kUnit, 0, 1},
        PhysicalMap{kHost, kUnit, 0, 1}, PhysicalMap{kBase, 0, 0, 1}}) {
    EXPECT_TRUE(is_violation(send(bad)));
  }
  EXPECT_TRUE(
      is_violation(send(wire::MemoryAccess{kBase, kUnit, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE})))
      << "nothing is mapped";
  EXPECT_TRUE(send(wire::PhysicalMap{kBase, kUnit, 0, 1}).ok());
  EXPECT_TRUE(is_violation(send(wire::MemoryAccess{kBase, kUnit, 0, 2})));
  EXPECT_TRUE(is_violation(send(wire::PhysicalCreate{1, 0, kUnit, 0}))) << "the id is in use";
  EXPECT_TRUE(is_violation(send(wire::PhysicalCreate{3, 0, 100, 0})));
}

TEST_F(MemoryTest, ExtentsLieBesideTheWindow) {
  constexpr uint64_t kBytes = 80 * kUnit;
  EXPECT_TRUE(send(wire::AddressReserve{kBytes, 4 * kUnit}).ok());
  const uint64_t extent = reply<wire::AddressReserve::Reply>().address;
  EXPECT_EQ(extent % (4 * kUnit), 0u);
  EXPECT_FALSE(worker_parts_.addresses.claim(extent, kUnit)) << "nobody else gets it";
  map(extent + 79 * kUnit, kUnit);
  EXPECT_TRUE(session_->memory.contains(extent + 79 * kUnit, kUnit));
  EXPECT_TRUE(is_violation(send(wire::MemoryMap{extent + 79 * kUnit, 2 * kUnit, 0})));
  EXPECT_TRUE(is_violation(send(wire::AddressFree{extent, kBytes}))) << "something is mapped";
  EXPECT_TRUE(send(wire::MemoryUnmap{extent + 79 * kUnit, kUnit, 0, 0}).ok());
  EXPECT_TRUE(is_violation(send(wire::AddressFree{extent, kUnit})));
  EXPECT_TRUE(send(wire::AddressFree{extent, kBytes}).ok());
  EXPECT_TRUE(worker_parts_.addresses.claim(extent, kUnit));
  worker_parts_.addresses.release(extent);
  for (const wire::AddressReserve& bad :
       {wire::AddressReserve{0, kUnit}, wire::AddressReserve{kUnit + 1, kUnit},
        wire::AddressReserve{kUnit, 0}, wire::AddressReserve{kUnit, 3 * kUnit}}) {
    EXPECT_TRUE(is_violation(send(bad)));
  }
  EXPECT_EQ(send(wire::AddressReserve{wire::kMaxExtentBytes + kUnit, kUnit}).code(),
            CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(MemoryTest, HolesOfTheDriversAreFilledUntilItGivesWhatIsAskedFor) {
  driver_.holes = 3;
  driver_.take_calls();
  map(kBase, kUnit);
  const Calls all = calls();
  const auto count = [&all](const char* call) { return std::count(all.begin(), all.end(), call); };
  EXPECT_EQ(count("reserve"), 4);
  EXPECT_EQ(count("free addresses"), 3);
  driver_.holes = 10'000;
  EXPECT_EQ(send(wire::AddressReserve{kUnit, kUnit}).code(), CUDA_ERROR_OUT_OF_MEMORY);
  driver_.holes = 0;
  EXPECT_TRUE(send(wire::AddressReserve{kUnit, kUnit}).ok());
}

TEST_F(MemoryTest, ADmaBufIsOfMappedDeviceMemory) {
  using wire::RangeExport;
  map(kBase, kUnit);
  map(kBase + kUnit, kUnit);
  EXPECT_TRUE(send(wire::PhysicalCreate{1, 0, kUnit, 0}).ok());
  EXPECT_TRUE(send(wire::PhysicalMap{kBase + 3 * kUnit, kUnit, 0, 1}).ok());
  EXPECT_TRUE(send(wire::HostRegister{kPinned, kUnit}).ok());
  session_->memory.add_global(kFakeGlobal, kUnit, Lane::kMain);
  EXPECT_EQ(send(wire::RangeExport{kBase, kUnit, 0, 1}).code(), CUDA_ERROR_NOT_SUPPORTED)
      << "no way to send it";
  std::vector<uint32_t> tickets;
  session_->physical.send = [&](uint32_t ticket, int descriptor) {
    EXPECT_GE(fcntl(descriptor, F_GETFD), 0);
    tickets.push_back(ticket);
  };
  calls();
  constexpr uint32_t kPcie = CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE;
  for (const RangeExport& good :
       {RangeExport{kBase, 4096, 0, 7}, RangeExport{kBase + kUnit - 4096, 8192, kPcie, 8},
        RangeExport{kBase + 3 * kUnit, kUnit, 0, 9}}) {
    EXPECT_TRUE(send(good).ok()) << std::hex << good.address;
  }
  EXPECT_EQ(calls(), (Calls{"dma-buf 4096 0", "dma-buf 8192 1", "dma-buf 2097152 0"}));
  EXPECT_EQ(tickets, (std::vector<uint32_t>{7, 8, 9}));
  for (const RangeExport& bad :
       {RangeExport{kBase, 0, 0, 1}, RangeExport{kBase - 4096, 4096, 0, 1},
        RangeExport{kBase + kUnit, kUnit + 4096, 0, 1}, RangeExport{kBase, 4 * kUnit, 0, 1},
        RangeExport{kPinned, 4096, 0, 1}, RangeExport{kFakeGlobal, 4096, 0, 1},
        RangeExport{kBase, ~0ull - 4095, 0, 1},
        RangeExport{wire::window_base(kWindow + 1), 4096, 0, 1}}) {
    EXPECT_EQ(send(bad).code(), CUDA_ERROR_INVALID_VALUE)
        << std::hex << bad.address << " " << bad.bytes;
  }
  for (const RangeExport& wrong : {RangeExport{kBase + 512, 4096, 0, 1},
                                   RangeExport{kBase, 100, 0, 1}, RangeExport{kBase, 4096, 2, 1}}) {
    EXPECT_TRUE(is_violation(send(wrong)));
  }
  driver_.fail("dma-buf", CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(send(wire::RangeExport{kBase, 4096, 0, 1}).code(), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(tickets.size(), 3u);
  session_->memory.remove_global(kFakeGlobal);
}

TEST_F(MemoryTest, SharedMemoryOutlivesItsOwner) {
  map(kBase, 2 * kUnit);
  EXPECT_TRUE(send(wire::MemoryPublish{kBase, 2 * kUnit}).ok());
  const auto key = reply<wire::ShareKey>();
  EXPECT_TRUE(is_violation(send(wire::MemoryPublish{kBase, kUnit})));

  SessionInfo info;
  info.id = 2;
  info.window = kWindow + 1;
  SessionParts other(driver_.table(), *devices_, gate_, worker_parts_, info);
  const uint64_t there = wire::window_base(kWindow + 1);
  ReplyWriter written;
  const ReplyTo<wire::MemoryOpen> reply(written);
  EXPECT_EQ(other.ipc_commands.handle(wire::MemoryOpen{key, there, kUnit}, reply).code(),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_TRUE(
      is_violation(other.ipc_commands.handle(wire::MemoryOpen{key, kBase, 2 * kUnit}, reply)))
      << "only at addresses of its own";
  ASSERT_TRUE(other.ipc_commands.handle(wire::MemoryOpen{key, there, 2 * kUnit}, reply).ok());
  EXPECT_TRUE(other.memory.contains(there, 2 * kUnit, true));
  EXPECT_EQ(other.memory.granted(0), 2 * kUnit) << "what is held counts";
  EXPECT_TRUE(is_violation(other.ipc_commands.handle(wire::MemoryWithdraw{key})))
      << "it is not its own";

  EXPECT_TRUE(send(wire::MemoryWithdraw{key}).ok());
  EXPECT_TRUE(send(wire::MemoryUnmap{kBase, 2 * kUnit, 0, 0}).ok());
  EXPECT_EQ(session_->memory.granted(0), 0u);
  EXPECT_TRUE(other.memory.contains(there, 2 * kUnit, true));
  EXPECT_EQ(
      other.ipc_commands.handle(wire::MemoryOpen{key, there + 4 * kUnit, 2 * kUnit}, reply).code(),
      CUDA_ERROR_INVALID_HANDLE);
  other.release();
}

TEST_F(MemoryTest, SharedEventsOutliveTheirOwner) {
  EXPECT_TRUE(send(wire::EventCreate{1, 0, 0}).ok());
  EXPECT_TRUE(send(wire::EventPublish{1}).ok());
  const auto key = reply<wire::ShareKey>();
  SessionInfo info;
  info.id = 2;
  info.window = kWindow + 1;
  SessionParts other(driver_.table(), *devices_, gate_, worker_parts_, info);
  ASSERT_TRUE(other.ipc_commands.handle(wire::EventOpen{1, 0, key}).ok());
  EXPECT_TRUE(send(wire::EventDestroy{1}).ok());
  EXPECT_TRUE(send_to(other, wire::EventQuery{1}).ok());
  other.release();
}

TEST(AddressBookTest, WindowsFromBelowExtentsFromAbove) {
  AddressBook book;
  constexpr uint64_t kWhole = wire::kWindowBytes;
  EXPECT_TRUE(book.claim(wire::window_base(0), kWhole));
  EXPECT_FALSE(book.claim(wire::window_base(0) + kUnit, kUnit));
  EXPECT_TRUE(book.claim(wire::window_base(1), kWhole));
  const auto top = book.claim_highest(kWhole, kUnit);
  ASSERT_TRUE(top.has_value());
  EXPECT_EQ(*top, wire::kAddressEnd - kWhole);
  const auto next = book.claim_highest(kUnit, kUnit);
  EXPECT_EQ(next.value_or(0), *top - kUnit);
  EXPECT_FALSE(book.claim_highest(wire::kAddressEnd, kUnit).has_value());
  // Until nothing is left but the windows that are in use; the hole is never given out.
  uint64_t count = 0;
  while (const auto more = book.claim_highest(kWhole, kUnit)) {
    EXPECT_GE(*more, wire::window_base(2));
    EXPECT_TRUE(*more + kWhole <= wire::kAddressHole || *more >= wire::kAddressHoleEnd);
    ++count;
  }
  EXPECT_GE(count, wire::kMaxWindows - 4u);
  book.release(wire::window_base(1));
  // Without address space beside the windows (ThreadSanitizer) the rest from above is part of it.
  const uint64_t again = book.claim_highest(kWhole, kUnit).value_or(0);
  EXPECT_GE(again, wire::window_base(1));
  EXPECT_LT(again, wire::window_base(2));
}

TEST(AddressBookTest, WorkersChooseFromDifferentPlaces) {
  const auto reserved = [](uint64_t) { return Status(); };
  AddressBook first;
  AddressBook second;
  second.begin_at(1);
  const Result<uint64_t> one = first.claim_reserved(kUnit, kUnit, reserved);
  const Result<uint64_t> other = second.claim_reserved(kUnit, kUnit, reserved);
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_EQ(*one, wire::kAddressEnd - kUnit);
  EXPECT_LT(*other, *one);
  EXPECT_GE(*other, wire::kFirstWindow);
  // What is above its place is taken last.
  while (second.claim_highest(wire::kWindowBytes, kUnit, *other).has_value()) {
  }
  const Result<uint64_t> above = second.claim_reserved(wire::kWindowBytes, kUnit, reserved);
  ASSERT_TRUE(above.ok());
  EXPECT_GT(*above, *other);
}

TEST(AddressBookTest, NobodyGetsWhatASessionHasLeftWith) {
  constexpr uint64_t kBegin = wire::kAddressEnd - 8 * kUnit;
  AddressBook book;
  ASSERT_TRUE(book.claim(kBegin, 2 * kUnit));
  book.leave(kBegin, 7);
  EXPECT_FALSE(book.claim(kBegin + kUnit, 2 * kUnit));
  EXPECT_FALSE(book.claim(kBegin, 2 * kUnit, 8));
  // It comes back with less, or with more.
  EXPECT_TRUE(book.claim(kBegin + kUnit, 2 * kUnit, 7));
  EXPECT_FALSE(book.claim(kBegin + kUnit, 2 * kUnit, 7)) << "it is used now";
  EXPECT_TRUE(book.claim(kBegin, kUnit));
  book.leave(kBegin, 7);
  book.forget(8);
  EXPECT_FALSE(book.claim(kBegin, kUnit));
  book.forget(7);
  EXPECT_TRUE(book.claim(kBegin, kUnit));
  EXPECT_FALSE(book.claim(kBegin + kUnit, kUnit)) << "what it uses is not forgotten";
}

TEST(ConstantsTest, PartsOfARangeBelongToConstants) {
  Constants constants;
  constants.add({.address = 1000, .bytes = 16, .in_code = 50});
  constants.add({.address = 1256, .bytes = 8, .in_code = 90});
  EXPECT_EQ(constants.at(999), nullptr);
  ASSERT_NE(constants.at(1015), nullptr);
  EXPECT_EQ(constants.at(1015)->in_code, 50u);
  EXPECT_EQ(constants.at(1016), nullptr);
  ASSERT_NE(constants.in_code(90), nullptr);
  EXPECT_EQ(constants.in_code(90)->address, 1256u);
  EXPECT_EQ(constants.in_code(91), nullptr);
  using Part = std::array<uint64_t, 3>;
  const auto parts = [&](uint64_t begin, uint64_t bytes) {
    std::vector<Part> found;
    constants.for_each_in(begin, bytes, [&](uint64_t from, CUdeviceptr to, uint64_t part) {
      found.push_back({from, to, part});
    });
    return found;
  };
  EXPECT_EQ(parts(0, 1000), std::vector<Part>());
  EXPECT_EQ(parts(1004, 4), (std::vector<Part>{{1004, 54, 4}}));
  EXPECT_EQ(parts(1012, 400), (std::vector<Part>{{1012, 62, 4}, {1256, 90, 8}}));
  EXPECT_EQ(parts(1260, 1000), (std::vector<Part>{{1260, 94, 4}}));
  EXPECT_EQ(parts(1264, 1000), std::vector<Part>());
  constants.remove(1000);
  EXPECT_EQ(parts(0, 4096), (std::vector<Part>{{1256, 90, 8}}));
}

class TwoDevicesTest : public MemoryTest {
 protected:
  TwoDevicesTest() { driver_.devices = 2; }
};

// Copies reach memory of every device, peers or not; the first of a device opens it.
TEST_F(TwoDevicesTest, CopiesReachTheOtherDevice) {
  create_stream(1, wire::StreamKind::kNonBlocking);  // of the first device
  map(kBase, kUnit);
  EXPECT_TRUE(send(wire::MemoryMap{kBase + kUnit, kUnit, 1}).ok());
  calls();
  EXPECT_TRUE(copy(kBase, kStaging, 64).ok());
  EXPECT_EQ(calls(), (Calls{"stream 0", "copy s1 64"}));
  EXPECT_TRUE(copy(kBase, kBase + kUnit, 64).ok());
  EXPECT_EQ(calls(), (Calls{"access", "copy s1 64"}));
  EXPECT_TRUE(copy(kBase + kUnit, kStaging, 64).ok());
  EXPECT_EQ(calls(), (Calls{"copy s1 64"}));
  // A peer that stops being one takes the access of its copies along: the next opens it again.
  EXPECT_TRUE(send(wire::PeerAccess{0, 1, 1}).ok());
  EXPECT_TRUE(send(wire::PeerAccess{0, 1, 0}).ok());
  calls();
  EXPECT_TRUE(copy(kBase, kBase + kUnit, 64).ok());
  EXPECT_EQ(calls(), (Calls{"access", "copy s1 64"}));
}

}  // namespace
}  // namespace openmps::worker
