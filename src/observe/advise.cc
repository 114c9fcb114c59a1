// SPDX-License-Identifier: Apache-2.0
// See advise.h.
#include "observe/advise.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "base/text.h"
#include "observe/figures.h"

namespace openmps::observe {
namespace {

// Less than these many kernels, or this time, is too little to judge.
constexpr uint64_t kFewestKernels = 20;
constexpr double kShortestS = 0.5;
// Two programs that each use less than this part of the device fit side by side.
constexpr double kMuch = 0.6;
// Above this the pauses between the program's own kernels take the rest.
constexpr double kNearlyAll = 0.85;
// The part of the kernels, or of their time, that a limit has to suffice for.
constexpr double kMost = 0.9;
// Without OpenMPS, contexts take turns of some milliseconds on a device: other programs can't use
// gaps that are shorter.
constexpr uint64_t kTimeSliceNs = 2'000'000;
// Work that takes this much longer than alone is slowed down by neighbours; learnt times differ by
// less.
constexpr double kSlower = 1.1;
// A kernel of this length delays neighbours that need an answer in milliseconds.
constexpr uint64_t kLongNs = 5'000'000;

double ratio(double a, double b) { return b > 0 ? a / b : 0; }
double count(uint64_t n) { return static_cast<double>(n); }

template <size_t n>
std::array<uint64_t, n> each_since(const std::array<uint64_t, n>& now,
                                   const std::array<uint64_t, n>& before) {
  std::array<uint64_t, n> difference{};
  std::transform(now.begin(), now.end(), before.begin(), difference.begin(),
                 [](uint64_t a, uint64_t b) { return since(a, b); });
  return difference;
}

// The first bin up to which that part of the sum lies; the number of bins if the sum is 0.
template <size_t n>
size_t bin_of(const std::array<uint64_t, n>& bins, double part) {
  const double all = std::accumulate(bins.begin(), bins.end(), 0.0);
  double sum = 0;
  for (size_t bin = 0; bin < n; ++bin) {
    sum += count(bins[bin]);
    if (sum > 0 && sum >= part * all) return bin;
  }
  return n;
}

// The upper end of a bin of times.
uint64_t end_ns(size_t bin) { return bin < wire::kTimeBins ? wire::time_bin_ns(bin + 1) : 0; }

Use::OnDevice most_used(const Use& use) {
  Use::OnDevice most;
  for (const Use::OnDevice& device : use.devices) {
    if (device.gpu_ns >= most.gpu_ns) most = device;
  }
  return most;
}

// The part of the time in which work was held for one of these reasons, at most 1.
double held_share(const Use& now, const Use& before, std::initializer_list<std::string_view> why,
                  double seconds) {
  uint64_t ns = 0;
  for (const Use::Held& held : now.held) {
    if (std::ranges::find(why, held.why) == why.end()) continue;
    const auto then = std::ranges::find(before.held, held.why, &Use::Held::why);
    ns += since(held.ns, then == before.held.end() ? 0 : then->ns);
  }
  return std::min(1.0, ratio(count(ns) / 1e9, seconds));
}

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kUnknown: return "not known";
    case Verdict::kHelps: return "helps";
    case Verdict::kHelpsLittle: return "helps a little";
    case Verdict::kDoesNotHelp: return "does not help";
  }
  return "";
}

std::string shape_text(const Figures& f) {
  return format_text("%s blocks of %.0f threads on average, on %u SMs",
                     short_count(f.blocks).c_str(), f.threads, f.device.sms);
}

Verdict verdict_of(const Figures& f) {
  if (f.wanted >= kNearlyAll) return Verdict::kDoesNotHelp;
  return f.wanted >= kMuch ? Verdict::kHelpsLittle : Verdict::kHelps;
}

void explain_room(const Figures& f, Verdict verdict, Advice* advice) {
  std::string text = "It has " + percent(f.sm_time_share) + " of the device's SM-time";
  if (f.clients > 1) text += ", and would have " + percent(f.wanted) + " without neighbours";
  switch (verdict) {
    case Verdict::kHelps:
      text += format_text(": there is room for %.0f such programs.",
                          std::floor(1 / std::max(f.wanted, 0.01)));
      break;
    case Verdict::kHelpsLittle:
      text += ": a second such program finds less than it wants, but more than nothing.";
      break;
    default: text += ": a neighbour gets only what this program loses.";
  }
  advice->why.push_back(std::move(text));
}

void explain_pauses(const Figures& f, Advice* advice) {
  if (f.idle_share <= 1 - kNearlyAll || f.gap_shorter_ns == 0) return;
  std::string text = format_text(
      "For %s of the time it has nothing to run; half of that is in pauses shorter than %s",
      percent(f.idle_share).c_str(), time_text(f.gap_shorter_ns).c_str());
  text += f.gap_shorter_ns <= kTimeSliceNs
              ? ", too short for programs with contexts of their own, which take turns of "
                "milliseconds, but not for neighbours in a shared one."
              : ".";
  advice->why.push_back(std::move(text));
}

void explain_fill(const Figures& f, Advice* advice) {
  if (f.most_fill < 1) {
    advice->why.push_back(format_text(
        "While its kernels run they keep %s of the SMs busy (%s); for %s of that time no more than "
        "%s.",
        percent(f.fill).c_str(), shape_text(f).c_str(), percent(kMost).c_str(),
        percent(f.most_fill).c_str()));
  } else {
    advice->why.push_back(format_text("Its kernels keep %s of the SMs busy while they run (%s).",
                                      percent(f.fill).c_str(), shape_text(f).c_str()));
  }
}

void explain_neighbours(const Figures& f, Advice* advice) {
  const uint32_t others = f.clients - 1;
  if (others == 0) return;
  const std::string beside = format_text(
      "beside %u other program%s on the device%s", others, others == 1 ? "" : "s",
      f.others_share == 0 ? ""
                          : (" that used " + percent(f.others_share) + " of its SM-time").c_str());
  if (f.slowdown == 0) {
    advice->why.push_back(
        "It has not been seen without neighbours, so what they cost is not known: " + beside + ".");
  } else if (f.slowdown >= kSlower) {
    advice->why.push_back(format_text("Its work took %.1f times what it takes alone, %s.",
                                      f.slowdown, beside.c_str()));
  } else {
    advice->why.push_back("Its work took no longer than alone, " + beside + ".");
  }
}

void explain_lengths(const Figures& f, Advice* advice) {
  if (f.half_shorter_ns == 0) return;
  std::string text = format_text(
      "Half of its kernels and graphs are shorter than %s, nine tenths "
      "than %s",
      time_text(f.half_shorter_ns).c_str(), time_text(f.most_shorter_ns).c_str());
  text += f.most_shorter_ns >= kLongNs && f.most_fill >= 1
              ? "; none is interrupted, so neighbours that need quick answers need SMs that this "
                "program is kept off."
              : ".";
  advice->why.push_back(std::move(text));
}

// Chooses one of the three percentages, and says why.
void recommend(const Figures& f, Advice* advice) {
  auto& why = advice->why;
  const auto parts = std::max(f.clients, 2u);
  const std::string of = f.clients < 2 ? " (of two programs; it is alone now)"
                                       : format_text(" (of %u programs)", parts);
  if (advice->by_load < 100) {
    advice->recommended = advice->by_load;
    why.push_back(format_text(
        "Limited to %.0f%%, by its load, it loses little, and neighbours can count on the rest.",
        advice->by_load));
  } else if (f.idle_share > 0.5) {
    advice->recommended = advice->double_parts;
    why.push_back(
        format_text("It wants all SMs, but seldom: 100/(0.5 n) = %.0f%%%s leaves room to "
                    "use one another's pauses.",
                    advice->double_parts, of.c_str()));
  } else {
    advice->recommended = advice->equal_parts;
    why.push_back(
        format_text("It wants all SMs, most of the time: 100/n = %.0f%%%s keeps it and "
                    "its neighbours out of one another's way; without a limit they "
                    "share by turns.",
                    advice->equal_parts, of.c_str()));
  }
  if (100 * f.most_fill >= f.percentage && f.percentage < 100) {
    why.push_back(
        format_text("It is limited to %.0f%% now, so what it would do with more has not "
                    "been seen.",
                    f.percentage));
  }
}

}  // namespace

Figures figures_of(const Client* before, const Client& now, const std::vector<Device>& devices) {
  Figures f;
  f.name = name_of(now);
  f.pid = now.pid;
  f.command = now.command;
  f.percentage = now.active_thread_percentage;
  if (!now.use) return f;
  const Use& use = *now.use;
  const Use then = before != nullptr && before->use ? *before->use : Use();
  f.timed = use.gpu_ns.has_value();
  f.seconds = count(since(use.age_ns, then.age_ns)) / 1e9;
  f.kernels = since(use.launches, then.launches);
  f.blocks = ratio(count(since(use.blocks, then.blocks)), count(f.kernels));
  f.threads = ratio(count(since(use.threads, then.threads)), count(since(use.blocks, then.blocks)));
  const auto lengths = each_since(use.lengths, then.lengths);
  f.half_shorter_ns = end_ns(bin_of(lengths, 0.5));
  f.most_shorter_ns = end_ns(bin_of(lengths, kMost));
  f.gap_shorter_ns = end_ns(bin_of(each_since(use.gap_ns, then.gap_ns), 0.5));
  const auto parts = each_since(use.part_ns, then.part_ns);
  f.most_fill = std::min(1.0, count(bin_of(parts, kMost) + 1) / count(wire::kPartBins));

  const Use::OnDevice main = most_used(use);
  const Use::OnDevice past = on_device(then, main.ordinal);
  const auto device = std::ranges::find(devices, main.ordinal, &Device::ordinal);
  if (device != devices.end()) f.device = *device;
  const auto passed_s = [](uint64_t a, uint64_t b) { return count(since(a, b)) / 1e9; };
  const double gpu_s = passed_s(main.gpu_ns, past.gpu_ns);
  const double sm_s = passed_s(main.sm_ns, past.sm_ns);
  const double alone_s = passed_s(main.alone_ns, past.alone_ns);
  f.kernel_share = std::min(1.0, ratio(gpu_s, f.seconds));
  f.sm_time_share = std::min(1.0, ratio(sm_s, f.seconds * f.device.sms));
  f.fill = std::min(1.0, ratio(sm_s, gpu_s * f.device.sms));
  if (alone_s > 0) {
    f.slowdown = std::max(1.0, passed_s(main.compared_ns, past.compared_ns) / alone_s);
  }
  // While work is held because of the device, the program has work: that is no pause.
  const double others_first = held_share(use, then, {"share"}, f.seconds);
  const double ahead = held_share(
      use, then, {"share", "window", "connection", "quiet moment", "print turn", "memory"},
      f.seconds);
  f.idle_share = 1 - std::min(1.0, std::max(f.kernel_share + others_first, ahead));
  const double alone_share = f.kernel_share / std::max(f.slowdown, 1.0);
  f.wanted = f.fill * ratio(alone_share, alone_share + f.idle_share);
  return f;
}

void add_others(const Snapshot& before, const Snapshot& now, Figures* f) {
  double sm_s = 0;
  f->clients = 1;
  for (const Client& client : now.clients) {
    if (name_of(client) == f->name || !client.use) continue;
    const Client* again = find_again(before.clients, client);
    const Use then = again != nullptr && again->use ? *again->use : Use();
    const Use::OnDevice here = on_device(*client.use, f->device.ordinal);
    if (here.gpu_ns == 0 && here.memory_bytes == 0) continue;
    ++f->clients;
    sm_s += count(since(here.sm_ns, on_device(then, here.ordinal).sm_ns)) / 1e9;
  }
  const double seconds = count(since(now.at_ns, before.at_ns)) / 1e9;
  f->others_share = std::min(1.0, ratio(sm_s, seconds * f->device.sms));
  if (f->clients == 1) f->wanted = f->sm_time_share;
}

Advice advise(const Figures& f) {
  Advice advice;
  if (!f.timed) {
    advice.why.emplace_back("Times are not measured: the worker runs without windows.");
    return advice;
  }
  if (f.kernels < kFewestKernels || f.seconds < kShortestS || f.device.sms == 0) {
    advice.why.push_back(
        format_text("It launched %s kernels in %.1f s, which is too little to go by.",
                    short_count(count(f.kernels)).c_str(), f.seconds));
    return advice;
  }
  const double n = std::max(f.clients, 2u);
  advice.equal_parts = 100 / n;
  advice.double_parts = std::min(100.0, 100 / (0.5 * n));
  advice.by_load = 100 * f.most_fill;
  advice.verdict = verdict_of(f);
  explain_room(f, advice.verdict, &advice);
  explain_pauses(f, &advice);
  explain_fill(f, &advice);
  explain_lengths(f, &advice);
  explain_neighbours(f, &advice);
  recommend(f, &advice);
  return advice;
}

std::string format_advice(const Figures& f, const Advice& advice) {
  std::string text = format_text(
      "%s %s, %s kernels in %.1f s on GPU %u, %s\n", f.name.c_str(), program_of(f.command).c_str(),
      short_count(count(f.kernels)).c_str(), f.seconds, f.device.ordinal, f.device.name.c_str());
  text += std::string("Sharing the GPU: ") + name_of(advice.verdict) + "\n";
  if (advice.verdict != Verdict::kUnknown) {
    text += format_text(
        "Active thread percentage: %.0f%% (by load %.0f%%, 100/n %.0f%%, "
        "100/(0.5 n) %.0f%%)\n",
        advice.recommended, advice.by_load, advice.equal_parts, advice.double_parts);
  }
  for (const std::string& sentence : advice.why) text += "  " + sentence + "\n";
  return text;
}

std::string format_advice_json(const Figures& f, const Advice& advice) {
  const bool known = advice.verdict != Verdict::kUnknown;
  nlohmann::ordered_json percentages = nullptr;
  if (known) {
    percentages = {{"recommended", advice.recommended},
                   {"by_load", advice.by_load},
                   {"equal_parts", advice.equal_parts},
                   {"double_parts", advice.double_parts}};
  }
  nlohmann::ordered_json slowdown = nullptr;
  if (f.slowdown != 0) slowdown = f.slowdown;
  const nlohmann::ordered_json json = {{"pid", f.pid},
                                       {"command", f.command},
                                       {"device", f.device.uuid},
                                       {"sharing", name_of(advice.verdict)},
                                       {"active_thread_percentage", percentages},
                                       {"why", advice.why},
                                       {"figures",
                                        {{"seconds", f.seconds},
                                         {"kernels", f.kernels},
                                         {"blocks_per_kernel", f.blocks},
                                         {"threads_per_block", f.threads},
                                         {"half_shorter_ns", f.half_shorter_ns},
                                         {"nine_tenths_shorter_ns", f.most_shorter_ns},
                                         {"kernel_share", f.kernel_share},
                                         {"idle_share", f.idle_share},
                                         {"sm_share", f.sm_time_share},
                                         {"wanted_sm_share", f.wanted},
                                         {"fill", f.fill},
                                         {"nine_tenths_fill", f.most_fill},
                                         {"half_of_gaps_shorter_ns", f.gap_shorter_ns},
                                         {"slowdown", slowdown},
                                         {"active_thread_percentage", f.percentage},
                                         {"clients", f.clients},
                                         {"others_sm_share", f.others_share}}}};
  return json.dump(2) + "\n";
}

}  // namespace openmps::observe
