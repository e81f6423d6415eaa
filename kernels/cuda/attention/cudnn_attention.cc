// Builds the composite operation graphs that cuDNN recognises as attention and runs as one kernel,
// so none of the [s, s] tensors is ever in memory.
// Legend: as in kernels/ops/attention.h.
#include "kernels/cuda/attention/cudnn_attention.h"

#include <algorithm>
#include <vector>

#include "common/base/math.h"
#include "kernels/cuda/device/library_check.h"

namespace mt::kernels::cuda {
namespace {

// Tensor ids of the graphs; a plan binds each to a pointer.
enum Uid : int64_t {
  kQ,
  kK,
  kV,
  kO,
  kStats,
  kScale,
  kMinusInfinity,
  kWindow,
  kDout,
  kDq,
  kDk,
  kDv,
  kDelta,
  kOne,
  kDqSums
};

// Logit of masked keys, passed by value: low enough that e^x is 0, and small enough in magnitude
// that cuDNN's own arithmetic with it stays finite.
constexpr float kHidden = -1e30F;
constexpr float kOneValue = 1;
constexpr int64_t kLargestDeterministicBytes = int64_t{1} << 30;
constexpr int64_t kAlignment = 256;

cudnnDataType_t TypeOf(DType dtype) {
  return dtype == DType::kBf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
}

bool StridesFit(const HeadView& view) {
  const auto fits = [](int64_t stride) { return stride % 8 == 0; };
  return reinterpret_cast<uintptr_t>(view.data) % 16 == 0 && fits(view.s_stride) &&
         fits(view.b_stride) && fits(view.head_stride);
}

// Bytes of delta [b, a, s] in f32, and of the sums of dq [b, a, s, d] in f32.
int64_t DeltaBytes(const AttentionShape& z, int64_t b) {
  return base::RoundUp(b * z.a * z.s * int64_t{sizeof(float)}, kAlignment);
}
int64_t SumsBytes(const AttentionShape& z, int64_t b) {
  return base::RoundUp(b * z.a * z.s * z.d * int64_t{sizeof(float)}, kAlignment);
}

// Returns the samples per execution: all, or for deterministic gradients the largest divisor of the
// batch whose workspace of b a s s 2 bytes fits.
int64_t SamplesAtOnce(const AttentionGradArgs& a) {
  const AttentionShape& z = a.shape;
  if (!a.deterministic) return z.b;
  for (int64_t parts = 1; parts < z.b; ++parts) {
    if (z.b % parts == 0 && z.b / parts * z.a * z.s * z.s * 2 <= kLargestDeterministicBytes) {
      return z.b / parts;
    }
  }
  return 1;
}

HeadView Sample(const HeadView& view, int64_t b) {
  HeadView out = view;
  out.data = static_cast<char*>(view.data) + b * view.b_stride * 2;
  return out;
}

}  // namespace

// Builds the forward and gradient graphs of one key.
class CudnnAttention::GraphOf {
 public:
  GraphOf(cudnnHandle_t handle, const Key& key) : key_(key), graph_(handle) {}

  std::unique_ptr<CudnnPlan> Forward() {
    const CudnnTensor q = RealHeads(kQ, key_.q, key_.a), k = Transposed(kK, key_.k),
                      v = RealHeads(kV, key_.v, key_.g), o = RealHeads(kO, key_.o, key_.a);
    const CudnnTensor stats = graph_.Real(kStats, kFloat, RowDims(), RowStrides());
    const CudnnTensor scale = graph_.Constant(kScale, kFloat);
    const CudnnTensor logits = Square(kFloat), scaled = Square(kFloat);
    graph_.Matmul(q, k, logits);
    graph_.Binary(CUDNN_POINTWISE_MUL, logits, scale, scaled);
    const CudnnTensor seen = Mask(scaled);
    const CudnnTensor max = Row(), shifted = Square(kFloat), e = Square(kFloat), sum = Row(),
                      log_sum = Row(), p = Square(type());
    graph_.Reduce(CUDNN_REDUCE_TENSOR_MAX, seen, max);
    graph_.Binary(CUDNN_POINTWISE_SUB, seen, max, shifted);
    graph_.Unary(CUDNN_POINTWISE_EXP, shifted, e);
    graph_.Reduce(CUDNN_REDUCE_TENSOR_ADD, e, sum);
    graph_.Unary(CUDNN_POINTWISE_LOG, sum, log_sum);
    graph_.Binary(CUDNN_POINTWISE_ADD, max, log_sum, stats);
    graph_.Binary(CUDNN_POINTWISE_DIV, e, sum, p);
    graph_.Matmul(p, v, o);
    return graph_.Build();
  }

  std::unique_ptr<CudnnPlan> Gradient() {
    const CudnnTensor q = RealHeads(kQ, key_.q, key_.a), k = Transposed(kK, key_.k),
                      v = Transposed(kV, key_.v), dout = RealHeads(kDout, key_.dout, key_.a);
    const CudnnTensor stats = graph_.Real(kStats, kFloat, RowDims(), RowStrides());
    const CudnnTensor scale = graph_.Constant(kScale, kFloat);
    const CudnnTensor delta = Delta(dout);
    // Recompute the probabilities.
    const CudnnTensor logits = Square(kFloat), scaled = Square(kFloat), shifted = Square(kFloat),
                      p = Square(kFloat), p_transposed = Square(type(), true);
    graph_.Matmul(q, k, logits);
    graph_.Binary(CUDNN_POINTWISE_MUL, logits, scale, scaled);
    graph_.Binary(CUDNN_POINTWISE_SUB, scaled, stats, shifted);
    graph_.Unary(CUDNN_POINTWISE_EXP, Mask(shifted), p);
    graph_.Reshape(p, p_transposed);
    KeyValueGrad(p_transposed, dout, kDv, key_.dv);
    // The gradient of the logits.
    const CudnnTensor dp = Square(kFloat), centred = Square(kFloat), weighted = Square(kFloat),
                      ds = Square(kFloat), ds_transposed = Square(type(), true);
    graph_.Matmul(dout, v, dp);
    graph_.Binary(CUDNN_POINTWISE_SUB, dp, delta, centred);
    graph_.Binary(CUDNN_POINTWISE_MUL, centred, p, weighted);
    graph_.Binary(CUDNN_POINTWISE_MUL, weighted, scale, ds);
    graph_.Reshape(ds, ds_transposed);
    KeyValueGrad(ds_transposed, q, kDk, key_.dk);
    QueryGrad(k, ds);
    return graph_.Build();
  }

 private:
  static constexpr cudnnDataType_t kFloat = CUDNN_DATA_FLOAT;
  cudnnDataType_t type() const { return TypeOf(key_.dtype); }

  CudnnDims HeadDims(int64_t heads) const { return {key_.b, heads, key_.s, key_.d}; }
  CudnnDims RowDims() const { return {key_.b, key_.a, key_.s, 1}; }
  CudnnDims RowStrides() const { return {key_.a * key_.s, key_.s, 1, 1}; }
  CudnnDims PlainStrides() const { return {key_.a * key_.s * key_.d, key_.s * key_.d, key_.d, 1}; }
  static CudnnDims StridesOf(const View& view) { return {view.b, view.head, view.s, 1}; }

  CudnnTensor RealHeads(int64_t uid, const View& view, int64_t heads) {
    return graph_.Real(uid, type(), HeadDims(heads), StridesOf(view));
  }
  // [b, g, d, s]
  CudnnTensor Transposed(int64_t uid, const View& view) {
    return graph_.Real(uid, type(), {key_.b, key_.g, key_.d, key_.s},
                       {view.b, view.head, 1, view.s});
  }
  CudnnTensor Square(cudnnDataType_t type, bool transposed = false) {
    const int64_t s = key_.s;
    return graph_.Virtual(type, {key_.b, key_.a, s, s},
                          {key_.a * s * s, s * s, transposed ? 1 : s, transposed ? s : 1});
  }
  CudnnTensor Row() { return graph_.Virtual(kFloat, RowDims(), RowStrides()); }

  // Returns x where a query attends to a key, and a very low value elsewhere.
  CudnnTensor Mask(CudnnTensor x) {
    if (!key_.causal) return x;
    const CudnnTensor hidden = graph_.Constant(kMinusInfinity, kFloat);
    const CudnnTensor row = Square(CUDNN_DATA_INT32), column = Square(CUDNN_DATA_INT32),
                      before = Square(CUDNN_DATA_BOOLEAN), seen = Square(kFloat);
    graph_.Index(x, 2, row);
    graph_.Index(x, 3, column);
    graph_.Binary(CUDNN_POINTWISE_CMP_GE, row, column, before);
    graph_.Select(x, hidden, before, seen);
    if (key_.window == 0) return seen;
    const CudnnTensor window = graph_.Constant(kWindow, CUDNN_DATA_INT32);
    const CudnnTensor row2 = Square(CUDNN_DATA_INT32), column2 = Square(CUDNN_DATA_INT32),
                      reach = Square(CUDNN_DATA_INT32), near = Square(CUDNN_DATA_BOOLEAN),
                      out = Square(kFloat);
    graph_.Index(seen, 2, row2);
    graph_.Index(seen, 3, column2);
    graph_.Binary(CUDNN_POINTWISE_ADD, column2, window, reach);
    graph_.Binary(CUDNN_POINTWISE_CMP_GT, reach, row2, near);
    graph_.Select(seen, hidden, near, out);
    return out;
  }

  // delta = sum of dout * o per query; a tensor in memory, because cuDNN computes it in a separate
  // kernel.
  CudnnTensor Delta(CudnnTensor dout) {
    const CudnnTensor o = RealHeads(kO, key_.o, key_.a);
    const CudnnTensor one = graph_.Constant(kOne, kFloat);
    const CudnnTensor delta = graph_.Real(kDelta, kFloat, RowDims(), RowStrides());
    const CudnnTensor product = graph_.Virtual(kFloat, HeadDims(key_.a), PlainStrides());
    const CudnnTensor sum = Row();
    graph_.Binary(CUDNN_POINTWISE_MUL, dout, o, product);
    graph_.Reduce(CUDNN_REDUCE_TENSOR_ADD, product, sum);
    graph_.Binary(CUDNN_POINTWISE_MUL, sum, one, delta);
    return delta;
  }

  // Multiplies the transposed tile by rows and sums over the heads of a group. The sum's operand
  // must be 16-bit: with f32 cuDNN 9.14 builds a plan that gives wrong numbers
  // (docs/gpu-experiments.md, E1).
  void KeyValueGrad(CudnnTensor transposed, CudnnTensor rows, int64_t uid, const View& view) {
    const CudnnTensor out = RealHeads(uid, view, key_.g);
    if (key_.g == key_.a) return graph_.Matmul(transposed, rows, out);
    const CudnnTensor by_head = graph_.Virtual(type(), HeadDims(key_.a), PlainStrides());
    graph_.Matmul(transposed, rows, by_head);
    graph_.Reduce(CUDNN_REDUCE_TENSOR_ADD, by_head, out);
  }

  // dq = ds k: through f32 sums to which blocks of keys add in any order, or deterministically in
  // one product.
  void QueryGrad(CudnnTensor k_transposed, CudnnTensor ds) {
    const CudnnTensor k = graph_.Virtual(type(), HeadDims(key_.g), StridesOf(key_.k));
    const CudnnTensor dq = RealHeads(kDq, key_.dq, key_.a);
    graph_.Reshape(k_transposed, k);
    if (key_.deterministic) return graph_.Matmul(ds, k, dq);
    const CudnnTensor sums = graph_.Real(kDqSums, kFloat, HeadDims(key_.a), PlainStrides());
    graph_.Matmul(ds, k, sums);
    graph_.Unary(CUDNN_POINTWISE_IDENTITY, sums, dq);
  }

  const Key& key_;
  CudnnGraph graph_;
};

CudnnAttention::CudnnAttention(const DeviceLimits& limits) : limits_(limits) {
  BindDevice(limits_.ordinal);
  CUDNN_CHECK(cudnnCreate(&handle_));
}

CudnnAttention::~CudnnAttention() { cudnnDestroy(handle_); }

CudnnAttention::Key CudnnAttention::KeyOf(const AttentionForwardArgs& a) {
  const auto view = [](const HeadView& v) { return View{v.s_stride, v.b_stride, v.head_stride}; };
  const AttentionShape& z = a.shape;
  return {.dtype = z.dtype,
          .s = z.s,
          .b = z.b,
          .a = z.a,
          .g = z.g,
          .d = z.d,
          .window = z.window >= z.s ? 0 : z.window,
          .causal = z.causal,
          .q = view(a.q),
          .k = view(a.k),
          .v = view(a.v),
          .o = view(a.o)};
}

CudnnAttention::Key CudnnAttention::KeyOf(const AttentionGradArgs& a) {
  const auto view = [](const HeadView& v) { return View{v.s_stride, v.b_stride, v.head_stride}; };
  Key key = KeyOf(AttentionForwardArgs{.shape = a.shape, .q = a.q, .k = a.k, .v = a.v, .o = a.o});
  key.gradient = true;
  key.deterministic = a.deterministic;
  key.b = SamplesAtOnce(a);
  key.dout = view(a.do_);
  key.dq = view(a.dq);
  key.dk = view(a.dk);
  key.dv = view(a.dv);
  return key;
}

bool CudnnAttention::Covers(const AttentionShape& z, const AttentionDropout& dropout,
                            bool gradient) const {
  const int64_t largest = gradient && limits_.major < 9 ? 128 : 256;
  return SizeOf(z.dtype) == 2 && !dropout.rate.active() && !z.slopes && z.q0 == z.k0 &&
         (z.causal || z.window == 0) && z.d % 8 == 0 && z.d <= largest;
}

const CudnnPlan* CudnnAttention::PlanOf(const Key& key) {
  const base::MutexLock lock(&mutex_);
  const auto found = plans_.find(key);
  if (found != plans_.end()) return found->second.get();
  BindDevice(limits_.ordinal);
  GraphOf graph(handle_, key);
  return plans_.emplace(key, key.gradient ? graph.Gradient() : graph.Forward()).first->second.get();
}

int64_t CudnnAttention::NumPlans() {
  const base::MutexLock lock(&mutex_);
  return static_cast<int64_t>(plans_.size());
}

bool CudnnAttention::Has(const AttentionForwardArgs& a) {
  return Covers(a.shape, a.dropout, false) && StridesFit(a.q) && StridesFit(a.k) &&
         StridesFit(a.v) && StridesFit(a.o) && PlanOf(KeyOf(a)) != nullptr;
}

bool CudnnAttention::Has(const AttentionGradArgs& a) {
  bool fit = Covers(a.shape, a.dropout, true);
  for (const HeadView* view : {&a.q, &a.k, &a.v, &a.o, &a.do_, &a.dq, &a.dk, &a.dv}) {
    fit = fit && StridesFit(*view);
  }
  return fit && PlanOf(KeyOf(a)) != nullptr;
}

int64_t CudnnAttention::WorkspaceBytes(const AttentionForwardArgs& a) {
  return PlanOf(KeyOf(a))->workspace_bytes();
}

int64_t CudnnAttention::WorkspaceBytes(const AttentionGradArgs& a) {
  const int64_t b = SamplesAtOnce(a);
  return DeltaBytes(a.shape, b) + (a.deterministic ? 0 : SumsBytes(a.shape, b)) +
         PlanOf(KeyOf(a))->workspace_bytes();
}

AttentionGradArgs CudnnAttention::CallOf(const Key& key, void* data) {
  const auto view = [data](const View& v) {
    return HeadView{.data = data, .s_stride = v.s, .b_stride = v.b, .head_stride = v.head};
  };
  return {.shape = {.dtype = key.dtype,
                    .s = key.s,
                    .b = key.b,
                    .a = key.a,
                    .g = key.g,
                    .d = key.d,
                    .causal = key.causal,
                    .window = key.window},
          .q = view(key.q),
          .k = view(key.k),
          .v = view(key.v),
          .o = view(key.o),
          .lse = {data, DType::kF32, {key.b, key.a, key.s}},
          .do_ = view(key.dout),
          .dq = view(key.dq),
          .dk = view(key.dk),
          .dv = view(key.dv),
          .deterministic = key.deterministic};
}

void CudnnAttention::RunPlanned() {
  std::vector<Key> keys;
  {
    const base::MutexLock lock(&mutex_);
    for (const auto& [key, plan] : plans_) {
      if (plan != nullptr) keys.push_back(key);
    }
  }
  if (keys.empty()) return;
  CudaDevice device(limits_);
  CudaStream stream(limits_.ordinal, StreamPriority::kLow);
  for (const Key& key : keys) {
    // Nobody reads the results, so all operands may share one place.
    int64_t elements = key.b * key.a * key.s * 2;  // f32 statistics
    for (const View* view :
         {&key.q, &key.k, &key.v, &key.o, &key.dout, &key.dq, &key.dk, &key.dv}) {
      const int64_t heads = std::max(key.a, key.g);
      elements = std::max(elements, (key.s - 1) * view->s + (key.b - 1) * view->b +
                                        (heads - 1) * view->head + key.d);
    }
    const auto data = device.Allocate(elements * SizeOf(key.dtype), MemoryKind::kDevice);
    AttentionGradArgs grad = CallOf(key, data->data());
    const AttentionForwardArgs forward{
        .shape = grad.shape, .q = grad.q, .k = grad.k, .v = grad.v, .o = grad.o, .lse = grad.lse};
    const int64_t bytes = key.gradient ? WorkspaceBytes(grad) : WorkspaceBytes(forward);
    const auto room = device.Allocate(std::max(bytes, kAlignment), MemoryKind::kDevice);
    if (key.gradient) {
      grad.workspace = {room->data(), bytes};
      Grad(stream, grad);
    } else {
      AttentionForwardArgs call = forward;
      call.workspace = {room->data(), bytes};
      Forward(stream, call);
    }
    stream.Synchronize();
  }
}

void CudnnAttention::Bind(const Stream& stream) {
  CUDNN_CHECK(cudnnSetStream(handle_, Raw(stream)));
}

void CudnnAttention::Forward(const Stream& stream, const AttentionForwardArgs& a) {
  const CudnnPlan* plan = PlanOf(KeyOf(a));
  CHECK_GE(a.workspace.bytes, plan->workspace_bytes());
  const auto scale = static_cast<float>(a.shape.scale);
  const auto window = static_cast<int32_t>(a.shape.window);
  CudnnLauncher launcher;
  launcher.Bind(kQ, a.q.data);
  launcher.Bind(kK, a.k.data);
  launcher.Bind(kV, a.v.data);
  launcher.Bind(kO, a.o.data);
  launcher.Bind(kStats, a.lse.data);
  launcher.Bind(kScale, &scale);
  if (a.shape.causal) launcher.Bind(kMinusInfinity, &kHidden);
  if (KeyOf(a).window != 0) launcher.Bind(kWindow, &window);
  const base::MutexLock lock(&mutex_);
  Bind(stream);
  launcher.Run(handle_, *plan, a.workspace.data);
}

void CudnnAttention::Grad(const Stream& stream, const AttentionGradArgs& a) {
  const Key key = KeyOf(a);
  const CudnnPlan* plan = PlanOf(key);
  const AttentionShape& z = a.shape;
  CHECK_GE(a.workspace.bytes, WorkspaceBytes(a));
  const auto scale = static_cast<float>(z.scale);
  const auto window = static_cast<int32_t>(z.window);
  char* const delta = static_cast<char*>(a.workspace.data);
  char* const sums = delta + DeltaBytes(z, key.b);
  char* const rest = sums + (a.deterministic ? 0 : SumsBytes(z, key.b));
  for (int64_t b = 0; b < z.b; b += key.b) {
    CudnnLauncher launcher;
    const auto bind = [&](int64_t uid, const HeadView& view) {
      launcher.Bind(uid, Sample(view, b).data);
    };
    bind(kQ, a.q);
    bind(kK, a.k);
    bind(kV, a.v);
    bind(kO, a.o);
    bind(kDout, a.do_);
    bind(kDq, a.dq);
    bind(kDk, a.dk);
    bind(kDv, a.dv);
    launcher.Bind(kStats, a.lse.Data<float>() + b * z.a * z.s);
    launcher.Bind(kScale, &scale);
    launcher.Bind(kOne, &kOneValue);
    launcher.Bind(kDelta, delta);
    if (!a.deterministic) launcher.Bind(kDqSums, sums);
    if (z.causal) launcher.Bind(kMinusInfinity, &kHidden);
    if (key.window != 0) launcher.Bind(kWindow, &window);
    const base::MutexLock lock(&mutex_);
    Bind(stream);
    launcher.Run(handle_, *plan, rest);
  }
}

}  // namespace mt::kernels::cuda
