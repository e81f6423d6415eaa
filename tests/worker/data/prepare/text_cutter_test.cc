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
    options_.cut = cut;
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
    options_.cut = cut;
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
    options_.cut = cut;
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
  options_.cut = CutRule::kNowhere;
  options_.batch_bytes = 16;
  options_.most_document_bytes = 500;
  Documents documents;
  const Status status = Read({}, &documents);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(base::Message(status), HasSubstr("1:1: a document of more than"));
  options_.most_document_bytes = 1024;
  documents = {};
  EXPECT_TRUE(Read({}, &documents).ok());
}

TEST(DocumentCutTest, CutsWhereNoTokenSpans) {
  EXPECT_EQ(LastCut("some words", CutRule::kAnywhere), 10U);
  EXPECT_EQ(LastCut("some words", CutRule::kSpace), 4U);
  EXPECT_EQ(LastCut("some words.  ", CutRule::kAfterWord), 4U);
  EXPECT_EQ(LastCut("  x", CutRule::kAfterWord), 0U);
  EXPECT_EQ(LastCut("\xC3\xA9 x", CutRule::kAfterWord), 0U);
  EXPECT_EQ(LastCut("some words", CutRule::kNowhere), 0U);
}

}  // namespace
}  // namespace mt::data
