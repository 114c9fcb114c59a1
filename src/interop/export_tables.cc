// SPDX-License-Identifier: Apache-2.0
// The export tables: constant arrays of addresses, filled by the loader without code at load.
// Facts and credits: docs/interop.md.
#include "interop/export_tables.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

#include "interop/context_storage.h"

namespace openmps {
namespace {

// Set once, before the tables are handed out.
std::atomic<const InteropHost*> g_host{nullptr};
constinit ContextStorage g_storage;

const InteropHost& host() { return *g_host.load(std::memory_order_acquire); }

// ---- Slots without a description    -----------------------------------------------------------

CUresult undescribed() {
  if (host().unknown_slot != nullptr) host().unknown_slot();
  return CUDA_ERROR_NOT_SUPPORTED;
}

// ---- CUDART_INTERFACE --------------------------------------------------------------------------

CUresult cudart_load_wrapper(CUmodule* module, const void* wrapper) {
  return host().load_wrapper(module, wrapper);
}

CUresult cudart_primary_context(CUcontext* context, CUdevice device) {
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return host().primary_context(context, device);
}

CUresult cudart_load_wrapper_ext(CUmodule* module, const void* wrapper, void*, void*, uint32_t) {
  return host().load_wrapper(module, wrapper);
}

void cudart_note_size(size_t) {}

CUresult cudart_load_fatbin(const void* fatbin, CUmodule* module, void*, void*, uint32_t) {
  return host().load_fatbin(module, fatbin);
}

// The real driver loads its PTX compiler here; ours needs none in the program.
CUresult cudart_load_compilers() { return CUDA_SUCCESS; }

// ---- TOOLS_TLS ---------------------------------------------------------------------------------

// Thread-local data of tools, of which there are none.
CUresult tools_tls() { return CUDA_SUCCESS; }

// ---- TOOLS_RUNTIME_CALLBACK_HOOKS --------------------------------------------------------------

// The runtime reads these at every call, indexed by its callback number, as 32-bit words: a word
// that isn't zero asks for a callback. The sizes are the number of words, not of bytes; the
// highest index seen is 0x13b.
uint32_t g_hooks[1024];
uint32_t g_more_hooks[14];

void callback_hooks(uint32_t** words, size_t* count) {
  *words = g_hooks;
  *count = std::size(g_hooks);
}

void more_callback_hooks(uint32_t** words, size_t* count) {
  *words = g_more_hooks;
  *count = std::size(g_more_hooks);
}

// ---- CONTEXT_LOCAL_STORAGE ---------------------------------------------------------------------

// Null means the current context.
CUresult which_context(CUcontext* context) {
  if (*context != nullptr) return CUDA_SUCCESS;
  if (CUresult error = host().current_context(context)) return error;
  return *context != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult storage_put(CUcontext context, void* key, void* value,
                     ContextStorage::Destructor destructor) {
  if (CUresult error = which_context(&context)) return error;
  return g_storage.put(context, key, value, destructor);
}

CUresult storage_remove(CUcontext context, void* key) {
  if (CUresult error = which_context(&context)) return error;
  return g_storage.remove(context, key);
}

CUresult storage_get(void** value, CUcontext context, void* key) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult error = which_context(&context)) return error;
  return g_storage.get(value, context, key);
}

// ---- CONTEXT_CHECKS ----------------------------------------------------------------------------

CUresult context_check(CUcontext, uint32_t* flags, const void**) {
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = 0;
  return CUDA_SUCCESS;
}

uint32_t process_check() { return 0; }

// ---- INTEGRITY ---------------------------------------------------------------------------------

CUresult integrity_check(uint32_t version, uint64_t unix_seconds, uint64_t* answer);

// ---- ToolsContext, ToolsModule -----------------------------------------------------------------

CUresult tools_context_zero(uint64_t, uint64_t* out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = 0;
  return CUDA_SUCCESS;
}

// The driver's object behind a stream, and that object's number. Callers pass the object back
// here and never look into it, so a stream's handle is its object; the default streams, whose
// handles are no addresses, get one each.
constexpr uintptr_t kDefaultStreams = 3;  // null, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD
const char g_default_stream_objects[kDefaultStreams] = {};

CUresult tools_stream_object(CUcontext, CUstream stream, const void** object) {
  if (object == nullptr) return CUDA_ERROR_INVALID_VALUE;
  unsigned long long number = 0;
  if (CUresult error = host().stream_id(stream, &number)) return error;
  const auto handle = reinterpret_cast<uintptr_t>(stream);
  *object = handle < kDefaultStreams ? static_cast<const void*>(&g_default_stream_objects[handle])
                                     : static_cast<const void*>(stream);
  return CUDA_SUCCESS;
}

// Written as 32 bits: whether callers keep 64 is not known, and theirs start at zero.
CUresult tools_stream_number(CUcontext, const void* object, uint32_t* number) {
  if (object == nullptr || number == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto handle = reinterpret_cast<uintptr_t>(object);
  const uintptr_t first = reinterpret_cast<uintptr_t>(g_default_stream_objects);
  if (handle >= first && handle - first < kDefaultStreams) handle -= first;
  unsigned long long id = 0;
  if (CUresult error = host().stream_id(reinterpret_cast<CUstream>(handle), &id)) return error;
  *number = static_cast<uint32_t>(id);
  return CUDA_SUCCESS;
}

using FunctionVisitor = void (*)(void* user, CUfunction function, CUmodule owner);

// Calls back once per function of the module; returns how many, not an error code.
uint32_t tools_enumerate_functions(CUcontext, CUmodule module, FunctionVisitor visit, void* user) {
  unsigned int count = 0;
  if (host().function_count(&count, module) != CUDA_SUCCESS || count == 0) return 0;
  std::unique_ptr<CUfunction[]> functions(new (std::nothrow) CUfunction[count]);
  if (functions == nullptr || host().functions(functions.get(), count, module) != CUDA_SUCCESS) {
    return 0;
  }
  for (unsigned int i = 0; visit != nullptr && i < count; ++i) visit(user, functions[i], module);
  return count;
}

// ---- The tables --------------------------------------------------------------------------------
// Members stand in the order of the slots; slot 0 of every table but one is its size in bytes.
// Sizes of the runtime's tables are what the runtime expects; the tools tables have as many slots
// as the highest one that anybody is known to call demands, rounded up.

using Undescribed = CUresult (*)();

template <size_t kSlots>
constexpr std::array<Undescribed, kSlots> undescribed_slots() {
  std::array<Undescribed, kSlots> slots = {};
  slots.fill(undescribed);
  return slots;
}

template <size_t kSlots>
struct UndescribedSlots {
  std::array<Undescribed, kSlots> slots = undescribed_slots<kSlots>();
};

constinit const struct CudartTable {
  size_t size = sizeof(CudartTable);
  decltype(&cudart_load_wrapper) load_wrapper = cudart_load_wrapper;           // 1
  decltype(&cudart_primary_context) primary_context = cudart_primary_context;  // 2
  UndescribedSlots<3> slots_3_to_5;
  decltype(&cudart_load_wrapper_ext) load_wrapper_ext = cudart_load_wrapper_ext;  // 6
  decltype(&cudart_note_size) note_size = cudart_note_size;                       // 7
  decltype(&cudart_load_fatbin) load_fatbin = cudart_load_fatbin;                 // 8
  UndescribedSlots<3> slots_9_to_11;
  decltype(&cudart_load_compilers) load_compilers = cudart_load_compilers;  // 12
} kCudart;
static_assert(sizeof(kCudart) == 13 * sizeof(void*));

constinit const struct TlsTable {
  size_t size = sizeof(TlsTable);
  Undescribed slot_1 = undescribed;
  decltype(&tools_tls) get = tools_tls;  // 2
  Undescribed slot_3 = undescribed;
} kTls;
static_assert(sizeof(kTls) == 4 * sizeof(void*));

constinit const struct HooksTable {
  size_t size = sizeof(HooksTable);
  Undescribed slot_1 = undescribed;
  decltype(&callback_hooks) hooks = callback_hooks;  // 2
  UndescribedSlots<3> slots_3_to_5;
  decltype(&more_callback_hooks) more_hooks = more_callback_hooks;  // 6
} kHooks;
static_assert(sizeof(kHooks) == 7 * sizeof(void*));

// The one without a size.
constinit const struct StorageTable {
  decltype(&storage_put) put = storage_put;           // 0
  decltype(&storage_remove) remove = storage_remove;  // 1
  decltype(&storage_get) get = storage_get;           // 2
  Undescribed slot_3 = undescribed;
} kStorage;
static_assert(sizeof(kStorage) == 4 * sizeof(void*));

constinit const struct ChecksTable {
  size_t size = sizeof(ChecksTable);
  Undescribed slot_1 = undescribed;
  decltype(&context_check) context = context_check;  // 2
  decltype(&process_check) process = process_check;  // 3
} kChecks;
static_assert(sizeof(kChecks) == 4 * sizeof(void*));

constinit const struct IntegrityTable {
  size_t size = sizeof(IntegrityTable);
  decltype(&integrity_check) check = integrity_check;  // 1
  Undescribed slot_2 = undescribed;
} kIntegrity;
static_assert(sizeof(kIntegrity) == 3 * sizeof(void*));

constinit const struct ToolsContextTable {
  size_t size = sizeof(ToolsContextTable);
  UndescribedSlots<3> slots_1_to_3;
  decltype(&tools_context_zero) slot_4 = tools_context_zero;
  UndescribedSlots<34> slots_5_to_38;
  decltype(&tools_stream_number) stream_number = tools_stream_number;  // 39
  UndescribedSlots<11> slots_40_to_50;
  decltype(&tools_stream_object) stream_object = tools_stream_object;  // 51
  UndescribedSlots<12> slots_52_to_63;
} kToolsContext;
static_assert(sizeof(kToolsContext) == 64 * sizeof(void*));

constinit const struct ToolsModuleTable {
  size_t size = sizeof(ToolsModuleTable);
  UndescribedSlots<6> slots_1_to_6;
  decltype(&tools_enumerate_functions) enumerate = tools_enumerate_functions;  // 7
  UndescribedSlots<56> slots_8_to_63;
} kToolsModule;
static_assert(sizeof(kToolsModule) == 64 * sizeof(void*));

// cuBLASLt calls its slot 4 without asking whether the table exists. It has as many slots as the
// driver's (an H200's says 0x88 bytes).
constinit const struct TopologyTable {
  size_t size = sizeof(TopologyTable);
  UndescribedSlots<16> slots_1_to_16;
} kTopology;
static_assert(sizeof(kTopology) == 17 * sizeof(void*));

CUresult integrity_check(uint32_t version, uint64_t unix_seconds, uint64_t* answer) {
  if (answer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  int count = 0;
  if (CUresult error = host().device_count(&count)) return error;
  std::unique_ptr<InteropDevice[]> devices(new (std::nothrow) InteropDevice[count + 1]);
  if (devices == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  for (int i = 0; i < count; ++i) {
    if (CUresult error = host().device(i, &devices[i])) return error;
  }
  IntegrityFacts facts;
  facts.driver_version = static_cast<uint32_t>(host().driver_version);
  facts.version = version;
  facts.process = static_cast<uint32_t>(getpid());
  facts.thread = static_cast<uint32_t>(pthread_self());
  facts.cudart_table = &kCudart;
  facts.integrity_table = &kIntegrity;
  facts.function = reinterpret_cast<const void*>(kIntegrity.check);
  facts.unix_seconds = unix_seconds;
  const IntegrityAnswer result = integrity_answer(facts, devices.get(), static_cast<size_t>(count));
  memcpy(answer, result.data(), sizeof(result));
  return CUDA_SUCCESS;
}

struct Known {
  unsigned char id[16];  // in memory order
  const void* table;
};

constexpr Known kKnown[] = {
    {{0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d,
      0xf9},
     &kCudart},
    {{0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec,
      0xdc},
     &kTls},
    {{0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a,
      0x66},
     &kHooks},
    {{0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95,
      0x93},
     &kStorage},
    {{0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa,
      0x7e},
     &kChecks},
    {{0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1,
      0xf2},
     &kIntegrity},
    {{0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48, 0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8,
      0xf2},
     &kToolsContext},
    {{0x6e, 0x16, 0x3f, 0xbe, 0xb9, 0x58, 0x44, 0x4d, 0x83, 0x5c, 0xe1, 0x82, 0xaf, 0xf1, 0x99,
      0x1e},
     &kToolsModule},
    {{0x17, 0x34, 0xdc, 0x26, 0x80, 0x0d, 0x47, 0x45, 0x87, 0x26, 0xc0, 0xf1, 0xe7, 0xdd, 0x8b,
      0xca},
     &kTopology},
};

}  // namespace

void set_interop_host(const InteropHost* new_host) {
  g_host.store(new_host, std::memory_order_release);
}

CUresult get_export_table(const void** table, const CUuuid* id) {
  if (table == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const Known& known : kKnown) {
    if (memcmp(known.id, id->bytes, sizeof(known.id)) == 0) {
      *table = known.table;
      return CUDA_SUCCESS;
    }
  }
  *table = nullptr;
  if (host().unknown_table != nullptr) host().unknown_table(*id);
  return CUDA_ERROR_NOT_FOUND;
}

void interop_context_destroyed(CUcontext context) { g_storage.destroy_context(context); }

}  // namespace openmps
