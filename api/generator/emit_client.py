# SPDX-License-Identifier: Apache-2.0
"""client_impl.h and client_entry.cc: the exported entry points of the client library."""
from .text import derived_body, head, signature, wrap


def client_impl(functions):
    out = [head("What the client library does for each symbol when it is connected. Functions of\n"
                "the classes local and service are written by hand in src/client, all others are\n"
                "generated (client_entry.cc).", pragma=True),
           '#include "api/client_hooks.h"\n#include "api/driver_table.h"\n'
           '#include "cuda/abi.h"\n\nnamespace openmps::client::impl {\n\n']
    for function in functions:
        if not function.base and function.doc:
            out.append(f"// {function.doc}\n")
        out.append(signature(function) + ";\n")
    out.append("\n}  // namespace openmps::client::impl\n")
    return "".join(out)


def client_entry(functions):
    out = [head("The exported entry points of the client library: each jumps through its member of\n"
                "g_entry, which first leads to the decision between OpenMPS and pass-through, and\n"
                "then to the implementation or straight to the driver below. Any thread."),
           '#include <cxxabi.h>\n#include <unistd.h>\n\n#include <cstring>\n\n'
           '#include "api/client_impl.h"\n#include "api/default_stream.h"\n'
           '#include "api/prototypes.h"\n#include "base/environment.h"\n\n'
           '#pragma GCC diagnostic ignored "-Wunused-parameter"\n\n'
           "namespace openmps::client {\nnamespace {\n\nnamespace first {\n"]
    out += [signature(f) + ";\n" for f in functions]
    out.append("}  // namespace first\n\n"
               "// Written by install_*, read by every call. Members are loaded with acquire, so\n"
               "// that a caller that sees a new entry sees what was set up before it.\n"
               "constinit DriverTable g_entry = {\n")
    out += [f"    first::{f.symbol},\n" for f in functions]
    out.append(_CALLED)
    out += [f"    Called<DriverSymbol::{f.symbol}, impl::{f.symbol}>::call,\n" for f in functions]
    out.append(_ENTRY_RUNTIME)
    out.append("namespace first {\n\n")
    for function in functions:
        member = f"g_entry.{function.symbol}"
        out.append(signature(function) + " {\n"
                   "  if (const CUresult failed = decided(); failed != CUDA_SUCCESS) return failed;\n"
                   f"  const auto entry = load(&{member});\n"
                   # resolve_mode() broke its promise to install; do not recurse for ever.
                   f"  if (entry == first::{function.symbol}) return CUDA_ERROR_NOT_INITIALIZED;\n"
                   + wrap("  return entry(", [p.name for p in function.params], ");")
                   + "\n}\n\n")
    out.append("}  // namespace first\n}  // namespace\n\n")
    out.append(_INSTALL)
    out.append("namespace impl {\n\n")
    for function in functions:
        if function.base:
            # Qualified: the arguments' types are global, so the exported name is found, too.
            body = derived_body(function, f"impl::{function.base}", "DefaultStreamScope")
        elif function.is_stub:
            body = (f"  return stub_called(DriverSymbol::{function.symbol},\n"
                    f"                     {function.result},\n"
                    f"                     \"{function.reason}\");")
        else:
            continue
        out.append(signature(function) + " {\n" + body + "\n}\n\n")
    out.append("}  // namespace impl\n}  // namespace openmps::client\n\n")
    for function in functions:
        out.append(signature(function) + " {\n"
                   + wrap("  return openmps::client::load(&openmps::client::g_entry."
                          f"{function.symbol})(",
                          [p.name for p in function.params], ");") + "\n}\n\n")
    return "".join(out)


_CALLED = """};

// The implementation of a symbol, and its result told to the hooks. What it throws ends here: the
// compiler's tables hold the way, so calls that throw nothing pay nothing. A thread that is
// cancelled inside a call unwinds through it.
template <DriverSymbol symbol, auto implementation>
struct Called;
template <DriverSymbol symbol, typename... Arguments, CUresult (*implementation)(Arguments...)>
struct Called<symbol, implementation> {
  static CUresult run(Arguments... arguments) {
    CUresult result = CUDA_SUCCESS;
    try {
      result = implementation(arguments...);
    } catch (abi::__forced_unwind&) {
      throw;
    } catch (...) {
      result = result_of_exception();
    }
    if (result != CUDA_SUCCESS) [[unlikely]] {
      call_failed(symbol, result);
    }
    return result;
  }
  static CUresult call(Arguments... arguments) {
    if (g_attention.load(std::memory_order_relaxed) == 0) [[likely]] {
      return run(arguments...);
    }
    CUresult result = before_call(symbol);
    if (result == CUDA_SUCCESS) result = run(arguments...);
    if (result == CUDA_SUCCESS) call_succeeded(symbol);
    return result;
  }
};

constexpr DriverTable kRemoteEntries = {
"""

_ENTRY_RUNTIME = """};

// resolve_mode() for an entry: CUDA_SUCCESS, or what became of it. The next call tries again.
CUresult decided() {
  try {
    resolve_mode();
  } catch (abi::__forced_unwind&) {
    throw;
  } catch (...) {
    return result_of_exception();
  }
  return CUDA_SUCCESS;
}

// One byte per symbol: whether its name was logged.
bool g_reported[kDriverSymbolCount];

// Logs the name of a missing function once, if OPENMPS_DEBUG asks. No stdio: a program may call
// this from anywhere.
CUresult stub_called(DriverSymbol symbol, CUresult result, const char* reason) {
  explain_failure(reason);
  bool* reported = &g_reported[static_cast<size_t>(symbol)];
  if (__atomic_exchange_n(reported, true, __ATOMIC_RELAXED)) return result;
  if (environment_variable("OPENMPS_DEBUG") == nullptr) return result;
  char line[512] = "openmps: not supported: ";
  const auto append = [&line](const char* text) {
    strncat(line, text, sizeof(line) - strlen(line) - 1);
  };
  append(driver_symbol_name(symbol));
  append(": ");
  append(reason);
  append("\\n");
  [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, line, strlen(line));
  return result;
}

// Stands for what the driver below lacks. One function for all signatures: by the x86-64 calling
// convention a callee may ignore arguments.
CUresult missing_below() { return CUDA_ERROR_NOT_SUPPORTED; }

template <typename Entry>
inline Entry load(Entry* member) {
  return __atomic_load_n(member, __ATOMIC_ACQUIRE);
}

void** entry_slot(size_t symbol) { return reinterpret_cast<void**>(&g_entry) + symbol; }

"""

_INSTALL = """void install_remote_entries() {
  const auto* source = reinterpret_cast<void* const*>(&kRemoteEntries);
  for (size_t i = 0; i < kDriverSymbolCount; ++i)
    __atomic_store_n(entry_slot(i), source[i], __ATOMIC_RELEASE);
}

void install_pass_through_entries(const DriverTable& driver) {
  const auto* source = reinterpret_cast<void* const*>(&driver);
  for (size_t i = 0; i < kDriverSymbolCount; ++i) {
    void* entry = source[i] != nullptr ? source[i] : reinterpret_cast<void*>(&missing_below);
    __atomic_store_n(entry_slot(i), entry, __ATOMIC_RELEASE);
  }
}

void* entry_target(uint16_t symbol) {
  if (symbol >= kDriverSymbolCount) return nullptr;
  return __atomic_load_n(entry_slot(symbol), __ATOMIC_ACQUIRE);
}

"""
