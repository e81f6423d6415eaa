// Dispatch by format; structured formats share one JSON tree.
#include "client/output/render.h"

#include <nlohmann/json.hpp>

#include "client/output/format.h"
#include "client/output/json.h"
#include "client/output/yaml.h"
#include "common/base/plain_text.h"

namespace mt::client {
namespace {

using nlohmann::ordered_json;

std::string Dump(const ordered_json& tree, int indent) { return JsonText(tree, indent) + "\n"; }

}  // namespace

bool IsStructured(OutputFormat format) {
  return format == OutputFormat::kJson || format == OutputFormat::kJsonl ||
         format == OutputFormat::kYaml;
}

bool IsTable(OutputFormat format) {
  return format == OutputFormat::kTable || format == OutputFormat::kWide;
}

std::string RenderTree(const ordered_json& tree, OutputFormat format, std::string_view items) {
  if (format == OutputFormat::kJson) return Dump(tree, 2);
  if (format == OutputFormat::kYaml) return YamlText(tree);
  if (format != OutputFormat::kJsonl) return "";
  if (items.empty()) return Dump(tree, -1);
  std::string out;
  for (const ordered_json& item : tree.at(std::string(items))) out += Dump(item, -1);
  return out;
}

std::string Render(const View& view, OutputFormat format) {
  if (IsStructured(format)) return RenderTree(MessageToJson(*view.message), format, view.items);
  std::string out;
  if (format == OutputFormat::kName) {
    for (const std::string& name : view.names) out += base::CleanLine(name) + "\n";
  } else if (format != OutputFormat::kNone && view.table.size() > 1) {
    out = Table(view.table);
  }
  return out;
}

}  // namespace mt::client
