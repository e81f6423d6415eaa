// Conversion to and from JSON, and the few questions that a list answers.
#include "worker/checkpoint/format/run_list.h"

#include <algorithm>
#include <set>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "common/base/ids.h"
#include "worker/checkpoint/format/json_numbers.h"
#include "worker/checkpoint/format/json_text.h"

namespace mt::checkpoint {
namespace {

using nlohmann::json;

// As in fence.cc: no directory comes to as many starts.
constexpr int64_t kLastRunEpoch = int64_t{1} << 60;

std::string RunListPath(const std::string& directory) {
  return base::JoinPath(directory, kRunListName);
}

json ToValue(const RunRecord& run) {
  json out = {{"id", run.id},
              {"began", run.began},
              {"job", {{"uid", run.job_uid}, {"name", run.job_name}}},
              {"beginning",
               {{"load", run.beginning.load},
                {"load_tag", run.beginning.load_tag},
                {"load_kind", run.beginning.load_kind},
                {"fresh", run.beginning.fresh}}},
              {"place",
               {{"root_id", run.place.root_id},
                {"directory", run.place.directory},
                {"path", run.place.path}}},
              {"epochs", run.epochs}};
  if (run.from) {
    out["from"] = {{"run", run.from->run},
                   {"step", run.from->id.step},
                   {"epoch", run.from->id.epoch},
                   {"digest", run.from->digest}};
  }
  if (!run.parent.empty()) out["parent"] = run.parent;
  if (!run.restart.empty()) out["restart"] = run.restart;
  return out;
}

RunRecord ParseRun(const json& in) {
  RunRecord run{.id = in.at("id").get<std::string>(),
                .began = in.at("began").get<std::string>(),
                .job_uid = in.at("job").at("uid").get<std::string>(),
                .job_name = in.at("job").at("name").get<std::string>()};
  const json& beginning = in.at("beginning");
  run.beginning = {.load = beginning.at("load").get<std::string>(),
                   .load_tag = beginning.at("load_tag").get<std::string>(),
                   .load_kind = beginning.at("load_kind").get<std::string>(),
                   .fresh = beginning.at("fresh").get<bool>()};
  if (in.contains("from")) {
    const json& from = in.at("from");
    run.from = {.run = from.at("run").get<std::string>(),
                .id = {.step = Integer(from.at("step")), .epoch = Integer(from.at("epoch"))},
                .digest = from.at("digest").get<std::string>()};
  }
  if (in.contains("parent")) run.parent = in.at("parent").get<std::string>();
  if (in.contains("restart")) run.restart = in.at("restart").get<std::string>();
  const json& place = in.at("place");
  run.place = {.root_id = place.at("root_id").get<std::string>(),
               .directory = place.at("directory").get<std::string>(),
               .path = place.at("path").get<std::string>()};
  for (const json& range : in.at("epochs").get_ref<const json::array_t&>())
    run.epochs.emplace_back(Integer(range.at(0)), Integer(range.at(1)));
  return run;
}

bool IsUidOrEmpty(const std::string& text) { return text.empty() || base::IsUid(text); }

// What is wrong with a run of a well-formed list; empty: nothing.
std::string FaultOf(const RunRecord& run) {
  if (!base::IsUid(run.id)) return "a run has no id";
  if (!IsUidOrEmpty(run.parent) || (run.from && !IsUidOrEmpty(run.from->run)))
    return fmt::format("run {} comes from a run without an id", run.id);
  int64_t next = 1;
  for (const auto& [first, last] : run.epochs) {
    if (first < next || last < first || last > kLastRunEpoch)
      return fmt::format("run {} has impossible epochs [{}, {}]", run.id, first, last);
    next = last + 1;
  }
  return "";
}

}  // namespace

std::string ToJson(const RunList& list) {
  json out = {{"format", "megatrain-runs"}, {"version", kRunListVersion}, {"runs", json::array()}};
  for (const RunRecord& run : list.runs) out["runs"].push_back(ToValue(run));
  return out.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

StatusOr<RunList> ParseRunList(std::string_view text) {
  const json in = ParseJson(text);
  if (!in.is_object() || in.value("format", json()) != "megatrain-runs")
    return base::DataLoss("not a list of runs: no JSON object with format \"megatrain-runs\"");
  try {
    const int64_t version = Integer(in.at("version"));
    if (version > kRunListVersion) {
      return base::FailedPrecondition(
          "the list of runs has format version {}, this program reads up to {}: use a newer "
          "Megatrain",
          version, kRunListVersion);
    }
    RunList list;
    std::set<std::string> ids;
    for (const json& run : in.at("runs").get_ref<const json::array_t&>()) {
      list.runs.push_back(ParseRun(run));
      const RunRecord& parsed = list.runs.back();
      std::string fault = FaultOf(parsed);
      if (fault.empty() && !ids.insert(parsed.id).second)
        fault = fmt::format("run {} is there twice", parsed.id);
      if (!fault.empty()) return base::DataLoss("damaged list of runs: {}", fault);
    }
    return list;
  } catch (const json::exception& error) {
    return base::DataLoss("damaged list of runs: {}", error.what());
  }
}

StatusOr<RunList> ReadRuns(const std::string& directory, const base::FileOpener& open) {
  const std::string path = RunListPath(directory);
  const auto text = base::ReadFile(path, open);
  if (absl::IsNotFound(text.status())) return RunList();
  RETURN_IF_ERROR(text.status());
  auto list = ParseRunList(*text);
  if (list.ok()) return list;
  if (!absl::IsDataLoss(list.status())) return base::Annotate(list.status(), path);
  return base::DataLoss(
      "{}: {}; restore it or move it away: checkpoints are complete without it, and the next start "
      "makes the list anew",
      path, base::Message(list.status()));
}

Status WriteRuns(const std::string& directory, const RunList& list) {
  return base::WriteFileAtomic(RunListPath(directory), ToJson(list));
}

Status KeepRun(const std::string& directory, const RunRecord& run) {
  ASSIGN_OR_RETURN(RunList list, ReadRuns(directory));
  if (FindRun(list, run.id) != nullptr) return OkStatus();
  list.runs.push_back(run);
  return WriteRuns(directory, list);
}

const RunRecord* FindRun(const RunList& list, std::string_view id) {
  const auto found = std::ranges::find(list.runs, id, &RunRecord::id);
  return found == list.runs.end() ? nullptr : &*found;
}

const RunRecord* RunOfEpoch(const RunList& list, int64_t epoch) {
  const auto names = [epoch](const RunRecord& run) {
    return std::ranges::any_of(run.epochs, [epoch](const auto& range) {
      return range.first <= epoch && epoch <= range.second;
    });
  };
  const auto found = std::find_if(list.runs.rbegin(), list.runs.rend(), names);
  return found == list.runs.rend() ? nullptr : &*found;
}

std::string RunOf(const RunList& list, const Manifest& manifest) {
  if (!manifest.run.empty()) return manifest.run;
  const RunRecord* run = RunOfEpoch(list, manifest.epoch);
  return run == nullptr ? "" : run->id;
}

void AddEpoch(int64_t epoch, RunRecord* run) {
  auto& ranges = run->epochs;
  const auto next =
      std::ranges::upper_bound(ranges, epoch, {}, &std::pair<int64_t, int64_t>::first);
  if (next != ranges.begin()) {
    int64_t& last = std::prev(next)->second;
    if (epoch <= last) return;
    if (epoch == last + 1 && (next == ranges.end() || epoch < next->first)) {
      last = epoch;
      return;
    }
  }
  ranges.insert(next, {epoch, epoch});
}

int64_t LastEpoch(const RunRecord& run) {
  return run.epochs.empty() ? 0 : run.epochs.back().second;
}

bool IsAt(const RunRecord& run, const RunPlace& here) {
  if (run.place.root_id.empty() || here.root_id.empty()) return run.place.path == here.path;
  return run.place.root_id == here.root_id && run.place.directory == here.directory;
}

RunBeginning BeginningOf(std::string_view spec_json) {
  RunBeginning beginning;
  const json spec = ParseJson(spec_json);
  if (!spec.is_object() || !spec.contains("checkpoint")) return beginning;
  const json& checkpoint = spec.at("checkpoint");
  const auto take = [&checkpoint](const char* name, auto* out) {
    try {
      if (checkpoint.is_object() && checkpoint.contains(name)) checkpoint.at(name).get_to(*out);
    } catch (const json::exception&) {  // a job of another time: what is no text names nothing
    }
  };
  take("load", &beginning.load);
  take("load_tag", &beginning.load_tag);
  take("load_kind", &beginning.load_kind);
  take("fresh", &beginning.fresh);
  return beginning;
}

std::string TextOf(const RunBeginning& beginning) {
  std::vector<std::string> parts;
  if (!beginning.load.empty()) parts.push_back("load " + beginning.load);
  if (!beginning.load_tag.empty()) parts.push_back("load_tag " + beginning.load_tag);
  if (beginning.load_kind != RunBeginning().load_kind) parts.push_back(beginning.load_kind);
  if (beginning.fresh) parts.emplace_back("fresh");
  return parts.empty() ? "nothing is named" : fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace mt::checkpoint
