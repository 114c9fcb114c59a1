// SPDX-License-Identifier: Apache-2.0
#include "cupti/records.h"

#include <gtest/gtest.h>

namespace openmps::cupti {
namespace {

TEST(RecordsTest, EachKindIsAsLongAsItsRecord) {
  const Activity any;
  const Record records[] = {kernel_record(CUPTI_ACTIVITY_KIND_KERNEL, any, {}, ""),
                            kernel_record(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, any, {}, ""),
                            copy_record(any, {}),
                            peer_copy_record(any, {}),
                            fill_record(any, {}),
                            call_record(any, {}, 1),
                            external_record(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, 1, 1)};
  for (const Record& record : records) {
    CUpti_ActivityKind kind{};
    memcpy(&kind, record.bytes, sizeof kind);
    EXPECT_EQ(record_bytes(kind), record.size);
    EXPECT_EQ(record.size % 8, 0u);
  }
  EXPECT_EQ(record_bytes(CUPTI_ACTIVITY_KIND_RUNTIME), 0u);
  EXPECT_EQ(record_bytes(CUPTI_ACTIVITY_KIND_INVALID), 0u);
}

CUpti_ActivityMemcpyKind kind_of(MemoryKind from, MemoryKind to, bool peer = false) {
  Activity copy;
  copy.from = from;
  copy.to = to;
  copy.is_peer = peer ? 1 : 0;
  CUpti_ActivityMemcpy6 record{};
  memcpy(&record, copy_record(copy, {}).bytes, sizeof record);
  EXPECT_EQ(record.srcKind, static_cast<uint8_t>(from));
  EXPECT_EQ(record.dstKind, static_cast<uint8_t>(to));
  return static_cast<CUpti_ActivityMemcpyKind>(record.copyKind);
}

TEST(RecordsTest, WhereACopyGoes) {
  using Kind = MemoryKind;
  EXPECT_EQ(kind_of(Kind::kPageable, Kind::kDevice), CUPTI_ACTIVITY_MEMCPY_KIND_HTOD);
  EXPECT_EQ(kind_of(Kind::kPinned, Kind::kDevice), CUPTI_ACTIVITY_MEMCPY_KIND_HTOD);
  EXPECT_EQ(kind_of(Kind::kDevice, Kind::kPinned), CUPTI_ACTIVITY_MEMCPY_KIND_DTOH);
  EXPECT_EQ(kind_of(Kind::kPinned, Kind::kArray), CUPTI_ACTIVITY_MEMCPY_KIND_HTOA);
  EXPECT_EQ(kind_of(Kind::kArray, Kind::kPageable), CUPTI_ACTIVITY_MEMCPY_KIND_ATOH);
  EXPECT_EQ(kind_of(Kind::kArray, Kind::kArray), CUPTI_ACTIVITY_MEMCPY_KIND_ATOA);
  EXPECT_EQ(kind_of(Kind::kArray, Kind::kDevice), CUPTI_ACTIVITY_MEMCPY_KIND_ATOD);
  EXPECT_EQ(kind_of(Kind::kDevice, Kind::kArray), CUPTI_ACTIVITY_MEMCPY_KIND_DTOA);
  EXPECT_EQ(kind_of(Kind::kManaged, Kind::kDevice), CUPTI_ACTIVITY_MEMCPY_KIND_DTOD);
  EXPECT_EQ(kind_of(Kind::kPageable, Kind::kPinned), CUPTI_ACTIVITY_MEMCPY_KIND_HTOH);
  EXPECT_EQ(kind_of(Kind::kUnknown, Kind::kDevice), CUPTI_ACTIVITY_MEMCPY_KIND_UNKNOWN);
  EXPECT_EQ(kind_of(Kind::kDevice, Kind::kDevice, true), CUPTI_ACTIVITY_MEMCPY_KIND_PTOP);
}

}  // namespace
}  // namespace openmps::cupti
