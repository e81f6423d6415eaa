"""Random numbers as functions of what they are for: initial values and dropout masks.

The definitions are those of worker/params/README.md ("Initial values") and worker/model/README.md
("Dropout"): a stream is keyed by XXH3 of its name, seeded with training.seed, and counted by
position, with Philox4x32-10 (Salmon et al. 2011, section 3.3).
"""
import ctypes
import ctypes.util

import numpy as np

_XXHASH = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0")
_XXHASH.XXH3_64bits_withSeed.restype = ctypes.c_uint64
_XXHASH.XXH3_64bits_withSeed.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]


class _Hash128(ctypes.Structure):
    _fields_ = [("low64", ctypes.c_uint64), ("high64", ctypes.c_uint64)]


_XXHASH.XXH3_128bits.restype = _Hash128
_XXHASH.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]

LOW32 = np.uint64(0xFFFFFFFF)


def stream_key(name, seed):
    """The 64-bit key of the stream of this name."""
    data = name.encode()
    return _XXHASH.XXH3_64bits_withSeed(data, len(data), seed)


def digest128(data):
    """XXH3-128 of bytes as 32 hex digits, the high half first (worker/checkpoint/FORMAT.md)."""
    value = _XXHASH.XXH3_128bits(data, len(data))
    return f"{value.high64:016x}{value.low64:016x}"


def philox(key, counters):
    """Philox4x32-10 of counters, uint32 [n, 4] -> uint32 [n, 4]."""
    words = [counters[..., i].astype(np.uint64) for i in range(4)]
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p0 = words[0] * np.uint64(0xD2511F53)
        p1 = words[2] * np.uint64(0xCD9E8D57)
        words = [(p1 >> np.uint64(32)) ^ words[1] ^ np.uint64(k0), p1 & LOW32,
                 (p0 >> np.uint64(32)) ^ words[3] ^ np.uint64(k1), p0 & LOW32]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(words, -1).astype(np.uint32)


def normal_values(name, seed, shape, std):
    """std * N(0, 1), float64 of this shape: two elements, in row-major order, of each call."""
    count = int(np.prod(shape))
    pairs = np.arange((count + 1) // 2, dtype=np.uint64)
    counters = np.zeros((len(pairs), 4), np.uint32)
    counters[:, 0] = pairs & LOW32
    counters[:, 1] = pairs >> np.uint64(32)
    words = philox(stream_key(name, seed), counters).astype(np.uint64)
    first = words[:, 0] | words[:, 1] << np.uint64(32)
    second = words[:, 2] | words[:, 3] << np.uint64(32)
    u1 = ((first >> np.uint64(11)) + np.uint64(1)).astype(np.float64) * 2.0**-53  # (0, 1]
    u2 = (second >> np.uint64(11)).astype(np.float64) * 2.0**-53  # [0, 1)
    radius = np.sqrt(-2.0 * np.log(u1))
    angle = 2.0 * np.pi * u2
    values = np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1).reshape(-1)
    return std * values[:count].reshape(shape)


def _multipliers(key, counters, count, p):
    """Multipliers of `count` elements along the last axis: 0, or 1 / (1 - threshold / 65536).

    counters [..., ceil(count / 8), 4]; a call gives eight elements of 16 bits, of each word the low
    half first.
    """
    words = philox(key, counters)
    halves = np.stack([words & np.uint32(0xFFFF), words >> np.uint32(16)], -1)
    bits = halves.reshape(*counters.shape[:-2], -1)[..., :count]
    threshold = int(np.floor(65536 * p + 0.5))
    return np.where(bits >= threshold, 65536.0 / (65536.0 - threshold), 0.0)


def _stream_of_site(layer, site, seed):
    return stream_key(f"dropout/{layer}/{site}", seed)


def hidden_mask(seed, layer, site, p, samples, shape):
    """Multipliers [b, s, h] of the channels of samples [b] (running numbers), `shape` (s, h)."""
    length, channels = shape
    counters = np.zeros((len(samples), length, -(-channels // 8), 4), np.uint32)
    counters[..., 0] = np.arange(counters.shape[2])
    counters[..., 1] = np.arange(length)[:, None]
    counters[..., 2] = (samples & 0xFFFFFFFF)[:, None, None]
    counters[..., 3] = (samples >> 32)[:, None, None]
    return _multipliers(_stream_of_site(layer, site, seed), counters, channels, p)


def probability_mask(seed, layer, p, samples, shape):
    """Multipliers [b, heads, s, s] of attention probabilities, `shape` (heads, s)."""
    heads, length = shape
    counters = np.zeros((len(samples), heads, length, -(-length // 8), 4), np.uint32)
    counters[..., 0] = np.arange(counters.shape[3])
    counters[..., 1] = np.arange(length)[:, None]
    counters[..., 2] = (samples & 0xFFFFFFFF)[:, None, None, None]
    counters[..., 3] = (np.arange(heads)[None, :] + ((samples >> 32) << 16)[:, None])[:, :, None, None]
    return _multipliers(_stream_of_site(layer, "probabilities", seed), counters, length, p)
