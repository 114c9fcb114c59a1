// SPDX-License-Identifier: Apache-2.0
// The format string and its arguments, read through checked memory. See device_printf.h.
#include "softgpu/interp/device_printf.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "softgpu/interp/address.h"

namespace openmps::softgpu {
namespace {

// Arguments lie one after the other, each at its own size's alignment: 4 or 8 bytes.
class Arguments {
 public:
  Arguments(Warp* warp, uint32_t lane, uint64_t at) : warp_(warp), lane_(lane), at_(at) {}
  bool next(uint32_t bytes, uint64_t* value) {
    at_ = (at_ + bytes - 1) & ~uint64_t{bytes - 1};
    *value = 0;
    const bool good = read_generic(warp_, lane_, at_, value, bytes);
    at_ += bytes;
    return good;
  }

 private:
  Warp* warp_;
  uint32_t lane_;
  uint64_t at_;
};

bool is_one_of(char c, const char* set) { return c != '\0' && std::strchr(set, c) != nullptr; }

template <class T>
void append(std::string* out, const std::string& spec, T value) {
  char text[512];  // widths and precisions are cut to what fits
  const int n = std::snprintf(text, sizeof text, spec.c_str(), value);
  if (n > 0) out->append(text, std::min(static_cast<size_t>(n), sizeof text - 1));
}

}  // namespace

// The number of arguments printed, or -1 if the format can't be read. What is no conversion is
// copied; what can't be read prints nothing.
int format_printf(Warp* warp, uint32_t lane, uint64_t format_address, uint64_t argument_address,
                  std::string* out) {
  std::string format;
  if (!read_string(warp, lane, format_address, &format)) return -1;
  Arguments arguments(warp, lane, argument_address);
  int count = 0;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out->push_back(format[i]);
      continue;
    }
    if (i + 1 < format.size() && format[i + 1] == '%') {
      out->push_back('%');
      ++i;
      continue;
    }
    std::string spec = "%";
    size_t at = i + 1;
    uint64_t value = 0;
    for (; at < format.size() && is_one_of(format[at], "-+ #0123456789.*"); ++at) {
      if (format[at] != '*') {
        spec += format[at];
      } else {
        arguments.next(4, &value);
        ++count;
        spec += std::to_string(static_cast<int32_t>(value));
      }
    }
    bool wide = false;
    for (; at < format.size() && is_one_of(format[at], "hlLqjzt"); ++at) wide |= format[at] != 'h';
    if (at >= format.size()) {
      out->append(format, i);
      break;
    }
    const char conversion = format[at];
    ++count;
    if (is_one_of(conversion, "di")) {
      arguments.next(wide ? 8 : 4, &value);
      append(out, spec + "lld", wide ? static_cast<long long>(value) : static_cast<int32_t>(value));
    } else if (is_one_of(conversion, "uoxX")) {
      arguments.next(wide ? 8 : 4, &value);
      append(out, spec + "ll" + conversion, static_cast<unsigned long long>(value));
    } else if (is_one_of(conversion, "fFeEgGaA")) {
      arguments.next(8, &value);
      double number;
      std::memcpy(&number, &value, sizeof number);
      // A NaN has no sign on the device.
      append(out, spec + conversion, number != number ? __builtin_nan("") : number);
    } else if (conversion == 'c') {
      arguments.next(4, &value);
      append(out, spec + "c", static_cast<int>(value));
    } else if (conversion == 'p') {
      arguments.next(8, &value);
      append(out, spec + "p", reinterpret_cast<void*>(value));
    } else if (conversion == 's') {
      arguments.next(8, &value);
      std::string text;
      if (value == 0) {
        text = "(null)";
      } else {
        read_string(warp, lane, value, &text);
      }
      if (spec == "%") {
        out->append(text);
      } else {
        append(out, spec + "s", text.c_str());
      }
    } else {
      --count;
      out->append(format, i, at + 1 - i);
    }
    i = at;
  }
  return count;
}

}  // namespace openmps::softgpu
