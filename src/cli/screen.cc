// SPDX-License-Identifier: Apache-2.0
// See screen.h. The only file that includes ncurses.
#include "cli/screen.h"

#include <ncurses.h>

#include <clocale>
#include <cstdio>
#include <string>
#include <utility>

#include "base/environment.h"

namespace openmps::cli {
namespace {

// Escape is a key here, and also begins the codes of other keys: how many milliseconds ncurses
// waits for the rest of such a code.
constexpr int kEscapeMs = 25;
constexpr int kEscape = 27;
constexpr int kDelete = 127;

chtype attribute_of(Style style) {
  switch (style) {
    case Style::kPlain: return A_NORMAL;
    case Style::kTitle:
    case Style::kPrompt: return A_BOLD;
    case Style::kHeading: return A_UNDERLINE;
    case Style::kSelected: return A_REVERSE;
  }
  return A_NORMAL;
}

std::optional<Key> key_of(int code) {
  switch (code) {
    case KEY_UP: return Key{Key::Kind::kUp};
    case KEY_DOWN: return Key{Key::Kind::kDown};
    case KEY_PPAGE: return Key{Key::Kind::kPageUp};
    case KEY_NPAGE: return Key{Key::Kind::kPageDown};
    case KEY_ENTER:
    case '\n':
    case '\r': return Key{Key::Kind::kEnter};
    case KEY_BACKSPACE:
    case kDelete:
    case '\b': return Key{Key::Kind::kBackspace};
    case kEscape: return Key{Key::Kind::kEscape};
    default: break;
  }
  if (code < ' ' || code > '~') return std::nullopt;
  return Key{Key::Kind::kLetter, static_cast<char>(code)};
}

}  // namespace

Result<Screen> Screen::take() {
  setlocale(LC_CTYPE, "");  // NOLINT(concurrency-mt-unsafe): before there is another thread
  screen* terminal = newterm(nullptr, stdout, stdin);
  if (terminal == nullptr) {
    return Status(CUDA_ERROR_NOT_SUPPORTED, "nothing is known of a terminal of the kind '" +
                                                environment_or("TERM", "") + "' (TERM)");
  }
  set_term(terminal);
  cbreak();
  noecho();
  keypad(stdscr, TRUE);
  nodelay(stdscr, TRUE);
  set_escdelay(kEscapeMs);
  curs_set(0);
  return Screen(terminal);
}

Screen::Screen(Screen&& other) noexcept : terminal_(std::exchange(other.terminal_, nullptr)) {}

Screen::~Screen() {
  if (terminal_ == nullptr) return;
  endwin();
  delscreen(terminal_);
}

size_t Screen::width() const { return static_cast<size_t>(getmaxx(stdscr)); }
size_t Screen::height() const { return static_cast<size_t>(getmaxy(stdscr)); }

void Screen::draw(const std::vector<Line>& lines) {
  erase();
  int row = 0;
  for (const Line& line : lines) {
    const auto attribute = static_cast<int>(attribute_of(line.style));
    attron(attribute);
    mvaddstr(row++, 0, line.text.c_str());
    attroff(attribute);
  }
  refresh();
}

std::optional<Key> Screen::key() {
  for (int code = getch(); code != ERR; code = getch()) {
    if (const std::optional<Key> key = key_of(code)) return key;
  }
  return std::nullopt;
}

}  // namespace openmps::cli
