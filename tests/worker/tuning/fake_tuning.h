// A table of timed choices without a device: what it plans, takes and refuses is set by the test,
// and each timing gives another choice, so that it shows whose came through.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/core/device.h"
#include "kernels/ops/backend.h"
#include "kernels/ops/tuning.h"

namespace mt::tuning {

class FakeTuning final : public kernels::TuningTable {
 public:
  explicit FakeTuning(std::string name, std::string identity = "lib 1, card")
      : name_(std::move(name)), identity_(std::move(identity)) {}

  std::set<std::string> planned;
  std::set<std::string> refuses;               // choices
  std::map<std::string, std::string> entries;  // by key
  std::vector<std::string> timed;              // in order
  bool out_of_memory = false;
  std::vector<std::string> ran;  // entries with which planned calls were run
  bool no_room_to_run = false;

  std::string Identity() const override { return identity_; }
  std::vector<std::string> Missing() const override {
    std::vector<std::string> keys;
    for (const std::string& key : planned) {
      if (!entries.contains(key)) keys.push_back(key);
    }
    return keys;
  }
  Status Time(const std::vector<std::string>& keys) override {
    if (out_of_memory) throw kernels::DeviceMemoryError("no memory for a buffer of 5 bytes");
    for (const std::string& key : keys) {
      timed.push_back(key);
      entries[key] = name_ + " " + std::to_string(timed.size());
    }
    return OkStatus();
  }
  std::vector<kernels::TuningEntry> Entries() const override {
    std::vector<kernels::TuningEntry> out;
    for (const auto& [key, choice] : entries) out.push_back({key, choice});
    return out;
  }
  StatusOr<std::vector<std::string>> Import(
      const std::string& identity, const std::vector<kernels::TuningEntry>& from) override {
    if (identity != identity_) return base::FailedPrecondition("{} is not {}", identity, identity_);
    std::vector<std::string> left_out;
    for (const kernels::TuningEntry& entry : from) {
      if (refuses.contains(entry.choice)) {
        left_out.push_back(entry.key);
      } else {
        entries[entry.key] = entry.choice;
      }
    }
    return left_out;
  }
  StatusOr<std::vector<kernels::TuningTime>> Survey(const std::string&) override {
    return std::vector<kernels::TuningTime>{};
  }

 private:
  const std::string name_, identity_;
};

// A backend with such a table; everything else is another's.
class TunedBackend final : public kernels::Backend {
 public:
  // `plain` outlives this.
  TunedBackend(kernels::Backend* plain, FakeTuning* tuning) : plain_(*plain), tuning_(tuning) {}
  kernels::Device& device() override { return plain_.device(); }
  const kernels::EmbeddingOps& embedding() const override { return plain_.embedding(); }
  const kernels::AddNormOps& add_norm() const override { return plain_.add_norm(); }
  kernels::LinearOps& linear() override { return plain_.linear(); }
  const kernels::ActOps& act() const override { return plain_.act(); }
  const kernels::RopeOps& rope() const override { return plain_.rope(); }
  kernels::AttentionOps& attention() override { return plain_.attention(); }
  const kernels::LossOps& loss() const override { return plain_.loss(); }
  const kernels::UpdateOps& update() const override { return plain_.update(); }
  const kernels::VectorOps& vector() const override { return plain_.vector(); }
  const kernels::RandomOps& random() const override { return plain_.random(); }
  kernels::TuningTable* tuning() override { return tuning_; }
  void RunPlanned() override {
    if (tuning_->no_room_to_run) throw kernels::DeviceMemoryError("no memory for a buffer");
    for (const kernels::TuningEntry& entry : tuning_->Entries()) tuning_->ran.push_back(entry.key);
  }

 private:
  kernels::Backend& plain_;
  FakeTuning* const tuning_;
};

}  // namespace mt::tuning
