// One settling: ranks form classes by a digest of what they miss, the first rank of each class
// broadcasts what it knows, times its share, and broadcasts the times.
#include "worker/tuning/tuning.h"

#include <chrono>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/ids.h"
#include "common/base/log.h"
#include "worker/failure/failure.h"
#include "worker/tuning/tuning_cache.h"

namespace mt::tuning {
namespace {

using kernels::TuningEntry;
using nlohmann::json;
using Choices = std::map<std::string, std::string>;

constexpr int kVersion = 1;

std::vector<TuningEntry> EntriesOf(const Choices& choices) {
  std::vector<TuningEntry> entries;
  entries.reserve(choices.size());
  for (const auto& [key, choice] : choices) entries.push_back({key, choice});
  return entries;
}

Choices ChoicesOf(const std::vector<TuningEntry>& entries) {
  Choices choices;
  for (const TuningEntry& entry : entries) choices[entry.key] = entry.choice;
  return choices;
}

Status Timed(kernels::TuningTable* table, const std::vector<std::string>& keys) {
  try {
    return table->Time(keys);
  } catch (const kernels::DeviceMemoryError& error) {
    return NoMemoryForChoices(error);
  }
}

// A class of ranks as its first rank describes it to all.
struct ClassView {
  int leader = 0;
  std::string identity;
  std::set<std::string> planned;  // keys without an entry in its table
  Choices own, cached;            // those of its table, those of its cache on disk
  TuningTables stored;            // rank 0: those of the checkpoint

  std::string ToText() const {
    return json{{"identity", identity},
                {"planned", planned},
                {"own", own},
                {"cached", cached},
                {"stored", stored}}
        .dump();
  }
  static ClassView FromText(int leader, const std::string& text) {
    const json in = json::parse(text);
    return {.leader = leader,
            .identity = in.at("identity"),
            .planned = in.at("planned"),
            .own = in.at("own"),
            .cached = in.at("cached"),
            .stored = in.at("stored")};
  }
};

// One settling on one rank.
class Settling {
 public:
  explicit Settling(const SettleArgs& args)
      : args_(args), cache_(args.cache_root, args.table->Identity()) {}

  StatusOr<SettledTuning> Run();

 private:
  Status FindClasses();
  Status HearLeaders();
  // Adds choices of `from` that `known_` lacks.
  void Learn(const std::string& identity, const Choices& from);
  // Imports the known choices of this rank's device into its table.
  Status Import();
  // The keys that this rank times: those without a choice for its kind of device, except what a
  // class with a lower first rank has planned too.
  std::vector<std::string> MyShare() const;
  Status TimeShare();
  Status HearTimes();
  void Count();
  // The choice in the cache on disk; the first rank of a class has read its own at the start.
  std::optional<std::string> OnDisk(const std::string& key) const;
  void KeepInCache() const;
  bool leads() const { return leaders_.contains(args_.exchange->rank()); }

  const SettleArgs& args_;
  const TuningCache cache_;
  ClassView mine_;
  std::set<int> leaders_;
  std::vector<ClassView> classes_;
  TuningTables known_;
  std::set<std::string> refused_;  // keys of known choices that this rank's library does not accept
  Choices timed_;
  SettledTuning out_;
};

StatusOr<SettledTuning> Settling::Run() {
  const base::MonotonicTime begin = args_.clock->Now();
  RETURN_IF_ERROR(FindClasses());
  RETURN_IF_ERROR(HearLeaders());
  RETURN_IF_ERROR(args_.exchange->Agree(Import()));
  const Status timed = TimeShare();
  const Status all = args_.exchange->Agree(timed);
  RETURN_IF_ERROR(timed);
  RETURN_IF_ERROR(all);
  RETURN_IF_ERROR(HearTimes());
  RETURN_IF_ERROR(args_.exchange->Agree(Import()));
  Count();
  KeepInCache();
  out_.tables = std::move(known_);
  out_.seconds = std::chrono::duration<double>(args_.clock->Now() - begin).count();
  return std::move(out_);
}

Status Settling::FindClasses() {
  const std::vector<std::string> missing = args_.table->Missing();
  mine_.identity = args_.table->Identity();
  mine_.planned = {missing.begin(), missing.end()};
  mine_.own = ChoicesOf(args_.table->Entries());
  std::string class_text = mine_.identity;
  for (const std::string& key : mine_.planned) class_text.append("\n").append(key);
  for (const auto& [key, choice] : mine_.own) {
    class_text.append("\n").append(key).append("\n").append(choice);
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   args_.exchange->AllGather(base::Hash128Hex(class_text)));
  std::set<std::string> seen;
  for (size_t r = 0; r < names.size(); ++r) {
    if (seen.insert(names[r]).second) leaders_.insert(static_cast<int>(r));
  }
  return OkStatus();
}

Status Settling::HearLeaders() {
  const int rank = args_.exchange->rank();
  if (rank == 0) mine_.stored = args_.stored;
  if (leads()) {
    for (const std::string& key : mine_.planned) {
      if (auto choice = cache_.Find(key)) mine_.cached[key] = *std::move(choice);
    }
  }
  for (const int leader : leaders_) {
    ASSIGN_OR_RETURN(
        const std::string text,
        args_.exchange->Broadcast(leader == rank ? mine_.ToText() : std::string(), leader));
    classes_.push_back(ClassView::FromText(leader, text));
  }
  // The checkpoint's before any other, then what ranks hold, then what their disks do.
  known_ = classes_.front().stored;
  for (const ClassView& view : classes_) Learn(view.identity, view.own);
  for (const ClassView& view : classes_) Learn(view.identity, view.cached);
  const TuningTables& stored = classes_.front().stored;
  if (!stored.empty() && !stored.contains(mine_.identity)) {
    log::Warn(
        "the checkpoint's tuning is of another device or library: equal to rounding, not to "
        "the bit",
        {{"checkpoint", stored.begin()->first}, {"now", mine_.identity}});
  }
  return OkStatus();
}

void Settling::Learn(const std::string& identity, const Choices& from) {
  if (!from.empty()) known_[identity].insert(from.begin(), from.end());
}

Status Settling::Import() {
  const auto known = known_.find(mine_.identity);
  if (known == known_.end()) return OkStatus();
  ASSIGN_OR_RETURN(const std::vector<std::string> refused,
                   args_.table->Import(mine_.identity, EntriesOf(known->second)));
  for (const std::string& key : refused) {
    log::Warn("a stored choice is not accepted here: it is timed anew", {{"key", key}});
    known->second.erase(key);
    refused_.insert(key);
  }
  return OkStatus();
}

std::vector<std::string> Settling::MyShare() const {
  std::vector<std::string> share;
  if (!leads()) return share;
  const auto known = known_.find(mine_.identity);
  std::set<std::string> taken;
  for (const ClassView& view : classes_) {
    if (view.identity != mine_.identity) continue;
    for (const std::string& key : view.planned) {
      if (known != known_.end() && known->second.contains(key)) continue;
      if (taken.insert(key).second && view.leader == args_.exchange->rank()) share.push_back(key);
    }
  }
  return share;
}

Status Settling::TimeShare() {
  const std::vector<std::string> share = MyShare();
  if (share.empty()) return OkStatus();
  log::Info("timing products", {{"choices", share.size()}});
  for (const std::string& key : share) {
    RETURN_IF_ERROR(Timed(args_.table, {key}));
    if (args_.progress) args_.progress();
  }
  const std::set<std::string> wanted(share.begin(), share.end());
  for (const TuningEntry& entry : args_.table->Entries()) {
    if (wanted.contains(entry.key)) timed_[entry.key] = entry.choice;
  }
  return OkStatus();
}

Status Settling::HearTimes() {
  for (const ClassView& view : classes_) {
    ASSIGN_OR_RETURN(
        const std::string text,
        args_.exchange->Broadcast(
            view.leader == args_.exchange->rank() ? json(timed_).dump() : std::string(),
            view.leader));
    // Each was unknown, or refused where it was timed.
    for (const auto& [key, choice] : json::parse(text).get<Choices>()) {
      known_[view.identity][key] = choice;
    }
  }
  return OkStatus();
}

void Settling::Count() {
  const auto stored = classes_.front().stored.find(mine_.identity);
  for (const std::string& key : mine_.planned) {
    const bool usable = !refused_.contains(key);
    if (timed_.contains(key)) {
      ++out_.timed;
    } else if (usable && stored != classes_.front().stored.end() && stored->second.contains(key)) {
      ++out_.from_checkpoint;
    } else if (usable && mine_.cached.contains(key)) {
      ++out_.from_cache;
    } else {
      ++out_.received;
    }
  }
}

std::optional<std::string> Settling::OnDisk(const std::string& key) const {
  if (!leads()) return cache_.Find(key);
  const auto cached = mine_.cached.find(key);
  return cached == mine_.cached.end() ? std::nullopt : std::optional(cached->second);
}

void Settling::KeepInCache() const {
  const auto known = known_.find(mine_.identity);
  if (known == known_.end()) return;
  for (const std::string& key : mine_.planned) {
    const auto choice = known->second.find(key);
    if (choice == known->second.end()) continue;
    if (OnDisk(key) == choice->second) continue;
    const Status kept = cache_.Keep({key, choice->second});
    if (kept.ok()) continue;
    log::Warn("the tuning cache cannot be written; the next job times again",
              {{"why", base::Message(kept)}});
    return;
  }
}

}  // namespace

std::string ToJson(const TuningTables& tables) {
  json list = json::array();
  for (const auto& [identity, choices] : tables) {
    list.push_back({{"identity", identity}, {"choices", choices}});
  }
  return json{{"version", kVersion}, {"tables", std::move(list)}}.dump();
}

StatusOr<TuningTables> ParseTuningTables(const std::string& text) {
  const json in = json::parse(text, nullptr, /*allow_exceptions=*/false);
  TuningTables tables;
  try {
    if (in.at("version") != kVersion) {
      return base::DataLoss("tuning: version {}, not {}", in.at("version").dump(), kVersion);
    }
    for (const json& table : in.at("tables")) {
      tables[table.at("identity")] = table.at("choices").get<Choices>();
    }
  } catch (const json::exception& error) {
    return base::DataLoss("tuning: {}", error.what());
  }
  return tables;
}

Status NoMemoryForChoices(const kernels::DeviceMemoryError& error) {
  return failure::WithCause(
      base::Error(absl::StatusCode::kResourceExhausted,
                  "out of memory while algorithms are chosen, before anything else "
                  "was taken: {}; is the device another process' too?",
                  error.what()),
      failure::Cause::kOutOfMemory);
}

Status MakeReady(kernels::Backend* backend) {
  kernels::TuningTable* const table = backend->tuning();
  if (table != nullptr) RETURN_IF_ERROR(Timed(table, table->Missing()));
  try {
    backend->RunPlanned();
  } catch (const kernels::DeviceMemoryError& error) {
    return NoMemoryForChoices(error);
  }
  return OkStatus();
}

StatusOr<SettledTuning> SettleTuning(const SettleArgs& args) {
  CHECK(args.table != nullptr && args.exchange != nullptr && args.clock != nullptr);
  ASSIGN_OR_RETURN(SettledTuning settled, Settling(args).Run());
  log::Info("products are chosen", {{"from_checkpoint", settled.from_checkpoint},
                                    {"from_cache", settled.from_cache},
                                    {"timed", settled.timed},
                                    {"received", settled.received},
                                    {"seconds", settled.seconds}});
  return settled;
}

}  // namespace mt::tuning
