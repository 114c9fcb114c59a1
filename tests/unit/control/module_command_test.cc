// SPDX-License-Identifier: Apache-2.0
// The command line of MPS's interface v3: words, options, limits, and the forms of lists. What the
// verbs do: tests/e2e/namespace_scenarios.py.
#include "control/module_command.h"

#include <gtest/gtest.h>

namespace openmps::control {
namespace {

using wire::Limit;

std::string error_of(std::string_view line) {
  const ParsedModuleCommand parsed = parse_module_command(line);
  if (!parsed.answer) return "";
  EXPECT_EQ(parsed.answer->exit_status, 1) << line;
  return parsed.answer->text;
}

TEST(ModuleCommand, WordsAndOptionsAreThoseOfTheVerb) {
  const ParsedModuleCommand parsed =
      parse_module_command("namespace set pod --server=s client-priority=1");
  ASSERT_FALSE(parsed.answer.has_value()) << parsed.answer->text;
  EXPECT_EQ(parsed.command.verb->module, "namespace");
  EXPECT_EQ(parsed.command.word(0), "pod");
  EXPECT_EQ(parsed.command.word(1), "");
  EXPECT_EQ(parsed.command.option("server"), "s");
  EXPECT_EQ(parsed.command.option("client-priority"), "1") << "dashes may be left out";
  EXPECT_EQ(parsed.command.option("sm-count"), std::nullopt);
  EXPECT_TRUE(parse_module_command("server delete s --force").command.has("force"));

  EXPECT_TRUE(is_module_command("  server"));
  EXPECT_FALSE(is_module_command("get_server_list"));
  EXPECT_FALSE(is_module_command(""));
}

TEST(ModuleCommand, EveryMistakeIsNamed) {
  EXPECT_EQ(error_of("server fly"),
            "Error: module 'server' has no verb 'fly'; see 'server help'\n");
  EXPECT_EQ(error_of("namespace get a b"), "Error: missing <field>; see 'namespace get help'\n");
  EXPECT_EQ(error_of("server delete a b"),
            "Error: unexpected argument 'b'; see 'server delete help'\n");
  EXPECT_EQ(error_of("server list --x=1"),
            "Error: unknown option '--x=1'; see 'server list help'\n");
  EXPECT_EQ(error_of("server delete s --force=1"),
            "Error: option '--force' takes no value; see 'server delete help'\n");
  EXPECT_EQ(error_of("server list --format"),
            "Error: option '--format' takes a value: --format=<format>; see 'server list help'\n");
  EXPECT_EQ(error_of("server list --format=csv format=csv"),
            "Error: option '--format' twice; see 'server list help'\n");
  EXPECT_EQ(error_of("server list --\x1b"),
            "Error: unknown option '--?'; see 'server list help'\n");
}

TEST(ModuleCommand, HelpIsThereForEachModuleAndVerb) {
  EXPECT_EQ(parse_module_command("client help").answer->exit_status, 0);
  const std::string text = parse_module_command("sm-partition create help").answer->text;
  for (const char* option : {"--server=", "--device=", "--chunks=", "--include-remainder=",
                             "--shareable[=<bool>]", "--max-chunks="}) {
    EXPECT_NE(text.find(option), std::string::npos) << text;
  }
  for (const std::string module : {"server", "namespace", "client", "device", "sm-partition",
                                   "feature", "memacct", "context-share"}) {
    EXPECT_NE(help_of_modules().find("  " + module + " "), std::string::npos) << module;
    EXPECT_EQ(parse_module_command(module + " help").answer->exit_status, 0) << module;
  }
  EXPECT_NE(manual_of_modules().find(".B sm\\-partition create <name> [\\-\\-server=<name>]"),
            std::string::npos);
}

TEST(ModuleCommand, ASwitchMayStandAlone) {
  const auto value = [](const std::string& line) {
    const ParsedModuleCommand parsed = parse_module_command("sm-partition create p " + line);
    EXPECT_FALSE(parsed.answer.has_value()) << line;
    return parsed.command.option("shareable");
  };
  EXPECT_EQ(value("--shareable"), "true");
  EXPECT_EQ(value("--shareable=false"), "false");
  EXPECT_EQ(value("--chunks=2"), std::nullopt);
  EXPECT_TRUE(parse_module_command("sm-partition create p --max-chunks").answer.has_value());
}

Result<LimitChanges> limits_of(const std::string& options) {
  const ParsedModuleCommand parsed = parse_module_command("server set s " + options);
  EXPECT_FALSE(parsed.answer.has_value()) << options;
  return limits_of_options(parsed.command);
}

TEST(ModuleCommand, LimitsAreReadAndLifted) {
  using Changes = LimitChanges;
  EXPECT_EQ(*limits_of("--active-thread-percentage=12.5 --client-priority=1"),
            (Changes{{{Limit::kPercentage}, 12.5}, {{Limit::kPriority}, 1}}));
  EXPECT_EQ(*limits_of("--client-priority=0"), (Changes{{{Limit::kPriority}, 0}}));
  EXPECT_EQ(*limits_of("--sm-count=32 --work-time-limit=5"),
            (Changes{{{Limit::kSmCount, kEveryDevice}, 32}, {{Limit::kWorkTime}, 5}}));
  EXPECT_EQ(*limits_of("--sm-count=0=16,GPU-a=8"),
            (Changes{{{Limit::kSmCount, "0"}, 16}, {{Limit::kSmCount, "GPU-a"}, 8}}));
  for (const char* lifted : {"--sm-count=none", "--sm-count=0"}) {
    EXPECT_EQ(*limits_of(lifted), (Changes{{{Limit::kSmCount, kEveryDevice}, std::nullopt}}));
  }
  EXPECT_EQ(*limits_of("--pinned-memory-limit=4G"),
            (Changes{{{Limit::kMemory, kEveryDevice}, 4. * (1ull << 30)}}));
  EXPECT_EQ(*limits_of("--pinned-memory-limit=0=1024K,GPU-a=2M"),
            (Changes{{{Limit::kMemory, "0"}, 1 << 20}, {{Limit::kMemory, "GPU-a"}, 2 << 20}}));
  EXPECT_EQ(*limits_of("--guaranteed-memory=4G --on-pressure=wait"),
            (Changes{{{Limit::kGuaranteedMemory, kEveryDevice}, 4. * (1ull << 30)},
                     {{Limit::kOnPressure}, 2}}));
  EXPECT_EQ(*limits_of("--guaranteed-memory=0=1024K,GPU-a=0G"),
            (Changes{{{Limit::kGuaranteedMemory, "0"}, 1 << 20},
                     {{Limit::kGuaranteedMemory, "GPU-a"}, std::nullopt}}));
  EXPECT_EQ(*limits_of("--guaranteed-memory=none --on-pressure=none"),
            (Changes{{{Limit::kGuaranteedMemory, kEveryDevice}, std::nullopt},
                     {{Limit::kOnPressure}, std::nullopt}}));
  for (const char* lifted : {"--active-thread-percentage=none", "--active-thread-percentage=0"}) {
    EXPECT_EQ(*limits_of(lifted), (Changes{{{Limit::kPercentage}, std::nullopt}})) << lifted;
  }
  EXPECT_EQ(*limits_of("--pinned-memory-limit=none"),
            (Changes{{{Limit::kMemory, kEveryDevice}, std::nullopt}}));
  for (const char* wrong :
       {"--active-thread-percentage=101", "--active-thread-percentage=-1", "--client-priority=2",
        "--pinned-memory-limit=4", "--pinned-memory-limit=", "--pinned-memory-limit=x=4G",
        "--pinned-memory-limit=0=4G,1", "--sm-count=2000", "--sm-count=", "--sm-count=x=8",
        "--sm-count=0=8,1", "--sm-count=0=2000", "--work-time-limit=0.01", "--guaranteed-memory=4",
        "--guaranteed-memory=x", "--on-pressure=", "--on-pressure=0", "--on-pressure=OOM"}) {
    EXPECT_FALSE(limits_of(wrong).ok()) << wrong;
  }
}

TEST(ModuleCommand, ChangesReplaceLimits) {
  const Limits before{{{Limit::kPercentage}, 50},
                      {{Limit::kMemory, "0"}, 8},
                      {{Limit::kSmCount, "0"}, 4},
                      {{Limit::kGuaranteedMemory, kEveryDevice}, 2}};
  EXPECT_EQ(changed(before, {}), before);
  EXPECT_EQ(changed(before, {{{Limit::kGuaranteedMemory, "1"}, 3}, {{Limit::kPercentage}, 20}}),
            (Limits{{{Limit::kPercentage}, 20},
                    {{Limit::kMemory, "0"}, 8},
                    {{Limit::kGuaranteedMemory, "1"}, 3}}));
  EXPECT_EQ(changed(before, {{{Limit::kMemory, kEveryDevice}, std::nullopt},
                             {{Limit::kOnPressure}, 2},
                             {{Limit::kSmCount, "0"}, std::nullopt}}),
            (Limits{{{Limit::kPercentage}, 50},
                    {{Limit::kGuaranteedMemory, kEveryDevice}, 2},
                    {{Limit::kOnPressure}, 2}}));
}

TEST(ModuleCommand, QualityIsAnOptionOfANamespace) {
  const auto quality_of = [](const std::string& option) {
    const ParsedModuleCommand parsed = parse_module_command("namespace set n --server=s " + option);
    EXPECT_FALSE(parsed.answer.has_value()) << option;
    return quality_of_options(parsed.command);
  };
  EXPECT_EQ(*quality_of("--quality=latency"), wire::Quality::kLatency);
  EXPECT_EQ(*quality_of("--weight=2"), std::nullopt);
  EXPECT_EQ(quality_of("--quality=fast").status().message(),
            "--quality=fast: expected latency, normal or best-effort");
}

TEST(ModuleCommand, LimitsOfANamespaceAsListsShowThem) {
  GroupRule rule{.name = "n"};
  EXPECT_EQ(limit_text(rule, Limit::kMemory), "-");
  EXPECT_EQ(limit_text(rule, Limit::kPercentage), "-");
  rule.limits[{Limit::kPercentage}] = 30;
  rule.limits[{Limit::kPriority}] = 0;
  rule.limits[{Limit::kMemory, kEveryDevice}] = 20. * (1ull << 30);
  EXPECT_EQ(limit_text(rule, Limit::kMemory), "20G");
  EXPECT_EQ(limit_text(rule, Limit::kPercentage), "30.00");
  EXPECT_EQ(limit_text(rule, Limit::kPriority), "0");
  EXPECT_EQ(limit_text(rule, Limit::kGuaranteedMemory), "-");
  EXPECT_EQ(limit_text(rule, Limit::kOnPressure), "-");
  rule.limits[{Limit::kGuaranteedMemory, "1"}] = 1ull << 30;
  EXPECT_EQ(limit_text(rule, Limit::kGuaranteedMemory), "1=1G");
  rule.limits[{Limit::kGuaranteedMemory, kEveryDevice}] = 2. * (1ull << 30);
  rule.limits[{Limit::kOnPressure}] = 2;
  rule.limits[{Limit::kBorrow}] = 1;
  EXPECT_EQ(limit_text(rule, Limit::kGuaranteedMemory), "*=2G,1=1G");
  EXPECT_EQ(limit_text(rule, Limit::kOnPressure), "wait");
  EXPECT_EQ(limit_text(rule, Limit::kBorrow), "true");
  Limits again;
  ASSERT_TRUE(read_memory_limits("*=2G,1=1G", Limit::kGuaranteedMemory, &again));
  EXPECT_EQ(memory_limits_text(again, Limit::kGuaranteedMemory), "*=2G,1=1G");
}

TEST(Listing, TableCsvAndJson) {
  const Listing listing{{"pid", "server-status"}, {{"3165259", "a,\"b\""}, {"1", "Ready"}}};
  EXPECT_EQ(*format_listing(listing, "table"),
            "PID      \"SERVER STATUS\"\n3165259  a,\"b\"\n1        Ready\n");
  EXPECT_EQ(*format_listing(listing, ""), *format_listing(listing, "table"));
  EXPECT_EQ(*format_listing(listing, "csv"),
            "PID,SERVER STATUS\n3165259,\"a,\"\"b\"\"\"\n1,Ready\n");
  EXPECT_EQ(*format_listing(listing, "csv,noheader"), "3165259,\"a,\"\"b\"\"\"\n1,Ready\n");
  EXPECT_EQ(*format_listing(listing, "table,noheader"), "3165259  a,\"b\"\n1        Ready\n");
  EXPECT_NE(format_listing(listing, "json")->find("\"server-status\": \"a,\\\"b\\\"\""),
            std::string::npos);
  for (const char* wrong : {"xml", "json,noheader", "csv,header", ",noheader,noheader"}) {
    EXPECT_FALSE(format_listing(listing, wrong).ok()) << wrong;
  }
}

TEST(Listing, SomeColumnsAreInJsonOrAskedForByName) {
  const Listing listing{{"name", "shareable"}, {{"p", "true"}, {"q", "false"}}, 1};
  EXPECT_EQ(*format_listing(listing, "csv"), "NAME\np\nq\n");
  EXPECT_EQ(*format_listing(listing, "table"), "NAME\np\nq\n");
  EXPECT_NE(format_listing(listing, "json")->find("\"shareable\": \"true\""), std::string::npos);
  EXPECT_EQ(*format_listing(*with_columns(listing, "shareable,name"), "csv"),
            "SHAREABLE,NAME\ntrue,p\nfalse,q\n");
  EXPECT_EQ(with_columns(listing, "colour").status().message(),
            "unknown field 'colour': name, shareable");
}

}  // namespace
}  // namespace openmps::control
