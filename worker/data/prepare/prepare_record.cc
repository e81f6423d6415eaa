// One flat object of numbers and words.
#include "worker/data/prepare/prepare_record.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "worker/data/output_file.h"

namespace mt::data {
namespace {

constexpr int64_t kVersion = 1;

// Each number of a record with its name, for both directions.
template <class Record, class Visit>
void VisitNumbers(Record& record, const Visit& visit) {
  visit("file", record.position.file);
  visit("offset", record.position.offset);
  visit("line", record.position.line);
  visit("document_line", record.position.document_line);
  visit("bin_bytes", record.bin_bytes);
  visit("documents", record.documents);
  visit("empty_documents", record.empty_documents);
  visit("tokens", record.tokens);
  visit("open_tokens", record.open_tokens);
  visit("placed", record.placed);
}

}  // namespace

std::string RecordText(const PrepareRecord& record) {
  nlohmann::ordered_json out = {{"version", kVersion},
                                {"options", record.made_of.options},
                                {"inputs", record.made_of.inputs},
                                {"phase", static_cast<int>(record.phase)},
                                {"open", record.position.open},
                                {"mid_line", record.position.mid_line},
                                {"reordered", record.reordered}};
  VisitNumbers(record, [&](const char* name, int64_t value) { out[name] = value; });
  return out.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

StatusOr<PrepareRecord> ParseRecord(std::string_view text) {
  PrepareRecord record;
  // The parser converts fractions and words to whole numbers, and takes what is out of range for
  // anything. No file has 2^56 bytes, and what is added to such a number is in range.
  const auto whole = [](const nlohmann::json& value) {
    constexpr auto kMost = uint64_t{1} << 56;
    const bool fits = !value.is_number_unsigned() || value.get<uint64_t>() <= kMost;
    return value.is_number_integer() && fits ? value.get<int64_t>() : int64_t{-1};
  };
  bool sound = true;
  try {
    const auto in = nlohmann::json::parse(text);
    sound = whole(in.at("version")) == kVersion;
    record.made_of = {in.at("options").get<std::string>(), in.at("inputs").get<std::string>()};
    const int64_t phase = whole(in.at("phase"));
    sound = sound && phase >= 0 && phase <= 3;
    record.phase = sound ? static_cast<PrepareRecord::Phase>(phase) : PrepareRecord::Phase::kEncode;
    record.position.open = in.at("open").get<bool>();
    record.position.mid_line = in.at("mid_line").get<bool>();
    record.reordered = in.at("reordered").get<bool>();
    VisitNumbers(record, [&](const char* name, int64_t& value) {
      value = whole(in.at(name));
      sound = sound && value >= 0;
    });
  } catch (const nlohmann::json::exception&) {
    sound = false;
  }
  if (!sound) return base::DataLoss("no record of this version of a data set that is being made");
  return record;
}

std::string RecordDraft(const std::string& path) { return path + ".partial"; }

// Not base::WriteFileAtomic: each kill would leave a draft of another name.
Status WriteRecord(const std::string& path, const PrepareRecord& record) {
  const std::string draft = RecordDraft(path);
  ASSIGN_OR_RETURN(OutputFile file, OutputFile::Open(draft));
  RETURN_IF_ERROR(file.Append(RecordText(record)));
  RETURN_IF_ERROR(file.Sync());
  if (::rename(draft.c_str(), path.c_str()) != 0)
    return base::ErrnoError(errno, fmt::format("rename {} to {}", draft, path));
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return base::SyncDir(folder.empty() ? "." : folder);
}

}  // namespace mt::data
