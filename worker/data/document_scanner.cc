// One pass over the lines of the mapped text; nlohmann/json parses JSON lines.
#include "worker/data/document_scanner.h"

#include <nlohmann/json.hpp>

namespace mt::data {
namespace {

constexpr std::string_view kBlank = " \t\r\n";

// Calls visit(offset, offset of the next line, text without its line end, line number) for each
// line.
template <class Visit>
Status ForEachLine(std::string_view text, const Visit& visit) {
  int64_t number = 1;
  for (size_t at = 0; at < text.size(); ++number) {
    const size_t newline = text.find('\n', at);
    const size_t end = newline == std::string_view::npos ? text.size() : newline;
    std::string_view line = text.substr(at, end - at);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    const size_t next = newline == std::string_view::npos ? text.size() : newline + 1;
    RETURN_IF_ERROR(visit(at, next, line, number));
    at = next;
  }
  return OkStatus();
}

Status ScanRecords(std::string_view text, std::string_view separator,
                   const std::function<Status(const DocumentSpan&)>& visit) {
  size_t begin = 0;
  int64_t first_line = 1;
  const auto record = [&](size_t end) {
    if (end == begin) return OkStatus();
    return visit({static_cast<int64_t>(begin), static_cast<int64_t>(end - begin), first_line});
  };
  const auto line_visit = [&](size_t at, size_t next, std::string_view line,
                              int64_t number) -> Status {
    if (line != separator) return OkStatus();
    RETURN_IF_ERROR(record(at));
    begin = next;
    first_line = number + 1;
    return OkStatus();
  };
  RETURN_IF_ERROR(ForEachLine(text, line_visit));
  return record(text.size());
}

}  // namespace

Status ScanDocuments(std::string_view text, DocumentRule rule, std::string_view separator,
                     const std::function<Status(const DocumentSpan&)>& visit) {
  switch (rule) {
    case DocumentRule::kWholeFile:
      return visit({0, static_cast<int64_t>(text.size()), 1});
    case DocumentRule::kSeparator:
      return ScanRecords(text, separator, visit);
    case DocumentRule::kJsonLines:
      break;
  }
  return ForEachLine(text, [&](size_t at, size_t, std::string_view line, int64_t number) -> Status {
    if (line.find_first_not_of(kBlank) == std::string_view::npos) {
      return OkStatus();
    }
    return visit({static_cast<int64_t>(at), static_cast<int64_t>(line.size()), number});
  });
}

StatusOr<std::string> JsonText(std::string_view line, const std::string& key) {
  nlohmann::json value;
  try {
    value = nlohmann::json::parse(line);
  } catch (const nlohmann::json::exception& error) {
    return base::InvalidArgument("invalid JSON: {}", error.what());
  }
  if (!value.is_object()) return base::InvalidArgument("not a JSON object");
  const auto found = value.find(key);
  if (found == value.end()) return base::InvalidArgument("no key '{}' in the JSON object", key);
  if (!found->is_string()) {
    return base::InvalidArgument("'{}' is a {}, not a string", key, found->type_name());
  }
  return found->get<std::string>();
}

}  // namespace mt::data
