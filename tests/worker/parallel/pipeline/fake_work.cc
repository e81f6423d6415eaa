// The value of a tensor is a hash of pass, microbatch and all chunks it has passed through; each
// action recomputes what it should have received and compares.
#include "tests/worker/parallel/pipeline/fake_work.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace mt::parallel {

namespace {

// Links know the buffers by their addresses.
void Write(const std::vector<int64_t>& made, std::vector<int64_t>* buffer) {
  std::copy(made.begin(), made.end(), buffer->begin());
}

}  // namespace

FakeWork::FakeWork(Args args) : args_(std::move(args)), random_(args_.seed) {
  for (const int count : args_.schedule->slots[static_cast<size_t>(args_.stage)]) {
    const Buffer blank(kWords, -1);
    slots_.emplace_back(static_cast<size_t>(count), Slot{blank, blank, blank, blank});
  }
}

void FakeWork::BeginPass(const Schedule& schedule) {
  pass_ = schedule;
  ++pass_number_;
  done_.assign(slots_.size(), {0, 0});
}

FakeWork::Slot& FakeWork::At(int chunk, int slot) {
  return slots_.at(static_cast<size_t>(chunk)).at(static_cast<size_t>(slot));
}

bool FakeWork::Empty(int chunk) const {
  return args_.is_empty && args_.is_empty(pass_.position(args_.stage, chunk));
}

bool FakeWork::IsLast(int chunk) const {
  return pass_.position(args_.stage, chunk) == pass_.num_positions() - 1;
}

bool FakeWork::ForwardWritesInputGrad(int chunk) { return args_.early_gradient && !Empty(chunk); }

void FakeWork::Delay() {
  if (args_.max_delay_us == 0) return;
  const auto us = static_cast<int64_t>(random_() % static_cast<uint64_t>(args_.max_delay_us + 1));
  if (us > 0) std::this_thread::sleep_for(std::chrono::microseconds(us));
}

FakeWork::Buffer FakeWork::Made(ActionKind kind, int microbatch, int from) const {
  uint64_t value =
      static_cast<uint64_t>(pass_number_) * 1000003 + static_cast<uint64_t>(microbatch);
  const bool forward = kind == ActionKind::kForward;
  const auto mix = [&](int position) {
    if (args_.is_empty && position >= 0 && position < pass_.num_positions() &&
        args_.is_empty(position)) {
      return;
    }
    value = (value ^ static_cast<uint64_t>(position + 2)) * 0x9E3779B97F4A7C15U;
  };
  for (int position = -1; position < pass_.num_positions(); ++position) {
    mix(position);
    if (forward && position == from) break;
  }
  for (int position = pass_.num_positions(); !forward && position >= from; --position) {
    mix(position);
  }
  Buffer made(kWords);
  for (int64_t i = 0; i < kWords; ++i) {
    made[static_cast<size_t>(i)] =
        static_cast<int64_t>((value >> 8) + static_cast<uint64_t>(i)) * (forward ? 1 : -1);
  }
  return made;
}

Status FakeWork::Expect(const Buffer& got, const Buffer& want, const Action& action,
                        const char* what) const {
  if (got == want) return OkStatus();
  return base::DataLoss("stage {}, {} of pass {}: its {} is not what was made for it", args_.stage,
                        ActionLabel(pass_, action), pass_number_, what);
}

Status FakeWork::Forward(const Action& action) {
  if (args_.inject) RETURN_IF_ERROR(args_.inject(action));
  const int position = pass_.position(args_.stage, action.chunk);
  Slot& slot = At(action.chunk, action.slot);
  const Buffer want = Made(ActionKind::kForward, action.microbatch, position - 1);
  Delay();
  if (position == 0) Write(want, &slot.input);
  RETURN_IF_ERROR(Expect(slot.input, want, action, "input"));
  Delay();
  if (!Empty(action.chunk)) {
    Write(Made(ActionKind::kForward, action.microbatch, position), &slot.output);
  }
  if (!pass_.forward_only && ForwardWritesInputGrad(action.chunk) && IsLast(action.chunk)) {
    Write(Made(ActionKind::kBackward, action.microbatch, position), &slot.input_grad);
  }
  RETURN_IF_ERROR(Expect(slot.input, want, action, "input, a while later,"));
  ++done_.at(static_cast<size_t>(action.chunk))[0];
  return OkStatus();
}

Status FakeWork::Backward(const Action& action) {
  if (args_.inject) RETURN_IF_ERROR(args_.inject(action));
  const int position = pass_.position(args_.stage, action.chunk);
  Slot& slot = At(action.chunk, action.slot);
  const Buffer want = Made(ActionKind::kBackward, action.microbatch, position + 1);
  Delay();
  if (IsLast(action.chunk)) Write(want, &slot.output_grad);
  RETURN_IF_ERROR(Expect(slot.output_grad, want, action, "gradient"));
  RETURN_IF_ERROR(Expect(slot.input, Made(ActionKind::kForward, action.microbatch, position - 1),
                         action, "input, kept since its forward,"));
  if (!Empty(action.chunk)) {
    RETURN_IF_ERROR(Expect(slot.output, Made(ActionKind::kForward, action.microbatch, position),
                           action, "output, kept since its forward,"));
  }
  Delay();
  if (ForwardWritesInputGrad(action.chunk) && IsLast(action.chunk)) {
    RETURN_IF_ERROR(Expect(slot.input_grad,
                           Made(ActionKind::kBackward, action.microbatch, position), action,
                           "gradient, made in its forward,"));
  } else if (!Empty(action.chunk)) {
    Write(Made(ActionKind::kBackward, action.microbatch, position), &slot.input_grad);
  }
  RETURN_IF_ERROR(Expect(slot.output_grad, want, action, "gradient, a while later,"));
  ++done_.at(static_cast<size_t>(action.chunk))[1];
  return OkStatus();
}

kernels::Tensor FakeWork::Input(int chunk, int slot) { return View(At(chunk, slot).input); }
kernels::Tensor FakeWork::Output(int chunk, int slot) {
  return View(Empty(chunk) ? At(chunk, slot).input : At(chunk, slot).output);
}
kernels::Tensor FakeWork::OutputGrad(int chunk, int slot) {
  return View(At(chunk, slot).output_grad);
}
kernels::Tensor FakeWork::InputGrad(int chunk, int slot) {
  return View(Empty(chunk) ? At(chunk, slot).output_grad : At(chunk, slot).input_grad);
}

}  // namespace mt::parallel
