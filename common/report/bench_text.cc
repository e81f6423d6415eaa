// The layout of a benchmark's report: a column of names and one of values, and a line only where
// there is something to report.
#include "common/report/bench_text.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "megatrain/v1/types.pb.h"

namespace mt::report {
namespace {

namespace v1 = megatrain::v1;

// With thousands separators: 525861 as "525,861".
std::string Grouped(double value) {
  std::string digits = fmt::format("{:.0f}", value);
  for (auto at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

std::string Bytes(int64_t bytes) {
  constexpr double kMebibyte = 1 << 20, kGibibyte = 1 << 30;
  const auto value = static_cast<double>(bytes);
  return value < kGibibyte ? fmt::format("{:.1f} MiB", value / kMebibyte)
                           : fmt::format("{:.2f} GiB", value / kGibibyte);
}

std::string Milliseconds(double seconds) { return fmt::format("{:.3f} ms", seconds * 1e3); }

class Lines {
 public:
  void Add(const std::string& name, const std::string& text) {
    text_ += fmt::format("{:<10} {}\n", name, text);
  }
  void Raw(const std::string& text) { text_ += text; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// The entries of a map by descending value, without those that are 0.
template <class Map>
auto Sorted(const Map& map) {
  std::vector<std::pair<std::string, typename Map::mapped_type>> out;
  for (const auto& [name, value] : map) {
    if (value > 0) out.emplace_back(name, value);
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  return out;
}

std::string PhaseText(const v1::BenchReport& report) {
  double sum = 0;
  for (const auto& [name, seconds] : report.phase_seconds()) sum += seconds;
  std::string out;
  for (const auto& [name, seconds] : Sorted(report.phase_seconds()))
    out += fmt::format("{}{} {:.1f} %", out.empty() ? "" : ", ", name, 100 * seconds / sum);
  return out;
}

std::string MemoryText(const v1::BenchReport& report) {
  std::string out;
  int64_t sum = 0;
  for (const auto& [kind, bytes] : Sorted(report.memory_bytes())) {
    out += fmt::format("{} {}, ", kind, Bytes(bytes));
    sum += bytes;
  }
  out += fmt::format("in all {}", Bytes(sum));
  if (report.device_memory_bytes() > 0)
    out += fmt::format("; in use on the device {}", Bytes(report.device_memory_bytes()));
  return out + fmt::format("; process {}", Bytes(report.host_memory_bytes()));
}

void AddRates(const v1::BenchReport& report, Lines* out) {
  out->Add("flops", fmt::format("causal {:.4g} TFLOP/s per slot, full {:.4g}, Megatron's count "
                                "{:.4g}",
                                report.tflops_per_slot(), report.tflops_per_slot_full(),
                                report.megatron_tflops_per_slot()));
  if (report.peak_tflops() > 0) {
    out->Add("mfu", fmt::format("{:.1f} % of the {:.0f} TFLOP/s that the maker states",
                                100 * report.mfu(), report.peak_tflops()));
  }
  if (report.has_product()) {
    const v1::ProductRate& product = report.product();
    out->Add("G", fmt::format("{:.4g} TFLOP/s ({}^3 {}, right after the steps); causal / G {:.3f}",
                              product.tflops(), product.size(), product.dtype(),
                              report.ratio_to_product()));
  }
}

void AddReadings(const v1::DeviceReadings& readings, Lines* out) {
  out->Add("clocks", fmt::format("SM {:.0f} MHz (least {:.0f}, up to {:.0f}), memory {:.0f} MHz",
                                 readings.median_sm_clock_mhz(), readings.min_sm_clock_mhz(),
                                 readings.max_sm_clock_mhz(), readings.median_memory_clock_mhz()));
  out->Add("power", fmt::format("{:.0f} W (most {:.0f}, limit {:.0f}), {:.0f} C at most; slowed by "
                                "power in {:.0f} %, by heat in {:.0f} % of {} readings",
                                readings.median_power_watts(), readings.max_power_watts(),
                                readings.power_limit_watts(), readings.max_temperature_celsius(),
                                100 * readings.power_capped(), 100 * readings.thermally_slowed(),
                                readings.samples()));
}

// Means over the ranks that make these calls, and the rank that is exposed most.
void AddGroups(const v1::BenchReport& report, Lines* out) {
  out->Raw(fmt::format("  {:>12} {:>6} {:>8} {:>11} {:>11} {:>11}  {}\n", "group", "ranks", "calls",
                       "ms", "hidden", "exposed", "most exposed"));
  for (const v1::GroupTime& time : report.groups()) {
    out->Raw(fmt::format(
        "  {:>12} {:>6} {:>8.0f} {:>11.3f} {:>11.3f} {:>11.3f}  {:.3f} on rank {}\n", time.group(),
        time.ranks(), time.calls(), 1e3 * time.seconds(), 1e3 * time.hidden_seconds(),
        1e3 * time.exposed_seconds(), 1e3 * time.most_exposed_seconds(), time.most_exposed_rank()));
  }
}

void AddCommunication(const v1::BenchReport& report, Lines* out) {
  const bool any = std::ranges::any_of(report.communication(),
                                       [](const v1::AxisTime& time) { return time.calls() > 0; });
  if (!any) return;
  out->Add("comm", "per step, hidden by computation or exposed: the compute stream waits for it");
  out->Raw(fmt::format("  {:>6} {:>8} {:>11} {:>11} {:>11}\n", "axis", "calls", "ms", "hidden",
                       "exposed"));
  for (const v1::AxisTime& time : report.communication()) {
    if (time.calls() == 0) continue;
    out->Raw(fmt::format("  {:>6} {:>8.0f} {:>11.3f} {:>11.3f} {:>11.3f}\n", time.axis(),
                         time.calls(), 1e3 * time.seconds(), 1e3 * time.hidden_seconds(),
                         1e3 * time.exposed_seconds()));
  }
  if (report.groups_size() > 0) AddGroups(report, out);
}

void AddKernels(const v1::BenchReport& report, Lines* out) {
  if (report.kernels().empty()) return;
  out->Add("kernels",
           fmt::format("step / sum of its own kernels {:.3f} (sum {})", report.ratio_to_kernels(),
                       Milliseconds(report.kernel_seconds())));
  out->Raw(fmt::format("  {:>6} {:>6} {:>10}  {}\n", "share", "calls", "us each", "call"));
  for (const v1::KernelTime& kernel : report.kernels()) {
    const double total = static_cast<double>(kernel.calls()) * kernel.seconds();
    out->Raw(fmt::format("  {:>5.1f}% {:>6} {:>10.1f}  {}\n", 100 * total / report.kernel_seconds(),
                         kernel.calls(), kernel.seconds() * 1e6, kernel.call()));
  }
}

}  // namespace

std::string BenchText(const v1::BenchReport& report) {
  Lines out;
  out.Add("device", fmt::format("{}; {} slot{}, {}", report.device(), report.slots(),
                                report.slots() == 1 ? "" : "s", report.precision()));
  out.Add("model", fmt::format("{} parameters, {} tokens a step",
                               Grouped(static_cast<double>(report.parameters())),
                               Grouped(static_cast<double>(report.tokens_per_step()))));
  out.Add("steps", fmt::format("{} after {} of warm-up; loss {:.4f} to {:.4f}", report.steps(),
                               report.warmup_steps(), report.first_loss(), report.last_loss()));
  out.Add("step", fmt::format("median {}, p95 {} (least {}, most {}, mean {})",
                              Milliseconds(report.median_step_seconds()),
                              Milliseconds(report.p95_step_seconds()),
                              Milliseconds(report.min_step_seconds()),
                              Milliseconds(report.max_step_seconds()),
                              Milliseconds(report.mean_step_seconds())));
  const double per_slot =
      report.tokens_per_second() / static_cast<double>(std::max<int64_t>(1, report.slots()));
  out.Add("speed", fmt::format("{} tokens/s, {} per slot", Grouped(report.tokens_per_second()),
                               Grouped(per_slot)));
  AddRates(report, &out);
  out.Add("phases", PhaseText(report));
  if (report.bubble() > 0 || report.bubble_by_formula() > 0) {
    std::string bubble =
        fmt::format("{:.1f} % of the pipeline's time, mean over ranks", 100 * report.bubble());
    if (report.bubble_by_formula() > 0) {
      bubble += fmt::format("; {:.1f} % by formula, with the measured forward and backward",
                            100 * report.bubble_by_formula());
    }
    out.Add("bubble", bubble);
  }
  if (report.launch_seconds() > 0) {
    out.Add("launch", fmt::format("the host takes {} to enqueue a step, with waits for room in the "
                                  "device's queue",
                                  Milliseconds(report.launch_seconds())));
  }
  if (report.has_host_wait()) {
    out.Add("host wait", fmt::format("at most {:.2f} % of a step, on rank {}: its device may have "
                                     "had nothing enqueued",
                                     100 * report.host_wait(), report.host_wait_rank()));
  }
  AddCommunication(report, &out);
  out.Add("memory", MemoryText(report));
  if (report.has_readings()) AddReadings(report.readings(), &out);
  AddKernels(report, &out);
  return out.text();
}

std::string BenchLine(const v1::BenchReport& report) {
  std::string line = fmt::format("{}/step (p95 {}), {} tokens/s, {:.4g} TFLOP/s per slot",
                                 Milliseconds(report.median_step_seconds()),
                                 Milliseconds(report.p95_step_seconds()),
                                 Grouped(report.tokens_per_second()), report.tflops_per_slot());
  if (report.has_product()) line += fmt::format(", {:.3f} G", report.ratio_to_product());
  if (report.ratio_to_kernels() > 0)
    line += fmt::format(", {:.3f} x its kernels", report.ratio_to_kernels());
  return line;
}

}  // namespace mt::report
