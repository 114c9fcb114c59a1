// SPDX-License-Identifier: Apache-2.0
// Digest, integrity answer, context storage and export tables. That the real runtime accepts them
// is cudart_test's to show.
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "interop/context_storage.h"
#include "interop/export_tables.h"
#include "interop/integrity.h"
#include "interop/md2.h"

namespace openmps {
namespace {

std::string hex(const Md2Digest& digest) {
  std::string text;
  char byte[3];
  for (uint8_t value : digest) {
    snprintf(byte, sizeof(byte), "%02x", value);
    text += byte;
  }
  return text;
}

std::string md2(const std::string& message) {
  Md2 hash;
  hash.add(message.data(), message.size());
  return hex(hash.finish());
}

TEST(Md2Test, VectorsOfRfc1319) {
  EXPECT_EQ(md2(""), "8350e5a3e24c153df2275c9f80692773");
  EXPECT_EQ(md2("a"), "32ec01ec4a6dac72c0ab96fb34c0b5d1");
  EXPECT_EQ(md2("abc"), "da853b0d3f88d99b30283a69e6ded6bb");
  EXPECT_EQ(md2("message digest"), "ab4f496bfb2a530b219ff33031fe06b0");
  EXPECT_EQ(md2("abcdefghijklmnopqrstuvwxyz"), "4e8ddff3650292ab5a4108c3aa47940b");
  EXPECT_EQ(md2("12345678901234567890123456789012345678901234567890123456789012345678901234567890"),
            "d5976f79d83d3a0dc9806c3c66f3efd8");
}

TEST(Md2Test, HmacIsTwoNestedDigests) {
  Md2Digest key;
  key.fill(0x0b);
  HmacMd2 hmac(key);
  hmac.add("Hi ", 3);
  hmac.add("There", 5);
  // Written out from RFC 2104: H(key ^ opad, H(key ^ ipad, text)).
  Md2 inner;
  inner.add(std::string(16, 0x0b ^ 0x36).data(), 16);
  inner.add("Hi There", 8);
  const Md2Digest inner_digest = inner.finish();
  Md2 outer;
  outer.add(std::string(16, 0x0b ^ 0x5c).data(), 16);
  outer.add(inner_digest.data(), inner_digest.size());
  EXPECT_EQ(hex(hmac.finish()), hex(outer.finish()));
}

TEST(Integrity, DependsOnEveryFact) {
  IntegrityFacts facts;
  facts.driver_version = 13000;
  facts.version = 13002;
  facts.process = 4;
  facts.thread = 5;
  facts.unix_seconds = 6;
  InteropDevice devices[2];
  const IntegrityAnswer base = integrity_answer(facts, devices, 1);
  EXPECT_EQ(integrity_answer(facts, devices, 1), base);
  const auto changed = [&](auto change) {
    IntegrityFacts other = facts;
    change(&other);
    return integrity_answer(other, devices, 1) != base;
  };
  EXPECT_TRUE(changed([](IntegrityFacts* f) { f->driver_version++; }));
  EXPECT_TRUE(changed([](IntegrityFacts* f) { f->version = 13003; }));
  EXPECT_TRUE(changed([](IntegrityFacts* f) { f->process++; }));
  EXPECT_TRUE(changed([](IntegrityFacts* f) { f->thread++; }));
  EXPECT_TRUE(changed([](IntegrityFacts* f) { f->unix_seconds++; }));
  EXPECT_TRUE(changed([&](IntegrityFacts* f) { f->cudart_table = &facts; }));
  EXPECT_TRUE(changed([&](IntegrityFacts* f) { f->integrity_table = &facts; }));
  EXPECT_TRUE(changed([&](IntegrityFacts* f) { f->function = &facts; }));
  EXPECT_NE(integrity_answer(facts, devices, 2), base);
  devices[0].pci_bus = 1;
  EXPECT_NE(integrity_answer(facts, devices, 1), base);
  // Two versions have constant answers.
  facts.version = 13000;
  const IntegrityAnswer zero = integrity_answer(facts, devices, 1);
  facts.process = 99;
  EXPECT_EQ(integrity_answer(facts, devices, 2), zero);
}

CUcontext context(uintptr_t number) { return reinterpret_cast<CUcontext>(number); }
void* pointer(uintptr_t number) { return reinterpret_cast<void*>(number); }

struct Destroyed {
  CUcontext context;
  void* key;
  void* value;
};
std::vector<Destroyed> g_destroyed;
void note_destroyed(CUcontext context, void* key, void* value) {
  g_destroyed.push_back({context, key, value});
}

TEST(ContextStorageTest, PutGetRemove) {
  static ContextStorage storage;
  void* value = pointer(7);
  EXPECT_EQ(storage.get(&value, context(1), pointer(1)), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(value, pointer(7)) << "untouched by a miss";
  EXPECT_EQ(storage.put(context(1), pointer(1), pointer(11), nullptr), CUDA_SUCCESS);
  EXPECT_EQ(storage.put(context(1), pointer(2), nullptr, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(storage.put(context(2), pointer(1), pointer(21), nullptr), CUDA_SUCCESS);
  EXPECT_EQ(storage.get(&value, context(1), pointer(1)), CUDA_SUCCESS);
  EXPECT_EQ(value, pointer(11));
  EXPECT_EQ(storage.get(&value, context(1), pointer(2)), CUDA_SUCCESS);
  EXPECT_EQ(value, nullptr) << "null is a value";
  EXPECT_EQ(storage.put(context(1), pointer(1), pointer(12), nullptr), CUDA_SUCCESS);
  EXPECT_EQ(storage.get(&value, context(1), pointer(1)), CUDA_SUCCESS);
  EXPECT_EQ(value, pointer(12));
  EXPECT_EQ(storage.remove(context(1), pointer(1)), CUDA_SUCCESS);
  EXPECT_EQ(storage.remove(context(1), pointer(1)), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(storage.get(&value, context(1), pointer(1)), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(storage.get(&value, context(2), pointer(1)), CUDA_SUCCESS);
}

TEST(ContextStorageTest, DestructionCallsBackOncePerValue) {
  static ContextStorage storage;
  g_destroyed.clear();
  EXPECT_EQ(storage.put(context(1), pointer(1), pointer(11), note_destroyed), CUDA_SUCCESS);
  EXPECT_EQ(storage.put(context(1), pointer(2), pointer(12), nullptr), CUDA_SUCCESS);
  EXPECT_EQ(storage.put(context(1), pointer(3), pointer(13), note_destroyed), CUDA_SUCCESS);
  EXPECT_EQ(storage.put(context(2), pointer(1), pointer(21), note_destroyed), CUDA_SUCCESS);
  EXPECT_EQ(storage.remove(context(1), pointer(3)), CUDA_SUCCESS);
  storage.destroy_context(context(1));
  storage.destroy_context(context(1));
  ASSERT_EQ(g_destroyed.size(), 1u) << "not for removed values, not twice";
  EXPECT_EQ(g_destroyed[0].context, context(1));
  EXPECT_EQ(g_destroyed[0].key, pointer(1));
  EXPECT_EQ(g_destroyed[0].value, pointer(11));
  void* value = nullptr;
  EXPECT_EQ(storage.get(&value, context(1), pointer(2)), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(storage.get(&value, context(2), pointer(1)), CUDA_SUCCESS);
}

TEST(ContextStorageTest, ReadersSeeWholeValues) {
  // Writers publish pointers to pairs of equal numbers; a reader must never see a pair half made.
  static ContextStorage storage;
  struct Pair {
    uint64_t a, b;
  };
  std::vector<Pair> pairs(20000);
  std::atomic<bool> stop{false};
  std::atomic<int> reads{0};
  std::thread reader([&] {
    while (!stop.load()) {
      void* value = nullptr;
      if (storage.get(&value, context(64), pointer(8)) != CUDA_SUCCESS) continue;
      const auto* pair = static_cast<const Pair*>(value);
      if (pair->a != pair->b || pair->a == 0) ADD_FAILURE() << pair->a << " " << pair->b;
      ++reads;
    }
  });
  for (size_t i = 0; i < pairs.size() || reads.load() == 0; ++i) {
    Pair* pair = &pairs[i % pairs.size()];
    if (i < pairs.size()) *pair = {i + 1, i + 1};
    ASSERT_EQ(storage.put(context(64), pointer(8), pair, nullptr), CUDA_SUCCESS);
  }
  stop.store(true);
  reader.join();
}

// ---- Tables ------------------------------------------------------------------------------------

CUcontext g_current = nullptr;
int g_unknown_tables = 0;
int g_unknown_slots = 0;

const InteropHost kHost = {
    .driver_version = 13000,
    .device_count =
        [](int* count) {
          *count = 1;
          return CUDA_SUCCESS;
        },
    .device =
        [](int, InteropDevice* device) {
          device->pci_bus = 3;
          return CUDA_SUCCESS;
        },
    .primary_context =
        [](CUcontext* result, CUdevice device) {
          if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
          *result = context(0x100);
          return CUDA_SUCCESS;
        },
    .current_context =
        [](CUcontext* result) {
          *result = g_current;
          return CUDA_SUCCESS;
        },
    .load_wrapper = [](CUmodule*, const void*) { return CUDA_ERROR_INVALID_IMAGE; },
    .load_fatbin = [](CUmodule*, const void*) { return CUDA_ERROR_INVALID_SOURCE; },
    .function_count =
        [](unsigned int* count, CUmodule) {
          *count = 2;
          return CUDA_SUCCESS;
        },
    .functions =
        [](CUfunction* functions, unsigned int count, CUmodule) {
          for (unsigned int i = 0; i < count; ++i) {
            functions[i] = reinterpret_cast<CUfunction>(0x50 + i);
          }
          return CUDA_SUCCESS;
        },
    .stream_id =
        [](CUstream stream, unsigned long long* id) {
          const auto handle = reinterpret_cast<uintptr_t>(stream);
          if (handle > 0x1000) return CUDA_ERROR_INVALID_HANDLE;
          *id = 0x500 + handle;
          return CUDA_SUCCESS;
        },
    .unknown_table = [](const CUuuid&) { ++g_unknown_tables; },
    .unknown_slot = [] { ++g_unknown_slots; },
};

class ExportTables : public ::testing::Test {
 protected:
  ExportTables() {
    set_interop_host(&kHost);
    g_current = nullptr;
  }

  // The table whose UUID starts with these bytes in memory; null if there is none.
  static const void* const* table(const std::string& uuid) {
    CUuuid id;
    for (size_t i = 0; i < 16; ++i) {
      id.bytes[i] = static_cast<char>(std::stoi(uuid.substr(2 * i, 2), nullptr, 16));
    }
    const void* found = &id;
    const CUresult result = get_export_table(&found, &id);
    EXPECT_EQ(result, found != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
    return static_cast<const void* const*>(found);
  }

  template <typename Function>
  static Function slot(const void* const* slots, size_t index) {
    return reinterpret_cast<Function>(const_cast<void*>(slots[index]));
  }
};

constexpr const char* kCudart = "6bd5fb6c5bf4e74a8987d93912fd9df9";
constexpr const char* kTls = "42d85a8123f6cb478298f6e78a3aecdc";
constexpr const char* kHooks = "a094798c2e742e7493f20800200c0a66";
constexpr const char* kStorage = "c693336e1121df11a8c368f355d89593";
constexpr const char* kChecks = "263e88607cd2614392f6bbd5006dfa7e";
constexpr const char* kIntegrity = "d4082055bde6704b8d34ba123c66e1f2";
constexpr const char* kToolsContext = "21318c60971432488ca641ff7324c8f2";
constexpr const char* kToolsModule = "6e163fbeb958444d835ce182aff1991e";
constexpr const char* kTopology = "1734dc26800d47458726c0f1e7dd8bca";
constexpr const char* kRequirements = "f8cff95121468b4eb9e2fb469e7c0dd9";

TEST_F(ExportTables, SizesAreInSlotZero) {
  const auto bytes = [](const char* uuid) { return reinterpret_cast<size_t>(table(uuid)[0]); };
  EXPECT_EQ(bytes(kCudart), 13 * 8u);
  EXPECT_EQ(bytes(kTls), 4 * 8u);
  EXPECT_EQ(bytes(kHooks), 7 * 8u);
  EXPECT_EQ(bytes(kChecks), 4 * 8u);
  EXPECT_EQ(bytes(kIntegrity), 3 * 8u);
  EXPECT_GE(bytes(kToolsContext), 52 * 8u);
  EXPECT_GE(bytes(kToolsModule), 8 * 8u);
  EXPECT_EQ(bytes(kTopology), 17 * 8u);
}

TEST_F(ExportTables, UnknownTablesAreNotFound) {
  g_unknown_tables = 0;
  EXPECT_EQ(table(kRequirements), nullptr);
  EXPECT_EQ(g_unknown_tables, 1);
  CUuuid id = {};
  const void* found = nullptr;
  EXPECT_EQ(get_export_table(nullptr, &id), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(get_export_table(&found, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ExportTables, EverySlotCanBeCalled) {
  // No slot may be null or crash: a library that we do not know might call it.
  g_unknown_slots = 0;
  for (const char* uuid :
       {kCudart, kTls, kHooks, kChecks, kIntegrity, kToolsContext, kToolsModule, kTopology}) {
    const void* const* slots = table(uuid);
    const size_t count = reinterpret_cast<size_t>(slots[0]) / sizeof(void*);
    for (size_t i = 1; i < count; ++i) ASSERT_NE(slots[i], nullptr) << uuid << " " << i;
  }
  EXPECT_EQ(slot<CUresult (*)()>(table(kToolsContext), 63)(), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(slot<CUresult (*)()>(table(kToolsContext), 38)(), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(g_unknown_slots, 2);
}

TEST_F(ExportTables, Cudart) {
  CUcontext primary = nullptr;
  const auto get = slot<CUresult (*)(CUcontext*, CUdevice)>(table(kCudart), 2);
  EXPECT_EQ(get(&primary, 0), CUDA_SUCCESS);
  EXPECT_EQ(primary, context(0x100));
  EXPECT_EQ(get(&primary, 1), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(get(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  CUmodule module = nullptr;
  using Load = CUresult (*)(CUmodule*, const void*);
  EXPECT_EQ(slot<Load>(table(kCudart), 1)(&module, nullptr), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(slot<Load>(table(kCudart), 6)(&module, nullptr), CUDA_ERROR_INVALID_IMAGE);
  using LoadFatbin = CUresult (*)(const void*, CUmodule*);
  EXPECT_EQ(slot<LoadFatbin>(table(kCudart), 8)(nullptr, &module), CUDA_ERROR_INVALID_SOURCE);
  EXPECT_EQ(slot<CUresult (*)()>(table(kCudart), 12)(), CUDA_SUCCESS);
}

TEST_F(ExportTables, HooksAreZeroWords) {
  using Get = void (*)(uint32_t**, size_t*);
  uint32_t* words = nullptr;
  size_t count = 0;
  slot<Get>(table(kHooks), 2)(&words, &count);
  EXPECT_EQ(count, 1024u);
  for (size_t i = 0; i < count; ++i) ASSERT_EQ(words[i], 0u);
  slot<Get>(table(kHooks), 6)(&words, &count);
  EXPECT_EQ(count, 14u);
  for (size_t i = 0; i < count; ++i) ASSERT_EQ(words[i], 0u);
}

TEST_F(ExportTables, StorageOfTheCurrentContext) {
  using Put = CUresult (*)(CUcontext, void*, void*, ContextStorage::Destructor);
  using Get = CUresult (*)(void**, CUcontext, void*);
  const auto put = slot<Put>(table(kStorage), 0);
  const auto get = slot<Get>(table(kStorage), 2);
  void* value = nullptr;
  EXPECT_EQ(get(&value, nullptr, pointer(5)), CUDA_ERROR_INVALID_CONTEXT) << "none is current";
  g_current = context(0x200);
  EXPECT_EQ(get(&value, nullptr, pointer(5)), CUDA_ERROR_INVALID_HANDLE);
  g_destroyed.clear();
  EXPECT_EQ(put(nullptr, pointer(5), pointer(55), note_destroyed), CUDA_SUCCESS);
  g_current = nullptr;
  EXPECT_EQ(get(&value, context(0x200), pointer(5)), CUDA_SUCCESS);
  EXPECT_EQ(value, pointer(55));
  interop_context_destroyed(context(0x200));
  EXPECT_EQ(g_destroyed.size(), 1u);
  EXPECT_EQ(get(&value, context(0x200), pointer(5)), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(ExportTables, ChecksAndTools) {
  uint32_t flags = 9;
  using Check = CUresult (*)(CUcontext, uint32_t*, const void**);
  EXPECT_EQ(slot<Check>(table(kChecks), 2)(nullptr, &flags, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(flags, 0u);
  EXPECT_EQ(slot<uint32_t (*)()>(table(kChecks), 3)(), 0u);
  EXPECT_EQ(slot<CUresult (*)()>(table(kTls), 2)(), CUDA_SUCCESS);
  uint64_t out = 9;
  using Zero = CUresult (*)(uint64_t, uint64_t*);
  EXPECT_EQ(slot<Zero>(table(kToolsContext), 4)(0, &out), CUDA_SUCCESS);
  EXPECT_EQ(out, 0u);
}

TEST_F(ExportTables, StreamsHaveObjectsAndNumbers) {
  const auto object_of =
      slot<CUresult (*)(CUcontext, CUstream, const void**)>(table(kToolsContext), 51);
  const auto number_of =
      slot<CUresult (*)(CUcontext, const void*, uint32_t*)>(table(kToolsContext), 39);
  for (const uintptr_t handle : {0, 1, 2, 0x800}) {
    const void* object = nullptr;
    uint32_t number = 0;
    ASSERT_EQ(object_of(nullptr, reinterpret_cast<CUstream>(handle), &object), CUDA_SUCCESS);
    ASSERT_NE(object, nullptr);
    ASSERT_EQ(number_of(nullptr, object, &number), CUDA_SUCCESS);
    EXPECT_EQ(number, 0x500 + handle);
  }
  const void* object = nullptr;
  uint32_t number = 0;
  const auto wrong = reinterpret_cast<CUstream>(~uintptr_t{0});
  EXPECT_EQ(object_of(nullptr, wrong, &object), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(object_of(nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(number_of(nullptr, nullptr, &number), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(number_of(nullptr, wrong, &number), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(ExportTables, ToolsModuleEnumeratesFunctions) {
  using Visit = void (*)(void*, CUfunction, CUmodule);
  using Enumerate = uint32_t (*)(CUcontext, CUmodule, Visit, void*);
  std::vector<CUfunction> seen;
  const Visit visit = [](void* user, CUfunction function, CUmodule) {
    static_cast<std::vector<CUfunction>*>(user)->push_back(function);
  };
  EXPECT_EQ(slot<Enumerate>(table(kToolsModule), 7)(nullptr, nullptr, visit, &seen), 2u);
  EXPECT_EQ(seen, (std::vector<CUfunction>{reinterpret_cast<CUfunction>(0x50),
                                           reinterpret_cast<CUfunction>(0x51)}));
}

TEST_F(ExportTables, IntegrityAgreesWithTheTables) {
  uint64_t answer[2] = {};
  using Check = CUresult (*)(uint32_t, uint64_t, uint64_t*);
  ASSERT_EQ(slot<Check>(table(kIntegrity), 1)(13002, 1700000000, answer), CUDA_SUCCESS);
  IntegrityFacts facts;
  facts.driver_version = 13000;
  facts.version = 13002;
  facts.process = static_cast<uint32_t>(getpid());
  facts.thread = static_cast<uint32_t>(pthread_self());
  facts.cudart_table = table(kCudart);
  facts.integrity_table = table(kIntegrity);
  facts.function = table(kIntegrity)[1];
  facts.unix_seconds = 1700000000;
  InteropDevice device;
  device.pci_bus = 3;
  const IntegrityAnswer expected = integrity_answer(facts, &device, 1);
  EXPECT_EQ(answer[0], expected[0]);
  EXPECT_EQ(answer[1], expected[1]);
}

}  // namespace
}  // namespace openmps
