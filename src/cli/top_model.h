// SPDX-License-Identifier: Apache-2.0
// `openmps top` without the terminal: the effect of keys, and the lines of the screen. Used by
// top.cc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "observe/rates.h"

namespace openmps::cli {

struct Key {
  enum class Kind { kLetter, kUp, kDown, kPageUp, kPageDown, kEnter, kEscape, kBackspace };
  Kind kind = Kind::kLetter;
  char letter = 0;
};

enum class Style { kPlain, kTitle, kHeading, kSelected, kPrompt };
struct Line {
  std::string text;
  Style style = Style::kPlain;
};

class TopModel {
 public:
  TopModel(double delay_s, const observe::Order& order, std::string filter)
      : delay_s_(delay_s), order_(order), filter_(std::move(filter)) {}

  // Sets the latest rates. The selected client remains selected.
  void show(observe::View view);
  // Sets a message in place of rates: the daemon does not answer.
  void show_problem(std::string problem) { problem_ = std::move(problem); }
  // Shows a line until the next key.
  void note(std::string text) { note_ = std::move(text); }

  enum class Action { kNone, kQuit, kTerminate };
  Action on_key(Key key);
  // The client that kTerminate ends.
  struct Victim {
    uint64_t server = 0;
    std::string name;  // name_of()
    std::string program;
  };
  [[nodiscard]] const Victim& victim() const { return victim_; }

  // The lines of a screen of that width and height, at most.
  [[nodiscard]] std::vector<Line> draw(size_t width, size_t height) const;

  static constexpr std::string_view kHelp =
      "q quit  <> sort by  r reverse  / filter  t terminate  up/down select";

 private:
  enum class Mode { kList, kFilter, kConfirm };

  void select_again();
  Action on_list_key(Key key);
  void ask_to_terminate();
  void on_filter_key(Key key);
  void move_column(int by);
  void move_selection(ptrdiff_t by);
  [[nodiscard]] std::string title() const;
  [[nodiscard]] Line last_line() const;

  const double delay_s_;
  observe::Order order_;
  std::string filter_;
  std::string typed_;  // a filter that is being typed
  Mode mode_ = Mode::kList;
  observe::View all_;
  observe::View shown_;
  size_t selected_ = 0;  // among the clients that are shown
  Victim victim_;
  std::string problem_;
  std::string note_;
};

}  // namespace openmps::cli
