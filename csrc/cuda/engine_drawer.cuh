// The thread that draws tiles for the blocks of a cluster, so that the threads that fill their stages have each when the
// one before has been loaded: to draw and to find a tile takes as long as four steps of multiplying.
#pragma once

#include "engine.cuh"

namespace packedtri::cuda {

// One of the first block of a cluster, or of each block.
template <class Shape, int PRODUCTS>
class EngineDrawer {
    using T = typename Shape::T;
    using Args = EngineArgsOf<Shape, PRODUCTS>;

  public:
    // Where all other warps make images, the thread that fills the stages draws, and in TF32 where sums are cut, which is
    // faster then.
    static constexpr bool APART = !Shape::PACKS && !(Shape::SCALED && Shape::CUTS);
    // How many steps before the last of a tile the next one is asked for. Sooner, and who is done first would not have
    // the next one; later, and it would not be there in time.
    static constexpr int AHEAD = !APART ? 0 : Shape::CLUSTER > 1 ? 3 : 1;

    __device__ EngineDrawer(const Args& args, const EngineShared<Shape>& shared)
        : args_(args), shared_(shared) {}

    // Draws all items but the first, each when it is wanted.
    __device__ void run() {
        if (dealt(args_) == EngineItem::NONE) return;
        do ptx::mbarrier_wait(shared_.wanted(), drawn_ % 2);
        while (draw_next());
    }
    __device__ bool draw_next() { return send(next()); }
    // Where none are dealt.
    __device__ void draw_first() { send(find(cluster())); }
    // What this block begins with, where items are dealt.
    __device__ static int64_t dealt(const Args& args) { return args.dealing.first[cluster()]; }

  private:
    __device__ static int cluster() { return static_cast<int>(blockIdx.x) / Shape::CLUSTER; }

    // To the threads that fill the stages. Returns whether it is an item.
    __device__ bool send(int64_t word) {
        const int slot = drawn_++ % Shape::DRAWS;
        const uint32_t barrier = shared_.drawn(slot);
        if (Shape::CLUSTER > 1) {
            const uint32_t there = ptx::shared_address(const_cast<int64_t*>(shared_.draw(slot)));
            ptx::store_peer(ptx::peer_address(there, 1), word, ptx::peer_address(barrier, 1));
        }
        *shared_.draw(slot) = word;
        ptx::mbarrier_arrive(barrier);
        return word != EngineItem::NONE;
    }

    // Blocks that share sums have every so manieth shared tile, of which they began with the first. Then they draw.
    __device__ int64_t next() {
        if constexpr (Shape::CLUSTER == 1) {
            const int sharers = args_.split, groups = static_cast<int>(gridDim.x) / sharers,
                      block = static_cast<int>(blockIdx.x);
            if (shared_tile_ < 0) shared_tile_ = block / sharers;
            while (shared_tile_ < args_.shared_items()) {
                const int64_t word = args_.shared_item(shared_tile_, block % sharers);
                shared_tile_ += groups;
                if (word == EngineItem::NONE) continue;
                if (began_) return word;
                began_ = true;
            }
        }
        return find(draw());
    }
    // The item of this number that a block has alone, or of a later one where there is none.
    __device__ int64_t find(int number) {
        for (; number < args_.lone_items(); number = draw())
            if (const int64_t word = args_.lone_item(number); word != EngineItem::NONE) return word;
        return EngineItem::NONE;
    }

    __device__ int draw() {
        // The counter is made zero by the kernel before.
        if (!started_) ptx::wait_for_dependency();
        started_ = true;
        int begun = 0;
        if constexpr (Shape::PACKS) begun = static_cast<int>(gridDim.x) / Shape::CLUSTER;
        else begun = args_.dealing.count;
        return begun + atomicAdd(args_.counters + EngineCounters::ITEMS, 1);
    }

    const Args& args_;
    const EngineShared<Shape> shared_;
    int drawn_ = 0;
    int shared_tile_ = -1;  // The next of those that this block shares.
    bool began_ = false;    // Whether it has passed the one that it began with.
    bool started_ = false;
};

}  // namespace packedtri::cuda
