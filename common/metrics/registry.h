// A daemon's Prometheus metrics: families of counters, gauges and histograms, each declared once
// with name and help; series are resolved once and then set without a lookup. The series of one job
// form a group that is removed as a whole. A thin layer over prometheus-cpp, which stores the
// values and writes the text format. Thread-safe; setting a value takes no lock.
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

// Handles of single series. They are copyable, and valid as long as both the registry and the
// series exist.

// Starts at 0 and only grows.
class Counter {
 public:
  using Impl = prometheus::Counter;
  explicit Counter(Impl* impl = nullptr) : impl_(impl) {}
  void Add(double amount = 1);
  // For totals that are counted elsewhere: raises the counter to `total`, and ignores a lower
  // value. One writer at a time: reading and adding are two steps.
  void RaiseTo(double total);
  double Value() const;

 private:
  friend class SeriesGroup;
  Impl* impl_;
};

// A value that may rise and fall.
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

// Counts observations in the buckets of its family.
class Histogram {
 public:
  using Impl = prometheus::Histogram;
  explicit Histogram(Impl* impl = nullptr) : impl_(impl) {}
  void Observe(double value);

 private:
  friend class SeriesGroup;
  Impl* impl_;
};

// All series of one metric name. Copyable; valid as long as the registry.
template <class Series>
class Family {
 public:
  using Impl = prometheus::Family<typename Series::Impl>;
  Family() = default;
  Family(Impl* impl, std::vector<double> buckets) : impl_(impl), buckets_(std::move(buckets)) {}
  // The series with these labels, created at 0 where it does not exist.
  Series With(const Labels& labels = {}) const;

 private:
  friend class SeriesGroup;
  Impl* impl_ = nullptr;
  std::vector<double> buckets_;  // upper bounds, where Series is a Histogram
};

// Owns all families of a process.
class Registry {
 public:
  Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;
  ~Registry();

  // Each name may be added once (CHECK). `help` is one sentence. Names follow Prometheus' rules;
  // any other name is a bug.
  Family<Counter> AddCounter(std::string_view name, std::string_view help);
  Family<Gauge> AddGauge(std::string_view name, std::string_view help);
  // `buckets` are ascending upper bounds; +Inf is added.
  Family<Histogram> AddHistogram(std::string_view name, std::string_view help,
                                 std::vector<double> buckets);

  // All series in Prometheus' text format 0.0.4, whose content type is kContentType.
  std::string Text() const;
  // Runs `update` so that no concurrent Text sees half of its changes. Returns false without
  // running it while a Text is collecting: try again later. It never blocks, for threads that a
  // scrape must not delay.
  bool TryUpdate(const std::function<void()>& update);

 private:
  void CheckNew(std::string_view name);

  std::unique_ptr<prometheus::Registry> impl_;
  base::Mutex names_mu_;
  std::vector<std::string> names_ GUARDED_BY(names_mu_);
  mutable base::Mutex collect_mu_;
};

inline constexpr char kContentType[] = "text/plain; version=0.0.4; charset=utf-8";

// Series that share some labels and are removed together, at the latest when the group is
// destroyed, which must be before the registry is. Two groups must not hold the same series at the
// same time. Not thread-safe.
class SeriesGroup {
 public:
  explicit SeriesGroup(Labels labels) : labels_(std::move(labels)) {}
  SeriesGroup(SeriesGroup&&) = default;
  SeriesGroup& operator=(SeriesGroup&&) = delete;
  ~SeriesGroup() { Remove(); }

  // The family's series with the group's labels and `more`; the group owns it from now on.
  template <class Series>
  Series Add(const Family<Series>& family, const Labels& more = {});
  // Removes all series of the group; their handles become invalid.
  void Remove();

 private:
  Labels labels_;
  std::vector<std::function<void()>> removals_;
};

// Adds mt_build_info{version}, the same for every daemon.
void AddBuildInfo(Registry* registry, std::string_view version);

}  // namespace mt::metrics
