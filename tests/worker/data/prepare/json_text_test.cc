// The scanner of JSON lines against nlohmann/json: the same lines are refused and the same text is
// found, whole or in parts of any size, and for thousands of damaged lines (tests/fuzz_time.h).
#include "worker/data/prepare/json_text.h"

#include <optional>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/fuzz_time.h"
#include "tests/worker/data/fuzz_corpus.h"

namespace mt::data {
namespace {

using ::testing::HasSubstr;

// The text of a line that is fed in parts of so many bytes.
StatusOr<std::string> Scan(std::string_view line, size_t part = std::string::npos) {
  JsonText scanner("text");
  std::string text;
  scanner.Begin();
  for (size_t at = 0; at < line.size(); at += std::min(part, line.size()))
    RETURN_IF_ERROR(scanner.Feed(line.substr(at, part), &text));
  RETURN_IF_ERROR(scanner.End());
  return text;
}

// What a parser of whole documents says. Numbers beyond its range are not looked at, nor lines with
// a NUL, which it takes for the end.
enum class Verdict { kText, kRefused, kBeyond };
Verdict Oracle(std::string_view line, std::string* text) {
  if (line.find('\0') != std::string_view::npos) return Verdict::kBeyond;
  int times = 0;
  const auto count = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    if (depth == 1 && event == nlohmann::json::parse_event_t::key && value == "text") ++times;
    return true;
  };
  try {
    const auto value = nlohmann::json::parse(line, count);
    const bool has = value.is_object() && value.contains("text") && value["text"].is_string();
    if (!has || times > 1) return Verdict::kRefused;
    *text = value["text"].get<std::string>();
    return Verdict::kText;
  } catch (const nlohmann::json::out_of_range&) {
    return Verdict::kBeyond;
  } catch (const nlohmann::json::exception&) {
    return Verdict::kRefused;
  }
}

void ExpectAsOracle(const std::string& line, size_t part) {
  std::string expected;
  const Verdict verdict = Oracle(line, &expected);
  if (verdict == Verdict::kBeyond) return;
  const StatusOr<std::string> found = Scan(line, part);
  EXPECT_EQ(found.ok(), verdict == Verdict::kText) << line << ": " << found.status();
  if (!found.ok()) {
    EXPECT_GT(base::Message(found.status()).size(), 10U);
  } else if (verdict == Verdict::kText) {
    EXPECT_EQ(*found, expected) << line;
  }
}

const char* const kLines[] = {
    R"({"text": "a\n\u00e9\ud83d\ude00\"\\\/\b\f\r\t", "id": -1.5e+10})",
    R"({"id": {"text": [1, "text", {"text": "no"}]}, "text": "yes", "z": [[], {}, 0, -0.0, 1E9]})",
    R"( { "a" : true , "b" : false , "c" : null , "text" : "" } )",
    "{\"text\": \"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xED\x9F\xBF\xEF\xBF\xBF\", \"x\": \"\x7F\"}",
    R"({"te\u0078t": "an escaped key"})",
    R"({"textual": "longer", "tex": "shorter", "text": "exact"})",
    R"({"a": [1, 2, 3, [4, 5, [6]]], "text": "after", "b": [{"c": [{}]}]})",
    "\xEF\xBB\xBF{\"text\": \"behind a mark of the byte order\"}",
    R"({"text": "x", "n": [0, 10, -0, 0.5, 1e5, 1E-5, 2.5e+3]})",
    R"({"text": {"text": "x"}})",
    R"({"a": "b"})",
    R"([{"text": "x"}])",
    R"({"text": "x"} {"text": "y"})",
    R"({"text": "a", "text": "b"})",
    R"({"text": 01})",
    R"({"text": "\ud800"})",
    R"({"text": "\udc00"})",
    R"({"text": "\ud800\u0041"})",
    "{\"text\": \"a\tb\"}",
    "{\"text\": \"\xC0\x80\"}",
    "{\"text\": \"\xED\xA0\x80\"}",
    "{\"text\": \"\xF4\x90\x80\x80\"}",
    R"({"text": "x",})",
    R"({"a": [1,], "text": "x"})",
    R"({"a": tru, "text": "x"})",
    R"({"a": 1. , "text": "x"})",
    R"({"a": +1, "text": "x"})",
    R"({"a": .5, "text": "x"})",
    R"({"text": "x")",
    R"({"text": "x)",
    R"({)",
    R"(})",
    R"()",
};

TEST(JsonTextTest, AgreesWithAParserInPartsOfAnySize) {
  std::vector<std::string> lines(std::begin(kLines), std::end(kLines));
  for (CorpusInput& input : Corpus("json_lines")) lines.push_back(std::move(input.bytes));
  for (const std::string& line : lines) {
    for (size_t part = 1; part <= line.size() + 1; ++part) ExpectAsOracle(line, part);
  }
}

TEST(JsonTextTest, SaysWhatIsWrongAndWhere) {
  EXPECT_THAT(base::Message(Scan(R"({"text": "a" "b"})").status()),
              HasSubstr("invalid JSON: ',' or the end is expected at byte 14 of the line"));
  EXPECT_EQ(base::Message(Scan(R"({"text": [1]})").status()), "'text' is a array, not a string");
  EXPECT_EQ(base::Message(Scan(R"({"a": "x"})").status()), "no key 'text' in the JSON object");
  EXPECT_EQ(base::Message(Scan("7").status()), "not a JSON object");
  EXPECT_EQ(base::Message(Scan(R"({"text": "a", "text": "b"})").status()),
            "the key 'text' stands twice in the JSON object");
  EXPECT_THAT(base::Message(Scan(R"({"a": )" + std::string(20000, '[')).status()),
              HasSubstr("too many levels"));
}

// A line with one to four changes: bytes that change, pieces that go, double or come from another.
std::string Mutate(const std::string& line, const std::string& other, std::mt19937_64* random) {
  const auto below = [&](size_t count) { return static_cast<size_t>((*random)() % count); };
  std::string out = line;
  for (size_t changes = 1 + below(4); changes > 0; --changes) {
    const size_t at = below(out.size() + 1);
    const size_t bytes = below(8);
    const std::string_view kHostile = "\"\\{}[],:0e+-.tfnu\x80\xED\xF4 \n";
    switch (below(4)) {
      case 0:
        if (at < out.size()) out[at] = static_cast<char>((*random)());
        break;
      case 1:
        out.erase(at, bytes);
        break;
      case 2:
        out.insert(at, other, below(other.size() + 1), bytes);
        break;
      default:
        out.insert(at, 1, kHostile[below(kHostile.size())]);
    }
  }
  return out;
}

TEST(JsonTextTest, DamagedLinesAreRefusedOrReadAsAParserDoes) {
  std::vector<std::string> lines(std::begin(kLines), std::end(kLines));
  for (CorpusInput& input : Corpus("json_lines")) lines.push_back(std::move(input.bytes));
  FuzzTime time(400 * std::ssize(lines), 7);
  std::mt19937_64 random(time.seed());
  while (time.Next()) {
    const std::string& line = lines[random() % lines.size()];
    const std::string& other = lines[random() % lines.size()];
    ExpectAsOracle(Mutate(line, other, &random), 1 + random() % 40);
  }
}

}  // namespace
}  // namespace mt::data
