// The rotation of one head and its inverse, with or without the RMSNorm of the head before it.
// Every element is rounded once, after norm and rotation.
#include "kernels/cpu/loops/rope_loops.h"

#include "kernels/cpu/loops/reduce.h"

namespace mt::kernels::cpu {
namespace {

// Cosines and sines of a row's position, [r/2] each; null without rotation.
template <class T>
struct Turn {
  const T* cos = nullptr;
  const T* sin = nullptr;
  int64_t half = 0;
};

template <class S, class T = Compute<S>>
MT_ALWAYS_INLINE Turn<T> TurnOf(const RotateRows<S>& x, int64_t row) {
  if (x.table == nullptr) return {};
  const T* cos = x.table + x.positions[row / x.rows_per_position] * x.r;
  return {cos, cos + x.r / 2, x.r / 2};
}

// (to[i], to[i + half]) = the pair (value(i), value(i + half)) rotated; `back`: by the negative
// angle. Each pair is read before it is written, so `to` may be the memory that `value` reads.
template <class S, class T, class Value>
MT_ALWAYS_INLINE void TurnPairs(const Turn<T>& turn, bool back, Value value, S* to) {
  for (int64_t i = 0; i < turn.half; ++i) {
    const T cos = turn.cos[i], sin = back ? -turn.sin[i] : turn.sin[i];
    const T first = value(i), second = value(i + turn.half);
    Narrow(first * cos - second * sin, &to[i]);
    Narrow(second * cos + first * sin, &to[i + turn.half]);
  }
}

// input = head; head = rotate(head * rstd * gain), for one head. Returns rstd.
template <class S, class T = Compute<S>>
MT_ALWAYS_INLINE T NormaliseHead(const RotateRows<S>& x, const S* __restrict__ gain,
                                 const Turn<T>& turn, S* __restrict__ input, S* __restrict__ head) {
  for (int64_t i = 0; i < x.d; ++i) input[i] = head[i];
  const T variance = SquaredDeviation(input, T{0}, x.d) / static_cast<T>(x.channels);
  const T rstd = T{1} / Sqrt(variance + x.eps);
  const T plus = x.one_plus ? T{1} : T{0};
  const auto normed = [ input, gain, rstd, plus ](int64_t i) __attribute__((always_inline)) {
    return Widen(input[i]) * rstd * (Widen(gain[i]) + plus);
  };
  TurnPairs(turn, false, normed, head);
  for (int64_t i = 2 * turn.half; i < x.d; ++i) Narrow(normed(i), &head[i]);
  return rstd;
}

// The gradient of one head, in place: back through the rotation, then through the norm, dx = rstd
// (g - xhat mean(g xhat)) with g = dy * gain. Adds dy * xhat to the gain's sum.
template <class S, class T = Compute<S>>
MT_ALWAYS_INLINE void NormaliseHeadGrad(const RotateRows<S>& x, const Turn<T>& turn, bool query,
                                        int64_t head_idx, S* head, const RotateGradSums<T>& to) {
  const S* __restrict__ gain = query ? x.q_gain : x.k_gain;
  const S* __restrict__ input = x.input + head_idx * x.d;
  T* __restrict__ dgain = query ? to.dq_gain : to.dk_gain;
  T* __restrict__ scratch = to.scratch;
  const T rstd = x.rstd[head_idx];
  const T plus = x.one_plus ? T{1} : T{0};
  TurnPairs(
      turn, true, [head](int64_t i) __attribute__((always_inline)) { return Widen(head[i]); },
      scratch);
  for (int64_t i = 2 * turn.half; i < x.d; ++i) scratch[i] = Widen(head[i]);
  for (int64_t i = 0; i < x.d; ++i) dgain[i] += scratch[i] * (Widen(input[i]) * rstd);
  for (int64_t i = 0; i < x.d; ++i) scratch[i] *= Widen(gain[i]) + plus;
  const T slope = rstd * (rstd * Dot(scratch, input, x.d)) / static_cast<T>(x.channels);
  for (int64_t i = 0; i < x.d; ++i) {
    Narrow(rstd * (scratch[i] - Widen(input[i]) * slope), &head[i]);
  }
}

template <class S>
MT_ALWAYS_INLINE void TurnHead(const Turn<Compute<S>>& turn, bool back, S* head) {
  TurnPairs(
      turn, back, [head](int64_t i) __attribute__((always_inline)) { return Widen(head[i]); },
      head);
}

}  // namespace

template <class S>
void RotateRange(const RotateRows<S>& x, int64_t row_begin, int64_t row_end) {
  const int64_t heads = x.a + x.g, width = (x.a + 2 * x.g) * x.d;
  for (int64_t row = row_begin; row < row_end; ++row) {
    const Turn<Compute<S>> turn = TurnOf(x, row);
    for (int64_t j = 0; j < heads; ++j) {
      S* const head = x.qkv + row * width + j * x.d;
      if (x.q_gain == nullptr) {
        TurnHead(turn, false, head);
      } else {
        const int64_t at = row * heads + j;
        x.rstd[at] =
            NormaliseHead(x, j < x.a ? x.q_gain : x.k_gain, turn, x.input + at * x.d, head);
      }
    }
  }
}

template <class S>
void RotateGradRange(const RotateRows<S>& x, int64_t row_begin, int64_t row_end,
                     const RotateGradSums<Compute<S>>& to) {
  const int64_t heads = x.a + x.g, width = (x.a + 2 * x.g) * x.d;
  for (int64_t row = row_begin; row < row_end; ++row) {
    const Turn<Compute<S>> turn = TurnOf(x, row);
    for (int64_t j = 0; j < heads; ++j) {
      S* const head = x.qkv + row * width + j * x.d;
      if (x.q_gain == nullptr) {
        TurnHead(turn, true, head);
      } else {
        NormaliseHeadGrad(x, turn, j < x.a, row * heads + j, head, to);
      }
    }
  }
}

template void RotateRange<float>(const RotateRows<float>&, int64_t, int64_t);
template void RotateGradRange<float>(const RotateRows<float>&, int64_t, int64_t,
                                     const RotateGradSums<float>&);
template void RotateRange<double>(const RotateRows<double>&, int64_t, int64_t);
template void RotateGradRange<double>(const RotateRows<double>&, int64_t, int64_t,
                                      const RotateGradSums<double>&);
template void RotateRange<Bf16>(const RotateRows<Bf16>&, int64_t, int64_t);
template void RotateGradRange<Bf16>(const RotateRows<Bf16>&, int64_t, int64_t,
                                    const RotateGradSums<float>&);
template void RotateRange<F16>(const RotateRows<F16>&, int64_t, int64_t);
template void RotateGradRange<F16>(const RotateRows<F16>&, int64_t, int64_t,
                                   const RotateGradSums<float>&);

}  // namespace mt::kernels::cpu
