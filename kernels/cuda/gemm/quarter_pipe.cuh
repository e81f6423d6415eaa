// How an epilogue of a custom GEMM (hopper_gemm.cuh) moves tensors through the quarters: buffers of
// 64 features x 96 tokens in shared memory. A tile has kParts parts, and a part takes kBoxes
// buffers, a slot; with fewer slots than parts each slot is used twice a tile.
//
// A consumer warpgroup works on a slot between two barriers. `ready` says that it may: with
// kLoads that TMA has brought what the part reads, else that the results of the slot's last use
// have left it. `written` says that the results are there; a thread of the producer warpgroup then
// stores them by TMA, and loads or frees the slot for its next use. A slot's uses are numbered from
// the block's first tile on, and use u is awaited by the parity of u: which half of a tile's parts
// it is if there are two uses a tile, else which of its tiles, of which the warpgroups take turns.
#pragma once

#include "kernels/cuda/gemm/hopper_gemm.cuh"

namespace mt::kernels::cuda {

template <int kPartsOfTile, int kBoxesOfPart, bool kLoadsParts>
class QuarterPipe {
 public:
  static constexpr int kParts = kPartsOfTile, kBoxes = kBoxesOfPart;
  static constexpr bool kLoads = kLoadsParts;
  static constexpr int kSlots = kTileQuarters / kBoxes, kUses = kParts / kSlots;
  static_assert(kParts == kUses * kSlots && (kUses == 1 || kUses == 2));
  static constexpr int kBarriers = 2 * kSlots;

  // One thread, before the block synchronises.
  static __device__ __forceinline__ void Init(uint32_t barriers) {
    for (int i = 0; i < kSlots; ++i) {
      InitBarrier(barriers + 8 * i, 1);
      InitBarrier(barriers + 8 * (kSlots + i), kWarpgroupWarps);
    }
  }

  // The copying thread, for all tiles of the block: store(at, part, from) stores the boxes of a
  // part, which lie at `from` and on; load(at, part, to, barrier) loads them, and `barrier` expects
  // their bytes already.
  template <class Load, class Store>
  static __device__ __forceinline__ void Copy(const GemmBlock& block, const TileCut& cut,
                                              const Load& load, const Store& store) {
    const auto load_part = [&](int tile, int part) {
      if (tile >= block.tiles) return;
      const int slot = part % kSlots;
      ArriveAndExpect(Ready(block, slot), kBoxes * kQuarterBytes);
      load(TileAt(cut, tile, block.rank), part, SlotAt(block, slot), Ready(block, slot));
    };
    if constexpr (kLoads) {
      for (int slot = 0; slot < kSlots; ++slot) load_part(block.first, slot);
    }
    int tile_parity = 0;  // of the number of the block's tile
    for (int tile = block.first; tile < block.tiles; tile += block.stride, tile_parity ^= 1) {
      const TilePlace at = TileAt(cut, tile, block.rank);
      for (int part = 0; part < kParts; ++part) {
        const int slot = part % kSlots;
        WaitPhase(Written(block, slot), ParityOf(part, tile_parity));
        store(at, part, SlotAt(block, slot));
        WaitStoresRead();
        if constexpr (!kLoads) {
          Arrive(Ready(block, slot));
        } else if (part + kSlots < kParts) {
          load_part(tile, part + kSlots);
        } else {
          load_part(tile + block.stride, part + kSlots - kParts);
        }
      }
    }
    WaitStores();
  }
  template <class Store>
  static __device__ __forceinline__ void Copy(const GemmBlock& block, const TileCut& cut,
                                              const Store& store) {
    static_assert(!kLoads);
    Copy(
        block, cut, [](const TilePlace&, int, uint32_t, uint32_t) {}, store);
  }

  // A consumer warpgroup's work on one part of its tile, between BeginPart and EndPart; parts in
  // ascending order. BeginPart returns the slot's address. After the last part has begun, the other
  // warpgroup may use the quarters.
  static __device__ __forceinline__ uint32_t BeginPart(const GemmBlock& block, int group,
                                                       int part) {
    // The other warpgroup has the odd tiles. The first use of a slot that is not loaded waits for
    // nothing: its parity is that of a phase before the first.
    const int parity = ParityOf(part, group);
    WaitPhase(Ready(block, part % kSlots), kLoads ? parity : 1 - parity);
    if (part == kParts - 1 && LaneOfWarp() == 0) Arrive(block.finish + 8 * (1 - group));
    return SlotAt(block, part % kSlots);
  }
  static __device__ __forceinline__ void EndPart(const GemmBlock& block, int part) {
    ShowToTiles();
    __syncwarp();
    if (LaneOfWarp() == 0) Arrive(Written(block, part % kSlots));
  }

 private:
  static __device__ __forceinline__ uint32_t Ready(const GemmBlock& block, int slot) {
    return block.epilogue + 8 * slot;
  }
  static __device__ __forceinline__ uint32_t Written(const GemmBlock& block, int slot) {
    return block.epilogue + 8 * (kSlots + slot);
  }
  static __device__ __forceinline__ uint32_t SlotAt(const GemmBlock& block, int slot) {
    return block.quarters + slot * kBoxes * kQuarterBytes;
  }
  static __device__ __forceinline__ int ParityOf(int part, int tile_parity) {
    return kUses == 1 ? tile_parity : part / kSlots;
  }
};

}  // namespace mt::kernels::cuda
