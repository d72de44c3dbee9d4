// The interactive chat, on a pseudo-terminal. The model's weights are random: its answers are noise, but they end.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/e2e/process.hpp"

namespace adze::e2e {
namespace {

const std::string kModel = std::string(ADZE_TEST_DATA) + "/oracles/llama-gqa-rope3/llama-gqa-rope3-Q8_0.gguf";
constexpr std::string_view kPrompt = ">>> ";
constexpr std::string_view kCtrlC = "\x03";
constexpr std::string_view kCtrlD = "\x04";

class Chat : public ::testing::Test {
 protected:
  nlohmann::json saved(const std::string& name) {
    std::ifstream file(box_.file(name));
    return nlohmann::json::parse(file, nullptr, false);
  }
  Sandbox box_;
  const std::string template_ =
      box_.write("chat.jinja", "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}");
};

TEST_F(Chat, TurnsCommandsAndQuit) {
  TerminalSession chat(
      box_, {"run", kModel, "--threads", "1", "--chat-template", template_, "-n", "6", "--temperature", "0"});
  ASSERT_TRUE(chat.wait_for(kPrompt)) << chat.shown();
  chat.type("/help\r");
  ASSERT_TRUE(chat.wait_for("/quit")) << chat.shown();
  ASSERT_TRUE(chat.wait_for(kPrompt));
  chat.type("/system Be brief.\r");
  ASSERT_TRUE(chat.wait_for(kPrompt));
  chat.type("hello\r");
  ASSERT_TRUE(chat.wait_for(kPrompt)) << chat.shown();
  chat.type("and again\r");
  ASSERT_TRUE(chat.wait_for(kPrompt)) << chat.shown();
  chat.type("/save " + box_.file("chat.json") + "\r");
  ASSERT_TRUE(chat.wait_for("saved 4 messages")) << chat.shown();
  chat.type("/nonsense\r");
  ASSERT_TRUE(chat.wait_for("there is no command /nonsense")) << chat.shown();
  chat.type("/set top_p 2\r");
  ASSERT_TRUE(chat.wait_for("is not a value for top_p")) << chat.shown();
  chat.type("/set top_p 0.5\r/set\r");
  ASSERT_TRUE(chat.wait_for("0.5")) << chat.shown();
  chat.type("/quit\r");
  EXPECT_EQ(chat.wait_exit(), 0);
  const nlohmann::json file = saved("chat.json");
  EXPECT_EQ(file["system"], "Be brief.");
  ASSERT_EQ(file["messages"].size(), 4u);
  EXPECT_EQ(file["messages"][0]["content"], "hello");
  EXPECT_EQ(file["messages"][2]["content"], "and again");
}

TEST_F(Chat, CtrlCStopsTheAnswerNotTheProgram) {
  // The slowest kernels, so that this small model does not fill its context before the key is pressed.
  TerminalSession chat(
      box_, {"run", kModel, "--chat-template", template_, "--ignore-eos", "--cpu", "scalar", "--threads", "1"});
  ASSERT_TRUE(chat.wait_for(kPrompt));
  chat.type("go on for ever\r");
  ASSERT_TRUE(chat.wait_for("\n"));
  // More than the line again, which the editor echoes when the terminal had done so before it took over: the answer.
  ASSERT_TRUE(chat.wait_for_more(60));
  chat.type(kCtrlC);
  ASSERT_TRUE(chat.wait_for("(stopped)")) << chat.shown();
  ASSERT_TRUE(chat.wait_for(kPrompt)) << chat.shown();
  chat.type("half a line");
  chat.type(kCtrlC);
  ASSERT_TRUE(chat.wait_for(kPrompt)) << chat.shown();
  chat.type(kCtrlD);
  EXPECT_EQ(chat.wait_exit(), 0) << chat.shown();
}

TEST_F(Chat, BlocksLoadAndClear) {
  box_.write("old.json", R"({"system": "", "messages": [{"role": "user", "content": "a"},
                                                         {"role": "assistant", "content": "b"}]})");
  box_.write("bad.json", "[]");
  TerminalSession chat(
      box_, {"run", kModel, "--threads", "1", "--chat-template", template_, "-n", "3", "--temperature", "0"});
  ASSERT_TRUE(chat.wait_for(kPrompt));
  chat.type("/load " + box_.file("bad.json") + "\r");
  ASSERT_TRUE(chat.wait_for("is not a saved chat")) << chat.shown();
  chat.type("/load " + box_.file("old.json") + "\r");
  ASSERT_TRUE(chat.wait_for("loaded 2 messages")) << chat.shown();
  ASSERT_TRUE(chat.wait_for(kPrompt));
  chat.type("\"\"\"one\r");
  ASSERT_TRUE(chat.wait_for("... ")) << chat.shown();
  chat.type("two\"\"\"\r");
  ASSERT_TRUE(chat.wait_for(kPrompt)) << chat.shown();
  chat.type("/save " + box_.file("new.json") + "\r");
  ASSERT_TRUE(chat.wait_for("saved 4 messages")) << chat.shown();
  chat.type("/clear\r/save " + box_.file("empty.json") + "\r");
  ASSERT_TRUE(chat.wait_for("saved 0 messages")) << chat.shown();
  chat.type("/quit\r");
  EXPECT_EQ(chat.wait_exit(), 0);
  EXPECT_EQ(saved("new.json")["messages"][2]["content"], "one\ntwo");
}

}  // namespace
}  // namespace adze::e2e
