// SPDX-License-Identifier: Apache-2.0
#include "profiler.h"

#include <dlfcn.h>

#include <cstdlib>

#include "base/clock.h"

namespace openmps::cupti::test {

Profiler::Buffers& Profiler::buffers() {
  static Buffers all;
  return all;
}

namespace {

using GetNextRecord = CUptiResult (*)(uint8_t*, size_t, CUpti_Activity**);
GetNextRecord get_next_record = nullptr;

}  // namespace

void Profiler::SetUp() {
  const std::string path = std::string(CUPTI_FOLDER "/libcupti.so.") + std::to_string(GetParam());
  library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library_, nullptr) << dlerror();
  get_next_record = reinterpret_cast<GetNextRecord>(symbol("cuptiActivityGetNextRecord"));
  Buffers& all = buffers();
  all.bytes = size_t{1} << 20;
  all.most_records = 0;
  all.requested = all.completed = 0;
  all.valid.clear();
  all.records.clear();
  all.in_complete = nullptr;
  FakeDriver& fake = driver();
  fake.has_table = true;
  fake.start_result = CUDA_SUCCESS;
  fake.why = nullptr;
  fake.starts = fake.stops = 0;
  fake.ended.clear();
}

void Profiler::TearDown() {
  driver().has_table = true;
  EXPECT_EQ(cupti("cuptiFinalize"), CUPTI_SUCCESS);
  EXPECT_EQ(buffers().outstanding(), 0);
  EXPECT_EQ(driver().starts, driver().stops);
}

void* Profiler::symbol(const char* name) { return dlsym(library_, name); }

void Profiler::register_callbacks() {
  ASSERT_EQ(cupti("cuptiActivityRegisterCallbacks", &Profiler::request, &Profiler::complete),
            CUPTI_SUCCESS);
}

size_t Profiler::dropped() {
  size_t count = 12345;
  EXPECT_EQ(cupti("cuptiActivityGetNumDroppedRecords", CUcontext{}, 0u, &count), CUPTI_SUCCESS);
  return count;
}

uint64_t Profiler::timestamp() {
  uint64_t time = 0;
  EXPECT_EQ(cupti("cuptiGetTimestamp", &time), CUPTI_SUCCESS);
  return time;
}

std::vector<CUpti_ActivityKind> Profiler::kinds() {
  std::vector<CUpti_ActivityKind> found;
  for (const CUpti_Activity& record : records_as<CUpti_Activity>()) found.push_back(record.kind);
  return found;
}

void Profiler::request(uint8_t** buffer, size_t* size, size_t* most) {
  Buffers& all = buffers();
  const std::lock_guard guard(all.lock);
  if (all.bytes == 0) {
    *buffer = nullptr;
    *size = 0;
    return;
  }
  ++all.requested;
  *buffer = static_cast<uint8_t*>(malloc(all.bytes));
  memset(*buffer, 0xee, all.bytes);
  *size = all.bytes;
  *most = all.most_records;
}

void Profiler::complete(CUcontext, uint32_t, uint8_t* buffer, size_t size, size_t valid) {
  Buffers& all = buffers();
  if (all.in_complete) all.in_complete();
  const std::lock_guard guard(all.lock);
  ++all.completed;
  all.valid.push_back(valid);
  EXPECT_LE(valid, size);
  std::vector<uint8_t*> begins;
  CUpti_Activity* record = nullptr;
  CUptiResult result = CUPTI_SUCCESS;
  while ((result = get_next_record(buffer, valid, &record)) == CUPTI_SUCCESS) {
    begins.push_back(reinterpret_cast<uint8_t*>(record));
  }
  EXPECT_EQ(result, CUPTI_ERROR_MAX_LIMIT_REACHED);
  begins.push_back(buffer + valid);
  for (size_t i = 0; i + 1 < begins.size(); ++i) all.records.emplace_back(begins[i], begins[i + 1]);
  free(buffer);
}

Activity activity(ActivityKind kind, uint32_t correlation, uint64_t ns_ago) {
  Activity made;
  made.kind = kind;
  made.correlation = correlation;
  made.begin_ns = now_ns() - ns_ago;
  made.end_ns = made.begin_ns + 10;
  return made;
}

INSTANTIATE_TEST_SUITE_P(Libcupti, Profiler, testing::Values(12, 13));

}  // namespace openmps::cupti::test
