// SPDX-License-Identifier: Apache-2.0
// A program's own pages in the worker: addresses, files, registrations, and who may name them.
#include "worker/memory/host_pages.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cstring>

#include "base/shared_memory.h"
#include "session_fixture.h"

namespace openmps::worker {
namespace {

constexpr uint64_t kPage = wire::kHostPageBytes;

class HostPagesTest : public SessionFixture {
 protected:
  void SetUp() override {
    SessionFixture::SetUp();
    Result<UniqueFd> file = create_shared_file("host pages", 16 * kPage);
    ASSERT_TRUE(file.ok());
    file_ = std::move(*file);
    ASSERT_EQ(pwrite(file_.get(), "x", 1, 3 * kPage), 1);
    // Addresses that nobody has.
    void* free = mmap(nullptr, 16 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(free, 16 * kPage);
    wanted_ = reinterpret_cast<uint64_t>(free);
  }
  uint64_t reserve(uint64_t wanted, uint64_t bytes) {
    EXPECT_TRUE(send(wire::HostReserve{wanted, bytes}).ok());
    return reply<wire::HostReserve::Reply>().address;
  }
  Status map(uint64_t address, uint64_t bytes, uint64_t offset = 0, uint32_t flags = 0) {
    session_->physical.inbox.put(++ticket_, UniqueFd(dup(file_.get())));
    return send(wire::HostMap{address, bytes, offset, ticket_, flags});
  }

  UniqueFd file_;
  uint64_t wanted_ = 0;
  uint32_t ticket_ = 0;
};

TEST_F(HostPagesTest, LieWhereTheProgramHasThem) {
  ASSERT_EQ(reserve(wanted_, 4 * kPage), wanted_);
  ASSERT_TRUE(map(wanted_, 4 * kPage, 2 * kPage).ok());
  EXPECT_EQ(*reinterpret_cast<const char*>(wanted_ + kPage), 'x') << "the file's fourth page";
  create_stream(1, wire::StreamKind::kNonBlocking);
  EXPECT_TRUE(is_violation(send(wire::Memset{1, 1, wanted_, 0, 4, 1, 7})));
}

TEST_F(HostPagesTest, OnlyWhatIsRegisteredIsNamed) {
  reserve(wanted_, 4 * kPage);
  ASSERT_TRUE(map(wanted_, 4 * kPage).ok());
  create_stream(1, wire::StreamKind::kNonBlocking);
  ASSERT_TRUE(send(wire::HostRegister{wanted_ + 100, 2 * kPage}).ok());
  EXPECT_TRUE(send(wire::Memset{1, 1, wanted_ + 100, 0, 2 * kPage, 1, 7}).ok());
  EXPECT_TRUE(send(wire::HostUnregister{wanted_ + 100, 2 * kPage}).ok());
  EXPECT_TRUE(is_violation(send(wire::Memset{1, 1, wanted_ + 100, 0, 4, 1, 7})));
}

TEST_F(HostPagesTest, NeighboursShareAPage) {
  ASSERT_EQ(reserve(wanted_, 2 * kPage), wanted_);
  ASSERT_EQ(reserve(wanted_ + 2 * kPage, 2 * kPage), wanted_ + 2 * kPage);
  ASSERT_TRUE(map(wanted_, 2 * kPage).ok());
  ASSERT_TRUE(map(wanted_ + 2 * kPage, 2 * kPage).ok());
  ASSERT_TRUE(send(wire::HostRegister{wanted_, kPage + 100}).ok());
  ASSERT_TRUE(send(wire::HostRegister{wanted_ + kPage + 100, 2 * kPage}).ok()) << "over both";
  EXPECT_TRUE(send(wire::HostUnregister{wanted_, kPage + 100}).ok());
  EXPECT_TRUE(send(wire::HostFree{wanted_}).ok());
  create_stream(1, wire::StreamKind::kNonBlocking);
  EXPECT_TRUE(send(wire::Memset{1, 1, wanted_ + kPage + 100, 0, 2 * kPage, 1, 7}).ok());
  EXPECT_EQ(*reinterpret_cast<const char*>(wanted_ + kPage), 0) << "still there";
}

TEST_F(HostPagesTest, AreElsewhereWhereAddressesAreTaken) {
  void* taken = mmap(reinterpret_cast<void*>(wanted_ + kPage), kPage, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  ASSERT_NE(taken, MAP_FAILED);
  const uint64_t address = reserve(wanted_, 4 * kPage);
  EXPECT_NE(address, wanted_);
  EXPECT_TRUE(map(address, 4 * kPage, 3 * kPage).ok());
  EXPECT_EQ(*reinterpret_cast<const char*>(address), 'x');
  EXPECT_NE(reserve(kBase, kPage), kBase) << "a window's";
  munmap(taken, kPage);
}

TEST_F(HostPagesTest, AreNotWrittenIfTheyAreForReading) {
  reserve(wanted_, 2 * kPage);
  ASSERT_TRUE(map(wanted_, 2 * kPage, 0, wire::kHostReadOnly).ok());
  ASSERT_TRUE(send(wire::HostRegister{wanted_, 2 * kPage}).ok());
  create_stream(1, wire::StreamKind::kNonBlocking);
  EXPECT_TRUE(is_violation(send(wire::Memset{1, 1, wanted_, 0, 4, 1, 7})));
}

TEST_F(HostPagesTest, ViolationsAndFilesOfNoUse) {
  EXPECT_TRUE(is_violation(send(wire::HostReserve{wanted_ + 1, kPage})));
  EXPECT_TRUE(is_violation(send(wire::HostReserve{wanted_, 100})));
  EXPECT_TRUE(is_violation(send(wire::HostReserve{wanted_, 0})));
  reserve(wanted_, 2 * kPage);
  EXPECT_TRUE(is_violation(map(wanted_, 3 * kPage)));
  EXPECT_TRUE(is_violation(map(wanted_ - kPage, kPage)));
  EXPECT_TRUE(is_violation(map(wanted_, kPage, 1)));
  EXPECT_TRUE(is_violation(send(wire::HostFree{wanted_ + kPage})));
  session_->physical.inbox.put(++ticket_, UniqueFd(open("/dev/null", O_RDWR | O_CLOEXEC)));
  EXPECT_EQ(send(wire::HostMap{wanted_, kPage, 0, ticket_, 0}).code(), CUDA_ERROR_NOT_SUPPORTED);
  ASSERT_TRUE(map(wanted_, 2 * kPage).ok());
  ASSERT_TRUE(send(wire::HostRegister{wanted_, kPage}).ok());
  EXPECT_TRUE(is_violation(map(wanted_, kPage))) << "the driver has these";
  EXPECT_TRUE(send(wire::HostFree{wanted_}).ok());
  EXPECT_TRUE(is_violation(send(wire::HostRegister{wanted_ + kPage, 100}))) << "they have gone";
}

}  // namespace
}  // namespace openmps::worker
