// A store that tells how long its commits take; every other call goes straight through to the store
// behind it. Threads and errors are those of that store.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/store/store.h"

namespace mt::daemon {

class TimedStore final : public Store {
 public:
  using Seconds = std::function<void(double seconds)>;
  // `store` must outlive this object; `told` is called on the committing thread, also after errors.
  TimedStore(Store* store, Seconds told) : store_(store), told_(std::move(told)) {}

  Status Commit(const std::vector<Write>& batch) override {
    const auto start = std::chrono::steady_clock::now();
    Status status = store_->Commit(batch);
    told_(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    return status;
  }
  Status ForEach(Table table, const Visitor& visit) override {
    return store_->ForEach(table, visit);
  }
  Status ForEachNewest(Table table, const std::string& from, const Taker& visit) override {
    return store_->ForEachNewest(table, from, visit);
  }
  Status Purge(Table table, int64_t before_us) override { return store_->Purge(table, before_us); }
  StatusOr<std::string> LastKey(Table table) override { return store_->LastKey(table); }
  StatusOr<std::string> FirstKey(Table table) override { return store_->FirstKey(table); }

 private:
  Store* store_;
  Seconds told_;
};

}  // namespace mt::daemon
