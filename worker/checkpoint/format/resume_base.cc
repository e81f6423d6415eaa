// Checkpoints are examined from the newest on until an intact one of the job is found.
#include "worker/checkpoint/format/resume_base.h"

#include <optional>
#include <utility>

#include "common/base/files.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/manifest.h"
#include "worker/checkpoint/format/root_marker.h"

namespace mt::checkpoint {
namespace {

enum class Condition {
  kIntact,
  kDamaged,     // it is there, and what it holds is not what was saved
  kUnreadable,  // the file system, or a newer format, does not let us see
  kOther,       // another run's, or job's
};

struct Examined {
  CheckpointId id;
  Condition condition = Condition::kIntact;
  std::string why;
  std::string digest;
};

// An error while something of a checkpoint was read: damage, or nothing that is known about it.
Condition ConditionOf(const Status& status) {
  return IsDamage(status) ? Condition::kDamaged : Condition::kUnreadable;
}

class Search {
 public:
  explicit Search(const BaseQuery& query) : query_(query), base_(query.base) {}

  StatusOr<BaseChoice> Run() {
    const StatusOr<std::vector<CheckpointId>> all = ListCheckpoints(query_.directory);
    if (!all.ok()) return Refuse(base::Message(all.status()));
    for (auto id = all->rbegin(); id != all->rend() && !newest_; ++id) {
      const Examined one = Examine(*id);
      if (one.condition == Condition::kUnreadable && IsBaseOrNewer(one.id)) {
        return Refuse(fmt::format("{} cannot be read: {}", FolderName(one.id), one.why));
      }
      Take(one);
    }
    const bool found = newest_ && IsBaseOrNewer(newest_->id) && !IsAnotherOne(*newest_);
    if (found || (newest_ && (base_is_damaged_ || base_.allow_older)))
      return BaseChoice{.load = newest_->id, .damaged = damaged_};
    return Refuse(WhatIsThere());
  }

 private:
  bool IsSameRoot() const { return !base_.root_id.empty() && base_.root_id == query_.root_id; }

  // Directory epochs of two roots have nothing to do with each other.
  bool IsBaseOrNewer(const CheckpointId& id) const {
    return id.step >= base_.step || (IsSameRoot() && base_.epoch > 0 && id.epoch > base_.epoch);
  }

  // Of the base's step and not the base: the job has been there twice, here and elsewhere.
  bool IsAnotherOne(const Examined& one) const {
    const bool later = IsSameRoot() && base_.epoch > 0 && one.id.epoch > base_.epoch;
    return one.id.step == base_.step && !later && !base_.digest.empty() &&
           one.digest != base_.digest;
  }

  // Whether it counts. A program from before runs had ids may have trained in between: what it
  // saved has the job alone.
  bool IsOwn(const Manifest& manifest) const {
    const std::string run = base_.run.empty() ? "" : RunOf(query_.runs, manifest);
    return run.empty() ? manifest.job_uid == base_.job_uid : run == base_.run;
  }

  Examined Examine(const CheckpointId& id) const {
    Examined out{.id = id, .condition = Condition::kIntact, .why = {}, .digest = {}};
    const std::string folder = base::JoinPath(query_.directory, FolderName(id));
    const auto failed = [&out](const Status& status) {
      out.condition = ConditionOf(status);
      out.why = base::Message(status);
      return out;
    };
    const auto text = base::ReadFile(base::JoinPath(folder, kManifestName));
    if (!text.ok()) return failed(text.status());
    out.digest = ManifestDigest(*text);
    const auto manifest = ReadManifest(query_.directory, id);
    if (!manifest.ok()) return failed(manifest.status());
    // What an earlier job left and this one reported as its own has the digest alone.
    if (!IsOwn(*manifest) && out.digest != base_.digest) {
      out.condition = Condition::kOther;
      return out;
    }
    if (const auto known = query_.damaged.find(id); known != query_.damaged.end()) {
      return failed(base::DataLoss("{}", known->second));
    }
    if (id.epoch == base_.epoch && IsSameRoot() && IsAnotherOne(out)) {
      return failed(base::DataLoss("its manifest is not the one that was saved (digest {}, not {})",
                                   out.digest, base_.digest));
    }
    if (const Status files = CheckFiles(folder, *manifest); !files.ok()) return failed(files);
    return out;
  }

  void Take(const Examined& one) {
    switch (one.condition) {
      case Condition::kIntact:
        newest_ = one;
        return;
      case Condition::kDamaged:
        base_is_damaged_ |= IsBaseOrNewer(one.id);
        damaged_.push_back(fmt::format("{}: {}", FolderName(one.id), one.why));
        return;
      case Condition::kOther:
        ++others_;
        return;
      case Condition::kUnreadable:
        return;
    }
  }

  const char* Whose() const { return base_.run.empty() ? "job" : "run"; }

  std::string WhatIsThere() const {
    std::string text;
    if (newest_ && IsAnotherOne(*newest_)) {
      text = fmt::format("{} there is another one ({})", FolderName(newest_->id), newest_->digest);
    } else if (newest_) {
      text = fmt::format("the newest one of the {} there is of step {} ({})", Whose(),
                         newest_->id.step, FolderName(newest_->id));
    } else if (!base::Exists(query_.directory)) {
      text = "that folder is missing";
    } else {
      text = fmt::format("there is no intact one of the {}", Whose());
    }
    if (others_ > 0) text += fmt::format(", {} of other {}s", others_, Whose());
    for (const std::string& damaged : damaged_) text += fmt::format("; damaged: {}", damaged);
    return text;
  }

  std::string WhichRoot() const {
    const std::string& root = query_.root;
    if (!base::Exists(root)) {
      return fmt::format("the checkpoint root {} is missing: is it mounted?", root);
    }
    if (base_.root_id.empty()) return fmt::format("root {}", root);
    if (IsSameRoot()) return fmt::format("root {} is the one in which it was saved", root);
    return fmt::format("root {}: this is another root ({}; it was saved in the one with id {})",
                       root,
                       query_.root_id.empty() ? fmt::format("without {}", kRootMarkerName)
                                              : fmt::format("id {}", query_.root_id),
                       base_.root_id);
  }

  Status Refuse(const std::string& what) const {
    const char* rest = newest_ ? "go on from an older checkpoint (mtctl resume --allow-older), or "
                                 "start at step 0 (--fresh)"
                               : "start at step 0 (mtctl resume --fresh)";
    return base::FailedPrecondition(
        "the checkpoint of step {}{} is expected in {}, but {}; {}; bring it back, or {}",
        base_.step, base_.digest.empty() ? "" : fmt::format(" ({})", base_.digest),
        query_.directory, what, WhichRoot(), rest);
  }

  const BaseQuery& query_;
  const ResumeBase& base_;
  std::optional<Examined> newest_;  // intact one of the run, or of the job
  bool base_is_damaged_ = false;    // the base, or a newer one
  std::vector<std::string> damaged_;
  int others_ = 0;
};

}  // namespace

StatusOr<BaseChoice> ChooseByBase(const BaseQuery& query) { return Search(query).Run(); }

}  // namespace mt::checkpoint
