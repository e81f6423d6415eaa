// Rank 0 decides and hands its decision to all as JSON; every rank then loads its own slices.
#include "worker/train/resume.h"

#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "common/base/log.h"
#include "common/rpc/reason.h"
#include "common/spec/derived.h"
#include "common/spec/print.h"
#include "common/spec/roots.h"
#include "megatrain/v1/job.pb.h"
#include "worker/checkpoint/format/intact.h"
#include "worker/checkpoint/format/label.h"
#include "worker/checkpoint/format/root_marker.h"
#include "worker/checkpoint/format/run_choice.h"
#include "worker/checkpoint/second_copy.h"
#include "worker/failure/failure.h"

namespace mt::train {
namespace {

using checkpoint::CheckpointId;
using checkpoint::Manifest;
using checkpoint::RunBeginning;
using megatrain::v1::JobSpec;
using nlohmann::json;

// checkpoint.load_kind
constexpr std::string_view kWeightsAlone = "weights";
constexpr std::string_view kHuggingFace = "hf", kLlmC = "llmc";

RunBeginning BeginningOf(const StartArgs& args) {
  return checkpoint::BeginningOf(spec::ToJson(*args.job));
}

// What a directory's fence is read from, or locked by, is no link that leaves the root.
Status CheckFenceFile(const std::string& root, const std::string& directory,
                      std::string_view name) {
  return spec::ResolveBelow(root, base::JoinPath(directory, name)).status();
}

// `load` is a path below the root: of a checkpoint's folder, or of a directory of checkpoints.
Status FindByPath(const std::string& root, const std::string& load, StartPoint* start) {
  ASSIGN_OR_RETURN(const std::string path, spec::ResolveBelow(root, load));
  const size_t slash = path.find_last_of('/');
  if (const auto id = checkpoint::ParseFolderName(path.substr(slash + 1))) {
    start->load_directory = path.substr(0, slash);
    start->load = id;
    return checkpoint::ReadManifest(start->load_directory, *id, spec::BelowRoot(root)).status();
  }
  start->load_directory = path;
  RETURN_IF_ERROR(CheckFenceFile(root, load, checkpoint::kFenceName));
  ASSIGN_OR_RETURN(start->load, checkpoint::FindNewest(path));
  if (start->load) return OkStatus();
  return base::NotFound("checkpoint.load: there is no checkpoint in {}", path);
}

bool IsStepOrFolderName(const std::string& load) {
  return load.find_first_not_of("0123456789") == std::string::npos ||
         checkpoint::ParseFolderName(load).has_value();
}

// The checkpoint that a tag names: in the directory that `load` is, else in the run's.
Status FindTagged(const StartArgs& args, const RunBeginning& beginning, StartPoint* start) {
  start->load_directory = start->directory;
  if (!beginning.load.empty()) {
    ASSIGN_OR_RETURN(start->load_directory,
                     spec::ResolveBelow(args.checkpoint_root, beginning.load));
    RETURN_IF_ERROR(CheckFenceFile(args.checkpoint_root, beginning.load, checkpoint::kFenceName));
  }
  ASSIGN_OR_RETURN(start->load, checkpoint::FindByTag(start->load_directory, beginning.load_tag));
  return OkStatus();
}

// Finds the checkpoint that a beginning names; none is step 0.
Status FindNamed(const StartArgs& args, const RunBeginning& beginning, StartPoint* start) {
  if (!beginning.load_tag.empty()) return FindTagged(args, beginning, start);
  if (beginning.load.empty()) return OkStatus();
  if (!start->directory.empty() && IsStepOrFolderName(beginning.load)) {
    ASSIGN_OR_RETURN(start->load, checkpoint::FindByName(start->directory, beginning.load));
    start->load_directory = start->directory;
    return OkStatus();
  }
  return FindByPath(args.checkpoint_root, beginning.load, start);
}

// A run that begins again does so from the checkpoint that it began from, where that is there as it
// was: what its beginning names may be a newer one by now.
void TakeSource(const StartArgs& args, const checkpoint::RunRecord& run, StartPoint* start) {
  if (!start->load || !run.from || run.from->digest.empty()) return;
  const CheckpointId& id = run.from->id;
  const std::string folder = base::JoinPath(start->load_directory, checkpoint::FolderName(id));
  const auto text = base::ReadFile(base::JoinPath(folder, checkpoint::kManifestName),
                                   spec::BelowRoot(args.checkpoint_root));
  if (text.ok() && checkpoint::ManifestDigest(*text) == run.from->digest) start->load = id;
}

// The run begins, or begins again: as its beginning says.
Status Begin(const StartArgs& args, StartPoint* start) {
  const checkpoint::RunRecord& run = start->run.run;
  const std::string& kind = run.beginning.load_kind;
  if (kind == kHuggingFace || kind == kLlmC) {
    ASSIGN_OR_RETURN(start->foreign, spec::ResolveBelow(args.checkpoint_root, run.beginning.load));
    start->foreign_kind = kind;
  } else {
    RETURN_IF_ERROR(FindNamed(args, run.beginning, start));
  }
  if (!start->run.begins) TakeSource(args, run, start);
  start->weights = start->load && kind == kWeightsAlone;
  if (start->load || start->directory.empty()) return OkStatus();
  ASSIGN_OR_RETURN(const auto newest, checkpoint::FindNewest(start->directory));
  if (newest) log::Warn("starts at step 0 over checkpoints", {{"newest", newest->step}});
  return OkStatus();
}

// Where nothing of the run can be gone on from.
Status NothingIntact(const StartPoint& start, const std::vector<std::string>& damaged) {
  const checkpoint::RunRecord& run = start.run.run;
  constexpr std::string_view kInstead =
      "bring one back or, to begin another run on purpose, --restart (mtctl submit, mt-rank "
      "--standalone); nothing is deleted";
  if (damaged.empty()) {
    return base::DataLoss("run {} began from step {} of run {}, which is in {} no more: {}", run.id,
                          run.from ? run.from->id.step : 0, start.run.of, start.directory,
                          kInstead);
  }
  return base::DataLoss("no checkpoint of run {} in {} is intact ({}): {}", start.run.of,
                        start.directory, fmt::join(damaged, "; "), kInstead);
}

// The newest intact checkpoint of the run; where it has none, its beginning.
Status ChooseOfRun(const StartArgs& args, StartPoint* start) {
  const checkpoint::RunChoice& run = start->run;
  if (run.of.empty()) return Begin(args, start);
  const StatusOr<checkpoint::IntactChoice> found =
      checkpoint::ChooseIntact({.directory = start->directory,
                                .run = run.of,
                                .candidates = run.checkpoints,
                                .damaged = args.damaged,
                                .open = spec::BelowRoot(args.checkpoint_root)});
  // A newer format, or a link that leaves the root, is the job's.
  const Status& status = found.status();
  if (!found.ok() && !absl::IsFailedPrecondition(status) && !absl::IsPermissionDenied(status))
    return failure::WithCause(status, failure::Cause::kStorage);
  RETURN_IF_ERROR(status);
  const checkpoint::IntactChoice& choice = *found;
  start->damaged = choice.damaged;
  if (!choice.load) {
    // Its epoch's folders are copies of another's, and it has saved nothing.
    if (run.of == run.run.id && choice.damaged.empty()) return Begin(args, start);
    return NothingIntact(*start, choice.damaged);
  }
  start->load_directory = start->directory;
  start->load = choice.load;
  start->own = true;
  return OkStatus();
}

// Whether the base says what the run goes on from.
bool IsBound(const StartArgs& args) {
  return args.base != nullptr && (!args.base->run.empty() || !BeginningOf(args).named());
}

// The runs of the directory as it is before its fence is raised.
StatusOr<checkpoint::RunList> RunsOf(const StartArgs& args, const StartPoint& start) {
  if (!base::Exists(base::JoinPath(start.directory, checkpoint::kRunListName)))
    return checkpoint::RunList();
  return checkpoint::ReadRuns(start.directory, spec::BelowRoot(args.checkpoint_root));
}

// A run that begins on purpose expects nothing of what the job has saved before; it is bound once
// it has begun.
StatusOr<bool> StaysBound(const StartArgs& args, const StartPoint& start) {
  if (!start.bound || args.restart.empty()) return start.bound;
  ASSIGN_OR_RETURN(const checkpoint::RunList runs, RunsOf(args, start));
  const std::string& expected = args.base->run;
  const checkpoint::RunRecord* const began = checkpoint::FindRestarted(runs, args.restart);
  if (began != nullptr) return expected == began->id;
  return !expected.empty() && checkpoint::FindRun(runs, expected) == nullptr;
}

// What is said of a start whose base is not there. The job waits for it: it is no fault of the job.
Status BaseMissing(const Status& status) {
  return rpc::WithReason(failure::WithCause(status, failure::Cause::kStorage),
                         rpc::reason::kExpectedCheckpointMissing);
}

// The id in the root's marker; empty where it has none or it cannot be read.
std::string RootId(const std::string& root) {
  const auto marker = checkpoint::ReadRootMarker(root);
  if (!marker.ok()) return "";
  const std::optional<checkpoint::RootMarker>& found = *marker;
  return found ? found->id : "";
}

Status CheckRoot(const StartArgs& args) {
  if (args.make_root) return base::MakeDirs(args.checkpoint_root);
  if (base::Exists(args.checkpoint_root)) return OkStatus();
  return failure::WithCause(
      base::NotFound("the checkpoint root {} is missing on this node: mount it or, where it is to "
                     "be a new one, make the folder; no rank makes it",
                     args.checkpoint_root),
      failure::Cause::kStorage);
}

Status ChooseBound(const StartArgs& args, StartPoint* start) {
  checkpoint::RunList runs;
  if (!args.base->run.empty()) {
    ASSIGN_OR_RETURN(runs, RunsOf(args, *start));
  }
  const auto choice = checkpoint::ChooseByBase({.root = args.checkpoint_root,
                                                .root_id = start->root_id,
                                                .directory = start->directory,
                                                .base = *args.base,
                                                .damaged = args.damaged,
                                                .runs = std::move(runs)});
  if (!choice.ok()) return BaseMissing(choice.status());
  start->load_directory = start->directory;
  start->load = choice->load;
  start->damaged = choice->damaged;
  return OkStatus();
}

// Where the directory is: below the root, which is there unless the run is bound.
Status FindDirectory(const StartArgs& args, const std::string& relative, StartPoint* start) {
  const Status root = CheckRoot(args);
  if (!root.ok() && start->bound) {
    // ChooseBound says what is expected and what is missing.
    start->directory = base::JoinPath(args.checkpoint_root, relative);
    return ChooseBound(args, start);
  }
  RETURN_IF_ERROR(root);
  const StatusOr<std::string> directory = spec::ResolveBelow(args.checkpoint_root, relative);
  // A link to a volume that is not mounted leads nowhere.
  if (!directory.ok() && start->bound) {
    return BaseMissing(base::FailedPrecondition("the checkpoint of step {} is expected, but {}",
                                                args.base->step,
                                                base::Message(directory.status())));
  }
  RETURN_IF_ERROR(directory.status());
  start->directory = *directory;
  start->root_id = RootId(args.checkpoint_root);
  return OkStatus();
}

// The checkpoint that was loaded, as its own directory tells of it.
StatusOr<checkpoint::RunSource> SourceOf(const StartArgs& args, const StartPoint& start,
                                         const CheckpointId& id) {
  const base::FileOpener open = spec::BelowRoot(args.checkpoint_root);
  const std::string folder = base::JoinPath(start.load_directory, checkpoint::FolderName(id));
  ASSIGN_OR_RETURN(const std::string text,
                   base::ReadFile(base::JoinPath(folder, checkpoint::kManifestName), open));
  ASSIGN_OR_RETURN(const Manifest manifest, checkpoint::ParseManifest(text));
  checkpoint::RunSource source{
      .run = manifest.run, .id = id, .digest = checkpoint::ManifestDigest(text)};
  if (source.run.empty() && start.load_directory != start.directory) {
    // A list there that cannot be read is not this run's to mend.
    const auto list = checkpoint::ReadRuns(start.load_directory, open);
    if (list.ok()) source.run = checkpoint::RunOf(*list, manifest);
  }
  return source;
}

// However the directory was named.
checkpoint::RunPlace PlaceOf(const StartArgs& args, const StartPoint& start) {
  if (start.directory.empty()) return {};
  std::error_code error;  // then the place is told by its path
  const auto below = std::filesystem::relative(start.directory, args.checkpoint_root, error);
  return {.root_id = start.root_id, .directory = below.string(), .path = start.directory};
}

checkpoint::RunQuery QueryOf(const StartArgs& args, const StartPoint& start) {
  checkpoint::RunQuery query{.directory = start.directory,
                             .place = PlaceOf(args, start),
                             .epoch = start.epoch,
                             .beginning = BeginningOf(args),
                             .job_uid = args.job_uid,
                             .job_name = args.job->name(),
                             .restart = args.restart};
  if (!start.fence) return query;
  query.fence_run = start.fence->run;
  const auto newest = start.fence->bases.find(start.epoch);
  if (newest != start.fence->bases.end()) query.newest = newest->second;
  return query;
}

// One line for each, with both steps.
void SayPassedOver(const StartPoint& start, size_t from) {
  const std::string taken =
      start.load ? fmt::format("goes on from step {}", start.load->step) : "begins again";
  for (size_t i = from; i < start.damaged.size(); ++i) {
    log::Warn("a damaged checkpoint is passed over",
              {{"what", fmt::format("{}; {}", start.damaged[i], taken)}});
  }
}

// The run, then the checkpoint, once nobody else can change the directory. A base that does not
// know the run tells it by its checkpoint.
Status Choose(const StartArgs& args, StartPoint* start) {
  checkpoint::RunQuery query = QueryOf(args, *start);
  if (start->bound) {
    RETURN_IF_ERROR(ChooseBound(args, start));
    query.bound_run = args.base->run;
    if (start->load) {
      ASSIGN_OR_RETURN(query.bound, SourceOf(args, *start, *start->load));
    }
  }
  ASSIGN_OR_RETURN(start->run, checkpoint::ChooseRun(query));
  return start->bound ? OkStatus() : ChooseOfRun(args, start);
}

// A run that copies its checkpoints here prunes here (checkpoint.second).
Status CheckHoldsNoCopies(const std::string& root, const std::string& relative,
                          const std::string& directory) {
  RETURN_IF_ERROR(CheckFenceFile(root, relative, checkpoint::kSecondMarkerName));
  const StatusOr<std::string> of = checkpoint::CopiesIn(directory);
  if (absl::IsNotFound(of.status())) return OkStatus();
  RETURN_IF_ERROR(of.status());
  return base::FailedPrecondition(
      "checkpoint.directory: {} holds the copies of {} (its file {} says so), whose run removes "
      "old "
      "ones there: use another directory; to go on from a copy, checkpoint.load: {}/step-...",
      directory, *of, checkpoint::kSecondMarkerName, relative);
}

// The job's directory lies below the root, and so do its list of runs and what its fence is read
// from and locked by.
Status CheckDirectory(const std::string& root, const std::string& relative) {
  RETURN_IF_ERROR(spec::OpenBelow(root, relative, O_RDONLY | O_DIRECTORY).status());
  RETURN_IF_ERROR(CheckFenceFile(root, relative, checkpoint::kRunListName));
  RETURN_IF_ERROR(CheckFenceFile(root, relative, checkpoint::kFenceName));
  return CheckFenceFile(root, relative, checkpoint::kFenceLockName);
}

StatusOr<StartPoint> Decide(const StartArgs& args) {
  StartPoint start;
  const std::string relative = spec::CheckpointDirectory(*args.job);
  if (relative.empty()) {
    RETURN_IF_ERROR(Choose(args, &start));
    return start;
  }
  start.bound = IsBound(args);
  RETURN_IF_ERROR(FindDirectory(args, relative, &start));
  ASSIGN_OR_RETURN(start.bound, StaysBound(args, start));
  if (args.job->checkpoint().has_second()) {
    ASSIGN_OR_RETURN(start.second,
                     spec::ResolveBelow(args.checkpoint_root, args.job->checkpoint().second()));
  }
  // What is refused here leaves no trace.
  if (start.bound) RETURN_IF_ERROR(ChooseBound(args, &start));
  RETURN_IF_ERROR(base::MakeDirs(start.directory));
  RETURN_IF_ERROR(CheckDirectory(args.checkpoint_root, relative));
  RETURN_IF_ERROR(CheckHoldsNoCopies(args.checkpoint_root, relative, start.directory));
  RETURN_IF_ERROR(checkpoint::ReadRuns(start.directory).status());
  ASSIGN_OR_RETURN(start.fence, checkpoint::RaiseFence({.directory = start.directory,
                                                        .job_uid = args.job_uid,
                                                        .epoch = args.epoch,
                                                        .ended_job_uids = args.ended_job_uids,
                                                        .failpoint = args.fence_failpoint}));
  start.epoch = start.fence->directory_epoch;
  RETURN_IF_ERROR(Choose(args, &start));
  SayPassedOver(start, 0);
  return start;
}

std::string ToText(const StartPoint& start) {
  json out = {{"directory", start.directory},
              {"epoch", start.epoch},
              {"root_id", start.root_id},
              {"bound", start.bound},
              {"own", start.own},
              {"weights", start.weights},
              {"foreign", {start.foreign, start.foreign_kind}},
              {"load_directory", start.load_directory}};
  if (start.load) out["load"] = {start.load->step, start.load->epoch};
  return out.dump();
}

StartPoint FromText(const std::string& text) {
  const json in = json::parse(text);
  StartPoint start{.directory = in.at("directory"),
                   .epoch = in.at("epoch"),
                   .root_id = in.at("root_id"),
                   .load_directory = in.at("load_directory")};
  start.bound = in.at("bound");
  start.own = in.at("own");
  start.weights = in.at("weights");
  start.foreign = in.at("foreign")[0];
  start.foreign_kind = in.at("foreign")[1];
  if (in.contains("load")) start.load = CheckpointId{in.at("load")[0], in.at("load")[1]};
  return start;
}

StatusOr<StartPoint> Spread(StatusOr<StartPoint> mine, checkpoint::Exchange* exchange) {
  const Status all = exchange->Agree(mine.status());
  // Rank 0 knows why; the others leave because it does.
  if (!all.ok()) return mine.ok() ? failure::WithCause(all, failure::Cause::kNetwork) : mine;
  ASSIGN_OR_RETURN(const std::vector<std::string> texts, exchange->AllGather(ToText(*mine)));
  return exchange->rank() == 0 ? *mine : FromText(texts[0]);
}

// One line: which run, whether it begins, at which step, and how it began.
void Say(const NamedRun& run, const StartPoint& start) {
  const checkpoint::RunRecord& record = run.record;
  const int64_t step = start.load && !start.weights ? start.load->step : 0;
  const std::string beginning = TextOf(record.beginning);
  if (!run.begins && !record.beginning.named()) {
    log::Info("goes on with a run", {{"run", record.id}, {"step", step}});
  } else if (!run.begins) {
    log::Info("goes on with a run that began as a job says",
              {{"run", record.id}, {"step", step}, {"beginning", beginning}});
  } else if (!record.parent.empty()) {
    log::Warn("its checkpoints are copies of another run's: a run begins",
              {{"run", record.id}, {"parent", record.parent}, {"directory", record.place.path}});
  } else if (start.load) {
    log::Info("a run begins with a checkpoint", {{"run", record.id},
                                                 {"step", step},
                                                 {"beginning", beginning},
                                                 {"loaded_step", start.load->step},
                                                 {"loaded_run", run.loaded}});
  } else {
    log::Info("a run begins", {{"run", record.id}, {"beginning", beginning}});
  }
}

StatusOr<NamedRun> WriteRun(const StartArgs& args, StartPoint* start) {
  checkpoint::RunChoice& choice = start->run;
  std::optional<checkpoint::RunSource> loaded;
  const bool here = start->load_directory == start->directory;
  if (start->load) {
    StatusOr<checkpoint::RunSource> source = SourceOf(args, *start, *start->load);
    // Whoever saves in another directory may have removed it there since it was loaded.
    if (!source.ok() && !here) source = checkpoint::RunSource{.id = *start->load};
    ASSIGN_OR_RETURN(loaded, std::move(source));
  }
  std::string saved_by = checkpoint::SetSource(loaded, here, &choice);
  if (start->fence) {
    const auto write = [&] { return checkpoint::WriteRuns(start->directory, choice.all); };
    RETURN_IF_ERROR(checkpoint::NameRun(start->directory, choice.run.id, write, &*start->fence));
  }
  if (!choice.list_of.empty()) {
    log::Warn("the list of runs is another directory's: it was copied here",
              {{"file", base::JoinPath(start->directory, checkpoint::kRunListName)},
               {"from", choice.list_of}});
  }
  NamedRun run{.record = choice.run, .begins = choice.begins, .loaded = std::move(saved_by)};
  Say(run, *start);
  return run;
}

}  // namespace

StatusOr<StartPoint> FindStart(const StartArgs& args, checkpoint::Exchange* exchange) {
  StatusOr<StartPoint> mine = StartPoint{};
  if (exchange->rank() == 0) mine = Decide(args);
  return Spread(std::move(mine), exchange);
}

StatusOr<StartPoint> FindIntactStart(StartArgs* args, const StartPoint& start,
                                     const std::string& damage, checkpoint::Exchange* exchange) {
  ASSIGN_OR_RETURN(const std::vector<std::string> found, exchange->AllGather(damage));
  StatusOr<StartPoint> mine = start;
  if (exchange->rank() == 0) {
    for (const std::string& what : found) {
      if (!what.empty() && start.load) args->damaged.emplace(*start.load, what);
    }
    const size_t said = mine->damaged.size();
    const Status chosen = start.bound ? Choose(*args, &*mine) : ChooseOfRun(*args, &*mine);
    if (chosen.ok()) {
      SayPassedOver(*mine, said);
    } else {
      mine = chosen;
    }
  }
  return Spread(std::move(mine), exchange);
}

StatusOr<NamedRun> NameRun(const StartArgs& args, StartPoint* start,
                           checkpoint::Exchange* exchange) {
  StatusOr<NamedRun> mine = NamedRun{};
  if (exchange->rank() == 0) mine = WriteRun(args, start);
  const Status all = exchange->Agree(mine.status());
  if (!all.ok()) return mine.ok() ? failure::WithCause(all, failure::Cause::kNetwork) : mine;
  ASSIGN_OR_RETURN(mine->record.id, exchange->Broadcast(mine->record.id, 0));
  return mine;
}

}  // namespace mt::train
