"""How near a prediction must be. Each function returns texts, one for each difference."""
import numpy as np

# A number: |a - b| <= RELATIVE |b|. A tensor, by 2-norms: |a - b| <= RELATIVE |b| + OF_LARGEST x
# the largest tensor of its kind, since the true gradient of a key's bias is 0.
RELATIVE, OF_LARGEST = 1e-12, 1e-13


def equal(what, got, want):
    return [] if got == want else [f"{what}: {got!r}, predicted {want!r}"]


def number(what, got, want):
    close = abs(got - want) <= RELATIVE * abs(want)  # false for NaN
    return [] if close else [f"{what}: {got!r}, predicted {want!r}"]


def numbers(got, want):
    """Dictionaries with the same names."""
    texts = equal("names of numbers", sorted(got), sorted(want))
    for name in sorted(got.keys() & want.keys()):
        texts += number(name, got[name], want[name])
    return texts


def tensors(what, got, want):
    """Dictionaries of the tensors of one kind, with the same names and shapes."""
    texts = equal(f"{what}, shapes", {name: value.shape for name, value in got.items()},
                  {name: value.shape for name, value in want.items()})
    if texts:
        return texts
    largest = max(np.linalg.norm(value) for value in want.values())
    wrong = []
    for name, b in want.items():
        away, size = np.linalg.norm(got[name] - b), np.linalg.norm(b)
        bound = RELATIVE * size + OF_LARGEST * largest
        if not away <= bound:
            wrong.append((away / bound, f"{name} |a-b| {away:.3g}, |b| {size:.3g}"))
    if not wrong:
        return []
    worst = "; ".join(text for _, text in sorted(wrong, reverse=True)[:3])
    return [f"{what}: {len(wrong)} of {len(want)} tensors differ; {worst}"]
