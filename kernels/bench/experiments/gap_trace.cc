// A library that the driver loads into any CUDA program to show where the GPU's time between
// kernels goes, from CUPTI's activity records. For each step (from one launch of a kernel that runs
// once a step to the next) it prints the time in which some kernel or copy ran; the remaining time
// is gaps. Tracing itself lengthens gaps, so take the busy time from here and the step time from a
// run without it:
//   gap share = 1 - busy / step.
//
//   g++ -std=c++20 -O2 -shared -fPIC -I/usr/local/cuda/include gap_trace.cc -lcupti -o gap_trace.so
//   CUDA_INJECTION64_PATH=$PWD/gap_trace.so GAP_TRACE_STEP=AdvanceKernel PROGRAM ...
//
// GAP_TRACE_RUNS=2 if the program trains twice for as many steps.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cupti.h>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace {

struct Span {
  uint64_t start, end;
  const char* name;
};

constexpr size_t kBufferBytes = 8 << 20;
constexpr size_t kWarmUpSteps = 5;

std::mutex mutex;  // CUPTI calls back from a thread of its own
std::vector<Span> spans;
std::set<std::string> names;  // owns the names that spans point to

void CUPTIAPI OnBufferWanted(uint8_t** buffer, size_t* size, size_t* max_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *size = kBufferBytes;
  *max_records = 0;
}

void CUPTIAPI OnBufferFull(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  const std::lock_guard<std::mutex> lock(mutex);
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
      const auto* k = reinterpret_cast<CUpti_ActivityKernel10*>(record);
      spans.push_back({k->start, k->end, names.insert(k->name).first->c_str()});
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
      const auto* m = reinterpret_cast<CUpti_ActivityMemcpy6*>(record);
      spans.push_back({m->start, m->end, "copy"});
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
      const auto* m = reinterpret_cast<CUpti_ActivityMemset4*>(record);
      spans.push_back({m->start, m->end, "clear"});
    }
  }
  std::free(buffer);
}

struct Step {
  double ms = 0, busy_ms = 0, marks_us = 0;
  size_t kernels = 0, marks = 0;
};

Step StepOf(const std::vector<Span>& all, size_t begin, size_t end) {
  Step step;
  uint64_t reached = all[begin].start, busy = 0;
  for (size_t i = begin; i < end; ++i) {
    const Span& s = all[i];
    if (s.end > reached) busy += s.end - std::max(s.start, reached);
    reached = std::max(reached, s.end);
    ++step.kernels;
    if (std::string_view(s.name).find("MarkKernel") == std::string_view::npos) continue;
    ++step.marks;
    // The time that the stream loses to a mark: from the kernel before to the one after.
    if (i > begin && i + 1 < end) step.marks_us += 1e-3 * double(all[i + 1].start - all[i - 1].end);
  }
  step.ms = 1e-6 * double(all[end].start - all[begin].start);
  step.busy_ms = 1e-6 * double(busy);
  return step;
}

template <class Member>
double Median(std::vector<Step> steps, Member member) {
  const auto middle = steps.begin() + static_cast<long>(steps.size() / 2);
  std::nth_element(steps.begin(), middle, steps.end(),
                   [&](const Step& a, const Step& b) { return a.*member < b.*member; });
  return static_cast<double>((*middle).*member);
}

// Reports one run, whose steps begin at these spans.
void ReportRun(int run, const size_t* step_begins, size_t count) {
  std::vector<Step> steps;
  for (size_t i = kWarmUpSteps; i + 1 < count; ++i) {
    steps.push_back(StepOf(spans, step_begins[i], step_begins[i + 1]));
  }
  if (steps.empty()) return;
  std::fprintf(
      stderr,
      "gap_trace: run %d, medians of %zu steps: %.3f ms traced, busy %.3f ms, %.0f kernels "
      "and copies, %.0f marks that take %.1f us with their gaps\n",
      run, steps.size(), Median(steps, &Step::ms), Median(steps, &Step::busy_ms),
      Median(steps, &Step::kernels), Median(steps, &Step::marks), Median(steps, &Step::marks_us));
}

void Report() {
  cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  const std::lock_guard<std::mutex> lock(mutex);
  const char* wanted = std::getenv("GAP_TRACE_STEP");
  if (wanted == nullptr || spans.empty()) return;
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.start < b.start; });
  std::vector<size_t> step_begins;
  for (size_t i = 0; i < spans.size(); ++i) {
    if (std::string_view(spans[i].name).find(wanted) != std::string_view::npos)
      step_begins.push_back(i);
  }
  const char* runs_text = std::getenv("GAP_TRACE_RUNS");
  const size_t runs = runs_text == nullptr ? 1 : static_cast<size_t>(std::atoi(runs_text));
  const size_t each = step_begins.size() / runs;
  for (size_t run = 0; run < runs; ++run) {
    ReportRun(static_cast<int>(run), step_begins.data() + run * each, each);
  }
}

}  // namespace

// Called by the driver when it starts.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  if (cuptiActivityRegisterCallbacks(OnBufferWanted, OnBufferFull) != CUPTI_SUCCESS) return 0;
  for (const CUpti_ActivityKind kind : {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                        CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET}) {
    if (cuptiActivityEnable(kind) != CUPTI_SUCCESS) return 0;
  }
  std::atexit(Report);
  return 1;
}
