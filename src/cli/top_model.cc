// SPDX-License-Identifier: Apache-2.0
// See top_model.h.
#include "cli/top_model.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "cli/table.h"
#include "observe/figures.h"

namespace openmps::cli {
namespace {

constexpr size_t kPage = 10;  // how many clients a page key moves
constexpr size_t kLongestFilter = 64;
constexpr std::string_view kNobody = "No program uses OpenMPS";

}  // namespace

void TopModel::show(observe::View view) {
  problem_.clear();
  all_ = std::move(view);
  select_again();
}

// Call it after the list or its order has changed.
void TopModel::select_again() {
  const observe::Rates* before =
      selected_ < shown_.clients.size() ? &shown_.clients[selected_] : nullptr;
  observe::View next = select(all_, order_, filter_);
  if (before != nullptr) {
    const auto same = std::ranges::find_if(next.clients, [before](const observe::Rates& rates) {
      return rates.client.server == before->client.server && rates.client.id == before->client.id;
    });
    if (same != next.clients.end()) selected_ = static_cast<size_t>(same - next.clients.begin());
  }
  shown_ = std::move(next);
  selected_ = std::min(selected_, shown_.clients.empty() ? 0 : shown_.clients.size() - 1);
}

TopModel::Action TopModel::on_key(Key key) {
  note_.clear();
  switch (mode_) {
    case Mode::kList: return on_list_key(key);
    case Mode::kFilter: on_filter_key(key); return Action::kNone;
    case Mode::kConfirm:
      mode_ = Mode::kList;
      return key.letter == 'y' || key.letter == 'Y' ? Action::kTerminate : Action::kNone;
  }
  return Action::kNone;
}

TopModel::Action TopModel::on_list_key(Key key) {
  switch (key.kind) {
    case Key::Kind::kUp: move_selection(-1); return Action::kNone;
    case Key::Kind::kDown: move_selection(1); return Action::kNone;
    case Key::Kind::kPageUp: move_selection(-static_cast<ptrdiff_t>(kPage)); return Action::kNone;
    case Key::Kind::kPageDown: move_selection(kPage); return Action::kNone;
    case Key::Kind::kLetter: break;
    default: return Action::kNone;
  }
  switch (key.letter) {
    case 'q': return Action::kQuit;
    case '<': move_column(-1); break;
    case '>': move_column(1); break;
    case 'r':
      order_.ascending = !order_.ascending;
      select_again();
      break;
    case '/':
      mode_ = Mode::kFilter;
      typed_ = filter_;
      break;
    case 't': ask_to_terminate(); break;
    default: break;
  }
  return Action::kNone;
}

void TopModel::ask_to_terminate() {
  if (shown_.clients.empty()) return;
  const observe::Client& client = shown_.clients[selected_].client;
  victim_ = {client.server, name_of(client), observe::program_of(client.command)};
  mode_ = Mode::kConfirm;
}

void TopModel::on_filter_key(Key key) {
  switch (key.kind) {
    case Key::Kind::kEnter:
      filter_ = typed_;
      mode_ = Mode::kList;
      select_again();
      break;
    case Key::Kind::kEscape: mode_ = Mode::kList; break;
    case Key::Kind::kBackspace:
      if (!typed_.empty()) typed_.pop_back();
      break;
    case Key::Kind::kLetter:
      if (typed_.size() < kLongestFilter) typed_ += key.letter;
      break;
    default: break;
  }
}

void TopModel::move_column(int by) {
  const auto columns = static_cast<int>(observe::kColumns);
  order_.by = static_cast<observe::Column>((static_cast<int>(order_.by) + by + columns) % columns);
  order_.ascending = ascends_by_nature(order_.by);
  select_again();
}

void TopModel::move_selection(ptrdiff_t by) {
  if (shown_.clients.empty()) return;
  const auto last = static_cast<ptrdiff_t>(shown_.clients.size()) - 1;
  selected_ =
      static_cast<size_t>(std::clamp(static_cast<ptrdiff_t>(selected_) + by, ptrdiff_t{0}, last));
}

std::string TopModel::title() const {
  std::string text = format_text("openmps top, each %.1f s, %zu program%s", delay_s_,
                                 all_.clients.size(), all_.clients.size() == 1 ? "" : "s");
  text += format_text(", by %s%s", observe::heading_of(order_.by),
                      order_.ascending ? " from below" : "");
  if (!filter_.empty()) {
    text += format_text(", %zu with \"%s\"", shown_.clients.size(), filter_.c_str());
  }
  return text;
}

Line TopModel::last_line() const {
  switch (mode_) {
    case Mode::kFilter: return {"PID or part of the command: " + typed_ + "_", Style::kPrompt};
    case Mode::kConfirm:
      return {format_text("Terminate %s %s? y: yes, any other key: no", victim_.name.c_str(),
                          victim_.program.c_str()),
              Style::kPrompt};
    case Mode::kList: break;
  }
  if (!note_.empty()) return {note_, Style::kPrompt};
  return {std::string(kHelp), Style::kPlain};
}

// The last line is always shown. If lines are short, the part of the list around the selected
// client is the last to be dropped.
std::vector<Line> TopModel::draw(size_t width, size_t height) const {
  std::vector<Line> lines;
  if (height == 0 || width == 0) return lines;
  lines.push_back({title(), Style::kTitle});
  if (!problem_.empty()) {
    lines.push_back({problem_, Style::kPrompt});
  } else if (all_.clients.empty()) {
    lines.push_back({std::string(kNobody), Style::kPlain});
  }
  for (std::string& line : device_lines(all_, width)) lines.push_back({std::move(line)});
  const Table table(width);
  lines.push_back({observe::fit(table.heading(), width), Style::kHeading});
  constexpr size_t kFewestRows = 3;
  const size_t rows_end = height - 1;
  const size_t most_above = rows_end > kFewestRows ? rows_end - kFewestRows : 0;
  if (lines.size() > most_above) {
    lines.erase(lines.begin(), lines.end() - static_cast<ptrdiff_t>(most_above));
  }
  const size_t room = rows_end - lines.size();
  const size_t first = room == 0 ? 0 : selected_ - selected_ % room;
  for (size_t i = first; i < std::min(first + room, shown_.clients.size()); ++i) {
    const bool selected = i == selected_;
    std::string row = table.row(shown_.clients[i]);
    lines.push_back({selected ? observe::fit(row, width) : std::move(row),
                     selected ? Style::kSelected : Style::kPlain});
  }
  lines.resize(std::min(lines.size(), rows_end));
  while (lines.size() < rows_end) lines.emplace_back();
  lines.push_back(last_line());
  for (Line& line : lines) {
    if (line.text.size() > width) line.text = observe::fit(line.text, width);
  }
  return lines;
}

}  // namespace openmps::cli
