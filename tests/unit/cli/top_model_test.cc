// SPDX-License-Identifier: Apache-2.0
// The effect of keys on the lines of `openmps top`, without a terminal.
#include "cli/top_model.h"

#include <gtest/gtest.h>

#include "some_view.h"

namespace openmps::cli {
namespace {

using Action = TopModel::Action;
using Kind = Key::Kind;

class TopModelTest : public ::testing::Test {
 protected:
  TopModelTest() {
    for (uint64_t pid = 1; pid <= 5; ++pid) {
      clients_.push_back(observe::some_client(pid, "prog" + std::to_string(pid)));
    }
    look();
  }
  // Each client keeps as many SMs busy as its PID.
  void look() {
    const observe::Snapshot before = observe::some_snapshot(at_ns_, clients_);
    at_ns_ += observe::kSecond;
    for (observe::Client& client : clients_) {
      client.use->age_ns += observe::kSecond;
      observe::run(&client, observe::kSecond, client.pid);
    }
    model_.show(observe::compare(before, observe::some_snapshot(at_ns_, clients_)));
  }
  Action type(const std::string& keys) {
    Action action = Action::kNone;
    for (const char letter : keys) action = model_.on_key({Kind::kLetter, letter});
    return action;
  }
  std::vector<Line> lines(size_t height = 24) { return model_.draw(100, height); }
  std::string last() { return lines().back().text; }
  // The commands in the order in which they are shown; the selected one has a * in front.
  std::string list(size_t height = 24) {
    std::string commands;
    for (const Line& line : lines(height)) {
      const size_t at = line.text.find(" prog");
      const bool is_client = line.style == Style::kPlain || line.style == Style::kSelected;
      if (!is_client || at == std::string::npos || line.text.starts_with("GPU")) continue;
      if (!commands.empty()) commands += ' ';
      if (line.style == Style::kSelected) commands += '*';
      commands += line.text.substr(at + 5, 1);
    }
    return commands;
  }

  uint64_t at_ns_ = observe::kSecond;
  std::vector<observe::Client> clients_;
  TopModel model_{1, {}, ""};
};

TEST_F(TopModelTest, ShowsTheBusiestFirst) {
  EXPECT_EQ(list(), "*5 4 3 2 1");
  EXPECT_EQ(lines()[0].text, "openmps top, each 1.0 s, 5 programs, by sm%");
  EXPECT_EQ(lines()[1].text.substr(0, 43), "GPU 0  SM time  15% (15.0 of 100 SMs)  kern");
  EXPECT_EQ(lines()[2].style, Style::kHeading);
  EXPECT_EQ(last(), TopModel::kHelp);
  EXPECT_EQ(lines().size(), 24u);
}

TEST_F(TopModelTest, KeysSort) {
  type("r");
  EXPECT_EQ(list(), "1 2 3 4 *5") << "the same client stays selected";
  type("<<<<<");
  EXPECT_EQ(lines()[0].text, "openmps top, each 1.0 s, 5 programs, by pid from below");
  EXPECT_EQ(list(), "1 2 3 4 *5");
  type("<");
  EXPECT_NE(lines()[0].text.find("by command from below"), std::string::npos);
  type(">>>>>>");
  EXPECT_NE(lines()[0].text.find("by sm%"), std::string::npos);
  EXPECT_EQ(list(), "*5 4 3 2 1");
}

TEST_F(TopModelTest, TheSelectionFollowsTheClient) {
  model_.on_key({Kind::kDown});
  EXPECT_EQ(list(), "5 *4 3 2 1");
  const observe::Snapshot before = observe::some_snapshot(0, clients_);
  for (observe::Client& client : clients_) client.use->age_ns += observe::kSecond;
  observe::run(&clients_[3], observe::kSecond, 90);
  model_.show(observe::compare(before, observe::some_snapshot(observe::kSecond, clients_)));
  EXPECT_EQ(list().substr(0, 2), "*4");
  std::erase_if(clients_, [](const observe::Client& client) { return client.pid == 4; });
  look();
  EXPECT_EQ(list(), "*5 3 2 1");
  for (int i = 0; i < 9; ++i) model_.on_key({Kind::kDown});
  EXPECT_EQ(list(), "5 3 2 *1");
  model_.on_key({Kind::kPageUp});
  EXPECT_EQ(list(), "*5 3 2 1");
}

TEST_F(TopModelTest, AFilterIsTypedAndRemoved) {
  type("/prog3");
  EXPECT_EQ(last(), "PID or part of the command: prog3_");
  EXPECT_EQ(list(), "*5 4 3 2 1") << "the filter is in force after Enter";
  model_.on_key({Kind::kEnter});
  EXPECT_EQ(list(), "*3");
  EXPECT_NE(lines()[0].text.find("5 programs, by sm%, 1 with \"prog3\""), std::string::npos);
  EXPECT_NE(lines()[1].text.find("(15.0 of"), std::string::npos)
      << "the device's line counts all clients";
  type("/");
  for (int i = 0; i < 20; ++i) model_.on_key({Kind::kBackspace});
  model_.on_key({Kind::kEscape});
  EXPECT_EQ(list(), "*3") << "Escape keeps the filter that is in force";
  type("/");
  for (int i = 0; i < 20; ++i) model_.on_key({Kind::kBackspace});
  model_.on_key({Kind::kEnter});
  EXPECT_EQ(list(), "5 4 *3 2 1");
  EXPECT_EQ(type("/q"), Action::kNone) << "q is a letter of the filter here";
}

TEST_F(TopModelTest, TerminatingNeedsAConfirmation) {
  model_.on_key({Kind::kDown});
  EXPECT_EQ(type("t"), Action::kNone);
  EXPECT_EQ(last(), "Terminate 4 prog4? y: yes, any other key: no");
  look();
  EXPECT_EQ(type("n"), Action::kNone);
  EXPECT_EQ(last(), TopModel::kHelp);
  type("t");
  EXPECT_EQ(model_.on_key({Kind::kEscape}), Action::kNone);
  type("t");
  EXPECT_EQ(type("y"), Action::kTerminate);
  EXPECT_EQ(model_.victim().name, "4");
  EXPECT_EQ(model_.victim().server, 17u);
  model_.note("4 prog4 has been terminated");
  EXPECT_EQ(last(), "4 prog4 has been terminated");
  model_.on_key({Kind::kUp});
  EXPECT_EQ(last(), TopModel::kHelp);
  EXPECT_EQ(type("y"), Action::kNone);
  model_.show({});
  EXPECT_EQ(type("ty"), Action::kNone) << "no client is left";
}

TEST_F(TopModelTest, NoDaemonAndNoClients) {
  model_.show_problem("The daemon has gone");
  EXPECT_EQ(lines()[1].text, "The daemon has gone");
  EXPECT_EQ(list(), "*5 4 3 2 1") << "the last snapshot is still shown";
  model_.show({});
  EXPECT_EQ(lines()[1].text, "No program uses OpenMPS");
  EXPECT_EQ(model_.on_key({Kind::kDown}), Action::kNone);
  EXPECT_EQ(type("q"), Action::kQuit);
}

TEST_F(TopModelTest, FitsAnySizeOfTerminal) {
  for (const std::string keys : {"", "/", "t"}) {
    type(keys);
    for (size_t height = 0; height < 12; ++height) {
      for (size_t width = 0; width < 120; ++width) {
        const std::vector<Line> drawn = model_.draw(width, height);
        EXPECT_EQ(drawn.size(), width == 0 ? 0 : height);
        for (const Line& line : drawn) EXPECT_LE(line.text.size(), width);
      }
    }
    model_.on_key({Kind::kEscape});
  }
  EXPECT_EQ(list(4), "*5 4 3") << "in a low terminal the lines above the list are left out";
  for (int i = 0; i < 3; ++i) model_.on_key({Kind::kDown});
  EXPECT_EQ(list(4), "*2 1") << "the list scrolls by pages";
}

}  // namespace
}  // namespace openmps::cli
