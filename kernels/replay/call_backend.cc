// One class per op family, each entry a single line: hand the call to the sink as a value.
#include "kernels/replay/call_backend.h"

#include <utility>

namespace mt::kernels::replay {
namespace {

// Base of every family.
class ToSink {
 public:
  ToSink(Backend* backend, CallSink* sink) : backend_(*backend), sink_(*sink) {}

 protected:
  template <class Args>
  void Do(Stream& stream, std::string_view entry, const Args& args,
          typename OpCallOf<Args>::Runner* run) const {
    sink_.Take(stream, OpCallOf<Args>(entry, args, run));
  }
  // For entries that take an argument struct: Do<&Backend::act, &ActOps::Act>(stream, "act.Act",
  // args).
  template <auto kFamily, auto kEntry, class Args>
  void Do(Stream& stream, std::string_view entry, const Args& args) const {
    Do<Args>(stream, entry, args, [](Backend& backend, Stream& on, const Args& with) {
      ((backend.*kFamily)().*kEntry)(on, with);
    });
  }

  Backend& backend_;

 private:
  CallSink& sink_;
};

class SinkEmbedding final : public EmbeddingOps, private ToSink {
 public:
  using ToSink::ToSink;
  void Gather(Stream& stream, const EmbeddingGatherArgs& args) const override {
    Do<&Backend::embedding, &EmbeddingOps::Gather>(stream, "embedding.Gather", args);
  }
  void ScatterGrad(Stream& stream, const EmbeddingScatterArgs& args) const override {
    Do<&Backend::embedding, &EmbeddingOps::ScatterGrad>(stream, "embedding.ScatterGrad", args);
  }
};

class SinkAddNorm final : public AddNormOps, private ToSink {
 public:
  using ToSink::ToSink;
  int64_t WorkspaceBytes(const AddNormGradArgs& args) const override {
    return backend_.add_norm().WorkspaceBytes(args);
  }
  void AddNorm(Stream& stream, const AddNormArgs& args) const override {
    Do<&Backend::add_norm, &AddNormOps::AddNorm>(stream, "add_norm.AddNorm", args);
  }
  void AddNormGrad(Stream& stream, const AddNormGradArgs& args) const override {
    Do<&Backend::add_norm, &AddNormOps::AddNormGrad>(stream, "add_norm.AddNormGrad", args);
  }
};

class SinkLinear final : public LinearOps, private ToSink {
 public:
  SinkLinear(Backend* backend, CallSink* sink)
      : LinearOps(&backend->act(), &backend->vector()), ToSink(backend, sink) {}
  int64_t Plan(const LinearForwardArgs& args) override { return PlanWrapped(args); }
  int64_t Plan(const LinearForwardActArgs& args) override { return PlanWrapped(args); }
  int64_t Plan(const LinearInputGradArgs& args) override { return PlanWrapped(args); }
  int64_t Plan(const LinearInputGradActArgs& args) override { return PlanWrapped(args); }
  int64_t Plan(const LinearWeightGradArgs& args) override { return PlanWrapped(args); }
  void Forward(Stream& stream, const LinearForwardArgs& args) const override {
    Do<&Backend::linear, &LinearOps::Forward>(stream, "linear.Forward", args);
  }
  void ForwardAct(Stream& stream, const LinearForwardActArgs& args) const override {
    Do<&Backend::linear, &LinearOps::ForwardAct>(stream, "linear.ForwardAct", args);
  }
  void InputGrad(Stream& stream, const LinearInputGradArgs& args) const override {
    Do<&Backend::linear, &LinearOps::InputGrad>(stream, "linear.InputGrad", args);
  }
  void InputGradAct(Stream& stream, const LinearInputGradActArgs& args) const override {
    Do<&Backend::linear, &LinearOps::InputGradAct>(stream, "linear.InputGradAct", args);
  }
  void WeightGrad(Stream& stream, const LinearWeightGradArgs& args) const override {
    Do<&Backend::linear, &LinearOps::WeightGrad>(stream, "linear.WeightGrad", args);
  }

 private:
  template <class Args>
  int64_t PlanWrapped(const Args& args) {
    return backend_.linear().Plan(args);
  }
};

class SinkAct final : public ActOps, private ToSink {
 public:
  using ToSink::ToSink;
  void Act(Stream& stream, const ActArgs& args) const override {
    Do<&Backend::act, &ActOps::Act>(stream, "act.Act", args);
  }
  void ActGrad(Stream& stream, const ActGradArgs& args) const override {
    Do<&Backend::act, &ActOps::ActGrad>(stream, "act.ActGrad", args);
  }
};

class SinkRope final : public RopeOps, private ToSink {
 public:
  using ToSink::ToSink;
  void Rotate(Stream& stream, const RotateArgs& args) const override {
    Do<&Backend::rope, &RopeOps::Rotate>(stream, "rope.Rotate", args);
  }
  int64_t WorkspaceBytes(const RotateGradArgs& args) const override {
    return backend_.rope().WorkspaceBytes(args);
  }
  void RotateGrad(Stream& stream, const RotateGradArgs& args) const override {
    Do<&Backend::rope, &RopeOps::RotateGrad>(stream, "rope.RotateGrad", args);
  }
};

class SinkAttention final : public AttentionOps, private ToSink {
 public:
  using ToSink::ToSink;
  int64_t Plan(const AttentionForwardArgs& args) override {
    return backend_.attention().Plan(args);
  }
  void Forward(Stream& stream, const AttentionForwardArgs& args) const override {
    Do<&Backend::attention, &AttentionOps::Forward>(stream, "attention.Forward", args);
  }
  int64_t Plan(const AttentionGradArgs& args) override { return backend_.attention().Plan(args); }
  void Grad(Stream& stream, const AttentionGradArgs& args) const override {
    Do<&Backend::attention, &AttentionOps::Grad>(stream, "attention.Grad", args);
  }
};

class SinkLoss final : public LossOps, private ToSink {
 public:
  using ToSink::ToSink;
  void Stats(Stream& stream, const LossStatsArgs& args) const override {
    Do<&Backend::loss, &LossOps::Stats>(stream, "loss.Stats", args);
  }
  void Finish(Stream& stream, const LossFinishArgs& args) const override {
    Do<&Backend::loss, &LossOps::Finish>(stream, "loss.Finish", args);
  }
  void StatsFinish(Stream& stream, const LossFinishArgs& args) const override {
    Do<&Backend::loss, &LossOps::StatsFinish>(stream, "loss.StatsFinish", args);
  }
};

class SinkUpdate final : public UpdateOps, private ToSink {
 public:
  using ToSink::ToSink;
  void SquareSum(Stream& stream, const SquareSumArgs& args) const override {
    Do<&Backend::update, &UpdateOps::SquareSum>(stream, "update.SquareSum", args);
  }
  void Advance(Stream& stream, StepScalars* scalars, const EndOfStep* vector,
               const StepConstants& constants) const override {
    const AdvanceArgs args{.scalars = scalars, .vector = vector, .constants = constants};
    Do<AdvanceArgs>(stream, "update.Advance", args,
                    [](Backend& backend, Stream& on, const AdvanceArgs& with) {
                      backend.update().Advance(on, with.scalars, with.vector, with.constants);
                    });
  }
  void AdamW(Stream& stream, const AdamWArgs& args) const override {
    Do<&Backend::update, &UpdateOps::AdamW>(stream, "update.AdamW", args);
  }
  void Sgd(Stream& stream, const SgdArgs& args) const override {
    Do<&Backend::update, &UpdateOps::Sgd>(stream, "update.Sgd", args);
  }
};

class SinkVector final : public VectorOps, private ToSink {
 public:
  using ToSink::ToSink;
  void AddTo(Stream& stream, const Tensor& to, const Tensor& from) const override {
    Do<AddToArgs>(stream, "vector.AddTo", {to, from},
                  [](Backend& backend, Stream& on, const AddToArgs& with) {
                    backend.vector().AddTo(on, with.to, with.from);
                  });
  }
  void SumPartials(Stream& stream, const Tensor& out, const Partials& partials) const override {
    Do<SumPartialsArgs>(stream, "vector.SumPartials", {out, partials},
                        [](Backend& backend, Stream& on, const SumPartialsArgs& with) {
                          backend.vector().SumPartials(on, with.out, with.partials);
                        });
  }
  void Cast(Stream& stream, const Tensor& to, const Tensor& from) const override {
    Do<CastArgs>(stream, "vector.Cast", {to, from},
                 [](Backend& backend, Stream& on, const CastArgs& with) {
                   backend.vector().Cast(on, with.to, with.from);
                 });
  }
  void Fill(Stream& stream, const Tensor& to, double value) const override {
    Do<FillArgs>(stream, "vector.Fill", {to, value},
                 [](Backend& backend, Stream& on, const FillArgs& with) {
                   backend.vector().Fill(on, with.to, with.value);
                 });
  }
  void RowSum(Stream& stream, const Tensor& x, GradMode mode, const Tensor& out) const override {
    Do<RowSumArgs>(stream, "vector.RowSum", {x, mode, out},
                   [](Backend& backend, Stream& on, const RowSumArgs& with) {
                     backend.vector().RowSum(on, with.x, with.mode, with.out);
                   });
  }
};

class SinkRandom final : public RandomOps, private ToSink {
 public:
  using ToSink::ToSink;
  void FillNormal(Stream& stream, const FillNormalArgs& args) const override {
    Do<&Backend::random, &RandomOps::FillNormal>(stream, "random.FillNormal", args);
  }
};

class CallBackend final : public Backend {
 public:
  CallBackend(Backend* backend, std::unique_ptr<CallSink> owned)
      : backend_(*backend),
        sink_(std::move(owned)),
        embedding_(backend, sink_.get()),
        add_norm_(backend, sink_.get()),
        linear_(backend, sink_.get()),
        act_(backend, sink_.get()),
        rope_(backend, sink_.get()),
        attention_(backend, sink_.get()),
        loss_(backend, sink_.get()),
        update_(backend, sink_.get()),
        vector_(backend, sink_.get()),
        random_(backend, sink_.get()) {}

  Device& device() override { return sink_->device(); }
  const EmbeddingOps& embedding() const override { return embedding_; }
  const AddNormOps& add_norm() const override { return add_norm_; }
  LinearOps& linear() override { return linear_; }
  const ActOps& act() const override { return act_; }
  const RopeOps& rope() const override { return rope_; }
  AttentionOps& attention() override { return attention_; }
  const LossOps& loss() const override { return loss_; }
  const UpdateOps& update() const override { return update_; }
  const VectorOps& vector() const override { return vector_; }
  const RandomOps& random() const override { return random_; }
  TuningTable* tuning() override { return backend_.tuning(); }
  int64_t NumPlans() const override { return backend_.NumPlans(); }
  void RunPlanned() override { backend_.RunPlanned(); }
  std::string AttentionKernels() const override { return backend_.AttentionKernels(); }

 private:
  Backend& backend_;
  const std::unique_ptr<CallSink> sink_;
  const SinkEmbedding embedding_;
  const SinkAddNorm add_norm_;
  SinkLinear linear_;
  const SinkAct act_;
  const SinkRope rope_;
  SinkAttention attention_;
  const SinkLoss loss_;
  const SinkUpdate update_;
  const SinkVector vector_;
  const SinkRandom random_;
};

}  // namespace

std::unique_ptr<Backend> MakeCallBackend(Backend* backend, std::unique_ptr<CallSink> sink) {
  return std::make_unique<CallBackend>(backend, std::move(sink));
}

}  // namespace mt::kernels::replay
