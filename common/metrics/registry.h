// What a daemon shows to Prometheus: families of counters, gauges and histograms, each declared
// once with name and help, their series resolved once and then set without a lookup. Series of one
// job form a group that goes together. A thin layer over prometheus-cpp, which keeps values and
// writes the text format. Thread-safe; setting a value takes no lock.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/mutex.h"

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
class Registry;
template <typename T>
class Family;
}  // namespace prometheus

namespace mt::metrics {

using Labels = std::map<std::string, std::string>;

// Handles of single series: copyable, valid as long as the registry and the series live.

// Starts at 0 and only rises.
class Counter {
 public:
  using Impl = prometheus::Counter;
  explicit Counter(Impl* impl = nullptr) : impl_(impl) {}
  void Add(double amount = 1);
  // For totals that are kept elsewhere: raises it to `total`; a lower one changes nothing.
  void RaiseTo(double total);
  double Value() const;

 private:
  friend class SeriesGroup;
  Impl* impl_;
};

class Gauge {
 public:
  using Impl = prometheus::Gauge;
  explicit Gauge(Impl* impl = nullptr) : impl_(impl) {}
  void Set(double value);
  double Value() const;

 private:
  friend class SeriesGroup;
  Impl* impl_;
};

class Histogram {
 public:
  using Impl = prometheus::Histogram;
  explicit Histogram(Impl* impl = nullptr) : impl_(impl) {}
  void Observe(double value);

 private:
  friend class SeriesGroup;
  Impl* impl_;
};

// All series of one name. Copyable; valid as long as the registry.
template <class Series>
class Family {
 public:
  using Impl = prometheus::Family<typename Series::Impl>;
  Family() = default;
  Family(Impl* impl, std::vector<double> buckets) : impl_(impl), buckets_(std::move(buckets)) {}
  // Made at 0 where it is new.
  Series With(const Labels& labels = {}) const;

 private:
  friend class SeriesGroup;
  Impl* impl_ = nullptr;
  std::vector<double> buckets_;  // of a histogram
};

class Registry {
 public:
  Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;
  ~Registry();

  // Each name once. `help` is one sentence; names follow Prometheus' rules (bugs otherwise).
  Family<Counter> AddCounter(std::string_view name, std::string_view help);
  Family<Gauge> AddGauge(std::string_view name, std::string_view help);
  // `buckets` are upper bounds, rising; +Inf is added.
  Family<Histogram> AddHistogram(std::string_view name, std::string_view help,
                                 std::vector<double> buckets);

  // Everything as text format 0.0.4, for kContentType.
  std::string Text() const;
  // Runs `update` so that no Text sees half of it; false, without running it, while a Text
  // collects: try again later. For a thread that a scrape must not hold up.
  bool TryUpdate(const std::function<void()>& update);

 private:
  void CheckNew(std::string_view name);

  std::unique_ptr<prometheus::Registry> impl_;
  base::Mutex names_mu_;
  std::vector<std::string> names_ GUARDED_BY(names_mu_);
  mutable base::Mutex collect_mu_;
};

inline constexpr char kContentType[] = "text/plain; version=0.0.4; charset=utf-8";

// Series with some labels in common that are removed together, at the latest when the group is
// destroyed (before the registry is). Two groups must not hold the same series at one time. Not
// thread-safe.
class SeriesGroup {
 public:
  explicit SeriesGroup(Labels labels) : labels_(std::move(labels)) {}
  SeriesGroup(SeriesGroup&&) = default;
  SeriesGroup& operator=(SeriesGroup&&) = delete;
  ~SeriesGroup() { Remove(); }

  template <class Series>
  Series Add(const Family<Series>& family, const Labels& more = {});
  void Remove();

 private:
  Labels labels_;
  std::vector<std::function<void()>> removals_;
};

// mt_build_info{version}, the same for every daemon.
void AddBuildInfo(Registry* registry, std::string_view version);

}  // namespace mt::metrics
