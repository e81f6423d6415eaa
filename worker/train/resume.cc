// Rank 0 decides and hands its decision to all as JSON; every rank then loads its own slices.
#include "worker/train/resume.h"

#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>

#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "common/base/log.h"
#include "common/rpc/reason.h"
#include "common/spec/derived.h"
#include "common/spec/print.h"
#include "common/spec/roots.h"
#include "megatrain/v1/job.pb.h"
#include "worker/checkpoint/format/label.h"
#include "worker/checkpoint/format/root_marker.h"
#include "worker/checkpoint/format/run_choice.h"
#include "worker/checkpoint/second_copy.h"
#include "worker/failure/failure.h"

namespace mt::train {
namespace {

using checkpoint::CheckpointId;
using checkpoint::Manifest;
using megatrain::v1::JobSpec;
using nlohmann::json;

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
Status FindTagged(const StartArgs& args, StartPoint* start) {
  const auto& options = args.job->checkpoint();
  start->load_directory = start->directory;
  if (!options.load().empty()) {
    ASSIGN_OR_RETURN(start->load_directory,
                     spec::ResolveBelow(args.checkpoint_root, options.load()));
    RETURN_IF_ERROR(CheckFenceFile(args.checkpoint_root, options.load(), checkpoint::kFenceName));
  }
  ASSIGN_OR_RETURN(start->load, checkpoint::FindByTag(start->load_directory, options.load_tag()));
  return OkStatus();
}

// Finds the checkpoint that `checkpoint.load` and `load_tag` ask for, else the newest one of the
// run's directory.
Status FindCheckpoint(const StartArgs& args, StartPoint* start) {
  const auto& options = args.job->checkpoint();
  if (!options.load_tag().empty()) return FindTagged(args, start);
  if (options.has_load() && !options.load().empty()) {
    if (!start->directory.empty() && IsStepOrFolderName(options.load())) {
      ASSIGN_OR_RETURN(start->load, checkpoint::FindByName(start->directory, options.load()));
      start->load_directory = start->directory;
      return OkStatus();
    }
    return FindByPath(args.checkpoint_root, options.load(), start);
  }
  if (start->directory.empty()) return OkStatus();
  ASSIGN_OR_RETURN(const auto newest, checkpoint::FindNewest(start->directory));
  if (options.fresh()) {
    if (newest) log::Warn("starts at step 0 over checkpoints", {{"newest", newest->step}});
    return OkStatus();
  }
  start->load_directory = start->directory;
  start->load = newest;
  return OkStatus();
}

// Whether the base says what the run goes on from.
bool IsBound(const StartArgs& args) {
  const auto& options = args.job->checkpoint();
  return args.base != nullptr && !options.fresh() && options.load().empty() &&
         options.load_tag().empty();
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
  const auto choice = checkpoint::ChooseByBase({.root = args.checkpoint_root,
                                                .root_id = start->root_id,
                                                .directory = start->directory,
                                                .base = *args.base,
                                                .damaged = args.damaged});
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

// What a run with a directory of its own takes, once nobody else can change it.
Status Choose(const StartArgs& args, StartPoint* start) {
  return start->bound ? ChooseBound(args, start) : FindCheckpoint(args, start);
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
    RETURN_IF_ERROR(FindCheckpoint(args, &start));
    return start;
  }
  start.bound = IsBound(args);
  RETURN_IF_ERROR(FindDirectory(args, relative, &start));
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
  for (const std::string& damaged : start.damaged)
    log::Warn("a damaged checkpoint is passed over", {{"what", damaged}});
  return start;
}

std::string ToText(const StartPoint& start) {
  json out = {{"directory", start.directory},
              {"epoch", start.epoch},
              {"root_id", start.root_id},
              {"bound", start.bound},
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

void Say(const NamedRun& run, const StartPoint& start) {
  const checkpoint::RunRecord& record = run.record;
  if (!run.begins) {
    log::Info("goes on with a run",
              {{"run", record.id}, {"step", start.load ? start.load->step : 0}});
  } else if (!record.parent.empty()) {
    log::Warn("its checkpoints are copies of another run's: a run begins",
              {{"run", record.id}, {"parent", record.parent}, {"directory", record.place.path}});
  } else {
    log::Info("a run begins", {{"run", record.id}, {"beginning", TextOf(record.beginning)}});
  }
}

StatusOr<NamedRun> DecideRun(const StartArgs& args, StartPoint* start) {
  checkpoint::RunQuery query{.directory = start->directory,
                             .place = PlaceOf(args, *start),
                             .epoch = start->epoch,
                             .beginning = checkpoint::BeginningOf(spec::ToJson(*args.job)),
                             .job_uid = args.job_uid,
                             .job_name = args.job->name(),
                             .fence_run = start->fence ? start->fence->run : ""};
  if (start->load) {
    query.loaded_here = start->load_directory == start->directory;
    StatusOr<checkpoint::RunSource> source = SourceOf(args, *start, *start->load);
    // Whoever saves in another directory may have removed it there since it was loaded.
    if (!source.ok() && !query.loaded_here) source = checkpoint::RunSource{.id = *start->load};
    ASSIGN_OR_RETURN(query.loaded, std::move(source));
  }
  ASSIGN_OR_RETURN(checkpoint::RunChoice choice, checkpoint::ChooseRun(query));
  if (start->fence) {
    const auto write = [&] { return checkpoint::WriteRuns(start->directory, choice.all); };
    RETURN_IF_ERROR(checkpoint::NameRun(start->directory, choice.run.id, write, &*start->fence));
  }
  if (!choice.list_of.empty()) {
    log::Warn("the list of runs is another directory's: it was copied here",
              {{"file", base::JoinPath(start->directory, checkpoint::kRunListName)},
               {"from", choice.list_of}});
  }
  NamedRun run{
      .record = std::move(choice.run), .begins = choice.begins, .loaded = std::move(choice.loaded)};
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
    const Status chosen = ChooseBound(*args, &*mine);
    if (chosen.ok()) {
      log::Warn("a damaged checkpoint is passed over", {{"what", mine->damaged.front()}});
    } else {
      mine = chosen;
    }
  }
  return Spread(std::move(mine), exchange);
}

StatusOr<NamedRun> NameRun(const StartArgs& args, StartPoint* start,
                           checkpoint::Exchange* exchange) {
  StatusOr<NamedRun> mine = NamedRun{};
  if (exchange->rank() == 0) mine = DecideRun(args, start);
  const Status all = exchange->Agree(mine.status());
  if (!all.ok()) return mine.ok() ? failure::WithCause(all, failure::Cause::kNetwork) : mine;
  ASSIGN_OR_RETURN(mine->record.id, exchange->Broadcast(mine->record.id, 0));
  return mine;
}

}  // namespace mt::train
