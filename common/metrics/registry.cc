// The layer over prometheus-cpp. Values are atomics of that library; collect_mu_ only keeps a
// scrape from seeing half of an update.
#include "common/metrics/registry.h"

#include <algorithm>
#include <sstream>
#include <type_traits>
#include <utility>

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "common/base/check.h"

namespace mt::metrics {

void Counter::Add(double amount) { impl_->Increment(amount); }

void Counter::RaiseTo(double total) {
  const double more = total - impl_->Value();
  if (more > 0) impl_->Increment(more);
}

double Counter::Value() const { return impl_->Value(); }
void Gauge::Set(double value) { impl_->Set(value); }
double Gauge::Value() const { return impl_->Value(); }
void Histogram::Observe(double value) { impl_->Observe(value); }

template <class Series>
Series Family<Series>::With(const Labels& labels) const {
  if constexpr (std::is_same_v<Series, Histogram>) {
    return Series(&impl_->Add(labels, buckets_));
  } else {
    return Series(&impl_->Add(labels));
  }
}

template <class Series>
Series SeriesGroup::Add(const Family<Series>& family, const Labels& more) {
  Labels labels = labels_;
  labels.insert(more.begin(), more.end());
  const Series series = family.With(labels);
  removals_.emplace_back([owner = family.impl_, impl = series.impl_] { owner->Remove(impl); });
  return series;
}

void SeriesGroup::Remove() {
  for (const auto& removal : std::exchange(removals_, {})) removal();
}

template class Family<Counter>;
template class Family<Gauge>;
template class Family<Histogram>;
template Counter SeriesGroup::Add(const Family<Counter>&, const Labels&);
template Gauge SeriesGroup::Add(const Family<Gauge>&, const Labels&);
template Histogram SeriesGroup::Add(const Family<Histogram>&, const Labels&);

Registry::Registry()
    : impl_(std::make_unique<prometheus::Registry>(prometheus::Registry::InsertBehavior::Throw)) {}

Registry::~Registry() = default;

void Registry::CheckNew(std::string_view name) {
  const base::MutexLock lock(&names_mu_);
  CHECK(std::ranges::find(names_, name) == names_.end()) << name << " is declared twice";
  names_.emplace_back(name);
}

Family<Counter> Registry::AddCounter(std::string_view name, std::string_view help) {
  CheckNew(name);
  auto& family =
      prometheus::BuildCounter().Name(std::string(name)).Help(std::string(help)).Register(*impl_);
  return {&family, {}};
}

Family<Gauge> Registry::AddGauge(std::string_view name, std::string_view help) {
  CheckNew(name);
  auto& family =
      prometheus::BuildGauge().Name(std::string(name)).Help(std::string(help)).Register(*impl_);
  return {&family, {}};
}

Family<Histogram> Registry::AddHistogram(std::string_view name, std::string_view help,
                                         std::vector<double> buckets) {
  CheckNew(name);
  auto& family =
      prometheus::BuildHistogram().Name(std::string(name)).Help(std::string(help)).Register(*impl_);
  return {&family, std::move(buckets)};
}

std::string Registry::Text() const {
  std::vector<prometheus::MetricFamily> collected;
  {
    const base::MutexLock lock(&collect_mu_);
    collected = impl_->Collect();
  }
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, collected);
  return std::move(out).str();
}

bool Registry::TryUpdate(const std::function<void()>& update) {
  if (!collect_mu_.TryLock()) return false;
  update();
  collect_mu_.Unlock();
  return true;
}

void AddBuildInfo(Registry* registry, std::string_view version) {
  registry->AddGauge("mt_build_info", "The version of this program; always 1.")
      .With({{"version", std::string(version)}})
      .Set(1);
}

}  // namespace mt::metrics
