// SPDX-License-Identifier: Apache-2.0
// See client_limits.h.
#include "wire/client_limits.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "base/environment.h"
#include "base/text.h"

namespace openmps::wire {
namespace {

// No GPU has more SMs: an H200 has 132.
constexpr LimitValue kMostSms = 1024;
constexpr LimitValue kUnbounded = std::numeric_limits<LimitValue>::infinity();

// All of `text` as a number for which `is_valid` is true.
std::optional<LimitValue> parse_number(std::string_view text, bool (*is_valid)(double)) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return is_valid(value) ? std::optional(value) : std::nullopt;
}

// ---- Percentage -------------------------------------------------------------------------------

// Servers store a float, in which the smallest doubles are 0. False for a NaN.
bool is_percentage(double value) {
  return value > 0 && value <= 100 && static_cast<float>(value) > 0;
}

std::optional<LimitValue> parse_percentage(std::string_view text) {
  return parse_number(text, is_percentage);
}

std::string percentage_text(LimitValue value) { return format_text("%.1f", value); }

void read_percentage(const char* text, ClientLimits* limits) {
  limits->active_thread_percentage = strtof(text, nullptr);
}

// ---- Priority ---------------------------------------------------------------------------------

std::optional<LimitValue> parse_priority(std::string_view text) {
  if (text != "0" && text != "1") return std::nullopt;
  return text == "1" ? 1 : 0;
}

std::string integer_text(LimitValue value) { return format_text("%.0f", value); }

void read_priority(const char* text, ClientLimits* limits) {
  limits->client_priority = static_cast<uint32_t>(strtoul(text, nullptr, 10));
}

// ---- Memory -----------------------------------------------------------------------------------

// "3G" or "512M", also with a B behind it, as NVIDIA's documentation of the variable has it.
std::optional<LimitValue> parse_size(std::string_view text) {
  if (text.ends_with('B')) text.remove_suffix(1);
  if (text.size() < 2) return std::nullopt;
  const uint64_t unit = text.back() == 'G' ? kGiB : text.back() == 'M' ? kMiB : 0;
  if (unit == 0) return std::nullopt;
  text.remove_suffix(1);
  const std::optional<uint64_t> count = parse_unsigned(text, UINT64_MAX / unit);
  if (!count) return std::nullopt;
  return static_cast<LimitValue>(*count * unit);
}

std::string size_text(uint64_t bytes, bool in_gib) {
  return std::to_string(bytes / (in_gib ? kGiB : kMiB)) + (in_gib ? "G" : "M");
}

std::string memory_text(LimitValue value) {
  const auto bytes = static_cast<uint64_t>(value);
  return bytes == 0 ? "none" : size_text(bytes, bytes % kGiB == 0);
}

// NVIDIA's daemon cuts 1536M to 1G.
std::string memory_answer(LimitValue value) {
  const auto bytes = static_cast<uint64_t>(value);
  return bytes == 0 ? "" : size_text(bytes, bytes >= kGiB);
}

// "0=1G,1=512M", or bytes without a unit. An entry that can't be read voids no other one.
void read_memory(const char* text, ClientLimits* limits) {
  for (; text != nullptr && *text != '\0'; text = strchr(text, ',')) {
    if (*text == ',') ++text;
    char* end = nullptr;
    const unsigned long device = strtoul(text, &end, 10);
    if (end == text || *end != '=') continue;
    const char* number = end + 1;
    uint64_t bytes = strtoull(number, &end, 10);
    if (end == number) continue;
    if (*end == 'G' || *end == 'g') bytes *= kGiB;
    if (*end == 'M' || *end == 'm') bytes *= kMiB;
    if (device < kMaxDevices) limits->memory_limit[device] = bytes;
  }
}

// ---- SMs --------------------------------------------------------------------------------------

std::optional<LimitValue> parse_count(std::string_view text) {
  const std::optional<uint64_t> count = parse_unsigned(text, UINT32_MAX);
  return count ? std::optional(static_cast<LimitValue>(*count)) : std::nullopt;
}

std::string count_text(LimitValue value) { return value == 0 ? "none" : integer_text(value); }

// ---- Time -------------------------------------------------------------------------------------

// A day. The least is what the GPU's and the driver's own delays can't exceed by chance.
constexpr LimitValue kMostSeconds = 86'400;
constexpr LimitValue kLeastSeconds = 0.1;

// False for a NaN. 0: no limit.
bool is_work_time(double value) {
  return value == 0 || (value >= kLeastSeconds && value <= kMostSeconds);
}

std::optional<LimitValue> parse_seconds(std::string_view text) {
  return parse_number(text, is_work_time);
}

std::string seconds_text(LimitValue value) {
  return value == 0 ? "none" : format_text("%g", value);
}

void read_seconds(const char* text, ClientLimits* limits) {
  if (const auto value = parse_seconds(text)) limits->work_time_s = static_cast<float>(*value);
}

// ---- Borrowing and weights ----------------------------------------------------------------------

std::optional<LimitValue> parse_switch(std::string_view text) {
  if (text == "true" || text == "1") return 1;
  if (text == "false" || text == "0") return 0;
  return std::nullopt;
}

std::string switch_text(LimitValue value) { return value == 0 ? "false" : "true"; }

// A hundredth of the usual share, and a hundred times that: a session that gets less would seem to
// hang.
constexpr LimitValue kLeastWeight = 0.01;
constexpr LimitValue kMostWeight = 100;

// False for a NaN. 0: none is stated.
bool is_weight(double value) {
  return value == 0 || (value >= kLeastWeight && value <= kMostWeight);
}

std::optional<LimitValue> parse_weight(std::string_view text) {
  return parse_number(text, is_weight);
}

std::string weight_text(LimitValue value) { return value == 0 ? "none" : format_text("%g", value); }

void read_weight(const char* text, ClientLimits* limits) {
  if (const auto value = parse_weight(text)) limits->weight = static_cast<float>(*value);
}

// ---- Memory that is short -----------------------------------------------------------------------

constexpr std::string_view kPressureWords[] = {"none", "oom", "wait", "terminate"};

std::optional<LimitValue> parse_pressure(std::string_view text) {
  const auto* const found = std::ranges::find(kPressureWords, text);
  if (found == std::end(kPressureWords)) return std::nullopt;
  return static_cast<LimitValue>(found - std::begin(kPressureWords));
}

std::string pressure_text(LimitValue value) {
  const auto word = static_cast<size_t>(value);
  return std::string(kPressureWords[word < std::size(kPressureWords) ? word : 0]);
}

constexpr LimitInfo kTable[] = {
    {.limit = Limit::kPercentage,
     .name = "active_thread_percentage",
     .variable = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
     .json = "active_thread_percentage",
     .is_per_device = false,
     .is_of_groups = false,
     .unset = 100,
     .parse = parse_percentage,
     .text = percentage_text,
     .answer = percentage_text,
     .read_variable = read_percentage,
     .notation = Notation::kNumber,
     .least = std::numeric_limits<float>::denorm_min(),
     .most = 100,
     .expected = "a number above 0, up to 100",
     .expected_table = ""},
    {.limit = Limit::kPriority,
     .name = "client_priority",
     .variable = "CUDA_MPS_CLIENT_PRIORITY",
     .json = "client_priority",
     .is_per_device = false,
     .is_of_groups = false,
     .unset = 0,
     .parse = parse_priority,
     .text = integer_text,
     .answer = integer_text,
     .read_variable = read_priority,
     .notation = Notation::kInteger,
     .least = 0,
     .most = kLowestPriority,
     .expected = "0 (normal) or 1 (below normal)",
     .expected_table = ""},
    {.limit = Limit::kMemory,
     .name = "device_pinned_mem_limit",
     .variable = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
     .json = "memory_limit_bytes",
     .is_per_device = true,
     .is_of_groups = false,
     .unset = 0,
     .parse = parse_size,
     .text = memory_text,
     .answer = memory_answer,
     .read_variable = read_memory,
     .notation = Notation::kSize,
     .least = 0,
     .most = kUnbounded,
     .expected = "a size in M or G, like \"512M\"; \"0G\" is no limit",
     .expected_table = "a table, like {0 = \"3G\"}"},
    {.limit = Limit::kSmCount,
     .name = "sm_count",
     .variable = nullptr,
     .json = "sm_count",
     .is_per_device = true,
     .is_of_groups = true,
     .unset = 0,
     .parse = parse_count,
     .text = count_text,
     .answer = count_text,
     .read_variable = nullptr,
     .notation = Notation::kInteger,
     .least = 1,
     .most = kMostSms,
     .expected = "a number of SMs, 1 to 1024",
     .expected_table = "a table, like {0 = 32}"},
    {.limit = Limit::kWorkTime,
     .name = "work_time_limit",
     .variable = "OPENMPS_WORK_TIME_LIMIT",
     .json = "work_time_limit_s",
     .is_per_device = false,
     .is_of_groups = false,
     .unset = 0,
     .parse = parse_seconds,
     .text = seconds_text,
     .answer = seconds_text,
     .read_variable = read_seconds,
     .notation = Notation::kNumber,
     .least = kLeastSeconds,
     .most = kMostSeconds,
     .expected = "a number of seconds, 0.1 to 86400",
     .expected_table = ""},
    {.limit = Limit::kBorrow,
     .name = "borrow_sms",
     .variable = nullptr,
     .json = "borrow_sms",
     .is_per_device = false,
     .is_of_groups = false,
     .unset = 0,
     .parse = parse_switch,
     .text = switch_text,
     .answer = switch_text,
     .read_variable = nullptr,
     .notation = Notation::kSwitch,
     .least = 0,
     .most = 1,
     .expected = "true or false: whether it has more SMs than its share while others have no work",
     .expected_table = ""},
    {.limit = Limit::kWeight,
     .name = "weight",
     .variable = "OPENMPS_WEIGHT",
     .json = "weight",
     .is_per_device = false,
     .is_of_groups = false,
     .unset = 0,
     .parse = parse_weight,
     .text = weight_text,
     .answer = weight_text,
     .read_variable = read_weight,
     .notation = Notation::kNumber,
     .least = kLeastWeight,
     .most = kMostWeight,
     .expected = "a weight, 0.01 to 100; 1 is usual",
     .expected_table = ""},
    {.limit = Limit::kGuaranteedMemory,
     .name = "guaranteed_memory",
     .variable = nullptr,
     .json = "guaranteed_memory_bytes",
     .is_per_device = true,
     .is_of_groups = false,
     .unset = 0,
     .parse = parse_size,
     .text = memory_text,
     .answer = memory_answer,
     .read_variable = nullptr,
     .notation = Notation::kSize,
     .least = 0,
     .most = kUnbounded,
     .expected = "a size in M or G, like \"512M\"; \"0G\": all memory stays on the device",
     .expected_table = "a table, like {0 = \"3G\"}"},
    {.limit = Limit::kOnPressure,
     .name = "on_pressure",
     .variable = nullptr,
     .json = "on_pressure",
     .is_per_device = false,
     .is_of_groups = false,
     .unset = 0,
     .parse = parse_pressure,
     .text = pressure_text,
     .answer = pressure_text,
     .read_variable = nullptr,
     .notation = Notation::kWord,
     .least = 0,
     .most = std::size(kPressureWords) - 1,
     .expected = "\"oom\", \"wait\" or \"terminate\"; \"none\": not stated",
     .expected_table = ""},
};

// The nearest number of that type. A NaN is 0.
template <typename T>
T nearest(LimitValue value) {
  constexpr auto kMost = static_cast<LimitValue>(std::numeric_limits<T>::max());
  if (!(value > 0)) return 0;
  return value < kMost ? static_cast<T>(value) : std::numeric_limits<T>::max();
}

}  // namespace

std::span<const LimitInfo> limit_table() { return kTable; }

const LimitInfo& info_of(Limit limit) {
  return *std::ranges::find(kTable, limit, &LimitInfo::limit);
}

CUresult set_limit(ClientLimits* limits, Limit limit, uint32_t device, LimitValue value) {
  const auto found = std::ranges::find(kTable, limit, &LimitInfo::limit);
  if (found == std::end(kTable)) return CUDA_ERROR_INVALID_VALUE;
  if (found->is_per_device && device >= kMaxDevices) return CUDA_ERROR_INVALID_DEVICE;
  switch (limit) {
    case Limit::kPercentage:
      if (!is_percentage(value)) return CUDA_ERROR_INVALID_VALUE;
      limits->active_thread_percentage = static_cast<float>(value);
      std::ranges::fill(limits->sm_count, 0);
      break;
    case Limit::kPriority:
      if (value != 0 && value != kLowestPriority) return CUDA_ERROR_INVALID_VALUE;
      limits->client_priority = static_cast<uint32_t>(value);
      break;
    case Limit::kMemory: limits->memory_limit[device] = nearest<uint64_t>(value); break;
    case Limit::kSmCount: limits->sm_count[device] = nearest<uint32_t>(value); break;
    case Limit::kWorkTime:
      if (!is_work_time(value)) return CUDA_ERROR_INVALID_VALUE;
      limits->work_time_s = static_cast<float>(value);
      break;
    case Limit::kBorrow: limits->borrows = value != 0 ? 1 : 0; break;
    case Limit::kWeight:
      if (!is_weight(value)) return CUDA_ERROR_INVALID_VALUE;
      limits->weight = static_cast<float>(value);
      break;
    case Limit::kGuaranteedMemory:
      limits->guaranteed_memory[device] = nearest<uint64_t>(value);
      break;
    case Limit::kOnPressure:
      if (!(value >= 0 && value < std::size(kPressureWords))) return CUDA_ERROR_INVALID_VALUE;
      limits->on_pressure = static_cast<OnPressure>(value);
      break;
  }
  return CUDA_SUCCESS;
}

ClientLimits limits_of_program() {
  ClientLimits limits;
  for (const LimitInfo& info : kTable) {
    const char* text = info.variable == nullptr ? nullptr : environment_variable(info.variable);
    if (text != nullptr) info.read_variable(text, &limits);
  }
  return limits;
}

ClientLimits granted_limits(const ClientLimits& server, const ClientLimits& program) {
  ClientLimits granted = server;
  const float wish = program.active_thread_percentage;  // 0 or NaN: none
  if (wish > 0 && wish < server.active_thread_percentage) granted.active_thread_percentage = wish;
  if (program.client_priority <= kLowestPriority) granted.client_priority = program.client_priority;
  if (granted.client_priority == kNoPriority) granted.client_priority = 0;
  for (uint32_t i = 0; i < kMaxDevices; ++i) {
    granted.memory_limit[i] = combined_limit(server.memory_limit[i], program.memory_limit[i]);
  }
  granted.work_time_s = combined_limit(server.work_time_s, program.work_time_s);
  // What it states where the operator states nothing, and at most what the operator states.
  const float weight = combined_limit(server.weight, program.weight);
  granted.weight = is_weight(weight) ? weight : server.weight;
  return granted;
}

uint64_t combined_limit(uint64_t one, uint64_t other) {
  return one == 0 || other == 0 ? std::max(one, other) : std::min(one, other);
}

// A program may state anything.
float combined_limit(float one, float other) {
  if (!(other > 0)) return one;
  return one > 0 ? std::min(one, other) : other;
}

void put_changes_in_force(const ClientLimits& next, ClientLimits* before, ClientLimits* in_force) {
  const auto take = [](const auto& now, auto& was, auto& valid) {
    if (now != was) was = valid = now;
  };
  take(next.active_thread_percentage, before->active_thread_percentage,
       in_force->active_thread_percentage);
  take(next.client_priority, before->client_priority, in_force->client_priority);
  for (uint32_t i = 0; i < kMaxDevices; ++i) {
    take(next.memory_limit[i], before->memory_limit[i], in_force->memory_limit[i]);
    take(next.sm_count[i], before->sm_count[i], in_force->sm_count[i]);
    take(next.guaranteed_memory[i], before->guaranteed_memory[i], in_force->guaranteed_memory[i]);
  }
  take(next.work_time_s, before->work_time_s, in_force->work_time_s);
  take(next.borrows, before->borrows, in_force->borrows);
  take(next.weight, before->weight, in_force->weight);
  take(next.on_pressure, before->on_pressure, in_force->on_pressure);
}

}  // namespace openmps::wire
