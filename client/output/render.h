// An answer in each format of `-o`: tables for people; JSON, JSON lines and YAML of the same tree
// for programs; names for the shell. (CSV exists for metrics only, see metrics.h.) Pure.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace google::protobuf {
class Message;
}

namespace mt::client {

enum class OutputFormat { kTable, kWide, kJson, kJsonl, kYaml, kCsv, kName, kNone, kTensorboard };

// The formats as `-o` names them, in the order of the enum.
inline constexpr std::array<std::string_view, 9> kOutputFormatNames = {
    "table", "wide", "json", "jsonl", "yaml", "csv", "name", "none", "tensorboard"};
constexpr std::string_view OutputFormatName(OutputFormat format) {
  return kOutputFormatNames[static_cast<size_t>(format)];
}

// True for json, jsonl and yaml, which print everything, for programs.
bool IsStructured(OutputFormat format);
// True for table and wide, which are for people.
bool IsTable(OutputFormat format);

// Cells of a table; the first row is the header (see Table in format.h).
using Rows = std::vector<std::vector<std::string>>;

// One answer in all forms that a format may need.
struct View {
  const google::protobuf::Message* message = nullptr;  // the whole answer
  std::string_view
      items;  // its repeated field that jsonl prints line by line; empty: it is one item
  std::vector<std::string> names;  // what other verbs take, in the order of the items
  Rows table;                      // for `-o table` or `-o wide`, whichever was asked for
};

// The text of the answer; "" for kNone, and for a table without rows below its header.
std::string Render(const View& view, OutputFormat format);

// The tree in a structured format, jsonl with one line for each element of `items`; "" for other
// formats.
std::string RenderTree(const nlohmann::ordered_json& tree, OutputFormat format,
                       std::string_view items = {});

}  // namespace mt::client
