// The binary interface of libmt_sentencepiece.so, a module of its own because Debian's
// libsentencepiece brings a protobuf of its own, which in one scope with ours is undefined
// behaviour. Plain C: nothing of C++ crosses it, and each side frees what it has allocated. Every
// function may be called by several threads at once. Errors are text in `error`, cut to its
// size less one.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

inline constexpr char kSentencePieceSymbol[] = "kMtSentencePieceFunctions";
inline constexpr int32_t kSentencePieceVersion = 1;

// Where a function puts what went wrong, as text that ends in a zero byte.
struct MtErrorText {
  char* data;
  size_t size;
};

struct MtSentencePieceFunctions {
  int32_t version;
  // A model from the bytes of its file; nullptr with `error`. Free releases it.
  void* (*load)(const char* data, size_t size, MtErrorText error);
  void (*free)(void* model);
  int32_t (*size)(void* model);
  int32_t (*eos)(void* model);  // -1: none
  // Gives the result to `take` in one call; false with `error`.
  bool (*encode)(void* model, const char* text, size_t size,
                 void (*take)(void* sink, const int32_t* ids, size_t count), void* sink,
                 MtErrorText error);
  bool (*decode)(void* model, const int32_t* ids, size_t count,
                 void (*take)(void* sink, const char* text, size_t size), void* sink,
                 MtErrorText error);
};
}
