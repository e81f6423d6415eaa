// Batches of any size hold the same documents, and reading goes on from every place that may be
// recorded.
#include "worker/data/prepare/text_cutter.h"

#include <gmock/gmock.h>

#include "tests/worker/data/temp_data.h"

namespace mt::data {
namespace {

using ::testing::HasSubstr;

// Documents as "line:text".
struct Documents {
  std::vector<std::string> done{};
  std::string open{};
  bool is_open = false;

  void Take(const TextBatch& batch) {
    for (const TextPiece& piece : batch.pieces) {
      EXPECT_EQ(piece.begins, !is_open);
      if (piece.begins) open = std::to_string(piece.line) + ":";
      const std::string_view text = std::string_view(batch.text).substr(piece.begin, piece.bytes);
      if (batch.json) {
        JsonText json("text");
        json.Begin();
        EXPECT_TRUE(json.Feed(text, &open).ok());
        EXPECT_TRUE(json.End().ok());
      } else {
        open += text;
      }
      is_open = !piece.ends;
      if (piece.ends) done.push_back(open);
    }
  }
};

class TextCutterTest : public ::testing::Test {
 protected:
  void AddInput(std::string_view text) {
    const std::string path = dir_.Path(std::to_string(options_.inputs.size()));
    WriteText(path, text);
    options_.inputs.push_back(path);
    options_.input_bytes.push_back(std::ssize(text));
  }

  // Reads from `from` on into `documents`; after each batch calls `visit`.
  Status Read(const InputPosition& from, Documents* documents,
              const std::function<void(const TextBatch&)>& visit = {}) {
    TextCutter cutter(options_, from);
    TextBatch batch;
    for (;;) {
      ASSIGN_OR_RETURN(const bool more, cutter.Next(&batch));
      if (!more) return OkStatus();
      documents->Take(batch);
      if (visit) visit(batch);
    }
  }

  // The documents, with batches of every size, from the beginning and from every place.
  void Expect(const std::vector<std::string>& expected) {
    for (size_t bytes = 1; bytes < 40; bytes += bytes < 8 ? 1 : 5) {
      options_.batch_bytes = bytes;
      Documents all;
      std::vector<std::pair<Documents, InputPosition>> places;
      const auto visit = [&](const TextBatch& batch) {
        if (batch.can_resume) places.emplace_back(all, batch.next);
      };
      const Status status = Read({}, &all, visit);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(all.done, expected) << "batches of " << bytes;
      EXPECT_FALSE(all.is_open);
      EXPECT_GT(places.size(), options_.inputs.size() - 1);
      for (auto& [documents, place] : places) {
        ASSERT_TRUE(Read(place, &documents).ok());
        EXPECT_EQ(documents.done, expected) << "from byte " << place.offset;
      }
    }
  }

  TempDir dir_;
  CutOptions options_;
};

TEST_F(TextCutterTest, WholeFiles) {
  AddInput("a text of some words\nand lines\n");
  AddInput("");
  AddInput("another");
  for (const CutRule cut :
       {CutRule::kAnywhere, CutRule::kSpace, CutRule::kAfterWord, CutRule::kNowhere}) {
    options_.cuts = {.rule = cut};
    Expect({"1:a text of some words\nand lines\n", "1:", "1:another"});
  }
}

TEST_F(TextCutterTest, Separators) {
  AddInput("%%\nfirst of two\nrecord %%\n%%\n%%\n %%\nsecond\n%%\r\nlast %%");
  AddInput("%%%\n%%");
  AddInput("no end\n%%x\n%%\r");
  options_.rule = DocumentRule::kSeparator;
  options_.separator = "%%";
  for (const CutRule cut : {CutRule::kAnywhere, CutRule::kSpace, CutRule::kNowhere}) {
    options_.cuts = {.rule = cut};
    Expect({"2:first of two\nrecord %%\n", "6: %%\nsecond\n", "9:last %%", "1:%%%\n",
            "1:no end\n%%x\n"});
  }
}

TEST_F(TextCutterTest, JsonLines) {
  AddInput(
      "{\"text\": \"a\\u00e9 longer one of some words\", \"id\": 1}\n\n  \n{\"text\": \"\"}\r\n" +
      std::string(70, ' ') + "\n{\"x\": [1, 2, 3], \"text\": \"the end\\n\"}");
  AddInput("");
  AddInput("{\"text\": \"x\"}\n");
  options_.rule = DocumentRule::kJsonLines;
  options_.jsonl_key = "text";
  for (const CutRule cut : {CutRule::kAnywhere, CutRule::kAfterWord, CutRule::kNowhere}) {
    options_.cuts = {.rule = cut};
    Expect({"1:a\xC3\xA9 longer one of some words", "4:", "6:the end\n", "1:x"});
  }
}

TEST_F(TextCutterTest, LongLinesThatAreBadAreNamed) {
  AddInput("{\"text\": \"good\"}\n\n{\"text\": \"" + std::string(100, 'x') + "\", }\n");
  options_.rule = DocumentRule::kJsonLines;
  options_.jsonl_key = "text";
  options_.batch_bytes = 16;
  Documents documents;
  EXPECT_THAT(base::Message(Read({}, &documents)), HasSubstr("0:3: invalid JSON: a key"));
}

TEST_F(TextCutterTest, WhatCannotBeCutHasALimit) {
  AddInput("short");
  AddInput(std::string(1000, 'x'));
  options_.tokenizer = "sentencepiece";
  options_.cuts = {.rule = CutRule::kNowhere};
  options_.batch_bytes = 16;
  options_.most_document_bytes = 500;
  Documents documents;
  const Status status = Read({}, &documents);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(base::Message(status), HasSubstr("1:1: at offset 0: the document goes on for more"));
  EXPECT_THAT(base::Message(status), HasSubstr("sentencepiece has to see all of it at once"));
  options_.most_document_bytes = 1024;
  documents = {};
  EXPECT_TRUE(Read({}, &documents).ok());
}

// Behind what could be cut, as far as that was.
TEST_F(TextCutterTest, TheLimitIsToldByItsOffset) {
  options_.tokenizer = "hf";
  options_.cuts = {.rule = CutRule::kAfterWord};
  options_.batch_bytes = 16;
  options_.most_document_bytes = 500;
  AddInput("words, and\nmore of them " + std::string(1000, 'x'));
  AddInput("{\"text\": \"\"}\n{\"text\": \"some w\\u006Frds " + std::string(1000, 'x') + "\"}");
  Documents documents;
  EXPECT_THAT(base::Message(Read({}, &documents)), HasSubstr("0:1: at offset 23: the document"));
  options_.rule = DocumentRule::kJsonLines;
  options_.jsonl_key = "text";
  documents = {};
  const Status status = Read({.file = 1}, &documents);
  EXPECT_THAT(base::Message(status), HasSubstr("1:2: at offset 10: the document"));
  EXPECT_THAT(base::Message(status), HasSubstr("no place where its tokens by hf surely end"));
}

TEST(DocumentCutTest, CutsWhereNoTokenSpans) {
  EXPECT_EQ(LastCut("some words", {.rule = CutRule::kAnywhere}), 10U);
  EXPECT_EQ(LastCut("some words", {.rule = CutRule::kSpace}), 4U);
  EXPECT_EQ(LastCut("some words", {}), 0U);
  const auto after_word = [](std::string_view text, std::vector<std::string> whole = {}) {
    return LastCut(text, {.rule = CutRule::kAfterWord, .whole = std::move(whole)});
  };
  EXPECT_EQ(after_word("some words.  "), 4U);
  EXPECT_EQ(after_word("  x"), 0U);
  EXPECT_EQ(after_word("\xC3\xA9 x"), 0U);
  // A line end alone, between what is no white space for sure.
  EXPECT_EQ(after_word("\xE4\xB8\xAD\n\xE6\x96\x87"), 4U);
  EXPECT_EQ(after_word("a.\nb"), 3U);
  for (const std::string_view text :
       {"a.\n", "\na", "a.\n\nb", "a.\r\nb", "a.\n b", "a.\n\xC2\xA0", "a.\n\xE3\x80\x80",
        "a.\n\xE3", "a.\n\xE2\x80\xA9", "\xE3\x80\x80\na", "\xC2\x85\na", "\xE2\x80\x83\na"}) {
    EXPECT_EQ(after_word(text), 0U) << text;
  }
  EXPECT_EQ(after_word("\xE3\x80\x82\na"), 4U) << "an ideographic full stop is none";
  // Texts that stay whole, also where their end is not here yet.
  EXPECT_EQ(after_word("one two three", {"o thr"}), 3U);
  EXPECT_EQ(after_word("one two", {"e two or more"}), 0U);
  EXPECT_EQ(after_word("one two", {"e twx", " two"}), 3U);
  EXPECT_EQ(after_word("a.\nb", {".\n"}), 3U);
  EXPECT_EQ(after_word("a.\nb", {"\nb"}), 0U);
}

}  // namespace
}  // namespace mt::data
