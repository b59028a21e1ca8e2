#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "common/tool.h"
#include "coreai/base/error.h"

namespace coreai::tools {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

struct Outcome {
  int code;
  std::string out, err;
};

Outcome run(std::vector<std::string> arguments, const std::function<int()>& body) {
  CLI::App app{"A program for tests", "some-tool"};
  CommonOptions options;
  add_common_options(app, options);
  app.add_subcommand("work", "does it")->add_flag("--hard");
  app.require_subcommand(1);
  arguments.insert(arguments.begin(), "some-tool");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int code = run_tool(app, static_cast<int>(argv.size()), argv.data(), body);
  return {code, testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
}

TEST(ToolCommon, HelpAndVersionGoToStdoutAndSucceed) {
  const auto never = []() -> int { throw InternalError("must not run"); };
  const Outcome help = run({"--help"}, never);
  EXPECT_EQ(help.code, kDone);
  EXPECT_THAT(help.out, HasSubstr("--threads"));
  EXPECT_EQ(help.err, "");
  const Outcome version = run({"--version"}, never);
  EXPECT_EQ(version.code, kDone);
  EXPECT_THAT(version.out, StartsWith("some-tool 0."));
  EXPECT_EQ(version.err, "");
}

TEST(ToolCommon, WrongUsageIs64AndNamesTheProblemOnStderr) {
  const auto body = [] { return static_cast<int>(kDone); };
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{},
                                                    {"work", "--no-such-option"},
                                                    {"play"},
                                                    {"work", "--threads", "many"},
                                                    {"work", "--threads", "-1"}}) {
    const Outcome outcome = run(arguments, body);
    EXPECT_EQ(outcome.code, kWrongUsage);
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, StartsWith("error: "));
    EXPECT_THAT(outcome.err, testing::AnyOf(HasSubstr("some-tool --help"), HasSubstr("some-tool work --help")));
  }
  EXPECT_THAT(run({"play"}, body).err, HasSubstr("there is no subcommand 'play'"));
  EXPECT_THAT(run({"--loud"}, body).err, HasSubstr("there is no option '--loud'"));
  EXPECT_THAT(run({"work", "--loud"}, body).err, HasSubstr("there is no option '--loud'"));
  const Outcome late = run({"work"}, []() -> int { throw CLI::ValidationError("--hard goes alone"); });
  EXPECT_EQ(late.code, kWrongUsage);
  EXPECT_THAT(late.err, StartsWith("error: --hard goes alone\n"));
}

TEST(ToolCommon, CommonOptionsMayStandBehindASubcommand) {
  EXPECT_EQ(run({"work", "--threads", "2"}, [] { return static_cast<int>(kDone); }).code, kDone);
  EXPECT_EQ(run({"--threads", "2", "work"}, [] { return 7; }).code, 7);
}

TEST(ToolCommon, ExceptionsBecomeOneErrorLineAndExitCodeOne) {
  const Outcome outcome =
      run({"work"}, []() -> int { throw NotFoundError("no function 'x'", "a.aimodel", "Use main"); });
  EXPECT_EQ(outcome.code, kFailed);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err, "error: a.aimodel: no function 'x'. Use main\n");
  EXPECT_EQ(run({"work"}, []() -> int { throw std::bad_alloc(); }).code, kFailed);
}

TEST(ToolCommon, WholeNumbersAreChecked) {
  const auto problem = [](std::string text) { return at_least(1)(text); };
  EXPECT_EQ(problem("1"), "");
  for (const char* text : {"0", "-3", "many", "2x", "", "99999999999999999999", "1.5"})
    EXPECT_THAT(problem(text), HasSubstr("no whole number of 1 or more")) << text;
}

TEST(ToolCommon, FormatsBytesAndCounts) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1000), "1.00 kB");
  EXPECT_EQ(format_bytes(12345), "12.3 kB");
  EXPECT_EQ(format_bytes(999'499), "999 kB");
  EXPECT_EQ(format_bytes(999'500), "1.00 MB");
  EXPECT_EQ(format_bytes(335'979'906), "336 MB");
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(12345678), "12,345,678");
}

TEST(ToolCommon, PrintableKeepsTextAndDefusesTheRest) {
  EXPECT_EQ(printable("Grüße 模型"), "Grüße 模型");
  EXPECT_EQ(printable("a\nclean: 0 errors\r\t"), "a\\nclean: 0 errors\\x0D\\x09");
  EXPECT_EQ(printable("\x1b[31mred\x07"), "\\x1B[31mred\\x07");
  EXPECT_EQ(printable("\xff"
                      "a\xe6\xa8"),
            "\xef\xbf\xbd"
            "a\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(printable("\xc2\x9b"), "\\xC2\\x9B");
  EXPECT_EQ(printable("\xed\xa0\x80").substr(0, 3), "\xef\xbf\xbd");
}

TEST(ToolCommon, TableAlignsColumns) {
  Table table({{"name", Table::Align::kLeft}, {"bytes", Table::Align::kRight}});
  EXPECT_EQ(table.to_string(), "");
  table.add_row({"größe", "7"});
  table.add_row({"x", "123456"});
  EXPECT_EQ(table.to_string(2), "  name    bytes\n  größe       7\n  x      123456\n");
  Table hostile({{"a\nb", Table::Align::kLeft}});
  hostile.add_row({"c\nd"});
  EXPECT_EQ(hostile.to_string(), "a\\nb\nc\\nd\n");
}

}  // namespace
}  // namespace coreai::tools
