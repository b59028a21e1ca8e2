// llm-runner as a user meets it: streams, exit codes, JSON.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tools/process.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using testing::HasSubstr;
using testing::Not;

const fs::path kFixtures = fs::path(COREAI_FIXTURE_DIR) / "tiny_llm";

using testing_support::slurp;
using Result = testing_support::ProcessResult;

// `$RUNNER` is the program.
class LlmRunner : public testing_support::ProcessTest {
 protected:
  void SetUp() override {
    ProcessTest::SetUp();
    ::setenv("RUNNER", LLM_RUNNER, 1);
  }
  Result run(const std::string& arguments, const std::string& variant = "q4", int threads = 1) {
    return shell("$RUNNER --model '" + (kFixtures / variant).string() + "' --threads " + std::to_string(threads) + " " +
                 arguments);
  }
};

TEST_F(LlmRunner, TheAnswerIsAloneOnStdout) {
  const Result result = run("--prompt 'What is the capital of France?' --max-tokens 24");
  EXPECT_EQ(result.code, 0) << result.err;
  const Json golden = Json::parse(slurp(kFixtures / "golden.json")).at("cases")[0];
  EXPECT_EQ(result.out, golden.at("text").get<std::string>() + "\n");
  EXPECT_THAT(result.err, HasSubstr("faithful"));
  EXPECT_THAT(result.err, HasSubstr("max_tokens"));
  EXPECT_THAT(result.err, HasSubstr("tokens/s"));
}

TEST_F(LlmRunner, JsonHasTheDocumentedMembers) {
  const Result result = run("--prompt 'What is the capital of France?' --max-tokens 24 --json");
  EXPECT_EQ(result.code, 0) << result.err;
  const Json json = Json::parse(result.out);
  const Json golden = Json::parse(slurp(kFixtures / "golden.json")).at("cases")[0];
  EXPECT_EQ(json.at("text"), golden.at("text"));
  EXPECT_EQ(json.at("prompt_ids"), golden.at("prompt_ids"));
  EXPECT_EQ(json.at("token_ids"), golden.at("greedy_ids"));
  EXPECT_EQ(json.at("stop_reason"), "max_tokens");
  EXPECT_EQ(json.at("prompt_tokens"), golden.at("prompt_ids").size());
  EXPECT_EQ(json.at("generated_tokens"), 24);
  for (const char* key : {"load_ms", "ttft_ms", "prefill_tokens_per_second", "decode_tokens_per_second"})
    EXPECT_GT(json.at(key).get<double>(), 0.0) << key;
  EXPECT_GT(json.at("peak_rss_bytes").get<std::int64_t>(), 1 << 20);
}

TEST_F(LlmRunner, PromptsComeFromFilesStdinAndIds) {
  std::ofstream(dir_ / "prompt") << "ab c";
  const Json text = Json::parse(run("--raw --prompt 'ab c' --max-tokens 3 --json").out);
  const Json file =
      Json::parse(run("--raw --prompt-file '" + (dir_ / "prompt").string() + "' --max-tokens 3 --json").out);
  const Json pipe = Json::parse(shell("printf 'ab c' | $RUNNER --model '" + (kFixtures / "q4").string() +
                                      "' --raw --prompt-file - --max-tokens 3 --json")
                                    .out);
  std::string ids;
  for (const auto& id : text.at("prompt_ids")) ids += (ids.empty() ? "" : ",") + id.dump();
  const Json by_id = Json::parse(run("--prompt-ids " + ids + " --max-tokens 3 --json").out);
  for (const Json& other : {file, pipe, by_id}) {
    EXPECT_EQ(other.at("prompt_ids"), text.at("prompt_ids"));
    EXPECT_EQ(other.at("token_ids"), text.at("token_ids"));
  }
}

TEST_F(LlmRunner, TheSeedFixesASampledAnswer) {
  const std::string sampled =
      "--prompt-ids 1,2,3 --max-tokens 12 --temperature 1.5 --top-k 50 --top-p 0.95 --min-p 0.01 --json";
  const auto ids = [&](const std::string& more, int threads = 1) {
    return Json::parse(run(sampled + more, "q4", threads).out).at("token_ids");
  };
  EXPECT_EQ(ids(" --seed 5"), ids(" --seed 5", 2));
  EXPECT_NE(ids(" --seed 5"), ids(" --seed 6"));
  const Json drawn = Json::parse(run(sampled).out);
  EXPECT_EQ(ids(" --seed " + drawn.at("seed").dump()), drawn.at("token_ids"));
}

TEST_F(LlmRunner, FindsABundleByItsName) {
  const std::string arguments = " --prompt-ids 1,2,3 --max-tokens 4 --json";
  const Result by_name =
      shell("COREAI_MODEL_PATH=/nowhere:'" + kFixtures.string() + "' $RUNNER --model q4" + arguments);
  EXPECT_EQ(by_name.code, 0) << by_name.err;
  EXPECT_EQ(Json::parse(by_name.out).at("token_ids"), Json::parse(run(arguments).out).at("token_ids"));
}

TEST_F(LlmRunner, WrongUsageGives64) {
  for (const char* arguments : {"", "--prompt a --prompt-ids 1", "--prompt a --temperature -1", "--prompt a --top-p 2",
                                "--prompt a --precision best", "--prompt a --max-tokens -1", "--prompt a --nonsense",
                                "--prompt a --raw --system b", "--prompt a --threads x", "--prompt-ids 1,x"}) {
    const Result result = run(arguments);
    EXPECT_EQ(result.code, 64) << arguments;
    EXPECT_EQ(result.out, "") << arguments;
    EXPECT_THAT(result.err, HasSubstr("error: ")) << arguments;
  }
  EXPECT_EQ(shell("$RUNNER --prompt a").code, 64);
  EXPECT_THAT(run("--prompt a --nonsense").err, HasSubstr("there is no option '--nonsense'"));
  EXPECT_THAT(run("--prompt a --max-tokens many").err, HasSubstr("'many' is no whole number of 0 or more"));
}

TEST_F(LlmRunner, BadInputGives1AndSaysWhatToDo) {
  const auto expect = [](const Result& result, const std::string& part) {
    EXPECT_EQ(result.code, 1);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr(part));
  };
  expect(shell("$RUNNER --model /nowhere --prompt a"), "does not exist");
  expect(shell("COREAI_MODEL_PATH=/a:/b $RUNNER --model nothing --prompt a"),
         "model \"nothing\" not found; looked for: /a/nothing, /b/nothing");
  expect(shell("COREAI_MODEL_PATH=/a:/b $RUNNER --model-path /c:/d --model nothing --prompt a"),
         "model \"nothing\" not found; looked for: /c/nothing, /d/nothing");
  expect(shell("$RUNNER --model '" + (kFixtures / "q4/tiny-llama-random-q4.aimodel").string() + "' --prompt a"),
         "is a model asset, not a model bundle");
  expect(run("--prompt-ids 1,512"), "outside the vocabulary of 512");
  expect(run("--prompt-ids ,"), "no token");
  expect(run("--prompt-file /nowhere"), "does not exist");
  std::ofstream(dir_ / "latin1") << "caf\xe9";
  expect(run("--prompt-file latin1"), "latin1: the prompt is not UTF-8 text: byte 0xE9 at offset 3");
  std::ofstream(dir_ / "long") << std::string(5000, 'q');
  expect(run("--raw --prompt-file '" + (dir_ / "long").string() + "'"), "room for 512");
}

TEST_F(LlmRunner, LogitsOfEveryPromptPosition) {
  const fs::path file = dir_ / "logits.npy";
  const Result result = run("--prompt-ids 1,2,3,4,5 --logits '" + file.string() + "' --json");
  EXPECT_EQ(result.code, 0) << result.err;
  const std::string bytes = slurp(file);
  EXPECT_THAT(bytes.substr(0, 128), HasSubstr("'descr': '<f4', 'fortran_order': False, 'shape': (5, 512)"));
  EXPECT_EQ(bytes.size(), 128u + 5 * 512 * 4);
  EXPECT_EQ(run("--prompt-ids 1 --logits /nowhere/x.npy").code, 1);
}

TEST_F(LlmRunner, InterruptKeepsWhatWasGenerated) {
  // The pipe is almost full, so the program waits in the middle of its answer until it has been told to stop.
  int out[2];
  ASSERT_EQ(::pipe(out), 0);
  const int capacity = ::fcntl(out[1], F_SETPIPE_SZ, 4096);
  ASSERT_GE(capacity, 4096);
  const std::string filler(static_cast<std::size_t>(capacity) - 64, '.');
  ASSERT_EQ(::write(out[1], filler.data(), filler.size()), std::ssize(filler));
  const std::string model = kFixtures / "f32", errors = dir_ / "errors";
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::dup2(out[1], STDOUT_FILENO);
    ::dup2(::open(errors.c_str(), O_WRONLY | O_CREAT, 0644), STDERR_FILENO);
    ::close(out[0]);
    ::execl(LLM_RUNNER, LLM_RUNNER, "--model", model.c_str(), "--prompt-ids", "1,2,3", "--max-tokens", "100000",
            nullptr);
    ::_exit(127);
  }
  ::close(out[1]);
  int waiting = 0;
  while (::ioctl(out[0], FIONREAD, &waiting) == 0 && waiting <= std::ssize(filler) &&
         ::waitpid(child, nullptr, WNOHANG) == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ::kill(child, SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  std::string text, buffer(1 << 16, ' ');
  for (ssize_t n = 0; (n = ::read(out[0], buffer.data(), buffer.size())) > 0;)
    text.append(buffer, 0, static_cast<std::size_t>(n));
  ::close(out[0]);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_GT(text.size(), filler.size());
  EXPECT_EQ(text.back(), '\n');
  EXPECT_THAT(slurp(errors), HasSubstr("cancelled"));
}

TEST_F(LlmRunner, AClosedPipeEndsItQuietly) {
  const Result result =
      shell("$RUNNER --model '" + (kFixtures / "q4").string() + "' --prompt-ids 1,2,3 --max-tokens 400 2>'" +
            (dir_ / "quiet").string() + "' | head -c 1");
  EXPECT_EQ(result.out.size(), 1u);
  EXPECT_THAT(slurp(dir_ / "quiet"), Not(HasSubstr("error")));
}

TEST_F(LlmRunner, AFullDiskIsToldOnce) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  const Result result =
      shell("$RUNNER --model '" + (kFixtures / "q4").string() + "' --prompt-ids 1,2,3 --max-tokens 4 > /dev/full");
  EXPECT_EQ(result.code, 1);
  const std::size_t first = result.err.find("error: ");
  ASSERT_NE(first, std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("error: ", first + 1), std::string::npos) << result.err;
}

TEST_F(LlmRunner, HelpAndVersion) {
  EXPECT_THAT(shell("$RUNNER --version").out, HasSubstr("llm-runner"));
  const Result help = shell("$RUNNER --help");
  EXPECT_EQ(help.code, 0);
  for (const char* flag : {"--model", "--threads", "--precision", "--prompt", "--prompt-file", "--max-tokens",
                           "--temperature", "--top-k", "--top-p", "--min-p", "--seed", "--raw", "--json"})
    EXPECT_THAT(help.out, HasSubstr(flag));
}

}  // namespace
}  // namespace coreai
