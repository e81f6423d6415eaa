// Task files and their documents: what is read, and what is refused by name.
#include "worker/decode/scores/task.h"

#include <cmath>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "tests/worker/decode/scores/byte_ids.h"
#include "worker/decode/scores/eval_flags.h"
#include "worker/decode/scores/run_task.h"
#include "worker/decode/scores/score_report.h"
#include "worker/decode/scores/score_window.h"
#include "worker/decode/scores/task_documents.h"
#include "worker/decode/scores/task_text.h"

namespace mt::decode {
namespace {

using testing::HasSubstr;

std::string ErrorOf(const Status& status) {
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return base::Message(status);
}

std::string TaskError(const std::string& fields) {
  return ErrorOf(ParseTasks("tasks:\n- {" + fields + "}\n", "tasks.yaml", "").status());
}

TEST(TaskTest, ReadsAFile) {
  const auto tasks = ParseTasks(
      "tasks:\n"
      "- name: wiki\n"
      "  type: perplexity\n"
      "  rules: wikitext\n"
      "  file: wiki.test.raw\n"
      "  window: 512\n"
      "  stride: 256\n"
      "- {name: lambada, type: last_word, file: /data/lambada.jsonl, limit: 100}\n"
      "- {name: swag, type: multiple_choice, rules: llm.c, file: a/b.jsonl}\n",
      "tasks.yaml", "folder");
  ASSERT_TRUE(tasks.ok()) << tasks.status();
  ASSERT_EQ(tasks->size(), 3U);
  const Task& wiki = (*tasks)[0];
  EXPECT_EQ(wiki.file, "folder/wiki.test.raw");
  EXPECT_EQ(wiki.rules, TaskRules::kWikitext);
  EXPECT_EQ(wiki.window, 512);
  EXPECT_EQ(wiki.stride, 256);
  EXPECT_EQ((*tasks)[1].file, "/data/lambada.jsonl");
  EXPECT_EQ((*tasks)[1].key, "text");
  EXPECT_EQ((*tasks)[1].limit, 100);
  EXPECT_EQ((*tasks)[2].rules, TaskRules::kLlmC);
  EXPECT_EQ((*tasks)[2].type, TaskType::kMultipleChoice);
}

TEST(TaskTest, WhatIsWrongIsNamed) {
  const std::string good = "name: a, type: perplexity, file: f";
  EXPECT_THAT(TaskError("name: a, type: perplexity"), HasSubstr("task 1: file is missing"));
  EXPECT_THAT(TaskError("type: perplexity, file: f"), HasSubstr("name is missing"));
  EXPECT_THAT(TaskError("name: a, file: f"), HasSubstr("type is missing"));
  EXPECT_THAT(TaskError(good + ", strid: 4"), HasSubstr("strid is no field of a task, stride is"));
  EXPECT_THAT(TaskError(good + ", window: 0"), HasSubstr("window is \"0\""));
  EXPECT_THAT(TaskError(good + ", window: many"), HasSubstr("window is \"many\""));
  EXPECT_THAT(TaskError(good + ", limit: [1]"), HasSubstr("limit: one value"));
  EXPECT_THAT(TaskError(good + ", key: ''"), HasSubstr("key is empty"));
  EXPECT_THAT(TaskError(good + ", window: 4, stride: 5"), HasSubstr("stride 5 is beyond window 4"));
  EXPECT_THAT(TaskError(good + ", rules: hellaswag"),
              HasSubstr("not for a task of type perplexity"));
  EXPECT_THAT(TaskError(good + ", rules: lambada"),
              HasSubstr("plain, wikitext, hellaswag or llm.c"));
  EXPECT_THAT(TaskError("name: a, type: last_word, file: f, stride: 3"),
              HasSubstr("stride is for perplexity"));
  EXPECT_THAT(TaskError("name: a, type: multiple_choice, file: f, key: b"),
              HasSubstr("key is for texts"));
  EXPECT_THAT(TaskError("name: a, type: cloze, file: f"),
              HasSubstr("perplexity, last_word or multiple_choice"));
  for (const char* const text : {"", "tasks: []", "tasks: {}", "- name: a", "task:\n- name: a",
                                 "tasks:\n- a\n- b", "{", "tasks: &a []"})
    EXPECT_FALSE(ParseTasks(text, "tasks.yaml", "").ok()) << text;
  EXPECT_THAT(
      ErrorOf(
          ParseTasks("tasks:\n- {" + good + "}\n- {" + good + "}\n", "tasks.yaml", "").status()),
      HasSubstr("task 2: the name a is there already"));
  EXPECT_TRUE(absl::IsNotFound(ReadTasks("/nowhere/tasks.yaml").status()));
}

Task Of(TaskType type, TaskRules rules = TaskRules::kPlain, const std::string& key = "") {
  return {.name = "t", .type = type, .rules = rules, .file = "f.jsonl", .key = key};
}

std::string LineError(const Task& task, const std::string& text) {
  return ErrorOf(ParseDocuments(task, text).status());
}

TEST(TaskDocumentsTest, EveryLineMustBeRead) {
  const Task words = Of(TaskType::kLastWord, TaskRules::kPlain, "text");
  EXPECT_EQ(LineError(words, "{\"text\": \"a b\"}\n\n{\"text\": \"a b\"\n"),
            "f.jsonl: line 3: is no JSON");
  EXPECT_EQ(LineError(words, "[]"), "f.jsonl: line 1: is no JSON object");
  EXPECT_EQ(LineError(words, "{\"txt\": \"a b\"}"), "f.jsonl: line 1: has no \"text\"");
  EXPECT_EQ(LineError(words, "{\"text\": 7}"), "f.jsonl: line 1: \"text\" is no text");
  EXPECT_EQ(LineError(words, "{\"text\": \"a b \"}"),
            "f.jsonl: line 1: \"text\" has no word behind its last blank");
  EXPECT_EQ(LineError(words, "\n \n"), "f.jsonl has no document");
  EXPECT_EQ(LineError(words, ""), "f.jsonl has no document");
  EXPECT_EQ(LineError(words, "{\"text\": \"a \xFF\"}"), "f.jsonl: no UTF-8 at offset 12");
  EXPECT_THAT(LineError(words, "{\"text\": \"a \\ud800\"}"), HasSubstr("is no JSON"));
  EXPECT_THAT(LineError(words, std::string(100'000, '[')), HasSubstr("is no JSON"));

  const Task own = Of(TaskType::kMultipleChoice);
  const std::string begin = "{\"context\": \"c\", \"choices\": ";
  EXPECT_THAT(LineError(own, begin + "[\"a\"], \"label\": 0}"), HasSubstr("two texts or more"));
  EXPECT_THAT(LineError(own, begin + "[\"a\", 1], \"label\": 0}"), HasSubstr("two texts or more"));
  EXPECT_THAT(LineError(own, begin + "[\"a\", \"\"], \"label\": 0}"), HasSubstr("is empty"));
  for (const char* const label :
       {"2", "-1", "1.0", "\"\"", "\"a\"", "\"1 \"", "null", "18446744073709551615"})
    EXPECT_THAT(LineError(own, begin + "[\"a\", \"b\"], \"label\": " + label + "}"),
                HasSubstr("\"label\" is none of 0 to 1"));
  EXPECT_THAT(LineError(own, begin + "[\"a\", \"b\"]}"), HasSubstr("has no \"label\""));

  const Task swag = Of(TaskType::kMultipleChoice, TaskRules::kHellaswag);
  EXPECT_THAT(LineError(swag,
                        "{\"activity_label\": \"x\", \"ctx_a\": \"y\", \"ctx_b\": \"\xCE\x94z\", "
                        "\"endings\": [\"a\", \"b\"], \"label\": 0}"),
              HasSubstr("(U+0394)"));
}

TEST(TaskDocumentsTest, PagesOfWikitext) {
  const auto pages = WikitextPages(
      " \n = A title = \n \n text = 5 \n = = Part = = \n = = = Deep = = = \n more\n = B = \n \n "
      "end \n");
  EXPECT_EQ(pages, (std::vector<std::string>{
                       " = A title = \n \n text = 5 \n = = Part = = \n = = = Deep = = = \n more",
                       " = B = \n \n end \n"}));
  EXPECT_EQ(WikitextPages("no heading"), std::vector<std::string>{"no heading"});
  EXPECT_TRUE(WikitextPages(" \n\n").empty());
}

TEST(TaskDocumentsTest, LimitsAndLines) {
  Task words = Of(TaskType::kLastWord, TaskRules::kPlain, "t");
  words.limit = 2;
  const auto documents =
      ParseDocuments(words, "\n{\"t\": \"a b\"}\r\n{\"t\": \"c\"}\n{broken, but not read\n");
  ASSERT_TRUE(documents.ok()) << documents.status();
  ASSERT_EQ(documents->size(), 2);
  EXPECT_EQ(documents->questions[0].context, "a");
  EXPECT_EQ(documents->questions[0].choices[0].text, " b");
  EXPECT_EQ(documents->questions[0].line, 2);
  EXPECT_EQ(documents->questions[1].context, "");
  EXPECT_EQ(documents->questions[1].choices[0].text, " c");
}

// Two letters are one token: the border of a context may lie within one.
class Pairs final : public data::Tokenizer {
 public:
  std::string_view name() const override { return "pairs"; }
  int64_t vocab_size() const override { return 256; }
  int32_t eod() const override { return data::kNoEod; }
  Status Encode(std::string_view text, std::vector<int32_t>* ids) const override {
    for (size_t at = 0; at < text.size(); at += 2)
      ids->push_back(text[at] + (at + 1 < text.size() ? text[at + 1] : 0));
    return OkStatus();
  }
  StatusOr<std::string> Decode(std::span<const int32_t>) const override { return std::string(); }
};

TEST(EncodePairTest, TheWholeIsCutByTheContextsTokens) {
  const Pairs tokenizer;
  const auto encode = [&](std::string_view context, std::string_view continuation,
                          bool apart = false, int64_t window = 8) {
    return EncodePair({.tokenizer = &tokenizer,
                       .context = context,
                       .continuation = continuation,
                       .apart = apart,
                       .window = window});
  };
  // "abc" is "ab", "c"; "abc d" is "ab", "c ", "d": of the whole, what is behind two tokens.
  const auto joined = encode("abc", " d");
  ASSERT_TRUE(joined.ok());
  EXPECT_EQ(joined->ids, (std::vector<int32_t>{'a' + 'b', 'c', 'd'}));
  EXPECT_EQ(joined->scored, 1);
  const auto apart = encode("abc", " d", /*apart=*/true);
  EXPECT_EQ(apart->ids, (std::vector<int32_t>{'a' + 'b', 'c', ' ' + 'd'}));
  // White space goes to the continuation.
  EXPECT_EQ(encode("ab \xC2\xA0", "d")->ids,
            (std::vector<int32_t>{'a' + 'b', ' ' + '\xC2', '\xA0' + 'd'}));
  EXPECT_EQ(encode("ab \xC2\xA0", "d")->scored, 2);
  // The beginning of what is too long goes.
  const auto cut = encode("abcdefgh", "ijkl", false, 3);
  EXPECT_EQ(cut->ids, (std::vector<int32_t>{'e' + 'f', 'g' + 'h', 'i' + 'j', 'k' + 'l'}));
  EXPECT_TRUE(cut->cut);
  EXPECT_FALSE(encode("abcdef", "gh", false, 3)->cut);
  EXPECT_THAT(ErrorOf(encode("abc", "d").status()), HasSubstr("\"d\" has no token of its own"));
  EXPECT_THAT(ErrorOf(encode("a", "bcdefgh", false, 2).status()),
              HasSubstr("has 3 tokens, and the window 2"));
  EXPECT_THAT(ErrorOf(encode("", " d").status()), HasSubstr("no end-of-document token"));
}

TEST(RunTaskTest, WindowsAreThoseOfTheModelUnlessNamed) {
  Task task = Of(TaskType::kPerplexity);
  EXPECT_EQ(WithWindows(task, 64)->window, 64);
  EXPECT_EQ(WithWindows(task, 64)->stride, 64);
  task.window = 65;
  EXPECT_THAT(ErrorOf(WithWindows(task, 64).status()),
              HasSubstr("window 65 is beyond the 64 positions"));
  task = Of(TaskType::kPerplexity);
  task.stride = 65;
  EXPECT_THAT(ErrorOf(WithWindows(task, 64).status()),
              HasSubstr("stride 65 is beyond the window of 64"));
}

TEST(ScoreReportTest, TextAndJson) {
  ScoredTask one{.task = Of(TaskType::kPerplexity), .result = {.documents = 2, .tokens = 30}};
  one.task.name = "wiki\x1b[2J";
  one.task.window = 16;
  one.task.stride = 8;
  one.result.scores = {
      {"token_perplexity", INFINITY}, {"bits_per_byte", 0.123456789}, {"words", 12}};
  EXPECT_EQ(ScoresText({one}),
            "wiki\\x1b[2J: perplexity, plain rules, 2 documents, 30 tokens, window 16, stride 8\n"
            "  token_perplexity       inf\n"
            "  bits_per_byte          0.123457\n"
            "  words                  12\n");
  const nlohmann::ordered_json tree = ScoresJson({one});
  EXPECT_TRUE(tree[0]["scores"]["token_perplexity"].is_null());
  EXPECT_EQ(tree[0]["scores"]["bits_per_byte"], 0.123456789);
  EXPECT_TRUE(tree[0]["scores"]["words"].is_number_integer());
  EXPECT_EQ(tree[0]["rules"], "plain");
}

TEST(ScoreReportTest, ProgressFits) {
  EXPECT_EQ(ProgressText("lambada", 0, 100, 0, 79), "lambada: 0 of 100 documents");
  EXPECT_EQ(ProgressText("lambada", 25, 100, 10, 79), "lambada: 25 of 100 documents, 0:30 left");
  EXPECT_EQ(ProgressText("lambada", 1, 4001, 1.8, 79), "lambada: 1 of 4001 documents");
  EXPECT_EQ(ProgressText("l", 1, 4001, 3, 79), "l: 1 of 4001 documents, 3:20:00 left");
  EXPECT_EQ(ProgressText("a very long name", 0, 9, 0, 24), "a very: 0 of 9 documents");
}

TEST(EvalFlagsTest, SurviveTheCommandLine) {
  EvalFlags flags;
  flags.tasks = "--odd name.yaml";
  flags.tag = "best";
  flags.precision = "fp64";
  flags.threads = 3;
  flags.tokenizer = "hf";
  flags.tokenizer_file = "t.json";
  std::vector<std::string> words = {"program"};
  for (std::string& word : ToArguments(flags)) words.push_back(word);
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  EvalFlags read;
  CLI::App app;
  AddEvalFlags(&app, &read);
  app.parse(static_cast<int>(argv.size()), argv.data());
  EXPECT_EQ(read.tasks, flags.tasks);
  EXPECT_EQ(ToArguments(read), ToArguments(flags));
}

}  // namespace
}  // namespace mt::decode
