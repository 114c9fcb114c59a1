# SPDX-License-Identifier: Apache-2.0
"""prototypes.h, driver_table.h, proc_address.{h,cc}, softgpu_stubs.cc and exports.map."""

from . import perfect_hash
from .text import derived_body, head, signature, wrap

EXPORT_PROTOTYPE = "OPENMPS_EXPORT "


def prototypes(functions):
    out = [head("Prototypes of every exported symbol of the driver library, for both of ours.",
                pragma=True),
           '#include "cuda/abi.h"\n\n',
           '#define OPENMPS_EXPORT __attribute__((visibility("default")))\n\n',
           'extern "C" {\n\n']
    for function in functions:
        out.append(signature(function, attributes=EXPORT_PROTOTYPE) + ";\n")
    out.append('\n}  // extern "C"\n')
    return "".join(out)


def driver_table(functions):
    out = [head("One pointer per symbol of the driver API, and the symbols as numbers and names.\n"
                "A table is filled by src/driver (a real driver) or is the table of entry points\n"
                "of the client library; its members stand in the order of DriverSymbol.",
                pragma=True),
           "#include <cstddef>\n#include <cstdint>\n\n#include \"cuda/abi.h\"\n\n",
           "// X(symbol), in the order of DriverTable.\n#define OPENMPS_DRIVER_SYMBOLS(X)"]
    out += [f" \\\n  X({f.symbol})" for f in functions]
    out.append("\n\nnamespace openmps {\n\nenum class DriverSymbol : uint16_t {\n"
               "#define OPENMPS_ENUMERATOR(symbol) symbol,\n"
               "  OPENMPS_DRIVER_SYMBOLS(OPENMPS_ENUMERATOR)\n#undef OPENMPS_ENUMERATOR\n};\n\n"
               f"inline constexpr size_t kDriverSymbolCount = {len(functions)};\n\n"
               "inline constexpr const char* kDriverSymbolNames[kDriverSymbolCount] = {\n"
               "#define OPENMPS_NAME(symbol) #symbol,\n"
               "    OPENMPS_DRIVER_SYMBOLS(OPENMPS_NAME)\n#undef OPENMPS_NAME\n};\n\n"
               "inline constexpr const char* driver_symbol_name(DriverSymbol symbol) {\n"
               "  return kDriverSymbolNames[static_cast<size_t>(symbol)];\n}\n\n"
               "// Null where the driver lacks the symbol.\nstruct DriverTable {\n")
    out += [wrap(f"  CUresult (*{f.symbol})(", [p.declaration for p in f.params], ");") + "\n"
            for f in functions]
    out.append("};\nstatic_assert(sizeof(DriverTable) == kDriverSymbolCount * sizeof(void*));\n\n"
               "}  // namespace openmps\n")
    return "".join(out)


def proc_address_header():
    return head("Which symbol cuGetProcAddress hands out for a name, a CUDA version and flags.\n"
                "Pure look-up in constant tables; any thread.", pragma=True) + """\
#include <cstdint>
#include <string_view>

#include "cuda/abi.h"

namespace openmps {

// True, *symbol (a DriverSymbol as number) and *status = CU_GET_PROC_ADDRESS_SUCCESS when the name
// has a symbol for the version: the newest that is not newer than `cuda_version`. With the flag
// CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM (with or without the flag for legacy streams) a
// name that has per-thread variants gives only those. Otherwise false with the reason in *status and *symbol untouched.
// The rest is the caller's. As measured on NVIDIA's driver 580, cuGetProcAddress_v2 returns
// CUDA_SUCCESS with a null pointer for what is not found, and CUDA_ERROR_INVALID_VALUE for flags
// above 3 and for a version newer than the driver.
bool find_proc(std::string_view name, int cuda_version, uint64_t flags, uint16_t* symbol,
               CUdriverProcAddressQueryResult* status);

}  // namespace openmps
"""


def proc_address_source(functions):
    by_name = {}
    for index, function in enumerate(functions):
        by_name.setdefault(function.name, []).append((index, function))
    seeds, order = perfect_hash.build(sorted(by_name))
    versions, names = [], []
    for name in order:
        newest_first = sorted(by_name[name], key=lambda pair: -pair[1].since)
        default = [pair for pair in newest_first if not pair[1].per_thread]
        per_thread = [pair for pair in newest_first if pair[1].per_thread]
        names.append(f'{{"{name}", {len(versions)}, {len(default)}, {len(per_thread)}}},')
        versions += [f"{{{function.since}, {index}}},  // {function.symbol}"
                     for index, function in default + per_thread]
    seed_lines = []
    for start in range(0, len(seeds), 16):
        seed_lines.append("    " + ", ".join(str(s) for s in seeds[start:start + 16]) + ",")
    return head("The tables behind find_proc: a perfect hash of names, versions per name.") + f"""\
#include "api/proc_address.h"

#include <cstddef>

namespace openmps {{
namespace {{

struct Version {{
  int since;
  uint16_t symbol;
}};

struct Name {{
  std::string_view name;
  uint16_t first;             // of its versions, newest first: default ones, then per-thread ones
  uint8_t default_count;
  uint8_t per_thread_count;
}};

constexpr uint16_t kSeeds[] = {{
{chr(10).join(seed_lines)}
}};

constexpr Version kVersions[] = {{
{chr(10).join("    " + line for line in versions)}
}};

constexpr Name kNames[] = {{
{chr(10).join("    " + line for line in names)}
}};

// The same arithmetic as api/generator/perfect_hash.py.
constexpr uint32_t hash_name(std::string_view name, uint32_t seed) {{
  uint32_t value = 0x811C9DC5u ^ seed;
  for (char c : name) value = (value ^ static_cast<unsigned char>(c)) * 0x01000193u;
  value ^= value >> 15;
  return value * 0x2C1B3C6Du;
}}

}}  // namespace

bool find_proc(std::string_view name, int cuda_version, uint64_t flags, uint16_t* symbol,
               CUdriverProcAddressQueryResult* status) {{
  const uint32_t seed = kSeeds[hash_name(name, 0) % std::size(kSeeds)];
  const Name& entry = kNames[hash_name(name, seed) % std::size(kNames)];
  if (entry.name != name) {{
    *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return false;
  }}
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0 &&
                          entry.per_thread_count != 0;
  const Version* version = kVersions + entry.first + (per_thread ? entry.default_count : 0);
  const size_t count = per_thread ? entry.per_thread_count : entry.default_count;
  for (size_t i = 0; i < count; ++i) {{
    if (version[i].since <= cuda_version) {{
      *symbol = version[i].symbol;
      *status = CU_GET_PROC_ADDRESS_SUCCESS;
      return true;
    }}
  }}
  *status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
  return false;
}}

}}  // namespace openmps
"""


def softgpu_stubs(functions):
    out = [head("Weak definitions of every symbol, so that softgpu's library exports the whole\n"
                "driver API: a strong definition in softgpu's own objects takes the place of one.\n"
                "Variants and aliases lead to their base. Any thread."),
           '#include <cstdio>\n\n#include "api/default_stream.h"\n'
           '#include "api/driver_table.h"\n#include "api/prototypes.h"\n'
           '#include "api/softgpu_table.h"\n#include "base/environment.h"\n\nnamespace {\n\n'
           "// One byte per symbol: whether its name was printed.\n"
           "bool g_reported[openmps::kDriverSymbolCount];\n\n"
           "CUresult not_supported(openmps::DriverSymbol symbol, CUresult result) {\n"
           "  bool* reported = &g_reported[static_cast<size_t>(symbol)];\n"
           "  if (!__atomic_exchange_n(reported, true, __ATOMIC_RELAXED) &&\n"
           "      openmps::environment_variable(\"SOFTGPU_DEBUG\") != nullptr)\n"
           "    fprintf(stderr, \"softgpu: %s is not implemented\\n\",\n"
           "            openmps::driver_symbol_name(symbol));\n"
           "  return result;\n}\n\n}  // namespace\n\n"
           "#pragma GCC diagnostic ignored \"-Wunused-parameter\"\n\n"]
    for function in functions:
        out.append("__attribute__((weak)) " + signature(function) + " {\n")
        if function.base:
            out.append(derived_body(function, f"::{function.base}", "openmps::DefaultStreamScope"))
        else:
            out.append(f"  return not_supported(openmps::DriverSymbol::{function.symbol},\n"
                       f"                       {function.result});")
        out.append("\n}\n\n")
    out.append("namespace openmps {\n\n// Addresses only: filled by the loader, no code runs.\n"
               "const DriverTable kSoftgpuTable = {\n")
    out += [f"    ::{f.symbol},\n" for f in functions]
    out.append("};\n\n}  // namespace openmps\n")
    return "".join(out)


def softgpu_calls(functions):
    out = [head("What `returns` is all of. Any thread."),
           '#include "softgpu/front/families.h"\n\n'
           "using namespace openmps;           // NOLINT: entry points live outside the namespace\n"
           "using namespace openmps::softgpu;  // NOLINT: the same\n\n"
           '#pragma GCC diagnostic ignored "-Wunused-parameter"\n\n']
    out += [signature(f) + f" {{\n  return {f.returns};\n}}\n\n" for f in functions
            if f.returns and not f.enter and not f.base and f.softgpu]
    return "".join(out).rstrip("\n") + "\n"


def softgpu_table_header():
    return head("The addresses of softgpu's own entry points, for its cuGetProcAddress.",
                pragma=True) + """\
#include "api/driver_table.h"

namespace openmps {

extern const DriverTable kSoftgpuTable;

// Entry point of the symbol that find_proc gave.
inline void* softgpu_entry(uint16_t symbol) {
  return reinterpret_cast<void* const*>(&kSoftgpuTable)[symbol];
}

}  // namespace openmps
"""


def exports_map():
    return ("# Generated by api/generate.py: what a driver library of ours exports.\n"
            "{\n  global:\n    cu*;\n    openmps_library_kind;\n  local:\n    *;\n};\n")
